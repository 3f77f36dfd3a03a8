import MQTT
import NIOCore
import Testing

struct CodecSizeTests {
    @Test func `a packet over our maximum is refused from its fixed header`() throws {
        var decoder = PacketDecoder(maximumPacketSize: 1000)
        decoder.append(ByteBuffer(bytes: bytesOf("30 E6 07")))  // 998 bytes and 3 of the header
        let error = #expect(throws: MalformedPacket.self) { try decoder.next() }
        #expect(error?.reasonCode == .packetTooLarge)
        #expect(error?.message.contains("1001 bytes, over our 1000") == true)
    }

    @Test func `a packet of exactly our maximum is accepted`() throws {
        let packet = Packet.publish(Publish(topic: "a", payload: ByteBuffer(repeating: 7, count: 993)))
        #expect(packet.encodedLength == 1000)
        #expect(try decode([encode(packet)], from: .server, maximumPacketSize: 1000) == [packet])
        #expect(throws: MalformedPacket.self) {
            try decode([encode(packet)], from: .server, maximumPacketSize: 999)
        }
    }

    @Test func `a claim of 268 million bytes takes no memory`() throws {
        var decoder = PacketDecoder()
        decoder.append(ByteBuffer(bytes: bytesOf("30 FF FF FF 7F 00 01 61")))
        #expect(try decoder.next() == nil)
        #expect(decoder.bufferedBytes == 8)
    }

    @Test func `a payload is a slice of the bytes that arrived`() throws {
        let chunk = ByteBuffer(bytes: bytesOf("30 09 00 03 61 2F 62 00 01 02 03"))
        var decoder = PacketDecoder()
        decoder.append(chunk)
        guard case .publish(let publish) = try decoder.next() else {
            Issue.record("there is a PUBLISH in it")
            return
        }
        let arrived = chunk.withUnsafeReadableBytes { UInt(bitPattern: $0.baseAddress) }
        let payload = publish.payload.withUnsafeReadableBytes { UInt(bitPattern: $0.baseAddress) }
        #expect(Array(publish.payload.readableBytesView) == [1, 2, 3])
        #expect(payload == arrived + 8)
    }

    @Test func `a payload is not changed by bytes that arrive later`() throws {
        var decoder = PacketDecoder()
        let one = Packet.publish(Publish(topic: "a", payload: ByteBuffer(string: "first")))
        let two = Packet.publish(Publish(topic: "b", payload: ByteBuffer(string: "second")))
        let bytes = encode(one) + encode(two)
        decoder.append(ByteBuffer(bytes: bytes.prefix(14)))
        let first = try decoder.next()
        decoder.append(ByteBuffer(bytes: bytes.dropFirst(14)))
        let second = try decoder.next()
        #expect(first == one)
        #expect(second == two)
    }

    /// The limits of each length of a Variable Byte Integer (1.5.5, table 1-1).
    /// [MQTT-1.5.5-1]
    @Test(arguments: [
        (127, "7F"), (128, "80 01"), (16_383, "FF 7F"), (16_384, "80 80 01"), (2_097_151, "FF FF 7F"),
        (2_097_152, "80 80 80 01"),
    ])
    func `the Remaining Length grows by a byte where the standard says`(_ remaining: Int, _ hex: String) throws {
        let packet = Packet.publish(
            Publish(topic: "a", payload: ByteBuffer(repeating: 0, count: remaining - 4)))
        let bytes = encode(packet)
        #expect(Array(bytes.prefix(1 + bytesOf(hex).count)) == [0x30] + bytesOf(hex))
        #expect(bytes.count == packet.encodedLength)
        #expect(try decode([bytes], from: .server) == [packet])
    }

    @Test func `encoding appends to the buffer`() {
        var buffer = ByteBuffer(bytes: [1])
        Packet.pingreq.encode(into: &buffer)
        Packet.pingresp.encode(into: &buffer)
        #expect(Array(buffer.readableBytesView) == [1, 0xC0, 0, 0xD0, 0])
    }

    @Test func `the longest string and binary data are encoded`() throws {
        let longest = String(repeating: "a", count: 65_535)
        let packet = Packet.publish(
            Publish(
                topic: longest,
                properties: Publish.Properties(correlationData: ByteBuffer(repeating: 1, count: 65_535))))
        #expect(try decode([encode(packet)], from: .server) == [packet])
    }

    @Test func `a string or binary data that is too long is a programming error`() async {
        await #expect(processExitsWith: .failure) {
            var buffer = ByteBuffer()
            Packet.publish(Publish(topic: String(repeating: "a", count: 65_536))).encode(into: &buffer)
        }
        await #expect(processExitsWith: .failure) {
            var buffer = ByteBuffer()
            let data = ByteBuffer(repeating: 1, count: 65_536)
            Packet.publish(Publish(topic: "a", properties: .init(correlationData: data))).encode(into: &buffer)
        }
        await #expect(processExitsWith: .failure) {
            var buffer = ByteBuffer()
            Packet.publish(Publish(topic: "a", properties: .init(subscriptionIDs: [268_435_456])))
                .encode(into: &buffer)
        }
    }

    /// [MQTT-2.2.1-2]
    @Test func `a PUBLISH of QoS 1 without an identifier, or of QoS 0 with one, is a programming error`() async {
        await #expect(processExitsWith: .failure) {
            var buffer = ByteBuffer()
            Packet.publish(Publish(topic: "a", qos: .atLeastOnce)).encode(into: &buffer)
        }
        await #expect(processExitsWith: .failure) {
            var buffer = ByteBuffer()
            Packet.publish(Publish(topic: "a", packetID: PacketID(rawValue: 1))).encode(into: &buffer)
        }
    }

    @Test func `a packet may be as long as a Remaining Length can say, and no longer`() async {
        #expect(Self.packet(268_435_455).encodedLength == Packet.maximumLength)
        await #expect(processExitsWith: .failure) {
            var buffer = ByteBuffer()
            CodecSizeTests.packet(268_435_456).encode(into: &buffer)
        }
    }

    private static func packet(_ remaining: Int) -> Packet {
        // The memory is never touched.
        var payload = ByteBuffer()
        payload.reserveCapacity(remaining - 4)
        payload.moveWriterIndex(to: remaining - 4)
        return .publish(Publish(topic: "a", payload: payload))
    }

    @Test func `a decoder that met malformed bytes holds none of them, and gives the same error again`() throws {
        var decoder = PacketDecoder()
        decoder.append(ByteBuffer(bytes: bytesOf("00 02 00 00")))
        let error = #expect(throws: MalformedPacket.self) { try decoder.next() }
        #expect(decoder.bufferedBytes == 0)
        #expect(throws: try #require(error)) { try decoder.next() }
    }
}
