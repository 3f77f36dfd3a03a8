public import MQTT
public import NIOCore

/// A small MQTT 5 and 3.1.1 server for one client: it does what the standard asks of a server, and is strict about what
/// the standard asks of the client.
///
/// Bytes go in with `receive`, packets are processed one by one with `answerNext` (so that a test can cut the
/// connection between any two), and `takeOutput` returns what the server sends. The session outlives the connection
/// until it is lost.
public struct ModelServer {
    /// A message that the server took over from the client.
    public struct Delivery: Hashable {
        public var topic: String
        public var payload: String
        public var qos: QoS
        /// Counts the server's sessions: exactly once can be promised only within one of them.
        public var epoch: Int
    }

    private struct Outgoing {
        var id: PacketID
        var topic: String
        var payload: String
        var qos: QoS
        var isReleased = false
        var wasAttempted = false
        var isOnWire = false
    }

    private struct Session {
        var subscriptions: [TopicFilter: Subscription] = [:]
        /// The client's QoS 2 identifiers between PUBLISH and PUBREL.
        var received: Set<PacketID> = []
        var outgoing: [Outgoing] = []
        var lastID: UInt16 = 0
        /// QoS 2 exchanges that both sides had finished, but that the server still counts.
        var ghosts = 0
        /// Clean Session of MQTT 3.1.1: the session ends with its connection.
        var endsWithConnection = false
    }

    /// What CONNACK announces.
    public var properties = Connack.Properties()
    /// Topics that PUBACK and PUBREC refuse; not in MQTT 3.1.1.
    public var refusals: [String: ReasonCode] = [:]
    /// How many QoS 2 exchanges the server keeps. When it has that many, it refuses every QoS 1 and 2 message and
    /// closes.
    public var maximumExchanges = Int.max
    /// The identifier that clients without one are assigned.
    public var assignedClientID = "assigned"

    public private(set) var deliveries: [Delivery] = []
    /// The client's mistakes; empty if there were none.
    public private(set) var violations: [String] = []
    public private(set) var epoch = 0
    /// Whether the server has ended the connection: nothing that arrives is processed any more.
    public private(set) var wantsClose = false
    public private(set) var connects: [Connect] = []

    private var session: Session?
    private var decoder = PeerDecoder()
    private var unanswered: [Packet] = []
    private var output = ByteBuffer()
    private var isConnected = false
    private var hasGreeted = false
    private var hasAccepted = false
    private var hasLeft = false
    private var clientWindow = 0
    /// The client's identifiers that are in use on this connection.
    private var busy: Set<PacketID> = []
    private var window: Set<PacketID> = []

    public init() {}

    public var hasSession: Bool { session != nil }
    public var subscriptions: Set<TopicFilter> { Set(session.map { Array($0.subscriptions.keys) } ?? []) }
    public var unansweredCount: Int { unanswered.count }
    /// The number of messages to the client that are not finished.
    public var outgoingCount: Int { session?.outgoing.count ?? 0 }

    // MARK: Connection

    public mutating func connectionOpened() {
        decoder = PeerDecoder(adoptsVersion: true)
        unanswered = []
        output.clear()
        (isConnected, hasGreeted, hasAccepted, hasLeft) = (true, false, false, false)
        wantsClose = false
        busy = []
        window = []
    }

    /// - Parameter answering: how many of the packets that have arrived are still processed.
    public mutating func connectionClosed(answering: Int = 0) {
        for _ in 0..<answering { answerNext() }
        isConnected = false
        unanswered = []
        output.clear()
        if session?.endsWithConnection == true { session = nil }
        if let outgoing = session?.outgoing {
            for index in outgoing.indices { session?.outgoing[index].isOnWire = false }
        }
    }

    /// Loses the session, like a server that has lost its disk.
    public mutating func loseSession() {
        session = nil
    }

    /// Restores exchanges that were finished, like a server that was killed and reads an older state from its disk.
    public mutating func restoreFinished(_ count: Int) {
        session?.ghosts += count
    }

    public var ghosts: Int { session?.ghosts ?? 0 }

