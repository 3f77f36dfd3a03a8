public import MQTT

/// The durable state of one session's protocol, in memory, with the promises of the real store: commits are atomic and
/// in order, loads see every commit that was issued before, and after a crash there is what was committed and nothing
/// else.
///
/// It also checks that each change is possible.
public struct ModelStore: Sendable {
    public private(set) var messages: [MessageSequence: StoredMessage] = [:]
    public private(set) var established = false
    public private(set) var assignedClientID: String?
    public private(set) var inboundIDs: Set<PacketID> = []
    public private(set) var retiredIDs: Set<PacketID> = []
    public private(set) var suspectIDs: Set<PacketID> = []
    public private(set) var window = IdentifierWindow()
    public private(set) var reservedSequence: Int64 = 0
    public private(set) var reservedInboxSequence: Int64 = 0
    public private(set) var keys: [PublishKey: (sequence: MessageSequence, at: Timestamp, outcome: PublishOutcome?)] =
        [:]
    public private(set) var clientID: String?
    public private(set) var missed: [ConsumerName: Int] = [:]
    /// Whether something was reserved since `flushed`, so that the disk must be flushed.
    public private(set) var mustFlush = false
    public private(set) var rememberedSubscriptions: Set<TopicFilter> = []
    /// The messages that wait for each durable consumer, in order.
    public private(set) var inboxes: [ConsumerName: [CollectedMessage]] = [:]
    public private(set) var consumers: [ConsumerName: DurableConsumer] = [:]
    public private(set) var nextInboxSequence = InboxSequence(rawValue: 1)
    public private(set) var nextSequence = MessageSequence(rawValue: 1)
    /// What was wrong with the changes; empty if nothing was.
    public private(set) var violations: [String] = []

    public init() {}

    /// Carries out one commit.
    /// - Parameter refusingInserts: whether there is no room for new messages.
    public mutating func commit(_ changes: [DurableChange], refusingInserts: Bool = false) {
        for change in changes {
            switch change {
            case .insert, .collect, .dropCollected, .rememberKey: if refusingInserts { continue }
            default: break
            }
            apply(change)
        }
    }

