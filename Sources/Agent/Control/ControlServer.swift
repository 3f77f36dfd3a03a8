import ControlAPI
import Glibc
import Logging
import NIOCore
import NIOPosix
import NetworkPath
import SessionCore
import Systemd
import Transport

/// Accepts connections on the control socket, and gives them their turns.
actor ControlServer {
    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let daemon: Daemon
    let logger: Logger
    private var stalledPacer = JournalPacer()
    var listener: (any Channel)?
    /// The other sockets that systemd passed.
    private var furtherListeners: [any Channel] = []
    /// The listening sockets between `listen` and `prepare`, the one at `path` first.
    private var descriptors: [CInt] = []
    var file: SocketFile?
    private var connections: [ConnectionID: ControlConnection] = [:]
    private var lastConnection = 0
    private var scheduler: ControlScheduler
    /// Set while the socket is served.
    private var poll: LoopPoll?
    /// Set from when a pass is planned until the loop has polled after it.
    private var isPassPlanned = false
    private var timer: (deadline: Instant, scheduled: Scheduled<Void>)?
    /// Set from when the timer is to be set again until it is.
    private var isTimerPlanned = false

    init(daemon: Daemon, limits: ControlScheduler.Limits = .init()) {
        self.daemon = daemon
        scheduler = ControlScheduler(limits: limits)
        logger = daemon.logger
        eventLoop = daemon.eventLoop
    }

    /// Takes the sockets that systemd passed, or creates one at `path`. A client that connects waits until `serve`.
    func listen(path: String) throws(ControlSocket.Failure) {
        let activated = SocketActivation.descriptors()
        if !activated.isEmpty {
            take(activated, of: path)
        } else {
            let group = ControlSocket.group
            descriptors = [try ControlSocket.listen(at: path, group: group)]
            file = SocketFile(path: path, group: group, identity: ControlSocket.FileIdentity(path), isSystemds: false)
        }
    }

    /// Takes the sockets that systemd passed: one, and more if a drop-in adds a ListenStream=. None may be at `path`.
    private func take(_ activated: [CInt], of path: String) {
        let index = activated.firstIndex { ControlSocket.path(of: $0) == path }
        descriptors = [activated[index ?? 0]]
        for other in activated where other != descriptors[0] {
            if ControlSocket.isServable(other) {
                descriptors.append(other)
            } else {
                close(other)
                logger.warning("holdfast.socket has a socket that is not served: only ListenStream= with a path is")
            }
        }
        guard index != nil else { return }
        file = SocketFile(
            path: path, group: ControlSocket.group, identity: ControlSocket.FileIdentity(path), isSystemds: true)
    }

    /// The path of the socket that is served; `nil` before it is.
    var path: String? { listener?.localAddress?.pathname }

    /// Takes the descriptors that serving needs, before the sessions take the rest. Clients still wait.
    func prepare() async throws {
        guard let first = descriptors.first else { preconditionFailure("the socket is made before it is served") }
        let others = descriptors.dropFirst()
        descriptors = []
        await daemon.setControl(self)
        poll = try await LoopPoll.open(on: eventLoop) { [weak self] in self?.assumeIsolated { $0.polled() } }
        listener = try await bootstrap(autoRead: false).withBoundSocket(first).get()
        for other in others {
            furtherListeners.append(try await bootstrap(autoRead: false).withBoundSocket(other).get())
        }
    }

    func bootstrap(autoRead: Bool) -> ServerBootstrap {
        ServerBootstrap(group: eventLoop)
            .serverChannelOption(.autoRead, value: autoRead)
            .serverChannelInitializer { [logger] channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(
                        AcceptErrorHandler(of: "the control socket", logger))
                }
            }
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            // One read at a time, so that a peer that has sent enough is not read any further.
            .childChannelOption(.maxMessagesPerRead, value: 1)
            .childChannelInitializer { [weak self] channel in
                guard let self else { return channel.eventLoop.makeFailedFuture(ChannelError.ioOnClosedChannel) }
                return self.assumeIsolated { $0.accept(channel) }
            }
    }

    /// Serves the clients that have connected since `listen`, and those that will connect.
    func serve() async throws {
        guard let listener else { preconditionFailure("what serving needs is taken before the socket is served") }
        for listener in [listener] + furtherListeners {
            try await listener.setOption(.autoRead, value: true).get()
        }
        keepSocket()
    }

    private func accept(_ channel: any Channel) -> EventLoopFuture<Void> {
        let peer = try? channel.pipeline.syncOperations.withUnsafeTransportIfAvailable(of: NIOBSDSocket.Handle.self) {
            Peer(descriptor: $0)
        }
        return accept(channel, from: peer ?? nil)
    }

    /// Serves a peer, or tells it why it is refused.
    ///
    /// Nothing is read from the peer before it is known what the names in the configuration stand for.
    ///
    /// - Parameter roles: what the peer may do; `nil`: what the configuration says.
    func accept(_ channel: any Channel, from peer: Peer?, roles: Set<Role>? = nil) -> EventLoopFuture<Void> {
        lastConnection += 1
        let id = ConnectionID(rawValue: lastConnection)
        // It counts from now on, because the name service may not answer.
        let refusal = refusal(of: peer, id)
        if refusal == nil { forget(id, with: channel) }
        guard let peer, refusal == nil, !daemon.access.isMaster(peer) else {
            return channel.eventLoop.makeCompletedFuture { try serve(channel, id, from: peer, roles, refusal) }
        }
        return channel.eventLoop.makeFutureWithTask { [self] in
            await daemon.refreshAccounts()
            try await serve(channel, id, from: peer, roles, nil)
        }
    }

    /// Gives turns to a connection that the scheduler has accepted, or refuses it.
    private func serve(
        _ channel: any Channel, _ id: ConnectionID, from peer: Peer?, _ roles: Set<Role>?, _ refusal: RPCError?
    ) throws {
        let roles = roles ?? peer.map { daemon.access.roles(of: $0) } ?? []
        let connection = ControlConnection(
            id: id, channel: channel, peer: peer, roles: roles, daemon: daemon, server: self, logger: logger)
        try channel.pipeline.syncOperations.addHandler(ControlLineHandler(connection: connection, refusal: refusal))
        if refusal == nil { connections[id] = connection }
    }

    private func forget(_ id: ConnectionID, with channel: any Channel) {
        channel.closeFuture.whenComplete { [weak self] _ in
            self?.assumeIsolated { server in
                server.connections[id] = nil
                server.schedule { scheduler, _ in scheduler.disconnect(id) }
            }
        }
    }

    private func refusal(of peer: Peer?, _ id: ConnectionID) -> RPCError? {
        guard let peer else { return .internalError("the kernel does not say who is connecting") }
        let hint = "end programs that keep connections open; sudo holdfastctl clients shows which do"
        switch scheduler.connect(id, of: peer.uid) {
        case nil: return nil
        case .tooManyConnections(let count)?:
            return .tooManyRequests("\(count) connections are open, and no more are accepted", hint: hint)
        case .tooManyOfUser(let count)?:
            return .tooManyRequests("you have \(count) connections open, and no more are accepted", hint: hint)
        }
    }

    /// The memory that the connections hold.
    var memory: MemoryShares<ConnectionID, UInt32> { scheduler.memory }
    var runningReads: Int { scheduler.runningReads }

    /// What `daemon.clients` says.
    var clients: [ConnectedClient] {
        connections.sorted { $0.key < $1.key }.compactMap { id, connection in
            let unread = scheduler.unread(by: id)
            return connection.assumeIsolated { $0.described(unread: unread) }
        }
    }

    /// The configuration was read again: ends the connections of programs that may do less than before.
    func accessChanged() {
        // A connection may end at once, and is forgotten then.
        let open = Array(connections.values)
        let count = open.count { connection in connection.assumeIsolated { $0.accessChanged() } }
        guard count > 0 else { return }
        logger.notice(
            "closed \(count) \(count == 1 ? "connection" : "connections") to the control socket: the configuration gives less to these programs than before"
        )
    }

    var isTurnOver: Bool { scheduler.isTurnOver }

    // MARK: Turns

    /// Changes the scheduler's state, and plans a pass if that gives a connection a turn.
    func schedule<Value: Sendable>(_ change: (inout ControlScheduler, Instant) -> Value) -> Value {
        let result = change(&scheduler, BootClock.now())
        planPass()
        return result
    }

    private func planPass() {
        guard !isPassPlanned, scheduler.hasTurns else { return planTimer() }
        isPassPlanned = true
        eventLoop.execute { self.assumeIsolated { $0.pass() } }
    }

    /// Gives some turns. Calls keep the loop from polling for what other peers have sent, so the next turns come only
    /// after it has polled.
    private func pass() {
        scheduler.beginPass()
        while let id = scheduler.nextTurn() { connections[id]?.assumeIsolated { $0.takeTurn() } }
        while let (id, _) = scheduler.nextRead() { connections[id]?.assumeIsolated { $0.startRead() } }
        for id in scheduler.takeWoken() { connections[id]?.assumeIsolated { $0.resumeConsumers() } }
        poll?.ask()
    }

    private func polled() {
        isPassPlanned = false
        planPass()
    }

    /// Sets the timer once the present task of the loop has ended: in it, a message may be delivered to hundreds of
    /// subscriptions, and each time, the deadlines of all connections may have changed.
    private func planTimer() {
        guard !isTimerPlanned, timer != nil || scheduler.isMemoryWanted else { return }
        isTimerPlanned = true
        eventLoop.execute {
            self.assumeIsolated { server in
                server.isTimerPlanned = false
                server.adjustTimer()
            }
        }
    }

    /// Sets the timer that closes a connection for holding memory that others wait for.
    private func adjustTimer() {
        let deadline = scheduler.nextDeadline
        guard deadline != timer?.deadline else { return }
        timer?.scheduled.cancel()
        timer = deadline.map { deadline in
            let delay = max(0, BootClock.now().duration(to: deadline).nanoseconds)
            return (
                deadline, eventLoop.scheduleTask(in: .nanoseconds(delay)) { self.assumeIsolated { $0.endStalled() } }
            )
        }
    }

    private func endStalled() {
        timer = nil
        let now = BootClock.now()
        if let id = scheduler.stalled(at: now), let connection = connections[id] {
            tellStalled(connection.peer, at: now)
            connection.assumeIsolated { $0.close() }
        }
        adjustTimer()
    }

    private func tellStalled(_ peer: Peer?, at now: Instant) {
        switch stalledPacer.take(at: now) {
        case .write:
            let (pid, uid) = (peer?.pid ?? 0, peer?.uid ?? .max)
            logger.notice(
                "closed a stalled connection to the control socket: others needed its memory (uid \(uid), pid \(pid))")
        case .count(let until):
            eventLoop.scheduleTask(in: .nanoseconds(now.duration(to: until).nanoseconds)) {
                self.assumeIsolated { server in
                    let count = server.stalledPacer.summary()
                    server.logger.notice(
                        "closed \(count) more stalled \(count == 1 ? "connection" : "connections") to the control socket"
                    )
                }
            }
        case .countMore:
            break
        }
    }

    /// Accepts no more connections.
    func stopListening() async {
        if let path = file?.path, file?.isSystemds == false { ControlSocket.remove(path, madeAs: file?.identity) }
        file = nil
        for listener in [listener].compactMap(\.self) + furtherListeners { try? await listener.close() }
        (listener, furtherListeners) = (nil, [])
    }

    /// Closes all connections; answers are flushed first.
    func closeConnections() async {
        for connection in connections.values { await connection.close() }
        poll?.close()
        poll = nil
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
