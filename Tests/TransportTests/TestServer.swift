import Glibc
import NIOCore
import NIOPosix
import NIOSSL
import Support

/// A server on the loopback that does one thing with every connection.
final class TestServer: Sendable {
    enum Behaviour: Sendable {
        /// Sends back what it receives.
        case echo
        /// Sends this many bytes when a connection opens, and then echoes.
        case flood(Int)
        /// Never sends anything.
        case silent
        /// Closes cleanly at the first bytes.
        case close
        /// Resets at the first bytes.
        case reset
        /// Closes at the first bytes, without the goodbye of TLS.
        case closeBeneathTLS
        /// Closes cleanly at once.
        case hangUp
        /// Sends this many bytes at the first bytes, and then closes cleanly.
        case lastWords(Int)
    }

    enum Event: Sendable, Equatable {
        case accepted
        case received(String)
        case closed
    }

    let port: Int
    /// The events of its connections.
    let events: AsyncStream<Event>
    private let channel: any Channel
    /// No other test's server gets the port in the other family: both are dialed for `localhost`.
    private let place: TakenPort

    /// - Parameter other: a server at another host, whose port this one gets, too.
    init(
        _ behaviour: Behaviour, host: String = "127.0.0.1", beside other: TestServer? = nil, tls: NIOSSLContext? = nil
    ) async throws {
        let (events, continuation) = AsyncStream.makeStream(of: Event.self)
        self.events = events
        let place = try other?.place ?? TakenPort()
        self.place = place
        channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .serverChannelOption(.socketOption(.init(rawValue: SO_REUSEPORT)), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if let tls { try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: tls)) }
                    try channel.pipeline.syncOperations.addHandler(ServerHandler(behaviour, continuation))
                }
            }
            .bind(host: host, port: place.port).get()
        port = place.port
    }

    /// The next events, up to the wanted one.
    func events(upTo wanted: Event) async throws -> [Event] {
        var seen: [Event] = []
        for await event in events {
            seen.append(event)
            if event == wanted { return seen }
        }
        throw Unexpected(event: "end of server events")
    }

    func waitForRequest() async throws {
        for await event in events { if case .received = event { return } }
        throw Unexpected(event: "end of server events")
    }

    func waitFor(_ wanted: Event) async throws {
        for await event in events where event == wanted { return }
        throw Unexpected(event: "end of server events")
    }
}

private final class ServerHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private let behaviour: TestServer.Behaviour
    private let events: AsyncStream<TestServer.Event>.Continuation

    init(_ behaviour: TestServer.Behaviour, _ events: AsyncStream<TestServer.Event>.Continuation) {
        self.behaviour = behaviour
        self.events = events
    }

    func channelActive(context: ChannelHandlerContext) {
        events.yield(.accepted)
        switch behaviour {
        case .flood(let count):
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(repeating: 0x61, count: count)), promise: nil)
        case .hangUp:
            context.close(promise: nil)
        case .echo, .silent, .close, .closeBeneathTLS, .reset, .lastWords:
            break
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data)
        events.yield(.received(String(buffer: bytes)))
        switch behaviour {
        case .echo, .flood: context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
        case .silent, .hangUp: break
        case .close: context.close(promise: nil)
        case .lastWords(let count):
            let (channel, flushed) = (context.channel, context.eventLoop.makePromise(of: Void.self))
            flushed.futureResult.whenComplete { _ in channel.close(promise: nil) }
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(repeating: 0x61, count: count)), promise: flushed)
        case .closeBeneathTLS:
            try? context.pipeline.syncOperations.context(handlerType: NIOSSLServerHandler.self).close(promise: nil)
        case .reset:
            // Closing with unread or lingering data of zero seconds is a TCP reset.
            let options = context.channel as? any SocketOptionProvider
            _ = options?.setSoLinger(linger(l_onoff: 1, l_linger: 0))
            context.close(promise: nil)
        }
    }

    func channelInactive(context: ChannelHandlerContext) { events.yield(.closed) }
    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

/// A listening socket whose queue is full: the kernel drops further SYNs, as a black hole does.
final class BlackHole {
    let port: Int
    private var sockets: [CInt] = []

    init() throws {
        let listener = Glibc.socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        sockets.append(listener)
        let wildcard = try SocketAddress(ipAddress: "127.0.0.1", port: 0)
        guard wildcard.withSockAddr({ bind(listener, $0, socklen_t($1)) }) == 0, listen(listener, 0) == 0,
            let address = address(of: listener, getsockname), let port = address.port
        else {
            throw Unexpected(event: "cannot listen: \(errno)")
        }
        self.port = port
        for _ in 0..<4 {
            let client = Glibc.socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0)
            sockets.append(client)
            _ = address.withSockAddr { connect(client, $0, socklen_t($1)) }
        }
    }

    deinit { for socket in sockets { Glibc.close(socket) } }
}

/// The IPv4 address that a socket is bound or connected to (getsockname, getpeername); nil where there is none.
func address(
    of descriptor: CInt, _ which: (CInt, UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> CInt
) -> SocketAddress? {
    withUnsafeTemporaryAllocation(byteCount: MemoryLayout<sockaddr_storage>.size, alignment: 8) { raw in
        var length = socklen_t(raw.count)
        guard let start = raw.baseAddress,
            which(descriptor, start.assumingMemoryBound(to: sockaddr.self), &length) == 0,
            start.loadUnaligned(as: sa_family_t.self) == sa_family_t(AF_INET)
        else { return nil }
        return SocketAddress(start.loadUnaligned(as: sockaddr_in.self))
    }
}
