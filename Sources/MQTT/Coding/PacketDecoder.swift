public import NIOCore

/// Turns the bytes that a server sends into packets, however they are cut into chunks.
///
///     decoder.append(chunk)
///     while let packet = try decoder.next() { … }
///
/// Call `next()` until it returns `nil` after each `append`: a packet over the maximum is then refused from its fixed
/// header, and never more than one packet and one chunk are held. Payloads and binary fields are slices of the chunks.
/// Any bytes are safe: they give packets or `MalformedPacket`, and after the first error always that error, because
/// nothing tells where the next packet would begin.
public struct PacketDecoder: Sendable {
    /// The largest packet that is taken, in bytes with its fixed header.
    public let maximumPacketSize: Int
    /// The version of MQTT that the bytes are read as.
    public package(set) var version: ProtocolVersion

    /// Whose packets these are. Packets that only the other side may send are refused.
    private let sender: Sender
    private let setsContentAside: Bool
    /// A PUBLISH over the maximum whose payload is skipped, and how many bytes of it are still to come.
    private var passing: (publish: Publish, bytes: Int)?
    private var buffer = ByteBuffer()
    /// Whether no packet has been decoded yet.
    private(set) var isAtStart = true
    private var failure: MalformedPacket?

    /// - Parameters:
    ///   - version: the version of MQTT that this connection has.
    ///   - setsContentAside: whether a PUBLISH that can be framed but has unusable content is handed out with a
    ///     ``Publish/flaw``. The same goes, without its payload, for one over the maximum in MQTT 3.1.1, which cannot
    ///     announce a maximum. Otherwise both are errors, and the publisher of such a message ends the connections of
    ///     all its subscribers.
    ///   - maximumPacketSize: what we announced as Maximum Packet Size; by default all that MQTT can express.
    public init(
        version: ProtocolVersion = .five, setsContentAside: Bool = false,
        maximumPacketSize: Int = Packet.maximumLength
    ) {
        self.init(
            sender: .server, version: version, setsContentAside: setsContentAside,
            maximumPacketSize: maximumPacketSize)
    }

    /// The framing also serves the models of servers in the tests.
    package init(sender: Sender, version: ProtocolVersion, setsContentAside: Bool, maximumPacketSize: Int) {
        self.sender = sender
        self.version = version
        self.setsContentAside = setsContentAside
        self.maximumPacketSize = maximumPacketSize
    }

    /// Bytes that have arrived and are not yet part of a packet that was handed out.
    public var bufferedBytes: Int { buffer.readableBytes }

    /// The bytes that ``bufferedBytes`` counts.
    var buffered: ByteBuffer { buffer }

    /// Takes the next chunk.
    public mutating func append(_ bytes: ByteBuffer) {
        guard buffer.readableBytes > 0 else {
            buffer = bytes
            return
        }
        // What was handed out may still point into the old storage; the write below then copies only what is left.
        if buffer.readerIndex > buffer.readableBytes { buffer.discardReadBytes() }
        buffer.writeImmutableBuffer(bytes)
    }

    /// The next whole packet, or `nil` if more bytes are needed.
    ///
    /// - Throws: what is wrong with the packet (4.13.1), for example its size. The decoder then drops what it holds,
    ///   and throws the same error at each later call.
    public mutating func next() throws(MalformedPacket) -> Packet? {
        try next(Packet.init)
    }

    /// Does the same with another reading of a packet's flags and body.
    package mutating func next(_ read: PacketReading) throws(MalformedPacket) -> Packet? {
        if let failure { throw failure }
        do {
            return try decode(read)
        } catch {
            failure = error
            buffer = ByteBuffer()
            throw error
        }
    }

