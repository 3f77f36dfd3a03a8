import Glibc
import NIOCore
import Support
import Testing

@testable import MQTT

/// Unexpected bytes from a server: what they prove, what they cost, and which other protocol they are.
@Suite struct IncomingShareTests {
    // MARK: Signs of life

    @Test func `only a whole packet is a sign of life`() {
        var client = MQTTClientHarness().connected()
        let start = client.machine.signsOfLife
        // A PUBLISH of 100 bytes that arrives byte by byte.
        for byte in [UInt8(0x30), 98] + [UInt8](repeating: 0x20, count: 97) {
            client.handle(.received(ByteBuffer(bytes: [byte])))
        }
        #expect(client.machine.signsOfLife == start)
        client.handle(.connectionClosed)
        client.connect(resumed: true)
        let before = client.machine.signsOfLife
        client.server(.pingresp)
        #expect(client.machine.signsOfLife == before + 1)
    }

    @Test func `the parts of a large message on a slow link are signs of life`() {
        var client = MQTTClientHarness().connected()
        let start = client.machine.signsOfLife
        let whole = encoded([.publish(Publish(topic: "t", payload: ByteBuffer(repeating: 0, count: 100_000)))])
        for part in stride(from: 0, to: whole.readableBytes, by: 1000) {
            let length = min(1000, whole.readableBytes - part)
            client.handle(.received(whole.getSlice(at: part, length: length) ?? ByteBuffer()))
        }
        // Every 16 KiB, rounded up to a chunk, and the end.
        #expect(client.machine.signsOfLife == start + 6)
    }

    // MARK: A share at a time

    @Test func `a message with many user properties counts for many packets`() {
        var client = MQTTClientHarness { $0.packetsPerInput = 10 }
        client.connect()
        let properties = Publish.Properties(
            userProperties: (0..<64).map { UserProperty(name: "\($0)", value: "") })
        let message = Packet.publish(Publish(topic: "t", payload: ByteBuffer(), properties: properties))
        #expect(client.handle(.received(encoded([message, message, message]))).count == 2)
        #expect(client.machine.isBehind)
        #expect(client.handle(.readOn).count == 1)
    }

    @Test func `a long message counts for many packets`() {
        var client = MQTTClientHarness { $0.packetsPerInput = 10 }
        client.connect()
        let message = Packet.publish(Publish(topic: "t", payload: ByteBuffer(repeating: 0, count: 20 << 10)))
        #expect(client.handle(.received(encoded([message, message, message]))).count == 2)
        #expect(client.machine.isBehind)
        #expect(client.handle(.readOn).count == 1)
    }

    @Test func `an input is processed up to its share of packets, and nothing is lost`() {
        var client = MQTTClientHarness { $0.packetsPerInput = 10 }
        client.connect()
        let messages = (0..<25).map { Packet.publish(Publish(topic: "\($0)", payload: ByteBuffer())) }
        #expect(client.handle(.received(encoded(messages))).count == 10)
        #expect(client.machine.isBehind)
        #expect(!client.machine.wantsToRead)
        let more = Packet.publish(Publish(topic: "more", payload: ByteBuffer()))
        #expect(client.handle(.received(encoded([more]))) == [], "a new packet has to wait for its turn")
        #expect(client.handle(.readOn).count == 10)
        #expect(client.handle(.readOn).count == 6)
        #expect(!client.machine.isBehind)
        #expect(client.machine.wantsToRead)
    }

    @Test func `a message for many consumers takes a larger part of the share`() {
        var client = MQTTClientHarness { $0.packetsPerInput = 10 }
        client.connect()
        client.machine.configuration.messageWeight = 5
        let messages = (0..<5).map { Packet.publish(Publish(topic: "\($0)", payload: ByteBuffer())) }
        let pings = [Packet](repeating: .pingresp, count: 8)
        #expect(client.handle(.received(encoded(messages + pings))).count == 2)
        #expect(client.machine.isBehind)
        #expect(client.handle(.readOn).count == 2)
        #expect(client.handle(.readOn).count == 1)
        // With the last message and five of the others, the share was full.
        #expect(client.machine.isBehind)
        client.handle(.readOn)
        #expect(!client.machine.isBehind)
    }

    @Test func `unprocessed bytes of a connection do not reach the next one`() {
        var client = MQTTClientHarness { $0.packetsPerInput = 1 }
        client.connect()
        let message = Packet.publish(Publish(topic: "t", payload: ByteBuffer()))
        client.handle(.received(encoded([message, message])))
        #expect(client.machine.isBehind)
        client.handle(.connectionClosed)
        #expect(!client.machine.isBehind)
        client.connect(resumed: true)
        #expect(client.handle(.readOn) == [])
    }

