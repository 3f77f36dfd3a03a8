public import MQTT
public import NIOCore

/// An MQTT 5 and 3.1.1 server for many clients, as a value: sessions that outlive connections until they expire, take-over, wills
/// with their delay, retained messages, and every QoS both ways.
///
/// It is given bytes and the time and answers with what it does, so that a test decides when and whether that arrives.
/// It is friendly: what a client does wrong is noted and answered by closing the connection.
public struct ModelBroker {
    public struct ConnectionID: Hashable, Sendable {
        public let rawValue: Int
    }

    public enum Action {
        case send(ConnectionID, ByteBuffer)
        /// After what was sent before.
        case close(ConnectionID)
    }

    /// Milliseconds on a clock of the test's.
    public typealias Time = Int64

    private struct Session {
        var subscriptions: [TopicFilter: Subscription] = [:]
        var identifiers: [TopicFilter: UInt32] = [:]
        /// QoS 2 identifiers of the client between PUBLISH and PUBREL.
        var received: Set<PacketID> = []
        var outgoing: [Outgoing] = []
        var lastID: UInt16 = 0
        var expiry: UInt32 = 0
        /// Set while the client is away.
        var endsAt: Time?
        var will: (will: Will, at: Time)?
        var connection: ConnectionID?
        /// It counts exchanges that were finished, as many as it allows.
        var isFull = false
    }

    private struct Outgoing {
        var id: PacketID
        var publish: Publish
        var isReleased = false
        var wasSent = false
    }

    private struct Connection {
        var decoder = PacketDecoder(sender: .client, adoptsVersion: true)
        var client: String?
        var will: Will?
        var keepAlive: UInt16 = 0
        var heardAt: Time
    }

    // MARK: What a test may set

    /// What CONNACK says to a client instead of welcoming it.
    public var refusals: [String: ReasonCode] = [:]
    /// What every client has to present; `nil` if nothing.
    public var password: String?
    /// What SUBACK answers to these filters; else what is asked for is granted.
    public var refusedFilters: [String: ReasonCode] = [:]
    /// What PUBACK and PUBREC answer to messages of these topics.
    public var refusedTopics: [String: ReasonCode] = [:]
    public var connackProperties = Connack.Properties()
    /// Closes the older connection of a client without a word, as mosquitto 2.0.11 does.
    public var takesOverSilently = false
    /// What a server does that speaks MQTT 3.1.1 only; `nil` speaks both.
    public var refusalOfFive: RefusalOfFive?

    public enum RefusalOfFive: Sendable {
        /// CONNACK with return code 1, as the standard of MQTT 3.1.1 wants it.
        case inWords
        /// The connection is closed.
        case bySilence
    }

    // MARK: What a test may look at

    public private(set) var connects: [Connect] = []
    /// Everything that was published, in the order of arrival, QoS 2 once; wills too.
    public private(set) var published: [Publish] = []
    public private(set) var retained: [String: Publish] = [:]
    /// What clients did wrong; empty if nothing.
    public private(set) var violations: [String] = []

    private var sessions: [String: Session] = [:]
    private var connections: [ConnectionID: Connection] = [:]
    private var lastConnection = 0
    private var actions: [Action] = []

    public init() {}

    public func isConnected(_ client: String) -> Bool { sessions[client]?.connection != nil }
    public func hasSession(_ client: String) -> Bool { sessions[client] != nil }
    public func subscriptions(of client: String) -> Set<String> {
        Set((sessions[client]?.subscriptions.keys).map { $0.map(\.string) } ?? [])
    }

    public mutating func takeActions() -> [Action] {
        defer { actions = [] }
        return actions
    }

    // MARK: Connections

    public mutating func opened(at now: Time) -> ConnectionID {
        lastConnection += 1
        let id = ConnectionID(rawValue: lastConnection)
        connections[id] = Connection(heardAt: now)
        return id
    }

    /// The connection is gone; without DISCONNECT before, the will is due.
    public mutating func closed(_ id: ConnectionID, at now: Time) {
        guard let connection = connections.removeValue(forKey: id), let client = connection.client else { return }
        leave(client, will: connection.will, at: now)
    }

