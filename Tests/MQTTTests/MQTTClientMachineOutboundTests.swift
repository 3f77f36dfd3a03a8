import NIOCore
import Support
import Testing

@testable import MQTT

/// Rules 3, 4, 5, 7, 8, 9, 14, 17, 22 of Documentation/MQTT-rules.md, and how messages are accepted.
@Suite struct MQTTClientMachineOutboundTests {
    @Test func `topics that look alike but differ in bytes have different aliases`() throws {
        var client = MQTTClientHarness().connected(Connack.Properties(topicAliasMaximum: 2))
        for topic in ["a/caf\u{E9}", "a/cafe\u{301}", "a/cafe\u{301}"] { try client.publish("x", topic: topic) }
        #expect(client.publishes.map(\.properties.topicAlias) == [1, 2, 2])
        #expect(client.publishes.map(\.topic.utf8.count) == [7, 8, 0])
    }

    @Test func `a message is sent and accepted only when its row and identifier are durable`() throws {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        client.changes = []
        #expect(try client.publish("a") == ["commit"])
        guard case .insert(let stored)? = client.changes.first else {
            Issue.record("no insert")
            return
        }
        #expect(stored.state == .inFlight(id(1)), "the fast path needs one commit")
        #expect(client.commitAll() == ["accepted 1", "PUBLISH a id 1"])
    }

    @Test func `messages accepted together are one commit, before anything else`() throws {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        client.changes = []
        for payload in ["a", "b"] { try client.accept(payload) }
        #expect(client.changes == [])
        #expect(client.commitAccepted() == ["commit"])
        #expect(client.commitAccepted() == [])
        #expect(client.changes.count == 2)
        #expect(client.commitAll() == ["accepted 1", "accepted 2", "PUBLISH a id 1", "PUBLISH b id 2"])

        for payload in ["c", "d"] { try client.accept(payload) }
        client.changes = []
        #expect(client.server(.puback(answer(1))) == ["delivered 1 00", "commit"])
        let sequences = client.changes.map { change in
            if case .insert(let stored) = change { stored.sequence.rawValue } else { Int64(0) }
        }
        #expect(sequences == [3, 4, 0], "accepted messages come first")
        #expect(client.commitAll() == ["accepted 3", "accepted 4", "PUBLISH c id 3", "PUBLISH d id 4"])
    }

    @Test func `a large payload is sent as it is, without a copy`() throws {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        let large = String(repeating: "x", count: 64 << 10)
        for payload in ["a", large, large, "b"] { try client.accept(payload) }
        _ = client.commitAccepted()
        var actions: [MQTTClientMachine.Action] = []
        client.machine.handle(.committed(try #require(client.heldCommits.last)), at: client.now, into: &actions)
        let pieces = actions.compactMap { action -> ByteBuffer? in
            if case .send(let bytes, _) = action { bytes } else { nil }
        }
        #expect(pieces.map { $0 == ByteBuffer(string: large) } == [false, true, false, true, false])
        let flushes = actions.compactMap { action -> Bool? in
            if case .send(_, let flush) = action { flush != nil } else { nil }
        }
        #expect(flushes == [false, false, false, false, true], "what was sent is flushed with the last piece")
        _ = client.describe(actions)
        #expect(client.publishes.map(\.payload.readableBytes) == [1, 64 << 10, 64 << 10, 1])
    }

    @Test func `accepted messages are committed when the connection ends right afterwards`() throws {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        for payload in ["a", "b"] { try client.accept(payload) }
        #expect(client.handle(.connectionClosed) == ["commit"])
        #expect(client.commitAll() == ["accepted 1", "accepted 2"])
        client.holdsCommits = false
        #expect(client.connect(resumed: true) == ["connected resumed", "restored", "PUBLISH a id 1", "PUBLISH b id 2"])
    }

    @Test func `offline messages are accepted, kept, and sent in order when connected`() throws {
        var client = MQTTClientHarness()
        #expect(try client.publish("a") == ["accepted 1"])
        #expect(try client.publish("b", qos: .atMostOnce) == ["accepted 2"])
        #expect(try client.publish("c", qos: .exactlyOnce) == ["accepted 3"])
        #expect(client.open() == ["CONNECT"])
        #expect(
            client.server(.connack(Connack())) == [
                "connected", "restored", "PUBLISH a id 1", "PUBLISH b", "PUBLISH c id 2",
            ])
    }

    @Test func `PUBACK delivers and removes the message`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a")
        #expect(client.machine.counts == .init(inFlight: 1, bytes: 2))
        #expect(client.server(.puback(answer(1, .noMatchingSubscribers))) == ["delivered 1 10"])
        #expect(client.changes.last == .acknowledge(MessageSequence(rawValue: 1)))
        #expect(client.machine.counts == .init())
    }

