import NIOCore

/// What durable consumers get, on its way into the inbox.
///
/// A message that a durable consumer needs is acknowledged once it is committed and not before (rule 12). One commit at
/// a time carries such messages; those that arrive meanwhile wait, go into the next one together, and are acknowledged
/// in the order in which they arrived [MQTT-4.6.0-2]. What waits is discarded with its connection; the server sends it
/// again.
///
/// Each consumer has limits of its own. At its limit, the oldest messages of that consumer are dropped and counted,
/// without affecting the others. Or, if the session is configured so, acknowledgements are withheld: messages keep waiting
/// until the server's Receive Maximum stops it, for all consumers of the session.
struct InboxIntake: Sendable {
    /// A durable consumer, and what it has in the inbox, committed or not.
    struct Collector: Sendable {
        /// Its filter and, until the server has granted that one, its former ones. Empty while the filter has no
        /// meaning: it is relative to a room, and the session is not in one.
        var filters: Set<TopicFilter> = []
        var backlog = ConsumerBacklog()
        /// How many were dropped without a program having been told.
        var missed = 0
        /// A new consumer of the same name has a new number.
        var generation = 0
    }

    /// A message that has to wait.
    struct Entry: Sendable {
        var publish: Publish
        /// The consumers that wanted it when it came; empty if it only has to wait for its turn.
        var consumers: [ConsumerName] = []
        /// Their generations.
        var generations: [Int] = []
        let size: Int
        /// Whether its identifier was remembered from an earlier session of the server.
        var wasDoubtful = false
        /// Its place in the inbox, assigned when it goes there.
        var sequence = InboxSequence.zero
    }

    /// The oldest messages of a full consumer, which make room for a message in the commit under way: they are dropped
    /// with that commit, or stay if it is made without its messages.
    struct Drop: Sendable {
        var name: ConsumerName
        var generation: Int
        var run: InboxRun
    }

    /// What is in the commit under way.
    struct Batch: Sendable {
        var commit: CommitNumber
        var entries: [Entry]
        /// The messages among them that go into the inbox, in order.
        var messages: [InboxMessage]
        var drops: [Drop]
        /// Whether its connection is gone, so that none of it is acknowledged.
        var isStale = false
    }

    /// The most packets, and bytes of messages, in one commit; a message of any size fits alone. A commit finds room
    /// for all or for nothing, and other sessions' commits wait for it.
    static let batchMessages = 1024
    static let batchBytes = 1 << 20
    /// The most QoS 0 messages that wait; further ones are dropped.
    static let maximumUnacknowledged = 256

    var collectors: [ConsumerName: Collector]
    private var generations = 0
    var nextSequence: InboxSequence
    private(set) var waiting = CircularBuffer<Entry>(initialCapacity: 1)
    private var waitingIDs: Set<PacketID> = []
    private var waitingUnacknowledged = 0
    /// Bytes of what waits.
    private(set) var waitingBytes = 0
    /// Messages of this connection that found no room to wait. After the first of them, all that follow are left out as
    /// well: the server sends them again on the next connection, in their order.
    private(set) var leftOut: Set<PacketID> = []
    var batch: Batch?
    /// Whether the store had no room; cleared by `resumeCollecting`.
    var isPaused = false
    /// Whether it was reported that acknowledgements are withheld; not reported again until there is enough room.
    var isFull = false

    init(_ durable: DurableSession) {
        collectors = Dictionary(
            durable.consumers.map { ($0.name, Collector(backlog: ConsumerBacklog($0.runs), missed: $0.missed)) },
            uniquingKeysWith: { first, _ in first })
        nextSequence = durable.nextInboxSequence
    }

    /// How much waits for all of them.
    var messages: Int { collectors.values.reduce(0) { $0 + $1.backlog.messages } }
    var bytes: Int { collectors.values.reduce(0) { $0 + $1.backlog.bytes } }

    /// Whether a message that no durable consumer needs can be acknowledged at once.
    var isIdle: Bool { waiting.isEmpty && batch == nil }

    /// Messages whose acknowledgement is withheld.
    var withheld: Int { waiting.count - waitingUnacknowledged + leftOut.count }

    /// Whether what waits is stuck until a program, or a person, makes room.
    private var isStuck: Bool { batch == nil && (isFull || isPaused) }

    /// How far the messages that were left out have been fetched.
    enum Fetching: Hashable, Sendable {
        /// There is no room, or nothing to fetch. Can transition to: asking.
        case none
        /// It is unknown whether the server has read the last acknowledgements; if not, it would send those messages
        /// again. Can transition to: ready.
        case asking
        /// Another connection may begin.
        case ready
    }

    var fetching = Fetching.none

    /// Whether there is room for what was left out. Messages of QoS 0, which may never stop, do not count: they need no
    /// answer.
    var hasRoomForLeftOut: Bool { !leftOut.isEmpty && !isFull && !isPaused && owesNothing }

    /// Whether no message on its way into the inbox has to be acknowledged.
    private var owesNothing: Bool {
        waitingIDs.isEmpty && batch?.entries.contains { $0.publish.packetID != nil } != true
    }

    func isWaiting(_ id: PacketID) -> Bool { waitingIDs.contains(id) }

    // MARK: Waiting

    /// Leaves a message out if no more may wait in memory. Returns whether it did.
    mutating func leaveOut(_ publish: Publish, _ id: PacketID, above limit: Int) -> Bool {
        guard !leftOut.isEmpty || isOverfull(with: publish, above: limit) else { return false }
        leftOut.insert(id)
        return true
    }

    /// Whether no more may wait in memory; one message of any size always may.
    func isOverfull(with publish: Publish, above limit: Int) -> Bool {
        isStuck && !waiting.isEmpty && waitingBytes + publish.contentSize > limit
    }

