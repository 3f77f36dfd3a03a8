import MQTT
import NIOCore
import Testing

/// Statements of MQTT 5 about the form of packets that have no better place. See StatementTable.swift.
@Suite struct StatementCodecTests {
    // MARK: Flags

    /// Table 2-2; PUBLISH has flags of its own.
    private static func flags(of kind: Packet.Kind) -> UInt8 {
        kind == .pubrel || kind == .subscribe || kind == .unsubscribe ? 0b0010 : 0
    }

    /// [MQTT-2.1.3-1] [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-3.14.1-1] [MQTT-3.15.1-1]
    @Test(arguments: Packet.Kind.allCases.filter { $0 != .publish })
    func `a packet has the flags of its kind, and is malformed with any others`(_ kind: Packet.Kind) throws {
        for vector in Vector.all where vector.packet.kind == kind {
            #expect(encode(vector.packet).first.map { $0 & 0x0F } == Self.flags(of: kind))
        }
        let vector = try #require(Vector.all.first { $0.packet.kind == kind })
        for flags: UInt8 in 0...0x0F where flags != Self.flags(of: kind) {
            let bytes = [kind.rawValue << 4 | flags] + vector.bytes.dropFirst()
            let error = #expect(throws: MalformedPacket.self) { try decode([bytes], from: vector.sender) }
            #expect(error?.reasonCode == .malformedPacket)
            #expect(error?.message.contains("fixed header") == true)
        }
    }

    // MARK: CONNECT

    private static func lengthPrefixed(_ hex: String) -> [UInt8] {
        let bytes = bytesOf(hex)
        return [0, UInt8(bytes.count)] + bytes
    }

