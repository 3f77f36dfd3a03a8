import MQTT
import NIOCore
import Support
import Testing

/// One packet as bytes, written by hand from the standard, and as a value.
struct Vector: Sendable, CustomTestStringConvertible {
    let name: String
    let sender: Sender
    /// Hex bytes; what follows `//` in a line says what they are.
    let hex: String
    let packet: Packet
    let version: ProtocolVersion

    init(
        _ name: String, from sender: Sender, _ hex: String, _ packet: Packet, in version: ProtocolVersion = .five
    ) {
        self.name = name
        self.version = version
        self.sender = sender
        self.hex = hex
        self.packet = packet
    }

    var bytes: [UInt8] { bytesOf(hex) }
    var testDescription: String { "\(name), MQTT \(version)" }
}

/// The bytes of annotated hex.
func bytesOf(_ hex: String) -> [UInt8] {
    hex.split(separator: "\n").flatMap { line -> [UInt8] in
        let comment = line.firstRange(of: "//")?.lowerBound ?? line.endIndex
        return line[..<comment].split(separator: " ").map { text in
            guard let byte = UInt8(text, radix: 16), text.count == 2 else { fatalError("\(text) is not a byte in hex") }
            return byte
        }
    }
}

func identifier(_ value: UInt16) -> PacketID {
    guard let packetID = PacketID(rawValue: value) else { fatalError("0 is not a packet identifier") }
    return packetID
}

/// Every packet in the chunks, up to the first error.
func decode(
    _ chunks: [[UInt8]], from sender: Sender, in version: ProtocolVersion = .five,
    maximumPacketSize: Int = Packet.maximumLength
) throws -> [Packet] {
    var decoder = PeerDecoder(sender: sender, version: version, maximumPacketSize: maximumPacketSize)
    var packets: [Packet] = []
    for chunk in chunks {
        decoder.append(ByteBuffer(bytes: chunk))
        while let packet = try decoder.next() { packets.append(packet) }
    }
    return packets
}

func encode(_ packet: Packet, in version: ProtocolVersion = .five) -> [UInt8] {
    Array(encoded(packet, in: version).readableBytesView)
}

extension Packet.Kind {
    /// Whether the product encodes packets of the kind, not only the models of servers.
    var hasClientEncoding: Bool { ![.connack, .suback, .unsuback].contains(self) }
}
