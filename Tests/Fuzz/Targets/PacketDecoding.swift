import MQTT
import NIOCore
import Support

/// The first byte chooses the sender, the version and the size of the chunks; the rest is what the peer sends.
///
/// What was decoded must be the same after it was encoded and decoded again, and the chunks must not matter.
func decodePackets(_ bytes: [UInt8]) {
    var source = ByteSource(bytes)
    let choice = source.byte()
    let sender: Sender = choice & 1 == 0 ? .server : .client
    let version: ProtocolVersion = choice & 2 == 0 ? .five : .threeOneOne
    let adopts = choice & 4 != 0
    let content = source.take(.max)
    func decoder() -> PeerDecoder {
        PeerDecoder(sender: sender, version: version, adoptsVersion: adopts, maximumPacketSize: 1 << 16)
    }
    let whole = decode(content, chunk: max(1, content.count), decoder())
    let parts = decode(content, chunk: 1 + Int(choice >> 3), decoder())
    precondition(whole == parts, "the chunks make a difference")

    var encoded = ByteBuffer()
    for decoded in whole.packets {
        encoded.writeImmutableBuffer(Support.encoded(decoded.packet, in: decoded.version))
    }
    let again = decode(Array(encoded.readableBytesView), chunk: max(1, encoded.readableBytes), decoder())
    precondition(again.packets == whole.packets && again.failure == nil, "a packet is another one when it is encoded")
}

private struct Decoded: Equatable {
    var packet: Packet
    var version: ProtocolVersion
}

private struct Decoding: Equatable {
    var packets: [Decoded] = []
    var failure: MalformedPacket?
}

private func decode(_ bytes: [UInt8], chunk: Int, _ fresh: PeerDecoder) -> Decoding {
    var decoder = fresh
    var decoding = Decoding()
    var rest = bytes[...]
    while !rest.isEmpty {
        decoder.append(ByteBuffer(bytes: rest.prefix(chunk)))
        rest = rest.dropFirst(chunk)
        do throws(MalformedPacket) {
            while let packet = try decoder.next() {
                decoding.packets.append(Decoded(packet: packet, version: decoder.version))
            }
        } catch {
            decoding.failure = error
            return decoding
        }
        precondition(decoder.bufferedBytes <= (1 << 16) + chunk, "more than a packet and a chunk is held")
    }
    return decoding
}
