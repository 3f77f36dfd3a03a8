import MQTT
import NIOCore
import Session
import SessionCore
import Support

@testable import Agent
@testable import DurableStore

/// The disk of a host: what is durable on it, and what is wrong with it.
///
/// A model knows what is durable, even if there is a real store as well, so that a test can look at it at any moment.
actor Disk {
    enum Fault: Int, CaseIterable {
        /// There is no room for anything new.
        case full
        /// Nothing can be written.
        case failing
        /// Nothing can be read either.
        case dead
        /// The directory is read-only.
        case unwritable
        /// One kind of row does not fit, and never will.
        case choosy
    }

    nonisolated let loop: VirtualLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private(set) var sessions: [SessionName: ModelSession] = [:]
    var newest: [SessionName: HistoryEntry] = [:]
    var fault: Fault?
    /// How long every access takes.
    var delay: TimeAmount = .zero
    private(set) var commits = 0
    /// Called before a change is made, with what was stored until then.
    var onChange: (SessionChange, ModelStore) -> Void = { _, _ in }

    init(_ loop: VirtualLoop) { self.loop = loop }

    /// What was on the disk when it was last flushed, and what was written since. After a power loss, any number of the
    /// first of those writes are there.
    private var flushedSessions: [SessionName: ModelSession] = [:]
    private var unflushed: [[(session: SessionName, changes: [SessionChange])]] = []

    func apply(_ batch: [(session: SessionName, changes: [SessionChange])]) {
        commits += 1
        unflushed.append(batch)
        defer {
            if sessions.values.contains(where: \.mqtt.mustFlush) { flushed() }
            if image == nil, sessions.values.contains(where: \.mqtt.established) { takeImage() }
        }
        for (session, changes) in batch {
            for change in changes {
                onChange(change, sessions[session]?.mqtt ?? ModelStore())
                sessions[session, default: ModelSession()].apply(change)
            }
        }
    }

    private func flushed() {
        for name in sessions.keys { sessions[name]?.flushed() }
        flushedSessions = sessions
        unflushed = []
    }

    /// Loses what was written since the last flush, or the later part of it, as when the power fails.
    func losePower(_ number: Int) {
        guard !unflushed.isEmpty else { return }
        sessions = flushedSessions
        for batch in unflushed.prefix(unflushed.count * (number % 8) / 8) {
            for (session, changes) in batch {
                for change in changes { sessions[session, default: ModelSession()].apply(change) }
            }
        }
        flushed()
    }

    /// What was on the disk when a copy of it was made: at first as soon as a session was connected.
    private(set) var image: [SessionName: ModelSession]?

    func takeImage() { image = sessions }

    func putImageBack() {
        guard let image else { return }
        sessions = image
        flushed()
    }

    /// Loses some of the rows, as when the file is damaged.
    func loseRows() {
        for name in sessions.keys { sessions[name]?.loseRows() }
        flushed()
    }

    /// Prepares the disk for a daemon that does not know whether the last one was stopped properly.
    func takeUp() {
        for name in sessions.keys { sessions[name]?.takeUp() }
        flushed()
    }

    func model(_ session: SessionName) -> ModelSession { sessions[session] ?? ModelSession() }
}

