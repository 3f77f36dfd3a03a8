package import NIOCore

/// A field's name and the section of the standard that describes it, for error messages.
package struct Field {
    let name: StaticString
    private let section: StaticString
    /// The section in MQTT 3.1.1.
    private let older: StaticString

    /// - Parameter older: the section in MQTT 3.1.1, if it is a different one.
    package init(_ name: StaticString, _ section: StaticString, older: StaticString? = nil) {
        self.name = name
        self.section = section
        self.older = older ?? section
    }

    func section(in version: ProtocolVersion) -> StaticString {
        version == .five ? section : older
    }
}

/// Reads the fields of one packet, in order. Every length is compared with the bytes that are really there before it is
/// used.
package struct PacketReader {
    package private(set) var bytes: ByteBuffer
    package let kind: Packet.Kind
    let sender: Sender
    package var version: ProtocolVersion

    package var isAtEnd: Bool { bytes.readableBytes == 0 }

    init(_ bytes: ByteBuffer, kind: Packet.Kind, sender: Sender, version: ProtocolVersion) {
        self.bytes = bytes
        self.kind = kind
        self.sender = sender
        self.version = version
    }

    /// Returns an error that says what is wrong with a field. The problem continues "PUBLISH: Topic Name …".
    package func error(_ field: Field, _ problem: String, _ code: ReasonCode = .malformedPacket) -> MalformedPacket {
        MalformedPacket(
            reasonCode: code,
            message: "\(kind): \(field.name) \(problem) (MQTT \(version), \(field.section(in: version)))",
            kind: kind)
    }

    package mutating func byte(_ field: Field) throws(MalformedPacket) -> UInt8 { try integer(field) }
    package mutating func uint16(_ field: Field) throws(MalformedPacket) -> UInt16 { try integer(field) }
    package mutating func uint32(_ field: Field) throws(MalformedPacket) -> UInt32 { try integer(field) }

    private mutating func integer<Value: FixedWidthInteger>(_ field: Field) throws(MalformedPacket) -> Value {
        guard let value = bytes.readInteger(as: Value.self) else { throw truncated(field) }
        return value
    }

    /// A Variable Byte Integer in its shortest form [MQTT-1.5.5-1].
    mutating func variable(_ field: Field) throws(MalformedPacket) -> Int {
        switch VariableByteInteger(at: bytes.readerIndex, of: bytes) {
        case .value(let value, let length):
            bytes.moveReaderIndex(forwardBy: length)
            return value
        case .incomplete: throw truncated(field)
        case .tooLong: throw error(field, "has more than four bytes")
        case .notShortest: throw error(field, "is not in its shortest form")
        }
    }

    /// A UTF-8 Encoded String (1.5.4).
    package mutating func string(_ field: Field) throws(MalformedPacket) -> String {
        try string(of: try binary(field), field)
    }

    private func string(of bytes: ByteBuffer, _ field: Field) throws(MalformedPacket) -> String {
        let (string, containsNull) = bytes.withUnsafeReadableBytes { text in
            (String(validating: text, as: UTF8.self), text.contains(0))
        }
        guard let string else { throw error(field, "is not valid UTF-8") }
        guard !containsNull else { throw error(field, "contains U+0000") }
        return string
    }

    /// Binary Data (1.5.6), as a slice.
    package mutating func binary(_ field: Field) throws(MalformedPacket) -> ByteBuffer {
        let length = Int(try uint16(field))
        guard let slice = bytes.readSlice(length: length) else { throw truncated(field) }
        return slice
    }

    /// Whether this byte is all that is left.
    func isOneByte(_ value: UInt8) -> Bool {
        bytes.readableBytes == 1 && bytes.getInteger(at: bytes.readerIndex, as: UInt8.self) == value
    }

    /// All that is left, as a slice.
    mutating func rest() -> ByteBuffer {
        let rest = bytes.slice()
        bytes.moveReaderIndex(to: bytes.writerIndex)
        return rest
    }

    package mutating func packetID(_ field: Field) throws(MalformedPacket) -> PacketID {
        guard let packetID = PacketID(rawValue: try uint16(field)) else { throw error(field, "is 0", .protocolError) }
        return packetID
    }

    package mutating func reasonCode(_ field: Field) throws(MalformedPacket) -> ReasonCode {
        ReasonCode(rawValue: try byte(field))
    }

    /// A topic name or response topic: no wildcards.
    package mutating func topic(_ field: Field) throws(MalformedPacket) -> String {
        try topic(try binary(field), field)
    }

    func topic(_ bytes: ByteBuffer, _ field: Field) throws(MalformedPacket) -> String {
        let topic = try string(of: bytes, field)
        guard !TopicName.containsWildcard(topic) else { throw error(field, "contains a wildcard", .protocolError) }
        return topic
    }

    func end(_ field: Field) throws(MalformedPacket) {
        guard isAtEnd else { throw error(field, "is followed by \(bytes.readableBytes) bytes too many") }
    }

    private func truncated(_ field: Field) -> MalformedPacket {
        error(field, "ends before it should")
    }
}

