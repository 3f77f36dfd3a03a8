import NIOCore

/// The outbound messages of a session that are in memory: the window, and a bounded read-ahead of the queue. The rest of
/// the queue is in the store only.
///
///     sequence:   1 … 40              41 … 90                        91 … 5,000
///                 in flight (by id)   read-ahead: the queue's head   in the store only
///                                              loadedThrough = 90 ┘        lastSequence = 5,000 ┘
///
/// Inserts become durable in order of sequence, so one number says which are. QoS 0 messages stay `queued` in the store
/// until they are flushed; until then they are in `backlog`.
struct Outbox: Sendable {
    /// A message that has a packet identifier.
    struct InFlight: Sendable {
        var sequence: MessageSequence
        var size: Int
        var acceptedAt: Timestamp
        /// `nil` once only PUBREL can follow.
        var message: OutboundMessage?
        /// Whether it may have reached the server, on this connection or an earlier one: DUP is set from then on.
        var wasAttempted: Bool
        var progress = Progress.idle
        /// Its place among what was sent on this connection.
        var place = 0
        /// What PUBREC said.
        var answer = ReasonCode.success

        var isReleased: Bool { message == nil }

        /// Notes that it was written, at this place among what was sent on this connection.
        mutating func sent(at place: Int) {
            wasAttempted = true
            progress = .onWire
            self.place = place
        }

        /// A message from the store, which may have been sent.
        init(_ stored: StoredMessage, size: Int) {
            sequence = stored.sequence
            self.size = size
            acceptedAt = stored.message.acceptedAt
            message = stored.message
            wasAttempted = true
        }

        /// A message that has just got its identifier.
        init(_ queued: Queued) {
            sequence = queued.sequence
            size = queued.message.size
            acceptedAt = queued.message.acceptedAt
            message = queued.message
            wasAttempted = false
        }
    }

    /// How far a message in flight is on this connection.
    enum Progress: Sendable {
        /// Not yet its turn. Can transition to: letThrough.
        case idle
        /// Counted in the backlog, waits for commits. Can transition to: onWire, idle (closed).
        case letThrough
        /// Written, waits for its answer. Can transition to: idle (closed).
        case onWire
    }

    /// A message of the queue.
    struct Queued: Sendable {
        var sequence: MessageSequence
        var message: OutboundMessage
    }

    /// A message that the server refused, with what it said.
    struct Refused: Sendable {
        var queued: Queued
        var sentence: String?
    }

    var counts: MQTTClientMachine.Counts {
        didSet {
            precondition(
                min(counts.queued, counts.inFlight, counts.quarantined, counts.bytes) >= 0,
                "a message is taken out of a count that it was not in")
        }
    }
    /// The bytes of the messages that `counts.queued` counts.
    private(set) var queuedBytes: Int

    /// The sequence that was given out last.
    private(set) var lastSequence: MessageSequence
    /// The inserts of all messages up to this one are decided: durable, or refused.
    var durableThrough: MessageSequence

    var inFlight: [PacketID: InFlight] = [:]
    /// Bytes of the messages in flight, released ones included: the store still has those, and loads them at a start.
    private(set) var inFlightBytes = 0
    /// Messages of QoS 2 that were let through on this connection, and whose PUBREC is awaited: the others of their topics
    /// follow them.
    private var unreleased: Set<PacketID> = []
    /// How many of them each topic has.
    private var unreleasedTopics: [String: Int] = [:]
    /// Messages that were dropped after they had been sent on this connection, and that the server has not answered; by their
    /// identifiers, with their QoS.
    var abandoned: [PacketID: QoS] = [:]
    /// What is in flight and not yet sent again on this connection, in order of sequence.
    var resend = CircularBuffer<PacketID>(initialCapacity: 1)
    var readAhead: ReadAhead
    var backlog = TransportBacklog()
    /// What the server refused because it may have no room at the moment: queued in the store, and not in the
    /// read-ahead.
    private var refused: [Refused] = []
    /// How often the queue was started over because the server had lost the session.
    private(set) var lossCount = 0
    /// Messages of the queue that were sent in a session that the server has lost since, and which it may have passed on:
    /// they are sent again even if they have expired. At most as many as were in flight; not known after a restart.
    var sentBefore: Set<MessageSequence> = []

    init(_ durable: DurableSession) {
        lastSequence = MessageSequence(rawValue: durable.nextSequence.rawValue - 1)
        durableThrough = lastSequence
        readAhead = ReadAhead(loadedThrough: durable.queuedCount == 0 ? lastSequence : .zero)
        queuedBytes = durable.queuedBytes
        counts = MQTTClientMachine.Counts(
            queued: durable.queuedCount, inFlight: 0, quarantined: durable.quarantinedCount,
            bytes: durable.queuedBytes + durable.quarantinedBytes)
        for stored in durable.inFlight {
            let size = stored.message.size
            switch stored.state {
            case .inFlight(let id):
                inFlight[id] = InFlight(stored, size: size)
            case .released(let id):
                inFlight[id] = InFlight(stored, size: size)
                inFlight[id]?.message = nil
            case .queued, .quarantined:
                preconditionFailure("the durable session's inFlight holds only what is in flight or released")
            }
            enterFlight(size: size)
            counts.bytes += size
        }
    }

