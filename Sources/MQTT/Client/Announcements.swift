public import NIOCore

/// A message of the session itself, not of a program: it is sent once, while a connection lasts, and is not part of the
/// session's durable state. On the next connection, what is true by then is announced again.
public struct Announcement: Hashable, Sendable {
    /// A valid topic name (4.7).
    public var topic: String
    /// Empty, together with `retain`, removes the retained message (3.3.1.3).
    public var payload: ByteBuffer
    /// Never exactly once: an exchange of two steps might have to be finished on the next connection.
    public var qos: QoS
    /// Whether the server keeps it for later subscribers (3.3.1.3).
    public var retain: Bool
    /// As for any PUBLISH (3.3.2.3).
    public var properties: Publish.Properties

    public init(
        topic: String, payload: ByteBuffer = ByteBuffer(), qos: QoS = .atLeastOnce, retain: Bool = true,
        properties: Publish.Properties = Publish.Properties()
    ) {
        precondition(qos != .exactlyOnce, "an announcement has QoS 0 or 1")
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
    }
}

/// The announcements of one connection.
struct Announcements: Sendable {
    /// Those for which the server's window has no room, and those behind them.
    var waiting = CircularBuffer<Announcement>(initialCapacity: 1)
    /// Those of QoS 0 that were let through and wait for earlier commits.
    var unacknowledged = CircularBuffer<Announcement>(initialCapacity: 1)
    /// Those that are unanswered.
    var outstanding: [PacketID: Announcement] = [:]
    /// The places of those among what was sent on this connection.
    var places: [PacketID: Int] = [:]
    /// Topics for which the server ended connections because of announcements, and until when nothing is announced
    /// there. After that, an announcement goes out alone, so that it costs one connection if it still ends them.
    private var refusals: [String: Refusal] = [:]

    struct Refusal: Sendable {
        /// `nil` if the server has not said why.
        var code: ReasonCode?
        var until: Timestamp
    }

    /// Milliseconds; the first time, and each time after that.
    private static let refusalPeriods: (first: Int64, next: Int64) = (600_000, 3_600_000)
    /// Milliseconds that a refusal is remembered without an announcement on its topic.
    private static let memory: Int64 = 86_400_000

    mutating func refuse(_ topic: String, _ code: ReasonCode?, at now: Timestamp) {
        refusals = refusals.filter { $0.value.until.advanced(by: Self.memory) > now }
        let period = refusals[topic] == nil ? Self.refusalPeriods.first : Self.refusalPeriods.next
        refusals[topic] = Refusal(code: code, until: now.advanced(by: period))
    }

    func refusal(of topic: String, at now: Timestamp) -> Refusal? {
        refusals[topic].flatMap { $0.until > now ? $0 : nil }
    }

    /// Whether the server ended connections because of the last announcement on this topic.
    func isSuspect(_ topic: String) -> Bool { refusals[topic] != nil }

    /// The server has answered an announcement on this topic, whatever it said.
    mutating func answered(_ topic: String) { refusals[topic] = nil }

    /// The server also ends connections for which no announcement can be the reason.
    mutating func pardon() { refusals = [:] }

    /// Shifts the times, because the wall clock was set forward by this many milliseconds.
    mutating func clockStepped(by milliseconds: Int64) {
        refusals = refusals.mapValues { Refusal(code: $0.code, until: $0.until.advanced(by: milliseconds)) }
    }

    /// Returns the identifiers that are free now.
    mutating func connectionClosed() -> [PacketID] {
        defer {
            let kept = refusals
            self = Announcements()
            refusals = kept
        }
        return Array(outstanding.keys)
    }
}

extension MQTTClientMachine {
    /// Sends an announcement as soon as the server's window has room, ahead of waiting messages. `announced` follows
    /// with the server's answer, or at once with QoS 0 or beyond the server's limits, unless the connection ends first.
    /// Without a connection nothing happens.
    public mutating func announce(_ announcement: Announcement, at now: Timestamp, into actions: inout [Action]) {
        step(at: now, into: &actions) { machine, step in
            guard case .connected(let session) = machine.connection else { return }
            let message = OutboundMessage(
                topic: announcement.topic, payload: announcement.payload, qos: announcement.qos,
                retain: announcement.retain, properties: announcement.properties)
            if machine.isVersionInsufficient(for: message, session.limits) {
                machine.leaveForFive(&step)
            } else if let refusal = machine.refusal(of: message, session.limits) {
                step.emit(.announced(announcement, .notAsked(refusal.sentence)))
            } else if let refusal = machine.announcements.refusal(of: announcement.topic, at: now) {
                step.emit(.announced(announcement, ServerAnswer(endedWith: refusal.code)))
            } else {
                if machine.announcements.isSuspect(announcement.topic) { machine.isolateAnnouncements() }
                machine.announcements.waiting.append(announcement)
            }
        }
    }

