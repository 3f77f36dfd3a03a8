import NIOCore
import Support
import Testing

@testable import MQTT

/// Rule 23: errors that another publisher can cause, and the server relays, do not end the connection.
@Suite struct `Messages with content that cannot be used` {
    /// A PUBLISH with QoS 1 and packet identifier 1 that can be framed, and what is wrong with it.
    struct Flawed: Sendable, CustomTestStringConvertible {
        let name: String
        /// After the topic, which is "a" unless it says otherwise, and the packet identifier.
        var topic = "00 01 61"
        /// With the Property Length; nothing of it in MQTT 3.1.1.
        var properties = "00"
        var payload = "78"
        let says: String
        var versions: [ProtocolVersion] = [.five]

        var testDescription: String { name }

        func bytes(_ qos: QoS, _ version: ProtocolVersion) -> [UInt8] {
            let id = qos == .atMostOnce ? "" : "00 01"
            let body = [topic, id, version == .five ? properties : "", payload].flatMap(bytesOf)
            return [0x30 | qos.rawValue << 1, UInt8(body.count)] + body
        }
    }

    static let flawed: [Flawed] = [
        Flawed(
            name: "a wildcard in the topic", topic: "00 02 61 23", says: "wildcard", versions: [.five, .threeOneOne]),
        Flawed(name: "no topic", topic: "00 00", says: "empty", versions: [.five, .threeOneOne]),
        Flawed(name: "no UTF-8 in the topic", topic: "00 01 80", says: "UTF-8", versions: [.five, .threeOneOne]),
        Flawed(name: "U+0000 in the topic", topic: "00 02 61 00", says: "U+0000", versions: [.five, .threeOneOne]),
        Flawed(name: "a newline in the topic", topic: "00 02 61 0A", says: "U+000A", versions: [.five, .threeOneOne]),
        Flawed(name: "U+009B in the topic", topic: "00 02 C2 9B", says: "U+009B", versions: [.five, .threeOneOne]),
        Flawed(name: "U+FFFE in the topic", topic: "00 03 EF BF BE", says: "U+FFFE", versions: [.five, .threeOneOne]),
        Flawed(name: "U+FDD0 in the topic", topic: "00 03 EF B7 90", says: "U+FDD0", versions: [.five, .threeOneOne]),
        Flawed(name: "a wildcard in the Response Topic", properties: "05 08 00 02 61 23", says: "Response Topic"),
        Flawed(name: "an empty Response Topic", properties: "03 08 00 00", says: "Response Topic is empty"),
        Flawed(name: "no UTF-8 in the Response Topic", properties: "04 08 00 01 FF", says: "Response Topic"),
        Flawed(name: "a control character in the Response Topic", properties: "04 08 00 01 1B", says: "U+001B"),
        Flawed(name: "Payload Format Indicator 2", properties: "02 01 02", says: "Payload Format Indicator is 2"),
        Flawed(name: "bytes that are said to be text", properties: "02 01 01", payload: "FF", says: "not the UTF-8"),
        Flawed(name: "no UTF-8 in the Content Type", properties: "04 03 00 01 C3", says: "Content Type"),
        Flawed(name: "a control character in the Content Type", properties: "04 03 00 01 07", says: "U+0007"),
        Flawed(name: "U+0000 in a User Property", properties: "07 26 00 01 61 00 01 00", says: "User Property"),
        Flawed(name: "a control character in a User Property", properties: "07 26 00 01 61 00 01 1B", says: "U+001B"),
        Flawed(name: "half a User Property", properties: "04 26 00 01 61", says: "User Property"),
        Flawed(name: "Subscription Identifier 0", properties: "02 0B 00", says: "Subscription Identifier is 0"),
        Flawed(name: "a Content Type twice", properties: "08 03 00 01 61 03 00 01 61", says: "twice"),
        Flawed(name: "a property of another packet", properties: "03 21 00 01", says: "Receive Maximum"),
        Flawed(name: "a property that does not exist", properties: "01 7F", says: "127 does not exist"),
        Flawed(name: "an expiry beyond the properties", properties: "02 02 00", says: "Message Expiry Interval"),
    ]

    private static let cases = flawed.flatMap { one in one.versions.map { (one, $0) } }

    private static func refusals(_ words: [String]) -> [String] { words.filter { $0.hasPrefix("refused") } }

