import MQTT
import NIOCore
import Support
import Testing

/// What differs on a connection with MQTT 3.1.1.
struct OlderVersionTests {
    private static func machine(
        established: Bool = false, _ states: [StoredMessage.State] = [], clientID: String = "me"
    ) -> MQTTClientHarness {
        var durable = MQTTClientHarness.established(states)
        durable.established = established
        return MQTTClientHarness(durable: durable) {
            $0.version = .threeOneOne
            $0.clientID = clientID
        }
    }

    // MARK: Codec

    @Test func `a server decoder for both versions adopts that of the CONNECT`() throws {
        var decoder = PeerDecoder(adoptsVersion: true)
        decoder.append(ByteBuffer(bytes: bytesOf("10 0D 00 04 4D 51 54 54 04 00 00 3C 00 01 61 30 03 00 01 61")))
        #expect(try decoder.next() == .connect(Connect(clientID: "a", keepAlive: 60)))
        #expect(decoder.version == .threeOneOne)
        #expect(try decoder.next() == .publish(Publish(topic: "a")))
    }

    @Test func `an MQTT 5 client understands a refusal in the form of MQTT 3.1.1`() throws {
        let refusal = try decode([bytesOf("20 02 00 01")], from: .server)
        #expect(refusal == [.connack(Connack(reasonCode: .unsupportedProtocolVersion))])
    }

    @Test func `the window is 20 for a server that cannot announce its Receive Maximum`() throws {
        var harness = Self.machine()
        harness.open()
        harness.server(.connack(Connack()))
        for number in 1...25 { try harness.publish("\(number)", qos: .exactlyOnce) }
        #expect(harness.publishes.count == 20)
        harness.server(.pubrec(answer(1)), .pubcomp(answer(1)))
        #expect(harness.publishes.count == 21)
    }

    // MARK: The beginning of a session

    @Test func `a first session starts without Clean Session, so that the server keeps it`() {
        var harness = Self.machine()
        #expect(harness.open() == ["CONNECT"])
        #expect(harness.server(.connack(Connack())) == ["connected", "restored"])
        #expect(harness.changes == [.setEstablished(true), .setClientID(harness.machine.clientID)])
    }

