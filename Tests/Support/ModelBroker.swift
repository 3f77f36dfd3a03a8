public import MQTT
public import NIOCore

/// An MQTT 5 and 3.1.1 server for many clients, as a value: sessions that outlive connections until they expire,
/// take-over, wills with their delay, retained messages, and every QoS both ways.
///
/// It takes bytes and the time and returns what it does, so that a test decides when and whether that arrives. It is
/// lenient: a client's mistake is recorded and answered by closing the connection.
public struct ModelBroker: Sendable {
    public struct ConnectionID: Hashable, Sendable {
        public let rawValue: Int
    }

    public enum Action: Sendable {
        case send(ConnectionID, ByteBuffer)
        /// Closes the connection after what was sent before.
        case close(ConnectionID)
    }

    /// Milliseconds on the test's own clock.
    public typealias Time = Int64

    private struct Session {
        var subscriptions: [TopicFilter: Subscription] = [:]
        var identifiers: [TopicFilter: UInt32] = [:]
        /// The client's QoS 2 identifiers between PUBLISH and PUBREL.
        var received: Set<PacketID> = []
        var outgoing: [Outgoing] = []
        var lastID: UInt16 = 0
        var expiry: UInt32 = 0
        /// Set while the client is away.
        var endsAt: Time?
        var will: (will: Will, at: Time)?
        var connection: ConnectionID?
        /// Counts the sessions of all clients: exactly once can be promised only within one of them.
        var epoch = 0
        /// Whether finished exchanges still count, as many as the server allows.
        var isFull = false
    }

    private struct Outgoing {
        var id: PacketID
        var publish: Publish
        var isReleased = false
        var isOnWire = false
        var wasAttempted = false
    }

    private struct Connection {
        var decoder = PeerDecoder(adoptsVersion: true)
        var client: String?
        var will: Will?
        var keepAlive: UInt16 = 0
        var heardAt: Time
        /// The client's Receive Maximum, and the server's as the client was told.
        var window = Int(UInt16.max)
        var limit = Int(UInt16.max)
        /// The limits of the server that the client was told.
        var told = Connack.Properties()
        /// What the client's topic aliases stand for.
        var aliases: [UInt16: String] = [:]
        /// The client's identifiers whose exchange has not ended on this connection.
        var busy: Set<PacketID> = []
        /// Whether the server does not look at what the client sends any more.
        var isMute = false
        /// Whether the connection stays open however long nothing is heard on it.
        var isPatient: Bool { keepAlive == 0 || isMute }
        /// Why only DISCONNECT may follow; `nil` while anything may.
        var mustEnd: String?
        /// The enhanced authentication under way, and the CONNECT that began it, if one did.
        var exchange: SCRAMServer?
        var greeted: Connect?
    }

    /// What a test can follow, in order.
    public enum Fact: Sendable {
        /// A message arrived for the first time in this session of the client's.
        case arrived(client: String, epoch: Int, Publish)
        /// The client accepted a message, with PUBACK or PUBREC, on this connection.
        case taken(client: String, Publish, ConnectionID)
        /// A message was sent to a client, with the number of its session.
        case sent(client: String, epoch: Int, Publish)
        /// The server has accepted the client, and may have displaced an older connection of the same client.
        case accepted(client: String, resumed: Bool, ConnectionID, displaced: ConnectionID?)
        /// A message of the client has arrived, for the first time or again. A server that refuses it forgets that it
        /// had it.
        case received(client: String, epoch: Int, Publish, isRefused: Bool)
        /// The client began a new session, and the one that it had is gone, with messages that it was never sent.
        case discarded(client: String, messages: Int, ConnectionID)
        /// The answer to a message of the client is on its way: the server has taken the message over, or refused it.
        case answered(client: String, Publish, ReasonCode)
    }

    // MARK: What a test can set

