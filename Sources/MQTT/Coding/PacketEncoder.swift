public import NIOCore

extension Packet {
    /// The largest value of a Variable Byte Integer, and so of a Remaining Length (1.5.5).
    public static let maximumVariableByteInteger = 268_435_455
    /// The largest packet that MQTT can express, in bytes with its fixed header.
    public static let maximumLength = 5 + maximumVariableByteInteger
    /// The most bytes in a string or in binary data (1.5.4, 1.5.6).
    public static let maximumStringLength = 65_535

    /// How many bytes `encode(into:)` writes, including the fixed header: what a Maximum Packet Size is compared with.
    public var encodedLength: Int { encodedLength(as: .five) }

    /// How many bytes `encode(into:as:)` writes, including the fixed header.
    public func encodedLength(as version: ProtocolVersion) -> Int {
        let remaining = remainingLength(version)
        return 1 + Self.lengthOfVariableByteInteger(remaining) + remaining
    }

    /// Returns the bytes of the packet: see ``encode(into:as:)``.
    public func encoded(as version: ProtocolVersion = .five) -> ByteBuffer {
        var buffer = ByteBuffer()
        encode(into: &buffer, as: version)
        return buffer
    }

    /// Appends the packet, in the form of MQTT 5 or 3.1.1. Nothing but `buffer` is allocated.
    ///
    /// What 3.1.1 cannot express is left out: properties, reason codes of acknowledgements, and so on. A string or
    /// binary field over 65,535 bytes, a packet over 268,435,460 bytes, a packet identifier that is missing at QoS 1 and
    /// 2 or present at QoS 0, AUTH in 3.1.1, and CONNACK, SUBACK and UNSUBACK, which only a server sends, are programming
    /// errors and trap. What comes from users has to be checked
    /// where it is accepted.
    public func encode(into buffer: inout ByteBuffer, as version: ProtocolVersion = .five) {
        encodeHead(into: &buffer, as: version)
        if case .publish(let publish) = self { buffer.put(rest: publish.payload) }
    }

    /// Does the same without the payload of a PUBLISH packet, which has to follow.
    func encodeHead(into buffer: inout ByteBuffer, as version: ProtocolVersion) {
        precondition(kind != .auth || version == .five, "MQTT 3.1.1 has no AUTH")
        if case .publish(let publish) = self {
            precondition(
                (publish.packetID == nil) == (publish.qos == .atMostOnce),
                "a PUBLISH has a packet identifier exactly when its QoS is 1 or 2")
        }
        let remaining = remainingLength(version)
        precondition(remaining <= Self.maximumVariableByteInteger, "a packet has at most 268,435,460 bytes")
        buffer.put(byte: kind.rawValue << 4 | flags)
        buffer.put(variable: remaining)
        if case .publish(let publish) = self {
            publish.putHead(into: &buffer, version)
        } else {
            putBody(into: &buffer, version)
        }
    }

    static func lengthOfVariableByteInteger(_ value: Int) -> Int {
        switch value {
        case ..<0x80: 1
        case ..<0x4000: 2
        case ..<0x20_0000: 3
        default: 4
        }
    }

    private func remainingLength(_ version: ProtocolVersion) -> Int {
        var length = PacketLength()
        putBody(into: &length, version)
        return length.bytes
    }

    /// The lower half of the first byte (2.1.3).
    private var flags: UInt8 {
        switch self {
        case .publish(let publish): publish.flags
        default: kind.fixedFlags
        }
    }

    /// Variable header and payload.
    func putBody(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        switch self {
        case .connect(let connect): connect.put(into: &sink, version)
        case .publish(let publish): publish.put(into: &sink, version)
        case .puback(let acknowledgement), .pubrec(let acknowledgement), .pubrel(let acknowledgement),
            .pubcomp(let acknowledgement):
            acknowledgement.put(into: &sink, version)
        case .subscribe(let subscribe): subscribe.put(into: &sink, version)
        case .unsubscribe(let unsubscribe): unsubscribe.put(into: &sink, version)
        case .pingreq, .pingresp: break
        case .disconnect(let disconnect): disconnect.put(into: &sink, version)
        case .auth(let auth): auth.put(into: &sink)
        case .connack, .suback, .unsuback: preconditionFailure("a client does not send \(kind)")
        }
    }
}

extension Packet.Kind {
    /// The flags that every packet of the kind has (2.1.3). PUBLISH has flags of its own.
    var fixedFlags: UInt8 {
        switch self {
        case .pubrel, .subscribe, .unsubscribe: 0b0010
        default: 0
        }
    }
}