/// One daemon's access to the disk. Once the daemon is killed, its requests do nothing.
actor DiskAccess: SessionStore {
    nonisolated let disk: Disk
    /// The real store behind the faults; without it the model is all there is.
    nonisolated let real: DurableStore?
    nonisolated var unownedExecutor: UnownedSerialExecutor { disk.loop.asUnownedSerialExecutor() }
    nonisolated var openReport: OpenReport { real?.openReport ?? OpenReport(isNew: false) }

    private var isDead = false
    /// Whether the daemon is alive for the request that it makes.
    private let acts: @Sendable () -> Bool
    /// What the disk is writing.
    private var writing: [[(session: SessionName, changes: [SessionChange])]] = []

    init(_ disk: Disk, to real: DurableStore?, acts: @escaping @Sendable () -> Bool) {
        (self.disk, self.real, self.acts) = (disk, real, acts)
    }

    func setPresent(_ sessions: [SessionName: [Endpoint]]) async throws(StoreError) {
        try await real?.setPresent(sessions)
    }

    func foreignStates(
        among sessions: [SessionName: [Endpoint]]
    ) async throws(StoreError) -> [SessionName: ForeignState] {
        // No session is removed in the simulation.
        [:]
    }

    func absentStates(besides present: Set<SessionName>) async throws(StoreError) -> [AbsentState] {
        // No session is removed in the simulation.
        try await real?.absentStates(besides: present) ?? []
    }

    func die(landing: Bool) async {
        dieAtOnce(landing: landing)
        try? await real?.close()
    }

    /// Does the same without waiting; only with the model.
    func dieAtOnce(landing: Bool) {
        guard !isDead else { return }
        isDead = true
        if landing, real == nil {
            for batch in writing { disk.here { $0.apply(batch) } }
        }
        writing = []
    }

    /// Takes as long as the disk does.
    /// - Returns: whether the daemon is still alive.
    private func reach(writing batch: [(session: SessionName, changes: [SessionChange])] = []) async -> Bool {
        guard !isDead, acts() else { return false }
        let delay = disk.here { $0.delay }
        guard delay > .zero else { return true }
        if !batch.isEmpty { writing.append(batch) }
        await disk.loop.sleep(until: disk.loop.now + delay)
        if !batch.isEmpty, !isDead { writing.removeFirst() }
        return !isDead
    }

    private func check(isFor what: Purpose) throws(StoreError) {
        switch (disk.here { $0.fault }, what) {
        case (.full?, .inserting): throw .full(path: "model", cause: "the model says so")
        case (.failing?, .writing), (.failing?, .inserting), (.dead?, _):
            throw .failed(path: "model", cause: "the model says so")
        case (.unwritable?, .writing), (.unwritable?, .inserting):
            throw .unwritable(path: "model", cause: "the model says so")
        default: break
        }
    }

    private enum Purpose { case reading, writing, inserting }

    // MARK: Messages

    func commit(_ batch: [(session: SessionName, changes: [SessionChange])]) async throws(StoreError) {
        let inserts = batch.contains { $0.changes.contains { $0.needsRoom } }
        let isUnfit = batch.contains { $0.changes.contains(where: \.doesNotFit) }
        // What the disk would refuse does not land either.
        let isRefused = disk.here { disk in
            switch disk.fault {
            case nil: false
            case .full?: inserts
            case .choosy?: isUnfit
            default: true
            }
        }
        guard await reach(writing: isRefused ? [] : batch) else { return }
        try check(isFor: inserts ? .inserting : .writing)
        // The disk may have had another fault before.
        if isRefused, isUnfit, disk.here({ $0.fault }) == .choosy { throw .inconsistent("the model says so") }
        try await real?.commit(batch)
        // A killed daemon does not write any more.
        guard real != nil || !isDead else { return }
        disk.here { $0.apply(batch) }
    }

    func tryRoom(for bytes: UInt64) async throws(StoreError) {
        guard await reach() else { return }
        try check(isFor: .inserting)
    }

    func session(_ name: SessionName) async throws(StoreError) -> StoredSession {
        if let real { return try await real.session(name) }
        return disk.here { $0.model(name).stored }
    }

    func load(
        _ session: SessionName, after sequence: MessageSequence, maxCount: Int, maxBytes: Int
    ) async throws(StoreError) -> [StoredMessage] {
        guard await reach() else { return [] }
        try check(isFor: .reading)
        if let real { return try await real.load(session, after: sequence, maxCount: maxCount, maxBytes: maxBytes) }
        return disk.here { $0.model(session).mqtt.load(after: sequence, messages: maxCount, bytes: maxBytes) }
    }

    func message(_ session: SessionName, _ sequence: MessageSequence) async throws(StoreError) -> StoredMessage? {
        guard await reach() else { return nil }
        try check(isFor: .reading)
        if let real { return try await real.message(session, sequence) }
        return disk.here { $0.model(session).mqtt.messages[sequence] }
    }

    func summaries(
        _ session: SessionName, _ filter: DurableStore.MessageFilter, after sequence: MessageSequence, limit: Int
    ) async throws(StoreError) -> [StoredMessageSummary] {
        guard await reach() else { return [] }
        try check(isFor: .reading)
        if let real { return try await real.summaries(session, filter, after: sequence, limit: limit) }
        let messages = disk.here { $0.model(session).mqtt.messages.values }
        return messages.filter { $0.sequence > sequence && filter.includes($0.state) }
            .sorted { $0.sequence < $1.sequence }.prefix(limit).map { StoredMessageSummary($0) }
    }

    func summaries(
        _ session: SessionName, of sequences: [MessageSequence]
    ) async throws(StoreError) -> [StoredMessageSummary] {
        guard await reach() else { return [] }
        try check(isFor: .reading)
        if let real { return try await real.summaries(session, of: sequences) }
        let messages = disk.here { $0.model(session).mqtt.messages }
        return sequences.compactMap { messages[$0].map { StoredMessageSummary($0) } }
    }

    func collected(
        _ session: SessionName, for consumer: ConsumerName, after sequence: InboxSequence, maxCount: Int, maxBytes: Int
    ) async throws(StoreError) -> [CollectedMessage] {
        guard await reach() else { return [] }
        try check(isFor: .reading)
        if let real {
            return try await real.collected(
                session, for: consumer, after: sequence, maxCount: maxCount, maxBytes: maxBytes)
        }
        var bytes = 0
        var found: [CollectedMessage] = []
        for message in disk.here({ $0.model(session).mqtt.inboxes[consumer] ?? [] })
        where message.sequence > sequence {
            bytes += message.size
            guard found.isEmpty || (found.count < maxCount && bytes <= maxBytes) else { break }
            found.append(message)
        }
        return found
    }

    // MARK: Beside the messages

    func keyed(
        _ session: SessionName, _ key: PublishKey, now: Timestamp
    ) async throws(StoreError) -> KeyedMessage? {
        guard await reach() else { return nil }
        try check(isFor: .reading)
        if let real { return try await real.keyed(session, key, now: now) }
        return disk.here { $0.model(session).mqtt.keyed(key, now: now) }
    }

    var epoch: String {
        get async { await real?.epoch ?? "model" }
    }

    var sessionNames: [SessionName] {
        get async { await real?.sessionNames ?? disk.here { Array($0.sessions.keys) } }
    }

    func record(_ entries: [HistoryEntry]) async throws(StoreError) {
        guard await reach() else { return }
        try check(isFor: .inserting)
        try await real?.record(entries)
        disk.here { disk in
            for entry in entries { disk.newest[entry.session] = entry }
        }
    }

    func history(
        session: SessionName?, since: Timestamp?, until: Timestamp?, before: Int64?, limit: Int
    ) async throws(StoreError) -> HistoryPage {
        if let real {
            return try await real.history(
                session: session, since: since, until: until, before: before, limit: limit)
        }
        let entries = disk.here { disk in
            session.map { [disk.newest[$0]].compactMap(\.self) } ?? Array(disk.newest.values)
        }
        return HistoryPage(entries: entries, next: nil)
    }

    func newestHistory() async throws(StoreError) -> [SessionName: HistoryEntry] {
        if let real { return try await real.newestHistory() }
        return disk.here { $0.newest }
    }

    func noteAlive() {}
}

extension SessionChange {
    /// The message that the change concerns.
    var sequence: MessageSequence? {
        guard case .mqtt(let change) = self else { return nil }
        return switch change {
        case .insert(let stored): stored.sequence
        case .assign(let sequence, _), .unassign(let sequence), .release(let sequence), .remove(let sequence),
            .acknowledge(let sequence),
            .quarantine(let sequence, _, _), .requeue(let sequence, _, _):
            sequence
        default: nil
        }
    }

    /// Whether the change writes the kind of row that a `choosy` disk does not take.
    fileprivate var doesNotFit: Bool {
        if case .mqtt(.insert(let stored)) = self { stored.message.topic == "out/1" } else { false }
    }
}

extension DurableStore.MessageFilter {
    fileprivate func includes(_ state: StoredMessage.State) -> Bool {
        switch (self, state) {
        case (.all, _), (.queued, .queued), (.inFlight, .inFlight), (.inFlight, .released),
            (.quarantined, .quarantined):
            true
        default: false
        }
    }
}
