package import NIOCore

/// Where a packet's fields go. Each packet says once, in order, what its fields are; a sink writes them or counts them, so
/// that the length that is announced cannot differ from what is written.
package protocol PacketSink {
    mutating func put(byte: UInt8)
    mutating func put(uint16: UInt16)
    mutating func put(uint32: UInt32)
    /// At most `Packet.maximumVariableByteInteger`.
    mutating func put(variable: Int)
    /// With its length in front; at most `Packet.maximumStringLength` UTF-8 bytes.
    mutating func put(string: String)
    /// With its length in front; at most `Packet.maximumStringLength` bytes.
    mutating func put(binary: ByteBuffer)
    /// Without a length: a payload that fills the rest of the packet.
    mutating func put(rest: ByteBuffer)
}

extension PacketSink {
    package mutating func put(_ packetID: PacketID) {
        put(uint16: packetID.rawValue)
    }

    /// The Property Length and the properties (2.2.2).
    ///
    /// MQTT 3.1.1 has neither.
    package mutating func put(_ properties: some WritableProperties, _ version: ProtocolVersion) {
        guard version == .five else { return }
        var length = PacketLength()
        properties.put(into: &length)
        put(variable: length.bytes)
        properties.put(into: &self)
    }

    package mutating func put(_ id: PropertyID, byte: UInt8?) { put(id, byte) { $0.put(byte: $1) } }
    package mutating func put(_ id: PropertyID, flag: Bool?) { put(id, flag) { $0.put(byte: $1 ? 1 : 0) } }
    package mutating func put(_ id: PropertyID, uint16: UInt16?) { put(id, uint16) { $0.put(uint16: $1) } }
    package mutating func put(_ id: PropertyID, uint32: UInt32?) { put(id, uint32) { $0.put(uint32: $1) } }
    package mutating func put(_ id: PropertyID, variable: UInt32?) { put(id, variable) { $0.put(variable: Int($1)) } }
    package mutating func put(_ id: PropertyID, string: String?) { put(id, string) { $0.put(string: $1) } }
    package mutating func put(_ id: PropertyID, binary: ByteBuffer?) { put(id, binary) { $0.put(binary: $1) } }

    /// A property that is there, after its identifier.
    @inline(__always)
    private mutating func put<Value>(_ id: PropertyID, _ value: Value?, _ write: (inout Self, Value) -> Void) {
        guard let value else { return }
        put(byte: id.rawValue)
        write(&self, value)
    }

    package mutating func put(_ userProperties: [UserProperty]) {
        for property in userProperties {
            put(byte: PropertyID.userProperty.rawValue)
            put(string: property.name)
            put(string: property.value)
        }
    }
}

/// Counts the bytes.
struct PacketLength: PacketSink {
    private(set) var bytes = 0

    mutating func put(byte: UInt8) { bytes += 1 }
    mutating func put(uint16: UInt16) { bytes += 2 }
    mutating func put(uint32: UInt32) { bytes += 4 }
    mutating func put(variable: Int) { bytes += Packet.lengthOfVariableByteInteger(variable) }
    mutating func put(string: String) { bytes += 2 + string.utf8.count }
    mutating func put(binary: ByteBuffer) { bytes += 2 + binary.readableBytes }
    mutating func put(rest: ByteBuffer) { bytes += rest.readableBytes }
}

/// Writes the bytes.
extension ByteBuffer: PacketSink {
    package mutating func put(byte: UInt8) { writeInteger(byte) }
    package mutating func put(uint16: UInt16) { writeInteger(uint16) }
    package mutating func put(uint32: UInt32) { writeInteger(uint32) }

    package mutating func put(variable: Int) {
        precondition(
            0...Packet.maximumVariableByteInteger ~= variable, "a Variable Byte Integer is at most 268,435,455")
        var rest = variable
        while rest >= 0x80 {
            writeInteger(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        writeInteger(UInt8(rest))
    }

    package mutating func put(string: String) {
        let length = string.utf8.count
        precondition(length <= Packet.maximumStringLength, "a string in a packet has at most 65,535 UTF-8 bytes")
        writeInteger(UInt16(length))
        writeString(string)
    }

    package mutating func put(binary: ByteBuffer) {
        precondition(
            binary.readableBytes <= Packet.maximumStringLength, "binary data in a packet has at most 65,535 bytes")
        writeInteger(UInt16(binary.readableBytes))
        writeImmutableBuffer(binary)
    }

    package mutating func put(rest: ByteBuffer) { writeImmutableBuffer(rest) }
}
