import MQTT
import NIOCore

private let kv = UserProperty(name: "k", value: "v")

extension Vector {
    static let all = connecting + publishing + acknowledging + subscribing + leaving

    static let connecting: [Vector] = [
        Vector(
            "CONNECT, the least", from: .client,
            """
            10 0E                   // CONNECT, Remaining Length 14
            00 04 4D 51 54 54       // Protocol Name: MQTT
            05                      // Protocol Version
            02                      // Connect Flags: Clean Start
            00 3C                   // Keep Alive: 60 s
            00                      // Property Length
            00 01 61                // Client Identifier: a
            """,
            .connect(Connect(clientID: "a", cleanStart: true, keepAlive: 60))),
        Vector(
            "CONNECT, everything", from: .client,
            """
            10 6A                   // CONNECT, Remaining Length 106
            00 04 4D 51 54 54       // Protocol Name: MQTT
            05                      // Protocol Version
            EE                      // User Name, Password, Will Retain, Will QoS 1, Will, Clean Start
            00 0A                   // Keep Alive: 10 s
            28                      // Property Length: 40
            11 00 00 0E 10          // Session Expiry Interval: 3600 s
            21 00 14                // Receive Maximum: 20
            27 00 01 00 00          // Maximum Packet Size: 65536
            22 00 0A                // Topic Alias Maximum: 10
            19 01                   // Request Response Information: yes
            17 00                   // Request Problem Information: no
            15 00 05 53 43 52 41 4D // Authentication Method: SCRAM
            16 00 02 DE AD          // Authentication Data
            26 00 01 6B 00 01 76    // User Property: k = v
            00 03 64 65 76          // Client Identifier: dev
            22                      // Will Property Length: 34
            18 00 00 00 1E          // Will Delay Interval: 30 s
            01 01                   // Payload Format Indicator: UTF-8
            02 00 00 00 3C          // Message Expiry Interval: 60 s
            03 00 04 74 65 78 74    // Content Type: text
            08 00 01 72             // Response Topic: r
            09 00 01 07             // Correlation Data
            26 00 01 61 00 01 62    // User Property: a = b
            00 01 77                // Will Topic: w
            00 03 62 79 65          // Will Payload: bye
            00 01 75                // User Name: u
            00 02 70 77             // Password: pw
            """,
            .connect(
                Connect(
                    clientID: "dev", cleanStart: true, keepAlive: 10, username: "u",
                    password: ByteBuffer(string: "pw"),
                    will: Will(
                        topic: "w", payload: ByteBuffer(string: "bye"), qos: .atLeastOnce, retain: true,
                        properties: Will.Properties(
                            willDelay: 30, payloadFormat: .utf8, messageExpiryInterval: 60, contentType: "text",
                            responseTopic: "r", correlationData: ByteBuffer(bytes: [7]),
                            userProperties: [UserProperty(name: "a", value: "b")])),
                    properties: Connect.Properties(
                        sessionExpiryInterval: 3600, receiveMaximum: 20, maximumPacketSize: 65536,
                        topicAliasMaximum: 10, requestResponseInformation: true, requestProblemInformation: false,
                        authenticationMethod: "SCRAM", authenticationData: ByteBuffer(bytes: [0xDE, 0xAD]),
                        userProperties: [kv])))),
        Vector(
            "CONNECT, a will without properties and a password without a user name", from: .client,
            """
            10 16                   // CONNECT, Remaining Length 22
            00 04 4D 51 54 54       // Protocol Name: MQTT
            05                      // Protocol Version
            54                      // Password, Will QoS 2, Will
            00 00                   // Keep Alive: off
            00                      // Property Length
            00 00                   // Client Identifier: the server assigns one
            00                      // Will Property Length
            00 01 77                // Will Topic: w
            00 00                   // Will Payload: empty
            00 01 70                // Password: p
            """,
            .connect(
                Connect(
                    clientID: "", password: ByteBuffer(string: "p"), will: Will(topic: "w", qos: .exactlyOnce)))),
        Vector(
            "CONNACK, session present", from: .server,
            """
            20 03                   // CONNACK, Remaining Length 3
            01                      // Session Present
            00                      // Reason Code: success
            00                      // Property Length
            """,
            .connack(Connack(sessionPresent: true))),
        Vector(
            "CONNACK, everything", from: .server,
            """
            20 41                   // CONNACK, Remaining Length 65
            00                      // no Session Present
            00                      // Reason Code: success
            3E                      // Property Length: 62
            11 FF FF FF FF          // Session Expiry Interval: never
            21 00 64                // Receive Maximum: 100
            24 01                   // Maximum QoS: 1
            25 00                   // Retain Available: no
            27 00 10 00 00          // Maximum Packet Size: 1048576
            12 00 03 61 62 63       // Assigned Client Identifier: abc
            22 00 05                // Topic Alias Maximum: 5
            1F 00 02 6F 6B          // Reason String: ok
            26 00 01 6B 00 00       // User Property: k = (empty)
            28 00                   // Wildcard Subscription Available: no
            29 00                   // Subscription Identifiers Available: no
            2A 01                   // Shared Subscription Available: yes
            13 00 1E                // Server Keep Alive: 30 s
            1A 00 01 69             // Response Information: i
            1C 00 01 73             // Server Reference: s
            15 00 01 6D             // Authentication Method: m
            16 00 01 2A             // Authentication Data
            """,
            .connack(
                Connack(
                    properties: Connack.Properties(
                        sessionExpiryInterval: .max, receiveMaximum: 100, maximumQoS: .atLeastOnce,
                        retainAvailable: false, maximumPacketSize: 1_048_576, assignedClientID: "abc",
                        topicAliasMaximum: 5, reasonString: "ok",
                        userProperties: [UserProperty(name: "k", value: "")],
                        wildcardSubscriptionAvailable: false, subscriptionIDsAvailable: false,
                        sharedSubscriptionAvailable: true, serverKeepAlive: 30, responseInformation: "i",
                        serverReference: "s", authenticationMethod: "m",
                        authenticationData: ByteBuffer(bytes: [42]))))),
        Vector(
            "CONNACK, server moved", from: .server,
            """
            20 0C                   // CONNACK, Remaining Length 12
            00                      // no Session Present
            9D                      // Reason Code: server moved
            09                      // Property Length: 9
            1C 00 06 62 3A 38 38 38 33 // Server Reference: b:8883
            """,
            .connack(Connack(reasonCode: .serverMoved, properties: Connack.Properties(serverReference: "b:8883")))),
    ]