    /// [MQTT-1.5.4-1] [MQTT-1.5.4-2] [MQTT-3.3.2-2] [MQTT-3.3.2-13] [MQTT-3.3.2-14] [MQTT-3.3.2-19] [MQTT-4.5.0-2]
    @Test(arguments: cases, [QoS.atMostOnce, .atLeastOnce, .exactlyOnce])
    func `an unusable message is acknowledged and reported, not delivered, and the next one arrives`(
        _ flawed: (Flawed, ProtocolVersion), _ qos: QoS
    ) throws {
        let (flawed, version) = flawed
        var client = MQTTClientHarness { $0.version = version }
        let consumer = try #require(ConsumerName("all"))
        client.handle(.consumer(consumer, .put(filter: "#", .exactlyOnce, matching: try TopicFilter("#"))))
        client.connect()
        var actions: [MQTTClientMachine.Action] = []
        client.machine.handle(
            .received(ByteBuffer(bytes: flawed.bytes(qos, version))), at: client.now, into: &actions)
        let refused = actions.compactMap { action -> MQTTClientMachine.RefusedMessage? in
            if case .event(.messageRefused(let message)) = action { message } else { nil }
        }
        #expect(refused.count == 1)
        #expect(refused.first?.flaw.message.contains(flawed.says) == true, "\(String(describing: refused.first))")
        #expect(refused.first?.qos == qos)
        let words = client.describe(actions)
        switch qos {
        case .atMostOnce: #expect(!words.contains { $0.hasPrefix("PUB") })
        case .atLeastOnce: #expect(words.contains("PUBACK 1"))
        case .exactlyOnce:
            #expect(words.contains("PUBREC 1"))
            #expect(client.changes.contains(.insertInbound(id(1))), "it is not reported a second time")
            #expect(client.server(.pubrel(answer(1))) == ["PUBCOMP 1"])
        }
        #expect(!words.contains { $0.hasPrefix("received") || $0.hasPrefix("violation") || $0 == "close" })
        #expect(client.server(inbound("next", qos: .atLeastOnce, 2)).contains("received next"))
        #expect(client.machine.inboxCounts.messages == 1)
    }

    @Test func `a message with too many properties is set aside`() {
        var client = MQTTClientHarness().connected()
        func message(_ count: Int, _ id: UInt16) -> Packet {
            let user = [UserProperty](repeating: UserProperty(name: "n", value: ""), count: count)
            return .publish(
                Publish(
                    topic: "t", payload: ByteBuffer(), qos: .atLeastOnce, packetID: PacketID(rawValue: id),
                    properties: .init(userProperties: user)))
        }
        let most = Publish.Properties.maximumRepeats
        #expect(client.server(message(most, 1)).contains { $0.hasPrefix("received") })
        let words = client.server(message(most + 1, 2))
        #expect(Self.refusals(words).count == 1 && words.contains { $0.hasPrefix("PUBACK 2") })
        func mine(_ count: Int) -> OutboundMessage {
            let user = [UserProperty](repeating: UserProperty(name: "n", value: ""), count: count)
            return OutboundMessage(topic: "t", properties: .init(userProperties: user))
        }
        #expect(throws: Never.self) { try MQTTClientMachine.checkContent(of: mine(most)) }
        #expect(throws: MQTTClientMachine.PublishError.self) { try MQTTClientMachine.checkContent(of: mine(most + 1)) }
    }

    @Test func `an unusable QoS 2 message that is sent again is reported once`() {
        var client = MQTTClientHarness().connected()
        var bytes = ByteBuffer(bytes: Self.flawed[0].bytes(.exactlyOnce, .five))
        #expect(Self.refusals(client.handle(.received(bytes))).count == 1)
        client.handle(.connectionClosed)
        client.connect(resumed: true)
        // DUP 1.
        bytes.setInteger((bytes.getInteger(at: 0) ?? UInt8(0)) | 0x08, at: 0)
        #expect(client.handle(.received(bytes)) == ["PUBREC 1"])
    }

    @Test func `an unusable message is acknowledged in its turn`() throws {
        var client = MQTTClientHarness()
        let consumer = try #require(ConsumerName("all"))
        client.handle(.consumer(consumer, .put(filter: "#", .exactlyOnce, matching: try TopicFilter("#"))))
        client.connect()
        client.holdsCommits = true
        client.server(inbound("first", qos: .atLeastOnce, 9))
        let bytes = ByteBuffer(bytes: Self.flawed[0].bytes(.atLeastOnce, .five))
        #expect(client.handle(.received(bytes)) == ["refused 82 a#"])
        #expect(client.commitAll() == ["collected 1", "PUBACK 9", "PUBACK 1"])
    }

