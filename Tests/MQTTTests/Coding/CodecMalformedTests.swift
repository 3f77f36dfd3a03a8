import MQTT
import NIOCore
import Testing

/// Malformed packets, the reason code for each, and what the message has to name.
struct Malformed: Sendable, CustomTestStringConvertible {
    let name: String
    let sender: Sender
    let hex: String
    let code: ReasonCode
    let says: String
    let version: ProtocolVersion

    init(
        _ name: String, from sender: Sender = .server, _ hex: String, _ code: ReasonCode, says: String,
        in version: ProtocolVersion = .five
    ) {
        self.name = name
        self.version = version
        self.sender = sender
        self.hex = hex
        self.code = code
        self.says = says
    }

    var testDescription: String { name }

    static let fixedHeader: [Malformed] = [
        Malformed("packet type 0", "00 00", .malformedPacket, says: "packet type 0"),
        Malformed("flags in CONNACK", "21 03 00 00 00", .malformedPacket, says: "CONNACK: fixed header"),
        Malformed("flags in PUBACK", "42 02 00 01", .malformedPacket, says: "PUBACK: fixed header"),
        Malformed("PUBREL without its flags", "60 02 00 01", .malformedPacket, says: "PUBREL: fixed header"),
        Malformed(
            "SUBSCRIBE without its flags", from: .client, "80 07 00 01 00 00 01 61 00", .malformedPacket,
            says: "SUBSCRIBE: fixed header"),
        Malformed("flags in PINGRESP", "D1", .malformedPacket, says: "PINGRESP: fixed header"),
        Malformed("flags in DISCONNECT", "E8 00", .malformedPacket, says: "DISCONNECT: fixed header"),
        Malformed("Remaining Length of five bytes", "30 80 80 80 80 01", .malformedPacket, says: "Remaining Length"),
        Malformed("four bytes that all go on", "30 FF FF FF FF", .malformedPacket, says: "Remaining Length"),
        Malformed("Remaining Length in two bytes for one", "D0 80 00", .malformedPacket, says: "Remaining Length"),
        Malformed("CONNECT from a server", "10 00", .protocolError, says: "CONNECT: packet"),
        Malformed("SUBSCRIBE from a server", "82 00", .protocolError, says: "SUBSCRIBE: packet"),
        Malformed("UNSUBSCRIBE from a server", "A2 00", .protocolError, says: "UNSUBSCRIBE: packet"),
        Malformed("PINGREQ from a server", "C0 00", .protocolError, says: "PINGREQ: packet"),
        Malformed("CONNACK from a client", from: .client, "20 00", .protocolError, says: "CONNACK: packet"),
        Malformed("SUBACK from a client", from: .client, "90 00", .protocolError, says: "SUBACK: packet"),
        Malformed("PINGRESP from a client", from: .client, "D0 00", .protocolError, says: "PINGRESP: packet"),
        Malformed("PINGRESP with a body", "D0 01 00", .malformedPacket, says: "Remaining Length"),
    ]

    static let publish: [Malformed] = [
        Malformed("QoS 3", "36 06 00 01 61 00 01 00", .malformedPacket, says: "PUBLISH: QoS"),
        Malformed("DUP with QoS 0", "38 04 00 01 61 00", .malformedPacket, says: "PUBLISH: DUP"),
        Malformed("packet identifier 0", "32 06 00 01 61 00 00 00", .protocolError, says: "Packet Identifier"),
        Malformed("topic with #", "30 05 00 02 61 23 00", .protocolError, says: "Topic Name contains a wildcard"),
        Malformed("topic with +", "30 04 00 01 2B 00", .protocolError, says: "Topic Name contains a wildcard"),
        Malformed("no topic and no alias", "30 03 00 00 00", .protocolError, says: "Topic Name is empty"),
        Malformed("U+0000 in the topic", "30 05 00 02 61 00 00", .malformedPacket, says: "U+0000"),
        Malformed("a lone continuation byte", "30 04 00 01 80 00", .malformedPacket, says: "UTF-8"),
        Malformed("overlong UTF-8 of /", "30 05 00 02 C0 AF 00", .malformedPacket, says: "UTF-8"),
        Malformed("overlong UTF-8 of U+0000", "30 05 00 02 C0 80 00", .malformedPacket, says: "UTF-8"),
        Malformed("a surrogate, U+D800", "30 06 00 03 ED A0 80 00", .malformedPacket, says: "UTF-8"),
        Malformed("beyond U+10FFFF", "30 07 00 04 F4 90 80 80 00", .malformedPacket, says: "UTF-8"),
        Malformed("UTF-8 cut off", "30 05 00 02 61 C3 00", .malformedPacket, says: "UTF-8"),
        Malformed("an empty packet", "30 00", .malformedPacket, says: "Topic Name ends"),
        Malformed("a topic beyond the packet", "30 03 00 02 61", .malformedPacket, says: "Topic Name ends"),
        Malformed("a topic length of 65,535", "30 04 FF FF 61 00", .malformedPacket, says: "Topic Name ends"),
        Malformed("half a packet identifier", "32 04 00 01 61 00", .malformedPacket, says: "Packet Identifier ends"),
        Malformed("no Property Length", "30 03 00 01 61", .malformedPacket, says: "Property Length ends"),
    ]

