import NIOCore

/// Runs something for callers that need what is true from now on. Those that come while it runs share the next run: the
/// one under way began before they came.
actor SharedRuns {
    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    /// The callers of the next run.
    private(set) var waiting: [CheckedContinuation<Void, Never>] = []
    private var isRunning = false

    init(eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
    }

    /// Returns when `body` has run from beginning to end. All callers pass the same one.
    func run(_ body: @escaping @Sendable () async -> Void) async {
        await withCheckedContinuation { continuation in
            waiting.append(continuation)
            guard !isRunning else { return }
            isRunning = true
            Task { await runAll(body) }
        }
    }

    private func runAll(_ body: @Sendable () async -> Void) async {
        while !waiting.isEmpty {
            let callers = waiting
            waiting = []
            await body()
            for caller in callers { caller.resume() }
        }
        isRunning = false
    }
}
