import ControlAPI
import Logging
import NIOCore
import NIOPosix
import Systemd

/// Accepts connections on the control socket and keeps count of them.
actor ControlServer {
    /// How many connections are served at once, and how many of those for one user other than root.
    static let maximumConnections = 512
    static let maximumConnectionsPerUser = 128

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let daemon: Daemon
    private let logger: Logger
    private var listener: (any Channel)?
    /// The listening socket between `listen` and `serve`.
    private var descriptor: CInt?
    private var ownPath: String?
    private var connections: [ObjectIdentifier: (connection: ControlConnection, uid: UInt32?)] = [:]

    init(daemon: Daemon) {
        self.daemon = daemon
        logger = daemon.logger
        eventLoop = daemon.eventLoop
    }

    /// Takes the socket that systemd handed over, or makes one of its own at `path`. Who connects waits until `serve`.
    func listen(path: String) throws(ControlSocket.Failure) {
        if let activated = SocketActivation.listeners().first {
            descriptor = activated.descriptor
        } else {
            descriptor = try ControlSocket.listen(at: path)
            ownPath = path
        }
    }

    /// Of the socket that is served, whoever made it; `nil` before it is.
    var path: String? { listener?.localAddress?.pathname }

    /// Serves everybody who has connected since `listen`, and who will.
    func serve() async throws {
        guard let descriptor else { preconditionFailure("the socket is made before it is served") }
        self.descriptor = nil
        listener = try await ServerBootstrap(group: eventLoop)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelOption(.writeBufferWaterMark, value: ControlConnection.waterMark)
            .childChannelInitializer { [weak self] channel in
                channel.eventLoop.makeCompletedFuture {
                    guard let self else { throw ChannelError.ioOnClosedChannel }
                    try self.assumeIsolated { try $0.accept(channel) }
                }
            }
            .withBoundSocket(descriptor)
            .get()
    }

    private func accept(_ channel: any Channel) throws {
        let peer =
            try channel.pipeline.syncOperations.withUnsafeTransportIfAvailable(of: NIOBSDSocket.Handle.self) {
                Peer(descriptor: $0)
            } ?? nil
        let refusal = refusal(of: peer)
        let connection = ControlConnection(
            channel: channel, peer: peer, roles: peer.map { daemon.access.roles(of: $0) } ?? [], daemon: daemon,
            logger: logger)
        try channel.pipeline.syncOperations.addHandler(ControlLineHandler(connection: connection, refusal: refusal))
        guard refusal == nil else { return }
        let id = ObjectIdentifier(connection)
        connections[id] = (connection, peer?.uid)
        channel.closeFuture.whenComplete { [weak self] _ in
            self?.assumeIsolated { _ = $0.connections.removeValue(forKey: id) }
        }
    }

    private func refusal(of peer: Peer?) -> RPCError? {
        guard let peer else { return .internalError("the kernel does not tell who connects") }
        if connections.count >= Self.maximumConnections {
            return .tooManyRequests("\(connections.count) connections are open, and no more are accepted")
        }
        let own = connections.values.count { $0.uid == peer.uid }
        if peer.uid != 0, own >= Self.maximumConnectionsPerUser {
            return .tooManyRequests("you have \(own) connections open, and no more are accepted")
        }
        return nil
    }

    /// Accepts no more connections.
    func stopListening() async {
        try? await listener?.close()
        listener = nil
        if let ownPath { ControlSocket.remove(ownPath) }
    }

    /// Closes the connections that there are; what was answered is flushed first.
    func closeConnections() async {
        for (connection, _) in connections.values { await connection.close() }
    }
}

/// Hands the lines of one connection to its actor, which runs on the same loop.
private final class ControlLineHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let connection: ControlConnection
    private let refusal: RPCError?

    init(connection: ControlConnection, refusal: RPCError?) {
        self.connection = connection
        self.refusal = refusal
    }

    func channelActive(context: ChannelHandlerContext) {
        if let refusal { connection.assumeIsolated { $0.refuse(refusal) } }
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data)
        connection.assumeIsolated { $0.received(bytes) }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        connection.assumeIsolated { $0.tellDropped() }
        context.fireChannelWritabilityChanged()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case ChannelEvent.inputClosed = event { connection.assumeIsolated { $0.inputClosed() } }
        context.fireUserInboundEventTriggered(event)
    }

    func channelInactive(context: ChannelHandlerContext) {
        connection.assumeIsolated { $0.closed() }
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}
