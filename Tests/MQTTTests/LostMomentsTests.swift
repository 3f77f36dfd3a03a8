import Testing

@testable import MQTT

/// The host lost power, and the stored state is older than the server's.
@Suite struct `After lost moments` {
    private func durable(_ suspects: [UInt16]) -> DurableSession {
        DurableSession(established: true, suspectIDs: Set(suspects.map { id($0) }))
    }

    @Test func `an identifier that is reserved already needs no flush`() {
        var window = IdentifierWindow()
        #expect([7, 8, 6].map { window.reserve(id($0)) } == [true, false, true])
    }

    @Test func `a possibly lost exchange is finished with PUBREL, and its identifier is not used until then`() throws {
        var client = MQTTClientHarness(durable: durable([1, 2, 3]))
        let words = client.connect(resumed: true)
        #expect(words.filter { $0.hasPrefix("PUBREL") } == ["PUBREL 1", "PUBREL 2", "PUBREL 3"])
        #expect(try client.publish("x").contains("PUBLISH x id 4"))
        client.changes = []
        #expect(client.server(.pubcomp(answer(1, .packetIdentifierNotFound)), .pubcomp(answer(2))).isEmpty)
        #expect(client.changes == [.clearSuspect(id(1)), .clearSuspect(id(2))])
        #expect(try client.publish("y", qos: .exactlyOnce).contains("PUBLISH y id 1"))
        #expect(try client.publish("z", qos: .exactlyOnce).contains("PUBLISH z id 2"))
        #expect(try client.publish("3", qos: .exactlyOnce).contains("PUBREL 5"))
        #expect(client.server(.pubcomp(answer(3))) == ["PUBLISH 3 id 3"])
    }

    // MARK: The stored state may be older than that

    @Test func `in a restored session, a QoS 2 message gets an identifier that the server has released`() throws {
        var client = MQTTClientHarness(durable: durable([])).connected(resumed: true)
        let words = try client.publish("x", qos: .exactlyOnce)
        #expect(words == ["accepted 1"] + (1...32).map { "PUBREL \($0)" })
        #expect(try client.publish("y", topic: "other") == ["accepted 2"], "it keeps its place")
        #expect(client.server(.pubcomp(answer(2))) == ["PUBLISH x id 2", "PUBLISH y id 33"])
        #expect(client.server(.pubcomp(answer(1, .packetIdentifierNotFound))).isEmpty)
        #expect(try client.publish("z", qos: .exactlyOnce) == ["accepted 3", "PUBLISH z id 1"])
    }

    @Test func `a released identifier is used again, so that few are released`() throws {
        var client = MQTTClientHarness(durable: durable([])).connected(resumed: true)
        try client.publish("0", qos: .exactlyOnce)
        for value: UInt16 in 1...32 { client.server(.pubcomp(answer(value))) }
        for _ in 1...100 {
            let last = try #require(client.publishes.last?.packetID)
            client.server(.pubrec(Acknowledgement(packetID: last)))
            client.server(.pubcomp(Acknowledgement(packetID: last)))
            try client.publish("x", qos: .exactlyOnce)
        }
        #expect(client.publishes.map { $0.packetID?.rawValue } == (0...100).map { UInt16($0 % 32 + 1) })
        // As many again, when all are in flight.
        let before = client.sent.count
        for _ in 1...32 { try client.publish("x", qos: .exactlyOnce) }
        #expect(client.sent.dropFirst(before).count { if case .pubrel = $0 { true } else { false } } == 32)
        #expect(client.machine.counts.inFlight == 32)
    }

    @Test func `a server that ends three connections for this is not asked any more`() throws {
        var client = MQTTClientHarness(durable: durable([]))
        try client.publish("x", qos: .exactlyOnce)
        #expect(client.connect(resumed: true).contains { $0.hasPrefix("PUBREL") })
        client.handle(.connectionEnded(.byServer))
        for _ in 2...3 {
            #expect(client.connect(resumed: true).last == "PINGREQ")
            #expect(client.server(.pingresp).contains { $0.hasPrefix("PUBREL") })
            client.handle(.connectionEnded(.byServer))
        }
        #expect(client.connect(resumed: true).contains { $0.hasPrefix("PUBLISH x") })
    }