    /// What CONNACK says to a client instead of accepting it.
    public var refusals: [String: ReasonCode] = [:]
    /// The password that every client must present; `nil` if none.
    public var password: String?
    /// Everybody's password; clients must then authenticate by SCRAM-SHA-256.
    public var scramPassword: String?
    /// Whether AUTH is answered.
    public var answersAuth = true
    /// What SUBACK answers to these filters; all others are granted what they ask for.
    public var refusedFilters: [String: ReasonCode] = [:]
    /// What PUBACK and PUBREC answer to messages of these topics.
    public var refusedTopics: [String: ReasonCode] = [:]
    public var connackProperties = Connack.Properties()
    /// Whether the older connection of a client is closed without a word, as mosquitto 2.0.11 does.
    public var takesOverSilently = false
    /// How long after its time a session is forgotten.
    public var lateness: Time = 0
    /// Whether CONNACK says that the session is present, true or not.
    public var claimsSession = false
    /// Whether clients are accepted and then disconnected.
    public var closesAfterConnack = false
    /// Whether answers to messages are held back until `releaseAnswers`.
    public var holdsAnswers = false {
        didSet { if !holdsAnswers { releaseAnswers(.max) } }
    }
    /// How the server takes the next QoS 1 or 2 messages that arrive for the first time, one each, from any client. It
    /// takes the same message in the same way from then on.
    public var dislikesNext: [Dislike] = []
    /// The topics that this applies to.
    public var isDisliked: @Sendable (String) -> Bool = { _ in true }
    /// The messages that the server cannot bear, and what it does when it is sent one.
    public private(set) var disliked: [DislikedMessage: Dislike] = [:]
    /// The same for filters, in SUBSCRIBE and UNSUBSCRIBE.
    public var dislikedFilters: [String: Dislike] = [:]
    /// Whether `takeFacts` will be called.
    public var recordsFacts = false
    /// What a server does that only speaks MQTT 3.1.1; `nil` speaks both versions.
    public var refusalOfFive: RefusalOfFive?

    public enum RefusalOfFive: Sendable {
        /// CONNACK with return code 1, as the MQTT 3.1.1 standard requires.
        case inWords
        /// The connection is closed.
        case bySilence
    }

    /// How a server takes what it cannot bear.
    public enum Dislike: Hashable, Sendable {
        /// It ends the connection, with this code or without a word.
        case ends(ReasonCode?)
        /// It never answers, and processes what follows.
        case ignores
        /// It does what it is asked, and says so only minutes later. For subscriptions; messages are never answered.
        case answersLate
        /// It says nothing any more on that connection, which stays open.
        case mutes

        var isSilent: Bool {
            switch self {
            case .ignores, .answersLate, .mutes: true
            case .ends: false
            }
        }
    }

    /// How late such an answer is: later than anyone waits for one.
    private static let lateness: Time = 150_000

    public struct DislikedMessage: Hashable, Sendable {
        public var topic: String
        public var payload: ByteBuffer
    }

    // MARK: What a test can look at

    public private(set) var connects: [Connect] = []
    /// Everything that was published, in order of arrival, QoS 2 once; also wills.
    public private(set) var published: [Publish] = []
    public private(set) var retained: [String: Publish] = [:]
    /// The clients' mistakes; empty if there were none.
    public private(set) var violations: [String] = []

    private var sessions: [String: Session] = [:]
    private var connections: [ConnectionID: Connection] = [:]
    private var lastConnection = 0
    private var lastEpoch = 0
    private var actions: [Action] = []
    private var facts: [Fact] = []
    private var held: [(id: ConnectionID, packet: Packet, fact: Fact?)] = []
    private var late: [(due: Time, id: ConnectionID, packet: Packet)] = []
    /// What was written to the server's disk last.
    private var saved: (sessions: [String: Session], retained: [String: Publish]) = ([:], [:])

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

    public mutating func takeFacts() -> [Fact] {
        defer { facts = [] }
        return facts
    }

    /// The number of messages to the client that are not acknowledged.
    public func outgoingCount(of client: String) -> Int { sessions[client]?.outgoing.count ?? 0 }
    public func epoch(of client: String) -> Int? { sessions[client]?.epoch }

    /// Sends this many of the answers that were held back.
    public mutating func releaseAnswers(_ count: Int) {
        for _ in 0..<min(count, held.count) {
            let (id, packet, fact) = held.removeFirst()
            sendAnswer(packet, to: id, fact)
        }
    }

