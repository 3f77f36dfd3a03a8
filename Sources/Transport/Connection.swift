import Glibc
public import NIOCore
import NIOHTTP1
public import NIOPosix
import NIOSSL
public import Vocabulary

/// The transport of one attempt, and of the connection that it becomes. It resolves the name, dials, tunnels through a
/// proxy, sets up TLS and opens a WebSocket; after that it carries bytes in and out.
///
/// It does not interpret the bytes. It belongs to the event loop that it was opened on: every method must be called
/// there, and every event is delivered there. Events that occur during
/// ``open(_:options:eventLoop:threadPool:lookups:blocking:turns:contexts:onEvent:)`` are delivered after it has returned, all others
/// synchronously. An event may be answered with ``send(_:flushed:)`` or ``close(_:)`` right away. The connection keeps
/// itself alive until `closed` was delivered or it was aborted.
///
///     open ─▶ resolving ─▶ dialing (─▶ reached) (─▶ tunneling) (─▶ securing) (─▶ upgrading) ─▶ open ─▶ closing ─▶ finished
///                 └───────────┴────────────┴────────────┴─────────────┴──────────────┴──────────┴────────────────────▲
///
/// The TLS files are read on another thread while the name is resolved and TCP is dialed, so that they delay nothing.
public final class Connection {
    enum Phase {
        case resolving
        case dialing
        /// The first hop answered; waiting for `proceed`.
        case reached
        /// The proxy has been asked to connect us to the server.
        case tunneling
        case securing
        /// The server has been asked for a WebSocket.
        case upgrading
        case open
        /// We are closing: only the end is reported.
        case closing
        case finished
    }

    /// The addresses of the first hop, and what is done to reach one of them.
    struct Dialing {
        /// The addresses of the name.
        var resolved: [SocketAddress] = []
        /// Those to dial: without those that took up the last attempt, and after a failed handshake, those that are left.
        var addresses: [SocketAddress] = []
        /// Whether addresses that the last attempt has tried in vain are left out.
        var mayTryAgain = false
        /// When no handshake with a further address begins any more; `nil` before the first one.
        var lastHandshake: NIODeadline?
        /// Those that this attempt, or the last one, has tried in vain, and does not dial.
        var vain: [SocketAddress] = []
        /// Why the handshakes with addresses that were dialed before failed.
        var earlierFailures: [TransportFailure] = []
        var lookup: NameLookups.Request?
        var race: AddressRace?
    }

    /// Whether anything has come from the server, or from the layer on the way to it that was asked.
    enum Answer {
        /// Nothing was sent yet.
        case notAwaited
        /// Something was first sent at the given time: to the proxy, for a WebSocket, or by the session.
        case awaited(since: NIODeadline)
        /// The first bytes came at the given time.
        case received(since: NIODeadline)
    }

    /// Where the connection goes.
    public let endpoint: Endpoint
    let options: Options
    let eventLoop: any EventLoop
    let contexts: TLSContextCache
    let lookups: NameLookups
    let blocking: BlockingCalls
    let turns: PolledTurns
    private var onEvent: ((ConnectionEvent) -> Void)?
    /// Events that occurred before `open` returned, to be delivered afterwards; `nil` once they have been.
    private var heldBack: [ConnectionEvent]? = []

    var phase = Phase.resolving
    var stop: Stop?
    private var timer: Scheduled<Void>?
    var dialing = Dialing()
    var tls: LoadedTLS?

    var wire: Wire?
    private var isReading = true
    var answer = Answer.notAwaited

    private init(
        endpoint: Endpoint, options: Options, eventLoop: any EventLoop, contexts: TLSContextCache,
        lookups: NameLookups, blocking: BlockingCalls, turns: PolledTurns,
        onEvent: @escaping (ConnectionEvent) -> Void
    ) {
        self.endpoint = endpoint
        self.options = options
        self.stop = options.stop
        self.eventLoop = eventLoop
        self.contexts = contexts
        self.lookups = lookups
        self.blocking = blocking
        self.turns = turns
        self.onEvent = onEvent
    }