    @Test(arguments: [true, false])
    func `a server that ends connections for this is not asked again after a loss of the session, another one is`(
        isTheSame: Bool
    ) throws {
        var client = MQTTClientHarness(durable: durable([]))
        try client.publish("x", qos: .exactlyOnce)
        for _ in 1...3 {
            client.connect(resumed: true)
            client.server(.pingresp)
            client.handle(.connectionEnded(.byServer))
        }
        #expect(client.connect(expecting: .init(isPresent: isTheSame)).contains { $0.hasPrefix("PUBLISH x") })
        client.handle(.connectionClosed)
        client.connect(resumed: true, expecting: .init())
        let words = try client.publish("y", qos: .exactlyOnce)
        #expect(words.contains { $0.hasPrefix("PUBLISH y") } == isTheSame)
        #expect(words.contains { $0.hasPrefix("PUBREL") } == !isTheSame)
    }

    @Test func `an end that is not the server's does not count`() throws {
        var client = MQTTClientHarness(durable: durable([]))
        try client.publish("x", qos: .exactlyOnce)
        for _ in 1...4 {
            #expect(client.connect(resumed: true).contains { $0.hasPrefix("PUBREL") })
            client.handle(.connectionClosed)
        }
    }

    @Test func `a server that ends every connection is asked again once one works`() throws {
        var client = MQTTClientHarness(durable: durable([]))
        try client.publish("x", qos: .exactlyOnce)
        client.connect(resumed: true)
        client.handle(.connectionEnded(.byServer))
        for _ in 1...4 {
            #expect(client.connect(resumed: true).last == "PINGREQ", "no PUBREL can be the reason")
            client.handle(.connectionEnded(.byServer))
        }
        client.connect(resumed: true)
        #expect(client.server(.pingresp).contains("PUBREL 1"))
        #expect(client.server(.pubcomp(answer(1))).contains("PUBLISH x id 1"))
    }

    @Test func `a server that does not answer this loses the connection, and is not asked forever`() throws {
        var client = MQTTClientHarness(durable: durable([]))
        try client.publish("x", qos: .exactlyOnce)
        for _ in 1...3 {
            client.connect(resumed: true)
            client.server(.pingresp)
            client.now = client.now.advanced(by: 60_000)
            #expect(client.handle(.timePassed) == ["PINGREQ"])
            #expect(client.server(.pingresp).contains("close"))
            client.handle(.connectionClosed)
        }
        #expect(client.connect(resumed: true).contains { $0.hasPrefix("PUBLISH x") })
    }

    /// What was sent on a connection that has ended may not have arrived.
    @Test func `each connection asks about the same identifiers, which are used first if no answer comes`() throws {
        var client = MQTTClientHarness(durable: durable([]))
        try client.publish("x", qos: .exactlyOnce)
        for _ in 1...3 {
            let words = client.connect(resumed: true) + client.server(.pingresp)
            #expect(words.filter { $0.hasPrefix("PUBREL") } == (1...32).map { "PUBREL \($0)" })
            client.handle(.connectionEnded(.byServer))
        }
        #expect(client.connect(resumed: true).contains("PUBLISH x id 1"))
        #expect(try client.publish("y", topic: "other").contains("PUBLISH y id 33"))
        #expect(try client.publish("z", qos: .exactlyOnce).contains("PUBLISH z id 2"))
        for _ in 3...32 { try client.publish("x", qos: .exactlyOnce) }
        #expect(try client.publish("w", qos: .exactlyOnce).contains("PUBLISH w id 34"), "no other was asked about")
    }

    @Test func `what one server has released is released again at another one`() throws {
        var client = MQTTClientHarness(durable: durable([])).connected(resumed: true)
        try client.publish("x", qos: .exactlyOnce)
        for number in 1...32 { client.server(.pubcomp(answer(UInt16(number)))) }
        client.handle(.connectionClosed)
        client.connect(resumed: true, expecting: .init(isPresent: false))
        let words = try client.publish("y", qos: .exactlyOnce)
        #expect(words.contains { $0.hasPrefix("PUBREL") })
        #expect(!words.contains { $0.hasPrefix("PUBLISH y") })
    }

