import ControlAPI
import DurableStore
import Logging
import MQTT
import NIOCore
import Session
import SessionCore

// The one road to the disk: everything that the session wants durable goes into the commit queue here, in the order in
// which it was decided; and what is read from the store is read after it.

extension SessionDriver {
    /// - Parameters:
    ///   - isCumulative, refused: see ``CommitQueue/commit(_:of:isCumulative:refused:completion:)``.
    func commit(
        _ changes: [SessionChange], isCumulative: Bool = false,
        refused: @escaping @Sendable (StoreError) -> Void = { _ in },
        completion: @escaping @Sendable (CommitQueue.Outcome) -> Void = { _ in }
    ) {
        commitCount += 1
        let (commits, name) = (surroundings.commits, name)
        commits.assumeIsolated {
            $0.commit(changes, of: name, isCumulative: isCumulative, refused: refused, completion: completion)
        }
    }

    /// What the protocol machine wants durable, and hears of by the number.
    func commit(_ changes: [DurableChange], _ number: CommitNumber) {
        commit(changes.map { .mqtt($0) }, isCumulative: true) { [weak self] error in
            self?.assumeIsolated { $0.refused(changes, error) }
        } completion: { [weak self] outcome in
            self?.assumeIsolated { driver in
                switch outcome {
                case .committed: driver.run(.committed(number))
                case .committedWithoutInserts: driver.run(.committedWithoutInserts(number))
                }
            }
        }
    }

    /// Returns when everything that was decided is durable, or with the reason why that takes until somebody mends
    /// something.
    @discardableResult
    func everythingCommitted() async -> StoreError? {
        runAccepted()
        let (commits, name) = (surroundings.commits, name)
        return await withCheckedContinuation { continuation in
            commits.assumeIsolated { $0.barrier(name) { continuation.resume(returning: $0) } }
        }
    }

    /// The same for what a program asks.
    func everythingDurable(_ what: String) async throws(RPCError) {
        if let failure = await everythingCommitted() { throw .notCommitted(what, because: failure.description) }
    }

    /// The same for what is done already, and would be undone by a restart.
    func everythingRemembered(_ what: String) async throws(RPCError) {
        if let failure = await everythingCommitted() { throw .notRemembered(what, because: failure.description) }
    }

    // MARK: Reading

    /// Reads after everything that was given to the commit queue before is durable.
    func load(after: MessageSequence, messages: Int, bytes: Int) {
        let (commits, name) = (surroundings.commits, name)
        commits.assumeIsolated { commits in
            commits.commit([], of: name) { [weak self] _ in
                self?.assumeIsolated { $0.read(after: after, messages: messages, bytes: bytes) }
            }
        }
    }

    private func read(after: MessageSequence, messages: Int, bytes: Int) {
        Task {
            let found = await untilRead("the outbox") { store throws(StoreError) in
                try await store.load(self.name, after: after, maxCount: messages, maxBytes: bytes)
            }
            if let found { run(.loaded(found)) }
        }
    }

    /// Reads again and again while the disk is in trouble.
    ///
    /// - Returns: `nil` when the store is closed.
    func untilRead<Value: Sendable>(
        _ what: String, _ body: (any SessionStore) async throws(StoreError) -> Value
    ) async -> Value? {
        var told: StoreError?
        while true {
            do throws(StoreError) {
                return try await body(surroundings.store)
            } catch {
                guard error != .closed else { return nil }
                if error != told { surroundings.logger.error("\(name): \(what) cannot be read: \(error)") }
                told = error
                await eventLoop.pause(for: CommitQueue.retryInterval)
            }
        }
    }
}
