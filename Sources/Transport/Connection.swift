import Glibc
public import NIOCore
import NIOHTTP1
public import NIOPosix
import NIOSSL
public import Vocabulary

/// One attempt's transport, and then the connection: resolve, dial, tunnel through a proxy, secure, open a WebSocket; then
/// bytes in, bytes out.
///
/// It knows nothing of what the bytes mean. It belongs to the event loop that it was opened on: every method is called
/// there, and every event is delivered there: those of ``open(_:options:eventLoop:threadPool:contexts:onEvent:)`` itself after
/// it has returned, and all others synchronously. An event may be answered with ``send(_:flushed:)`` or ``close(_:)`` right
/// away. It keeps itself alive until `closed` was delivered or it was aborted.
///
///     open ─▶ resolving ─▶ dialing (─▶ reached) (─▶ tunneling) (─▶ securing) (─▶ upgrading) ─▶ open ─▶ closing ─▶ finished
///                 └───────────┴────────────┴────────────┴─────────────┴──────────────┴──────────┴────────────────────▲
///
/// The TLS files are read on the thread pool while the name is resolved and TCP is dialed, so that they delay nothing.
public final class Connection {
    enum Phase {
        case resolving
        case dialing
        /// The first hop answered; waiting for `proceed`.
        case reached
        /// The proxy is asked for a connection to the server.
        case tunneling
        case securing
        /// The server is asked for a WebSocket.
        case upgrading
        case open
        /// Closing by us: nothing is reported but the end.
        case closing
        case finished
    }

    /// Where the connection goes.
    public let endpoint: Endpoint
    let options: Options
    let eventLoop: any EventLoop
    let contexts: TLSContextCache
    let lookups: NameLookups
    private var onEvent: ((ConnectionEvent) -> Void)?
    /// Events from before `open` has returned, delivered afterwards; `nil` from then on.
    private var heldBack: [ConnectionEvent]? = []

    var phase = Phase.resolving
    var stop: Stop?
    private var timer: Scheduled<Void>?
    /// What is left to be dialed.
    var addresses: [SocketAddress] = []
    /// The failed handshakes with addresses that were dialed before.
    var earlierFailures: [TransportFailure] = []
    var race: AddressRace?
    var tls: LoadedTLS?

    var channel: (any Channel)?
    var handler: ConnectionHandler?
    var tlsHandler: NIOSSLClientHandler?
    /// The certificate of the server's chain that was turned down, the one nearest to the authority if there are several.
    var turnedDown: NIOSSLCertificate?
    var webSocket: WebSocketHandler?
    var peer: SocketAddress?
    /// Whether the proxy has connected us to the server.
    var hasTunnel = false
    private var unflushed = 0
    private var isReading = true
    /// The first failed write. The channel's end follows and reports it.
    private(set) var writeFailure: TransportFailure?

    private init(
        endpoint: Endpoint, options: Options, eventLoop: any EventLoop, contexts: TLSContextCache,
        lookups: NameLookups, onEvent: @escaping (ConnectionEvent) -> Void
    ) {
        self.endpoint = endpoint
        self.options = options
        self.stop = options.stop
        self.eventLoop = eventLoop
        self.contexts = contexts
        self.lookups = lookups
        self.onEvent = onEvent
    }

    /// Begins to connect: where nothing has to be resolved, the first SYN leaves at once. The first event comes after this
    /// has returned.
    ///
    /// - Parameters:
    ///   - eventLoop: the loop that this is called on and the connection belongs to.
    ///   - threadPool: a running pool for reading the TLS files.
    ///   - lookups: for the endpoint's name; one per process.
    ///   - contexts: keeps the TLS files between attempts; one per session.
    public static func open(
        _ endpoint: Endpoint,
        options: Options,
        eventLoop: any EventLoop,
        threadPool: NIOThreadPool,
        lookups: NameLookups,
        contexts: TLSContextCache = TLSContextCache(),
        onEvent: @escaping (ConnectionEvent) -> Void
    ) -> Connection {
        eventLoop.preconditionInEventLoop()
        let connection = Connection(
            endpoint: endpoint, options: options, eventLoop: eventLoop, contexts: contexts,
            lookups: lookups, onEvent: onEvent)
        eventLoop.assumeIsolated().execute { connection.tellHeldBack() }
        connection.start(threadPool)
        return connection
    }