    static let properties: [Malformed] = [
        Malformed(
            "Property Length beyond the packet", "30 05 00 01 61 02 01", .malformedPacket, says: "Property Length is"),
        Malformed(
            "Property Length of five bytes", "30 08 00 01 61 80 80 80 80 01", .malformedPacket, says: "Property Length"),
        Malformed(
            "Property Length not in its shortest form", "30 05 00 01 61 80 00", .malformedPacket,
            says: "Property Length"),
        Malformed("an unknown property", "30 05 00 01 61 01 7F", .malformedPacket, says: "127 does not exist"),
        Malformed(
            "a property number of two bytes", "30 06 00 01 61 02 81 01", .malformedPacket, says: "129 does not exist"),
        Malformed(
            "a property number over 255", "30 06 00 01 61 02 81 02", .malformedPacket, says: "257 does not exist"),
        Malformed(
            "Receive Maximum in PUBLISH", "30 07 00 01 61 03 21 00 01", .malformedPacket,
            says: "Receive Maximum is not a property"),
        Malformed(
            "Topic Alias in CONNACK", "20 06 00 00 03 23 00 01", .malformedPacket,
            says: "Topic Alias is not a property"),
        Malformed(
            "Server Reference in PUBACK", "40 08 00 01 00 04 1C 00 01 61", .malformedPacket,
            says: "Server Reference is not a property"),
        Malformed(
            "Topic Alias twice", "30 0A 00 01 61 06 23 00 01 23 00 01", .protocolError, says: "Topic Alias occurs"),
        Malformed(
            "Reason String twice", "40 0C 00 01 00 08 1F 00 01 61 1F 00 01 61", .protocolError,
            says: "Reason String occurs twice"),
        Malformed(
            "Subscription Identifier twice in SUBSCRIBE", from: .client, "82 0B 00 01 04 0B 01 0B 01 00 01 61 00",
            .protocolError, says: "Subscription Identifier occurs twice"),
        Malformed("Topic Alias 0", "30 07 00 01 61 03 23 00 00", .topicAliasInvalid, says: "Topic Alias is 0"),
        Malformed(
            "Subscription Identifier 0", "30 06 00 01 61 02 0B 00", .protocolError,
            says: "Subscription Identifier is 0"),
        Malformed(
            "Subscription Identifier from a client", from: .client, "30 06 00 01 61 02 0B 01", .protocolError,
            says: "Subscription Identifier is not sent"),
        Malformed(
            "Subscription Identifier of five bytes", "30 0A 00 01 61 06 0B 80 80 80 80 01", .malformedPacket,
            says: "Subscription Identifier has more"),
        Malformed(
            "Payload Format Indicator 2", "30 06 00 01 61 02 01 02", .protocolError,
            says: "Payload Format Indicator is 2"),
        Malformed(
            "a wildcard in the Response Topic", "30 08 00 01 61 04 08 00 01 2B", .protocolError,
            says: "Response Topic contains"),
        Malformed(
            "a value beyond the properties, in the payload", "30 09 00 01 61 03 02 00 00 0E 10", .malformedPacket,
            says: "Message Expiry Interval ends"),
        Malformed(
            "a User Property without value", "30 08 00 01 61 04 26 00 01 61", .malformedPacket, says: "User Property"),
        Malformed(
            "a User Property with U+0000", "30 0B 00 01 61 07 26 00 01 61 00 01 00", .malformedPacket,
            says: "User Property contains U+0000"),
        Malformed("Receive Maximum 0", "20 06 00 00 03 21 00 00", .protocolError, says: "Receive Maximum is 0"),
        Malformed(
            "Maximum Packet Size 0", "20 08 00 00 05 27 00 00 00 00", .protocolError, says: "Maximum Packet Size is 0"),
        Malformed("Maximum QoS 2", "20 05 00 00 02 24 02", .protocolError, says: "Maximum QoS is 2"),
        Malformed("Retain Available 2", "20 05 00 00 02 25 02", .protocolError, says: "Retain Available is 2"),
        Malformed("Wildcard Subscription 7", "20 05 00 00 02 28 07", .protocolError, says: "Wildcard Subscription"),
        Malformed(
            "Session Expiry Interval from a server", "E0 07 00 05 11 00 00 00 00", .protocolError,
            says: "Session Expiry Interval is not sent"),
    ]

