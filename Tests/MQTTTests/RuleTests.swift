import NIOCore
import Testing

@testable import MQTT

/// The 24 rules of Documentation/MQTT-rules.md, and where each is tested; here are those that have no better place.
///
/// | rule | what | tests |
/// | --- | --- | --- |
/// | 1 | Session Expiry | MQTTClientMachineConnectionTests `rule 1` |
/// | 2 | no session here, one there | MQTTClientMachineConnectionTests `rule 2`; DurableStore's opening tests |
/// | 3 | session lost | MQTTClientMachineOutboundTests `rule 3` |
/// | 4 | resume, order, DUP | MQTTClientMachineOutboundTests `rule 4`; CutTests; MQTTClientMachineWalkTests |
/// | 5 | nothing after PUBREL or a refusal | here; MQTTClientMachineOutboundTests `rule 5` |
/// | 6 | SUBSCRIBE is no session state | MQTTClientMachineConnectionTests and MQTTClientMachinePacketIDTests `rule 6` |
/// | 7 | identifiers | MQTTClientMachineOutboundTests `rule 7`; MQTTClientMachinePacketIDTests |
/// | 8 | send quota, also when sent again | MQTTClientMachineOutboundTests `rule 8` |
/// | 9 | quota zero delays only PUBLISH | MQTTClientMachineOutboundTests `rule 9` |
/// | 10 | our Receive Maximum | MQTTClientMachineConnectionTests `rule 10` |
/// | 11 | order of acknowledgements | MQTTClientMachineConnectionTests `rule 11` |
/// | 12 | PUBACK means ownership | here |
/// | 13 | inbound QoS 2 | MQTTClientMachineConnectionTests `rule 13`, and the two below it; CutTests |
/// | 14 | acknowledgements of dead connections | MQTTClientMachineOutboundTests `rule 14`; here for inbound ones |
/// | 15 | topic aliases | here; MQTTClientMachineConnectionTests `a topic alias from the server` |
/// | 16 | ping on silence of either side | SessionCoreTests/HeartbeatTests `rule 16` |
/// | 17 | the server's limits | MQTTClientMachineOutboundTests `rule 17`; here on replay |
/// | 18 | Assigned Client Identifier | MQTTClientMachineConnectionTests `rule 18` |
/// | 19 | what subscriptions the server offers | MQTTClientMachineConnectionTests `rule 19`; here for Subscription Identifiers |
/// | 20 | before CONNACK | MQTTClientMachineConnectionTests and SCRAMTests `rule 20` |
/// | 21 | will and goodbye | SessionTests/SessionStepsTests `rule 21` |
/// | 22 | message expiry | MQTTClientMachineOutboundTests `rule 22`; here for QoS 2 |
/// | 23 | malformed input | CodecMalformedTests, VectorTests; MQTTClientMachineConnectionTests `rule 23` |
/// | 24 | after DISCONNECT | MQTTClientMachineConnectionTests `rule 24` |
struct RuleTests {
    /// [MQTT-4.3.3-6]
    @Test func `rule 5: a released message is never published again, whatever the server answers`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: .exactlyOnce)
        #expect(client.server(.pubrec(answer(1))) == ["PUBREL 1"])
        for _ in 0..<3 {
            client.handle(.connectionClosed)
            #expect(client.connect(resumed: true) == ["connected resumed", "restored", "PUBREL 1"])
            #expect(client.server(.pubrec(answer(1))) == ["PUBREL 1"])
        }
        #expect(client.publishes.count == 1)
    }

    /// [MQTT-4.3.2-4] [MQTT-4.3.3-8]
    @Test func `rule 12: the effects of a message are durable before it is acknowledged`() {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        #expect(client.server(inbound("a", qos: .exactlyOnce, 1)) == ["received a", "commit"])
        // The next message waits for the same disk.
        #expect(client.server(inbound("b", qos: .atLeastOnce, 2)) == ["received b"])
        #expect(client.commitAll() == ["PUBREC 1", "PUBACK 2"])
    }

    @Test func `rule 14: an inbound message is not acknowledged on another connection`() {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        client.server(inbound("a", qos: .exactlyOnce, 1), inbound("b", qos: .atLeastOnce, 2))
        client.handle(.connectionClosed)
        client.open()
        client.server(.connack(Connack(sessionPresent: true)))
        #expect(client.commitAll().allSatisfy { !$0.hasPrefix("PUB") })
    }

    // MARK: Rule 15

    private static func topics(_ client: MQTTClientHarness) -> [String] {
        client.publishes.map { "\($0.topic) \($0.properties.topicAlias.map(String.init) ?? "-")" }
    }

    /// [MQTT-3.2.2-17] [MQTT-3.3.2-8] [MQTT-3.3.2-9]
    @Test func `rule 15: a topic is sent once, then its alias, within the server's maximum`() throws {
        var client = MQTTClientHarness().connected(Connack.Properties(topicAliasMaximum: 2))
        for topic in ["first", "second", "third", "first", "third", "second", "t"] {
            try client.publish("x", topic: topic)
        }
        #expect(
            Self.topics(client) == ["first 1", "second 2", "third -", " 1", "third -", " 2", "t -"])
    }

    /// [MQTT-3.2.2-18] [MQTT-3.3.2-7]
    @Test func `rule 15: a topic gets an alias if it is longer than one`() throws {
        var client = MQTTClientHarness().connected(Connack.Properties(topicAliasMaximum: 2))
        for topic in ["abc", "abcd"] { try client.publish("x", topic: topic) }
        #expect(client.publishes.map(\.properties.topicAlias) == [nil, 1])
    }

    @Test func `rule 15: aliases end with the connection, and a message sent again has its topic`() throws {
        var client = MQTTClientHarness().connected(Connack.Properties(topicAliasMaximum: 10))
        try client.publish("x", topic: "first")
        try client.publish("y", topic: "first")
        client.handle(.connectionClosed)
        client.publishes = []
        client.connect(resumed: true, Connack.Properties(topicAliasMaximum: 1))
        #expect(Self.topics(client) == ["first 1", " 1"])
        client.handle(.connectionClosed)
        client.publishes = []
        client.connect(resumed: true)
        #expect(Self.topics(client) == ["first -", "first -"])
    }

    @Test func `rule 15: an alias does not make a packet too large for the server`() throws {
        var client = MQTTClientHarness().connected(Connack.Properties(maximumPacketSize: 40, topicAliasMaximum: 10))
        try client.publish(String(repeating: "x", count: 20), topic: "topic")
        #expect(Self.topics(client) == ["topic -"])
    }

    // MARK: Rules 17, 19, 22

    @Test func `rule 17: a server that takes less after a resume is not sent more than that`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("twice", qos: .exactlyOnce)
        try client.publish("once", topic: "other")
        client.handle(.connectionClosed)
        let words = client.connect(resumed: true, Connack.Properties(maximumQoS: .atLeastOnce))
        #expect(words == ["connected resumed", "restored", "rejected 1 without a code", "PUBLISH once id 2 DUP"])
    }

    /// [MQTT-3.8.3-4]
    @Test func `rule 19: a server without Subscription Identifiers is subscribed to, a shared filter without No Local`()
        throws
    {
        var client = MQTTClientHarness().connected(Connack.Properties(subscriptionIDsAvailable: false))
        #expect(try client.subscribe("a") == ["SUBSCRIBE a"])
        var actions: [MQTTClientMachine.Action] = []
        try client.machine.subscribe(
            Subscription(filter: "$share/g/a", noLocal: true), at: client.now, into: &actions)
        #expect(client.machine.subscriptions.wanted.values.contains { $0.filter == "$share/g/a" && !$0.noLocal })
    }

    /// [MQTT-4.3.3-7]
    @Test func `rule 22: a QoS 2 exchange that has begun is finished, however late`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: .exactlyOnce, expiresIn: 1000)
        client.server(.pubrec(answer(1)))
        client.handle(.connectionClosed)
        client.now = Timestamp(rawValue: client.now.rawValue + 60_000)
        #expect(client.connect(resumed: true).last == "PUBREL 1")
        #expect(client.server(.pubcomp(answer(1))) == ["delivered 1 00"])
    }

    // MARK: Request and response (4.10)

    @Test func `the properties of a request are passed in both directions`() throws {
        let properties = Publish.Properties(
            payloadFormat: .utf8, responseTopic: "answers/me", correlationData: ByteBuffer(string: "42"),
            userProperties: [UserProperty(name: "a", value: "b"), UserProperty(name: "a", value: "c")],
            contentType: "text/plain")
        var client = MQTTClientHarness().connected()
        var actions: [MQTTClientMachine.Action] = []
        _ = try client.machine.publish(
            OutboundMessage(topic: "requests", properties: properties), at: client.now, into: &actions)
        _ = client.describe(actions)
        #expect(client.publishes.last?.properties == properties)

        var inbound = Publish(topic: "answers/me", properties: properties)
        inbound.properties.subscriptionIDs = [7]
        actions = []
        client.machine.handle(.received(Packet.publish(inbound).encoded()), at: client.now, into: &actions)
        let received = actions.compactMap { action -> Publish.Properties? in
            if case .event(.received(let message)) = action { message.properties } else { nil }
        }
        #expect(received == [inbound.properties])
    }
}
