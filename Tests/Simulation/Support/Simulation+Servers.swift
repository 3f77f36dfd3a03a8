import MQTT
import NIOCore
import Support

@testable import Agent

// What happens to servers, and what they do.

extension Simulation {
    /// Returns the code for a step's number: every code of the standard, and the frequent ones more often.
    static func code(_ number: Int) -> ReasonCode? {
        switch number {
        case ...0: nil
        case 1...35: ReasonCode(rawValue: UInt8(0x7F + number))
        case 36: .normalDisconnection
        case 37: .serverBusy
        case 38: .serverShuttingDown
        case 39: .sessionTakenOver
        case 40: .protocolError
        default: nil
        }
    }

    func changeServer(_ step: Step) {
        let server: Scenario.ServerName = step.number(0) % 2 == 0 ? .one : .two
        let (first, second) = (step.number(1), step.number(2))
        let client = residents[first % residents.count].clientID
        let what = step.what
        if what == .lie { liars.insert(server) }
        // The session that the intruder begins is a new one, and the server calls it the client's.
        let beginsAnother = what == .intrude && scenario.here { !$0.broker(server).hasSession(client) }
        if beginsAnother { liars.insert(server) }
        if what == .limits {
            limiters.insert(server)
            announced.append(Self.limits(first, world.serverLimits))
        }
        if what == .end, let code = Self.code(second) { endings[client, default: []].insert(code) }
        // Where the kernel cannot be asked, a mute server cannot be told from a dead network.
        let isDislike = what == .dislike || what == .dislikeFilter
        if isDislike, Self.dislike(first) == .mutes, world[.measured] == 0 { return }
        if what == .crash { return crash(server, first) }
        if what == .refuseTopic || what == .refuseFilter { return refuse(what, server, first, second) }
        let usual = world.serverLimits
        scenario.here { scenario in
            switch what {
            case .restart: if !scenario.isUp(server) { scenario.start(server) }
            case .hang: scenario.hang(server)
            case .resume: scenario.resume(server)
            case .limits:
                if scenario.isUp(server) {
                    scenario.with(server) { broker, _ in broker.connackProperties = Self.limits(first, usual) }
                }
            default: if scenario.isUp(server) { Self.change(scenario, what, client, first, second, server) }
            }
        }
    }

    /// Makes a server refuse messages of some topics, or subscriptions to some filters; or take them again, without
    /// a code.
    private func refuse(_ what: Step.What, _ server: Scenario.ServerName, _ code: Int, _ which: Int) {
        let code = Self.code(code).flatMap { $0.isError ? $0 : nil }
        let topics =
            switch which % 5 {
            case 0: ["out/2"]
            case 4: world.presences
            case let number: residents.indices.map { publicationTopic(number - 1, on: $0) }
            }
        let filters = [["in/1"], ["in/#"], World.presenceFilters][which % 3]
        scenario.here { scenario in
            guard scenario.isUp(server) else { return }
            scenario.with(server) { broker, _ in
                if what == .refuseTopic {
                    for topic in topics { broker.refusedTopics[topic] = code }
                } else {
                    for filter in filters { broker.refusedFilters[filter] = code }
                }
            }
        }
    }

    func crash(_ server: Scenario.ServerName, _ number: Int) {
        // A device that shares its identity may take what the other one left in an older state for that one's presence.
        let memory: ModelBroker.Memory =
            switch number {
            case 2: .nothing
            case 3 where !world.sharesIdentity: .saved
            default: .everything
            }
        let restored = scenario.here { $0.isUp(server) ? $0.stop(server, remembering: memory) : [] }
        for session in restored {
            guard let resident = residents.first(where: { $0.clientID == session.client }) else { continue }
            noteLeftovers()
            ledger.wentBack(
                resident.host.name, at: server.rawValue, from: session.epochBefore, to: session.epoch)
        }
    }

    private static func change(
        _ scenario: isolated Scenario, _ what: Step.What, _ client: String, _ first: Int, _ second: Int,
        _ server: Scenario.ServerName
    ) {
        scenario.with(server) { broker, now in change(&broker, what, client, first, second, server, at: now) }
    }

    private static func change(
        _ broker: inout ModelBroker, _ what: Step.What, _ client: String, _ first: Int, _ second: Int,
        _ server: Scenario.ServerName, at now: ModelBroker.Time
    ) {
        let other: Scenario.ServerName = server == .one ? .two : .one
        switch what {
        case .forget:
            broker.disconnect(client, nil, at: now)
            broker.forget(client)
        case .end:
            broker.disconnect(
                client, Self.code(second), .init(reasonString: second % 3 == 1 ? Self.forgedWords : nil), at: now)
        case .refuse:
            broker.refusals[client] = Self.code(second).flatMap { $0.isError ? $0 : nil } ?? .serverUnavailable
        case .welcome: broker.refusals = [:]
        case .serverImage: broker.save()
        case .redirect where second == 2:
            broker.refusals[client] = .useAnotherServer
            broker.connackProperties.serverReference = other.address
        case .redirect:
            broker.disconnect(
                client, second == 0 ? .serverMoved : .useAnotherServer, .init(serverReference: other.address), at: now)
        case .intrude: intrude(&broker, client, at: now)
        case .lie: broker.claimsSession.toggle()
        case .acceptAndClose: broker.closesAfterConnack = first == 1
        case .holdAnswers: broker.holdsAnswers = first == 1
        case .releaseAnswers: broker.releaseAnswers(first)
        case .nonsense: broker.say(Self.nonsense(second), to: client)
        case .garbage: broker.say(Self.garbage(second), to: client)
        case .wrongAnswer: broker.answerWrongly(client)
        case .again: if second == 1 { broker.releaseAgain(client) } else { broker.sendAgain(to: client) }
        case .dislike: broker.dislikesNext = Array(repeating: Self.dislike(first), count: max(1, second))
        case .dislikeFilter: broker.dislikedFilters[second == 1 ? "in/#" : "in/1"] = Self.dislike(first)
        default: preconditionFailure("\(what) is no business of a server")
        }
    }