    /// [MQTT-4.3.3-4]
    @Test func `PUBREC is durable before PUBREL is sent`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: .exactlyOnce)
        client.holdsCommits = true
        #expect(client.server(.pubrec(answer(1))) == ["commit"])
        #expect(client.changes.last == .release(MessageSequence(rawValue: 1)))
        #expect(client.commitAll() == ["PUBREL 1"])
        #expect(client.server(.pubcomp(answer(1))) == ["delivered 1 00", "commit"])
    }

    /// A server may pass on a message of QoS 2 when it gets the PUBREL only.
    @Test(arguments: [QoS.atMostOnce, .atLeastOnce])
    func `a message that follows one of QoS 2 is sent after its PUBREL, so that subscribers get them in order`(
        qos: QoS
    ) throws {
        let packet = qos == .atMostOnce ? "PUBLISH b" : "PUBLISH b id 2"
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: .exactlyOnce)
        #expect(try client.publish("b", qos: qos) == ["accepted 2"])
        #expect(try client.publish("c", qos: qos, topic: "other") == ["accepted 3"], "in the order of acceptance")
        let sent = client.server(.pubrec(answer(1)))
        #expect(Array(sent.prefix(2)) == ["PUBREL 1", packet])
        #expect(sent.contains { $0.hasPrefix("PUBLISH c") })
    }

    @Test func `a message of another topic does not wait for one of QoS 2`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: .exactlyOnce)
        #expect(try client.publish("b", topic: "other") == ["accepted 2", "PUBLISH b id 2"])
        #expect(try client.publish("c", qos: .exactlyOnce) == ["accepted 3", "PUBLISH c id 3"])
    }

    @Test func `nothing waits any longer for a message of QoS 2 that two connections have left unanswered`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: .exactlyOnce)
        #expect(try client.publish("b") == ["accepted 2"])
        var words: [String] = []
        for round in 1...2 {
            client.flush()
            client.now = client.now.advanced(by: 60_000)
            #expect(client.handle(.timePassed) == ["PINGREQ"])
            #expect(client.server(.pingresp).contains("close"))
            client.handle(.connectionClosed)
            words = client.connect(resumed: true)
            #expect(words.contains("PUBLISH b id 2") == (round == 2), "\(words)")
        }
        #expect(words.contains("PUBLISH a id 1 DUP"))
    }

    @Test func `what is sent again keeps to the order of a topic`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: .exactlyOnce)
        try client.publish("b")
        client.handle(.connectionClosed)
        client.open()
        let again = client.server(.connack(Connack(sessionPresent: true)))
        #expect(again.contains("PUBLISH a id 1 DUP") && !again.contains { $0.hasPrefix("PUBLISH b") }, "\(again)")
        #expect(Array(client.server(.pubrec(answer(1))).prefix(2)) == ["PUBREL 1", "PUBLISH b id 2"])
    }

    @Test func `rule 14: an acknowledgement for a dead connection is not sent on the next`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: .exactlyOnce)
        client.holdsCommits = true
        client.server(.pubrec(answer(1)), inbound("x", qos: .exactlyOnce, 9), inbound("y", qos: .atLeastOnce, 8))
        client.handle(.connectionClosed)
        #expect(client.commitAll() == [])
        #expect(client.open() == ["CONNECT"])
        #expect(
            client.server(.connack(Connack(sessionPresent: true))) == ["connected resumed", "restored", "PUBREL 1"])
    }

    /// [MQTT-3.2.2-5]
    @Test func `rule 3: a lost session requeues messages in flight in front, and counts released ones as delivered`()
        throws
    {
        var client = MQTTClientHarness().connected()
        for payload in ["a", "b", "c"] { try client.publish(payload, qos: .exactlyOnce) }
        client.server(.pubrec(answer(2)))
        client.handle(.connectionClosed)
        try client.publish("d")
        client.open()
        #expect(
            client.server(.connack(Connack())) == [
                "connected session lost", "delivered 2 00", "repeated 2", "restored", "load after 0",
            ])
        let queued = [("a", 1), ("c", 3), ("d", 4)].map { payload, sequence in
            StoredMessage(
                sequence: MessageSequence(rawValue: Int64(sequence)),
                message: OutboundMessage(topic: "t", payload: ByteBuffer(string: payload), qos: .exactlyOnce))
        }
        let sent = client.handle(.loaded(queued))
        #expect(sent.map { $0.prefix(9) } == ["PUBLISH a", "PUBLISH c", "PUBLISH d"])
        #expect(!sent.contains { $0.hasSuffix("DUP") })
    }

    /// [MQTT-3.1.2-23] [MQTT-3.3.1-1] [MQTT-4.3.2-3] [MQTT-4.3.3-3] [MQTT-4.3.3-5] [MQTT-4.4.0-1] [MQTT-4.6.0-1]
    @Test func `rule 4: a resume sends unacknowledged messages again, before new ones`() throws {
        var client = MQTTClientHarness(
            durable: MQTTClientHarness.established([.inFlight(id(7)), .released(id(3)), .inFlight(id(5))]))
        try client.publish("new", topic: "other")
        #expect(client.open() == ["CONNECT"])
        #expect(
            client.server(.connack(Connack(sessionPresent: true))) == [
                "connected resumed", "restored", "PUBREL 3", "PUBLISH 1 id 7 DUP", "PUBLISH 3 id 5 DUP",
                "PUBLISH new id 6",
            ])
        #expect(
            client.handle(.committed(CommitNumber(rawValue: 0))) == [], "nothing is sent again on the same connection")
    }

    /// [MQTT-3.3.1-3]
    @Test func `a message that has an identifier but was never sent has no DUP`() throws {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        try client.publish("a")
        client.handle(.connectionClosed)
        client.commitAll()
        #expect(client.connect(resumed: true) == ["connected resumed", "restored", "PUBLISH a id 1"])
    }

    /// [MQTT-4.4.0-2]
    @Test(arguments: [QoS.atLeastOnce, .exactlyOnce])
    func `rule 5: an acknowledgement of 0x80 or more quarantines, and the rest goes on`(qos: QoS) throws {
        var client = MQTTClientHarness().connected(resumed: false, Connack.Properties(receiveMaximum: 1))
        try client.publish("a", qos: qos)
        try client.publish("b", qos: qos)
        let refusal = answer(1, .notAuthorized)
        let answer: Packet = qos == .atLeastOnce ? .puback(refusal) : .pubrec(refusal)
        #expect(client.server(answer) == ["rejected 1 87", "PUBLISH b id 2"])
        #expect(client.machine.counts == .init(inFlight: 1, quarantined: 1, bytes: 4))
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true) == ["connected resumed", "restored", "PUBLISH b id 2 DUP"])
    }

    /// [MQTT-3.3.4-7] [MQTT-4.9.0-1] [MQTT-4.9.0-2]
    @Test func `rule 8: the server's Receive Maximum also limits messages sent again`() throws {
        var client = MQTTClientHarness(
            durable: MQTTClientHarness.established(
                [.inFlight(id(1)), .inFlight(id(2)), .inFlight(id(3))], qos: .atLeastOnce))
        try client.publish("new")
        let properties = Connack.Properties(receiveMaximum: 2)
        #expect(
            client.connect(resumed: true, properties) == [
                "connected resumed", "restored", "PUBLISH 1 id 1 DUP", "PUBLISH 2 id 2 DUP",
            ])
        #expect(client.server(.puback(answer(1))) == ["delivered 1 00", "PUBLISH 3 id 3 DUP"])
        #expect(client.server(.puback(answer(2))) == ["delivered 2 00", "PUBLISH new id 4"])
    }

    @Test func `messages in flight have a limit in bytes, and a larger one goes out alone`() throws {
        var client = MQTTClientHarness { $0.inFlight.bytes = 10 }
        client.connect()
        // Each has one more byte: its topic.
        #expect(try client.publish("1234").contains("PUBLISH 1234 id 1"))
        #expect(try client.publish("567", qos: .exactlyOnce).contains("PUBLISH 567 id 2"))
        #expect(try client.publish("8") == ["accepted 3"])
        #expect(client.server(.pubrec(answer(2))) == ["PUBREL 2"], "the store has it until PUBCOMP")
        #expect(client.server(.pubcomp(answer(2))) == ["delivered 2 00", "PUBLISH 8 id 3"])
        #expect(try client.publish("larger than all of the limit") == ["accepted 4"])
        #expect(try client.publish("x") == ["accepted 5"])
        #expect(client.server(.puback(answer(1))) == ["delivered 1 00"])
        #expect(client.server(.puback(answer(3))) == ["delivered 3 00", "PUBLISH larger than all of the limit id 4"])
        #expect(client.server(.puback(answer(4))) == ["delivered 4 00", "PUBLISH x id 5"])
    }

    @Test func `what is in flight since before a start counts, and is sent again whatever the limit is`() throws {
        var client = MQTTClientHarness(
            durable: MQTTClientHarness.established(
                [.inFlight(id(1)), .inFlight(id(2)), .inFlight(id(3))], qos: .atLeastOnce)
        ) { $0.inFlight.bytes = 5 }
        try client.publish("4")
        #expect(
            client.connect(resumed: true) == [
                "connected resumed", "restored", "PUBLISH 1 id 1 DUP", "PUBLISH 2 id 2 DUP", "PUBLISH 3 id 3 DUP",
            ])
        #expect(client.server(.puback(answer(1))) == ["delivered 1 00"])
        #expect(client.server(.puback(answer(2))) == ["delivered 2 00", "PUBLISH 4 id 4"])
    }

    /// [MQTT-3.3.4-8] [MQTT-4.9.0-3]
    @Test func `rule 9: a full window delays only PUBLISH`() throws {
        var client = MQTTClientHarness().connected(resumed: false, Connack.Properties(receiveMaximum: 1))
        try client.publish("a", qos: .exactlyOnce)
        #expect(try client.publish("b") == ["accepted 2"])
        #expect(client.server(.pubrec(answer(1))) == ["PUBREL 1"])
        #expect(client.server(inbound("x", qos: .atLeastOnce, 1)) == ["received x", "PUBACK 1"])
        #expect(client.server(.pubcomp(answer(1))) == ["delivered 1 00", "PUBLISH b id 2"])
    }

    /// [MQTT-3.3.1-2] [MQTT-4.3.1-1]
    @Test func `a QoS 0 message stays in the store until it is flushed, and is sent again if it was not`() throws {
        var client = MQTTClientHarness().connected()
        #expect(try client.publish("a", qos: .atMostOnce) == ["accepted 1", "PUBLISH a"])
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true) == ["connected resumed", "restored", "PUBLISH a"])
        let flush = try #require(client.lastFlush)
        #expect(client.handle(.flushed(flush)) == ["delivered 1 00"])
        #expect(client.changes.last == .remove(MessageSequence(rawValue: 1)))
    }

    @Test func `sending pauses while the transport does not flush`() throws {
        var client = MQTTClientHarness { $0.unflushed.qos0 = 2 }
        client.connect()
        for payload in ["a", "b"] { try client.publish(payload, qos: .atMostOnce) }
        #expect(try client.publish("c", qos: .atMostOnce) == ["accepted 3"])
        let flush = try #require(client.lastFlush)
        #expect(client.handle(.flushed(flush)) == ["delivered 1 00", "delivered 2 00", "PUBLISH c"])
    }

    /// [MQTT-4.3.3-7]
    @Test func `rule 22: a message expires before its first send only`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("sent", expiresIn: 5000)
        client.handle(.connectionClosed)
        try client.publish("waits", expiresIn: 5000)
        client.now = Timestamp(rawValue: client.now.rawValue + 6000)
        #expect(
            client.connect(resumed: true) == ["connected resumed", "restored", "expired 2", "PUBLISH sent id 1 DUP"])
        #expect(client.machine.counts == .init(inFlight: 1, bytes: 5))
    }

    @Test func `the expiry interval sent is the time left`() throws {
        var client = MQTTClientHarness()
        try client.publish("a", expiresIn: 10_000)
        client.now = Timestamp(rawValue: client.now.rawValue + 3500)
        client.connect()
        #expect(client.publishes.map(\.properties.messageExpiryInterval) == [7])
    }

    struct Limit: Sendable {
        var properties: Connack.Properties
        var message: OutboundMessage
        var error: MQTTClientMachine.PublishError
        var why: String
    }

    static let limits = [
        Limit(
            properties: Connack.Properties(maximumQoS: .atLeastOnce),
            message: OutboundMessage(topic: "t", qos: .exactlyOnce),
            error: .qosNotSupported(maximum: .atLeastOnce), why: "the server accepts QoS 1 at most"),
        Limit(
            properties: Connack.Properties(retainAvailable: false),
            message: OutboundMessage(topic: "t", retain: true),
            error: .retainNotSupported, why: "the server does not retain messages"),
        Limit(
            properties: Connack.Properties(maximumPacketSize: 100),
            message: OutboundMessage(topic: "t", payload: ByteBuffer(repeating: 0, count: 95)),
            error: .tooLarge(103, limit: 100),
            why: "its packet has 103 bytes, and the server's limit is 100"),
    ]

    /// [MQTT-3.2.2-11] [MQTT-3.2.2-14] [MQTT-3.2.2-15]
    @Test(arguments: limits)
    func `rule 17: a message that the server cannot take is refused, or quarantined when found later`(limit: Limit)
        throws
    {
        var online = MQTTClientHarness().connected(resumed: false, limit.properties)
        var actions: [MQTTClientMachine.Action] = []
        #expect(throws: limit.error) {
            try online.machine.publish(limit.message, at: online.now, into: &actions)
        }
        #expect(actions.isEmpty)

        var offline = MQTTClientHarness()
        _ = try offline.machine.publish(limit.message, at: offline.now, into: &actions)
        _ = offline.describe(actions)
        #expect(offline.connect(resumed: false, limit.properties).contains("rejected 1 without a code"))
        // The server has said nothing about the message.
        let words = "the session does not send it, because \(limit.why)"
        #expect(offline.changes.contains(.quarantine(MessageSequence(rawValue: 1), nil, words)))

        var replayed = MQTTClientHarness(
            durable: DurableSession(
                established: true, nextSequence: MessageSequence(rawValue: 2),
                inFlight: [
                    StoredMessage(
                        sequence: MessageSequence(rawValue: 1), message: limit.message, state: .inFlight(id(1)))
                ]))
        let done = replayed.connect(resumed: true, limit.properties)
        #expect(done.contains("rejected 1 without a code"))
        #expect(!done.contains { $0.hasPrefix("PUBLISH") })
    }

    /// [MQTT-3.3.2-2] [MQTT-4.7.3-1] [MQTT-4.7.3-2] [MQTT-4.7.3-3]
    @Test(arguments: ["", "a/+", "#", "a\0b", LongText("x", 65_536)])
    func `an invalid topic is refused`(topic: LongText) {
        var client = MQTTClientHarness()
        #expect(throws: MQTTClientMachine.PublishError.self) { try client.publish("x", topic: topic.text) }
        #expect(client.machine.counts == .init())
    }

    @Test func `a full outbox refuses messages, by count and by bytes`() throws {
        var few = MQTTClientHarness { $0.outbox.messages = 1 }
        try few.publish("a")
        #expect(throws: MQTTClientMachine.PublishError.outboxFull) { try few.publish("b") }
        var small = MQTTClientHarness { $0.outbox.bytes = 3 }
        try small.publish("a")
        #expect(throws: MQTTClientMachine.PublishError.outboxFull) { try small.publish("b") }
    }

    @Test func `a message without room in the store is not accepted, and the rest goes on`() throws {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        try client.publish("a")
        try client.publish("b")
        let (first, second) = (client.heldCommits[0], client.heldCommits[1])
        #expect(client.handle(.committedWithoutInserts(first)) == ["not accepted 1"])
        #expect(client.handle(.committed(second)) == ["accepted 2", "PUBLISH b id 2"])
        #expect(client.machine.counts == .init(inFlight: 1, bytes: 2))
    }

    @Test func `a queued message gets no identifier before its insert is durable`() throws {
        var client = MQTTClientHarness().connected(resumed: false, Connack.Properties(receiveMaximum: 1))
        try client.publish("a")
        client.holdsCommits = true
        try client.publish("b")
        #expect(client.server(.puback(answer(1))) == ["delivered 1 00", "commit"])
        #expect(client.handle(.committedWithoutInserts(client.heldCommits[0])) == ["not accepted 2"])
        #expect(client.handle(.committed(client.heldCommits[1])) == [])
        #expect(client.machine.counts == .init())
    }

    @Test func `messages beyond the read-ahead are loaded from the store when there is room`() throws {
        var client = MQTTClientHarness { $0.readAhead.messages = 2 }
        for payload in ["a", "b", "c", "d"] { try client.publish(payload) }
        #expect(
            client.connect() == ["connected", "restored", "load after 2", "PUBLISH a id 1", "PUBLISH b id 2"])
        #expect(try client.publish("e") == ["accepted 5"], "not before the messages in the store")
        let stored = ["c", "d", "e"].enumerated().map { offset, payload in
            StoredMessage(
                sequence: MessageSequence(rawValue: Int64(3 + offset)),
                message: OutboundMessage(topic: "t", payload: ByteBuffer(string: payload)))
        }
        #expect(client.handle(.loaded(stored)) == ["PUBLISH c id 3", "PUBLISH d id 4", "PUBLISH e id 5"])
        #expect(try client.publish("f") == ["accepted 6", "PUBLISH f id 6"])
    }

    @Test func `a load that was under way when the session was lost is repeated`() throws {
        var client = MQTTClientHarness(
            durable: DurableSession(
                established: true, nextSequence: MessageSequence(rawValue: 3),
                inFlight: MQTTClientHarness.established([.inFlight(id(1))]).inFlight, queuedCount: 1, queuedBytes: 2))
        let stored = ["1", "b"].enumerated().map { offset, payload in
            StoredMessage(
                sequence: MessageSequence(rawValue: Int64(1 + offset)),
                message: OutboundMessage(topic: "t", payload: ByteBuffer(string: payload)))
        }
        #expect(client.connect(resumed: true) == ["connected resumed", "restored", "load after 0"])
        client.handle(.connectionClosed)
        client.connect()
        #expect(client.handle(.loaded([stored[1]])) == ["load after 0"], "read before message 1 was queued again")
        #expect(client.handle(.loaded(stored)) == ["PUBLISH 1 id 2", "PUBLISH b id 3"])
    }

    @Test func `a message in flight before a restart waits until the messages before it are known`() throws {
        var client = MQTTClientHarness(
            durable: DurableSession(
                established: true, nextSequence: MessageSequence(rawValue: 4),
                inFlight: [
                    StoredMessage(
                        sequence: MessageSequence(rawValue: 2),
                        message: OutboundMessage(topic: "t", payload: ByteBuffer(string: "b"), qos: .atLeastOnce),
                        state: .inFlight(id(7)))
                ], queuedCount: 2, queuedBytes: 4)
        ) { $0.readAhead.messages = 1 }
        func stored(_ sequence: Int64, _ payload: String) -> StoredMessage {
            StoredMessage(
                sequence: MessageSequence(rawValue: sequence),
                message: OutboundMessage(topic: "t", payload: ByteBuffer(string: payload), qos: .atLeastOnce))
        }
        #expect(client.connect(resumed: true) == ["connected resumed", "restored", "load after 0"])
        #expect(client.handle(.loaded([stored(1, "a")])) == ["load after 1", "PUBLISH a id 8"])
        #expect(client.handle(.loaded([stored(3, "c")])) == ["PUBLISH b id 7 DUP", "PUBLISH c id 9"])
    }

    @Test func `a load that finds nothing is not repeated`() throws {
        var client = MQTTClientHarness(
            durable: DurableSession(established: true, nextSequence: MessageSequence(rawValue: 9), queuedCount: 1))
        #expect(client.connect(resumed: true) == ["connected resumed", "restored", "load after 0"])
        #expect(client.handle(.loaded([])) == [])
        #expect(client.handle(.ping) == ["PINGREQ"])
    }

    /// [MQTT-2.2.1-3]
    @Test func `rule 7: identifiers in use are skipped, even after a restart`() throws {
        var client = MQTTClientHarness(
            durable: MQTTClientHarness.established([.inFlight(id(65_535)), .inFlight(id(1))], qos: .atLeastOnce))
        client.connect(resumed: true)
        #expect(try client.publish("a") == ["accepted 3", "PUBLISH a id 2"])
        client.server(.puback(answer(2)))
        #expect(try client.publish("b") == ["accepted 4", "PUBLISH b id 3"], "a freed identifier rests")
    }

    @Test func `unknown acknowledgements change nothing`() throws {
        var client = MQTTClientHarness().connected()
        #expect(client.server(.puback(answer(9))) == [])
        #expect(client.server(.pubrec(answer(9))) == ["PUBREL 9 92"])
        #expect(client.server(.pubcomp(answer(9))) == [])
    }

    @Test func `PUBCOMP 0x92 ends an exchange as success`() {
        var client = MQTTClientHarness(durable: MQTTClientHarness.established([.released(id(4))])).connected(
            resumed: true)
        #expect(client.server(.pubcomp(answer(4, .packetIdentifierNotFound))) == ["delivered 1 00"])
    }

    @Test func `a quarantined message is retried as a new one, or discarded`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a")
        client.server(.puback(answer(1, .notAuthorized)))
        var stored = StoredMessage(
            sequence: MessageSequence(rawValue: 1),
            message: OutboundMessage(topic: "t", payload: ByteBuffer(string: "a")),
            state: .quarantined(.notAuthorized, "no"))
        var actions: [MQTTClientMachine.Action] = []
        let sequence = try client.machine.retry(stored, at: client.now, into: &actions)
        #expect(client.describe(actions) == ["accepted 2", "PUBLISH a id 2"])
        #expect(client.changes.contains(.requeue(stored.sequence, as: sequence, at: client.now)))
        client.server(.puback(answer(2, .notAuthorized)))
        stored.sequence = sequence
        actions = []
        let discarded = client.machine.discard(StoredMessageSummary(stored), at: client.now, into: &actions)
        #expect(discarded == .dropped)
        #expect(client.machine.counts == .init())
    }

    @Test(arguments: [ReasonCode.topicNameInvalid, .packetTooLarge, .payloadFormatInvalid])
    func `a message that the server ends the connection for is found and quarantined`(code: ReasonCode) throws {
        var client = MQTTClientHarness().connected()
        try client.publish("good")
        try client.publish("bad")
        let goodbye = Packet.disconnect(Disconnect(reasonCode: code))
        client.server(goodbye)
        client.handle(.connectionClosed)
        try client.publish("later")
        #expect(client.connect(resumed: true).last == "PUBLISH good id 1 DUP", "messages are now sent one by one")
        #expect(client.server(.puback(answer(1))) == ["delivered 1 00", "PUBLISH bad id 2 DUP"], "the last one, too")
        #expect(client.server(goodbye).contains("rejected 2 \(MQTTClientHarness.hex(code))"))
        client.handle(.connectionClosed)
        try client.publish("more")
        #expect(client.connect(resumed: true).suffix(2) == ["PUBLISH later id 3", "PUBLISH more id 4"])
    }

    /// Its row is there already.
    @Test func `a message is sent again on a person's word although the store has no room`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a")
        client.server(.puback(answer(1, .notAuthorized)))
        client.holdsCommits = true
        var actions: [MQTTClientMachine.Action] = []
        let stored = StoredMessage(
            sequence: MessageSequence(rawValue: 1),
            message: OutboundMessage(topic: "t", payload: ByteBuffer(string: "a")),
            state: .quarantined(.notAuthorized, "no"))
        _ = try client.machine.retry(stored, at: client.now, into: &actions)
        #expect(client.describe(actions) == ["commit"])
        let number = try #require(client.heldCommits.last)
        #expect(client.handle(.committedWithoutInserts(number)) == ["accepted 2", "commit"])
        #expect(client.commitAll() == ["PUBLISH a id 2"])
        #expect(client.machine.counts == .init(inFlight: 1, bytes: 2))
    }

    @Test func `the search for a bad message goes on to the last suspect when the server loses the session`() throws {
        var client = MQTTClientHarness().connected()
        for payload in ["a", "b"] { try client.publish(payload) }
        client.server(.disconnect(Disconnect(reasonCode: .packetTooLarge)))
        client.handle(.connectionClosed)
        client.connect()
        let queued = [("a", 1), ("b", 2)].map { payload, sequence in
            StoredMessage(
                sequence: MessageSequence(rawValue: Int64(sequence)),
                message: OutboundMessage(topic: "t", payload: ByteBuffer(string: payload), qos: .atLeastOnce))
        }
        #expect(client.handle(.loaded(queued)) == ["PUBLISH a id 3"])
        #expect(client.server(.puback(answer(3))) == ["delivered 1 00", "PUBLISH b id 4"])
        #expect(try client.publish("c") == ["accepted 3"], "it waits until the last suspect is answered")
        #expect(client.server(.puback(answer(4))) == ["delivered 2 00", "PUBLISH c id 5"])
    }

    @Test func `an input that leads to nothing asks nothing of the driver`() {
        var client = MQTTClientHarness().connected()
        var actions: [MQTTClientMachine.Action] = []
        client.machine.handle(.timePassed, at: client.now, into: &actions)
        #expect(actions.isEmpty)
    }

    /// More would take memory for topics that are used only once.
    @Test func `at most 1,024 topics have aliases, however many the server allows`() {
        var aliases = TopicAliases(maximum: .max)
        let given = (1...1025).map { number in
            var publish = Publish(topic: "topic/\(number)")
            aliases.apply(to: &publish, room: 100)
            return publish.properties.topicAlias
        }
        #expect(given == (1...1024).map { UInt16($0) } + [nil])
    }
}
