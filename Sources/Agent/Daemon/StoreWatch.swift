import DurableStore
import NIOCore

/// Notices when the disk does not answer. A call to the store takes as long as the disk does, and cannot be cancelled:
/// commits wait for it, but people are told about it.
actor StoreWatch {
    private struct Call {
        var began: NIODeadline
        /// Whether it was late when it was last looked at.
        var wasLate = false
        /// Called when the caller must not wait any longer.
        var givesUp: ((StoreError) -> Void)?
    }

    /// How long the disk may take for one call.
    static let patience = TimeAmount.seconds(10)
    /// How long a call must be late. If it was the host that stood still, its answer is here by then.
    private static let grace = TimeAmount.seconds(1)

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let patience: TimeAmount
    private let changed: @Sendable (StoreError?) -> Void
    private var calls: [UInt64: Call] = [:]
    private var lastCall: UInt64 = 0
    private var isLooking = false
    /// Set while the disk does not answer.
    private(set) var stall: StoreError?
    /// What is completed when the disk does not answer, by a number that counts the calls, too.
    private var impatient: [UInt64: @Sendable (StoreError?) -> Void] = [:]
    /// The one who waits for the store for the last time.
    private var last: (limit: TimeAmount, over: CheckedContinuation<Bool, Never>)?
    private var stalls: UInt64 = 0

    /// - Parameter changed: called on the loop when the disk does not answer, and with `nil` when it does again.
    init(
        eventLoop: any EventLoop, patience: TimeAmount = StoreWatch.patience,
        changed: @escaping @Sendable (StoreError?) -> Void
    ) {
        self.eventLoop = eventLoop
        self.patience = patience
        self.changed = changed
    }

    /// Asks the store on behalf of a person, who must not wait for a disk that does not answer.
    ///
    /// - Throws: also ``StoreError/stalled(seconds:)``, as soon as the disk does not answer. The call itself then
    ///   continues without its caller.
    func answer<Value: Sendable>(
        _ body: @escaping @Sendable () async throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        if let stall { throw stall }
        typealias Answer = Result<Value, StoreError>
        return try await withCheckedContinuation { (continuation: CheckedContinuation<Answer, Never>) in
            let id = begin { continuation.resume(returning: .failure($0)) }
            Task {
                let result: Answer
                do throws(StoreError) {
                    result = .success(try await body())
                } catch {
                    result = .failure(error)
                }
                if end(id) { continuation.resume(returning: result) }
            }
        }.get()
    }

    /// Calls the store, and waits as long as the disk takes.
    func wait<Value: Sendable>(
        for body: @Sendable () async throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        let id = begin()
        defer { end(id) }
        return try await body()
    }

    /// Returns what completes something that a person waits for. If the disk does not answer before, that is completed
    /// with the error.
    func completeWhenStalled(
        _ completion: @escaping @Sendable (StoreError?) -> Void
    ) -> @Sendable (StoreError?) -> Void {
        if let stall {
            completion(stall)
            return { _ in }
        }
        lastCall += 1
        let id = lastCall
        impatient[id] = completion
        return { error in self.assumeIsolated { $0.impatient.removeValue(forKey: id) }?(error) }
    }

    /// Does the last work with the store. Called once.
    ///
    /// - Parameter limit: how long the disk may not answer before the work continues without its caller.
    /// - Returns: whether it is done.
    func finish(
        _ store: any SessionStore, orStalledFor limit: TimeAmount, _ work: @escaping @Sendable () async -> Void
    ) async -> Bool {
        Task {
            await work()
            finished(true)
        }
        return await withCheckedContinuation { continuation in
            last = (limit, continuation)
            if stall != nil { finishWithoutDisk() }
            Task { await ask(store) }
        }
    }

    /// Not all of the last work is a call that is watched.
    private func ask(_ store: any SessionStore) async {
        while last != nil {
            try? await wait { () throws(StoreError) in _ = await store.sessionNames }
            await eventLoop.pause(for: .seconds(1))
        }
    }

    private func finished(_ isDone: Bool) {
        last?.over.resume(returning: isDone)
        last = nil
    }

    private func finishWithoutDisk() {
        guard let limit = last?.limit else { return }
        let present = stalls
        eventLoop.scheduleTask(in: limit) {
            self.assumeIsolated { if $0.stall != nil, $0.stalls == present { $0.finished(false) } }
        }
    }

    private func begin(givesUp: ((StoreError) -> Void)? = nil) -> UInt64 {
        lastCall += 1
        calls[lastCall] = Call(began: eventLoop.now, givesUp: givesUp)
        if stall == nil { look(after: patience) }
        return lastCall
    }

    /// - Returns: whether the caller still waits.
    @discardableResult
    private func end(_ id: UInt64) -> Bool {
        guard let call = calls.removeValue(forKey: id) else { return false }
        if stall != nil, !calls.values.contains(where: isLate) {
            stall = nil
            changed(nil)
            if !calls.isEmpty { look(after: patience) }
        }
        return call.givesUp != nil
    }

    private func isLate(_ call: Call) -> Bool { call.began + patience <= eventLoop.now }

    /// One timer for all calls, which is not moved when a call ends: most calls take less than a millisecond.
    private func look(after delay: TimeAmount) {
        guard !isLooking else { return }
        isLooking = true
        eventLoop.scheduleTask(in: delay) { self.assumeIsolated { $0.look() } }
    }

    private func look() {
        isLooking = false
        guard let (id, oldest) = calls.min(by: { $0.value.began < $1.value.began }) else { return }
        guard isLate(oldest) else { return look(after: oldest.began + patience - eventLoop.now) }
        guard oldest.wasLate else {
            calls[id]?.wasLate = true
            return look(after: min(patience, Self.grace))
        }
        let stall = StoreError.stalled(seconds: Int(patience.nanoseconds / 1_000_000_000))
        self.stall = stall
        stalls += 1
        changed(stall)
        finishWithoutDisk()
        let impatient = impatient.sorted { $0.key < $1.key }
        self.impatient = [:]
        for (_, completion) in impatient { completion(stall) }
        for id in calls.keys {
            let givesUp = calls[id]?.givesUp
            calls[id]?.givesUp = nil
            givesUp?(stall)
        }
    }
}