    /// What the server says when it ends a connection because of something that it cannot bear.
    public static let grudgeWords = "this cannot be borne"
    private static let grudge = Disconnect.Properties(reasonString: grudgeWords)

    /// Makes the server bear these topics from now on.
    public mutating func forgetDislikes(where isForgotten: (String) -> Bool) {
        dislikesNext = []
        dislikedFilters = [:]
        disliked = disliked.filter { !isForgotten($0.key.topic) }
    }

    /// Whether the server was sent this message and does not answer it.
    public func hasLeftOut(_ publish: Publish) -> Bool {
        disliked[DislikedMessage(topic: publish.topic, payload: publish.payload)]?.isSilent ?? false
    }

    /// Whether the server was sent this message and cannot bear it.
    public func dislikes(_ topic: String, _ payload: ByteBuffer) -> Bool {
        disliked[DislikedMessage(topic: topic, payload: payload)] != nil
    }

    /// What the server does with this message if it cannot bear it; `nil` if it can.
    private mutating func dislike(of publish: Publish, in session: Session?) -> Dislike? {
        guard let packetID = publish.packetID else { return nil }
        let message = DislikedMessage(topic: publish.topic, payload: publish.payload)
        // With room for one message at a time, a server that answers neither of two cannot be told from one that answers
        // none, where no message is to blame.
        // A server that says nothing after either of two cannot be told from one either.
        let isOneAtATime = connackProperties.receiveMaximum == 1 || dislikesNext.first == .mutes
        let isBlocked =
            isOneAtATime && disliked.values.contains(where: \.isSilent) || disliked.values.contains(.mutes)
        // It never dislikes what it has taken over once.
        if let next = dislikesNext.first, !(next.isSilent && isBlocked), isDisliked(publish.topic), !publish.duplicate,
            session?.received.contains(packetID) == false,
            !published.contains(where: { $0.topic == publish.topic && $0.payload == publish.payload })
        {
            disliked[message] = next
            dislikesNext.removeFirst()
        }
        return disliked[message]
    }

    /// The version that is spoken on the client's connection; `nil` if it has none.
    public func version(of client: String) -> ProtocolVersion? {
        sessions[client]?.connection.flatMap { connections[$0]?.decoder.version }
    }

    public func answersPings(on id: ConnectionID) -> Bool { connections[id]?.isMute == false }
    /// Whether no answer to anything else is withheld.
    public var answersMessages: Bool { !holdsAnswers && disliked.isEmpty && dislikedFilters.isEmpty }

    /// Sends a packet that nobody asked for.
    public mutating func say(_ packet: Packet, to client: String) {
        if let id = sessions[client]?.connection { send(packet, to: id) }
    }

    /// Sends bytes that are not a packet.
    public mutating func say(_ bytes: ByteBuffer, to client: String) {
        if let id = sessions[client]?.connection { actions.append(.send(id, bytes)) }
    }

    /// Answers a QoS 2 message that waits for its answer as if it were QoS 1, or the other way round.
    public mutating func answerWrongly(_ client: String) {
        guard let id = sessions[client]?.connection else { return }
        for (index, answer) in held.enumerated() where answer.id == id {
            switch answer.packet {
            case .puback(let answer): return send(.pubrec(answer), to: id)
            case .pubrec(let acknowledgement):
                guard connections[id]?.decoder.version == .threeOneOne else {
                    return send(.puback(acknowledgement), to: id)
                }
                // That is how a server accepts a message with a lower QoS. The exchange is finished.
                held.remove(at: index)
                sessions[client]?.received.remove(acknowledgement.packetID)
                return sendAnswer(.puback(acknowledgement), to: id, answer.fact)
            default: continue
            }
        }
    }

    /// Sends the oldest PUBREL that the client has not answered a second time on the same connection.
    public mutating func releaseAgain(_ client: String) {
        guard let session = sessions[client], let id = session.connection,
            let outgoing = session.outgoing.first(where: { $0.isReleased })
        else { return }
        send(.pubrel(Acknowledgement(packetID: outgoing.id)), to: id)
    }