    /// [MQTT-3.1.2-9] [MQTT-3.1.2-11] [MQTT-3.1.2-12] [MQTT-3.1.2-13] [MQTT-3.1.2-16] [MQTT-3.1.2-17] [MQTT-3.1.2-18]
    /// [MQTT-3.1.2-19] [MQTT-3.1.3-1] [MQTT-3.1.3-3] [MQTT-3.1.3-4] [MQTT-3.1.3-11] [MQTT-3.1.3-12]
    @Test(arguments: [nil, .atMostOnce, .atLeastOnce, .exactlyOnce] as [QoS?], [nil, "", "ü"] as [String?])
    func `CONNECT has the fields that its flags announce, in order, as UTF-8`(willQoS: QoS?, username: String?) {
        for bits in 0..<(willQoS == nil ? 4 : 8) {
            let (isClean, hasPassword, retains) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0)
            let will = willQoS.map { Will(topic: "wé", payload: ByteBuffer(bytes: [0xFF]), qos: $0, retain: retains) }
            let connect = Connect(
                clientID: "€", cleanStart: isClean, keepAlive: 7, username: username,
                password: hasPassword ? ByteBuffer(bytes: [0, 1]) : nil, will: will)

            var flags: UInt8 = isClean ? 0x02 : 0
            var payload = Self.lengthPrefixed("E2 82 AC")
            if let willQoS {
                flags |= 0x04 | willQoS.rawValue << 3 | (retains ? 0x20 : 0)
                payload += [0] + Self.lengthPrefixed("77 C3 A9") + Self.lengthPrefixed("FF")
            }
            if let username {
                flags |= 0x80
                payload += Self.lengthPrefixed(username.isEmpty ? "" : "C3 BC")
            }
            if hasPassword {
                flags |= 0x40
                payload += Self.lengthPrefixed("00 01")
            }
            let body = bytesOf("00 04 4D 51 54 54 05") + [flags, 0, 7, 0] + payload
            #expect(encode(.connect(connect)) == [0x10, UInt8(body.count)] + body)
        }
    }

    // MARK: Strings

    private static let strings: Set<UInt8> = [0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, 0x1F]

    /// Invalid strings: a lone continuation byte, a cut sequence, a surrogate, an overlong form, > U+10FFFF, U+0000.
    private static let wrong = [
        "00 01 FF", "00 02 61 C3", "00 03 ED A0 80", "00 03 ED BF BF", "00 02 C0 AF", "00 04 F4 90 80 80", "00 01 00",
        "00 03 61 00 62",
    ]

    /// [MQTT-1.5.4-1] [MQTT-1.5.4-2] [MQTT-3.3.2-13] [MQTT-3.3.2-19]
    @Test(arguments: PropertyRow.all.filter { strings.contains($0.id) })
    func `a property that is not a UTF-8 string, or has U+0000, is malformed`(_ row: PropertyRow) {
        for place in row.places {
            for value in Self.wrong {
                let bytes = place.packet(with: [row.id] + bytesOf(value))
                let error = #expect(throws: MalformedPacket.self) { try decode([bytes], from: place.sender) }
                #expect(error?.reasonCode == .malformedPacket)
            }
        }
    }

    /// [MQTT-1.5.7-1]
    @Test(arguments: PropertyPlace.allCases)
    func `a User Property whose name or value is not UTF-8, or has U+0000, is malformed`(_ place: PropertyPlace) {
        for value in Self.wrong {
            for pair in ["\(value) 00 01 61", "00 01 61 \(value)"] {
                let bytes = place.packet(with: bytesOf("26 \(pair)"))
                let error = #expect(throws: MalformedPacket.self) { try decode([bytes], from: place.sender) }
                #expect(error?.reasonCode == .malformedPacket)
            }
        }
    }

    /// [MQTT-1.5.4-3]
    @Test func `U+FEFF is part of a string wherever it stands`() throws {
        let hex = "30 18 00 07 EF BB BF 61 EF BB BF 0E 26 00 03 EF BB BF 00 00 03 00 03 EF BB BF"
        let packet = try #require(try decode([bytesOf(hex)], from: .server).first)
        guard case .publish(let publish) = packet else {
            Issue.record("there is a PUBLISH in it")
            return
        }
        #expect(Array(publish.topic.unicodeScalars) == ["\u{FEFF}", "a", "\u{FEFF}"])
        #expect(publish.properties.contentType.map { Array($0.unicodeScalars) } == ["\u{FEFF}"])
        #expect(publish.properties.userProperties.first.map { Array($0.name.unicodeScalars) } == ["\u{FEFF}"])
        #expect(encode(packet) == bytesOf(hex))
        #expect(try TopicName("\u{FEFF}a") != TopicName("a"))
        #expect(try !TopicFilter("a").matches(topic: "\u{FEFF}a"))
    }

    /// [MQTT-1.5.4-2]
    @Test func `an application's text with U+0000 is refused`() {
        for properties: Publish.Properties in [
            .init(responseTopic: "a\0"), .init(contentType: "\0"),
            .init(userProperties: [UserProperty(name: "\0", value: "")]),
            .init(userProperties: [UserProperty(name: "", value: "a\0b")]),
        ] {
            #expect(throws: MQTTClientMachine.PublishError.self) {
                try MQTTClientMachine.checkContent(of: OutboundMessage(topic: "t", properties: properties))
            }
        }
    }

    /// [MQTT-3.8.3-1] [MQTT-3.10.3-1]
    @Test func `filters are written as UTF-8`() {
        let subscribe = Subscribe(
            packetID: identifier(1), subscriptions: [Subscription(filter: "é/€", qos: .atLeastOnce)])
        #expect(encode(.subscribe(subscribe)) == bytesOf("82 0C 00 01 00 00 06 C3 A9 2F E2 82 AC 01"))
        let unsubscribe = Unsubscribe(packetID: identifier(1), filters: ["é/€"])
        #expect(encode(.unsubscribe(unsubscribe)) == bytesOf("A2 0B 00 01 00 00 06 C3 A9 2F E2 82 AC"))
    }

    // MARK: Properties

    /// [MQTT-2.2.2-1]
    @Test(arguments: [
        PropertyPlace.connect, .will, .connack, .publish, .subscribe, .suback, .unsubscribe, .unsuback,
    ])
    func `a packet without properties has a Property Length of 0`(_ place: PropertyPlace) throws {
        let bytes = place.packet(with: [])
        let packet = try #require(try decode([bytes], from: place.sender).first)
        #expect(encode(packet) == bytes)
    }
}
