import DurableStore
import Logging
import NIOCore
import SessionCore

/// Brings the history to the store, beside the commits and in order: what comes within a moment, or while a transaction
/// runs, goes into one transaction. Nobody waits for it, and what the store does not take is dropped.
actor HistoryQueue {
    /// As many entries wait at most; then the oldest are dropped.
    static let maximumWaiting = 1000
    /// For so long what comes is put together: a session that is connected again at once has more than one entry.
    static let gathering = Duration.milliseconds(20)
    /// How often, at most, a sign of life is written to the disk.
    static let signOfLifeInterval = Duration.seconds(300)

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let store: any SessionStore
    private let logger: Logger
    private var waiting: [HistoryEntry] = []
    private var isRunning = false
    private var isFailing = false
    private var idleWaiters: [CheckedContinuation<Void, Never>] = []
    private var lastSignOfLife: Instant?

    init(store: any SessionStore, logger: Logger, eventLoop: any EventLoop) {
        self.store = store
        self.logger = logger
        self.eventLoop = eventLoop
    }

    func record(_ entry: HistoryEntry) {
        waiting.append(entry)
        if waiting.count > Self.maximumWaiting { waiting.removeFirst() }
        guard !isRunning else { return }
        isRunning = true
        Task { await run() }
    }

    /// Returns when all that was given is in the store, or dropped.
    func everythingRecorded() async {
        await withCheckedContinuation { continuation in
            if isRunning { idleWaiters.append(continuation) } else { continuation.resume() }
        }
    }

    /// Called when the daemon is awake anyway: there is no timer for it.
    func noteAlive(at now: Instant) {
        if let last = lastSignOfLife, last.duration(to: now) < Self.signOfLifeInterval { return }
        lastSignOfLife = now
        Task { await self.store.noteAlive() }
    }

    private func run() async {
        while !waiting.isEmpty {
            await eventLoop.pause(for: Self.gathering)
            let entries = waiting
            waiting = []
            do throws(StoreError) {
                try await store.record(entries)
                isFailing = false
            } catch {
                if !isFailing { logger.warning("the history of the sessions has a gap: \(error)") }
                isFailing = true
            }
        }
        isRunning = false
        for waiter in idleWaiters { waiter.resume() }
        idleWaiters = []
    }
}
