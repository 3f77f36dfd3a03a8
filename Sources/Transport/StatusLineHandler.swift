import NIOCore
import NIOHTTP1

/// Keeps the status of an HTTP answer (RFC 9112, 4), ahead of the HTTP parser, and then removes itself. The parser rejects
/// an answer for one wrong character in a header, but what it says is still worth telling.
final class StatusLineHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer

    /// As much of the line as is read: the version and the code.
    private static let length = "HTTP/1.1 200".utf8.count
    private var beginning: [UInt8] = []

    /// `nil` if the answer does not begin as one of HTTP does.
    var status: HTTPResponseStatus? {
        guard beginning.count == Self.length, beginning.starts(with: "HTTP/".utf8) else { return nil }
        let words = beginning.split(separator: UInt8(ascii: " "))
        guard words.count == 2, let code = Int(String(decoding: words[1], as: UTF8.self)), (100...999).contains(code)
        else { return nil }
        return HTTPResponseStatus(statusCode: code)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        beginning += unwrapInboundIn(data).readableBytesView.prefix(Self.length - beginning.count)
        let isComplete = beginning.count == Self.length
        context.fireChannelRead(data)
        if isComplete { context.pipeline.syncOperations.removeHandler(self, promise: nil) }
    }
}