    /// Every packet that a server may send at any time, and how the client reacts.
    static let floods: [(name: String, packet: [UInt8])] = [
        ("PINGRESP", [0xD0, 0x00]), ("SUBACK", [0x90, 0x04, 0x00, 0x07, 0x00, 0x01]),
        ("UNSUBACK", [0xB0, 0x04, 0x00, 0x07, 0x00, 0x00]), ("PUBACK", [0x40, 0x02, 0x00, 0x07]),
        ("PUBREC", [0x50, 0x02, 0x00, 0x07]), ("PUBREL", [0x62, 0x02, 0x00, 0x07]),
        ("PUBCOMP", [0x70, 0x02, 0x00, 0x07]), ("PUBLISH", [0x30, 0x04, 0x00, 0x01, 0x74, 0x00]),
        ("PUBLISH QoS 1", [0x32, 0x06, 0x00, 0x01, 0x74, 0x00, 0x07, 0x00]),
        ("PUBLISH QoS 2", [0x34, 0x06, 0x00, 0x01, 0x74, 0x00, 0x07, 0x00]),
    ]

    /// Eight times as many cost about eight times as much, and not 64 times. The thread's CPU time is compared, so that
    /// a slow or busy machine makes no difference.
    @Test(arguments: floods.map(\.name))
    func `the cost of unasked packets is linear`(name: String) throws {
        let packet = try #require(Self.floods.first { $0.name == name }).packet
        func computed() -> Double {
            var time = timespec()
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
            return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
        }
        func cost(of count: Int) -> Double {
            (0..<2).map { _ in
                var client = MQTTClientHarness { $0.packetsPerInput = 256 }
                client.connect()
                let chunk = ByteBuffer(bytes: repeatElement(packet, count: count).joined())
                let start = computed()
                client.run(.received(chunk))
                while client.machine.isBehind { client.run(.readOn) }
                return computed() - start
            }.min() ?? 0
        }
        _ = cost(of: 500)
        let (few, many) = (cost(of: 1500), cost(of: 12_000))
        #expect(many < few * 32, "1500 took \(few) s, and 12000 took \(many) s")
    }

    // MARK: Other protocols

    @Test(
        arguments: [
            ("HTTP/1.1 400 Bad Request\r\n\r\n", ForeignProtocol.http), ("SSH-2.0-OpenSSH_9.2\r\n", .ssh),
            ("220 mail.example ESMTP\r\n", .mail), ("* OK IMAP4rev1\r\n", .imap), ("+OK ready\r\n", .pop3),
            ("AMQP\u{0}\u{0}\u{9}\u{1}", .amqp), ("-ERR unknown command\r\n", .redis),
        ], [false, true])
    func `a server of another protocol is named, and not answered`(
        greeting: (text: String, other: ForeignProtocol), comesByteByByte: Bool
    ) {
        var client = MQTTClientHarness()
        client.open()
        let pieces = comesByteByByte ? greeting.text.utf8.map { [$0] } : [Array(greeting.text.utf8)]
        let actions = pieces.flatMap { client.handle(.received(ByteBuffer(bytes: $0))) }
        #expect(actions == ["foreign protocol \(greeting.other)", "close"])
    }

    @Test(
        arguments: [[0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x46], [0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x0A]] as [[UInt8]]
    )
    func `a TLS server contacted without TLS is recognized`(alert: [UInt8]) {
        var client = MQTTClientHarness()
        client.open()
        #expect(client.handle(.received(ByteBuffer(bytes: alert))) == ["foreign protocol tls", "close"])
    }

    @Test(arguments: [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", ForeignProtocol.http), ("SSH-2.0-OpenSSH_9.2\r\n", .ssh),
        ("-ERR unknown command\r\n", .redis),
    ])
    func `another protocol is named wherever a packet should begin`(bytes: String, other: ForeignProtocol) throws {
        for version in [ProtocolVersion.five, .threeOneOne] {
            var decoder = PacketDecoder(version: version)
            decoder.append(Packet.pingresp.encoded(as: version))
            #expect(try decoder.next() == .pingresp)
            decoder.append(ByteBuffer(string: bytes))
            let error = #expect(throws: MalformedPacket.self) { try decoder.next() }
            #expect(error?.reasonCode == .malformedPacket)
            #expect(error?.message == "in place of an MQTT packet came the bytes of \(other.name)")
        }
    }

    @Test func `a greeting may come in pieces, and an MQTT server is never taken for another`() {
        var client = MQTTClientHarness()
        client.open()
        #expect(client.handle(.received(ByteBuffer(string: "220"))) == [])
        #expect(client.handle(.received(ByteBuffer(string: "-mail"))) == ["foreign protocol mail", "close"])
        for kind: UInt8 in [0x20, 0xE0, 0xF0] {
            for next in UInt8.min...UInt8.max {
                #expect(ForeignProtocol(beginning: [kind, next, 0, 0]) == nil)
            }
        }
    }
}

extension MQTTClientHarness {
    /// Handles an input without describing the actions.
    fileprivate mutating func run(_ input: MQTTClientMachine.Input) {
        var actions: [MQTTClientMachine.Action] = []
        machine.handle(input, at: now, into: &actions)
        for case .commit(_, let number) in actions { run(.committed(number)) }
    }
}