    private mutating func decode(_ read: PacketReading) throws(MalformedPacket) -> Packet? {
        if let passing { return passOver(passing.publish, passing.bytes) }
        guard let first = buffer.getInteger(at: buffer.readerIndex, as: UInt8.self) else { return nil }
        guard let kind = Packet.Kind(rawValue: first >> 4) else {
            throw MalformedPacket(
                reasonCode: .malformedPacket,
                message:
                    "fixed header: packet type 0 is reserved (MQTT \(version), \(version == .five ? "2.1.2" : "2.2.1"))",
                kind: nil)
        }
        let flags = first & 0x0F
        let header = PacketReader(ByteBuffer(), kind: kind, sender: sender, version: version)
        guard kind == .publish || flags == kind.fixedFlags else {
            if let other = ForeignProtocol(beginning: buffer.readableBytesView) {
                throw MalformedPacket(
                    reasonCode: .malformedPacket,
                    message: "in place of an MQTT packet came the bytes of \(other.name)", kind: kind)
            }
            throw header.error(Field("fixed header", "2.1.3", older: "2.2.2"), "has reserved flags set wrongly")
        }
        guard kind.maySend(sender, version) else {
            throw header.error(Field("packet", "2.1.2", older: "2.2.1"), "is not sent by a \(sender)", .protocolError)
        }
        let lengthField = Field("Remaining Length", "2.1.4", older: "2.2.3")
        let remaining: Int
        let headerLength: Int
        switch VariableByteInteger(at: buffer.readerIndex + 1, of: buffer) {
        case .value(let value, let length): (remaining, headerLength) = (value, 1 + length)
        case .incomplete: return nil
        case .tooLong: throw header.error(lengthField, "has more than four bytes")
        case .notShortest: throw header.error(lengthField, "is not in its shortest form")
        }
        guard headerLength + remaining <= maximumPacketSize else {
            let flaw = header.error(
                lengthField, "makes a packet of \(headerLength + remaining) bytes, over our \(maximumPacketSize)",
                .packetTooLarge)
            guard setsContentAside, kind == .publish, version == .threeOneOne else { throw flaw }
            return try passOver(flags, headerLength, remaining, flaw)
        }
        guard buffer.readableBytes >= headerLength + remaining else { return nil }
        buffer.moveReaderIndex(forwardBy: headerLength)
        guard let body = buffer.readSlice(length: remaining) else { return nil }
        isAtStart = false
        var reader = PacketReader(body, kind: kind, sender: sender, version: version)
        let packet = try read(flags, &reader, setsContentAside)
        try reader.end(lengthField)
        return packet
    }

    /// Skips a PUBLISH over the maximum, but keeps what it is acknowledged with: at most 65,539 bytes.
    private mutating func passOver(
        _ flags: UInt8, _ headerLength: Int, _ remaining: Int, _ flaw: MalformedPacket
    ) throws(MalformedPacket) -> Packet? {
        let body = buffer.readerIndex + headerLength
        guard let topicLength = buffer.getInteger(at: body, as: UInt16.self) else { return nil }
        let frameLength = min(2 + Int(topicLength) + 2, remaining)
        guard let bytes = buffer.getSlice(at: body, length: frameLength) else { return nil }
        var reader = PacketReader(bytes, kind: .publish, sender: sender, version: version)
        let frame = try Publish.Frame(flags: flags, from: &reader)
        var publish = frame.publish
        publish.topic = frame.topicForPeople
        publish.flaw = flaw
        return passOver(publish, headerLength + remaining)
    }

    private mutating func passOver(_ publish: Publish, _ bytes: Int) -> Packet? {
        let count = min(bytes, buffer.readableBytes)
        buffer.moveReaderIndex(forwardBy: count)
        passing = count < bytes ? (publish, bytes - count) : nil
        return passing == nil ? .publish(publish) : nil
    }
}

/// Decodes the variable header and payload of one packet.
package typealias PacketReading = (
    _ flags: UInt8, _ reader: inout PacketReader, _ setsContentAside: Bool
) throws(MalformedPacket) -> Packet

extension Packet {
    /// Decodes the variable header and payload of a packet that a server may send.
    package init(
        flags: UInt8, from reader: inout PacketReader, setsContentAside: Bool
    ) throws(MalformedPacket) {
        switch reader.kind {
        case .connack: self = .connack(try Connack(from: &reader))
        case .publish: self = .publish(try Publish(flags: flags, from: &reader, setsContentAside: setsContentAside))
        case .puback: self = .puback(try Acknowledgement(from: &reader))
        case .pubrec: self = .pubrec(try Acknowledgement(from: &reader))
        case .pubrel: self = .pubrel(try Acknowledgement(from: &reader))
        case .pubcomp: self = .pubcomp(try Acknowledgement(from: &reader))
        case .suback: self = .suback(try Suback(from: &reader))
        case .unsuback: self = .unsuback(try Unsuback(from: &reader))
        case .pingresp: self = .pingresp
        case .disconnect: self = .disconnect(try Disconnect(from: &reader))
        case .auth: self = .auth(try Auth(from: &reader))
        case .connect, .subscribe, .unsubscribe, .pingreq:
            preconditionFailure("the fixed header of a packet that a server does not send is refused")
        }
    }
}

extension Packet.Kind {
    /// Whether this side sends packets of this kind (2.1.2; 3.1.1, 2.2.1).
    func maySend(_ sender: Sender, _ version: ProtocolVersion) -> Bool {
        switch self {
        case .disconnect where version == .threeOneOne: sender == .client
        case .auth where version == .threeOneOne: false
        case .connect, .subscribe, .unsubscribe, .pingreq: sender == .client
        case .connack, .suback, .unsuback, .pingresp: sender == .server
        case .publish, .puback, .pubrec, .pubrel, .pubcomp, .disconnect, .auth: true
        }
    }
}