    private mutating func leave(_ client: String, will: Will?, at now: Time) {
        guard var session = sessions[client] else { return }
        session.connection = nil
        session.endsAt = session.expiry == .max ? nil : now + Time(session.expiry) * 1000
        if let will {
            let delay = Time(min(will.properties.willDelay ?? 0, session.expiry)) * 1000
            session.will = (will, now + delay)
        }
        sessions[client] = session
        timeReached(at: now)
    }

    /// The server says goodbye to a client, or just closes.
    public mutating func disconnect(
        _ client: String, _ reason: ReasonCode?, _ properties: Disconnect.Properties = .init(), at now: Time
    ) {
        guard let id = sessions[client]?.connection else { return }
        end(id, reason, properties, at: now)
    }

    private mutating func end(
        _ id: ConnectionID, _ reason: ReasonCode?, _ properties: Disconnect.Properties = .init(), at now: Time
    ) {
        if let reason, connections[id]?.decoder.version == .five {
            send(.disconnect(Disconnect(reasonCode: reason, properties: properties)), to: id)
        }
        actions.append(.close(id))
        closed(id, at: now)
    }

    /// The server dies; a persistent one knows its sessions and retained messages afterwards.
    public mutating func crash(keepingState: Bool, at now: Time) {
        connections = [:]
        actions = []
        guard keepingState else {
            sessions = [:]
            retained = [:]
            return
        }
        for client in sessions.keys.sorted() where sessions[client]?.connection != nil {
            sessions[client]?.connection = nil
            let expiry = sessions[client]?.expiry ?? 0
            sessions[client]?.endsAt = expiry == .max ? nil : now + Time(expiry) * 1000
        }
    }

    /// From now on, until the session ends, every message of QoS 1 and 2 is refused with 0x97 and the connection closed, as
    /// mosquitto 2.0 does that has restored finished exchanges from its disk.
    public mutating func fill(_ client: String) {
        sessions[client]?.isFull = true
    }

    public mutating func forget(_ client: String) {
        sessions[client] = nil
    }

    // MARK: Time

    /// When `timeReached` is due.
    public var nextDeadline: Time? {
        let ofSessions = sessions.values.flatMap { [$0.will?.at, $0.endsAt].compactMap(\.self) }
        let ofConnections = connections.values.compactMap { $0.keepAlive == 0 ? nil : $0.heardAt + Self.limit($0) }
        return (ofSessions + ofConnections).min()
    }

    /// One and a half times the Keep Alive [3.1.2-22].
    private static func limit(_ connection: Connection) -> Time { Time(connection.keepAlive) * 1500 }

    public mutating func timeReached(at now: Time) {
        for (id, connection) in connections.sorted(by: { $0.key.rawValue < $1.key.rawValue })
        where connection.keepAlive > 0 && now >= connection.heardAt + Self.limit(connection) {
            end(id, .keepAliveTimeout, at: now)
        }
        for client in sessions.keys.sorted() {
            if let will = sessions[client]?.will, now >= will.at {
                sessions[client]?.will = nil
                publish(will.will)
            }
            if let end = sessions[client]?.endsAt, now >= end { sessions[client] = nil }
        }
    }

    private mutating func publish(_ will: Will) {
        spread(Publish(topic: will.topic, payload: will.payload, qos: will.qos, retain: will.retain))
    }

    // MARK: Packets

    public mutating func received(_ bytes: ByteBuffer, from id: ConnectionID, at now: Time) {
        connections[id]?.heardAt = now
        connections[id]?.decoder.append(bytes)
        do {
            while let packet = try connections[id]?.decoder.next() { received(packet, from: id, at: now) }
        } catch {
            violations.append("malformed: \(error)")
            end(id, .malformedPacket, at: now)
        }
    }