    private mutating func apply(_ change: DurableChange) {
        switch change {
        case .insert(let stored):
            if messages[stored.sequence] != nil { violations.append("\(stored.sequence) was inserted twice") }
            if stored.sequence < nextSequence { violations.append("\(stored.sequence) was inserted out of order") }
            if case .inFlight(let id) = stored.state {
                check(id)
                reserve(id, for: stored.message)
            }
            reserve(stored.sequence)
            messages[stored.sequence] = stored
            nextSequence = stored.sequence.next
        case .assign(let sequence, let id):
            check(id)
            if let message = messages[sequence]?.message { reserve(id, for: message) }
            transition(sequence, to: .inFlight(id)) { $0 == .queued }
        case .unassign(let sequence):
            transition(sequence, to: .queued) { if case .inFlight = $0 { true } else { false } }
        case .release(let sequence):
            guard case .inFlight(let id)? = messages[sequence]?.state else {
                violations.append("\(sequence) was released and was not in flight")
                return
            }
            messages[sequence]?.state = .released(id)
        case .remove(let sequence), .acknowledge(let sequence):
            if messages.removeValue(forKey: sequence) == nil { violations.append("\(sequence) was removed twice") }
        case .rememberKey(let key, let sequence, at: let time): keys[key] = (sequence, time, nil)
        case .concludeKey(let sequence, let outcome, at: let time):
            for (key, entry) in keys where entry.sequence == sequence {
                keys[key] = (sequence, max(entry.at, time), outcome)
            }
        case .quarantine(let sequence, let code, let sentence):
            transition(sequence, to: .quarantined(code, sentence)) { state in
                switch state {
                case .queued, .inFlight: true
                case .released, .quarantined: false
                }
            }
        case .requeue(let old, let new, let time):
            guard var stored = messages.removeValue(forKey: old) else {
                violations.append("\(old) was requeued and is not there")
                return
            }
            stored.message.acceptedAt = time
            messages[new] = StoredMessage(sequence: new, message: stored.message)
            nextSequence = new.next
            reserve(new)
            for (key, entry) in keys where entry.sequence == old { keys[key]?.sequence = new }
        case .shiftTimes(let milliseconds, let range):
            for (sequence, stored) in messages where range.contains(stored.message.acceptedAt) {
                messages[sequence]?.message.acceptedAt = .init(
                    rawValue: stored.message.acceptedAt.rawValue + milliseconds)
                messages[sequence]?.message.expiresAt = stored.message.expiresAt.map {
                    .init(rawValue: $0.rawValue + milliseconds)
                }
            }
            for (key, entry) in keys where range.contains(entry.at) {
                keys[key]?.at = .init(rawValue: entry.at.rawValue + milliseconds)
            }
        case .insertInbound(let id): inboundIDs.insert(id)
        case .removeInbound(let id):
            if inboundIDs.remove(id) == nil { violations.append("inbound \(id) was removed twice") }
        case .removeAllInbound: inboundIDs.removeAll()
        case .retireIdentifier(let id): retiredIDs.insert(id)
        case .suspectIdentifier(let id): suspectIDs.insert(id)
        case .clearSuspect(let id):
            if suspectIDs.remove(id) == nil { violations.append("identifier \(id) was no suspect") }
        case .freeRetiredIdentifiers:
            retiredIDs.removeAll()
            suspectIDs.removeAll()
        case .setClientID(let id): clientID = id
        case .rememberSubscription(let filter): rememberedSubscriptions.insert(filter)
        case .forgetSubscription(let filter):
            if rememberedSubscriptions.remove(filter) == nil { violations.append("\(filter) was forgotten twice") }
        case .forgetAllSubscriptions: rememberedSubscriptions.removeAll()
        case .setAssignedClientID(let id): assignedClientID = id
        case .setEstablished(let value): established = value
        case .collect(let message, let names, let id):
            if message.sequence < nextInboxSequence { violations.append("\(message.sequence) was collected late") }
            nextInboxSequence = message.sequence.next
            if message.sequence.rawValue > reservedInboxSequence {
                reservedInboxSequence = message.sequence.rawValue + ReservedSequence.block
                mustFlush = true
            }
            for name in names where consumers[name] != nil { inboxes[name, default: []].append(message) }
            if let id { inboundIDs.insert(id) }
        case .removeCollected(let sequence, let name):
            inboxes[name]?.removeAll { $0.sequence == sequence }
        case .dropCollected(let name, through: let through, let count):
            inboxes[name]?.removeAll { $0.sequence <= through }
            if consumers[name] != nil { missed[name, default: 0] += count }
        case .toldMissed(let name, let count): missed[name] = max(0, (missed[name] ?? 0) - count)
        case .putConsumer(let name, let filter, let qos):
            let given = consumers[name]?.givenThrough ?? .zero
            consumers[name] = DurableConsumer(name: name, filter: filter, qos: qos, givenThrough: given)
        case .removeConsumer(let name):
            consumers[name] = nil
            inboxes[name] = nil
            missed[name] = nil
        case .setGiven(let name, let through): consumers[name]?.givenThrough = through
        }
    }

    private mutating func reserve(_ sequence: MessageSequence) {
        guard sequence.rawValue > reservedSequence else { return }
        reservedSequence = sequence.rawValue + ReservedSequence.block
        mustFlush = true
    }

    private mutating func reserve(_ id: PacketID, for message: OutboundMessage) {
        guard message.qos == .exactlyOnce, window.reserve(id) else { return }
        mustFlush = true
    }

    /// Notes that everything written is on the disk for certain.
    public mutating func flushed() { mustFlush = false }

    /// Makes every third message of the outbox and of each inbox unreadable. The others are kept, no number is used
    /// again, and no session at a server is mistaken for the one that was known.
    public mutating func loseRows() {
        messages = messages.filter { $0.key.rawValue % 3 != 0 }
        inboxes = inboxes.mapValues { $0.filter { $0.sequence.rawValue % 3 != 0 } }
        established = false
        nextSequence = .init(rawValue: max(nextSequence.rawValue, reservedSequence) + ReservedSequence.block)
        nextInboxSequence = .init(
            rawValue: max(nextInboxSequence.rawValue, reservedInboxSequence) + ReservedSequence.block)
    }

