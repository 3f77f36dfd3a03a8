import NIOCore
import Session

/// The helper commands that run. None outlives the daemon.
actor RunningHelpers {
    private nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private typealias Run = Task<Result<SessionCredential, Credential.Failure>, Never>

    /// How long the end of all helpers is waited for, which is longer than they have. One that hangs in the kernel does
    /// not even end when it is killed.
    private static let patience = TimeAmount.seconds(5)

    private let timeLimit: Duration
    private var running: [Int: Run] = [:]
    private var last = 0
    private var isStopping = false

    init(eventLoop: any EventLoop, timeLimit: Duration = CredentialHelper.timeLimit) {
        self.eventLoop = eventLoop
        self.timeLimit = timeLimit
    }

    /// Runs a helper: see ``CredentialHelper``. It is ended if the calling task is cancelled.
    func fetch(_ command: [String]) async throws(Credential.Failure) -> SessionCredential {
        guard !isStopping else { throw Credential.Failure(description: "the daemon is stopping") }
        last += 1
        let number = last
        let run = Run {
            do throws(Credential.Failure) {
                return .success(try await CredentialHelper.fetch(command, timeLimit: timeLimit))
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

    /// Ends all helpers, and returns when they are gone. From now on, none is run.
    func stop() async {
        isStopping = true
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