    /// Makes a message wait. Returns whether there was room for it.
    mutating func wait(_ publish: Publish, for consumers: [ConsumerName]) -> Bool {
        if let id = publish.packetID {
            waitingIDs.insert(id)
        } else {
            guard waitingUnacknowledged < Self.maximumUnacknowledged else { return false }
            waitingUnacknowledged += 1
        }
        let entry = Entry(
            publish: publish.detached(), consumers: consumers,
            generations: consumers.map { collectors[$0]?.generation ?? 0 },
            size: publish.contentSize)
        waiting.append(entry)
        waitingBytes += entry.size
        return true
    }

    mutating func waitAgain(_ entry: Entry) {
        guard let id = entry.publish.packetID else { preconditionFailure("what nobody answers for is dropped instead") }
        waitingIDs.insert(id)
        waiting.prepend(entry)
        waitingBytes += entry.size
    }

    /// The first waiting message, for those of its consumers that still exist. Consumers that came later did not ask
    /// for it.
    var first: Entry? {
        guard var first = waiting.first else { return nil }
        let present = zip(first.consumers, first.generations).filter { collectors[$0]?.generation == $1 }
        (first.consumers, first.generations) = (present.map(\.0), present.map(\.1))
        return first
    }

    mutating func takeFirst() {
        let entry = waiting.removeFirst()
        waitingBytes -= entry.size
        if let id = entry.publish.packetID {
            waitingIDs.remove(id)
        } else {
            waitingUnacknowledged -= 1
        }
    }

    mutating func connectionClosed() {
        waiting.removeAll()
        waitingIDs.removeAll()
        waitingUnacknowledged = 0
        waitingBytes = 0
        leftOut.removeAll()
        fetching = .none
        batch?.isStale = true
    }

    // MARK: Counting

    /// Whether each of the consumers has room for a message of this size.
    func hasRoom(for size: Int, of consumers: [ConsumerName], _ limits: MQTTClientMachine.InboxLimits) -> Bool {
        consumers.allSatisfy { collectors[$0]?.backlog.hasRoom(for: size, limits) ?? true }
    }

    mutating func add(_ entry: Entry, _ limits: MQTTClientMachine.InboxLimits) {
        for name in entry.consumers { collectors[name]?.backlog.add(entry.sequence, entry.size, limits) }
    }

    /// Subtracts what was added for an entry, except for consumers that no longer exist.
    mutating func subtract(_ entry: Entry) {
        for (name, generation) in zip(entry.consumers, entry.generations)
        where collectors[name]?.generation == generation {
            collectors[name]?.backlog.remove(entry.sequence, entry.size)
        }
    }

    /// Whether a quarter of what each consumer may have is free.
    func isRoomy(_ limits: MQTTClientMachine.InboxLimits) -> Bool {
        collectors.values.allSatisfy {
            $0.backlog.messages <= limits.messages * 3 / 4 && $0.backlog.bytes <= limits.bytes / 4 * 3
        }
    }

    /// Makes room for a message of this size, by dropping the oldest messages of each consumer that has none.
    ///
    /// - Parameter first: the first message of the commit being made; its own messages are not dropped.
    /// - Returns: what is dropped; `nil` if that would not be enough, and the commit has to end here.
    mutating func makeRoom(
        for size: Int, of consumers: [ConsumerName], _ limits: MQTTClientMachine.InboxLimits,
        before first: InboxSequence
    ) -> [Drop]? {
        let isEnough = consumers.allSatisfy {
            collectors[$0]?.backlog.canMakeRoom(for: size, limits, before: first) ?? true
        }
        guard isEnough else { return nil }
        var drops: [Drop] = []
        for name in consumers {
            guard let generation = collectors[name]?.generation else { continue }
            while collectors[name]?.backlog.hasRoom(for: size, limits) == false,
                let run = collectors[name]?.backlog.dropOldest()
            { drops.append(Drop(name: name, generation: generation, run: run)) }
        }
        return drops
    }

    /// Counts what was dropped in a commit that is durable.
    ///
    /// - Returns: what consumers have missed that still exist.
    mutating func confirm(_ drops: [Drop]) -> [Drop] {
        let present = present(drops)
        for drop in present {
            collectors[drop.name]?.backlog.confirmDrops()
            collectors[drop.name]?.missed += drop.run.messages
        }
        return present
    }

    /// Keeps what was dropped for messages that are not in the inbox after all.
    mutating func undo(_ drops: [Drop]) {
        for drop in present(drops) { collectors[drop.name]?.backlog.undoDrops() }
    }

    private func present(_ drops: [Drop]) -> [Drop] {
        drops.filter { collectors[$0.name]?.generation == $0.generation }
    }

    /// Shifts the times of what is on its way into the inbox and was received within the range, because the wall clock
    /// was set.
    mutating func shiftTimes(by milliseconds: Int64, receivedWithin range: ClosedRange<Timestamp>) {
        guard var moved = batch?.messages else { return }
        for index in moved.indices where range.contains(moved[index].message.receivedAt) {
            moved[index].message.receivedAt = moved[index].message.receivedAt.advanced(by: milliseconds)
        }
        batch?.messages = moved
    }

    mutating func taken(_ messages: [TakenMessage], by name: ConsumerName) {
        for message in messages { collectors[name]?.backlog.remove(message.sequence, message.size) }
    }

    mutating func put(_ name: ConsumerName, _ filters: Set<TopicFilter>) {
        if collectors[name] == nil {
            generations += 1
            collectors[name] = Collector(generation: generations)
        }
        collectors[name]?.filters = filters
    }

    mutating func remove(_ name: ConsumerName) {
        collectors[name] = nil
    }
}
