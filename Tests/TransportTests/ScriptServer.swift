import Glibc
import NIOCore
import NIOPosix
import NIOSSL
import Support

@testable import Transport

/// A server that answers what it reads, whatever it is, with the replies of its script; and then echoes, behind TLS where
/// it has some. Good for a proxy that is its own target.
final class ScriptServer: Sendable {
    let port: Int
    /// The bytes read before each reply.
    let requests: AsyncStream<ByteBuffer>
    private let channel: any Channel
    /// As that of a `TestServer`.
    private let place: TakenPort

    /// - Parameter replies: the empty one closes the connection.
    init(_ replies: [[UInt8]], host: String = "127.0.0.1", tls: NIOSSLContext? = nil) async throws {
        let (requests, continuation) = AsyncStream.makeStream(of: ByteBuffer.self)
        self.requests = requests
        let place = try TakenPort()
        self.place = place
        channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.socketOption(.init(rawValue: SO_REUSEPORT)), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(ScriptHandler(replies, tls, continuation))
                }
            }
            .bind(host: host, port: place.port).get()
        port = place.port
    }

    convenience init(text: String..., tls: NIOSSLContext? = nil) async throws {
        try await self.init(text.map { Array($0.utf8) }, tls: tls)
    }

    /// The next bytes read, as text.
    func request() async throws -> String {
        for await request in requests { return String(buffer: request) }
        throw Unexpected(event: "end of requests")
    }
}

private final class ScriptHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private var replies: [[UInt8]]
    private let tls: NIOSSLContext?
    private let requests: AsyncStream<ByteBuffer>.Continuation

    init(_ replies: [[UInt8]], _ tls: NIOSSLContext?, _ requests: AsyncStream<ByteBuffer>.Continuation) {
        self.replies = replies
        self.tls = tls
        self.requests = requests
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data)
        guard !replies.isEmpty else {
            context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
            return
        }
        requests.yield(bytes)
        let reply = replies.removeFirst()
        if reply.isEmpty {
            // Shut down, not only closed: a program that another test starts at this moment may have inherited the socket.
            context.close(mode: .output, promise: nil)
        } else {
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: reply)), promise: nil)
            if replies.isEmpty, let tls {
                let secure = NIOSSLServerHandler(context: tls)
                try? context.pipeline.syncOperations.addHandler(secure, position: .first)
            }
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