    static let others: [Malformed] = [
        Malformed("reserved flags in CONNACK", "20 03 02 00 00", .malformedPacket, says: "Connect Acknowledge Flags"),
        Malformed("CONNACK without properties", "20 02 00 00", .malformedPacket, says: "Property Length ends"),
        Malformed("bytes after CONNACK", "20 04 00 00 00 00", .malformedPacket, says: "1 bytes too many"),
        Malformed("PUBACK of one byte", "40 01 00", .malformedPacket, says: "Packet Identifier ends"),
        Malformed("PUBACK for 0", "40 02 00 00", .protocolError, says: "Packet Identifier is 0"),
        Malformed("bytes after PUBACK", "40 05 00 01 00 00 00", .malformedPacket, says: "too many"),
        Malformed("SUBACK without a code", "90 03 00 01 00", .protocolError, says: "SUBACK: Payload"),
        Malformed("UNSUBACK without a code", "B0 03 00 01 00", .protocolError, says: "UNSUBACK: Payload"),
        Malformed("bytes after DISCONNECT", "E0 03 00 00 00", .malformedPacket, says: "too many"),
        Malformed("AUTH of one byte", "F0 01 18", .malformedPacket, says: "Property Length ends"),
        Malformed("AUTH without a method", "F0 02 18 00", .protocolError, says: "Authentication Method is missing"),
        Malformed(
            "SUBSCRIBE without filters", from: .client, "82 03 00 01 00", .protocolError, says: "SUBSCRIBE: Payload"),
        Malformed(
            "UNSUBSCRIBE without filters", from: .client, "A2 03 00 01 00", .protocolError, says: "UNSUBSCRIBE: Payload"
        ),
        Malformed(
            "a filter without options", from: .client, "82 06 00 01 00 00 01 61", .malformedPacket,
            says: "Subscription Options ends"),
        Malformed(
            "reserved subscription options", from: .client, "82 07 00 01 00 00 01 61 40", .malformedPacket,
            says: "Subscription Options has reserved"),
        Malformed(
            "subscription with QoS 3", from: .client, "82 07 00 01 00 00 01 61 03", .malformedPacket, says: "QoS 3"),
        Malformed(
            "Retain Handling 3", from: .client, "82 07 00 01 00 00 01 61 30", .protocolError, says: "Retain Handling 3"),
        Malformed(
            "No Local on a shared subscription", from: .client,
            "82 10 00 01 00 00 0A 24 73 68 61 72 65 2F 67 2F 61 04", .protocolError, says: "No Local"),
        Malformed(
            "# in the middle of a filter", from: .client, "82 09 00 01 00 00 03 23 2F 61 00", .protocolError,
            says: "Topic Filter is invalid"),
        Malformed(
            "an empty filter", from: .client, "A2 05 00 01 00 00 00", .protocolError, says: "Topic Filter is invalid"),
    ]

