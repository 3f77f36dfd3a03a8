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

    init(patience: Duration, blocking: BlockingCalls, logger: Logger, eventLoop: any EventLoop) {
        self.patience = patience
        self.blocking = blocking
        self.logger = logger
        self.eventLoop = eventLoop
        refreshes = SharedRuns(eventLoop: eventLoop)
    }

    /// What the names stand for, as far as it is known.
    nonisolated var known: Accounts { assumeIsolated { $0.found } }

    /// Looks up what `names` says, for callers that need what is true from now on.
    func refresh(_ names: @escaping @Sendable () async -> [Principal]) async {
        await refreshes.run { await self.lookUp(await names()) }
    }

    func lookUp(_ principals: [Principal]) async {
        let wanted = principals.filter(\.isName)
        guard !wanted.isEmpty else { return }
        do {
            let answer = try await blocking.run("accounts", within: patience) { Accounts(of: wanted) }.get()
            found.update(with: answer)
            if let failure = answer.failure { throw failure }
            isFailureTold = false
        } catch {
            guard !isFailureTold else { return }
            isFailureTold = true
            logger.warning(
                "the users and groups that the configuration names cannot be looked up, and what they were before counts: \(error)"
            )
        }
    }
}
