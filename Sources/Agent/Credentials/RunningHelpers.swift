import NIOCore
import Session
import Transport

/// The helper commands that run, and those that wait until they may. None outlives the daemon, except one that the kernel
/// does not let end.
///
/// The next turn goes to the program that has the fewest, so one that hangs does not keep the others from running.
actor RunningHelpers {
    private nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    typealias Fetch = @Sendable ([String]) async throws(Credential.Failure) -> SessionCredential
    private typealias Outcome = Result<SessionCredential, Credential.Failure>

    /// How long the end of a helper is waited for when it should have ended, which is longer than it has. One that hangs in
    /// the kernel does not even end when it is killed.
    private static let patience = TimeAmount.seconds(4)

    /// Helpers at the same time. Others wait. With those that do not end, there are at most twice as many; `TasksMax=` of
    /// the service has room for them.
    static let maximumRuns = 16

    /// What is told of a helper that cannot run at once.
    enum Turn: Sendable {
        /// As many run as may.
        case isAwaited
        /// It runs now.
        case hasCome
    }

    private struct Helper {
        enum State {
            case waiting
            case running(Task<Void, Never>)
            /// It was killed, and is still there.
            case givenUp
        }
        let command: [String]
        let turn: @Sendable (Turn) -> Void
        /// `nil` once it has its answer.
        var caller: CheckedContinuation<Outcome, Never>?
        var state = State.waiting
        var hasWaited = false
        /// Its place is free then.
        var limit: Scheduled<Void>?

        var program: String { command[0] }
        var isRunning: Bool { if case .running = state { true } else { false } }
        var isGivenUp: Bool { if case .givenUp = state { true } else { false } }
    }

    private let maximumRuns: Int
    /// What leaves places for other programs.
    private var maximumOfProgram: Int { max(1, maximumRuns / 2) }
    private let timeLimit: Duration
    private let patience: TimeAmount
    private let run: Fetch
    /// By their numbers, which are given in order.
    private var helpers: [Int: Helper] = [:]
    private(set) var waiting: [Int] = []
    private var last = 0
    /// Those who wait for the end of all helpers; `nil` before the daemon stops.
    private var stops: [CheckedContinuation<Void, Never>]?

    init(
        eventLoop: any EventLoop, calls: BlockingCalls, maximumRuns: Int = RunningHelpers.maximumRuns,
        timeLimit: Duration = CredentialHelper.timeLimit
    ) {
        self.init(eventLoop: eventLoop, maximumRuns: maximumRuns, timeLimit: timeLimit) {
            command throws(Credential.Failure) in
            try await CredentialHelper.fetch(command, by: calls, timeLimit: timeLimit)
        }
    }

    /// - Parameter run: runs a helper, and returns when it has ended.
    init(
        eventLoop: any EventLoop, maximumRuns: Int, timeLimit: Duration, patience: TimeAmount = RunningHelpers.patience,
        run: @escaping Fetch
    ) {
        self.eventLoop = eventLoop
        self.maximumRuns = maximumRuns
        self.timeLimit = timeLimit
        self.patience = patience
        self.run = run
    }

    /// Runs a helper: see ``CredentialHelper``. Its time begins when it may run. It is ended if the calling task is
    /// cancelled.
    ///
    /// - Parameter turn: called on the event loop if it has to wait until it may run, and again when it may.
    func fetch(
        _ command: [String], turn: @escaping @Sendable (Turn) -> Void = { _ in }
    ) async throws(Credential.Failure) -> SessionCredential {
        precondition(!command.isEmpty, "a helper command has at least one word")
        last += 1
        let number = last
        return try await withTaskCancellationHandler {
            await withCheckedContinuation { caller in
                begin(number, Helper(command: command, turn: turn, caller: caller))
            }
        } onCancel: {
            eventLoop.execute { self.assumeIsolated { $0.cancel(number) } }
        }.get()
    }

    private func begin(_ number: Int, _ helper: Helper) {
        helpers[number] = helper
        waiting.append(number)
        startNext()
        guard waiting.last == number else { return }
        helpers[number]?.hasWaited = true
        helper.turn(.isAwaited)
    }

    /// Gives the free places to those that wait.
    private func startNext() {
        for number in waiting {
            guard let helper = helpers[number], let failure = refusal(of: helper.program) else { continue }
            waiting.removeAll { $0 == number }
            end(number, .failure(failure))
        }
        while let number = next() {
            waiting.removeAll { $0 == number }
            start(number)
        }
    }

    /// Returns why a program is not even waited for: its turn might never come.
    private func refusal(of program: String) -> Credential.Failure? {
        guard stops == nil else { return Credential.Failure(description: "the daemon is stopping") }
        let givenUp = helpers.values.filter(\.isGivenUp)
        let ofProgram = givenUp.count { $0.program == program }
        guard ofProgram >= maximumOfProgram || givenUp.count >= maximumRuns else { return nil }
        let which = ofProgram >= maximumOfProgram ? "\(ofProgram) earlier runs of it" : "\(givenUp.count) helpers"
        return Credential.Failure(
            description: "\(program): it is not run, because \(which) do not even end when they are killed")
    }

    /// Returns which is next: of those with the fewest runs of their program, and then of their command, the first.
    private func next() -> Int? {
        let running = helpers.values.filter(\.isRunning)
        guard running.count < maximumRuns else { return nil }
        var next: (number: Int, runs: (Int, Int))?
        for number in waiting {
            guard let helper = helpers[number] else { continue }
            let ofProgram = running.filter { $0.program == helper.program }
            let runs = (ofProgram.count, ofProgram.count { $0.command == helper.command })
            guard runs.0 < maximumOfProgram, next.map({ runs < $0.runs }) ?? true else { continue }
            next = (number, runs)
        }
        return next?.number
    }

    private func start(_ number: Int) {
        guard let helper = helpers[number] else { return }
        let task = Task {
            let outcome: Outcome
            do throws(Credential.Failure) {
                outcome = .success(try await run(helper.command))
            } catch {
                outcome = .failure(error)
            }
            end(number, outcome)
            startNext()
        }
        helpers[number]?.state = .running(task)
        giveUp(number, in: TimeAmount(timeLimit) + patience)
        if helper.hasWaited { helper.turn(.hasCome) }
    }

    private func end(_ number: Int, _ outcome: Outcome) {
        guard let helper = helpers.removeValue(forKey: number) else { return }
        helper.limit?.cancel()
        helper.caller?.resume(returning: outcome)
        endStops()
    }

    private func cancel(_ number: Int) {
        switch helpers[number]?.state {
        case .waiting:
            waiting.removeAll { $0 == number }
            end(number, .failure(Credential.Failure(description: "it was stopped")))
        case .running(let task):
            task.cancel()
            giveUp(number, in: patience)
        case .givenUp, nil:
            break
        }
    }

    private func giveUp(_ number: Int, in time: TimeAmount) {
        helpers[number]?.limit?.cancel()
        helpers[number]?.limit = eventLoop.assumeIsolated().scheduleTask(in: time) {
            self.assumeIsolated { $0.giveUp(number) }
        }
    }

    /// Gives its place to another one.
    private func giveUp(_ number: Int) {
        guard let helper = helpers[number], helper.isRunning else { return }
        helpers[number]?.state = .givenUp
        helpers[number]?.caller.take()?.resume(
            returning: .failure(
                Credential.Failure(description: "\(helper.program): it does not even end when it is killed")))
        endStops()
        startNext()
    }

    /// Ends all helpers, and returns when they are gone or given up. From now on, none is run.
    func stop() async {
        await withCheckedContinuation { stop in
            stops = (stops ?? []) + [stop]
            startNext()
            for (number, helper) in helpers where helper.isRunning { cancel(number) }
            endStops()
        }
    }

    private func endStops() {
        guard let stops, !helpers.values.contains(where: \.isRunning) else { return }
        self.stops = []
        for stop in stops { stop.resume() }
    }
}
