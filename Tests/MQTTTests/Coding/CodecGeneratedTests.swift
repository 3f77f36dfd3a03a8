import MQTT
import NIOCore
import Testing

struct CodecGeneratedTests {
    @Test(arguments: 1...8, [Sender.client, .server])
    func `an encoded packet decodes to the same packet and has the length announced`(
        _ seed: UInt64, _ sender: Sender
    ) throws {
        var generator = PacketGenerator(seed: seed)
        for _ in 0..<250 {
            let packet = generator.packet(from: sender)
            let bytes = encode(packet)
            if packet.kind.hasClientEncoding { #expect(bytes.count == packet.encodedLength) }
            let decoded = try decode([bytes], from: sender)
            #expect(decoded == [packet])
            // Strings compare as text, so the bytes are compared as well.
            #expect(decoded.map { encode($0) } == [bytes])
        }
    }

    @Test(arguments: [Sender.client, .server])
    func `the generator often produces every kind of packet of the sender`(_ sender: Sender) {
        var generator = PacketGenerator(seed: 1)
        var counts: [Packet.Kind: Int] = [:]
        for _ in 0..<2000 { counts[generator.packet(from: sender).kind, default: 0] += 1 }
        let ofOther: Set<Packet.Kind> =
            sender == .server
            ? [.connect, .subscribe, .unsubscribe, .pingreq] : [.connack, .suback, .unsuback, .pingresp]
        for kind in Packet.Kind.allCases {
            #expect((counts[kind] ?? 0 > 50) == !ofOther.contains(kind), "\(kind): \(counts[kind] ?? 0)")
        }
    }

    @Test(arguments: 1...8, [Sender.client, .server])
    func `a packet reduced to MQTT 3.1.1 decodes to the same packet`(
        _ seed: UInt64, _ sender: Sender
    ) throws {
        var generator = PacketGenerator(seed: seed)
        for _ in 0..<250 {
            let packet = generator.packet(from: sender)
            guard let packet = packet.inThreeOneOne, packet.kind.isSent(by: sender) else { continue }
            let bytes = encode(packet, in: .threeOneOne)
            if packet.kind.hasClientEncoding { #expect(bytes.count == packet.encodedLength(as: .threeOneOne)) }
            let decoded = try decode([bytes], from: sender, in: .threeOneOne)
            #expect(decoded == [packet])
            #expect(decoded.map { encode($0, in: .threeOneOne) } == [bytes])
        }
    }

    @Test(arguments: 1...4, [Sender.client, .server])
    func `any bytes in a valid frame give an error or packets that MQTT 3.1.1 encodes again`(
        _ seed: UInt64, _ sender: Sender
    ) throws {
        var generator = PacketGenerator(seed: seed)
        var count = (decoded: 0, refused: 0)
        for _ in 0..<2000 {
            guard let packets = try? decode([generator.frame()], from: sender, in: .threeOneOne) else {
                count.refused += 1
                continue
            }
            count.decoded += packets.count
            for packet in packets {
                #expect(try decode([encode(packet, in: .threeOneOne)], from: sender, in: .threeOneOne) == [packet])
            }
        }
        #expect(count.decoded > 10 && count.refused > 500, "\(count)")
    }

    @Test(arguments: 1...4, [Sender.client, .server])
    func `a stream decodes to the same packets however it is cut`(_ seed: UInt64, _ sender: Sender) throws {
        var generator = PacketGenerator(seed: seed)
        let packets = (0..<100).map { _ in generator.packet(from: sender) }
        var rest = packets.flatMap { encode($0) }[...]
        var chunks: [[UInt8]] = []
        while !rest.isEmpty {
            let chunk = rest.prefix(generator.int(1...generator.int(1...400)))
            chunks.append(Array(chunk))
            rest = rest[chunk.endIndex...]
        }
        #expect(try decode(chunks, from: sender) == packets)
    }

    @Test(arguments: 1...4, [Sender.client, .server])
    func `any bytes in a valid frame give an error or packets that encode again`(
        _ seed: UInt64, _ sender: Sender
    ) throws {
        var generator = PacketGenerator(seed: seed)
        var count = (decoded: 0, refused: 0)
        for _ in 0..<2000 {
            guard let packets = try? decode([generator.frame()], from: sender) else {
                count.refused += 1
                continue
            }
            count.decoded += packets.count
            for packet in packets {
                #expect(try decode([encode(packet)], from: sender) == [packet])
            }
        }
        #expect(count.decoded > 10 && count.refused > 500, "\(count)")
    }

    /// Closer to valid than random bytes: a packet with a few bytes changed, removed or added.
    @Test(arguments: 1...4, [Sender.client, .server])
    func `damaged packets give an error or packets that encode again`(_ seed: UInt64, _ sender: Sender) throws {
        var generator = PacketGenerator(seed: seed)
        var count = (decoded: 0, refused: 0)
        for _ in 0..<1000 {
            var bytes = encode(generator.packet(from: sender))
            for _ in 0..<generator.int(1...4) where !bytes.isEmpty {
                let index = generator.int(0...bytes.count - 1)
                switch generator.int(0...2) {
                case 0: bytes[index] = UInt8(generator.int(0...255))
                case 1: bytes.remove(at: index)
                default: bytes.insert(UInt8(generator.int(0...255)), at: index)
                }
            }
            guard let packets = try? decode([bytes], from: sender) else {
                count.refused += 1
                continue
            }
            count.decoded += packets.count
            for packet in packets {
                #expect(try decode([encode(packet)], from: sender) == [packet])
            }
        }
        #expect(count.decoded > 20 && count.refused > 100, "\(count)")
    }
}

extension PacketGenerator {
    /// A frame of the right length with any contents. Random bytes are hardly ever a packet, so most of the bodies are
    /// made of small numbers and letters.
    fileprivate mutating func frame() -> [UInt8] {
        let first = UInt8(int(0...15) << 4 | [0, 0, 2, int(0...15)][int(0...3)])
        let small: [UInt8] = [0, 0, 0, 1, 2, 3, 97]
        let count = int(0...int(0...12))
        let body = int(0...3) == 0 ? bytes(0...60) : (0..<count).map { _ in small[int(0...6)] }
        return [first, UInt8(body.count)] + body
    }
}

extension Packet.Kind {
    /// In MQTT 3.1.1 a server has no DISCONNECT.
    fileprivate func isSent(by sender: Sender) -> Bool {
        self != .disconnect || sender == .client
    }
}