    private mutating func received(_ packet: Packet, from id: ConnectionID, at now: Time) {
        if case .connect(let connect) = packet {
            accept(connect, on: id, at: now)
            return
        }
        guard let client = connections[id]?.client else {
            violations.append("\(packet.kind) before CONNECT")
            end(id, .protocolError, at: now)
            return
        }
        switch packet {
        case .publish(let publish): received(publish, of: client, on: id, at: now)
        case .pubrel(let answer):
            let isKnown = sessions[client]?.received.remove(answer.packetID) != nil
            let code = isKnown ? ReasonCode.success : .packetIdentifierNotFound
            send(.pubcomp(Acknowledgement(packetID: answer.packetID, reasonCode: code)), to: id)
        case .puback(let answer), .pubcomp(let answer):
            sessions[client]?.outgoing.removeAll { $0.id == answer.packetID }
        case .pubrec(let answer):
            if let index = sessions[client]?.outgoing.firstIndex(where: { $0.id == answer.packetID }) {
                sessions[client]?.outgoing[index].isReleased = true
            }
            send(.pubrel(Acknowledgement(packetID: answer.packetID)), to: id)
        case .subscribe(let subscribe): received(subscribe, of: client, on: id)
        case .unsubscribe(let unsubscribe):
            let codes = unsubscribe.filters.map { text -> ReasonCode in
                guard let filter = try? TopicFilter(text) else { return .topicFilterInvalid }
                let wasThere = sessions[client]?.subscriptions.removeValue(forKey: filter) != nil
                return wasThere ? .success : .noSubscriptionExisted
            }
            send(.unsuback(Unsuback(packetID: unsubscribe.packetID, reasonCodes: codes)), to: id)
        case .pingreq: send(.pingresp, to: id)
        case .disconnect(let disconnect):
            let will = disconnect.reasonCode == .disconnectWithWill ? connections[id]?.will : nil
            if let expiry = disconnect.properties.sessionExpiryInterval { sessions[client]?.expiry = expiry }
            connections[id] = nil
            actions.append(.close(id))
            leave(client, will: will, at: now)
        default:
            violations.append("\(packet.kind) from a client")
            end(id, .protocolError, at: now)
        }
    }

    private mutating func accept(_ connect: Connect, on id: ConnectionID, at now: Time) {
        connects.append(connect)
        let version = connections[id]?.decoder.version ?? .five
        if version == .five, let refusalOfFive {
            if refusalOfFive == .inWords {
                actions.append(.send(id, ByteBuffer(bytes: [0x20, 0x02, 0x00, 0x01])))
            }
            actions.append(.close(id))
            connections[id] = nil
            return
        }
        let isWelcome = password.map { connect.password.map { String(buffer: $0) } == $0 } ?? true
        let refusal = refusals[connect.clientID] ?? (isWelcome ? nil : .badUserNameOrPassword)
        if let refusal {
            send(.connack(Connack(reasonCode: refusal, properties: connackProperties)), to: id)
            actions.append(.close(id))
            connections[id] = nil
            return
        }
        let client = connect.clientID
        if let older = sessions[client]?.connection {
            // The older connection's will is not published when the session goes on [3.1.4-3], [3.1.2-8].
            end(older, takesOverSilently ? nil : .sessionTakenOver, at: now)
        }
        if connect.cleanStart { sessions[client] = nil }
        let isPresent = sessions[client] != nil
        var session = sessions[client] ?? Session()
        session.expiry =
            version == .five ? connect.properties.sessionExpiryInterval ?? 0 : connect.cleanStart ? 0 : .max
        (session.endsAt, session.will, session.connection) = (nil, nil, id)
        for index in session.outgoing.indices { session.outgoing[index].publish.duplicate = true }
        let pending = session.outgoing
        sessions[client] = session
        connections[id]?.client = client
        connections[id]?.will = connect.will
        connections[id]?.keepAlive =
            version == .five ? connackProperties.serverKeepAlive ?? connect.keepAlive : connect.keepAlive
        send(.connack(Connack(sessionPresent: isPresent, properties: connackProperties)), to: id)
        for message in pending {
            if message.isReleased {
                send(.pubrel(Acknowledgement(packetID: message.id)), to: id)
            } else {
                send(.publish(message.publish), to: id)
            }
        }
    }