    /// Prepares the state for a daemon that starts after one that was not stopped properly.
    public mutating func takeUp() {
        if reservedSequence >= nextSequence.rawValue { nextSequence = .init(rawValue: reservedSequence + 1) }
        if reservedInboxSequence >= nextInboxSequence.rawValue {
            nextInboxSequence = .init(rawValue: reservedInboxSequence + 1)
        }
        let inFlight = messages.values.compactMap { stored -> PacketID? in
            switch stored.state {
            case .inFlight(let id), .released(let id): id
            case .queued, .quarantined: nil
            }
        }
        suspectIDs.formUnion(Set(window.identifiers).subtracting(inFlight))
        window = IdentifierWindow()
    }

    /// Returns what is remembered of a message that was published with a key.
    public func keyed(_ key: PublishKey, now: Timestamp) -> KeyedMessage? {
        guard let entry = keys[key] else { return nil }
        let isInOutbox = entry.outcome == nil && messages[entry.sequence] != nil
        guard isInOutbox || entry.at.rawValue > now.rawValue - PublishKey.lifetime else { return nil }
        let state: KeyedMessage.State
        if let outcome = entry.outcome {
            state = .done(outcome)
        } else if case .quarantined(let code, let sentence)? = messages[entry.sequence]?.state {
            state = .quarantined(code, sentence)
        } else {
            state = messages[entry.sequence] == nil ? .lost : .waiting
        }
        return KeyedMessage(sequence: entry.sequence, state: state, at: entry.at)
    }

    private mutating func transition(
        _ sequence: MessageSequence, to state: StoredMessage.State, if isAllowed: (StoredMessage.State) -> Bool
    ) {
        guard let old = messages[sequence]?.state, isAllowed(old) else {
            // There is no row if its insert was refused or its row was lost; the caller's invariants tell which.
            if let old = messages[sequence]?.state { violations.append("\(sequence): \(old) became \(state)") }
            return
        }
        messages[sequence]?.state = state
    }

    private mutating func check(_ id: PacketID) {
        let isUsed = messages.values.contains { stored in
            switch stored.state {
            case .inFlight(let other), .released(let other): other == id
            case .queued, .quarantined: false
            }
        }
        if isUsed { violations.append("packet identifier \(id) was assigned twice") }
    }

    /// Answers the machine's `load`.
    public func load(after: MessageSequence, messages limit: Int, bytes: Int) -> [StoredMessage] {
        var result: [StoredMessage] = []
        var total = 0
        // Sorts the numbers, not the messages, because every random walk does this very often.
        for sequence in messages.keys.filter({ $0 > after }).sorted() {
            guard let stored = messages[sequence], stored.state == .queued else { continue }
            total += stored.message.size
            guard result.isEmpty || (result.count < limit && total <= bytes) else { break }
            result.append(stored)
        }
        return result
    }

    /// The state that a machine is given when it starts now.
    public var session: DurableSession {
        let consumers = consumers.values.sorted { $0.name < $1.name }.map { consumer in
            var consumer = consumer
            consumer.runs = (inboxes[consumer.name] ?? []).map {
                InboxRun(through: $0.sequence, messages: 1, bytes: $0.size)
            }
            consumer.missed = missed[consumer.name] ?? 0
            return consumer
        }
        var session = DurableSession()
        session.established = established
        session.assignedClientID = assignedClientID
        (session.nextSequence, session.nextInboxSequence) = (nextSequence, nextInboxSequence)
        (session.inboundIDs, session.retiredIDs, session.suspectIDs) = (inboundIDs, retiredIDs, suspectIDs)
        session.rememberedSubscriptions = rememberedSubscriptions
        session.consumers = consumers
        session.clientID = clientID
        session.hasKeys = !keys.isEmpty
        for stored in messages.values.sorted(by: { $0.sequence < $1.sequence }) {
            switch stored.state {
            case .queued:
                session.queuedCount += 1
                session.queuedBytes += stored.message.size
            case .inFlight, .released: session.inFlight.append(stored)
            case .quarantined:
                session.quarantinedCount += 1
                session.quarantinedBytes += stored.message.size
            }
        }
        return session
    }
}
