import MQTT
import NIOCore

// MQTT 3.1.1 (OASIS Standard, 2014): packets without properties and, mostly, without reason codes.

extension Vector {
    static let every = all + older
    static let older = olderConnecting + olderMessages + olderSubscribing

    private static func older(_ name: String, from sender: Sender, _ hex: String, _ packet: Packet) -> Vector {
        Vector(name, from: sender, hex, packet, in: .threeOneOne)
    }

    static let olderConnecting: [Vector] = [
        older(
            "CONNECT, the least", from: .client,
            """
            10 0D                   // CONNECT, Remaining Length 13
            00 04 4D 51 54 54       // Protocol Name: MQTT
            04                      // Protocol Level
            00                      // Connect Flags: none
            00 3C                   // Keep Alive: 60 s
            00 01 61                // Client Identifier: a
            """,
            .connect(Connect(clientID: "a", keepAlive: 60))),
        older(
            "CONNECT, everything", from: .client,
            """
            10 20                   // CONNECT, Remaining Length 32
            00 04 4D 51 54 54       // Protocol Name: MQTT
            04                      // Protocol Level
            EE                      // User Name, Password, Will Retain, Will QoS 1, Will, Clean Session
            00 0A                   // Keep Alive: 10 s
            00 03 64 65 76          // Client Identifier: dev
            00 01 77                // Will Topic: w
            00 03 62 79 65          // Will Message: bye
            00 01 75                // User Name: u
            00 04 70 77 00 FF       // Password: bytes of any kind
            """,
            .connect(
                Connect(
                    clientID: "dev", cleanStart: true, keepAlive: 10, username: "u",
                    password: ByteBuffer(bytes: [0x70, 0x77, 0x00, 0xFF]),
                    will: Will(topic: "w", payload: ByteBuffer(string: "bye"), qos: .atLeastOnce, retain: true)))),
        older(
            "CONNECT, without an identifier, a user name alone", from: .client,
            """
            10 0F                   // CONNECT, Remaining Length 15
            00 04 4D 51 54 54       // Protocol Name: MQTT
            04                      // Protocol Level
            82                      // User Name, Clean Session
            00 00                   // Keep Alive: off
            00 00                   // Client Identifier: for this connection only
            00 01 75                // User Name: u
            """,
            .connect(Connect(clientID: "", cleanStart: true, username: "u"))),
        older(
            "CONNACK, a new session", from: .server,
            """
            20 02                   // CONNACK, Remaining Length 2
            00                      // Session Present: no
            00                      // Return code: accepted
            """,
            .connack(Connack())),
        older("CONNACK, resumed", from: .server, "20 02 01 00", .connack(Connack(sessionPresent: true))),
        older(
            "CONNACK, the version", from: .server, "20 02 00 01",
            .connack(Connack(reasonCode: .unsupportedProtocolVersion))),
        older(
            "CONNACK, the identifier", from: .server, "20 02 00 02",
            .connack(Connack(reasonCode: .clientIdentifierNotValid))),
        older(
            "CONNACK, unavailable", from: .server, "20 02 00 03", .connack(Connack(reasonCode: .serverUnavailable))),
        older(
            "CONNACK, the password", from: .server, "20 02 00 04",
            .connack(Connack(reasonCode: .badUserNameOrPassword))),
        older(
            "CONNACK, not authorized", from: .server, "20 02 00 05", .connack(Connack(reasonCode: .notAuthorized))),
        older("DISCONNECT", from: .client, "E0 00", .disconnect(Disconnect())),
        older("PINGREQ", from: .client, "C0 00", .pingreq),
        older("PINGRESP", from: .server, "D0 00", .pingresp),
    ]

    static let olderMessages: [Vector] = [
        older(
            "PUBLISH, QoS 0", from: .server,
            """
            30 05                   // PUBLISH, Remaining Length 5
            00 01 61                // Topic Name: a
            68 69                   // Payload: hi
            """,
            .publish(Publish(topic: "a", payload: ByteBuffer(string: "hi")))),
        older(
            "PUBLISH, without a payload", from: .client, "31 03 00 01 61", .publish(Publish(topic: "a", retain: true))),
        older(
            "PUBLISH, QoS 1, again", from: .client,
            """
            3A 08                   // PUBLISH, DUP, QoS 1, Remaining Length 8
            00 03 61 2F 62          // Topic Name: a/b
            00 0A                   // Packet Identifier: 10
            00                      // Payload, which looks like an empty Property Length
            """,
            .publish(
                Publish(
                    topic: "a/b", payload: ByteBuffer(bytes: [0]), qos: .atLeastOnce, duplicate: true,
                    packetID: identifier(10)))),
        older(
            "PUBLISH, QoS 2, retained", from: .server,
            """
            35 06                   // PUBLISH, QoS 2, RETAIN, Remaining Length 6
            00 01 61                // Topic Name: a
            FF FF                   // Packet Identifier: 65535
            78                      // Payload: x
            """,
            .publish(
                Publish(
                    topic: "a", payload: ByteBuffer(string: "x"), qos: .exactlyOnce, retain: true,
                    packetID: identifier(65_535)))),
        older("PUBACK", from: .server, "40 02 00 0A", .puback(Acknowledgement(packetID: identifier(10)))),
        older("PUBREC", from: .client, "50 02 00 0A", .pubrec(Acknowledgement(packetID: identifier(10)))),
        older("PUBREL", from: .server, "62 02 00 0A", .pubrel(Acknowledgement(packetID: identifier(10)))),
        older("PUBCOMP", from: .client, "70 02 00 0A", .pubcomp(Acknowledgement(packetID: identifier(10)))),
    ]