    /// Goes on where the connection has stopped, with TLS or at once with `opened`. Ignored unless it has.
    ///
    /// - Parameter onEvent: takes every event from now on.
    ///
    /// - Returns: whether it continues; `false`, and no event, when the connection is over already.
    public func proceed(onEvent: @escaping (ConnectionEvent) -> Void) -> Bool {
        eventLoop.preconditionInEventLoop()
        guard phase == .reached, let peer else { return false }
        self.onEvent = onEvent
        eventLoop.assumeIsolated().execute {
            if self.phase == .reached { self.goOn(peer) }
        }
        return true
    }

    /// Whether more should be written now; false unless open. See ``ConnectionEvent/writabilityChanged(_:)``.
    public var isWritable: Bool { phase == .open && channel?.isWritable == true }

    /// Writes bytes and flushes them. Ignored unless the connection is open.
    ///
    /// - Parameter flushed: called on the loop when the bytes were handed to the kernel, and never when that failed or
    ///   the connection was aborted before.
    public func send(_ buffer: ByteBuffer, flushed: (() -> Void)? = nil) {
        eventLoop.preconditionInEventLoop()
        guard phase == .open, let channel else { return }
        unflushed += 1
        let promise = eventLoop.makePromise(of: Void.self)
        promise.futureResult.assumeIsolated().whenComplete { result in
            self.written(result, flushed)
        }
        channel.writeAndFlush(buffer, promise: promise)
    }

    /// What the kernel measured on the connection's own segments; `nil` unless it is open.
    public func measure() -> TCPMeasurement? {
        eventLoop.preconditionInEventLoop()
        guard phase == .open else { return nil }
        return withSocket { TCPMeasurement(descriptor: $0) } ?? nil
    }

    /// The channel's socket, if it has one that may be touched.
    @discardableResult
    func withSocket<Result>(_ body: (CInt) -> Result) -> Result? {
        let result = try? channel?.pipeline.syncOperations.withUnsafeTransportIfAvailable(
            of: NIOBSDSocket.Handle.self
        ) { body($0) }
        return result ?? nil
    }

    /// Reads nothing more, so that the peer is held back. What was read already may still be delivered, up to 64 KiB.
    /// While paused, the peer's close may go unnoticed.
    public func pauseReading() { read(false) }

    /// Ends ``pauseReading()``.
    public func resumeReading() { read(true) }

    /// Closes by our own will. Before the connection is open, both modes are `.abort`.
    ///
    /// After `.abort` has returned, no event is delivered, not even `closed`. After `.afterFlush`, only
    /// `closed(.closedLocally)` is, within ``Options/closeTimeout``. Closing again is allowed: `.abort` shortens an
    /// `.afterFlush`.
    public func close(_ mode: CloseMode) {
        eventLoop.preconditionInEventLoop()
        switch (phase, mode) {
        case (.finished, _), (.closing, .afterFlush):
            return
        case (.open, .afterFlush):
            phase = .closing
            startTimer(options.closeTimeout) { $0.finish(.closedLocally) }
            try? channel?.syncOptions?.setOption(.autoRead, value: true)
            sayGoodbyeWhenFlushed()
        case (_, .abort), (.resolving, _), (.dialing, _), (.reached, _), (.tunneling, _), (.securing, _),
            (.upgrading, _):
            onEvent = nil
            finish(.closedLocally)
        }
    }
}

@available(*, unavailable)
extension Connection: Sendable {}

// MARK: - Open

extension Connection {
    func opened(tlsVersion: String?) {
        guard let channel, let peer, let local = channel.localAddress else {
            fail(brokenAtOnce)
            return
        }
        phase = .open
        stopTimer()
        emit(.opened(Opened(peer: peer, local: local, tlsVersion: tlsVersion)))
        guard phase == .open else { return }
        read(isReading)
        limitRetransmissionTimeout()
    }

    private func read(_ isReading: Bool) {
        eventLoop.preconditionInEventLoop()
        self.isReading = isReading
        guard phase == .open else { return }
        // Fails only on a closed channel, whose end is reported separately.
        try? channel?.syncOptions?.setOption(.autoRead, value: isReading)
    }

    private func written(_ result: Result<Void, any Error>, _ flushed: (() -> Void)?) {
        unflushed -= 1
        guard phase == .open || phase == .closing else { return }
        switch result {
        case .success:
            flushed?()
        case .failure(let error):
            // The channel ends now, and says no more than that. A clean close by the peer shows as a closed channel.
            if error is IOError, writeFailure == nil { writeFailure = failure(error) }
        }
        if phase == .closing { sayGoodbyeWhenFlushed() }
    }

