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

    private struct Entry {
        var session: SessionName
        var changes: [DurableChange]
        var completion: @Sendable (Outcome) -> Void
    }

    /// How long to wait before a transaction that failed is tried again.
    static let retryInterval = Duration.seconds(1)

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let store: DurableStore
    private var waiting: [Entry] = []
    private var isRunning = false
    /// Why the last transaction failed; `nil` when it did not.
    private(set) var failure: StoreError?
    private let failureChanged: @Sendable (StoreError?) -> Void

    /// - Parameter failureChanged: called on the loop when transactions begin to fail, and when they succeed again.
    init(
        store: DurableStore, eventLoop: any EventLoop,
        failureChanged: @escaping @Sendable (StoreError?) -> Void
    ) {
        self.store = store
        self.eventLoop = eventLoop
        self.failureChanged = failureChanged
    }

    /// Makes the changes durable and then calls `completion` on the loop. Completions come in the order of the calls;
    /// with no changes, a completion says that everything before is durable.
    func commit(
        _ changes: [DurableChange], of session: SessionName, completion: @escaping @Sendable (Outcome) -> Void
    ) {
        waiting.append(Entry(session: session, changes: changes, completion: completion))
        guard !isRunning else { return }
        isRunning = true
        Task { await run() }
    }

    private func run() async {
        while !waiting.isEmpty {
            let batch = waiting
            waiting = []
            await commit(batch)
        }
        isRunning = false
    }

    /// Does not return before the batch is durable, with or without its new messages: what happened on the wire cannot
    /// be taken back.
    private func commit(_ batch: [Entry]) async {
        var isWithoutInserts = false
        while true {
            let changes = batch.filter { !$0.changes.isEmpty }
                .map { (session: $0.session, changes: isWithoutInserts ? $0.changes.filter(\.isNoInsert) : $0.changes) }
            do throws(StoreError) {
                if !changes.isEmpty { try await store.commit(changes) }
                report(nil)
                break
            } catch {
                report(error)
                if !isWithoutInserts, batch.contains(where: { !$0.changes.allSatisfy(\.isNoInsert) }) {
                    isWithoutInserts = true
                } else {
                    try? await Task.sleep(for: Self.retryInterval)
                }
            }
        }
        for entry in batch {
            let lostInserts = isWithoutInserts && !entry.changes.allSatisfy(\.isNoInsert)
            entry.completion(lostInserts ? .committedWithoutInserts : .committed)
        }
    }

    private func report(_ error: StoreError?) {
        guard error != failure else { return }
        failure = error
        failureChanged(error)
    }
}

extension DurableChange {
    fileprivate var isNoInsert: Bool {
        if case .insert = self { false } else { true }
    }
}