    public mutating func takeOutput() -> ByteBuffer {
        defer { output = ByteBuffer() }
        return output
    }

    /// Takes bytes from the client.
    public mutating func receive(_ bytes: ByteBuffer) {
        decoder.append(bytes)
        do {
            while let packet = try decoder.next() { arrived(packet) }
        } catch {
            violations.append("malformed: \(error)")
        }
    }

    /// Sends a message to the client, whatever it has subscribed to. Returns whether there is a session to keep it.
    public mutating func publish(_ payload: String, qos: QoS, topic: String = "to/client") -> Bool {
        guard var session else { return false }
        repeat {
            session.lastID &+= 1
        } while session.lastID == 0 || session.outgoing.contains { $0.id.rawValue == session.lastID }
        guard let id = PacketID(rawValue: session.lastID) else { return false }
        session.outgoing.append(Outgoing(id: id, topic: topic, payload: payload, qos: qos))
        self.session = session
        sendOutgoing()
        return true
    }

    // MARK: Arriving: is the client allowed to send this now?

    private mutating func arrived(_ packet: Packet) {
        if hasLeft { violations.append("\(packet.kind) after DISCONNECT") }
        if case .connect = packet {
            if hasGreeted { violations.append("a second CONNECT") }
        } else if !hasGreeted {
            violations.append("\(packet.kind) before CONNECT")
        }
        switch packet {
        case .connect: hasGreeted = true
        case .disconnect: hasLeft = true
        case .publish(let publish):
            guard let id = publish.packetID else { break }
            use(id)
            window.insert(id)
            if version == .five, window.count > Int(properties.receiveMaximum ?? .max) {
                violations.append("\(window.count) messages exceed the Receive Maximum")
            }
            if !publish.duplicate, session?.received.contains(id) == true {
                violations.append("identifier \(id) was used again before PUBREL")
            }
        case .subscribe(let subscribe): use(subscribe.packetID)
        case .unsubscribe(let unsubscribe): use(unsubscribe.packetID)
        default: break
        }
        unanswered.append(packet)
    }

    private mutating func use(_ id: PacketID) {
        if !busy.insert(id).inserted { violations.append("identifier \(id) was used twice at once") }
    }

    /// Checks that PUBACKs, and PUBRECs, come in the order in which the messages were sent [MQTT-4.6.0-2].
    private mutating func checkTurn(of id: PacketID, _ qos: QoS) {
        guard let outgoing = session?.outgoing, outgoing.contains(where: { $0.id == id && $0.isOnWire }) else {
            violations.append("\(id) was acknowledged and is not on the wire")
            return
        }
        let first = outgoing.first { $0.isOnWire && !$0.isReleased && $0.qos == qos }
        if let first, first.id != id { violations.append("\(id) was acknowledged before \(first.id)") }
    }

    // MARK: Answering

    /// Processes the next packet that has arrived.
    public mutating func answerNext() {
        guard !unanswered.isEmpty, !wantsClose else { return }
        let packet = unanswered.removeFirst()
        // A server that has lost the session under a connection is about to close it.
        if packet.kind != .connect, session == nil { return }
        switch packet {
        case .connect(let connect): answer(connect)
        case .publish(let publish): answer(publish)
        case .pubrel(let answer):
            let isKnown = session?.received.remove(answer.packetID) != nil
            free(answer.packetID)
            send(
                .pubcomp(
                    Acknowledgement(
                        packetID: answer.packetID, reasonCode: isKnown ? .success : .packetIdentifierNotFound)))
        case .puback(let answer):
            checkTurn(of: answer.packetID, .atLeastOnce)
            session?.outgoing.removeAll { $0.id == answer.packetID }
            sendOutgoing()
        case .pubcomp(let answer):
            session?.outgoing.removeAll { $0.id == answer.packetID }
            sendOutgoing()
        case .pubrec(let answer):
            checkTurn(of: answer.packetID, .exactlyOnce)
            if let index = session?.outgoing.firstIndex(where: { $0.id == answer.packetID }) {
                session?.outgoing[index].isReleased = true
                send(.pubrel(Acknowledgement(packetID: answer.packetID)))
            } else {
                send(.pubrel(Acknowledgement(packetID: answer.packetID, reasonCode: .packetIdentifierNotFound)))
            }
        case .subscribe(let subscribe):
            for subscription in subscribe.subscriptions {
                guard let filter = try? TopicFilter(subscription.filter) else { continue }
                session?.subscriptions[filter] = subscription
            }
            free(subscribe.packetID)
            send(
                .suback(
                    Suback(
                        packetID: subscribe.packetID,
                        reasonCodes: subscribe.subscriptions.map { ReasonCode(rawValue: $0.qos.rawValue) })))
        case .unsubscribe(let unsubscribe):
            var codes: [ReasonCode] = []
            for string in unsubscribe.filters {
                guard let filter = try? TopicFilter(string) else { continue }
                let wasThere = session?.subscriptions.removeValue(forKey: filter) != nil
                codes.append(wasThere ? .success : .noSubscriptionExisted)
            }
            free(unsubscribe.packetID)
            send(.unsuback(Unsuback(packetID: unsubscribe.packetID, reasonCodes: codes)))
        case .pingreq: send(.pingresp)
        case .disconnect: break
        case .connack, .suback, .unsuback, .pingresp, .auth:
            violations.append("a packet that only a server sends")
        }
    }