    private func sayGoodbyeWhenFlushed() {
        guard unflushed == 0, let channel else { return }
        // TLS sends its close_notify and waits for the peer's; plain TCP sends FIN and keeps reading until the peer's.
        // A plain close() with unread bytes would become a reset, and could take our last bytes with it.
        channel.close(mode: tlsHandler == nil ? .output : .all, promise: nil)
    }

    func channelReceived(_ bytes: ByteBuffer) {
        if phase == .open { emit(.received(bytes)) }
    }

    func channelWritabilityChanged(_ isWritable: Bool) {
        if phase == .open { emit(.writabilityChanged(isWritable)) }
    }

    func channelFailed(_ error: any Error) {
        switch phase {
        case .resolving, .dialing, .finished:
            return
        case .reached:
            fail(failure(error))
        // What comes behind the proxy's answer, and is not the server.
        case .tunneling where error is HTTPParserError:
            proxyFailed("what it sends is not HTTP, or comes before the server was asked")
        case .tunneling, .upgrading:
            // A close with unread bytes is a reset; it says no more than a clean one.
            let failure = failure(error)
            failure.code == .reset ? channelEnded() : fail(failure)
        case .securing:
            handshakeFailed(
                TransportFailure(
                    handshake: peerText, error, name: verifiedName ?? endpoint.host, turnedDown: turnedDown,
                    isServers: turnedDown == tlsHandler?.peerCertificate))
        case .open:
            if error as? NIOSSLError == .uncleanShutdown {
                finish(writeFailure.map { .failed($0) } ?? .closedByPeer)
            } else {
                fail(failure(error))
            }
        case .closing:
            finish(.closedLocally)
        }
    }

    func channelEnded() {
        switch phase {
        case .resolving, .dialing, .finished:
            return
        case .reached:
            fail(brokenAtOnce)
        case .tunneling:
            proxyFailed("it closed the connection")
        case .upgrading:
            webSocketFailed("closed the connection instead of opening a WebSocket")
        case .securing:
            handshakeFailed(TransportFailure(closedInHandshake: peerText))
        case .open:
            finish(writeFailure.map { .failed($0) } ?? .closedByPeer)
        case .closing:
            finish(.closedLocally)
        }
    }

    var peerText: String { peer?.hostAndPort ?? endpoint.authority }

    private func failure(_ error: any Error) -> TransportFailure { TransportFailure(connection: peerText, error) }

    /// A refusal by TLS may well have to do with our own certificate, if that has ended.
    private func explained(_ failure: TransportFailure) -> TransportFailure {
        guard failure.code == .tlsFailed, let expiry = tls?.expiry(at: time(nil)) else { return failure }
        return TransportFailure(failure.code, "\(failure.message); \(expiry)")
    }
}

// MARK: - The end

extension Connection {
    func emit(_ event: ConnectionEvent) {
        if heldBack == nil { onEvent?(event) } else { heldBack?.append(event) }
    }

    private func tellHeldBack() {
        while let event = heldBack?.first {
            heldBack?.removeFirst()
            onEvent?(event)
        }
        heldBack = nil
        if phase == .finished { onEvent = nil }
    }

    func fail(_ failure: TransportFailure) {
        let failure = explained(failure)
        let message = (earlierFailures + [failure]).map(\.message).joined(separator: "; ")
        finish(
            phase == .closing
                ? .closedLocally : .failed(TransportFailure(failure.code, message, retryAfter: failure.retryAfter)))
    }

    func finish(_ end: ConnectionEnd) {
        guard phase != .finished else { return }
        phase = .finished
        stopTimer()
        race.take()?.cancel()
        // Nothing depends on it any more, and it would delay the connection that takes its place.
        _ = eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(5)) { self.dropChannel() }
        emit(.closed(end))
        if heldBack == nil { onEvent = nil }
    }

    /// Closes the channel at once and ignores whatever it still reports.
    func dropChannel() {
        handler?.cutOff()
        handler = nil
        peer = nil
        let polite: (any ChannelHandler)? = tlsHandler.take() ?? webSocket
        turnedDown = nil
        webSocket = nil
        guard let channel = channel.take() else { return }
        if let polite, let context = try? channel.pipeline.syncOperations.context(handler: polite) {
            // Closing from here passes TLS and WebSocket by, which would wait for the peer's goodbye.
            context.close(promise: nil)
        } else {
            channel.close(promise: nil)
        }
    }

    func startTimer(_ delay: Duration, _ task: @escaping (Connection) -> Void) {
        timer?.cancel()
        timer = eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(delay)) { task(self) }
    }

    func stopTimer() {
        timer?.cancel()
        timer = nil
    }
}
