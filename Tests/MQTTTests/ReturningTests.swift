import NIOCore
import Testing

@testable import MQTT

/// Servers that do not share their sessions: the session continues at one, and returns to the other, which has kept it as
/// it was.
@Suite struct `Returning to a server that was left` {
    private func suback(_ value: UInt16) -> Packet {
        .suback(Suback(packetID: id(value), reasonCodes: [.grantedQoS1]))
    }

    /// The connection ends, and the next one is at the server where this was left, which still has it.
    @discardableResult
    private func returns(
        _ client: inout MQTTClientHarness, to left: LeftSession, isBesidePresent: Bool = false
    ) -> [String] {
        client.handle(.connectionClosed)
        client.changes = []
        return client.connect(resumed: true, expecting: .init(isPresent: isBesidePresent, older: left))
    }

    @Test(arguments: [ProtocolVersion.five, .threeOneOne])
    func `what it has kept is taken, and everything is set up again`(version: ProtocolVersion) throws {
        var client = MQTTClientHarness { $0.version = version }.connected()
        try client.subscribe("in")
        client.server(suback(1))
        client.handle(.connectionClosed)
        client.connect()
        let left = client.machine.takeLeftBehind()
        #expect(left == LeftSession(filters: [try TopicFilter("in")]))
        client.server(suback(2))
        try client.publish("x")
        #expect(
            returns(&client, to: left) == ["connected", "load after 0", "SUBSCRIBE in"],
            "to everybody else it is a new session")
        #expect(client.subscribes.last?.subscriptions[0].retainHandling == .sendOnSubscribe)
        #expect(client.server(inbound("kept", qos: .atLeastOnce, 1)) == ["received kept", "PUBACK 1"])
    }

    @Test func `a message in flight at the last server is sent as a new one`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("x")
        #expect(returns(&client, to: LeftSession()) == ["connected", "restored", "load after 0"])
        #expect(client.changes == [.unassign(.init(rawValue: 1))])
        #expect(client.machine.takeLeftBehind() == LeftSession())
    }

    @Test func `a message that the server owns is released there`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("x", qos: .exactlyOnce)
        client.server(.pubrec(answer(1)))
        client.handle(.connectionClosed)
        #expect(client.connect().contains("delivered 1 00"))
        let left = client.machine.takeLeftBehind()
        #expect(left.unreleased == [id(1)])
        #expect(returns(&client, to: left).contains("PUBREL 1"))
        #expect(client.changes == [.suspectIdentifier(id(1))])
        // It is not given up when the connection ends first, also not by a restart.
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true).contains("PUBREL 1"))
        client.changes = []
        client.server(.pubcomp(answer(1)))
        #expect(client.changes == [.clearSuspect(id(1))])
        client.handle(.connectionClosed)
        #expect(!client.connect(resumed: true).contains("PUBREL 1"))
    }

    @Test func `no QoS 2 message gets an identifier under which the server may hold another`() throws {
        var client = MQTTClientHarness().connected()
        returns(&client, to: LeftSession())
        let words = try client.publish("x", qos: .exactlyOnce)
        #expect(words == ["accepted 1"] + (1...32).map { "PUBREL \($0)" })
        #expect(client.server(.pubcomp(answer(1, .packetIdentifierNotFound))) == ["PUBLISH x id 1"])
    }

    @Test func `a QoS 2 message that was taken there before is not delivered again`() throws {
        var client = MQTTClientHarness().connected()
        #expect(client.server(inbound("a", qos: .exactlyOnce, 1)) == ["received a", "PUBREC 1"])
        client.handle(.connectionClosed)
        client.connect()
        let left = client.machine.takeLeftBehind()
        #expect(left.inbound == [id(1)])
        // At the second server the identifier means another message.
        #expect(client.server(inbound("b", qos: .exactlyOnce, 1)) == ["received b", "PUBREC 1"])
        returns(&client, to: left)
        #expect(client.changes == [.removeAllInbound, .insertInbound(id(1))])
        #expect(client.machine.takeLeftBehind().inbound == [id(1)])
        #expect(client.server(inbound("a", qos: .exactlyOnce, 1, duplicate: true)) == ["PUBREC 1"])
        #expect(client.server(.pubrel(answer(1))) == ["PUBCOMP 1"])
        #expect(client.server(inbound("c", qos: .exactlyOnce, 1)) == ["received c", "PUBREC 1"])
    }

    @Test func `the server ends subscriptions that were given up elsewhere`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("in")
        client.server(suback(1))
        client.handle(.connectionClosed)
        client.connect()
        let left = client.machine.takeLeftBehind()
        client.server(suback(2))
        client.handle(.unsubscribe(try TopicFilter("in")))
        client.server(.unsuback(Unsuback(packetID: id(3), reasonCodes: [.success])))
        #expect(returns(&client, to: left) == ["connected", "restored", "UNSUBSCRIBE in"])
        #expect(client.changes == [.rememberSubscription(try TopicFilter("in"))])
    }

    @Test func `a server that has lost it as well begins a new session`() throws {
        var client = MQTTClientHarness().connected()
        client.handle(.connectionClosed)
        let left = LeftSession(unreleased: [id(1)], inbound: [id(1)])
        client.changes = []
        #expect(
            client.connect(expecting: .init(isPresent: false, older: left)) == ["connected session lost", "restored"])
        #expect(client.changes == [])
        #expect(try client.publish("x", qos: .exactlyOnce) == ["accepted 1", "PUBLISH x id 1"])
    }

    @Test(arguments: [ProtocolVersion.five, .threeOneOne])
    func `a copy that is discarded there leaves the session at the last server as it is`(version: ProtocolVersion) {
        var client = MQTTClientHarness { $0.version = version }.connected()
        client.handle(.connectionClosed)
        client.changes = []
        let left = MQTTClientMachine.ExpectedSession(isPresent: false, older: LeftSession())
        #expect(client.open(force: true, expecting: left) == ["CONNECT clean"])
        client.handle(.connectionClosed)
        #expect(client.changes == [])
        #expect(client.open() == ["CONNECT"])
        #expect(client.server(.connack(Connack(sessionPresent: true))) == ["connected resumed", "restored"])
    }

    @Test(arguments: [ProtocolVersion.five, .threeOneOne])
    func `a session that a server did not discard in time costs nothing elsewhere`(version: ProtocolVersion) {
        var client = MQTTClientHarness { $0.version = version }.connected()
        client.handle(.connectionClosed)
        #expect(client.open(force: true) == ["CONNECT clean"])
        client.handle(.connectionClosed)
        let left = MQTTClientMachine.ExpectedSession(isPresent: false, older: LeftSession())
        #expect(client.open(expecting: left) == ["CONNECT"])
        #expect(client.server(.connack(Connack(sessionPresent: true))) == ["connected", "restored"])
    }

    @Test func `in MQTT 3.1.1 a copy that is there again after it was discarded is not resumed`() {
        var client = MQTTClientHarness { $0.version = .threeOneOne }.connected()
        client.handle(.connectionClosed)
        let left = MQTTClientMachine.ExpectedSession(isPresent: false, older: LeftSession())
        client.open(force: true, expecting: left)
        #expect(client.server(.connack(Connack())).first == "discarded")
        client.handle(.connectionClosed)
        #expect(client.open(force: true, expecting: left) == ["CONNECT"])
        #expect(client.server(.connack(Connack(sessionPresent: true))).first == "state mismatch")
    }

    // MARK: Behind one address

    /// The person may have asked while the daemon had no connection, or was killed before it had one.
    @Test(arguments: [ProtocolVersion.five, .threeOneOne])
    func `a session that is to be discarded is not taken for an older one behind the same address`(
        version: ProtocolVersion
    ) throws {
        var durable = DurableSession(established: false)
        durable.clientID = "me"
        var client = MQTTClientHarness(durable: durable) { $0.version = version }
        let expected = MQTTClientMachine.ExpectedSession(older: LeftSession(unreleased: [id(9)]))
        let words = client.connect(resumed: true, expecting: expected)
        #expect(words.first == "state mismatch" && words.last == "close")
        client.handle(.connectionClosed)
        if version == .threeOneOne {
            #expect(client.connect(expecting: expected).first == "discarded")
            client.handle(.connectionClosed)
        }
        client.open(expecting: expected)
        guard case .connect(let connect)? = client.sent.last else {
            Issue.record("no CONNECT was sent")
            return
        }
        #expect(connect.cleanStart == (version == .five))
        #expect(client.server(.connack(Connack())) == ["connected", "restored"])
    }

    @Test func `a session that may be the older one behind the same address is continued, and set up again`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("in")
        client.server(suback(1))
        try client.publish("x")
        let older = LeftSession(unreleased: [id(2), id(9)], inbound: [id(7)], filters: [try TopicFilter("given/up")])
        #expect(
            returns(&client, to: older, isBesidePresent: true) == [
                "connected resumed", "PUBREL 9", "UNSUBSCRIBE given/up", "SUBSCRIBE in", "PUBLISH x id 2 DUP",
            ], "what is in flight here is not released")
        #expect(client.machine.grant?.isCertain == false, "so that publications are published again")
        #expect(
            client.server(inbound("new", qos: .exactlyOnce, 7, duplicate: true)) == ["received new", "PUBREC 7"],
            "it may be the present copy, in which this is a message that was never taken")
    }

    @Test func `a server that ends connections for releasing is not asked for ever`() throws {
        var client = MQTTClientHarness().connected()
        let older = LeftSession(unreleased: [id(9)])
        for _ in 1...3 {
            #expect(returns(&client, to: older, isBesidePresent: true).contains("PUBREL 9"))
        }
        #expect(!returns(&client, to: older, isBesidePresent: true).contains("PUBREL 9"))
    }
}