    @Test func `a session that only the server has is discarded first, by a separate connection`() {
        var harness = Self.machine()
        harness.machine.configuration.will = Will(topic: "w")
        harness.open()
        #expect(
            harness.server(.connack(Connack(sessionPresent: true)))
                == ["unknown session", "state mismatch", "close"], "DISCONNECT would discard the will")
        harness.handle(.connectionClosed)
        // The session asks for this after a mismatch.
        #expect(harness.open(force: true) == ["CONNECT clean"])
        #expect(harness.server(.connack(Connack())) == ["discarded", "DISCONNECT 00", "close"])
        harness.handle(.connectionClosed)
        #expect(harness.open(force: true) == ["CONNECT"])
        #expect(harness.server(.connack(Connack())) == ["connected", "restored"])
        harness.handle(.connectionClosed)
        #expect(harness.open() == ["CONNECT"])
        #expect(harness.server(.connack(Connack(sessionPresent: true))) == ["connected resumed", "restored"])
    }

    @Test func `a server may forget the discarded session a little late`() {
        var harness = Self.machine()
        var words: [String?] = []
        for isPresent in [true, false, true, false, false] {
            harness.open(force: !words.isEmpty)
            words.append(harness.server(.connack(Connack(sessionPresent: isPresent))).first)
            harness.handle(.connectionClosed)
        }
        #expect(words == ["unknown session", "discarded", "state mismatch", "discarded, late", "connected"])
    }

    @Test func `the connection that discards a session has no will`() throws {
        var harness = Self.machine(established: true)
        harness.machine.configuration.will = Will(topic: "w")
        var wills: [Will?] = []
        for _ in 0..<2 {
            var actions: [MQTTClientMachine.Action] = []
            harness.machine.handle(
                .connectionOpened(MQTTCredentials(), forceCleanStart: true), at: harness.now, into: &actions)
            for case .commit(_, let number) in actions {
                harness.machine.handle(.committed(number), at: harness.now, into: &actions)
            }
            for case .send(let bytes, _) in actions {
                let packets = try decode([Array(bytes.readableBytesView)], from: .client, in: .threeOneOne)
                if case .connect(let connect)? = packets.first { wills.append(connect.will) }
            }
            harness.server(.connack(Connack()))
            harness.handle(.connectionClosed)
        }
        #expect(wills == [nil, Will(topic: "w")])
    }

    @Test func `unanswered messages are sent as new ones after the server's session is discarded`() {
        var harness = Self.machine(established: true, [.inFlight(id(4))])
        #expect(harness.open(force: true) == ["CONNECT clean"])
        #expect(harness.changes == [.setEstablished(false)])
        #expect(harness.server(.connack(Connack())) == ["discarded", "DISCONNECT 00", "close"])
        harness.handle(.connectionClosed)
        #expect(harness.open(force: true) == ["CONNECT"])
        #expect(harness.server(.connack(Connack())) == ["connected", "repeated 1", "restored", "load after 0"])
        #expect(harness.changes.last == .unassign(MessageSequence(rawValue: 1)))
    }

    @Test func `without an identifier every session is a new one`() {
        var harness = Self.machine(clientID: "")
        for _ in 0..<2 {
            #expect(harness.open() == ["CONNECT clean"])
            #expect(harness.server(.connack(Connack())).first?.hasPrefix("connected") == true)
            harness.handle(.connectionClosed)
        }
    }

    @Test func `CONNECT carries no properties, and a password a user name`() throws {
        var harness = Self.machine()
        var actions: [MQTTClientMachine.Action] = []
        harness.machine.handle(
            .connectionOpened(MQTTCredentials(password: ByteBuffer(string: "p")), forceCleanStart: false),
            at: harness.now, into: &actions)
        guard case .send(let bytes, _)? = actions.first else { return #expect(Bool(false), "nothing was sent") }
        #expect(
            Array(bytes.readableBytesView)
                == bytesOf("10 13 00 04 4D 51 54 54 04 C0 00 3C 00 02 6D 65 00 00 00 01 70"))
    }

    // MARK: What goes on

    @Test func `a resumed session goes on with DUP and PUBREL in the original order`() {
        var harness = Self.machine(established: true, [.inFlight(id(4)), .released(id(5)), .inFlight(id(6))])
        harness.open()
        let words = harness.server(.connack(Connack(sessionPresent: true)))
        #expect(words.filter { $0.hasPrefix("PUB") } == ["PUBREL 5", "PUBLISH 1 id 4 DUP", "PUBLISH 3 id 6 DUP"])
        #expect(harness.server(.pubrec(answer(4)), .pubcomp(answer(5))).contains("PUBREL 4"))
        #expect(harness.server(.pubcomp(answer(4))).contains("delivered 1 00"))
    }

    @Test func `UNSUBACK without codes means success, and SUBACK has one error code`() throws {
        var harness = Self.machine()
        harness.connect()
        #expect(try harness.subscribe("a") == ["SUBSCRIBE a"])
        #expect(
            harness.server(.suback(Suback(packetID: id(1), reasonCodes: [.unspecifiedError]))) == ["subscribed a 80"])
        #expect(try harness.subscribe("b") == ["SUBSCRIBE b"])
        harness.server(.suback(Suback(packetID: id(2), reasonCodes: [.grantedQoS1])))
        #expect(harness.handle(.unsubscribe(try TopicFilter("b"))) == ["UNSUBSCRIBE b"])
        #expect(harness.server(.unsuback(Unsuback(packetID: id(3), reasonCodes: []))) == ["unsubscribed b 00"])
    }

    @Test func `a shared subscription is refused, since it would be an ordinary filter there`() throws {
        var harness = Self.machine()
        harness.connect()
        let words = "the session does not ask for it, because MQTT 3.1.1 has no shared subscriptions"
        #expect(try harness.subscribe("$share/g/a") == ["subscribed $share/g/a: \(words)"])
    }

    @Test func `the server may send more at once than our Receive Maximum, which it was not told`() {
        var harness = Self.machine()
        harness.machine.configuration.receiveMaximum = 1
        harness.holdsCommits = true
        harness.connect()
        harness.commitAll()
        harness.holdsCommits = false
        harness.server(inbound("x", qos: .exactlyOnce, 1))
        #expect(harness.server(inbound("y", qos: .exactlyOnce, 2)) == ["received y", "PUBREC 2"])
    }

    @Test func `our own window limits the messages in flight`() throws {
        var harness = Self.machine()
        harness.machine.configuration.inFlight.messages = 1
        harness.connect()
        try harness.publish("1")
        #expect(try harness.publish("2") == ["accepted 2"])
    }

    @Test func `a PUBACK for a QoS 2 message is accepted as delivery, and reported once`() throws {
        var harness = Self.machine()
        harness.connect()
        try harness.publish("a", qos: .exactlyOnce)
        try harness.publish("b", qos: .exactlyOnce)
        try harness.publish("c", qos: .exactlyOnce)
        #expect(harness.server(.puback(answer(1))) == ["QoS lowered", "delivered 1 00"])
        #expect(harness.server(.puback(answer(2))) == ["delivered 2 00"])
        // Not while an exchange of QoS 2 is under way.
        #expect(harness.server(.pubrec(answer(3))) == ["PUBREL 3"])
        #expect(harness.server(.puback(answer(3))) == ["violation 82", "close"])
    }

    @Test func `a violation closes without DISCONNECT, which would discard the will`() {
        var harness = Self.machine()
        harness.connect()
        #expect(harness.server(.pingresp, .connack(Connack())) == ["violation 82", "close"])
    }

    @Test func `leaving with the will closes without DISCONNECT, leaving without it sends DISCONNECT`() {
        for (code, words) in [
            (ReasonCode.disconnectWithWill, ["close"]), (.normalDisconnection, ["DISCONNECT 00", "close"]),
        ] {
            var harness = Self.machine()
            harness.connect()
            #expect(harness.handle(.disconnect(code)) == words)
        }
    }

    // MARK: Messages

    private static let request = OutboundMessage(topic: "t", properties: .init(responseTopic: "r"))

    @Test func `a message with properties is refused, connected or not`() {
        var harness = Self.machine()
        for isConnected in [false, true] {
            if isConnected { harness.connect() }
            var actions: [MQTTClientMachine.Action] = []
            #expect(throws: MQTTClientMachine.PublishError.propertiesNotSupported) {
                try harness.machine.publish(Self.request, at: harness.now, into: &actions)
            }
        }
    }

    @Test func `a message accepted for MQTT 5 is quarantined and blocks nothing`() throws {
        var harness = Self.machine()
        harness.machine.configuration.version = .five
        var actions: [MQTTClientMachine.Action] = []
        _ = try harness.machine.publish(Self.request, at: harness.now, into: &actions)
        _ = harness.describe(actions)
        try harness.publish("behind")
        harness.machine.configuration.version = .threeOneOne
        let words = harness.connect()
        #expect(words.contains("rejected 1 without a code"))
        #expect(words.contains("PUBLISH behind id 1"))
    }

    @Test func `a message that needs MQTT 5 ends a connection with a server that may speak it`() throws {
        var harness = Self.machine()
        harness.machine.configuration.version = .five
        var actions: [MQTTClientMachine.Action] = []
        _ = try harness.machine.publish(Self.request, at: harness.now, into: &actions)
        _ = harness.describe(actions)
        harness.machine.configuration.version = .threeOneOne
        harness.machine.configuration.isVersionTentative = true
        #expect(harness.connect().suffix(3) == ["version insufficient", "DISCONNECT 00", "close"])
        #expect(harness.machine.counts.quarantined == 0 && harness.machine.counts.queued == 1)
        harness.handle(.connectionClosed)
        harness.machine.configuration.isVersionTentative = false
        #expect(harness.connect(resumed: true).contains("rejected 1 without a code"))
    }

    @Test(arguments: QoS.allCases)
    func `a message that needs MQTT 5 is not sent without its properties to a server that may speak it`(qos: QoS) throws
    {
        var harness = Self.machine()
        harness.machine.configuration.isVersionTentative = true
        harness.connect()
        var request = Self.request
        request.qos = qos
        var actions: [MQTTClientMachine.Action] = []
        _ = try harness.machine.publish(request, at: harness.now, into: &actions)
        let words = harness.describe(actions)
        #expect(words.contains("version insufficient") && words.contains("DISCONNECT 00"))
        #expect(harness.publishes.isEmpty && harness.machine.counts.queued == 1)
    }

    @Test func `a publication that needs MQTT 5 ends a connection with a server that may speak it`() throws {
        var harness = Self.machine()
        harness.machine.configuration.isVersionTentative = true
        harness.connect()
        try harness.machine.checkContent(of: Self.request)
        var actions: [MQTTClientMachine.Action] = []
        let announcement = Announcement(topic: "t", properties: Self.request.properties)
        harness.machine.announce(announcement, at: harness.now, into: &actions)
        #expect(harness.describe(actions) == ["version insufficient", "DISCONNECT 00", "close"])
        harness.handle(.connectionClosed)
        harness.machine.configuration.isVersionTentative = false
        harness.connect(resumed: true)
        actions = []
        harness.machine.announce(announcement, at: harness.now, into: &actions)
        let words = "the session does not send it, because a message of MQTT 3.1.1 has no properties"
        #expect(harness.describe(actions) == ["announced t: \(words)"])
    }

    @Test func `the expiry is kept although it is not sent`() throws {
        var harness = Self.machine()
        try harness.publish("late", expiresIn: 1000)
        try harness.publish("in time", expiresIn: 3000)
        harness.now = Timestamp(rawValue: harness.now.rawValue + 2000)
        let words = harness.connect()
        #expect(words.contains("expired 1"))
        #expect(harness.publishes.map { String(buffer: $0.payload) } == ["in time"])
        #expect(harness.publishes.first?.properties == Publish.Properties())
    }

    @Test func `a session may be resumed with the other version`() throws {
        var harness = Self.machine()
        harness.connect()
        try harness.publish("x")
        harness.handle(.connectionClosed)
        harness.machine.configuration.version = .five
        #expect(harness.open() == ["CONNECT"])
        #expect(harness.server(.connack(Connack(sessionPresent: true))).contains("PUBLISH x id 1 DUP"))
        #expect(harness.machine.version == .five)
    }
}
