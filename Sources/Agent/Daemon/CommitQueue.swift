import DurableStore
import MQTT
import NIOCore
import SessionCore

/// Group commit: what all sessions want to have durable is collected while the last transaction runs, and goes to disk
/// in the next one, in order.
actor CommitQueue {
    /// How a commit went.
    enum Outcome: Hashable, Sendable {
        case committed
        /// There was no room: everything but the new messages is durable.
        case committedWithoutInserts
    }

    /// What one session wants to have durable, by one call or several.
    private struct Entry {
        var session: SessionName
        var changes: [DurableChange] = []
        var waiters: [Waiter] = []

        var hasInserts: Bool { waiters.contains(where: \.hasInserts) }
    }

    /// One call.
    private struct Waiter {
        var hasInserts: Bool
        var isCumulative: Bool
        var completion: @Sendable (Outcome) -> Void
    }

    /// How long to wait before a transaction that failed is tried again.
    static let retryInterval = Duration.seconds(1)

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let store: any SessionStore
    private var waiting: [Entry] = []
    /// Where in `waiting` a session is.
    private var places: [SessionName: Int] = [:]
    private var isRunning = false
    /// Why not even a transaction without new messages succeeds; `nil` when it does.
    private(set) var failure: StoreError?
    /// Whether it was told that transactions fail. They are not said to succeed again before one with messages has: a
    /// full disk still takes everything else.
    private var isFailureTold = false
    private let failureChanged: @Sendable (StoreError?) -> Void

    /// - Parameter failureChanged: called on the loop with the first error when transactions begin to fail, and with `nil`
    ///   when messages can be committed again.
    init(
        store: any SessionStore, eventLoop: any EventLoop,
        failureChanged: @escaping @Sendable (StoreError?) -> Void
    ) {
        self.store = store
        self.eventLoop = eventLoop
        self.failureChanged = failureChanged
    }

    /// Makes the changes durable and then calls `completion` on the loop. Completions of a session come in the order of the
    /// calls; with no changes, a completion says that everything before is durable.
    ///
    /// - Parameter isCumulative: `committed` would say the same of every call before it. Then it is called once for calls
    ///   in a row that were committed together, for the last of them.
    func commit(
        _ changes: [DurableChange], of session: SessionName, isCumulative: Bool = false,
        completion: @escaping @Sendable (Outcome) -> Void
    ) {
        let place = places[session] ?? waiting.endIndex
        if place == waiting.endIndex {
            waiting.append(Entry(session: session))
            places[session] = place
        }
        waiting[place].changes += changes
        waiting[place].waiters.append(
            Waiter(
                hasInserts: !changes.allSatisfy(\.isNoInsert), isCumulative: isCumulative, completion: completion))
        guard !isRunning else { return }
        isRunning = true
        Task { await run() }
    }

    private func run() async {
        while !waiting.isEmpty {
            let batch = waiting
            waiting = []
            places = [:]
            await commit(batch)
        }
        isRunning = false
    }

    /// Does not return before the batch is durable, with or without its new messages: what happened on the wire cannot
    /// be taken back.
    private func commit(_ batch: [Entry]) async {
        var isWithoutInserts = !batch.contains(where: \.hasInserts)
        while true {
            let changes = batch.filter { !$0.changes.isEmpty }
                .map { (session: $0.session, changes: isWithoutInserts ? $0.changes.filter(\.isNoInsert) : $0.changes) }
            do throws(StoreError) {
                if !changes.isEmpty { try await store.commit(changes) }
                failure = nil
                if isFailureTold, !isWithoutInserts { tell(nil) }
                break
            } catch {
                if !isFailureTold { tell(error) }
                if isWithoutInserts {
                    failure = error
                    await eventLoop.pause(for: Self.retryInterval)
                } else {
                    isWithoutInserts = true
                }
            }
        }
        for entry in batch { complete(entry.waiters, isWithoutInserts: isWithoutInserts) }
    }

    private func complete(_ waiters: [Waiter], isWithoutInserts: Bool) {
        func outcome(_ waiter: Waiter) -> Outcome {
            isWithoutInserts && waiter.hasInserts ? .committedWithoutInserts : .committed
        }
        for (index, waiter) in waiters.enumerated() {
            if waiter.isCumulative, index + 1 < waiters.endIndex {
                let next = waiters[index + 1]
                // The next one says it of both.
                if next.isCumulative, outcome(waiter) == .committed, outcome(next) == .committed { continue }
            }
            waiter.completion(outcome(waiter))
        }
    }

    private func tell(_ error: StoreError?) {
        isFailureTold = error != nil
        failureChanged(error)
    }
}

extension EventLoop {
    /// Returns after the time has passed, or when the loop ends before.
    func pause(for duration: Duration) async {
        await withCheckedContinuation { continuation in
            scheduleTask(in: .nanoseconds(duration.nanoseconds)) {}
                .futureResult.whenComplete { _ in continuation.resume() }
        }
    }
}

extension DurableChange {
    fileprivate var isNoInsert: Bool {
        switch self {
        case .insert, .putPublication, .collect: false
        default: true
        }
    }
}