    private mutating func received(_ publish: Publish, of client: String, on id: ConnectionID, at now: Time) {
        let isFull = sessions[client]?.isFull ?? false
        let refusal = isFull ? .quotaExceeded : refusedTopics[publish.topic]
        guard let packetID = publish.packetID else {
            if refusal == nil { spread(publish) }
            return
        }
        let answer = Acknowledgement(packetID: packetID, reasonCode: refusal ?? .success)
        if publish.qos == .atLeastOnce {
            if refusal == nil { spread(publish) }
            send(.puback(answer), to: id)
        } else {
            if refusal == nil, sessions[client]?.received.insert(packetID).inserted == true { spread(publish) }
            send(.pubrec(answer), to: id)
        }
        if isFull { end(id, nil, at: now) }
    }

    private mutating func received(_ subscribe: Subscribe, of client: String, on id: ConnectionID) {
        var codes: [ReasonCode] = []
        var granted: [TopicFilter] = []
        for subscription in subscribe.subscriptions {
            guard let filter = try? TopicFilter(subscription.filter) else {
                codes.append(.topicFilterInvalid)
                continue
            }
            if let refusal = refusedFilters[subscription.filter] {
                codes.append(refusal)
                continue
            }
            sessions[client]?.subscriptions[filter] = subscription
            sessions[client]?.identifiers[filter] = subscribe.properties.subscriptionID
            codes.append(ReasonCode(rawValue: subscription.qos.rawValue))
            granted.append(filter)
        }
        send(.suback(Suback(packetID: subscribe.packetID, reasonCodes: codes)), to: id)
        for filter in granted {
            for topic in retained.keys.sorted() where filter.matches(topic: topic) {
                if let publish = retained[topic] { deliver(publish, to: client, for: filter, isRetained: true) }
            }
        }
    }

    // MARK: Messages

    /// A message from a client that the test does not model.
    public mutating func publish(_ topic: String, _ payload: String, qos: QoS = .atLeastOnce, retain: Bool = false) {
        spread(Publish(topic: topic, payload: ByteBuffer(string: payload), qos: qos, retain: retain))
    }

    private mutating func spread(_ publish: Publish) {
        published.append(publish)
        if publish.retain {
            retained[publish.topic] = publish.payload.readableBytes == 0 ? nil : publish
        }
        for client in sessions.keys.sorted() {
            let filters = sessions[client]?.subscriptions.keys.filter { $0.matches(topic: publish.topic) } ?? []
            // One copy for each, as mosquitto and EMQX have it.
            for filter in filters.sorted(by: { $0.string < $1.string }) {
                deliver(publish, to: client, for: filter, isRetained: false)
            }
        }
    }

    private mutating func deliver(_ publish: Publish, to client: String, for filter: TopicFilter, isRetained: Bool) {
        guard var session = sessions[client] else { return }
        let wanted = session.subscriptions[filter]?.qos
        var copy = publish
        copy.properties.subscriptionIDs = session.identifiers[filter].map { [$0] } ?? []
        copy.qos = min(publish.qos, wanted ?? .atMostOnce)
        (copy.retain, copy.duplicate, copy.packetID) = (isRetained, false, nil)
        if copy.qos != .atMostOnce {
            repeat {
                session.lastID &+= 1
            } while session.lastID == 0 || session.outgoing.contains { $0.id.rawValue == session.lastID }
            guard let id = PacketID(rawValue: session.lastID) else { return }
            copy.packetID = id
            session.outgoing.append(Outgoing(id: id, publish: copy))
            sessions[client] = session
        }
        if let connection = session.connection { send(.publish(copy), to: connection) }
    }

    private mutating func send(_ packet: Packet, to id: ConnectionID) {
        var bytes = ByteBuffer()
        packet.encode(into: &bytes, as: connections[id]?.decoder.version ?? .five)
        actions.append(.send(id, bytes))
    }
}