    /// Packet identifiers in flight, in order of sequence.
    var identifiersInOrder: [PacketID] {
        inFlight.sorted { $0.value.sequence < $1.value.sequence }.map(\.key)
    }

    /// Messages that wait for an answer on this connection.
    var outstandingCount: Int { inFlight.count - resend.count }

    /// How many messages take room in the server's window, which also counts those that were dropped here.
    var windowCount: Int { outstandingCount + abandoned.count }

    /// Messages of the queue that are not on their way, and their bytes.
    var waiting: (messages: Int, bytes: Int) {
        (
            counts.queued - backlog.unflushedCount - refused.count,
            queuedBytes - backlog.unflushedBytes - refused.reduce(0) { $0 + $1.queued.message.size }
        )
    }

    /// When the first of the messages that are queued or in flight was accepted, as far as they are in memory.
    var oldestAcceptance: Timestamp? {
        var first = inFlight.values.min { $0.sequence < $1.sequence }.map { ($0.sequence, $0.acceptedAt) }
        let head = readAhead.messages.first ?? readAhead.unloaded
        let waiting = [backlog.first, head].compactMap(\.self) + refused.map(\.queued)
        for queued in waiting where queued.sequence < first?.0 ?? MessageSequence(rawValue: .max) {
            first = (queued.sequence, queued.message.acceptedAt)
        }
        return first?.1
    }

    // MARK: New messages

    /// Counts a message as `queued`.
    mutating func enterQueue(size: Int) {
        counts.queued += 1
        queuedBytes += size
    }

    /// Stops counting a message as `queued`.
    mutating func leaveQueue(size: Int) {
        counts.queued -= 1
        queuedBytes -= size
    }

    /// Counts a message as in flight.
    mutating func enterFlight(size: Int) {
        counts.inFlight += 1
        inFlightBytes += size
    }

    /// Whether another message of this size may be in flight. One of any size may be, if no other waits for its answer.
    func hasRoom(for size: Int, bytes limit: Int) -> Bool { outstandingCount == 0 || inFlightBytes + size <= limit }

    /// Whether every message of the queue is in memory.
    var isWholeInMemory: Bool { readAhead.loadedThrough == lastSequence }

    /// Whether every message of the queue before this one is in memory.
    func isLoaded(through sequence: MessageSequence) -> Bool {
        readAhead.loadedThrough >= sequence || waiting.messages == 0
    }

    /// Whether nothing has to go before a new message.
    var isQueueEmpty: Bool { isWholeInMemory && readAhead.messages.isEmpty && resend.isEmpty && refused.isEmpty }

    mutating func nextSequence() -> MessageSequence {
        let wasWhole = isWholeInMemory
        lastSequence = lastSequence.next
        if wasWhole { readAhead.advance(to: lastSequence) }
        return lastSequence
    }

    /// Puts a new message at the end of the queue: into memory if everything before it is there and there is room.
    mutating func enqueue(_ message: OutboundMessage, _ sequence: MessageSequence, messages: Int, bytes: Int) {
        enterQueue(size: message.size)
        counts.bytes += message.size
        readAhead.enqueue(Queued(sequence: sequence, message: message), maxMessages: messages, maxBytes: bytes)
    }

    /// Removes from memory a message that the store refused. Returns the identifier that it had.
    mutating func forget(_ sequence: MessageSequence, size: Int, packetID: PacketID?) -> PacketID? {
        counts.bytes -= size
        if let packetID, inFlight[packetID]?.sequence == sequence {
            counts.inFlight -= 1
            remove(packetID)
            return packetID
        }
        leaveQueue(size: size)
        _ = readAhead.remove(sequence)
        return nil
    }

    /// Notes that a message goes to the connection.
    ///
    /// - Parameter isSuspect: whether earlier connections have ended because it was not answered.
    mutating func letThrough(_ packetID: PacketID, _ queued: Queued, isSuspect: Bool) {
        inFlight[packetID, default: InFlight(queued)].progress = .letThrough
        backlog.letThrough(bytes: queued.message.size)
        // Nothing is held back for one that may never be answered.
        guard queued.message.qos == .exactlyOnce, !isSuspect, unreleased.insert(packetID).inserted else { return }
        unreleasedTopics[queued.message.topic, default: 0] += 1
    }

    /// Notes that only the PUBREL of a message can follow.
    mutating func released(_ packetID: PacketID, _ answer: ReasonCode) {
        freeTopic(of: packetID)
        inFlight[packetID]?.message = nil
        inFlight[packetID]?.progress = .onWire
        inFlight[packetID]?.answer = answer
    }