    static let publishing: [Vector] = [
        Vector(
            "PUBLISH, QoS 0", from: .client,
            """
            30 07                   // PUBLISH, QoS 0; Remaining Length 7
            00 03 61 2F 62          // Topic Name: a/b
            00                      // Property Length
            2A                      // Payload
            """,
            .publish(Publish(topic: "a/b", payload: ByteBuffer(bytes: [42])))),
        Vector(
            "PUBLISH, QoS 1 again without payload", from: .client,
            """
            3A 08                   // PUBLISH, DUP, QoS 1; Remaining Length 8
            00 03 61 2F 62          // Topic Name: a/b
            00 0A                   // Packet Identifier: 10
            00                      // Property Length
            """,
            .publish(Publish(topic: "a/b", qos: .atLeastOnce, duplicate: true, packetID: identifier(10)))),
        Vector(
            "PUBLISH, QoS 2 retained with everything", from: .server,
            """
            35 3B                   // PUBLISH, QoS 2, RETAIN; Remaining Length 59
            00 01 74                // Topic Name: t
            FF FF                   // Packet Identifier: 65535
            33                      // Property Length: 51
            01 01                   // Payload Format Indicator: UTF-8
            02 00 00 0E 10          // Message Expiry Interval: 3600 s
            23 00 07                // Topic Alias: 7
            08 00 02 72 2F          // Response Topic: r/
            09 00 02 00 FF          // Correlation Data
            26 00 01 61 00 01 31    // User Property: a = 1
            26 00 01 61 00 01 32    // User Property: a = 2
            0B 01                   // Subscription Identifier: 1
            0B 80 01                // Subscription Identifier: 128
            0B FF FF FF 7F          // Subscription Identifier: 268435455
            03 00 04 6A 73 6F 6E    // Content Type: json
            68 69                   // Payload: hi
            """,
            .publish(
                Publish(
                    topic: "t", payload: ByteBuffer(string: "hi"), qos: .exactlyOnce, retain: true,
                    packetID: identifier(65535),
                    properties: Publish.Properties(
                        payloadFormat: .utf8, messageExpiryInterval: 3600, topicAlias: 7, responseTopic: "r/",
                        correlationData: ByteBuffer(bytes: [0, 0xFF]),
                        userProperties: [UserProperty(name: "a", value: "1"), UserProperty(name: "a", value: "2")],
                        subscriptionIDs: [1, 128, 268_435_455], contentType: "json")))),
        Vector(
            "PUBLISH, a topic alias in place of the topic", from: .server,
            """
            30 07                   // PUBLISH, QoS 0; Remaining Length 7
            00 00                   // Topic Name: empty
            03                      // Property Length: 3
            23 00 01                // Topic Alias: 1
            21                      // Payload
            """,
            .publish(
                Publish(
                    topic: "", payload: ByteBuffer(string: "!"), properties: Publish.Properties(topicAlias: 1)))),
        Vector(
            "PUBLISH, the text of section 1.5.4: A, U+2A6D4, and a byte order mark that stays", from: .client,
            """
            30 0B                   // PUBLISH, QoS 0; Remaining Length 11
            00 08                   // Topic Name: 8 bytes
            EF BB BF 41 F0 AA 9B 94 // U+FEFF, A, U+2A6D4
            00                      // Property Length
            """,
            .publish(Publish(topic: "\u{FEFF}A\u{2A6D4}"))),
    ]

