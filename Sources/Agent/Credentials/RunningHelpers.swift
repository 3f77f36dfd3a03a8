import NIOCore
import Session
import Transport

/// The helper commands that run, and those that wait until they may. None outlives the daemon.
actor RunningHelpers {
    private nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private typealias Run = Task<Result<SessionCredential, Credential.Failure>, Never>

    /// How long the end of all helpers is waited for, which is longer than they have. One that hangs in the kernel does
    /// not even end when it is killed.
    private static let patience = TimeAmount.seconds(5)

    /// Helpers at the same time. Others wait. `TasksMax=` of the service has room for them.
    static let maximumRuns = 16

    private let calls: BlockingCalls
    private let maximumRuns: Int
    private let timeLimit: Duration
    private var running: [Int: Run] = [:]
    /// Those that wait, in their order, each with what tells it whether it may run.
    private var waiting: [(number: Int, go: CheckedContinuation<Bool, Never>)] = []
    /// The helpers that run, and those that are about to.
    private var runCount = 0
    private var last = 0
    private var isStopping = false

    var waitingCount: Int { waiting.count }

    init(
        eventLoop: any EventLoop, calls: BlockingCalls, maximumRuns: Int = RunningHelpers.maximumRuns,
        timeLimit: Duration = CredentialHelper.timeLimit
    ) {
        self.eventLoop = eventLoop
        self.calls = calls
        self.maximumRuns = maximumRuns
        self.timeLimit = timeLimit
    }

    /// Runs a helper: see ``CredentialHelper``. Its time begins when it may run. It is ended if the calling task is
    /// cancelled.
    func fetch(_ command: [String]) async throws(Credential.Failure) -> SessionCredential {
        last += 1
        let number = last
        guard await mayRun(number) else {
            throw Credential.Failure(description: isStopping ? "the daemon is stopping" : "it was stopped")
        }
        defer { runEnded() }
        guard !isStopping else { throw Credential.Failure(description: "the daemon is stopping") }
        let run = Run {
            do throws(Credential.Failure) {
                return .success(try await CredentialHelper.fetch(command, by: calls, timeLimit: timeLimit))
            } catch {
                return .failure(error)
            }
        }
        running[number] = run
        defer { running[number] = nil }
        return try await withTaskCancellationHandler {
            await run.value
        } onCancel: {
            run.cancel()
        }.get()
    }

    /// Waits for a turn.
    private func mayRun(_ number: Int) async -> Bool {
        guard !isStopping else { return false }
        guard runCount == maximumRuns else {
            runCount += 1
            return true
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { waiting.append((number, $0)) }
        } onCancel: {
            eventLoop.execute { self.assumeIsolated { $0.giveUp(number) } }
        }
    }

    private func giveUp(_ number: Int) {
        guard let index = waiting.firstIndex(where: { $0.number == number }) else { return }
        waiting.remove(at: index).go.resume(returning: false)
    }

    /// The next one takes the place of one that has ended.
    private func runEnded() {
        if waiting.isEmpty { runCount -= 1 } else { waiting.removeFirst().go.resume(returning: true) }
    }

    /// Ends all helpers, and returns when they are gone. From now on, none is run.
    func stop() async {
        isStopping = true
        for helper in waiting { helper.go.resume(returning: false) }
        waiting = []
        guard !running.isEmpty else { return }
        let runs = running.values.map { $0 }
        for run in runs { run.cancel() }
        let over = eventLoop.makePromise(of: Void.self)
        let timer = eventLoop.scheduleTask(in: Self.patience) { over.succeed() }
        Task {
            for run in runs { _ = await run.value }
            over.succeed()
        }
        try? await over.futureResult.get()
        timer.cancel()
    }
}