    /// Whether an announcement waits for its answer.
    public var isAnnouncing: Bool {
        !announcements.waiting.isEmpty || !announcements.unacknowledged.isEmpty || !announcements.outstanding.isEmpty
            || !quota.announcements.isEmpty
    }

    /// Whether announcements wait for messages that are unanswered, because the server's window is full or each of them has
    /// to go out alone.
    public var announcementsAwaitMessages: Bool { !announcements.waiting.isEmpty && outbox.windowCount > 0 }

    /// Lets announcements through as far as the window has room. Their packet identifiers need not be durable: no
    /// answer to them can come on another connection.
    mutating func pumpAnnouncements(_ step: inout Step) {
        guard case .connected(let session) = connection else { return }
        while !isHeldForIsolation, let next = announcements.waiting.first {
            if next.qos == .atMostOnce {
                announcements.unacknowledged.append(next)
                enqueue(.announceUnacknowledged, step)
            } else {
                guard outbox.windowCount + announcements.outstanding.count < session.limits.receiveMaximum,
                    let id = identifiers.allocator.allocate()
                else { return }
                announcements.outstanding[id] = next
                enqueue(.announce(id), step)
            }
            announcements.waiting.removeFirst()
        }
    }

    /// Whether another announcement would not be alone.
    private var isHeldForIsolation: Bool {
        guard isolation.includesAnnouncements else { return false }
        return isolation.isUnproven || outbox.outstandingCount > 0 || !announcements.outstanding.isEmpty
    }

    mutating func sendAnnouncement(_ id: PacketID, _ step: inout Step) {
        guard let announcement = announcements.outstanding[id] else { return }
        announcements.places[id] = link.reading.send()
        patience.exchanges.sent(id, at: step.now)
        send(announcement, id, &step)
    }

    mutating func sendUnacknowledgedAnnouncement(_ step: inout Step) {
        guard let announcement = announcements.unacknowledged.popFirst() else { return }
        link.reading.sendUnanswerable()
        send(announcement, nil, &step)
        step.emit(.announced(announcement, .success))
    }

    private func send(_ announcement: Announcement, _ id: PacketID?, _ step: inout Step) {
        step.write(
            .publish(
                Publish(
                    topic: announcement.topic, payload: announcement.payload, qos: announcement.qos,
                    retain: announcement.retain, packetID: id, properties: announcement.properties)))
    }

    /// Returns whether the PUBACK belonged to an announcement.
    mutating func receivedPubackOfAnnouncement(_ answer: Acknowledgement, _ step: inout Step) -> Bool {
        // One that has no place was not sent yet.
        guard announcements.places[answer.packetID] != nil,
            let announcement = announcements.outstanding.removeValue(forKey: answer.packetID)
        else { return false }
        identifiers.allocator.free(answer.packetID)
        patience.exchanges.answered(answer.packetID)
        if let place = announcements.places.removeValue(forKey: answer.packetID) { link.reading.answered(place) }
        if announcements.waiting.isEmpty, announcements.outstanding.isEmpty { isolation.includesAnnouncements = false }
        announcements.answered(announcement.topic)
        suspicions.answered(.announcement(announcement.topic))
        patience.silences.answered(.announcement(announcement.topic))
        if doubt(announcement, answer, &step) { return true }
        if !answer.reasonCode.isError { messageTaken() }
        let words = answer.properties.reasonString?.plain()
        step.emit(.announced(announcement, .said(answer.reasonCode, words)))
        if Consequence.measures(for: answer.reasonCode, in: .acknowledgement).contains(.retireIdentifier) {
            _ = identifierIsTaken(answer.packetID, &step)
        }
        return true
    }
}
