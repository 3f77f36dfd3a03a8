import Glibc
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import NIOWebSocket
import Support

@testable import Transport

/// A frame as a test writes it.
struct TestFrame: Sendable, Equatable {
    var opcode: WebSocketOpcode
    var text = ""
    var isLast = true
    var code: WebSocketErrorCode?

    var frame: WebSocketFrame {
        var data = ByteBuffer()
        if let code { data.write(webSocketErrorCode: code) }
        data.writeString(text)
        return WebSocketFrame(fin: isLast, opcode: opcode, data: data)
    }
}

/// A WebSocket server on the loopback that sends its frames when it is asked for a WebSocket, and then echoes what comes
/// in binary frames, and answers a Close.
final class WebSocketServer: Sendable {
    let port: Int
    /// The events received: `binary hello`, `pong x`, `close 1000`, `end`.
    let events: AsyncStream<String>
    private let channel: any Channel
    /// As that of a `TestServer`.
    private let place: TakenPort

    init(
        frames: [TestFrame] = [], headers: HTTPHeaders = ["Sec-WebSocket-Protocol": "mqtt"], tls: NIOSSLContext? = nil,
        onRequest: @escaping @Sendable (HTTPRequestHead) -> Void = { _ in }
    ) async throws {
        let (events, continuation) = AsyncStream.makeStream(of: String.self)
        self.events = events
        let place = try TakenPort()
        self.place = place
        channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.socketOption(.init(rawValue: SO_REUSEPORT)), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if let tls { try pipeline.addHandler(NIOSSLServerHandler(context: tls)) }
                    let upgrader = NIOWebSocketServerUpgrader(
                        maxFrameSize: 1 << 24,
                        shouldUpgrade: { channel, head in
                            onRequest(head)
                            return channel.eventLoop.makeSucceededFuture(headers)
                        },
                        upgradePipelineHandler: { channel, _ in
                            channel.eventLoop.makeCompletedFuture {
                                try channel.pipeline.syncOperations.addHandler(FrameHandler(frames, continuation))
                            }
                        })
                    try pipeline.configureHTTPServerPipeline(
                        withServerUpgrade: (upgraders: [upgrader], completionHandler: { _ in }))
                }
            }
            .bind(host: "127.0.0.1", port: place.port).get()
        port = place.port
    }

    func next() async throws -> String {
        for await event in events { return event }
        throw Unexpected(event: "end of server events")
    }
}

private final class FrameHandler: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundOut = WebSocketFrame

    private let frames: [TestFrame]
    private let events: AsyncStream<String>.Continuation

    init(_ frames: [TestFrame], _ events: AsyncStream<String>.Continuation) {
        self.frames = frames
        self.events = events
    }

    func handlerAdded(context: ChannelHandlerContext) {
        for frame in frames { context.writeAndFlush(wrapOutboundOut(frame.frame), promise: nil) }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = unwrapInboundIn(data)
        var bytes = frame.unmaskedData
        let masked = frame.maskKey == nil ? "unmasked " : ""
        switch frame.opcode {
        case .binary:
            events.yield(masked + "binary " + String(buffer: bytes))
            let echo = WebSocketFrame(fin: true, opcode: .binary, data: bytes)
            context.writeAndFlush(wrapOutboundOut(echo), promise: nil)
        case .connectionClose:
            let code = bytes.readWebSocketErrorCode()
            events.yield(masked + "close \(code.map { "\(UInt16(webSocketErrorCode: $0))" } ?? "")")
            if !frames.contains(where: { $0.opcode == .connectionClose }) {
                let answer = WebSocketFrame(fin: true, opcode: .connectionClose, data: frame.unmaskedData)
                context.writeAndFlush(wrapOutboundOut(answer), promise: nil)
            }
        case .pong:
            events.yield(masked + "pong " + String(buffer: bytes))
        default:
            events.yield(masked + "\(frame.opcode)")
        }
    }

    func channelInactive(context: ChannelHandlerContext) { events.yield("end") }
    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