    static let connect: [Malformed] = [
        Malformed(
            "another protocol", from: .client, "10 0E 00 04 4D 51 54 55 05 02 00 3C 00 00 01 61",
            .unsupportedProtocolVersion, says: "Protocol Name"),
        Malformed(
            "MQTT 3.1.1", from: .client, "10 0E 00 04 4D 51 54 54 04 02 00 3C 00 00 01 61",
            .unsupportedProtocolVersion, says: "Protocol Version is 4"),
        Malformed(
            "the reserved flag", from: .client, "10 0E 00 04 4D 51 54 54 05 03 00 3C 00 00 01 61", .malformedPacket,
            says: "Connect Flags has the reserved"),
        Malformed(
            "Will QoS without a will", from: .client, "10 0E 00 04 4D 51 54 54 05 0A 00 3C 00 00 01 61",
            .malformedPacket, says: "Connect Flags has will"),
        Malformed(
            "Will Retain without a will", from: .client, "10 0E 00 04 4D 51 54 54 05 22 00 3C 00 00 01 61",
            .malformedPacket, says: "Connect Flags has will"),
        Malformed(
            "Will QoS 3", from: .client, "10 0E 00 04 4D 51 54 54 05 1E 00 3C 00 00 01 61", .malformedPacket,
            says: "Connect Flags has will"),
        Malformed(
            "a user name that is not there", from: .client, "10 0E 00 04 4D 51 54 54 05 82 00 3C 00 00 01 61",
            .malformedPacket, says: "User Name ends"),
        Malformed(
            "a password that nobody announced", from: .client,
            "10 11 00 04 4D 51 54 54 05 02 00 3C 00 00 01 61 00 01 70", .malformedPacket, says: "3 bytes too many"),
        Malformed(
            "an empty Will Topic", from: .client, "10 13 00 04 4D 51 54 54 05 06 00 3C 00 00 01 61 00 00 00 00 00",
            .protocolError, says: "Will Topic is empty"),
        Malformed(
            "Authentication Data without a method", from: .client,
            "10 12 00 04 4D 51 54 54 05 02 00 3C 04 16 00 01 61 00 01 61", .protocolError,
            says: "Authentication Data is there without"),
        Malformed(
            "Receive Maximum 0", from: .client, "10 11 00 04 4D 51 54 54 05 02 00 3C 03 21 00 00 00 01 61",
            .protocolError, says: "Receive Maximum is 0"),
        Malformed(
            "Request Problem Information 2", from: .client, "10 10 00 04 4D 51 54 54 05 02 00 3C 02 17 02 00 01 61",
            .protocolError, says: "Request Problem Information is 2"),
        Malformed(
            "Will Delay Interval among the properties of CONNECT", from: .client,
            "10 13 00 04 4D 51 54 54 05 02 00 3C 05 18 00 00 00 01 00 01 61", .malformedPacket,
            says: "Will Delay Interval is not a property"),
    ]
}

struct CodecMalformedTests {
    /// [MQTT-1.5.5-1] [MQTT-3.2.2-1] [MQTT-3.3.1-2] [MQTT-3.14.2-2]
    @Test(
        arguments: Malformed.fixedHeader + Malformed.publish + Malformed.properties + Malformed.others
            + Malformed.connect + Malformed.older)
    func `malformed bytes give the reason code and name the field, in one chunk or byte by byte`(
        _ malformed: Malformed
    ) throws {
        let bytes = bytesOf(malformed.hex)
        for chunks in [[bytes], bytes.map { [$0] }] {
            let error = #expect(throws: MalformedPacket.self) {
                try decode(chunks, from: malformed.sender, in: malformed.version)
            }
            #expect(error?.reasonCode == malformed.code)
            #expect(error?.message.contains(malformed.says) == true, "\(error?.message ?? "no error")")
            #expect(error?.message.contains("(MQTT \(malformed.version), ") == true)
        }
    }

    @Test(
        arguments: [
            ("PUBACK with a success that could be left out", "40 03 00 01 00", "40 02 00 01"),
            ("PUBACK with an empty Property Length", "40 04 00 01 00 00", "40 02 00 01"),
            ("PUBREC with a reason and an empty Property Length", "50 04 00 01 80 00", "50 03 00 01 80"),
            ("DISCONNECT with a reason that could be left out", "E0 01 00", "E0 00"),
            ("DISCONNECT with an empty Property Length", "E0 02 8B 00", "E0 01 8B"),
            ("AUTH in full", "F0 02 00 00", "F0 00"),
            ("a reason code that the standard does not list", "E0 02 FE 00", "E0 01 FE"),
            (
                "properties in another order", "30 0B 00 01 61 07 23 00 01 01 01 0B 05",
                "30 0B 00 01 61 07 01 01 23 00 01 0B 05"
            ),
        ])
    func `longer forms and other orders are accepted, and written in our form`(
        _ name: String, _ taken: String, _ written: String
    ) throws {
        let packet = try #require(try decode([bytesOf(taken)], from: .server).first)
        #expect(encode(packet) == bytesOf(written))
    }

    @Test func `packets before a malformed one are handed out, those after it are not`() throws {
        var decoder = PacketDecoder()
        decoder.append(ByteBuffer(bytes: bytesOf("D0 00 00 00 D0 00")))
        #expect(try decoder.next() == .pingresp)
        let error = #expect(throws: MalformedPacket.self) { try decoder.next() }
        decoder.append(ByteBuffer(bytes: bytesOf("D0 00")))
        #expect(throws: try #require(error)) { try decoder.next() }
    }
}
