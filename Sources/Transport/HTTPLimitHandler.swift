public import NIOCore
import NIOHTTP1

/// Limits how much goes to an HTTP parser, ahead of it. The parser's own limits do not count the white space before the
/// value of a header, and it keeps that without an end.
///
/// Beyond the limit, it reports `HTTPParserError.headerOverflow` once and discards everything.
public final class HTTPLimitHandler: ChannelInboundHandler, RemovableChannelHandler {
    public typealias InboundIn = ByteBuffer

    /// Bytes that may arrive, as many as other clients allow for all headers together, or more.
    static let limit = 64 << 10
    private var count = 0

    public init() {}

    public func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard count <= Self.limit else { return }
        count += unwrapInboundIn(data).readableBytes
        if count <= Self.limit {
            context.fireChannelRead(data)
        } else {
            context.fireErrorCaught(HTTPParserError.headerOverflow)
        }
    }
}