    static let olderSubscribing: [Vector] = [
        older(
            "SUBSCRIBE", from: .client,
            """
            82 0E                   // SUBSCRIBE, Remaining Length 14
            00 0A                   // Packet Identifier: 10
            00 03 61 2F 62          // Topic Filter: a/b
            01                      // Requested QoS: 1
            00 03 63 2F 23          // Topic Filter: c/#
            02                      // Requested QoS: 2
            """,
            .subscribe(
                Subscribe(
                    packetID: identifier(10),
                    subscriptions: [
                        Subscription(filter: "a/b", qos: .atLeastOnce), Subscription(filter: "c/#", qos: .exactlyOnce),
                    ]))),
        older(
            "SUBACK", from: .server,
            """
            90 06                   // SUBACK, Remaining Length 6
            00 0A                   // Packet Identifier: 10
            00 01 02 80             // Return codes: QoS 0, 1, 2, failure
            """,
            .suback(
                Suback(
                    packetID: identifier(10),
                    reasonCodes: [.success, .grantedQoS1, .grantedQoS2, .unspecifiedError]))),
        older(
            "UNSUBSCRIBE", from: .client,
            """
            A2 08                   // UNSUBSCRIBE, Remaining Length 8
            00 0B                   // Packet Identifier: 11
            00 01 61                // Topic Filter: a
            00 01 23                // Topic Filter: #
            """,
            .unsubscribe(Unsubscribe(packetID: identifier(11), filters: ["a", "#"]))),
        older(
            "UNSUBACK", from: .server,
            """
            B0 02                   // UNSUBACK, Remaining Length 2
            00 0B                   // Packet Identifier: 11; there are no codes
            """,
            .unsuback(Unsuback(packetID: identifier(11), reasonCodes: []))),
    ]
}

extension Malformed {
    private static func older(
        _ name: String, from sender: Sender = .server, _ hex: String, _ code: ReasonCode, says: String
    ) -> Malformed {
        Malformed(name, from: sender, hex, code, says: says, in: .threeOneOne)
    }

    static let older: [Malformed] = [
        older("packet type 0", "00 00", .malformedPacket, says: "packet type 0"),
        older("AUTH from a server", "F0 00", .protocolError, says: "AUTH: packet"),
        older("AUTH from a client", from: .client, "F0 00", .protocolError, says: "AUTH: packet"),
        older("DISCONNECT from a server", "E0 00", .protocolError, says: "DISCONNECT: packet"),
        older("DISCONNECT with a reason", from: .client, "E0 01 00", .malformedPacket, says: "1 bytes too many"),
        older("flags in DISCONNECT", from: .client, "E1 00", .malformedPacket, says: "2.2.2"),
        older("CONNACK of MQTT 5", "20 03 00 00 00", .malformedPacket, says: "1 bytes too many"),
        older("a reserved return code", "20 02 00 06", .protocolError, says: "is 6"),
        older("reserved flags in CONNACK", "20 02 02 00", .malformedPacket, says: "reserved flags"),
        older("half a CONNACK", "20 01 00", .malformedPacket, says: "Return code ends"),
        older("a reason code in PUBACK", "40 03 00 01 00", .malformedPacket, says: "too many"),
        older("packet identifier 0 in PUBREC", "50 02 00 00", .protocolError, says: "Packet Identifier is 0"),
        older("an empty topic", "30 02 00 00", .protocolError, says: "Topic Name is empty (MQTT 3.1.1, 3.3.2.1)"),
        older("QoS 3", "36 05 00 01 61 00 01", .malformedPacket, says: "QoS"),
        older("a reserved return code in SUBACK", "90 03 00 01 03", .protocolError, says: "return code 3"),
        older("an error of MQTT 5 in SUBACK", "90 03 00 01 87", .protocolError, says: "return code 135"),
        older("SUBACK without a code", "90 02 00 01", .protocolError, says: "no reason code"),
        older("codes in UNSUBACK", "B0 03 00 01 00", .malformedPacket, says: "too many"),
        older(
            "No Local in SUBSCRIBE", from: .client, "82 06 00 01 00 01 61 04", .malformedPacket, says: "reserved bits"),
        older("SUBSCRIBE without a filter", from: .client, "82 02 00 01", .protocolError, says: "no topic filter"),
        older("UNSUBSCRIBE without a filter", from: .client, "A2 02 00 01", .protocolError, says: "no topic filter"),
        older(
            "MQTT 5", from: .client, "10 0E 00 04 4D 51 54 54 05 02 00 3C 00 00 01 61", .unsupportedProtocolVersion,
            says: "Protocol Version is 5"),
        older(
            "MQTT 3.1", from: .client, "10 0F 00 06 4D 51 49 73 64 70 03 02 00 3C 00 01 61",
            .unsupportedProtocolVersion, says: "Protocol Name"),
        older(
            "the reserved flag", from: .client, "10 0D 00 04 4D 51 54 54 04 01 00 3C 00 01 61", .malformedPacket,
            says: "reserved flag"),
        older(
            "a password without a user name", from: .client, "10 10 00 04 4D 51 54 54 04 42 00 3C 00 01 61 00 01 70",
            .malformedPacket, says: "password without a user name"),
        older(
            "no identifier and no Clean Session", from: .client, "10 0C 00 04 4D 51 54 54 04 00 00 3C 00 00",
            .clientIdentifierNotValid, says: "Client Identifier is empty"),
        older(
            "Will Retain without a will", from: .client, "10 0D 00 04 4D 51 54 54 04 22 00 3C 00 01 61",
            .malformedPacket, says: "contradict"),
    ]
}
