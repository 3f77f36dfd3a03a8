import ControlAPI
import DurableStore
import Logging
import NIOCore
import SessionCore

/// Writes the history to the store, in order and beside the commits. Entries that arrive within a moment, or while a
/// transaction runs, go into one transaction. No session waits for it, and what the store does not accept is dropped.
actor HistoryQueue {
    /// How many entries may wait; beyond that, the oldest are dropped.
    static let maximumWaiting = 1000
    /// How long entries are gathered for one transaction: a session that reconnects at once has several.
    static let gathering = Duration.milliseconds(20)
    /// How often, at most, a sign of life is written to disk.
    static let signOfLifeInterval = Duration.seconds(300)

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let store: any SessionStore
    private let logger: Logger
    private var recorder = HistoryRecorder()
    private var waiting: [HistoryEntry] = []
    private var isRunning = false
    private var isFailing = false
    private var waiters: [CheckedContinuation<Void, Never>] = []
    private var lastSignOfLife: Instant?
    /// Notices when the wall clock is set, so that the history does not take the difference for time that has passed.
    private var clockSteps: ClockStepDetector?

    init(store: any SessionStore, logger: Logger, eventLoop: any EventLoop) {
        self.store = store
        self.logger = logger
        self.eventLoop = eventLoop
    }

    /// Records what an event of a session means for its history.
    func take(_ session: SessionName, _ event: SessionEvent) { record(recorder.take(session, event)) }

    /// Records that a session was started.
    func started(_ status: SessionStatus, _ session: SessionName, at time: Timestamp) {
        record(recorder.started(status, session, at: time))
    }

    /// Records that a session was removed from the configuration.
    func removed(_ session: SessionName, at time: Timestamp) { record(recorder.removed(session, at: time)) }

    /// Records that the wall clock was set, if it was since the last look.
    func lookAtClocks(now: Instant, wallClock: Timestamp) {
        guard var steps = clockSteps else {
            clockSteps = ClockStepDetector(now: now, wallClock: wallClock.rawValue)
            return
        }
        let step = steps.check(now: now, wallClock: wallClock.rawValue)
        clockSteps = steps
        guard let step else { return }
        clockStepped(by: .milliseconds(step.milliseconds), at: step.affected.upperBound)
    }

    /// Records that the wall clock was set.
    func clockStepped(by step: Duration, at time: Timestamp) {
        for entry in recorder.clockStepped(by: step, at: time) { record(entry) }
    }

    /// Records that the daemon stops, and returns when everything is in the store, or dropped.
    func stopped(at time: Timestamp) async {
        for entry in recorder.stopped(at: time) { record(entry) }
        await everythingRecorded()
    }

    func record(_ entry: HistoryEntry?) {
        guard let entry else { return }
        waiting.append(entry)
        if waiting.count > Self.maximumWaiting { waiting.removeFirst() }
        guard !isRunning else { return }
        isRunning = true
        Task { await run() }
    }

    /// Returns when everything recorded so far is in the store, or dropped.
    func everythingRecorded() async {
        await withCheckedContinuation { continuation in
            if isRunning { waiters.append(continuation) } else { continuation.resume() }
        }
    }

    /// Writes a sign of life from time to time. Called when the daemon is awake anyway, since there is no timer for it.
    func noteAlive(at now: Instant) {
        if let last = lastSignOfLife, last.duration(to: now) < Self.signOfLifeInterval { return }
        lastSignOfLife = now
        Task { await self.store.noteAlive() }
    }

    private func run() async {
        repeat {
            await eventLoop.pause(for: Self.gathering)
            let entries = waiting
            var recorded = waiters
            (waiting, waiters) = ([], [])
            do throws(StoreError) {
                try await store.record(entries)
                isFailing = false
            } catch {
                if !isFailing { logger.warning("the history of the sessions has a gap: \(error)") }
                isFailing = true
            }
            if waiting.isEmpty {
                // Those that came during the transaction have waited for it alone.
                recorded += waiters
                waiters = []
            }
            for waiter in recorded { waiter.resume() }
        } while !waiting.isEmpty
        isRunning = false
    }
}
