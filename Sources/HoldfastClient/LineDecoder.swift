internal import NIOCore

/// Cuts the daemon's bytes into lines, without their newlines.
struct LineDecoder: ByteToMessageDecoder {
    typealias InboundOut = ByteBuffer

    /// A line was longer than the limit.
    struct LineTooLong: Error {}

    let maximumLength: Int
    /// Bytes after the reader index that are known to hold no newline.
    private var scanned = 0

    init(maximumLength: Int) {
        self.maximumLength = maximumLength
    }

    mutating func decode(context: ChannelHandlerContext, buffer: inout ByteBuffer) throws -> DecodingState {
        let rest = buffer.readableBytesView.dropFirst(scanned)
        guard let newline = rest.firstIndex(of: UInt8(ascii: "\n")) else {
            scanned = buffer.readableBytes
            guard scanned <= maximumLength else { throw LineTooLong() }
            return .needMoreData
        }
        scanned = 0
        let length = newline - buffer.readerIndex
        guard length <= maximumLength else { throw LineTooLong() }
        guard let line = buffer.readSlice(length: length) else {
            preconditionFailure("the newline was found behind the line, so the line is readable")
        }
        buffer.moveReaderIndex(forwardBy: 1)
        context.fireChannelRead(wrapInboundOut(line))
        return .continue
    }

    /// Discards a line that has no newline when the connection ends: it was cut off.
    mutating func decodeLast(
        context: ChannelHandlerContext, buffer: inout ByteBuffer, seenEOF: Bool
    ) throws -> DecodingState {
        while case .continue = try decode(context: context, buffer: &buffer) {}
        return .needMoreData
    }
}

/// Reports to the client what happens on one connection. Runs on the client's event loop, which is the client's
/// executor.
final class DaemonConnectionHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    /// Weak: a client that is no longer referenced closes its connection.
    private weak var client: HoldfastClient?
    private let generation: Int

    init(client: HoldfastClient, generation: Int) {
        self.client = client
        self.generation = generation
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let line = unwrapInboundIn(data)
        let generation = generation
        client?.assumeIsolated { $0.received(line, generation: generation) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        let reason: ClientError =
            error is LineDecoder.LineTooLong ? .invalidAnswer("the line is too long") : .connectionLost
        let generation = generation
        client?.assumeIsolated { $0.connectionEnded(reason, generation: generation) }
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        let generation = generation
        client?.assumeIsolated { $0.connectionEnded(.connectionLost, generation: generation) }
        context.fireChannelInactive()
    }
}