// MARK: Properties

extension PacketReader {
    /// The Property Length and the properties (2.2.2), added to an empty set of the packet's properties. MQTT 3.1.1 has
    /// none.
    package mutating func properties<Properties: ReadableProperties>(
        _ empty: Properties
    ) throws(MalformedPacket) -> Properties {
        guard let slice = try propertyBytes(of: Properties.self) else { return empty }
        return try properties(empty, from: slice)
    }

    /// The Property Length and the bytes that it counts; `nil` in MQTT 3.1.1.
    mutating func propertyBytes<Properties: ReadableProperties>(
        of _: Properties.Type
    ) throws(MalformedPacket) -> ByteBuffer? {
        guard version == .five else { return nil }
        let section = Field("Property Length", Properties.section)
        let length = try variable(section)
        guard let slice = bytes.readSlice(length: length) else { throw error(section, "is beyond the packet") }
        return slice
    }

    func properties<Properties: ReadableProperties>(
        _ empty: Properties, from slice: ByteBuffer
    ) throws(MalformedPacket) -> Properties {
        var reader = PacketReader(slice, kind: kind, sender: sender, version: version)
        var properties = empty
        var seen: UInt64 = 0
        while !reader.isAtEnd {
            let number = try reader.variable(Field("Property Identifier", Properties.section))
            guard let raw = UInt8(exactly: number), let id = PropertyID(rawValue: raw) else {
                throw error(Field("Property Identifier", Properties.section), "\(number) does not exist")
            }
            let field = Field(id.name, Properties.section)
            let bit: UInt64 = 1 << UInt64(id.rawValue)
            guard seen & bit == 0 || mayRepeat(id) else { throw error(field, "occurs twice", .protocolError) }
            seen |= bit
            try properties.take(id, field, from: &reader)
        }
        return properties
    }

    package func misplaced(_ property: Field) -> MalformedPacket {
        error(property, "is not a property of this packet")
    }

    /// Whether a property may be there more than once (2.2.2.2, 3.3.2.3.8).
    private func mayRepeat(_ id: PropertyID) -> Bool {
        id == .userProperty || (id == .subscriptionIdentifier && kind == .publish)
    }

    package mutating func flag(_ field: Field) throws(MalformedPacket) -> Bool {
        switch try byte(field) {
        case 0: return false
        case 1: return true
        case let value: throw error(field, "is \(value), not 0 or 1", .protocolError)
        }
    }

    package mutating func nonZeroUInt16(
        _ field: Field, _ code: ReasonCode = .protocolError
    ) throws(MalformedPacket) -> UInt16 {
        let value = try uint16(field)
        guard value != 0 else { throw error(field, "is 0", code) }
        return value
    }

    package mutating func nonZeroUInt32(_ field: Field) throws(MalformedPacket) -> UInt32 {
        let value = try uint32(field)
        guard value != 0 else { throw error(field, "is 0", .protocolError) }
        return value
    }

    package mutating func subscriptionID(_ field: Field) throws(MalformedPacket) -> UInt32 {
        let value = try variable(field)
        guard value != 0 else { throw error(field, "is 0", .protocolError) }
        return UInt32(value)
    }

    package mutating func payloadFormat(_ field: Field) throws(MalformedPacket) -> PayloadFormat {
        let value = try byte(field)
        guard let format = PayloadFormat(rawValue: value) else {
            throw error(field, "is \(value), not 0 or 1", .protocolError)
        }
        return format
    }

    package mutating func userProperty(_ field: Field) throws(MalformedPacket) -> UserProperty {
        let name = try string(field)
        return UserProperty(name: name, value: try string(field))
    }
}

/// A Variable Byte Integer (1.5.5), as far as it has arrived.
enum VariableByteInteger: Equatable {
    case value(Int, length: Int)
    case incomplete
    case tooLong
    /// The last byte is a needless 0; the standard wants the fewest bytes [MQTT-1.5.5-1].
    case notShortest

    init(at index: Int, of bytes: ByteBuffer) {
        var value = 0
        for position in 0..<4 {
            guard index + position < bytes.writerIndex,
                let byte = bytes.getInteger(at: index + position, as: UInt8.self)
            else {
                self = .incomplete
                return
            }
            value |= Int(byte & 0x7F) << (7 * position)
            if byte & 0x80 == 0 {
                self = byte == 0 && position > 0 ? .notShortest : .value(value, length: position + 1)
                return
            }
        }
        self = .tooLong
    }
}