    @Test func `in a new session at the server no identifier needs to be released`() throws {
        var client = MQTTClientHarness(durable: durable([])).connected(resumed: false)
        #expect(try client.publish("x", qos: .exactlyOnce).contains("PUBLISH x id 1"))
        client.handle(.connectionClosed)
        client.connect(resumed: true)
        #expect(try client.publish("y", qos: .exactlyOnce).contains("PUBLISH y id 2"))
    }

    @Test func `a server that ends the connection after such a PUBREL is not asked again`() {
        var client = MQTTClientHarness(durable: durable([1]))
        #expect(client.connect(resumed: true).contains("PUBREL 1"))
        client.handle(.connectionClosed)
        #expect(!client.connect(resumed: true).contains("PUBREL 1"))
        #expect(client.machine.identifiers.allocator.isUsed(id(1)), "the identifier is not used")
    }

    @Test func `a new session at the server frees the suspect identifiers`() {
        var client = MQTTClientHarness(durable: durable([1]))
        #expect(!client.connect(resumed: false).contains("PUBREL 1"))
        #expect(!client.machine.identifiers.allocator.isUsed(id(1)))
        #expect(client.changes.contains(.freeRetiredIdentifiers))
        client.changes = []
        client.handle(.connectionClosed)
        client.connect(resumed: false)
        #expect(!client.changes.contains(.freeRetiredIdentifiers), "there are none left")
    }

    /// [MQTT-3.1.3-2]
    @Test(arguments: ["me", "somebody"])
    func `a session of another client identifier is not resumed`(before: String) {
        var durable = DurableSession(established: true)
        durable.clientID = before
        var client = MQTTClientHarness(durable: durable)
        let resumed = ["connected resumed", "restored"]
        let refused = ["unknown session", "state mismatch", "DISCONNECT 00", "close"]
        #expect(client.connect(resumed: true) == (before == "me" ? resumed : refused))
    }

    @Test func `the client identifier of the session is durable`() {
        var client = MQTTClientHarness().connected()
        #expect(client.changes.contains(.setClientID("me")))
        client.changes = []
        client.handle(.connectionClosed)
        client.connect(resumed: true)
        #expect(!client.changes.contains(.setClientID("me")))
    }

    @Test func `a key is committed with its message, and its outcome with the removal`() throws {
        var client = MQTTClientHarness().connected()
        client.changes = []
        let key = try #require(PublishKey("k"))
        var actions: [MQTTClientMachine.Action] = []
        let sequence = try client.machine.publish(
            OutboundMessage(topic: "t"), key: key, at: client.now, into: &actions)
        _ = client.describe(actions)
        #expect(client.changes.contains(.rememberKey(key, sequence, at: client.now)))
        client.changes = []
        client.server(.puback(answer(1, .noMatchingSubscribers)))
        #expect(
            client.changes == [
                .acknowledge(sequence), .concludeKey(sequence, .delivered(.noMatchingSubscribers), at: client.now),
            ])
    }

    @Test func `a key gets its outcome even when the exchange is finished without the server`() throws {
        var client = MQTTClientHarness().connected()
        let key = try #require(PublishKey("k"))
        var actions: [MQTTClientMachine.Action] = []
        let sequence = try client.machine.publish(
            OutboundMessage(topic: "t", qos: .exactlyOnce), key: key, at: client.now, into: &actions)
        _ = client.describe(actions)
        client.server(.pubrec(answer(1)))
        client.changes = []
        for _ in 1...5 {
            client.handle(.connectionEnded(.byServer))
            client.connect(resumed: true)
            client.server(.pingresp)
        }
        #expect(client.changes.contains(.remove(sequence)))
        #expect(client.changes.contains(.concludeKey(sequence, .delivered(.success), at: client.now)))
    }

    @Test func `identifiers that the server was asked to release are free when the connection ends`() throws {
        var client = MQTTClientHarness(durable: durable([])).connected(resumed: true)
        #expect(try client.publish("x", qos: .exactlyOnce).last == "PUBREL 32")
        client.server(.pubcomp(answer(1)))
        client.handle(.connectionClosed)
        let used = (1...33).filter { client.machine.identifiers.allocator.isUsed(id($0)) }
        #expect(used == [1], "the message has it")
    }
}