    static let acknowledging: [Vector] = [
        Vector(
            "PUBACK, short", from: .server,
            """
            40 02                   // PUBACK, Remaining Length 2
            00 01                   // Packet Identifier: 1
            """,
            .puback(Acknowledgement(packetID: identifier(1)))),
        Vector(
            "PUBACK, a reason", from: .server,
            """
            40 03                   // PUBACK, Remaining Length 3
            00 02                   // Packet Identifier: 2
            10                      // Reason Code: no matching subscribers
            """,
            .puback(Acknowledgement(packetID: identifier(2), reasonCode: .noMatchingSubscribers))),
        Vector(
            "PUBACK, everything", from: .server,
            """
            40 12                   // PUBACK, Remaining Length 18
            12 34                   // Packet Identifier: 4660
            97                      // Reason Code: quota exceeded
            0E                      // Property Length: 14
            1F 00 04 66 75 6C 6C    // Reason String: full
            26 00 01 6B 00 01 76    // User Property: k = v
            """,
            .puback(
                Acknowledgement(
                    packetID: identifier(0x1234), reasonCode: .quotaExceeded,
                    properties: Acknowledgement.Properties(reasonString: "full", userProperties: [kv])))),
        Vector(
            "PUBREC, success with a property", from: .client,
            """
            50 08                   // PUBREC, Remaining Length 8
            00 03                   // Packet Identifier: 3
            00                      // Reason Code: success
            04                      // Property Length: 4
            1F 00 01 78             // Reason String: x
            """,
            .pubrec(
                Acknowledgement(
                    packetID: identifier(3), properties: Acknowledgement.Properties(reasonString: "x")))),
        Vector(
            "PUBREC, a reason", from: .client,
            """
            50 03                   // PUBREC, Remaining Length 3
            00 03                   // Packet Identifier: 3
            91                      // Reason Code: packet identifier in use
            """,
            .pubrec(Acknowledgement(packetID: identifier(3), reasonCode: .packetIdentifierInUse))),
        Vector(
            "PUBREL, short", from: .client,
            """
            62 02                   // PUBREL with its fixed flags 0010, Remaining Length 2
            00 03                   // Packet Identifier: 3
            """,
            .pubrel(Acknowledgement(packetID: identifier(3)))),
        Vector(
            "PUBREL, a reason", from: .server,
            """
            62 03                   // PUBREL, Remaining Length 3
            00 03                   // Packet Identifier: 3
            92                      // Reason Code: packet identifier not found
            """,
            .pubrel(Acknowledgement(packetID: identifier(3), reasonCode: .packetIdentifierNotFound))),
        Vector(
            "PUBCOMP, short", from: .server,
            """
            70 02                   // PUBCOMP, Remaining Length 2
            00 03                   // Packet Identifier: 3
            """,
            .pubcomp(Acknowledgement(packetID: identifier(3)))),
        Vector(
            "PUBCOMP, a reason", from: .client,
            """
            70 03                   // PUBCOMP, Remaining Length 3
            00 03                   // Packet Identifier: 3
            92                      // Reason Code: packet identifier not found
            """,
            .pubcomp(Acknowledgement(packetID: identifier(3), reasonCode: .packetIdentifierNotFound))),
    ]

