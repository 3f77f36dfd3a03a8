import MQTT
import NIOCore
import Support
import Testing

struct VectorTests {
    @Test(arguments: Vector.every)
    func `bytes from the standard decode to the packet`(_ vector: Vector) throws {
        #expect(try decode([vector.bytes], from: vector.sender, in: vector.version) == [vector.packet])
    }

    /// [MQTT-3.1.2-1] [MQTT-3.3.2-1] [MQTT-3.8.3-5]
    @Test(arguments: Vector.every)
    func `a packet encodes to the bytes from the standard`(_ vector: Vector) throws {
        #expect(encode(vector.packet, in: vector.version) == vector.bytes)
        if vector.packet.kind.hasClientEncoding {
            #expect(vector.packet.encodedLength(as: vector.version) == vector.bytes.count)
        }
    }

    @Test func `the vectors have every kind of packet`() {
        #expect(Set(Vector.all.map(\.packet.kind)) == Set(Packet.Kind.allCases))
        #expect(Set(Vector.older.map(\.packet.kind)) == Set(Packet.Kind.allCases).subtracting([.auth]))
    }

    @Test(arguments: PropertyRow.all)
    func `the vectors have every property`(_ row: PropertyRow) {
        let number = (row.id < 0x10 ? "0" : "") + String(row.id, radix: 16, uppercase: true)
        // "Subscription Identifier Available" is "Subscription Identifiers Available" in a sentence.
        let words = row.name.split(separator: " ").map { $0.prefix(10) }
        let lines = Vector.all.flatMap { $0.hex.split(separator: "\n") }
        #expect(
            lines.contains { line in
                line.hasPrefix("\(number) ") && words.allSatisfy { line.contains($0) }
            })
    }

    @Test(arguments: Vector.every)
    func `a packet that either side may send decodes the same from both`(_ vector: Vector) throws {
        let other: Sender = vector.sender == .client ? .server : .client
        switch vector.packet {
        case .publish(let publish) where publish.properties.subscriptionIDs.isEmpty: break
        case .disconnect(let disconnect)
        where disconnect.properties.sessionExpiryInterval == nil && vector.version == .five:
            break
        case .puback, .pubrec, .pubrel, .pubcomp, .auth: break
        default: return
        }
        #expect(try decode([vector.bytes], from: other, in: vector.version) == [vector.packet])
    }

    @Test(arguments: Vector.every)
    func `a packet decodes the same from every split of its bytes into two chunks`(_ vector: Vector) throws {
        let bytes = vector.bytes
        for split in 1..<bytes.count {
            let chunks = [Array(bytes[..<split]), Array(bytes[split...])]
            #expect(try decode(chunks, from: vector.sender, in: vector.version) == [vector.packet])
        }
    }

    @Test(arguments: [Sender.client, .server], ProtocolVersion.allCases)
    func `a stream of packets decodes the same byte by byte, in every two chunks and at once`(
        _ sender: Sender, _ version: ProtocolVersion
    ) throws {
        let vectors = Vector.every.filter { $0.sender == sender && $0.version == version }
        let bytes = vectors.flatMap(\.bytes)
        let packets = vectors.map(\.packet)
        #expect(try decode([bytes], from: sender, in: version) == packets)
        #expect(try decode(bytes.map { [$0] }, from: sender, in: version) == packets)
        for split in 1..<bytes.count {
            var decoder = PeerDecoder(sender: sender, version: version)
            var decoded: [Packet] = []
            for chunk in [bytes[..<split], bytes[split...]] {
                decoder.append(ByteBuffer(bytes: chunk))
                while let packet = try decoder.next() { decoded.append(packet) }
            }
            #expect(decoded == packets)
            #expect(decoder.bufferedBytes == 0)
        }
    }

    /// Decoding gives either an error, which stays, or packets that encode to bytes which decode to the same packets.
    private func survive(_ bytes: [UInt8], from sender: Sender, in version: ProtocolVersion) {
        var decoder = PeerDecoder(sender: sender, version: version)
        decoder.append(ByteBuffer(bytes: bytes))
        var packets: [Packet] = []
        do throws(MalformedPacket) {
            while let packet = try decoder.next() { packets.append(packet) }
        } catch {
            #expect(throws: error) { try decoder.next() }
            #expect(error.reasonCode.isError && !error.message.isEmpty)
        }
        for packet in packets {
            let again = encode(packet, in: version)
            #expect((try? decode([again], from: sender, in: version)) == [packet])
        }
    }

    @Test(arguments: Vector.every)
    func `a change of any byte gives an error or packets, never a trap`(_ vector: Vector) {
        let bytes = vector.bytes
        for index in bytes.indices {
            // Each bit, and the values at which lengths and signs turn; the fuzzers try the rest.
            let byte = bytes[index]
            let values = (0..<8).map { byte ^ (1 << $0) } + [0, 0x7F, 0x80, 0xFF, byte &+ 1, byte &- 1]
            for value in values {
                var changed = bytes
                changed[index] = value
                survive(changed, from: vector.sender, in: vector.version)
            }
        }
    }

    @Test(arguments: Vector.every)
    func `a packet that is cut off gives no packet`(_ vector: Vector) throws {
        for length in 0..<vector.bytes.count {
            let start = Array(vector.bytes.prefix(length))
            #expect(try decode([start], from: vector.sender, in: vector.version).isEmpty)
        }
    }

    @Test(arguments: Vector.every)
    func `a body that is cut off with a Remaining Length to match gives an error or packets, never a trap`(
        _ vector: Vector
    ) {
        // All the vectors have a Remaining Length of one byte.
        for length in 2..<max(vector.bytes.count, 3) where length < vector.bytes.count {
            var cut = Array(vector.bytes.prefix(length))
            cut[1] = UInt8(length - 2)
            survive(cut, from: vector.sender, in: vector.version)
        }
    }
}
