import NIOCore
import Support
import Testing

@testable import MQTT

/// Rules 1, 2, 6, 10, 11, 13, 16, 18, 19, 20, 23, 24 of Documentation/MQTT-rules.md.
@Suite struct MQTTClientMachineConnectionTests {
    // MARK: CONNECT and CONNACK

    /// [MQTT-3.1.2-21] [MQTT-3.2.2-21]
    @Test func `rule 1: CONNECT asks for the session expiry, and CONNACK overrides it`() {
        var client = MQTTClientHarness { $0.sessionExpiry = 100 }
        var actions: [MQTTClientMachine.Action] = []
        client.machine.handle(
            .connectionOpened(MQTTCredentials(username: "u"), forceCleanStart: false), at: client.now, into: &actions)
        var decoder = PeerDecoder()
        for case .send(let bytes, _) in actions { decoder.append(bytes) }
        guard case .connect(let connect)? = try? decoder.next() else {
            Issue.record("no CONNECT")
            return
        }
        #expect(connect.properties.sessionExpiryInterval == 100)
        #expect(connect.properties.receiveMaximum == 1024)
        #expect(connect.username == "u")

        actions = []
        let connack = Connack(properties: Connack.Properties(sessionExpiryInterval: 7, serverKeepAlive: 9))
        client.machine.handle(.received(encoded(.connack(connack))), at: client.now, into: &actions)
        guard case .event(.connected(let connected))? = actions.first else {
            Issue.record("not connected")
            return
        }
        #expect(connected.sessionExpiry == 7)
        #expect(connected.keepAlive == 9)
    }

