import NIOCore
import Testing

@testable import MQTT

/// Statements of MQTT 5 that have no better place: what the client does with a server. See StatementTable.swift.
@Suite struct StatementTests {
    // MARK: Before CONNACK

    private static func wantEverything(_ client: inout MQTTClientHarness) throws {
        for qos in QoS.allCases { try client.publish("x", qos: qos) }
        try client.subscribe("wanted")
        client.handle(.unsubscribe(try TopicFilter("unwanted")))
        client.present()
        client.handle(.ping)
        client.handle(.reauthenticate(SCRAMClient(username: "user")))
        client.handle(.timePassed)
    }

    /// [MQTT-3.1.0-1]
    @Test func `CONNECT is sent before anything else`() throws {
        var client = MQTTClientHarness(durable: MQTTClientHarness.established([.inFlight(id(7)), .released(id(3))]))
        try Self.wantEverything(&client)
        #expect(client.sent == [])
        client.holdsCommits = true
        client.open(force: true)
        try Self.wantEverything(&client)
        #expect(client.sent == [], "CONNECT waits for the disk, and so does everything else")
        client.holdsCommits = false
        client.commitAll()
        try Self.wantEverything(&client)
        #expect(client.sent.map(\.kind) == [.connect])
        client.server(.connack(Connack()))
        #expect(client.sent.count > 1)
    }

    @Test func `a connection left before CONNECT was sent gets no DISCONNECT`() {
        var client = MQTTClientHarness(durable: MQTTClientHarness.established())
        client.holdsCommits = true
        client.open(force: true)
        #expect(client.handle(.disconnect(.normalDisconnection)) == ["close"])
        #expect(client.commitAll() == [])
        #expect(client.sent == [])
    }

    /// [MQTT-3.1.2-9] [MQTT-3.3.2-10]
    @Test func `CONNECT has the will, and announces no aliases`() throws {
        let will = Will(
            topic: "w", payload: ByteBuffer(string: "gone"), qos: .atLeastOnce, retain: true,
            properties: Will.Properties(willDelay: 5))
        var client = MQTTClientHarness { $0.will = will }
        client.open()
        guard case .connect(let connect)? = client.sent.first else {
            Issue.record("no CONNECT")
            return
        }
        #expect(connect.will == will)
        #expect(connect.properties.topicAliasMaximum == nil)
    }

