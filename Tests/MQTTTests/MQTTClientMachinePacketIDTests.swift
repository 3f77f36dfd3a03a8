import Testing

@testable import MQTT

@Suite struct MQTTClientMachinePacketIDTests {
    /// [MQTT-2.2.1-3] [MQTT-4.3.2-1] [MQTT-4.3.3-1]
    @Test func `all 65,535 identifiers are allocated once, in turn, and then none`() {
        var allocator = PacketIDAllocator()
        for value in 1...UInt16.max { #expect(allocator.allocate()?.rawValue == value) }
        #expect(allocator.allocate() == nil)
        allocator.free(id(40_000))
        #expect(allocator.allocate() == id(40_000))
        #expect(allocator.allocate() == nil)
    }

    @Test func `a freed identifier rests until its turn comes again`() throws {
        var allocator = PacketIDAllocator()
        for _ in 0..<100 {
            let next = allocator.allocate()
            allocator.free(try #require(next))
        }
        #expect(allocator.allocate() == id(101))
        #expect(!allocator.isUsed(id(1)) && !allocator.isUsed(id(100)))
        allocator.resume(after: id(65_534))
        #expect(allocator.allocate() == id(65_535))
        #expect(allocator.allocate() == id(1))
    }

    @Test func `rule 6: a closed connection frees the identifiers of requests, not those in flight`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("a")
        try client.publish("x")
        func used() -> [UInt16] { (1...4).filter { client.machine.identifiers.allocator.isUsed(id($0)) } }
        #expect(used() == [1, 2])
        client.handle(.connectionClosed)
        #expect(used() == [2])
        client.connect()
        client.server(.suback(Suback(packetID: id(3), reasonCodes: [.success])))
        #expect(used().isEmpty, "none is used after a lost session")
    }

    @Test func `an identifier that the server calls in use is not used again`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("x")
        #expect(client.server(.puback(answer(1, .packetIdentifierInUse))) == ["rejected 1 91"])
        #expect(client.machine.identifiers.allocator.isUsed(id(1)))
    }

    /// Decision 0002: the server takes a packet with the same identifier for the same message.
    @Test func `the identifier of a QoS 2 message that the server may hold is not used again in this session`() throws {
        var client = MQTTClientHarness().connected()
        var actions: [MQTTClientMachine.Action] = []
        let message = OutboundMessage(topic: "t", qos: .exactlyOnce, retain: true)
        _ = try client.machine.publish(message, at: client.now, into: &actions)
        #expect(client.describe(actions).contains("PUBLISH  id 1"))
        client.handle(.connectionClosed)
        let words = client.connect(resumed: true, Connack.Properties(retainAvailable: false))
        #expect(words.contains("rejected 1 without a code"))
        #expect(client.machine.identifiers.allocator.isUsed(id(1)))
        #expect(client.changes.contains(.retireIdentifier(id(1))))

        var restarted = MQTTClientHarness(durable: DurableSession(established: true, retiredIDs: [id(1)])).connected(
            resumed: true)
        try restarted.publish("x", qos: .exactlyOnce)
        restarted.server(.pubcomp(answer(2)))
        #expect(restarted.publishes.map(\.packetID) == [id(2)])
        restarted.handle(.connectionClosed)
        restarted.connect()
        #expect(
            !restarted.machine.identifiers.allocator.isUsed(id(1)), "no identifier is used in the server's new session")
        #expect(restarted.changes.contains(.freeRetiredIdentifiers))
    }

    static let spans: [(Int64, Int64, UInt32)] = [
        (0, 1000, 1), (0, 1001, 2), (0, 0, 0), (5, 4, 0), (0, .max, .max), (.min, .max, .max), (.max, .min, 0),
    ]

    @Test(arguments: spans)
    func `seconds left are rounded up and kept within MQTT's range`(from: Int64, to: Int64, seconds: UInt32) {
        #expect(Timestamp(rawValue: from).secondsLeft(until: Timestamp(rawValue: to)) == seconds)
    }

    @Test func `a subscription that the server is not asked for needs no identifier`() throws {
        var client = MQTTClientHarness()
        try client.subscribe("a/#")
        client.connect(Connack.Properties(wildcardSubscriptionAvailable: false))
        #expect(client.subscribes.isEmpty)
        #expect(!client.machine.identifiers.allocator.isUsed(id(1)))
    }

    @Test func `a retired identifier is free in a new session of the server, after a restart as well`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("x")
        client.server(.puback(answer(1, .packetIdentifierInUse)))
        #expect(client.changes.contains(.retireIdentifier(id(1))))
        client.handle(.connectionClosed)
        client.connect()
        #expect(!client.machine.identifiers.allocator.isUsed(id(1)))
        #expect(client.changes.contains(.freeRetiredIdentifiers))
    }
}
