import ControlAPI
import DurableStore
import Logging
import MQTT
import Session

// The one road to the disk: everything that the session wants durable goes into the commit queue here, in the order in
// which it was decided, and what is read from the store is read after it.

extension SessionDriver {
    /// What is on its way to the disk and from there.
    struct DiskTraffic {
        /// How many commits were begun.
        var commits = 0
        /// How many verdicts are not durable yet.
        var verdicts = 0
        /// What of the store cannot be read at the moment, and why.
        var failedReads: [String: StoreError] = [:]
    }

    /// - Parameters:
    ///   - isCumulative, refused: see ``CommitQueue/commit(_:of:isCumulative:refused:completion:)``.
    func commit(
        _ changes: [SessionChange], isCumulative: Bool = false,
        refused: @escaping @Sendable (StoreError) -> Void = { _ in },
        completion: @escaping @Sendable (CommitQueue.Outcome) -> Void = { _ in }
    ) {
        traffic.commits += 1
        let (commits, name) = (surroundings.commits, name)
        commits.assumeIsolated {
            $0.commit(changes, of: name, isCumulative: isCumulative, refused: refused, completion: completion)
        }
    }

    /// Commits changes that may have a verdict.
    func commitDecisions(_ changes: [SessionChange]) {
        let verdicts = changes.count { if case .setVerdict = $0 { true } else { false } }
        traffic.verdicts += verdicts
        commit(changes.map(withDigest)) { [weak self] _ in
            self?.assumeIsolated { $0.traffic.verdicts -= verdicts }
        }
    }

    /// Commits changes of the protocol machine, and reports the result under their number.
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

    /// Returns `nil` when everything decided so far is durable, or the reason why it cannot become durable until
    /// somebody fixes the store.
    ///
    /// - Parameter isPatient: whether it also waits for a disk that does not answer.
    @discardableResult
    func everythingCommitted(isPatient: Bool = true) async -> StoreError? {
        await withCheckedContinuation { continuation in
            whenCommitted(isPatient: isPatient) { continuation.resume(returning: $0) }
        }
    }

    /// Does the same without a task.
    func whenCommitted(isPatient: Bool, _ completion: @escaping @Sendable (StoreError?) -> Void) {
        runAccepted()
        let (commits, name) = (surroundings.commits, name)
        commits.assumeIsolated { $0.barrier(name, isPatient: isPatient, completion: completion) }
    }

    /// Throws the error for something that a program asks for while nothing can become durable. To be called before it
    /// is decided: the store would make up for it later, after the program was told that it had no effect.
    func requireStore(for what: String) throws(RPCError) {
        guard let failure = surroundings.commits.assumeIsolated({ $0.failure }) else { return }
        throw .notCommitted(what, because: failure.description)
    }

    /// Waits as ``everythingCommitted()`` does, and throws the error for something that a program asked for. The
    /// transaction that has it may be the first one to fail; it is tried until it succeeds. The program does not wait for
    /// a disk that does not answer.
    func everythingDurable(_ what: String) async throws(RPCError) {
        guard let failure = await everythingCommitted(isPatient: false) else { return }
        throw .notDurableYet(what, because: failure.description)
    }

    /// Waits as ``everythingCommitted()`` does, and throws the error for something that is done already but would be
    /// undone by a restart.
    func everythingRemembered(_ what: String) async throws(RPCError) {
        guard let failure = await everythingCommitted(isPatient: false) else { return }
        throw .notRemembered(what, because: failure.description)
    }

    // MARK: Reading

    /// Reads once everything is durable that was given to the commit queue before.
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

    /// Reads what has an age: the difference between two wall-clock times. When the clock is set, both are shifted; in
    /// between the store is not asked.
    func withPresentTimes<Value: Sendable>(
        _ read: (any SessionStore) async throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        while true {
            checkClock()
            let steps = clockSteps.count
            if !clockSteps.areDurable {
                // What the driver began with may not have been carried out yet.
                run()
                if let failure = await everythingCommitted() { throw failure }
                if steps == clockSteps.count { clockSteps.areDurable = true }
                continue
            }
            let found = try await read(surroundings.store)
            checkClock()
            if steps == clockSteps.count { return found }
        }
    }

    /// What cannot be read at the moment, and why.
    var readFailure: String? {
        traffic.failedReads.min { $0.key < $1.key }.map { "\($0.key) cannot be read: \($0.value)" }
    }

    /// Retries the read as long as the disk fails.
    ///
    /// - Returns: `nil` when the store is closed.
    func untilRead<Value: Sendable>(
        _ what: String, _ body: (any SessionStore) async throws(StoreError) -> Value
    ) async -> Value? {
        defer { traffic.failedReads[what] = nil }
        while true {
            do throws(StoreError) {
                return try await body(surroundings.store)
            } catch {
                guard error != .closed else { return nil }
                if error != traffic.failedReads[what] {
                    surroundings.logger.error("\(name): \(what) cannot be read: \(error)", metadata: metadata)
                }
                traffic.failedReads[what] = error
                await eventLoop.pause(for: CommitQueue.retryInterval)
            }
        }
    }
}
