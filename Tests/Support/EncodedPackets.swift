public import MQTT
public import NIOCore

/// The bytes of packets that a peer sends in one chunk.
public func encoded(_ packets: Packet..., in version: ProtocolVersion = .five) -> ByteBuffer {
    encoded(packets, in: version)
}

public func encoded(_ packets: [Packet], in version: ProtocolVersion = .five) -> ByteBuffer {
    var bytes = ByteBuffer()
    for packet in packets { bytes.writeImmutableBuffer(encoded(packet, in: version)) }
    return bytes
}