    @Test func `a session that began with a CONNECT whose answer was lost is not reported as unknown`() {
        var client = MQTTClientHarness()
        client.open()
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true) == ["state mismatch", "DISCONNECT 00", "close"])
        client.handle(.connectionClosed)
        #expect(client.connect() == ["connected", "restored"])
        // A CONNECT that was refused has begun none.
        client = MQTTClientHarness()
        client.open()
        client.server(.connack(Connack(reasonCode: .serverBusy)))
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true).first == "unknown session")
    }

    /// [MQTT-3.2.2-2] [MQTT-3.2.2-4]
    @Test func `rule 2: Session Present while we have none closes the connection`() {
        var client = MQTTClientHarness()
        #expect(client.connect(resumed: true) == ["unknown session", "state mismatch", "DISCONNECT 00", "close"])
        client.handle(.connectionClosed)
        #expect(client.open() == ["CONNECT clean"])
        #expect(client.server(.connack(Connack(sessionPresent: true))) == ["violation 82", "DISCONNECT 82", "close"])
    }

    @Test func `a session that is to be discarded is not claimed after a restart either, and is not unknown`() throws {
        var client = MQTTClientHarness(durable: MQTTClientHarness.established()).connected(resumed: true)
        client.handle(.connectionClosed)
        client.handle(.forgetSession)
        #expect(client.changes.last == .setEstablished(false))
        client.handle(.forgetSession)
        #expect(client.changes.filter { $0 == .setEstablished(false) }.count == 1)
        var durable = DurableSession()
        durable.clientID = "me"
        client = MQTTClientHarness(durable: durable)
        #expect(client.connect(resumed: true) == ["state mismatch", "DISCONNECT 00", "close"])
    }

    /// A server may keep a session that began with Clean Start 1 less well than another: mosquitto loses it when it restarts.
    @Test(arguments: [ProtocolVersion.five, .threeOneOne])
    func `a first session begins without Clean Start`(version: ProtocolVersion) {
        var client = MQTTClientHarness { $0.version = version }
        #expect(client.open() == ["CONNECT"])
        // Without an answer, the server may have begun it or not.
        client.handle(.connectionClosed)
        #expect(client.open() == ["CONNECT"])
        #expect(client.server(.connack(Connack())) == ["connected", "restored"])
        client.handle(.connectionClosed)
        #expect(client.open() == ["CONNECT"])
    }

    /// [MQTT-3.1.2-4]
    @Test func `a forced clean start is durable before CONNECT, and loses no message`() throws {
        var client = MQTTClientHarness(
            durable: MQTTClientHarness.established([.inFlight(id(1))], qos: .atLeastOnce))
        client.holdsCommits = true
        #expect(client.open(force: true) == ["commit"])
        #expect(client.changes == [.setEstablished(false)])
        #expect(client.commitAll() == ["CONNECT clean"])
        client.server(.connack(Connack()))
        #expect(client.changes.contains(.unassign(MessageSequence(rawValue: 1))))
        #expect(client.changes.contains(.setEstablished(true)))
    }

    @Test func `rule 18: an assigned client identifier is durable before anything else is sent`() throws {
        var client = MQTTClientHarness { $0.clientID = "" }
        try client.subscribe("f")
        client.open()
        client.holdsCommits = true
        let properties = Connack.Properties(assignedClientID: "given")
        #expect(client.server(.connack(Connack(properties: properties))) == ["connected", "commit"])
        #expect(client.changes.contains(.setAssignedClientID("given")))
        #expect(client.commitAll() == ["SUBSCRIBE f"])
        #expect(client.machine.clientID == "given")
    }

    /// [MQTT-4.13.2-1]
    @Test func `a refusal is reported, and the connection closed without DISCONNECT`() {
        var client = MQTTClientHarness()
        client.open()
        #expect(
            client.server(.connack(Connack(reasonCode: .badUserNameOrPassword))) == ["refused 86", "close"])
        #expect(client.handle(.ping) == [])
    }

    static let intruders: [Packet] = [
        .pingresp, .puback(answer(1)), inbound("x", qos: .atMostOnce), .auth(Auth(reasonCode: .continueAuthentication)),
        .suback(Suback(packetID: id(1), reasonCodes: [.success])),
    ]

    /// [MQTT-3.2.0-1] [MQTT-4.12.0-6]
    @Test(arguments: intruders)
    func `rule 20: the first packet is CONNACK`(packet: Packet) {
        var client = MQTTClientHarness()
        client.open()
        let words = client.server(packet)
        #expect(words.last == "close")
        #expect(words.first?.hasPrefix("violation") == true)
    }

    static let forbidden: [Packet] = [
        .connack(Connack()), .pingreq, .connect(Connect(clientID: "x")), .auth(Auth(reasonCode: .reauthenticate)),
        .subscribe(Subscribe(packetID: id(1), subscriptions: [Subscription(filter: "a")])),
        .unsubscribe(Unsubscribe(packetID: id(1), filters: ["a"])),
    ]

    /// [MQTT-3.2.0-2]
    @Test(arguments: forbidden)
    func `a second CONNACK, or a packet only a client may send, is a violation`(packet: Packet) throws {
        var client = MQTTClientHarness().connected()
        let words = client.server(packet)
        #expect(words.first?.hasPrefix("violation 8") == true)
        #expect(words.dropFirst().first?.hasPrefix("DISCONNECT 8") == true)
        #expect(words.last == "close")
    }

    /// [MQTT-3.2.2-8]
    @Test(arguments: [0x01, 0x18, 0x7F] as [UInt8])
    func `rule 23: a CONNACK that is neither success nor an error is a violation`(code: UInt8) {
        var client = MQTTClientHarness()
        client.open()
        #expect(
            client.server(.connack(Connack(reasonCode: ReasonCode(rawValue: code))))
                == ["violation 82", "DISCONNECT 82", "close"])
    }

    /// [MQTT-4.13.1-1]
    @Test func `rule 23: malformed bytes close with their code`() {
        var client = MQTTClientHarness().connected()
        #expect(
            client.handle(.received(ByteBuffer(bytes: [0x00, 0x00]))) == ["violation 81", "DISCONNECT 81", "close"])
        #expect(client.handle(.received(ByteBuffer(bytes: [0xD0, 0x00]))) == [], "later bytes are ignored")
    }

    /// [MQTT-3.14.4-1] [MQTT-3.14.4-2]
    @Test func `rule 24: nothing is sent after DISCONNECT`() throws {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        try client.publish("a")
        #expect(client.handle(.disconnect(.normalDisconnection)) == ["DISCONNECT 00", "close"])
        #expect(client.commitAll() == ["accepted 1"])
        #expect(client.handle(.ping) == [])
        #expect(client.handle(.disconnect(.normalDisconnection)) == [])
        #expect(try client.publish("b") == ["commit"])
        #expect(client.server(inbound("x", qos: .atLeastOnce, 1)) == [])
    }

    /// [MQTT-4.13.2-1]
    @Test func `the server's DISCONNECT is reported, and nothing is sent after it`() throws {
        var client = MQTTClientHarness().connected()
        let words = client.server(
            .disconnect(Disconnect(reasonCode: .sessionTakenOver)), inbound("x", qos: .atLeastOnce, 1))
        #expect(words == ["disconnected by server 8E", "close"])
    }

    /// [MQTT-3.1.2-20]
    @Test func `a ping is sent as PINGREQ, and its answer is reported`() {
        var client = MQTTClientHarness()
        #expect(client.handle(.ping) == [])
        client.connect()
        #expect(client.handle(.ping) == ["PINGREQ"])
        #expect(client.server(.pingresp) == ["ping answered"])
    }

    // MARK: Inbound

    /// [MQTT-2.2.1-5] [MQTT-4.3.3-8] [MQTT-4.3.3-10] [MQTT-4.3.3-11]
    @Test func `rule 13: an inbound QoS 2 identifier is durable before PUBREC, its removal before PUBCOMP`() {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        #expect(client.server(inbound("x", qos: .exactlyOnce, 5)) == ["received x", "commit"])
        #expect(client.changes.last == .insertInbound(id(5)))
        #expect(client.commitAll() == ["PUBREC 5"])
        #expect(client.server(inbound("x", qos: .exactlyOnce, 5, duplicate: true)) == ["PUBREC 5"])
        #expect(client.server(.pubrel(answer(5))) == ["commit"])
        #expect(client.changes.last == .removeInbound(id(5)))
        #expect(client.commitAll() == ["PUBCOMP 5"])
        #expect(client.server(.pubrel(answer(5))) == ["PUBCOMP 5 92"])
    }

    /// [MQTT-3.1.2-23] [MQTT-4.3.3-10]
    @Test func `a duplicate is known after a restart`() {
        var client = MQTTClientHarness(durable: DurableSession(established: true, inboundIDs: [id(5)])).connected(
            resumed: true)
        #expect(client.server(inbound("x", qos: .exactlyOnce, 5, duplicate: true)) == ["PUBREC 5"])
    }

    @Test func `a new message with an identifier of a session that was lost unnoticed is delivered`() {
        var client = MQTTClientHarness(durable: DurableSession(established: true, inboundIDs: [id(5)])).connected(
            resumed: true)
        #expect(client.server(inbound("x", qos: .exactlyOnce, 5)) == ["received x", "PUBREC 5"])
        #expect(client.server(inbound("x", qos: .exactlyOnce, 5, duplicate: true)) == ["PUBREC 5"])
    }

    /// [MQTT-3.3.4-1] [MQTT-4.6.0-2] [MQTT-4.6.0-3]
    @Test func `rule 11: acknowledgements leave in the order of what they acknowledge`() {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        let words = client.server(
            inbound("a", qos: .exactlyOnce, 1), inbound("b", qos: .atLeastOnce, 2), inbound("c", qos: .exactlyOnce, 3))
        #expect(words == ["received a", "received b", "received c", "commit"])
        #expect(client.commitAll() == ["PUBREC 1", "PUBACK 2", "PUBREC 3"])
    }

    /// [MQTT-3.3.4-9]
    @Test func `rule 10: a server that exceeds our Receive Maximum is told so`() {
        var client = MQTTClientHarness { $0.receiveMaximum = 2 }
        client.connect()
        client.server(inbound("a", qos: .exactlyOnce, 1), inbound("b", qos: .exactlyOnce, 2))
        client.server(inbound("b", qos: .exactlyOnce, 2, duplicate: true))
        #expect(client.server(.pubrel(answer(1))) == ["PUBCOMP 1"])
        #expect(client.server(inbound("c", qos: .atLeastOnce, 3)) == ["received c", "PUBACK 3"])
        #expect(client.server(inbound("d", qos: .exactlyOnce, 4)) == ["received d", "PUBREC 4"])
        #expect(
            client.server(inbound("e", qos: .exactlyOnce, 5)) == ["violation 93", "DISCONNECT 93", "close"])
    }

    /// Seen with mosquitto 2.0.11 after a kill: it sends what it restored from disk at once, whatever the window.
    @Test func `a server that exceeded our Receive Maximum may send as much as it wants on the next connection`() {
        var client = MQTTClientHarness { $0.receiveMaximum = 2 }
        client.connect()
        let messages = [
            inbound("a", qos: .exactlyOnce, 1), inbound("b", qos: .exactlyOnce, 2), inbound("c", qos: .exactlyOnce, 3),
        ]
        for message in messages.dropLast() { client.server(message) }
        #expect(client.server(messages[2]) == ["violation 93", "DISCONNECT 93", "close"])
        client.handle(.connectionClosed)
        client.connect(resumed: true)
        for message in messages.dropLast() { client.server(message) }
        #expect(client.server(messages[2]) == ["received c", "PUBREC 3"])
        let announced = client.sent.compactMap { packet in
            if case .connect(let connect) = packet { connect.properties.receiveMaximum } else { nil }
        }
        #expect(announced == [2, .max])
        for number: UInt16 in 4...2000 {
            #expect(client.server(inbound("d", qos: .exactlyOnce, number)) == ["received d", "PUBREC \(number)"])
        }

        // A server that has lost the session has nothing to send again.
        client.handle(.connectionClosed)
        client.connect(resumed: false)
        client.handle(.connectionClosed)
        client.connect(resumed: true)
        for message in messages.dropLast() { client.server(message) }
        #expect(client.server(messages[2]) == ["violation 93", "DISCONNECT 93", "close"])
    }

    /// [MQTT-3.1.2-26] [MQTT-3.1.2-27] [MQTT-3.3.2-11]
    @Test func `a topic alias from the server is a violation, since we allow none`() {
        var client = MQTTClientHarness().connected()
        let publish = Publish(topic: "t", properties: Publish.Properties(topicAlias: 1))
        #expect(client.server(.publish(publish)) == ["violation 94", "DISCONNECT 94", "close"])
    }

    // MARK: Subscriptions

    @Test func `wanted subscriptions are issued after a full connect, then the session is restored`() throws {
        var client = MQTTClientHarness()
        #expect(try client.subscribe("b") == [])
        #expect(try client.subscribe("a/#") == [])
        client.open()
        #expect(client.server(.connack(Connack())) == ["connected", "SUBSCRIBE a/#", "SUBSCRIBE b"])
        #expect(client.server(.suback(Suback(packetID: id(1), reasonCodes: [.grantedQoS1]))) == ["subscribed a/# 01"])
        #expect(
            client.server(.suback(Suback(packetID: id(2), reasonCodes: [.notAuthorized]))) == [
                "subscribed b 87", "restored",
            ])
    }

    /// [MQTT-3.2.2-5]
    @Test func `rule 6: on resume only the difference is issued`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("kept")
        client.server(.suback(Suback(packetID: id(1), reasonCodes: [.grantedQoS1])))
        try client.subscribe("cut")
        try client.subscribe("stale")
        client.server(.suback(Suback(packetID: id(3), reasonCodes: [.grantedQoS1])))
        client.handle(.connectionClosed)
        let stale = try TopicFilter("stale")
        #expect(client.handle(.unsubscribe(stale)) == ["unsubscribed stale 00"])
        try client.subscribe("new")
        #expect(
            client.connect(resumed: true) == [
                "connected resumed", "UNSUBSCRIBE stale", "SUBSCRIBE cut", "SUBSCRIBE new",
            ])
        client.server(.unsuback(Unsuback(packetID: id(4), reasonCodes: [.success])))
        #expect(client.changes.last == .forgetSubscription(stale))
        client.server(.suback(Suback(packetID: id(5), reasonCodes: [.grantedQoS1])))
        #expect(client.server(.suback(Suback(packetID: id(6), reasonCodes: [.grantedQoS1]))).last == "restored")
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true) == ["connected resumed", "restored"])
        client.handle(.connectionClosed)
        #expect(client.connect() == ["connected session lost", "SUBSCRIBE cut", "SUBSCRIBE kept", "SUBSCRIBE new"])
    }

    @Test(arguments: [ProtocolVersion.five, .threeOneOne])
    func `a session that is resumed after one was lost may be that of another server behind the same address`(
        version: ProtocolVersion
    ) throws {
        var client = MQTTClientHarness { $0.version = version }
        func granted(_ value: UInt16) -> Packet { .suback(Suback(packetID: id(value), reasonCodes: [.grantedQoS1])) }
        client.connect()
        try client.subscribe("a")
        client.server(granted(1))
        client.handle(.connectionClosed)
        #expect(client.connect() == ["connected session lost", "SUBSCRIBE a"])
        client.server(granted(2))
        try client.subscribe("b")
        client.server(granted(3))
        for first: UInt16 in [4, 6] {
            client.handle(.connectionClosed)
            let words = client.connect(resumed: true, expecting: .init(older: LeftSession(), continuity: .likely))
            guard version == .five else {
                #expect(words == ["connected resumed", "SUBSCRIBE a b"])
                let answer = Suback(packetID: id(first / 2 + 2), reasonCodes: [.grantedQoS1, .grantedQoS1])
                #expect(client.server(.suback(answer)).last == "restored")
                continue
            }
            #expect(words == ["connected resumed", "SUBSCRIBE a", "SUBSCRIBE b"])
            #expect(client.subscribes.suffix(2).allSatisfy { $0.subscriptions[0].retainHandling == .sendIfNew })
            client.server(granted(first))
            #expect(client.server(granted(first + 1)).last == "restored")
        }
    }

    @Test func `every subscription is sent again when the answer to CONNECT was lost`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("a")
        client.server(.suback(Suback(packetID: id(1), reasonCodes: [.grantedQoS1])))
        client.handle(.connectionClosed)
        client.open()
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true) == ["connected resumed", "SUBSCRIBE a"])
    }

    @Test func `every subscription is sent again as long as a lost CONNECT may still take effect`()
        throws
    {
        var client = MQTTClientHarness()
        client.open(force: true)
        client.handle(.connectionClosed)
        client.connect()
        try client.subscribe("a")
        client.server(.suback(Suback(packetID: id(1), reasonCodes: [.grantedQoS1])))
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true) == ["connected resumed", "SUBSCRIBE a"])
        client.server(.suback(Suback(packetID: id(2), reasonCodes: [.grantedQoS1])))
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true) == ["connected resumed", "restored"])
    }

    @Test func `every subscription is sent again when another server resumes the session`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("a")
        client.server(.suback(Suback(packetID: id(1), reasonCodes: [.grantedQoS1])))
        client.handle(.connectionClosed)
        #expect(
            client.connect(resumed: true, expecting: .init(isPresent: false)) == ["connected resumed", "SUBSCRIBE a"])
        client.server(.suback(Suback(packetID: id(2), reasonCodes: [.grantedQoS1])))
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true) == ["connected resumed", "restored"])
    }

    @Test func `a subscription is remembered before SUBSCRIBE is sent`() throws {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        #expect(try client.subscribe("a") == ["commit"])
        #expect(client.changes.last == .rememberSubscription(try TopicFilter("a")))
        #expect(client.commitAll() == ["SUBSCRIBE a"])
    }

    static let unavailable: [(Connack.Properties, String, String)] = [
        (
            Connack.Properties(wildcardSubscriptionAvailable: false), "a/+",
            "the server has no subscriptions with wildcards"
        ),
        (
            Connack.Properties(sharedSubscriptionAvailable: false), "$share/g/a",
            "the server has no shared subscriptions"
        ),
        (
            Connack.Properties(maximumPacketSize: 30), String(repeating: "x", count: 40),
            "its packet may have 59 bytes, and the server's limit is 30"
        ),
    ]

    @Test(arguments: unavailable)
    func `rule 19: a subscription that the server does not offer is refused without asking`(
        properties: Connack.Properties, filter: String, why: String
    ) throws {
        var client = MQTTClientHarness()
        try client.subscribe(filter)
        let refusal = "subscribed \(filter): the session does not ask for it, because \(why)"
        #expect(client.connect(resumed: false, properties) == ["connected", refusal, "restored"])
        #expect(try client.subscribe(filter) == [refusal])
    }

    @Test func `each filter has its own subscription identifier, if the server takes any`() throws {
        var client = MQTTClientHarness()
        for filter in ["a/#", "b"] { try client.subscribe(filter) }
        client.connect()
        let identifiers = client.subscribes.map(\.properties.subscriptionID)
        #expect(identifiers == [try TopicFilter("a/#").subscriptionID, try TopicFilter("b").subscriptionID])
        #expect(identifiers.allSatisfy { (1...268_435_455).contains($0 ?? 0) })
        client.handle(.connectionClosed)
        client.connect(Connack.Properties(subscriptionIDsAvailable: false))
        #expect(client.subscribes.last?.properties.subscriptionID == nil)
    }

    @Test func `many subscriptions are sent a few per packet, and a few packets at a time`() throws {
        var client = MQTTClientHarness {
            $0.filtersPerPacket = 2
            $0.maximumSubscribeRequests = 2
        }
        for filter in ["a", "b", "c", "d", "e"] { try client.subscribe(filter) }
        let properties = Connack.Properties(subscriptionIDsAvailable: false)
        #expect(client.connect(properties) == ["connected", "SUBSCRIBE a b", "SUBSCRIBE c d"])
        let granted = [ReasonCode.grantedQoS1, .grantedQoS1]
        #expect(
            client.server(.suback(Suback(packetID: id(1), reasonCodes: granted))) == [
                "subscribed a 01", "subscribed b 01", "SUBSCRIBE e",
            ])
    }

    /// [MQTT-3.8.4-6]
    @Test func `a SUBACK with the wrong number of codes is a violation`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("a")
        let words = client.server(.suback(Suback(packetID: id(1), reasonCodes: [.success, .success])))
        #expect(words == ["violation 82", "DISCONNECT 82", "close"])
    }
}
