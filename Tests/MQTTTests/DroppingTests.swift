import NIOCore
import Testing

@testable import MQTT

/// An operator drops messages in every state, even those that a server never answers.
@Suite struct `Messages that somebody drops` {
    private var client = MQTTClientHarness()

    private mutating func drop(
        _ number: Int64, _ state: StoredMessage.State, qos: QoS = .atLeastOnce
    ) -> (MQTTClientMachine.Discarded, [String]) {
        let message = OutboundMessage(topic: "t", payload: ByteBuffer(string: "x"), qos: qos)
        var actions: [MQTTClientMachine.Action] = []
        let discarded = client.machine.discard(
            StoredMessageSummary(
                StoredMessage(sequence: MessageSequence(rawValue: number), message: message, state: state)),
            at: client.now, into: &actions)
        return (discarded, client.describe(actions))
    }

    @Test mutating func `a queued message is dropped, even one that was dequeued in the meantime`() throws {
        client.connect(Connack.Properties(receiveMaximum: 1))
        for payload in ["a", "b", "c"] { try client.publish(payload) }
        #expect(drop(2, .queued) == (.dropped, ["discarded 2"]))
        #expect(client.server(.puback(answer(1))) == ["delivered 1 00", "PUBLISH c id 2"])
        #expect(drop(3, .queued) == (.dropped, ["discarded 3"]))
        #expect(client.machine.counts == .init())
        #expect(drop(1, .inFlight(id(1))) == (.isGone, []), "it was delivered in the meantime")
        #expect(drop(3, .queued) == (.isGone, []))
    }

    /// The server counts it for its Receive Maximum, and its answer must not be taken for another message's.
    @Test(arguments: [QoS.atLeastOnce, .exactlyOnce])
    mutating func `a sent message that is dropped keeps its place in the window until the server answers`(
        _ qos: QoS
    ) throws {
        client.connect(Connack.Properties(receiveMaximum: 1))
        for payload in ["a", "b"] { try client.publish(payload, qos: qos) }
        #expect(drop(1, .inFlight(id(1)), qos: qos) == (.dropped, ["discarded 1"]))
        #expect(client.machine.counts == .init(queued: 1, bytes: 2))
        if qos == .exactlyOnce {
            #expect(client.server(.pubrec(answer(1))) == ["PUBREL 1"], "the server has it and may release it")
            #expect(client.server(.pubcomp(answer(1))) == ["PUBLISH b id 2"])
        } else {
            #expect(client.server(.puback(answer(1))) == ["PUBLISH b id 2"])
        }
        #expect(client.machine.identifiers.allocator.isUsed(id(1)) == (qos == .exactlyOnce))
    }

    @Test mutating func `a dropped message that the server refuses frees its place in the window`() throws {
        client.connect(Connack.Properties(receiveMaximum: 1))
        for payload in ["a", "b"] { try client.publish(payload, qos: .exactlyOnce) }
        #expect(drop(1, .inFlight(id(1)), qos: .exactlyOnce).0 == .dropped)
        #expect(client.server(.pubrec(answer(1, .unspecifiedError))) == ["PUBLISH b id 2"])
    }