    private mutating func answer(_ connect: Connect) {
        connects.append(connect)
        clientWindow = Int(connect.properties.receiveMaximum ?? .max)
        if version == .threeOneOne, connect.clientID.isEmpty { violations.append("no identifier in 3.1.1") }
        let isPresent = session != nil && !connect.cleanStart
        if !isPresent {
            session = Session(endsWithConnection: version == .threeOneOne && connect.cleanStart)
            epoch += 1
        }
        var properties = properties
        if connect.clientID.isEmpty { properties.assignedClientID = assignedClientID }
        send(.connack(Connack(sessionPresent: isPresent, properties: properties)))
        hasAccepted = true
        for outgoing in session?.outgoing ?? [] where outgoing.isReleased {
            send(.pubrel(Acknowledgement(packetID: outgoing.id)))
        }
        sendOutgoing()
    }

    private mutating func answer(_ publish: Publish) {
        guard let id = publish.packetID else { return deliver(publish) }
        var refusal = version == .five ? refusals[publish.topic] : nil
        if version == .five, let session, session.ghosts + session.received.count >= maximumExchanges,
            !session.received.contains(id)
        {
            refusal = .quotaExceeded
            wantsClose = true
        }
        let code = refusal ?? .success
        if publish.qos == .atLeastOnce {
            if refusal == nil { deliver(publish) }
            free(id)
            return send(.puback(Acknowledgement(packetID: id, reasonCode: code)))
        }
        if refusal != nil {
            free(id)
        } else if session?.received.insert(id).inserted == true {
            deliver(publish)
        }
        send(.pubrec(Acknowledgement(packetID: id, reasonCode: code)))
    }

    private mutating func deliver(_ publish: Publish) {
        deliveries.append(
            Delivery(
                topic: publish.topic, payload: String(buffer: publish.payload), qos: publish.qos, epoch: epoch))
    }

    private mutating func free(_ id: PacketID) {
        busy.remove(id)
        window.remove(id)
    }

    private mutating func sendOutgoing() {
        guard isConnected, hasAccepted, let outgoing = session?.outgoing else { return }
        var room = clientWindow - outgoing.filter { $0.isOnWire || $0.isReleased }.count
        for index in outgoing.indices where !outgoing[index].isOnWire && !outgoing[index].isReleased && room > 0 {
            let message = outgoing[index]
            room -= 1
            session?.outgoing[index].isOnWire = true
            session?.outgoing[index].wasAttempted = true
            send(
                .publish(
                    Publish(
                        topic: message.topic, payload: ByteBuffer(string: message.payload), qos: message.qos,
                        duplicate: message.wasAttempted, packetID: message.id)))
        }
    }

    private mutating func send(_ packet: Packet) {
        guard isConnected else { return }
        output.writeImmutableBuffer(encoded(packet, in: version))
    }

    private var version: ProtocolVersion { decoder.version }
}
