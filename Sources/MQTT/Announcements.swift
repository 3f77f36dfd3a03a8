public import NIOCore

/// A message of the session itself, not of a program: it is sent once, at QoS 1, while a connection lasts, and is not part
/// of the session's durable state. Who announces says on the next connection what holds then.
public struct Announcement: Hashable, Sendable {
    /// A valid topic name (4.7).
    public var topic: String
    /// Empty, together with `retain`, removes the retained message (3.3.1.3).
    public var payload: ByteBuffer
    public var retain: Bool

    public init(topic: String, payload: ByteBuffer = ByteBuffer(), retain: Bool = true) {
        self.topic = topic
        self.payload = payload
        self.retain = retain
    }
}

/// The announcements of one connection.
struct Announcements: Sendable {
    /// Those that the server's window has no room for.
    var waiting = CircularBuffer<Announcement>()
    /// Those that are unanswered.
    var outstanding: [PacketID: Announcement] = [:]

    /// Answers the identifiers that are free now.
    mutating func connectionClosed() -> [PacketID] {
        defer { self = Announcements() }
        return Array(outstanding.keys)
    }
}

extension MQTTClientMachine {
    /// Sends an announcement as soon as the server's window has room, ahead of messages that wait. `announced` follows
    /// with the server's answer, unless the connection ends before. Without a connection nothing happens.
    public mutating func announce(_ announcement: Announcement, at now: Timestamp, into actions: inout [Action]) {
        step(at: now, into: &actions) { machine, step in
            guard case .connected(let session) = machine.connection else { return }
            if announcement.retain, !session.limits.retainAvailable {
                step.emit(.announced(announcement, .retainNotSupported))
            } else if session.limits.maximumQoS == .atMostOnce {
                step.emit(.announced(announcement, .qosNotSupported))
            } else {
                machine.announcements.waiting.append(announcement)
            }
        }
    }

    /// Whether an announcement waits for its answer.
    public var isAnnouncing: Bool { !announcements.waiting.isEmpty || !announcements.outstanding.isEmpty }

    /// Lets announcements through as far as the window has room. A packet identifier of theirs needs not be durable: no
    /// answer to it can come on another connection.
    mutating func pumpAnnouncements(_ step: inout Step) {
        guard case .connected(let session) = connection else { return }
        while let next = announcements.waiting.first,
            outbox.outstandingCount + announcements.outstanding.count < session.limits.receiveMaximum,
            let id = packetIDs.allocate()
        {
            announcements.waiting.removeFirst()
            announcements.outstanding[id] = next
            enqueue(.announce(id), step)
        }
    }

    mutating func sendAnnouncement(_ id: PacketID, _ step: inout Step) {
        guard let announcement = announcements.outstanding[id] else { return }
        step.write(
            .publish(
                Publish(
                    topic: announcement.topic, payload: announcement.payload, qos: .atLeastOnce,
                    retain: announcement.retain, packetID: id)))
    }

    /// Answers whether the PUBACK belonged to an announcement.
    mutating func receivedPubackOfAnnouncement(_ answer: Acknowledgement, _ step: inout Step) -> Bool {
        guard let announcement = announcements.outstanding.removeValue(forKey: answer.packetID) else { return false }
        packetIDs.free(answer.packetID)
        step.emit(.announced(announcement, answer.reasonCode))
        return true
    }
}