    /// Sends the oldest message that the client has not acknowledged a second time on the same connection.
    public mutating func sendAgain(to client: String) {
        guard let session = sessions[client], let id = session.connection,
            let outgoing = session.outgoing.first(where: { $0.isOnWire && !$0.isReleased })
        else { return }
        var publish = outgoing.publish
        publish.duplicate = true
        send(.publish(publish), to: id)
    }

    // MARK: Connections

    public mutating func opened(at now: Time) -> ConnectionID {
        lastConnection += 1
        let id = ConnectionID(rawValue: lastConnection)
        connections[id] = Connection(heardAt: now)
        return id
    }

    /// Ends the connection; without DISCONNECT before, the will is due.
    public mutating func closed(_ id: ConnectionID, at now: Time) {
        held.removeAll { $0.id == id }
        late.removeAll { $0.id == id }
        guard let connection = connections.removeValue(forKey: id), let client = connection.client else { return }
        leave(client, will: connection.will, at: now)
    }

    private mutating func leave(_ client: String, will: Will?, at now: Time) {
        guard var session = sessions[client] else { return }
        session.connection = nil
        session.endsAt = session.expiry == .max ? nil : now + Time(session.expiry) * 1000 + lateness
        if let will {
            let delay = Time(min(will.properties.willDelay ?? 0, session.expiry)) * 1000
            session.will = (will, now + delay)
        }
        sessions[client] = session
        timeReached(at: now)
    }

    /// Ends the client's connection, with DISCONNECT or by just closing it.
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

    /// Writes the sessions and the retained messages to the server's disk, as mosquitto does every half an hour.
    public mutating func save() { saved = (sessions, retained) }

    /// What a server knows when it starts again after a crash.
    public enum Memory: Sendable {
        case everything
        /// What it had saved last.
        case saved
        case nothing
    }

    /// A session in an older state counts as another one: exactly once can be promised only within each of them.
    public struct Restored: Hashable, Sendable {
        public let client: String
        public let epochBefore: Int
        public let epoch: Int
    }

    /// Makes the server crash.
    ///
    /// - Returns: the sessions that it has in an older state.
    public mutating func crash(remembering memory: Memory, at now: Time) -> [Restored] {
        connections = [:]
        actions = []
        held = []
        var restored: [Restored] = []
        switch memory {
        case .everything: break
        case .nothing: (sessions, retained) = ([:], [:])
        case .saved:
            (sessions, retained) = saved
            for (client, session) in sessions.sorted(by: { $0.key < $1.key }) {
                lastEpoch += 1
                restored.append(Restored(client: client, epochBefore: session.epoch, epoch: lastEpoch))
                sessions[client]?.epoch = lastEpoch
                sessions[client]?.will = nil
            }
        }
        for client in sessions.keys.sorted() where sessions[client]?.connection != nil {
            sessions[client]?.connection = nil
            let expiry = sessions[client]?.expiry ?? 0
            sessions[client]?.endsAt = expiry == .max ? nil : now + Time(expiry) * 1000
        }
        return restored
    }

    /// Refuses every QoS 1 and 2 message with 0x97 and closes the connection, until the session ends. mosquitto 2.0
    /// does that after it has restored finished exchanges from its disk.
    public mutating func fill(_ client: String) {
        sessions[client]?.isFull = true
    }

    public mutating func forget(_ client: String) {
        sessions[client] = nil
    }

    // MARK: Time

    /// When `timeReached` must be called.
    public var nextDeadline: Time? {
        let ofSessions = sessions.values.flatMap { [$0.will?.at, $0.endsAt].compactMap(\.self) }
        let ofConnections = connections.values.compactMap { $0.isPatient ? nil : $0.heardAt + Self.limit($0) }
        return (ofSessions + ofConnections + late.map(\.due)).min()
    }

    /// One and a half times the Keep Alive [3.1.2-22].
    private static func limit(_ connection: Connection) -> Time { Time(connection.keepAlive) * 1500 }

