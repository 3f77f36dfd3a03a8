import DurableStore
import NIOCore
import Session
import SessionCore

/// Group commit: the changes of all sessions are collected while one transaction runs, and are committed, in order, in
/// the next.
///
/// A transaction that fails is treated by its cause:
///
///     no room, disk fails ──▶ the new messages in it are refused, the rest is tried until it succeeds
///     locked by a program ──▶ tried again for a while, then as above
///     a row does not fit  ──▶ halved until the one change is found that does not; only that one is left out
///
/// What happened on the wire cannot be taken back, so only new messages are ever refused.
actor CommitQueue {
    /// How a commit went.
    enum Outcome: Hashable, Sendable {
        case committed
        /// What needs room was refused (``SessionChange/needsRoom``): everything else is durable.
        case committedWithoutInserts
    }

    private typealias Answer = () -> Void

    private struct Entry {
        enum Waiter {
            /// `refused` is called at most once, before `completed`, if the new messages among the changes are refused.
            case changes(refused: @Sendable (StoreError) -> Void, completed: @Sendable (Outcome) -> Void)
            /// Waits for the entries before it, but not for a store that has to be fixed.
            case barrier(@Sendable (StoreError?) -> Void)
        }

        var session: SessionName
        var changes: [SessionChange]
        var waiter: Waiter
        /// When this commit is durable, so are all earlier commits of the session.
        var isCumulative = false
        var isRefused = false

        var isBarrier: Bool { if case .barrier = waiter { true } else { false } }
        var needsRoom: Bool { changes.contains(where: \.needsRoom) }
        var allowed: [SessionChange] { isRefused ? changes.filter { !$0.needsRoom } : changes }
        var outcome: Outcome { isRefused && needsRoom ? .committedWithoutInserts : .committed }
    }

    /// How long to wait before a transaction that failed is tried again.
    static let retryInterval = Duration.seconds(1)
    /// How long to wait before it is tried again whether there is room for messages.
    static let probeInterval = Duration.seconds(5)
    /// How long successful commits took, in seconds.
    private(set) var durations = Histogram(bounds: [
        0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5,
    ])

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let store: any SessionStore
    /// Notices when the disk does not answer.
    nonisolated let watch: StoreWatch
    private var waiting: [Entry] = []
    /// What of the batch under way comes in later transactions, because a change in it does not fit.
    private var remainder: [[Entry]] = []
    private(set) var isRunning = false
    /// Callers of ``giveUp(_:)``, until no transaction has changes of their session.
    private var givingUp: [(session: SessionName, continuation: CheckedContinuation<[SessionChange], Never>)] = []
    /// Why not even a transaction without new messages succeeds; `nil` when it does.
    private(set) var failure: StoreError?
    /// Why the disk refused the last new message; `nil` after a message was committed, once transactions succeed again,
    /// and when there is room for that message.
    private(set) var refusal: StoreError?
    /// The messages of the last entry that was refused, and how many entries have been.
    private var refused = (bytes: UInt64(0), count: UInt64(0))
    private var isProbing = false
    /// Whether the failure was reported. If messages were refused, recovery is reported only when there is room for them,
    /// because a full disk still takes everything else.
    private var isFailureTold = false
    private let failureChanged: @Sendable (StoreError?) -> Void
    /// Sessions with a new message that did not fit since the last one that did.
    private var unfit: Set<SessionName> = []
    private let leftOut: @Sendable (SessionName, StoreError) -> Void
    private let unfitMessage: @Sendable (SessionName, StoreError) -> Void

    /// - Parameters:
    ///   - failureChanged: called on the loop with the first error when transactions begin to fail, and with `nil` when
    ///     messages can be committed again.
    ///   - patience: how long the disk may take for one transaction.
    ///   - stallChanged: called on the loop when the disk does not answer, and with `nil` when it does again.
    ///   - leftOut: called on the loop when a change of a session can never be stored, and is left out.
    ///   - unfitMessage: called on the loop with the first new message of a session that is refused because it does not
    ///     fit what is stored.
    init(
        store: any SessionStore, eventLoop: any EventLoop, patience: TimeAmount = StoreWatch.patience,
        failureChanged: @escaping @Sendable (StoreError?) -> Void,
        stallChanged: @escaping @Sendable (StoreError?) -> Void = { _ in },
        leftOut: @escaping @Sendable (SessionName, StoreError) -> Void = { _, _ in },
        unfitMessage: @escaping @Sendable (SessionName, StoreError) -> Void = { _, _ in }
    ) {
        self.store = store
        self.eventLoop = eventLoop
        self.failureChanged = failureChanged
        watch = StoreWatch(eventLoop: eventLoop, patience: patience, changed: stallChanged)
        self.leftOut = leftOut
        self.unfitMessage = unfitMessage
    }

    /// Why messages cannot be stored at present, for people.
    var hindrance: StoreError? { refusal ?? failure ?? watch.assumeIsolated { $0.stall } }

    /// Makes the changes durable and then calls `completion` on the loop. Completions come in the order of the calls;
    /// with no changes, a completion says that everything before is durable.
    ///
    /// - Parameters:
    ///   - isCumulative: Committing this call also commits the session's earlier ones, so of consecutive calls in one
    ///     transaction only the last completion is called.
    ///   - refused: called on the loop, at most once and before `completion`, as soon as it is certain that the new
    ///     messages among the changes are not stored. The other changes are committed when the disk works again.
    func commit(
        _ changes: [SessionChange], of session: SessionName, isCumulative: Bool = false,
        refused: @escaping @Sendable (StoreError) -> Void = { _ in }, completion: @escaping @Sendable (Outcome) -> Void
    ) {
        append(
            Entry(
                session: session, changes: changes, waiter: .changes(refused: refused, completed: completion),
                isCumulative: isCumulative))
    }

    /// Calls `completion` on the loop when everything before is durable, or with the error as soon as it is clear that
    /// the store has to be fixed first.
    ///
    /// - Parameter isPatient: whether it also waits for a disk that does not answer.
    func barrier(
        _ session: SessionName, isPatient: Bool = true, completion: @escaping @Sendable (StoreError?) -> Void
    ) {
        let completion = isPatient ? completion : watch.assumeIsolated { $0.completeWhenStalled(completion) }
        append(Entry(session: session, changes: [], waiter: .barrier(completion)))
    }

    /// Discards the session's changes that are not durable yet, as a crash would. Their callers are told that they were
    /// refused; no completion is called.
    ///
    /// Returns when none of these changes can become durable any more. The session must commit nothing before that.
    ///
    /// - Returns: these changes, in their order, without new messages.
    @discardableResult
    func giveUp(_ session: SessionName) async -> [SessionChange] {
        guard isRunning else { return [] }
        return await withCheckedContinuation { givingUp.append((session, $0)) }
    }

    /// Must not be called while a transaction runs.
    private func dropGivenUp(from batch: inout [Entry]) {
        guard !givingUp.isEmpty else { return }
        let callers = givingUp
        givingUp = []
        var discarded: [SessionName: [SessionChange]] = [:]
        for (session, _) in callers { discarded[session] = [] }
        var answers = drop(&discarded, from: &batch)
        for index in remainder.indices { answers += drop(&discarded, from: &remainder[index]) }
        answers += drop(&discarded, from: &waiting)
        tell(answers)
        for (session, continuation) in callers { continuation.resume(returning: discarded[session] ?? []) }
    }

    /// Moves what these sessions would change to `discarded`.
    private func drop(_ discarded: inout [SessionName: [SessionChange]], from entries: inout [Entry]) -> [Answer] {
        let error = failure ?? .closed
        var answers: [Answer] = []
        entries.removeAll { entry in
            guard discarded[entry.session] != nil else { return false }
            discarded[entry.session]? += entry.changes.filter { !$0.needsRoom }
            switch entry.waiter {
            case .changes(let refused, _): if !entry.isRefused { answers.append { refused(error) } }
            case .barrier(let completed): answers.append { completed(error) }
            }
            return true
        }
        return answers
    }

    private func append(_ entry: Entry) {
        var new = [entry]
        // Those that wait already were refused when the failure began.
        let answers = failure.map { refuse(&new, $0) } ?? []
        waiting += new
        tell(answers)
        guard !isRunning, !waiting.isEmpty else { return }
        isRunning = true
        Task { await run() }
    }

    private func run() async {
        while let batch = next() { await commit(batch) }
        isRunning = false
    }

    /// Returns what to commit next; `nil` when there is nothing.
    private func next() -> [Entry]? {
        var none: [Entry] = []
        dropGivenUp(from: &none)
        if remainder.isEmpty, !waiting.isEmpty {
            remainder = [waiting]
            waiting = []
        }
        return remainder.isEmpty ? nil : remainder.removeFirst()
    }

    // MARK: One batch

    /// Returns when the batch is durable, except for refused messages, changes that can never be stored, and what is left
    /// to ``remainder``.
    private func commit(_ entries: [Entry]) async {
        var batch = entries
        while true {
            dropGivenUp(from: &batch)
            if batch.isEmpty, failure == nil { return }
            let changes = Self.changes(of: batch)
            do throws(StoreError) {
                // While transactions fail, an empty one tests whether they still do: a batch whose messages were all
                // refused, or whose sessions gave up, proves nothing.
                if !changes.isEmpty || failure != nil {
                    let start = ContinuousClock.now
                    let store = store
                    try await watch.wait { () throws(StoreError) in try await store.commit(changes) }
                    durations.add(start.duration(to: .now).seconds)
                }
                return succeeded(batch)
            } catch {
                switch error {
                case .inconsistent, .damaged:
                    return divide(batch, because: error)
                default:
                    if !isFailureTold { tell(error) }
                    if error.isLasting || !batch.contains(where: { $0.needsRoom && !$0.isRefused }) {
                        failure = error
                        var answers = refuse(&batch, error)
                        for index in remainder.indices { answers += refuse(&remainder[index], error) }
                        tell(answers + refuse(&waiting, error))
                        await eventLoop.pause(for: Self.retryInterval)
                    } else {
                        tell(refuse(&batch, error))
                    }
                }
            }
        }
    }

    /// What each session changes, in order: the store writes ranges of rows at once.
    private static func changes(of batch: [Entry]) -> [(session: SessionName, changes: [SessionChange])] {
        var all: [(session: SessionName, changes: [SessionChange])] = []
        var places: [SessionName: Int] = [:]
        for entry in batch where !entry.changes.isEmpty {
            let allowed = entry.allowed
            guard !allowed.isEmpty else { continue }
            if let place = places[entry.session] {
                all[place].changes += allowed
            } else {
                places[entry.session] = all.count
                all.append((entry.session, allowed))
            }
        }
        return all
    }

    private func succeeded(_ batch: [Entry]) {
        let hasMessages = batch.contains { $0.needsRoom && !$0.isRefused }
        if failure?.isLasting == true || hasMessages { refusal = nil }
        if !unfit.isEmpty { unfit.subtract(batch.lazy.filter { $0.needsRoom && !$0.isRefused }.map(\.session)) }
        // What was refused is tried alone, and ends a failure of messages only.
        let isOver = hasMessages || failure != nil && refusal == nil
        failure = nil
        if isFailureTold, isOver { tell(nil) }
        let coveredByLater = Self.coveredByLater(batch)
        for (entry, isCovered) in zip(batch, coveredByLater) where !isCovered {
            switch entry.waiter {
            case .changes(_, let completed): completed(entry.outcome)
            case .barrier(let completed): completed(nil)
            }
        }
    }

    /// For each entry, whether the completion of a later one of the session makes its own unnecessary.
    private static func coveredByLater(_ batch: [Entry]) -> [Bool] {
        var answers = [Bool](repeating: false, count: batch.count)
        var coversEarlier: Set<SessionName> = []
        for index in batch.indices.reversed() {
            let entry = batch[index]
            if entry.isCumulative, entry.outcome == .committed {
                answers[index] = !coversEarlier.insert(entry.session).inserted
            } else {
                coversEarlier.remove(entry.session)
            }
        }
        return answers
    }

    /// Handles a batch in which a change does not fit what is stored, so that a retry would fail in the same way.
    private func divide(_ batch: [Entry], because error: StoreError) {
        guard batch.count < 2 else {
            let middle = batch.count / 2
            remainder.insert(contentsOf: [Array(batch[..<middle]), Array(batch[middle...])], at: 0)
            return
        }
        guard var entry = batch.first else { return }
        if entry.needsRoom, !entry.isRefused {
            if unfit.insert(entry.session).inserted { unfitMessage(entry.session, error) }
            var refused = [entry]
            let answers = refuse(&refused, error)
            remainder.insert(refused, at: 0)
            return tell(answers)
        }
        let changes = entry.allowed
        entry.changes.removeAll { !$0.needsRoom }
        guard changes.count > 1 else {
            leftOut(entry.session, error)
            return succeeded([entry])
        }
        // Commits one change at a time, so that every change that can be stored is stored.
        let singles = changes.map { change in
            [
                Entry(
                    session: entry.session, changes: [change], waiter: .changes(refused: { _ in }, completed: { _ in }))
            ]
        }
        remainder.insert(contentsOf: singles + [[entry]], at: 0)
    }

    /// Refuses the new messages. Returns the answers to those who wait for them.
    private func refuse(_ entries: inout [Entry], _ error: StoreError) -> [Answer] {
        var answers: [Answer] = []
        for index in entries.indices {
            switch entries[index].waiter {
            case .changes(let refused, _):
                guard entries[index].needsRoom, !entries[index].isRefused else { continue }
                entries[index].isRefused = true
                if error.isOfTheDisk {
                    refusal = error
                    self.refused.bytes = entries[index].changes.reduce(0) { $0 + UInt64($1.roomNeeded) }
                    self.refused.count += 1
                    probeUntilThereIsRoom()
                }
                answers.append { refused(error) }
            case .barrier(let completed):
                if failure != nil { answers.append { completed(error) } }
            }
        }
        if failure != nil { entries.removeAll(where: \.isBarrier) }
        return answers
    }

    /// Gives answers when no list of entries is being changed: the one who gets an answer may commit something at once.
    private func tell(_ answers: [Answer]) {
        for answer in answers { answer() }
    }

    // MARK: Room for messages

    /// Finds out whether there is room for a message, before there is one: a daemon that was restarted on a full disk
    /// must not look as if it took messages.
    func lookForRoom() async {
        let (store, bytes) = (store, Self.smallMessage)
        do throws(StoreError) {
            try await watch.wait { () throws(StoreError) in try await store.tryRoom(for: bytes) }
        } catch {
            guard error.isOfTheDisk, error != .closed, refusal == nil else { return }
            refusal = error
            refused.bytes = bytes
            refused.count += 1
            if !isFailureTold { tell(error) }
            probeUntilThereIsRoom()
        }
    }

    /// The bytes that are needed for a message with little in it.
    private static let smallMessage: UInt64 = 1024

    /// While only messages are refused, no transaction tests whether they still would be: a full disk takes everything
    /// else, and what is said about it must end with it.
    private func probeUntilThereIsRoom() {
        guard !isProbing else { return }
        isProbing = true
        Task { await probe() }
    }

    private func probe() async {
        while refusal != nil {
            await eventLoop.pause(for: Self.probeInterval)
            // A transaction that fails is tried again anyway.
            guard refusal != nil, failure == nil else { continue }
            let (store, (bytes, count)) = (store, refused)
            do throws(StoreError) {
                try await watch.wait { () throws(StoreError) in try await store.tryRoom(for: bytes) }
            } catch {
                if error == .closed { break }
                continue
            }
            guard count == refused.count, failure == nil, refusal != nil else { continue }
            refusal = nil
            tell(nil)
        }
        isProbing = false
    }

    private func tell(_ error: StoreError?) {
        isFailureTold = error != nil
        failureChanged(error)
    }
}

extension StoreError {
    /// Whether it says something about the disk, not about one change.
    fileprivate var isOfTheDisk: Bool {
        switch self {
        case .inconsistent, .damaged: false
        default: true
        }
    }

    /// Whether changes that are not inserts fail for the same reason.
    fileprivate var isLasting: Bool {
        switch self {
        case .busy, .unwritable, .closed: true
        default: false
        }
    }
}
