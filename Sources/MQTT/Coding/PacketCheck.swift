import NIOCore

/// Why a packet cannot be put on the wire: to check what users hand in before it is accepted.
public enum UnencodablePacket: Error, Hashable, Sendable {
    /// A string field of this many UTF-8 bytes, over 65,535 (1.5.4).
    case stringTooLong(Int)
    /// A string field contains U+0000 [MQTT-1.5.4-2].
    case stringContainsNull
    /// A binary field of this many bytes, over 65,535 (1.5.6).
    case binaryTooLong(Int)
    /// A Variable Byte Integer is over 268,435,455 (1.5.5).
    case numberTooLarge(Int)
    /// The whole packet has this many bytes, more than MQTT can express (2.1.4).
    case packetTooLong(Int)
    /// A PUBLISH has a packet identifier at QoS 0 or has none at QoS 1 and 2 [MQTT-2.2.1-2].
    case packetIdentifierDoesNotFitQoS
    /// MQTT 3.1.1 has no such packet, or no place for a part of it.
    case notInVersion(ProtocolVersion)
}

extension UnencodablePacket: CustomStringConvertible {
    /// A sentence without the final full stop.
    public var description: String {
        switch self {
        case .stringTooLong(let bytes): "a string has \(bytes) bytes, over 65,535 (MQTT 5, 1.5.4)"
        case .stringContainsNull: "a string contains U+0000 (MQTT 5, 1.5.4)"
        case .binaryTooLong(let bytes): "binary data has \(bytes) bytes, over 65,535 (MQTT 5, 1.5.6)"
        case .numberTooLarge(let number): "a number is \(number), over 268,435,455 (MQTT 5, 1.5.5)"
        case .packetTooLong(let bytes): "the packet has \(bytes) bytes, over 268,435,460 (MQTT 5, 2.1.4)"
        case .packetIdentifierDoesNotFitQoS: "a packet identifier belongs to QoS 1 and 2 alone (MQTT 5, 2.2.1)"
        case .notInVersion(let version): "MQTT \(version) cannot express this packet completely"
        }
    }
}

extension Packet {
    /// Throws the first thing that `encode(into:as:)` would trap on or leave out, and U+0000 in any string, which a
    /// peer would refuse. Topics are checked by `TopicName` and `TopicFilter`.
    public func checkEncodable(as version: ProtocolVersion = .five) throws(UnencodablePacket) {
        guard version == .five || reduced(to: version) == self else { throw .notInVersion(version) }
        if case .publish(let publish) = self, (publish.packetID == nil) != (publish.qos == .atMostOnce) {
            throw .packetIdentifierDoesNotFitQoS
        }
        var check = PacketCheck()
        putBody(into: &check, version)
        if let problem = check.problem { throw problem }
        let length = encodedLength(as: version)
        guard length <= Self.maximumLength else { throw .packetTooLong(length) }
    }
}

/// Keeps the first field that cannot be encoded.
private struct PacketCheck: PacketSink {
    private(set) var problem: UnencodablePacket?

    mutating func put(byte: UInt8) {}
    mutating func put(uint16: UInt16) {}
    mutating func put(uint32: UInt32) {}
    mutating func put(rest: ByteBuffer) {}

    mutating func put(variable: Int) {
        if variable > Packet.maximumVariableByteInteger { keep(.numberTooLarge(variable)) }
    }

    mutating func put(string: String) {
        if string.utf8.count > Packet.maximumStringLength { keep(.stringTooLong(string.utf8.count)) }
        if string.utf8.contains(0) { keep(.stringContainsNull) }
    }

    mutating func put(binary: ByteBuffer) {
        if binary.readableBytes > Packet.maximumStringLength { keep(.binaryTooLong(binary.readableBytes)) }
    }

    private mutating func keep(_ found: UnencodablePacket) {
        if problem == nil { problem = found }
    }
}