    public mutating func timeReached(at now: Time) {
        while let answer = late.first, answer.due <= now {
            late.removeFirst()
            send(answer.packet, to: answer.id)
        }
        for (id, connection) in connections.sorted(by: { $0.key.rawValue < $1.key.rawValue })
        where !connection.isPatient && now >= connection.heardAt + Self.limit(connection) {
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
        guard connections[id]?.isMute != true else { return }
        connections[id]?.decoder.append(bytes)
        do {
            while connections[id]?.isMute == false, let packet = try connections[id]?.decoder.next() {
                received(packet, from: id, at: now)
            }
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
        if case .auth(let auth) = packet, connections[id] != nil, scramPassword != nil {
            if answersAuth { received(auth, on: id, at: now) }
            return
        }
        if let reason = connections[id]?.mustEnd, packet.kind != .disconnect {
            violations.append("\(packet.kind) although \(reason)")
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
            hold(.pubcomp(Acknowledgement(packetID: answer.packetID, reasonCode: code)), to: id)
        case .puback(let answer), .pubcomp(let answer):
            if packet.kind == .puback { noteTaken(answer.packetID, .atLeastOnce, by: client, on: id) }
            // A second answer is not about the next message with the same identifier.
            let isReleased = packet.kind == .pubcomp
            sessions[client]?.outgoing.removeAll { $0.id == answer.packetID && $0.isReleased == isReleased }
            sendOutgoing(to: client)
        case .pubrec(let answer):
            noteTaken(answer.packetID, .exactlyOnce, by: client, on: id)
            if let index = sessions[client]?.outgoing.firstIndex(where: { $0.id == answer.packetID }) {
                sessions[client]?.outgoing[index].isReleased = true
            }
            send(.pubrel(Acknowledgement(packetID: answer.packetID)), to: id)
        case .subscribe(let subscribe): received(subscribe, of: client, on: id, at: now)
        case .unsubscribe(let unsubscribe):
            checkFree(unsubscribe.packetID, on: id)
            guard let isLate = bears(unsubscribe.filters, on: id, at: now) else { return }
            let codes = unsubscribe.filters.map { text -> ReasonCode in
                guard let filter = try? TopicFilter(text) else { return .topicFilterInvalid }
                let wasThere = sessions[client]?.subscriptions.removeValue(forKey: filter) != nil
                return wasThere ? .success : .noSubscriptionExisted
            }
            let answer = Packet.unsuback(Unsuback(packetID: unsubscribe.packetID, reasonCodes: codes))
            if isLate { late.append((now + Self.lateness, id, answer)) } else { send(answer, to: id) }
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

    // MARK: Enhanced authentication

    private mutating func challenge(_ data: ByteBuffer?, on id: ConnectionID) {
        var exchange = SCRAMServer(password: scramPassword ?? "")
        let challenge = exchange.greet(data.map { String(buffer: $0) } ?? "")
        connections[id]?.exchange = exchange
        send(Self.auth(.continueAuthentication, challenge), to: id)
    }

    private mutating func received(_ auth: Auth, on id: ConnectionID, at now: Time) {
        let data = auth.properties.authenticationData
        guard auth.reasonCode == .continueAuthentication else { return challenge(data, on: id) }
        let proof = connections[id]?.exchange?.finish(data.map { String(buffer: $0) } ?? "")
        let greeted = connections[id]?.greeted
        connections[id]?.exchange = nil
        connections[id]?.greeted = nil
        switch (greeted, proof) {
        case (let connect?, let proof?): accept(connect, proof: proof, on: id, at: now)
        case (_?, nil): refuse(.notAuthorized, on: id)
        case (nil, let proof?): send(Self.auth(.success, proof), to: id)
        case (nil, nil): end(id, .notAuthorized, at: now)
        }
    }

    private static func auth(_ code: ReasonCode, _ data: String) -> Packet {
        .auth(
            Auth(
                reasonCode: code,
                properties: Auth.Properties(
                    authenticationMethod: SCRAMClient.method, authenticationData: ByteBuffer(string: data))))
    }

    // MARK: Sessions

    private mutating func refuse(_ reason: ReasonCode, on id: ConnectionID) {
        send(.connack(Connack(reasonCode: reason, properties: connackProperties)), to: id)
        actions.append(.close(id))
        connections[id] = nil
    }

    /// - Parameter proof: the server's proof, if the client has just given its own.
    private mutating func accept(
        _ connect: Connect, proof: String? = nil, on id: ConnectionID, at now: Time
    ) {
        if proof == nil { connects.append(connect) }
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
        if let refusal { return refuse(refusal, on: id) }
        if scramPassword != nil, proof == nil {
            guard connect.properties.authenticationMethod == SCRAMClient.method else {
                return refuse(.badAuthenticationMethod, on: id)
            }
            connections[id]?.greeted = connect
            return challenge(connect.properties.authenticationData, on: id)
        }
        let client = connect.clientID
        let older = sessions[client]?.connection
        if let older {
            // The older connection's will is not published if the session continues [3.1.4-3], [3.1.2-8].
            end(older, takesOverSilently ? nil : .sessionTakenOver, at: now)
        }
        if connect.cleanStart, let discarded = sessions.removeValue(forKey: client), recordsFacts {
            facts.append(.discarded(client: client, messages: discarded.outgoing.count { !$0.wasAttempted }, id))
        }
        let isPresent = sessions[client] != nil
        if !isPresent { lastEpoch += 1 }
        var session = sessions[client] ?? Session(epoch: lastEpoch)
        session.expiry =
            version == .five ? connect.properties.sessionExpiryInterval ?? 0 : connect.cleanStart ? 0 : .max
        (session.endsAt, session.will, session.connection) = (nil, nil, id)
        for index in session.outgoing.indices { session.outgoing[index].isOnWire = false }
        sessions[client] = session
        connections[id]?.client = client
        connections[id]?.will = connect.will
        connections[id]?.keepAlive =
            version == .five ? connackProperties.serverKeepAlive ?? connect.keepAlive : connect.keepAlive
        connections[id]?.window = version == .five ? Int(connect.properties.receiveMaximum ?? .max) : .max
        if version == .five { connections[id]?.limit = Int(connackProperties.receiveMaximum ?? .max) }
        if version == .five { connections[id]?.told = connackProperties }
        let claimed = isPresent || claimsSession
        // A look into the room has no session, and resumes none.
        if claimed, connect.cleanStart, session.expiry > 0 {
            connections[id]?.mustEnd = "the server claims a session after Clean Start"
        }
        if recordsFacts { facts.append(.accepted(client: client, resumed: claimed, id, displaced: older)) }
        var properties = connackProperties
        if let proof {
            properties.authenticationMethod = SCRAMClient.method
            properties.authenticationData = ByteBuffer(string: proof)
        }
        send(.connack(Connack(sessionPresent: claimed, properties: properties)), to: id)
        if closesAfterConnack {
            end(id, nil, at: now)
            return
        }
        for message in sessions[client]?.outgoing ?? [] where message.isReleased {
            send(.pubrel(Acknowledgement(packetID: message.id)), to: id)
        }
        sendOutgoing(to: client)
    }

    /// Sends as much of what waits for the client as its Receive Maximum allows, in order.
    private mutating func sendOutgoing(to client: String) {
        guard var session = sessions[client], let id = session.connection, let window = connections[id]?.window else {
            return
        }
        var room = window - session.outgoing.count { $0.isOnWire || $0.isReleased }
        for index in session.outgoing.indices where room > 0 {
            guard !session.outgoing[index].isOnWire, !session.outgoing[index].isReleased else { continue }
            room -= 1
            var publish = session.outgoing[index].publish
            publish.duplicate = session.outgoing[index].wasAttempted
            session.outgoing[index].isOnWire = true
            session.outgoing[index].wasAttempted = true
            send(.publish(publish), to: id)
        }
        sessions[client] = session
    }

    // MARK: The client's duties

    /// Checks that PUBACKs, and PUBRECs, come in the order in which the messages were sent [MQTT-4.6.0-2].
    private mutating func noteTaken(
        _ packetID: PacketID, _ qos: QoS, by client: String, on id: ConnectionID
    ) {
        guard let outgoing = sessions[client]?.outgoing, let index = outgoing.firstIndex(where: { $0.id == packetID })
        else { return }
        let first = outgoing.first { $0.isOnWire && !$0.isReleased && $0.publish.qos == qos }
        if let first, first.id != packetID, !outgoing[index].isReleased {
            violations.append("\(packetID) was acknowledged before \(first.id)")
        }
        if recordsFacts { facts.append(.taken(client: client, outgoing[index].publish, id)) }
    }

    private mutating func checkFree(_ packetID: PacketID, on id: ConnectionID) {
        guard connections[id]?.busy.contains(packetID) == true else { return }
        violations.append("identifier \(packetID) was used twice at once")
    }

    private mutating func begin(_ publish: Publish, _ packetID: PacketID, of client: String, on id: ConnectionID) {
        checkFree(packetID, on: id)
        connections[id]?.busy.insert(packetID)
        if let limit = connections[id]?.limit, let count = connections[id]?.busy.count, count > limit {
            violations.append("\(count) messages exceed the Receive Maximum of \(limit)")
        }
        if !publish.duplicate, sessions[client]?.received.contains(packetID) == true {
            let what = publish.qos == .exactlyOnce ? "" : " by QoS 1"
            violations.append("identifier \(packetID) was used again\(what) before PUBREL")
        }
    }

    private mutating func hold(_ packet: Packet, to id: ConnectionID, _ fact: Fact? = nil) {
        if holdsAnswers { held.append((id, packet, fact)) } else { sendAnswer(packet, to: id, fact) }
    }

    private mutating func sendAnswer(_ packet: Packet, to id: ConnectionID, _ fact: Fact?) {
        switch packet {
        case .puback(let answer), .pubcomp(let answer): connections[id]?.busy.remove(answer.packetID)
        case .pubrec(let answer) where answer.reasonCode.isError: connections[id]?.busy.remove(answer.packetID)
        default: break
        }
        guard connections[id] != nil else { return }
        if let fact, recordsFacts { facts.append(fact) }
        send(packet, to: id)
    }

    /// Returns the message with its topic in the place of an alias (3.3.2.3.4); `nil` if the alias is not valid.
    private mutating func resolve(_ publish: Publish, on id: ConnectionID) -> Publish? {
        guard let alias = publish.properties.topicAlias else { return publish }
        let maximum = connections[id]?.told.topicAliasMaximum ?? 0
        guard alias <= maximum else {
            violations.append("topic alias \(alias), and \(maximum) is the maximum")
            return nil
        }
        var resolved = publish
        resolved.properties.topicAlias = nil
        if publish.topic.isEmpty {
            guard let topic = connections[id]?.aliases[alias] else {
                violations.append("topic alias \(alias), which stands for nothing")
                return nil
            }
            resolved.topic = topic
        } else {
            connections[id]?.aliases[alias] = publish.topic
        }
        return resolved
    }

    private mutating func received(_ publish: Publish, of client: String, on id: ConnectionID, at now: Time) {
        let told = connections[id]?.told ?? .init()
        guard let publish = resolve(publish, on: id) else { return end(id, .topicAliasInvalid, at: now) }
        if publish.retain, told.retainAvailable == false {
            violations.append("a retained message, which was ruled out")
        }
        if publish.qos > told.maximumQoS ?? .exactlyOnce { violations.append("a message of \(publish.qos), ruled out") }
        if let dislike = dislike(of: publish, in: sessions[client]), let packetID = publish.packetID {
            begin(publish, packetID, of: client, on: id)
            if case .ends(let code) = dislike { end(id, code, Self.grudge, at: now) }
            if dislike == .mutes { connections[id]?.isMute = true }
            return
        }
        let isFull = sessions[client]?.isFull ?? false
        // In MQTT 3.1.1 a server cannot refuse a message.
        let refused = connections[id]?.decoder.version == .five ? refusedTopics[publish.topic] : nil
        let refusal = isFull ? .quotaExceeded : refused
        guard let packetID = publish.packetID else {
            if refusal == nil { spread(publish) }
            return
        }
        begin(publish, packetID, of: client, on: id)
        let answer = Acknowledgement(packetID: packetID, reasonCode: refusal ?? .success)
        let fact = Fact.answered(client: client, publish, answer.reasonCode)
        if recordsFacts {
            let epoch = sessions[client]?.epoch ?? 0
            facts.append(.received(client: client, epoch: epoch, publish, isRefused: refusal != nil))
        }
        if publish.qos == .atLeastOnce {
            if refusal == nil { arrived(publish, of: client) }
            hold(.puback(answer), to: id, fact)
        } else {
            if refusal != nil {
                // Even if it was known before: the next message with this identifier is a new one (4.3.3).
                sessions[client]?.received.remove(packetID)
            } else if sessions[client]?.received.insert(packetID).inserted == true {
                arrived(publish, of: client)
            }
            hold(.pubrec(answer), to: id, fact)
        }
        if isFull { end(id, nil, at: now) }
    }

    private mutating func arrived(_ publish: Publish, of client: String) {
        if recordsFacts {
            facts.append(.arrived(client: client, epoch: sessions[client]?.epoch ?? 0, publish))
        }
        spread(publish)
    }

    private mutating func received(_ subscribe: Subscribe, of client: String, on id: ConnectionID, at now: Time) {
        checkFree(subscribe.packetID, on: id)
        let told = connections[id]?.told ?? .init()
        if subscribe.properties.subscriptionID != nil, told.subscriptionIDsAvailable == false {
            violations.append("an identifier of a subscription, which was ruled out")
        }
        guard let isLate = bears(subscribe.subscriptions.map(\.filter), on: id, at: now) else { return }
        var codes: [ReasonCode] = []
        var expectant: [TopicFilter] = []
        for subscription in subscribe.subscriptions {
            guard let filter = try? TopicFilter(subscription.filter) else {
                codes.append(.topicFilterInvalid)
                continue
            }
            if told.wildcardSubscriptionAvailable == false,
                subscription.filter.contains(where: { $0 == "+" || $0 == "#" })
            {
                violations.append("a subscription with a wildcard, which was ruled out")
            }
            if let refusal = refusedFilters[subscription.filter] {
                codes.append(refusal)
                continue
            }
            let isNew = sessions[client]?.subscriptions.updateValue(subscription, forKey: filter) == nil
            switch subscription.retainHandling {
            case .sendOnSubscribe: expectant.append(filter)
            case .sendIfNew: if isNew { expectant.append(filter) }
            case .doNotSend: break
            }
            sessions[client]?.identifiers[filter] = subscribe.properties.subscriptionID
            codes.append(ReasonCode(rawValue: subscription.qos.rawValue))
        }
        let answer = Packet.suback(Suback(packetID: subscribe.packetID, reasonCodes: codes))
        if isLate { late.append((now + Self.lateness, id, answer)) } else { send(answer, to: id) }
        for filter in expectant {
            for topic in retained.keys.sorted() where filter.matches(topic: topic) {
                if let publish = retained[topic] { deliver(publish, to: client, for: filter, isRetained: true) }
            }
        }
    }

    /// Returns whether the answer to a request for these filters is late; `nil` if the server cannot bear one of them,
    /// and has shown so.
    private mutating func bears(_ filters: [String], on id: ConnectionID, at now: Time) -> Bool? {
        var isLate = false
        for filter in filters {
            switch dislikedFilters[filter] {
            case .ends(let code)?:
                end(id, code, Self.grudge, at: now)
                return nil
            case .ignores?: return nil
            case .answersLate?: isLate = true
            case .mutes?:
                connections[id]?.isMute = true
                return nil
            case nil: break
            }
        }
        return isLate
    }

    // MARK: Messages

    /// Publishes a message whose content may be invalid; the server does not look at it.
    public mutating func publish(_ publish: Publish) { spread(publish) }

    /// Publishes a message from a client that the test does not model.
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
            // One copy for each filter, as with mosquitto and EMQX.
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
        if recordsFacts { facts.append(.sent(client: client, epoch: session.epoch, copy)) }
        if copy.packetID != nil {
            sendOutgoing(to: client)
        } else if let connection = session.connection {
            send(.publish(copy), to: connection)
        }
    }

    private mutating func send(_ packet: Packet, to id: ConnectionID) {
        actions.append(.send(id, encoded(packet, in: connections[id]?.decoder.version ?? .five)))
    }
}