    /// Starts to connect. If there is no name to resolve, the first SYN leaves at once. The first event comes after
    /// this has returned.
    ///
    /// - Parameters:
    ///   - eventLoop: the loop that this is called on and that the connection belongs to.
    ///   - threadPool: a running pool for parsing the TLS files.
    ///   - lookups: resolves the endpoint's name; one per process.
    ///   - blocking: reads the TLS files; one per process.
    ///   - turns: those of what arrives in one go; one per process.
    ///   - contexts: keeps the TLS files between attempts; one per session.
    public static func open(
        _ endpoint: Endpoint, options: Options, eventLoop: any EventLoop, threadPool: NIOThreadPool,
        lookups: NameLookups, blocking: BlockingCalls, turns: PolledTurns,
        contexts: TLSContextCache = TLSContextCache(),
        onEvent: @escaping (ConnectionEvent) -> Void
    ) -> Connection {
        eventLoop.preconditionInEventLoop()
        let connection = Connection(
            endpoint: endpoint, options: options, eventLoop: eventLoop, contexts: contexts,
            lookups: lookups, blocking: blocking, turns: turns, onEvent: onEvent)
        eventLoop.assumeIsolated().execute { connection.tellHeldBack() }
        connection.start(threadPool)
        return connection
    }

    /// Continues a connection that has stopped at ``Options/stop``: with what is left of proxy, TLS and WebSocket, or
    /// at once with `opened`. Ignored unless it has stopped.
    ///
    /// - Parameter onEvent: takes every event from now on.
    ///
    /// - Returns: whether it continues; `false`, without any event, if it has ended or had not stopped.
    public func proceed(onEvent: @escaping (ConnectionEvent) -> Void) -> Bool {
        eventLoop.preconditionInEventLoop()
        guard phase == .reached, let peer = wire?.peer else { return false }
        self.onEvent = onEvent
        eventLoop.assumeIsolated().execute {
            if self.phase == .reached { self.continueDialing(peer) }
        }
        return true
    }

    /// Writes bytes and flushes them. Ignored unless the connection is open.
    ///
    /// - Parameter flushed: called on the loop when the bytes were handed to the kernel, and never when that failed or
    ///   the connection was aborted before.
    public func send(_ buffer: ByteBuffer, flushed: (() -> Void)? = nil) {
        eventLoop.preconditionInEventLoop()
        guard phase == .open, let channel = wire?.channel else { return }
        if case .notAwaited = answer { answer = .awaited(since: eventLoop.now) }
        wire?.unflushed += 1
        let promise = eventLoop.makePromise(of: Void.self)
        promise.futureResult.assumeIsolated().whenComplete { result in
            self.written(result, flushed)
        }
        channel.writeAndFlush(buffer, promise: promise)
    }

    /// Returns what the kernel measured on the connection's own segments; `nil` unless it is open.
    public func measure() -> TCPMeasurement? {
        eventLoop.preconditionInEventLoop()
        guard phase == .open else { return nil }
        let buffered = try? wire?.channel.syncOptions?.getOption(.bufferedWritableBytes)
        return withSocket { TCPMeasurement(descriptor: $0, buffered: buffered ?? 0) } ?? nil
    }

    /// Calls `body` with the channel's socket; `nil` if it has none that may be touched.
    @discardableResult
    func withSocket<Result>(_ body: (CInt) -> Result) -> Result? {
        let result = try? wire?.channel.pipeline.syncOperations.withUnsafeTransportIfAvailable(
            of: NIOBSDSocket.Handle.self
        ) { body($0) }
        return result ?? nil
    }

    /// Stops reading, which holds the peer back. Up to 64 KiB that were read before may still be delivered. While
    /// paused, the peer's close may go unnoticed.
    public func pauseReading() { read(false) }

    /// Ends ``pauseReading()``.
    public func resumeReading() { read(true) }