    /// Connects as another device with the client's identity.
    private static func intrude(_ broker: inout ModelBroker, _ client: String, at now: ModelBroker.Time) {
        let id = broker.opened(at: now)
        var connect = Connect(clientID: client, cleanStart: false)
        connect.keepAlive = 0
        connect.properties.sessionExpiryInterval = 86_400
        connect.password = broker.password.map { ByteBuffer(string: $0) }
        connect.username = connect.password == nil ? nil : client
        broker.received(Packet.connect(connect).encoded(), from: id, at: now)
    }

    static func limits(_ number: Int, _ usual: Connack.Properties) -> Connack.Properties {
        var limits = usual
        switch number % 16 {
        case 1: limits.receiveMaximum = 1
        case 2: limits.receiveMaximum = 3
        case 3: limits.maximumPacketSize = 30
        case 4: limits.maximumQoS = .atLeastOnce
        case 5: limits.serverKeepAlive = 3
        case 6: limits.serverKeepAlive = 90
        case 7: limits.sessionExpiryInterval = 5
        case 8: limits.maximumQoS = .atMostOnce
        case 9: limits.retainAvailable = false
        case 10: limits.wildcardSubscriptionAvailable = false
        case 11: limits.subscriptionIDsAvailable = false
        case 12: limits.sessionExpiryInterval = 0
        case 13: limits.serverKeepAlive = 0
        case 14: limits.topicAliasMaximum = 2
        case 15: limits.topicAliasMaximum = 0
        default: break
        }
        return limits
    }

    /// A text that would do more on a terminal than be read, and would fill a journal.
    private static let forgedWords = "bad\n<0>holdfast: main: failed\u{1B}[2J" + String(repeating: "x", count: 2000)

    /// A packet that nobody asked for, and that affects none of our messages.
    static func nonsense(_ number: Int) -> Packet {
        guard let id = PacketID(rawValue: 60_001) else { return .pingresp }
        let answer = Acknowledgement(packetID: id)
        return switch number {
        case 0: .puback(answer)
        case 1: .pubrec(answer)
        case 2: .pubrel(answer)
        case 3: .pubcomp(answer)
        case 4: .suback(Suback(packetID: id, reasonCodes: [.success]))
        case 5: .unsuback(Unsuback(packetID: id, reasonCodes: [.success]))
        case 6: .connack(Connack())
        case 7: .publish(Publish(topic: "", payload: ByteBuffer(), qos: .atMostOnce))
        case 8: .disconnect(Disconnect(reasonCode: .normalDisconnection))
        default: .pingresp
        }
    }

    /// Bytes that are not MQTT at all.
    static func garbage(_ number: Int) -> ByteBuffer {
        let bytes: [UInt8] =
            switch number {
            // Packet types that do not exist, or do not come from a server.
            case 0: [0x00, 0x00]
            case 1: [0xC0, 0x00]
            // Wrong flags, a length of five bytes, a length that is too large for anything.
            case 2: [0x41, 0x02, 0x00, 0x01]
            case 3: [0xD0, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]
            case 4: [0x40, 0xFF, 0xFF, 0xFF, 0x7F]
            // QoS 3, a topic that is longer than the packet, an identifier of 0.
            case 5: [0x36, 0x05, 0x00, 0x01, 0x61, 0x00, 0x01]
            case 6: [0x30, 0x03, 0x00, 0x09, 0x61]
            case 7: [0x40, 0x02, 0x00, 0x00]
            // Other protocols.
            case 8: Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8)
            default: Array("SSH-2.0-OpenSSH_9.2p1\r\n".utf8)
            }
        return ByteBuffer(bytes: bytes)
    }

    /// Changes the password that the servers require, or the one that the hosts get.
    func changeToken(_ number: Int) {
        guard world[.password] == 1 else { return }
        tokenCount += 1
        // Whichever it is, the search for secrets finds it.
        let new = "\(World.secret)-\(tokenCount)"
        switch number % 10 {
        case 0: setPassword(new)
        case 1:
            setPassword(new)
            mendToken()
        case 2: tokens.here { $0.fail("there is no token today") }
        case 3: tokens.here { $0.hang(true) }
        case 4: tokens.here { $0.set($0.token, lifetime: .seconds(40)) }
        default: mendToken()
        }
    }

    private func setPassword(_ password: String) {
        scenario.here { scenario in
            for server in Scenario.ServerName.allCases {
                scenario.with(server) { broker, _ in broker.password = password }
            }
        }
    }

    /// Makes the hosts get the right password again.
    func mendToken() {
        let right = scenario.here { $0.broker(.one).password } ?? World.secret
        tokens.here { tokens in
            tokens.set(right)
            tokens.fail(nil)
            tokens.hang(false)
        }
    }

    /// Publishes a message as somebody else.
    func foreign(_ server: Scenario.ServerName, _ topic: Int, _ qos: Int) {
        foreignCount += 1
        let (payload, qos) = ("i\(foreignCount)", QoS(rawValue: UInt8(qos % 3)) ?? .atLeastOnce)
        scenario.here { scenario in
            guard scenario.isUp(server) else { return }
            scenario.with(server) { broker, _ in broker.publish("in/\(topic)", payload, qos: qos) }
        }
    }
}