    /// Errors of the server itself, which no publisher can cause.
    /// [MQTT-2.2.1-4] [MQTT-3.1.2-26] [MQTT-3.1.2-27] [MQTT-3.3.1-4] [MQTT-3.3.2-8] [MQTT-3.3.2-11]
    @Test(arguments: [
        ("QoS 3", "36 06 00 01 61 00 01 00", "81"),
        ("packet identifier 0", "32 06 00 01 61 00 00 00", "82"),
        ("a topic beyond the packet", "30 03 00 02 61", "81"),
        ("properties beyond the packet", "30 05 00 01 61 02 01", "81"),
        ("Topic Alias 0", "30 07 00 01 61 03 23 00 00", "94"),
        ("a Topic Alias, and we allow none", "30 07 00 01 61 03 23 00 01", "94"),
    ])
    func `an error in framing, or one only the server can make, ends the connection`(
        _ name: String, _ hex: String, _ code: String
    ) {
        var client = MQTTClientHarness().connected()
        #expect(
            client.handle(.received(ByteBuffer(bytes: bytesOf(hex)))) == [
                "violation \(code)", "DISCONNECT \(code)", "close",
            ])
    }

    // MARK: Too large

    /// With MQTT 3.1.1 a client cannot announce its Maximum Packet Size.
    @Test(arguments: [1, 7, 10_000])
    func `a payload over the maximum is skipped with little memory`(_ chunk: Int) {
        var client = MQTTClientHarness {
            $0.version = .threeOneOne
            $0.maximumPacketSize = 100
        }
        client.connect()
        let large = Publish(
            topic: "large", payload: ByteBuffer(repeating: 0x78, count: 2000), qos: .atLeastOnce, packetID: id(1))
        var bytes = encoded(.publish(large), inbound("next", qos: .atLeastOnce, 2), in: .threeOneOne)
        var words: [String] = []
        while bytes.readableBytes > 0 {
            guard let part = bytes.readSlice(length: min(chunk, bytes.readableBytes)) else { break }
            words += client.handle(.received(part))
            #expect(client.machine.link.decoder.bufferedBytes <= 100 + chunk)
        }
        #expect(words.filter { !$0.hasPrefix("PUB") } == ["refused 95 large", "received next"])
        #expect(words.filter { $0.hasPrefix("PUB") } == ["PUBACK 1", "PUBACK 2"])
    }

    /// [MQTT-3.1.2-24]
    @Test func `another packet over the maximum ends the connection`() {
        var client = MQTTClientHarness { $0.maximumPacketSize = 20 }
        client.connect()
        #expect(
            client.handle(.received(ByteBuffer(bytes: [0x40, 0x30]))) == ["violation 95", "DISCONNECT 95", "close"])
    }

    // MARK: At the door

    @Test(arguments: [0x0A, 0x1B, 0x7F, 0x85, 0xFFFE, 0x1FFFF, 0xFDD0] as [UInt32])
    func `a topic, filter or property with a forbidden character is refused`(_ codePoint: UInt32) throws {
        let text = "a" + String(Character(try #require(Unicode.Scalar(codePoint))))
        var client = MQTTClientHarness()
        #expect(throws: MQTTClientMachine.PublishError.self) { try client.publish("x", topic: text) }
        #expect(throws: InvalidTopic.self) { try client.subscribe(text) }
        for properties: Publish.Properties in [
            .init(responseTopic: text), .init(contentType: text),
            .init(userProperties: [UserProperty(name: "n", value: text)]),
        ] {
            #expect(throws: MQTTClientMachine.PublishError.self) {
                try MQTTClientMachine.checkContent(of: OutboundMessage(topic: "t", properties: properties))
            }
        }
    }

    /// [MQTT-3.3.2-14]
    @Test func `an invalid response topic is named as such in the error`() {
        let message = OutboundMessage(topic: "t", properties: .init(responseTopic: "a/#"))
        #expect {
            try MQTTClientMachine.checkContent(of: message)
        } throws: { error in
            if case .invalidProperty(let sentence)? = error as? MQTTClientMachine.PublishError {
                sentence.hasPrefix("the response topic is not valid: ")
            } else {
                false
            }
        }
    }

    @Test func `a payload that is not UTF-8 cannot be published as text`() {
        let message = OutboundMessage(
            topic: "t", payload: ByteBuffer(bytes: [0xFF]), properties: .init(payloadFormat: .utf8))
        #expect(throws: MQTTClientMachine.PublishError.self) { try MQTTClientMachine.checkContent(of: message) }
    }
}