    /// Closes the connection from our side. Before it is open, both modes are `.abort`.
    ///
    /// After `.abort` has returned, no event is delivered, not even `closed`. After `.afterFlush`, only
    /// `closed(.closedLocally)` is, within ``Options/closeTimeout``. Closing again is allowed: `.abort` shortens an
    /// `.afterFlush`.
    public func close(_ mode: Closing) {
        eventLoop.preconditionInEventLoop()
        switch (phase, mode) {
        case (.finished, _), (.closing, .afterFlush):
            return
        case (.open, .afterFlush):
            phase = .closing
            startTimer(options.closeTimeout) { $0.finish(.closedLocally) }
            wire?.read(true)
            wire?.sayGoodbyeWhenFlushed()
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
        guard let wire, let local = wire.channel.localAddress else {
            fail(brokenAtOnce)
            return
        }
        phase = .open
        stopTimer()
        emit(
            .opened(Opened(peer: wire.peer, local: local, tlsVersion: tlsVersion, expiry: tls?.expiry(at: time(nil)))))
        guard phase == .open else { return }
        read(isReading)
        limitRetransmissionTimeout()
        passOnEarly()
    }

    private func read(_ isReading: Bool) {
        eventLoop.preconditionInEventLoop()
        self.isReading = isReading
        if phase == .open { wire?.read(isReading) }
    }

    private func written(_ result: Result<Void, any Error>, _ flushed: (() -> Void)?) {
        wire?.unflushed -= 1
        guard phase == .open || phase == .closing else { return }
        switch result {
        case .success:
            flushed?()
        case .failure(let error):
            // Kept because the channel's end, which comes next, gives no reason. After a clean close by the peer, a
            // write fails with a closed channel, which is not an `IOError`.
            let failure = failure(error)
            if error is IOError, wire?.writeFailure == nil { wire?.writeFailure = failure }
        }
        if phase == .closing { wire?.sayGoodbyeWhenFlushed() }
    }

    func channelReceived(_ bytes: ByteBuffer) {
        guard phase == .open else { return }
        if case .received = answer {} else { serverAnswered() }
        guard phase == .open else { return }
        emit(.received(bytes))
    }

    func channelFailed(_ error: any Error) {
        switch phase {
        case .resolving, .dialing, .finished:
            return
        case .reached:
            fail(failure(error))
        // Bytes behind the proxy's answer. They cannot come from the server, which has not been sent anything yet.
        case .tunneling where error is HTTPParserError || error is NIOHTTPDecoderError:
            proxyFailed("what it sends is not HTTP, or comes before the server was asked")
        case .tunneling, .upgrading:
            // A peer that closes with unread bytes sends a reset; it means no more than a clean close, with or without the
            // goodbye of TLS.
            let failure = failure(error)
            let isEnd = failure.code == .reset || error as? NIOSSLError == .uncleanShutdown
            isEnd ? channelEnded() : fail(failure)
        case .securing:
            handshakeFailed(
                TransportFailure(
                    handshake: peerText, error, name: verifiedName ?? endpoint.host, turnedDown: wire?.turnedDown,
                    isServers: wire?.turnedDown == wire?.tls?.peerCertificate))
        case .open:
            if error as? NIOSSLError == .uncleanShutdown {
                finish(endOfWire)
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
            finish(endOfWire)
        case .closing:
            finish(.closedLocally)
        }
    }

    /// What the end of the channel means for an open connection.
    var endOfWire: ConnectionEnd { wire?.writeFailure.map { .failed($0) } ?? .closedByPeer }

    /// Who is at the other end, for messages: the address that was dialed or, behind a proxy, the endpoint.
    var peerText: String {
        guard let wire, !wire.hasTunnel else { return endpoint.authority }
        return wire.peer.hostAndPort
    }

    private func failure(_ error: any Error) -> TransportFailure {
        var peer = peerText
        if let wire, wire.hasTunnel { peer += " through the proxy \(wire.peer.hostAndPort)" }
        return TransportFailure(connection: peer, error)
    }

    /// Adds to a failure of TLS, or of what comes right after it, that our own certificate has expired, if it has: that may well be why the server
    /// refused.
    private func explained(_ failure: TransportFailure) -> TransportFailure {
        let mayBeOurCertificate =
            switch failure.code {
            case .tlsFailed: failure.detail != .certificateExpired && failure.detail != .ownFilesUnusable
            case .reset, .webSocketFailed: phase == .securing || phase == .upgrading
            default: false
            }
        guard mayBeOurCertificate, let expiry = tls?.expiry(at: time(nil)) else { return failure }
        return failure.saying("\(failure.message); \(expiry)")
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
        // Several addresses may have the same fault.
        let messages = (dialing.earlierFailures + [failure]).map(\.message).reduce(into: [String]()) { told, message in
            if !told.contains(message) { told.append(message) }
        }
        let message = messages.joined(separator: "; ")
        finish(phase == .closing ? .closedLocally : .failed(mostTelling(failure).saying(message)))
    }

    /// What the failures of several addresses come to. An address that answered tells more than one that could not be
    /// dialed, and an invalid certificate counts only if no other address failed in a way that may go away.
    private func mostTelling(_ last: TransportFailure) -> TransportFailure {
        var answered = dialing.earlierFailures
        if phase != .dialing || answered.isEmpty { answered.append(last) }
        return answered.last { $0.code != .certificateInvalid } ?? answered.last ?? last
    }

    func finish(_ end: ConnectionEnd) {
        guard phase != .finished else { return }
        noteAddresses(end)
        phase = .finished
        stopTimer()
        if let lookup = dialing.lookup.take() { lookups.withdraw(lookup) }
        dialing.race.take()?.cancel()
        // Later, because nothing depends on the channel any more, and closing it now would delay the connection that
        // replaces it.
        _ = eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(5)) { self.wire.take()?.drop() }
        emit(.closed(end))
        if heldBack == nil { onEvent = nil }
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