    /// [MQTT-3.14.0-1] [MQTT-4.13.2-1]
    @Test func `a DISCONNECT instead of CONNACK ends the connection`() {
        var client = MQTTClientHarness()
        client.open()
        #expect(
            client.server(.disconnect(Disconnect(reasonCode: .serverBusy))) == ["disconnected by server 89", "close"])
    }

    /// [MQTT-3.1.3-7] [MQTT-3.2.2-16]
    @Test(arguments: [nil, ""] as [String?])
    func `a server that assigns no identifier to a client without one is left`(assigned: String?) {
        var client = MQTTClientHarness { $0.clientID = "" }
        #expect(
            client.connect(Connack.Properties(assignedClientID: assigned)) == [
                "violation 82", "DISCONNECT 82", "close",
            ])
        #expect(client.changes == [])
    }

    /// [MQTT-3.1.2-4] [MQTT-3.2.2-5]
    @Test(arguments: [false, true])
    func `a new session forgets the messages that the server had begun to send`(isForced: Bool) {
        var client = MQTTClientHarness(durable: DurableSession(established: true, inboundIDs: [id(5)]))
        client.open(force: isForced)
        client.server(.connack(Connack()))
        #expect(client.changes.contains(.removeAllInbound))
        #expect(client.server(inbound("x", qos: .exactlyOnce, 5, duplicate: true)) == ["received x", "PUBREC 5"])
    }

    // MARK: Identifiers

    /// [MQTT-2.2.1-3] [MQTT-4.3.2-1] [MQTT-4.3.3-1]
    @Test func `every unanswered packet has its own identifier`() throws {
        var client = MQTTClientHarness { $0.maximumSubscribeRequests = 1000 }
        client.connect()
        try client.subscribe("a")
        client.server(.suback(Suback(packetID: id(1), reasonCodes: [.grantedQoS1])))
        client.sent = []
        for count in 1...200 {
            try client.publish("x", qos: count % 2 == 0 ? .atLeastOnce : .exactlyOnce)
            try client.subscribe("\(count)")
            if count == 100 { client.handle(.unsubscribe(try TopicFilter("a"))) }
            if count % 50 == 0 { client.present() }
        }
        let kinds = Set(client.sent.map(\.kind))
        #expect(kinds == [.publish, .subscribe, .unsubscribe])
        let identifiers = client.sent.compactMap(\.identifier)
        #expect(identifiers.count == client.sent.count)
        #expect(Set(identifiers).count == identifiers.count)
    }

    /// [MQTT-2.2.1-6] [MQTT-3.8.4-2] [MQTT-3.10.4-5]
    @Test func `an answer to a request that was never made changes nothing`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("a")
        try client.publish("x")
        let suback = { Packet.suback(Suback(packetID: id($0), reasonCodes: [.grantedQoS1])) }
        let unsuback = { Packet.unsuback(Unsuback(packetID: id($0), reasonCodes: [.success])) }
        for packet in [suback(2), suback(9), unsuback(1), unsuback(2), unsuback(9)] {
            #expect(client.server(packet) == [])
        }
        #expect(client.machine.subscriptionState(of: try TopicFilter("a")) == .pending)
        #expect(client.server(suback(1)) == ["subscribed a 01"])
        #expect(client.server(suback(1)) == [])
        #expect(client.server(.puback(answer(2))) == ["delivered 1 00"])
    }

    /// [MQTT-2.2.1-6]
    @Test func `an answer to a request that was not sent yet changes nothing`() throws {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        try client.subscribe("a")
        #expect(client.server(.suback(Suback(packetID: id(1), reasonCodes: [.grantedQoS1]))) == [])
        #expect(client.machine.subscriptionState(of: try TopicFilter("a")) == .pending)
        try client.subscribe("b")
        #expect(client.commitAll() == ["SUBSCRIBE a", "SUBSCRIBE b"])
        #expect(client.subscribes.map(\.packetID) == [id(1), id(2)])
        client.holdsCommits = false
        client.handle(.unsubscribe(try TopicFilter("a")))
        client.holdsCommits = true
        try client.subscribe("c")
        client.present()
        #expect(client.server(.puback(answer(5))) == [], "an announcement that waits for the disk")
        #expect(client.commitAll() == ["SUBSCRIBE c", "PUBLISH here id 5"])
    }

    // MARK: Messages

    /// [MQTT-4.3.1-1] [MQTT-4.3.2-2] [MQTT-4.3.3-2]
    @Test(arguments: QoS.allCases)
    func `the first PUBLISH of a message has its QoS, DUP 0 and its identifier`(qos: QoS) throws {
        var client = MQTTClientHarness().connected()
        try client.publish("x", qos: qos)
        let publish = try #require(client.publishes.last)
        #expect(publish.qos == qos)
        #expect(!publish.duplicate)
        #expect(publish.packetID == (qos == .atMostOnce ? nil : id(1)))
    }

    /// [MQTT-3.3.4-6]
    @Test func `properties that belong to a received message are not sent on`() throws {
        var client = MQTTClientHarness().connected(Connack.Properties(topicAliasMaximum: 5))
        var actions: [MQTTClientMachine.Action] = []
        let message = OutboundMessage(
            topic: "t", properties: .init(messageExpiryInterval: 9, topicAlias: 3, subscriptionIDs: [1, 2]))
        _ = try client.machine.publish(message, at: client.now, into: &actions)
        _ = client.describe(actions)
        #expect(client.publishes.map(\.properties) == [.init()])
    }

    /// [MQTT-4.3.2-5]
    @Test(arguments: [false, true])
    func `an identifier stands for a new message after PUBACK, whatever its DUP`(duplicate: Bool) {
        var client = MQTTClientHarness().connected()
        for payload in ["a", "a", "b"] {
            let words = client.server(inbound(payload, qos: .atLeastOnce, 1, duplicate: duplicate))
            #expect(words == ["received \(payload)", "PUBACK 1"])
        }
    }

    /// [MQTT-4.3.3-12]
    @Test(arguments: [false, true])
    func `an identifier stands for a new message after PUBCOMP`(duplicate: Bool) {
        var client = MQTTClientHarness().connected()
        for payload in ["a", "a", "b"] {
            let words = client.server(inbound(payload, qos: .exactlyOnce, 1, duplicate: duplicate))
            #expect(words == ["received \(payload)", "PUBREC 1"])
            #expect(client.server(.pubrel(answer(1))) == ["PUBCOMP 1"])
        }
    }

    /// [MQTT-4.3.3-13]
    @Test func `an exchange is finished although its message has expired`() {
        var client = MQTTClientHarness().connected()
        let message = Publish(
            topic: "t", payload: ByteBuffer(string: "x"), qos: .exactlyOnce, packetID: id(1),
            properties: .init(messageExpiryInterval: 1))
        #expect(client.server(.publish(message)) == ["received x", "PUBREC 1"])
        client.now = client.now.advanced(by: 60_000)
        client.handle(.timePassed)
        #expect(client.server(.publish(message)) == ["PUBREC 1"])
        #expect(client.server(.pubrel(answer(1))) == ["PUBCOMP 1"])
    }

    /// [MQTT-4.5.0-2]
    @Test func `messages that match no subscription are acknowledged`() {
        var client = MQTTClientHarness().connected()
        let words = client.server(
            inbound("a", qos: .atLeastOnce, 1), inbound("b", qos: .exactlyOnce, 2), .pubrel(answer(2)))
        #expect(words.filter { $0.hasPrefix("PUB") } == ["PUBACK 1", "PUBREC 2", "PUBCOMP 2"])
    }

    /// [MQTT-4.6.0-4]
    @Test func `PUBREL is sent in the order of PUBREC`() throws {
        var client = MQTTClientHarness().connected()
        for payload in ["a", "b", "c"] { try client.publish(payload, qos: .exactlyOnce) }
        client.holdsCommits = true
        client.server(.pubrec(answer(2)))
        client.server(.pubrec(answer(3)), .pubrec(answer(1)))
        #expect(client.commitAll() == ["PUBREL 2", "PUBREL 3", "PUBREL 1"])
    }

    /// [MQTT-3.3.4-8] [MQTT-4.9.0-3]
    @Test func `a full window delays no request and no heartbeat`() throws {
        var client = MQTTClientHarness().connected(Connack.Properties(receiveMaximum: 1))
        try client.publish("a")
        #expect(try client.publish("waits").contains { $0.hasPrefix("PUBLISH") } == false)
        #expect(try client.subscribe("f") == ["SUBSCRIBE f"])
        client.server(.suback(Suback(packetID: id(2), reasonCodes: [.grantedQoS1])))
        #expect(client.handle(.unsubscribe(try TopicFilter("f"))) == ["UNSUBSCRIBE f"])
        #expect(client.handle(.ping) == ["PINGREQ"])
        #expect(try client.publish("c", qos: .atMostOnce) == ["accepted 3"], "in its turn")
        let words = client.server(inbound("x", qos: .exactlyOnce, 1), .pubrel(answer(1)))
        #expect(words == ["received x", "PUBREC 1", "PUBCOMP 1"])
        #expect(client.handle(.disconnect(.normalDisconnection)) == ["DISCONNECT 00", "close"])
    }

    // MARK: Subscriptions

    /// [MQTT-3.8.4-7] [MQTT-3.9.3-1]
    @Test func `each code of a SUBACK answers the filter in its place`() throws {
        var client = MQTTClientHarness()
        for filter in ["a", "b", "c", "d"] { try client.subscribe(filter, qos: .exactlyOnce) }
        client.connect(Connack.Properties(subscriptionIDsAvailable: false))
        let codes: [ReasonCode] = [.grantedQoS2, .notAuthorized, .success, .grantedQoS1]
        #expect(
            client.server(.suback(Suback(packetID: id(1), reasonCodes: codes))) == [
                "subscribed a 02", "subscribed b 87", "subscribed c 00", "subscribed d 01", "restored",
            ])
        let states = client.machine.subscriptionStates.map(\.state)
        #expect(states[0] == .granted(.exactlyOnce))
        if case .refused(let refusal) = states[1] {
            #expect(refusal.answer == .said(.notAuthorized))
        } else {
            Issue.record()
        }
        #expect(states[2...] == [.granted(.atMostOnce), .granted(.atLeastOnce)])
    }

    /// [MQTT-3.11.3-1]
    @Test func `each code of an UNSUBACK answers the filter in its place, and there are as many`() throws {
        func asked() throws -> MQTTClientHarness {
            var client = MQTTClientHarness()
            for filter in ["a", "b", "c"] { try client.subscribe(filter) }
            client.connect(Connack.Properties(subscriptionIDsAvailable: false))
            client.server(.suback(Suback(packetID: id(1), reasonCodes: [.success, .success, .success])))
            client.handle(.connectionClosed)
            for filter in ["a", "b", "c"] { client.handle(.unsubscribe(try TopicFilter(filter))) }
            #expect(client.connect(resumed: true).last == "UNSUBSCRIBE a b c")
            return client
        }
        var client = try asked()
        let codes: [ReasonCode] = [.noSubscriptionExisted, .notAuthorized, .success]
        #expect(
            client.server(.unsuback(Unsuback(packetID: id(2), reasonCodes: codes))).prefix(3) == [
                "unsubscribed a 11", "unsubscribed b 87", "unsubscribed c 00",
            ])
        for count in [1, 2, 4] {
            client = try asked()
            let codes = [ReasonCode](repeating: .success, count: count)
            #expect(
                client.server(.unsuback(Unsuback(packetID: id(2), reasonCodes: codes))) == [
                    "violation 82", "DISCONNECT 82", "close",
                ])
        }
    }

    /// [MQTT-3.9.3-2] [MQTT-3.11.3-2]
    @Test func `a code below 0x80 that the standard does not list is success, with the least QoS`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("a", qos: .exactlyOnce)
        client.server(.suback(Suback(packetID: id(1), reasonCodes: [ReasonCode(rawValue: 0x7F)])))
        let filter = try TopicFilter("a")
        #expect(client.machine.subscriptionState(of: filter) == .granted(.atMostOnce))
        client.handle(.unsubscribe(filter))
        let unknown = [ReasonCode(rawValue: 0x7F)]
        #expect(client.server(.unsuback(Unsuback(packetID: id(2), reasonCodes: unknown))) == ["unsubscribed a 7F"])
        #expect(client.changes.last == .forgetSubscription(filter))
    }

    /// [MQTT-3.8.3-2] [MQTT-3.10.3-2]
    @Test func `no request is sent when nothing is left to request`() throws {
        var client = MQTTClientHarness { $0.maximumSubscribeRequests = 1 }
        client.connect(Connack.Properties(maximumPacketSize: 40, sharedSubscriptionAvailable: false))
        try client.subscribe("first")
        for filter in ["second", "$share/g/a", String(repeating: "x", count: 30)] {
            try client.subscribe(filter)
            client.handle(.unsubscribe(try TopicFilter(filter)))
        }
        let words = client.server(.suback(Suback(packetID: id(1), reasonCodes: [.grantedQoS1])))
        #expect(words.filter { $0.contains("SUBSCRIBE") } == [])
        #expect(client.sent.count { $0.kind == .subscribe || $0.kind == .unsubscribe } == 1)
    }

    // MARK: What every packet has

    /// A client that has sent every kind of answer, even to exchanges that it does not know.
    private static func answered() throws -> MQTTClientHarness {
        var client = MQTTClientHarness().connected()
        client.server(inbound("a", qos: .atLeastOnce, 1), inbound("b", qos: .exactlyOnce, 2))
        client.server(.pubrel(answer(2)), .pubrel(answer(2)), .pubrel(answer(9)), .pubrec(answer(9)))
        client.handle(.received(ByteBuffer(bytes: bytesOf("34 07 00 01 23 00 07 00 78"))))
        try client.publish("c", qos: .exactlyOnce)
        client.server(.pubrec(answer(1, .noMatchingSubscribers)))
        return client
    }

    /// [MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.6.2-1] [MQTT-3.7.2-1] [MQTT-4.3.3-9]
    @Test func `acknowledgements have only codes that the standard lists, and PUBREC is never an error`() throws {
        var codes: [Packet.Kind: Set<ReasonCode>] = [:]
        for packet in try Self.answered().sent {
            if let answer = packet.acknowledgement { codes[packet.kind, default: []].insert(answer.reasonCode) }
        }
        #expect(
            codes == [
                .puback: [.success], .pubrec: [.success], .pubrel: [.success, .packetIdentifierNotFound],
                .pubcomp: [.success, .packetIdentifierNotFound],
            ])
    }

    /// [MQTT-3.4.2-2] [MQTT-3.4.2-3] [MQTT-3.5.2-2] [MQTT-3.5.2-3] [MQTT-3.6.2-2] [MQTT-3.6.2-3] [MQTT-3.7.2-2]
    /// [MQTT-3.7.2-3] [MQTT-3.14.2-3] [MQTT-3.14.2-4] [MQTT-3.15.2-2] [MQTT-3.15.2-3]
    @Test func `no answer has a Reason String or User Properties`() throws {
        var client = try Self.answered()
        client.server(.connack(Connack()))
        var others = try Self.reauthenticated()
        others.handle(.disconnect(.disconnectWithWill))
        var kinds: Set<Packet.Kind> = []
        for packet in client.sent + others.sent {
            switch packet {
            case .puback(let answer), .pubrec(let answer), .pubrel(let answer), .pubcomp(let answer):
                #expect(answer.properties == .init())
            case .disconnect(let disconnect): #expect(disconnect.properties == .init())
            case .auth(let auth):
                #expect(auth.properties.reasonString == nil && auth.properties.userProperties.isEmpty)
            default: continue
            }
            kinds.insert(packet.kind)
        }
        #expect(kinds == [.puback, .pubrec, .pubrel, .pubcomp, .disconnect, .auth])
    }

    /// The codes that a client may send in DISCONNECT (table 3-10) and must not omit.
    private static let reasonsToLeave: Set<UInt8> = [
        0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
    ]

    /// [MQTT-3.2.2-1] [MQTT-3.14.1-1] [MQTT-3.14.2-1] [MQTT-3.14.2-2] [MQTT-4.13.1-1] [MQTT-4.13.2-1]
    @Test(
        arguments: (Malformed.fixedHeader + Malformed.publish + Malformed.properties + Malformed.others).filter {
            $0.sender == .server
        })
    func `a client that leaves after an error gives a reason that a client may send`(_ malformed: Malformed) {
        var client = MQTTClientHarness()
        client.open()
        let bytes = bytesOf(malformed.hex)
        if bytes.first.map({ $0 >> 4 }) != Packet.Kind.connack.rawValue { client.server(.connack(Connack())) }
        let words = client.handle(.received(ByteBuffer(bytes: bytes)))
        guard words.contains("close") else {
            #expect(words.contains { $0.hasPrefix("refused") }, "only the content of a message may be passed over")
            return
        }
        guard case .disconnect(let disconnect)? = client.sent.last else {
            Issue.record("no DISCONNECT")
            return
        }
        #expect(disconnect.reasonCode == malformed.code)
        #expect(Self.reasonsToLeave.contains(disconnect.reasonCode.rawValue))
    }

    // MARK: The server's Maximum Packet Size

    /// [MQTT-3.2.2-15]
    @Test(arguments: [5, 6, 7, 8, 10, 16, 17, 20, 25, 30, 40, 64, 100, 128, 200] as [UInt32], [true, false])
    func `no packet is larger than the server takes, whatever its kind`(limit: UInt32, hasIdentifiers: Bool) throws {
        let lengths = [1, 2, 5, 10, 15, 20, 24, 25, 26, 40, 64, 100, 150]
        func text(_ length: Int, _ character: Character = "x") -> String { String(repeating: character, count: length) }
        var client = MQTTClientHarness { $0.maximumSubscribeRequests = 1000 }
        client.connect()
        for length in lengths { try client.subscribe(text(length)) }
        for subscribe in client.subscribes {
            client.server(.suback(Suback(packetID: subscribe.packetID, reasonCodes: [.grantedQoS1])))
        }
        try client.publish("released", qos: .exactlyOnce)
        for length in lengths { try client.publish(text(length), qos: .exactlyOnce, topic: text(length)) }
        client.server(.pubrec(answer(UInt16(lengths.count + 1))))
        client.handle(.connectionClosed)
        for length in lengths {
            client.handle(.unsubscribe(try TopicFilter(text(length))))
            try client.subscribe(text(length, "y"))
            try client.publish(text(length), topic: text(length))
        }
        client.open()
        let before = client.sent.count

        let properties = Connack.Properties(
            maximumPacketSize: limit, topicAliasMaximum: 9, subscriptionIDsAvailable: hasIdentifiers)
        client.server(.connack(Connack(sessionPresent: true, properties: properties)))
        for qos in QoS.allCases {
            for length in lengths {
                _ = try? client.publish(text(length), qos: qos, topic: text(max(1, length / 2)))
                _ = try? client.publish(text(1), qos: qos, topic: text(length), expiresIn: 5000)
            }
        }
        for length in lengths {
            client.handle(.unsubscribe(try TopicFilter(text(length, "y"))))
            try client.subscribe(text(length, "z"))
            client.present(text(length))
        }
        client.server(inbound("a", qos: .atLeastOnce, 1), inbound("b", qos: .exactlyOnce, 2))
        client.server(.pubrel(answer(2)), .pubrel(answer(9)), .pubrec(answer(9999)))
        client.handle(.ping)
        client.handle(.disconnect(.protocolError))
        let sent = client.sent.dropFirst(before)
        #expect(sent.count > 5)
        #expect(sent.map(\.encodedLength).max().map { $0 <= Int(limit) } == true)
    }

    /// [MQTT-3.2.2-15]
    @Test(arguments: [1, 2, 3, 4] as [UInt32])
    func `a server that takes no acknowledgement is left, with DISCONNECT only if that fits`(limit: UInt32) {
        var client = MQTTClientHarness()
        client.open()
        let words = client.server(.connack(Connack(properties: .init(maximumPacketSize: limit))))
        #expect(words == ["violation 83"] + (limit < 3 ? [] : ["DISCONNECT 83"]) + ["close"])
    }

    // MARK: Authentication

    private static func reauthenticated(_ properties: Connack.Properties = .init()) throws -> MQTTClientHarness {
        var client = MQTTClientHarness()
        let exchange = SCRAMClient(username: "user", nonce: SCRAMTests.nonce)
        client.handle(.connectionOpened(MQTTCredentials(authentication: exchange), forceCleanStart: false))
        func auth(_ code: ReasonCode, _ data: String) -> Packet {
            .auth(
                Auth(
                    reasonCode: code,
                    properties: .init(
                        authenticationMethod: SCRAMClient.method, authenticationData: ByteBuffer(string: data))))
        }
        client.server(auth(.continueAuthentication, SCRAMTests.serverFirst))
        client.handle(.keyDerived(SCRAMTests.key))
        var properties = properties
        properties.authenticationMethod = SCRAMClient.method
        properties.authenticationData = ByteBuffer(string: SCRAMTests.serverFinal)
        client.server(.connack(Connack(properties: properties)))
        client.handle(.reauthenticate(exchange))
        client.server(auth(.continueAuthentication, SCRAMTests.serverFirst))
        client.handle(.keyDerived(SCRAMTests.key))
        return client
    }

    /// [MQTT-3.15.2-1] [MQTT-4.12.0-3] [MQTT-4.12.0-5] [MQTT-4.12.1-1]
    @Test func `every AUTH has the method of CONNECT, and its code, even once connected`() throws {
        let client = try Self.reauthenticated()
        let auths = client.sent.compactMap { if case .auth(let auth) = $0 { auth } else { nil } }
        #expect(auths.map(\.reasonCode) == [.continueAuthentication, .reauthenticate, .continueAuthentication])
        guard case .connect(let connect)? = client.sent.first else {
            Issue.record("no CONNECT")
            return
        }
        #expect(connect.properties.authenticationMethod == "SCRAM-SHA-256")
        #expect(auths.allSatisfy { $0.properties.authenticationMethod == connect.properties.authenticationMethod })
    }

    /// [MQTT-3.2.2-15]
    @Test func `authentication is not repeated with a server that takes only small packets`() throws {
        let client = try Self.reauthenticated(.init(maximumPacketSize: 60))
        #expect(!client.machine.canReauthenticate)
        #expect(client.sent.count { $0.kind == .auth } == 1)
    }
}

extension MQTTClientHarness {
    /// An announcement.
    fileprivate mutating func present(_ topic: String = "presence") {
        var actions: [MQTTClientMachine.Action] = []
        machine.announce(
            Announcement(topic: topic, payload: ByteBuffer(string: "here")), at: now, into: &actions)
        _ = describe(actions)
    }
}

extension Packet {
    /// The identifier of a packet that waits for an answer.
    fileprivate var identifier: PacketID? {
        switch self {
        case .publish(let publish): publish.packetID
        case .subscribe(let subscribe): subscribe.packetID
        case .unsubscribe(let unsubscribe): unsubscribe.packetID
        default: nil
        }
    }

    fileprivate var acknowledgement: Acknowledgement? {
        switch self {
        case .puback(let answer), .pubrec(let answer), .pubrel(let answer), .pubcomp(let answer): answer
        default: nil
        }
    }
}