    static let subscribing: [Vector] = [
        Vector(
            "SUBSCRIBE, two filters with everything", from: .client,
            """
            82 20                   // SUBSCRIBE with its fixed flags 0010, Remaining Length 32
            00 0A                   // Packet Identifier: 10
            0A                      // Property Length: 10
            0B FF 7F                // Subscription Identifier: 16383
            26 00 01 6B 00 01 76    // User Property: k = v
            00 03 61 2F 23          // Topic Filter: a/#
            1D                      // Retain Handling 1, Retain As Published, No Local, QoS 1
            00 0A 24 73 68 61 72 65 2F 67 2F 2B // Topic Filter: $share/g/+
            22                      // Retain Handling 2, QoS 2
            """,
            .subscribe(
                Subscribe(
                    packetID: identifier(10),
                    subscriptions: [
                        Subscription(
                            filter: "a/#", qos: .atLeastOnce, noLocal: true, retainAsPublished: true,
                            retainHandling: .sendIfNew),
                        Subscription(filter: "$share/g/+", qos: .exactlyOnce, retainHandling: .doNotSend),
                    ],
                    properties: Subscribe.Properties(subscriptionID: 16383, userProperties: [kv])))),
        Vector(
            "SUBACK, three answers", from: .server,
            """
            90 06                   // SUBACK, Remaining Length 6
            00 0A                   // Packet Identifier: 10
            00                      // Property Length
            01 02 87                // granted QoS 1, granted QoS 2, not authorized
            """,
            .suback(
                Suback(packetID: identifier(10), reasonCodes: [.grantedQoS1, .grantedQoS2, .notAuthorized]))),
        Vector(
            "SUBACK, a property", from: .server,
            """
            90 08                   // SUBACK, Remaining Length 8
            00 0A                   // Packet Identifier: 10
            04                      // Property Length: 4
            1F 00 01 78             // Reason String: x
            8F                      // topic filter invalid
            """,
            .suback(
                Suback(
                    packetID: identifier(10), reasonCodes: [.topicFilterInvalid],
                    properties: Suback.Properties(reasonString: "x")))),
        Vector(
            "UNSUBSCRIBE, two filters", from: .client,
            """
            A2 12                   // UNSUBSCRIBE with its fixed flags 0010, Remaining Length 18
            00 0B                   // Packet Identifier: 11
            07                      // Property Length: 7
            26 00 01 6B 00 01 76    // User Property: k = v
            00 03 61 2F 23          // Topic Filter: a/#
            00 01 62                // Topic Filter: b
            """,
            .unsubscribe(
                Unsubscribe(
                    packetID: identifier(11), filters: ["a/#", "b"],
                    properties: Unsubscribe.Properties(userProperties: [kv])))),
        Vector(
            "UNSUBACK, two answers", from: .server,
            """
            B0 05                   // UNSUBACK, Remaining Length 5
            00 0B                   // Packet Identifier: 11
            00                      // Property Length
            00 11                   // success, no subscription existed
            """,
            .unsuback(Unsuback(packetID: identifier(11), reasonCodes: [.success, .noSubscriptionExisted]))),
    ]

    static let leaving: [Vector] = [
        Vector("PINGREQ", from: .client, "C0 00 // PINGREQ, Remaining Length 0", .pingreq),
        Vector("PINGRESP", from: .server, "D0 00 // PINGRESP, Remaining Length 0", .pingresp),
        Vector("DISCONNECT, short", from: .client, "E0 00 // DISCONNECT, normal", .disconnect(Disconnect())),
        Vector(
            "DISCONNECT, a reason", from: .client,
            """
            E0 01                   // DISCONNECT, Remaining Length 1
            04                      // Reason Code: disconnect with will message
            """,
            .disconnect(Disconnect(reasonCode: .disconnectWithWill))),
        Vector(
            "DISCONNECT, the session ends", from: .client,
            """
            E0 07                   // DISCONNECT, Remaining Length 7
            00                      // Reason Code: normal disconnection
            05                      // Property Length: 5
            11 00 00 00 00          // Session Expiry Interval: 0
            """,
            .disconnect(Disconnect(properties: Disconnect.Properties(sessionExpiryInterval: 0)))),
        Vector(
            "DISCONNECT, use another server", from: .server,
            """
            E0 12                   // DISCONNECT, Remaining Length 18
            9C                      // Reason Code: use another server
            10                      // Property Length: 16
            1F 00 02 67 6F          // Reason String: go
            26 00 01 6B 00 01 76    // User Property: k = v
            1C 00 01 62             // Server Reference: b
            """,
            .disconnect(
                Disconnect(
                    reasonCode: .useAnotherServer,
                    properties: Disconnect.Properties(
                        reasonString: "go", userProperties: [kv], serverReference: "b")))),
        Vector("AUTH, short", from: .server, "F0 00 // AUTH, success", .auth(Auth())),
        Vector(
            "AUTH, everything", from: .client,
            """
            F0 16                   // AUTH, Remaining Length 22
            18                      // Reason Code: continue authentication
            14                      // Property Length: 20
            15 00 01 6D             // Authentication Method: m
            16 00 02 01 02          // Authentication Data
            1F 00 01 72             // Reason String: r
            26 00 01 6B 00 01 76    // User Property: k = v
            """,
            .auth(
                Auth(
                    reasonCode: .continueAuthentication,
                    properties: Auth.Properties(
                        authenticationMethod: "m", authenticationData: ByteBuffer(bytes: [1, 2]), reasonString: "r",
                        userProperties: [kv])))),
    ]
}
