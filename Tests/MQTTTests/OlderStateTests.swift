import MQTT
import NIOCore
import Testing

/// A server that was restarted may have the session in an older state, and says that it has it.
@Suite struct `A server that comes back in an older state` {
    private func granted(_ value: UInt16) -> Packet {
        .suback(Suback(packetID: id(value), reasonCodes: [.grantedQoS1]))
    }

    private func subscribed(_ version: ProtocolVersion = .five) throws -> MQTTClientHarness {
        var client = MQTTClientHarness { $0.version = version }.connected()
        try client.subscribe("in")
        client.server(granted(1))
        return client
    }

    @Test(arguments: [MQTTClientMachine.Continuity.likely, .doubtful])
    func `is asked for every subscription again, without the retained messages, and not waited for`(
        continuity: MQTTClientMachine.Continuity
    ) throws {
        var client = try subscribed()
        client.handle(.connectionEnded(.byServer))
        #expect(
            client.connect(resumed: true, expecting: .init(continuity: continuity)) == [
                "connected resumed", "restored", "SUBSCRIBE in",
            ])
        #expect(client.subscribes.last?.subscriptions[0].retainHandling == .sendIfNew)
        #expect(client.machine.subscriptionStates.map(\.state) == [.pending])
        client.server(granted(2))
        #expect(client.machine.subscriptionStates.map(\.state) == [.granted(.atLeastOnce)])
    }

    @Test func `is not asked when it cannot have been restarted`() throws {
        var client = try subscribed()
        client.handle(.disconnect(.normalDisconnection))
        client.handle(.connectionClosed)
        #expect(
            client.connect(resumed: true, expecting: .init(continuity: .proven)) == ["connected resumed", "restored"])
        #expect(client.machine.grant?.isCertain == true, "so that publications are not published again")
        #expect(try client.publish("x", qos: .exactlyOnce) == ["accepted 1", "PUBLISH x id 2"])
    }

    @Test func `sends retained messages again in MQTT 3.1.1, so it is asked only if there is a doubt`() throws {
        var client = try subscribed(.threeOneOne)
        for continuity in [MQTTClientMachine.Continuity.proven, .likely] {
            client.handle(.connectionClosed)
            #expect(
                client.connect(resumed: true, expecting: .init(continuity: continuity)) == [
                    "connected resumed", "restored",
                ])
        }
        client.handle(.connectionEnded(.byServer))
        #expect(
            client.connect(resumed: true, expecting: .init()) == ["connected resumed", "restored", "SUBSCRIBE in"])
    }

    @Test(arguments: [MQTTClientMachine.Continuity.proven, .likely])
    func `is asked in MQTT 3.1.1 as well if another server behind its address may have the session`(
        continuity: MQTTClientMachine.Continuity
    ) throws {
        var client = try subscribed(.threeOneOne)
        client.handle(.connectionClosed)
        let words = client.connect(resumed: true, expecting: .init(older: LeftSession(), continuity: continuity))
        #expect(words.contains("SUBSCRIBE in"))
        #expect(client.machine.subscriptionStates.map(\.state) == [.pending])
    }

    @Test func `takes no new message for one that it had`() throws {
        var client = MQTTClientHarness().connected()
        client.handle(.connectionEnded(.byServer))
        client.connect(resumed: true, expecting: .init())
        #expect(
            try client.publish("x", qos: .exactlyOnce) == ["accepted 1"] + (1...32).map { "PUBREL \($0)" },
            "it may hold a message under any identifier")
        #expect(client.server(.pubcomp(answer(1, .packetIdentifierNotFound))) == ["PUBLISH x id 1"])
    }

    @Test func `is asked about identifiers when it has answered everything else, once it has ended one`() throws {
        var client = try subscribed(.five)
        client.handle(.connectionEnded(.byServer))
        client.connect(resumed: true, expecting: .init())
        #expect(try client.publish("x", qos: .exactlyOnce).contains("PUBREL 3"))
        for round in 1...4 {
            // Perhaps because of the filter.
            client.handle(.connectionEnded(.byServer))
            let isAsked = client.connect(resumed: true, expecting: .init()).contains("SUBSCRIBE in")
            #expect(client.server(.pingresp) == (isAsked ? [] : ["SUBSCRIBE in"]))
            #expect(isAsked == (round < 3), "once it goes out alone, the connection has to prove that it works")
        }
        client.handle(.connectionEnded(.byServer))
        let words = client.connect(resumed: true, expecting: .init())
        #expect(words.contains("PINGREQ"), "the filter is set aside: \(words)")
        #expect(client.server(.pingresp).contains("PUBREL 3"))
    }

    /// Programs that subscribe all the time must not keep a message waiting.
    @Test func `is asked about identifiers before it is asked for more filters`() throws {
        var client = try subscribed()
        client.handle(.connectionEnded(.byServer))
        client.connect(resumed: true, expecting: .init())
        var request = try #require(client.subscribes.last?.packetID)
        client.server(granted(request.rawValue))
        #expect(try client.publish("x", qos: .exactlyOnce).contains("PUBREL 3"))
        client.handle(.connectionEnded(.byServer))
        #expect(client.connect(resumed: true, expecting: .init()).contains("SUBSCRIBE in"))
        #expect(try client.subscribe("more") == [])
        request = try #require(client.subscribes.last?.packetID)
        #expect(client.server(granted(request.rawValue)).contains("PINGREQ"))
        #expect(try client.subscribe("even more") == [])
        #expect(client.server(.pingresp).contains("PUBREL 3"))
        let words = client.server(.pubcomp(answer(3, .success)))
        #expect(words.contains { $0.hasPrefix("PUBLISH x") }, "\(words)")
        #expect(words.contains { $0.hasPrefix("SUBSCRIBE more") }, "\(words)")
    }

    /// [MQTT-3.3.1-1]
    @Test(arguments: [ProtocolVersion.five, .threeOneOne])
    func `may use the identifier of a message that it has forgotten for another one`(version: ProtocolVersion) {
        var client = MQTTClientHarness { $0.version = version }.connected()
        #expect(client.server(inbound("a", qos: .exactlyOnce, 1)) == ["received a", "PUBREC 1"])
        client.handle(.connectionEnded(.byServer))
        client.connect(resumed: true, expecting: .init())
        #expect(client.server(inbound("b", qos: .exactlyOnce, 1)) == ["received b", "PUBREC 1"])
        client.handle(.connectionEnded(.byServer))
        client.connect(resumed: true, expecting: .init())
        #expect(client.server(inbound("b", qos: .exactlyOnce, 1, duplicate: true)) == ["PUBREC 1"])
    }
}
