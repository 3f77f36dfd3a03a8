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
        #expect(try client.publish("x", qos: .exactlyOnce).contains("PUBLISH x id 4"))
        client.changes = []
        #expect(client.server(.pubcomp(answer(1, .packetIdentifierNotFound)), .pubcomp(answer(2))).isEmpty)
        #expect(client.changes == [.clearSuspect(id(1)), .clearSuspect(id(2))])
        #expect(!client.machine.identifiers.allocator.isUsed(id(1)))
        #expect(client.machine.identifiers.allocator.isUsed(id(3)))
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
        #expect(client.open() == [before == "me" ? "CONNECT" : "CONNECT clean"])
    }

    @Test func `the client identifier of the session is durable`() {
        var client = MQTTClientHarness()
        client.connect()
        #expect(client.changes.contains(.setClientID("me")))
        client.changes = []
        client.handle(.connectionClosed)
        client.connect(resumed: true)
        #expect(!client.changes.contains(.setClientID("me")))
    }

    @Test func `a key is committed with its message, and its outcome with the removal`() throws {
        var client = MQTTClientHarness()
        client.connect()
        client.changes = []
        let key = try #require(PublishKey("k"))
        var actions: [MQTTClientMachine.Action] = []
        let sequence = try client.machine.publish(
            OutboundMessage(topic: "t"), key: key, at: client.now, into: &actions)
        _ = client.describe(actions)
        #expect(client.changes.contains(.rememberKey(key, sequence, at: client.now)))
        client.changes = []
        client.server(.puback(answer(1, .noMatchingSubscribers)))
        #expect(client.changes == [.acknowledge(sequence), .concludeKey(sequence, .delivered(.noMatchingSubscribers))])
    }

    @Test func `a key gets its outcome even when the exchange is finished without the server`() throws {
        var client = MQTTClientHarness()
        client.connect()
        let key = try #require(PublishKey("k"))
        var actions: [MQTTClientMachine.Action] = []
        let sequence = try client.machine.publish(
            OutboundMessage(topic: "t", qos: .exactlyOnce), key: key, at: client.now, into: &actions)
        _ = client.describe(actions)
        client.server(.pubrec(answer(1)))
        client.changes = []
        for _ in 1...4 {
            client.handle(.connectionEnded(.byServer))
            client.connect(resumed: true)
            client.server(.pingresp)
        }
        #expect(client.changes.contains(.remove(sequence)))
        #expect(client.changes.contains(.concludeKey(sequence, .delivered(.success))))
    }
}
