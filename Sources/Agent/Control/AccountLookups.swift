import Configuration
import Logging
import NIOCore
import Transport
import Vocabulary

/// Looks up the users and groups that the configuration names. While the name service does not answer, what it said
/// before stays true.
actor AccountLookups {
    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let blocking: BlockingCalls
    private let logger: Logger
    /// How long a program that connects waits for the name service.
    private let patience: Duration
    private let refreshes: SharedRuns
    private var found = Accounts()
    /// Whether the name service did not answer the last time.
    private var isFailureTold = false
    /// The users and groups that do not exist, of which the journal has a line.
    private var toldMissing: Set<String> = []

    /// What is looked up.
    struct Wanted: Sendable {
        /// What a file names.
        var named: [Principal]
        /// Also what counts if no file says otherwise. A host need not have those groups.
        var others: [Principal]
    }

    init(patience: Duration, blocking: BlockingCalls, logger: Logger, eventLoop: any EventLoop) {
        self.patience = patience
        self.blocking = blocking
        self.logger = logger
        self.eventLoop = eventLoop
        refreshes = SharedRuns(eventLoop: eventLoop)
    }

    /// What the names stand for, as far as it is known.
    nonisolated var known: Accounts { assumeIsolated { $0.found } }

    /// Looks up what `wanted` says, for callers that need what is true from now on.
    func refresh(_ wanted: @escaping @Sendable () async -> Wanted) async {
        await refreshes.run { await self.lookUp(await wanted()) }
    }

    func lookUp(_ wanted: Wanted) async {
        let names = (wanted.named + wanted.others).filter(\.isName)
        guard !names.isEmpty else { return }
        do {
            let answer = try await blocking.run("accounts", within: patience) { Accounts(of: names) }.get()
            found.update(with: answer)
            if let failure = answer.failure { throw failure }
            tellMissing(answer.missing(of: wanted.named))
            isFailureTold = false
        } catch {
            guard !isFailureTold else { return }
            isFailureTold = true
            logger.warning(
                "the users and groups that the configuration names cannot be looked up, and what they were before counts: \(error)"
            )
        }
    }

    /// Says once of each user and group that the files name that it does not exist: a mistyped name shuts people out.
    private func tellMissing(_ names: [String]) {
        for name in names where !toldMissing.contains(name) {
            logger.warning("\(name), which [access] or [topics] names, does not exist, so that entry is for nobody")
        }
        toldMissing = Set(names)
    }
}