    private mutating func freeTopic(of packetID: PacketID) {
        guard unreleased.remove(packetID) != nil, let topic = inFlight[packetID]?.message?.topic,
            let count = unreleasedTopics[topic]
        else { return }
        unreleasedTopics[topic] = count > 1 ? count - 1 : nil
    }

    /// Whether a message would reach subscribers before an earlier one of its topic: a server may pass on a message of QoS 2
    /// only when it gets the PUBREL (MQTT 5, 4.3.3), and the others at once.
    func overtakes(_ message: OutboundMessage) -> Bool {
        !unreleasedTopics.isEmpty && message.qos != .exactlyOnce && unreleasedTopics[message.topic] != nil
    }

    /// Takes a message out of the window.
    mutating func remove(_ packetID: PacketID) {
        freeTopic(of: packetID)
        guard let entry = inFlight.removeValue(forKey: packetID) else { return }
        inFlightBytes -= entry.size
        if entry.progress == .letThrough { backlog.takeBack(bytes: entry.size) }
        if let index = resend.firstIndex(of: packetID) { resend.remove(at: index) }
    }

    /// The identifier of a message that is in flight.
    func packetID(of sequence: MessageSequence) -> PacketID? {
        inFlight.first { $0.value.sequence == sequence }?.key
    }

    /// Removes a message whose refusal is in doubt from memory, if it is there.
    mutating func removeRefused(_ sequence: MessageSequence) -> Bool {
        guard let index = refused.firstIndex(where: { $0.queued.sequence == sequence }) else { return false }
        refused.remove(at: index)
        return true
    }

    // MARK: The queue's head

    /// The first message of the queue, once it is durable.
    var first: Queued? {
        guard let first = readAhead.messages.first, first.sequence <= durableThrough else { return nil }
        return first
    }

    /// Whether nothing of the queue is in memory, and the store has some of it.
    var isHeadMissing: Bool {
        readAhead.messages.isEmpty && readAhead.loadedThrough < durableThrough && waiting.messages > 0
    }

    mutating func nextLoad(messages: Int, bytes: Int) -> MQTTClientMachine.Action? {
        readAhead.nextLoad(through: durableThrough, maxMessages: messages, maxBytes: bytes)
    }

    /// Takes what was loaded, except messages in doubt, which are in memory already: they may have become queued in the
    /// store before it was read.
    mutating func loaded(_ stored: [StoredMessage]) {
        readAhead.loaded(stored, except: Set(refused.map(\.queued.sequence)))
    }

    /// Shifts the times of what was accepted within the range, because the wall clock was set.
    mutating func shiftTimes(by milliseconds: Int64, acceptedWithin range: ClosedRange<Timestamp>) {
        func shift(_ message: inout OutboundMessage) {
            guard range.contains(message.acceptedAt) else { return }
            message.acceptedAt = message.acceptedAt.advanced(by: milliseconds)
            message.expiresAt = message.expiresAt?.advanced(by: milliseconds)
        }
        for (id, entry) in inFlight where range.contains(entry.acceptedAt) {
            inFlight[id]?.acceptedAt = entry.acceptedAt.advanced(by: milliseconds)
            if var message = entry.message {
                shift(&message)
                inFlight[id]?.message = message
            }
        }
        readAhead.update(shift)
        backlog.update(shift)
        for index in refused.indices { shift(&refused[index].queued.message) }
    }

    // MARK: Refusals in doubt

    /// Whether there are messages whose refusal is in doubt.
    var hasRefused: Bool { !refused.isEmpty }

    /// Queues a message again that was in flight, and holds it back.
    mutating func refuse(_ queued: Queued, _ sentence: String?) {
        enterQueue(size: queued.message.size)
        refused.append(Refused(queued: queued, sentence: sentence))
    }

    /// Takes out the messages whose refusal is in doubt. They are still counted as queued.
    mutating func takeRefused() -> [Refused] {
        defer { refused = [] }
        return refused
    }

    // MARK: The end of the connection

    /// Puts what was not flushed, or is in doubt, at the head of the queue again, because the connection is gone.
    mutating func connectionClosed() {
        let returned = takeRefused().map(\.queued) + backlog.connectionClosed()
        for queued in returned.sorted(by: { $0.sequence > $1.sequence }) { readAhead.prepend(queued) }
        resend.removeAll()
        unreleased.removeAll()
        unreleasedTopics.removeAll()
        for id in inFlight.keys {
            inFlight[id]?.progress = .idle
            inFlight[id]?.place = 0
        }
    }

    /// Starts to read the queue from the beginning, because the server lost the session and what was in flight is
    /// queued in the store.
    mutating func sessionLost() {
        lossCount += 1
        for entry in inFlight.values where entry.wasAttempted && !entry.isReleased {
            sentBefore.insert(entry.sequence)
        }
        inFlight.removeAll()
        unreleased.removeAll()
        unreleasedTopics.removeAll()
        inFlightBytes = 0
        resend.removeAll()
        readAhead.startOver(after: counts.queued == 0 ? lastSequence : .zero)
    }
}