    @Test
    mutating func `a dropped message that is never answered ends the connection, and the next one is sent on another`()
        throws
    {
        client.connect(Connack.Properties(receiveMaximum: 1))
        for payload in ["a", "b"] { try client.publish(payload) }
        #expect(drop(1, .inFlight(id(1))).0 == .dropped)
        for flush: UInt64 in 1...9 { client.handle(.flushed(FlushNumber(rawValue: flush))) }
        client.now = client.now.advanced(by: 60_000)
        #expect(client.handle(.timePassed) == ["PINGREQ"])
        #expect(client.server(.pingresp).contains("close"))
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true).filter { $0.hasPrefix("PUBLISH") } == ["PUBLISH b id 2"])
        #expect(!client.machine.identifiers.allocator.isUsed(id(1)))
    }

    @Test mutating func `the release of a dropped message that is never answered ends the connection`() throws {
        client.connect()
        try client.publish("a", qos: .exactlyOnce)
        #expect(drop(1, .inFlight(id(1)), qos: .exactlyOnce).0 == .dropped)
        #expect(client.server(.pubrec(answer(1))) == ["PUBREL 1"])
        for flush: UInt64 in 1...9 { client.handle(.flushed(FlushNumber(rawValue: flush))) }
        client.now = client.now.advanced(by: 60_000)
        #expect(client.handle(.timePassed) == ["PINGREQ"])
        #expect(client.server(.pingresp).contains("close"))
    }

    @Test mutating func `a dropped message is not sent again, and with QoS 2 its identifier is not reused`() throws {
        client.connect()
        try client.publish("a", qos: .exactlyOnce)
        try client.publish("b", topic: "other")
        client.handle(.connectionClosed)
        #expect(drop(1, .inFlight(id(1)), qos: .exactlyOnce).0 == .dropped)
        #expect(client.changes.contains(.retireIdentifier(id(1))))
        #expect(drop(2, .inFlight(id(2))).0 == .dropped)
        #expect(!client.machine.identifiers.allocator.isUsed(id(2)))
        #expect(client.connect(resumed: true).filter { $0.hasPrefix("PUB") } == [])
        #expect(client.machine.counts == .init())
    }

    @Test(arguments: [true, false])
    mutating func `a message dropped after PUBREC counts as delivered, and PUBREL is still sent`(
        _ isConnected: Bool
    ) throws {
        client.connect()
        try client.publish("a", qos: .exactlyOnce)
        client.server(.pubrec(answer(1)))
        if !isConnected { client.handle(.connectionClosed) }
        let (discarded, words) = drop(1, .released(id(1)), qos: .exactlyOnce)
        #expect(discarded == .delivered)
        #expect(words == ["delivered 1 00"])
        #expect(client.machine.counts == .init())
        if isConnected { client.handle(.connectionClosed) }
        #expect(client.connect(resumed: true).filter { $0.hasPrefix("PUB") } == ["PUBREL 1"])
        #expect(client.server(.pubcomp(answer(1))) == [])
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true).filter { $0.hasPrefix("PUB") } == [])
    }

    @Test mutating func `no other message is blamed for the end of a connection while a dropped one may be`() throws {
        client.connect()
        for payload in ["a", "b"] { try client.publish(payload) }
        #expect(drop(1, .inFlight(id(1))).0 == .dropped)
        client.server(.disconnect(Disconnect(reasonCode: .packetTooLarge)))
        client.handle(.connectionClosed)
        #expect(client.machine.counts == .init(inFlight: 1, bytes: 2), "the server may have meant the dropped one")
    }

    @Test mutating func `a dropped message is still suspected when the connection ends`() throws {
        client.connect()
        try client.publish("a", qos: .exactlyOnce)
        _ = drop(1, .inFlight(id(1)), qos: .exactlyOnce)
        #expect(client.machine.findingIfEnded == .suspected(ends: 1))
    }

    @Test mutating func `a QoS 0 message that the transport has cannot be dropped`() throws {
        client.connect()
        try client.publish("a", qos: .atMostOnce)
        #expect(drop(1, .queued, qos: .atMostOnce).0 == .isWithTransport)
    }

    @Test mutating func `a dropped message takes no place in the window of the next connection`() throws {
        client.connect()
        for payload in ["a", "b"] { try client.publish(payload) }
        #expect(drop(1, .inFlight(id(1))).0 == .dropped)
        client.handle(.connectionClosed)
        let words = client.connect(resumed: true, Connack.Properties(receiveMaximum: 1))
        #expect(words.filter { $0.hasPrefix("PUBLISH") } == ["PUBLISH b id 2 DUP"])
    }
}
