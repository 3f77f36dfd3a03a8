public import NIOCore

extension Connection {
    /// How a connection is made.
    public struct Options: Sendable {
        /// The time for each step: the answer of the resolver, TCP (per address), the proxy's answer, the TLS handshake
        /// (per address), and the opening of the WebSocket.
        public var dialTimeout: Duration
        /// The time for the TLS handshake and for the WebSocket, where it is not ``dialTimeout``.
        public var handshakeTimeout: Duration?
        /// How `mqtts` and `wss` are secured. Not used by `mqtt` and `ws`.
        public var tls: TLSOptions
        /// The proxy that is dialed instead of the server, and asked for a connection to it.
        public var proxy: ProxyOptions?
        /// The largest WebSocket frame of the server that is taken, in bytes, at most 2^32 - 1; it is kept in memory until
        /// it is complete.
        public var maximumFrameSize: Int
        /// TCP_USER_TIMEOUT, in whole milliseconds: how long the kernel waits for an acknowledgement of what was sent
        /// before it gives the connection up, and how long for a peer that takes nothing more. Zero is the kernel's own
        /// default, a quarter of an hour.
        public var userTimeout: Duration
        /// SO_KEEPALIVE: how long nothing may come before the kernel asks for a sign of life; it asks four times, a quarter
        /// of that apart, in whole seconds. It is for what the heartbeat does not see: a connection that is not read, or not
        /// in use yet. Where ``userTimeout`` is not zero and shorter, that ends the asking.
        public var keepAlive: Duration
        /// The longest time that ``CloseMode/afterFlush`` takes.
        public var closeTimeout: Duration
        /// Says by which interface the resolved addresses may be dialed; called on the loop, each time that they are. `nil` as
        /// the answer: by none, and the connection fails. Without this, the kernel chooses, and may choose again at any time.
        public var way: (@Sendable ([SocketAddress]) -> Way?)?
        /// Where the connection stops until ``Connection/proceed(onEvent:)``; `nil`: nowhere.
        public var stop: Stop?

        public init(
            dialTimeout: Duration = .seconds(10),
            handshakeTimeout: Duration? = nil,
            tls: TLSOptions = TLSOptions(),
            proxy: ProxyOptions? = nil,
            maximumFrameSize: Int = 16 << 20,
            userTimeout: Duration = .seconds(10),
            keepAlive: Duration = .seconds(20),
            closeTimeout: Duration = .seconds(2),
            stop: Stop? = nil
        ) {
            self.dialTimeout = dialTimeout
            self.handshakeTimeout = handshakeTimeout
            self.tls = tls
            self.proxy = proxy
            self.maximumFrameSize = maximumFrameSize
            self.userTimeout = userTimeout
            self.keepAlive = keepAlive
            self.closeTimeout = closeTimeout
            self.stop = stop
        }
    }

    /// A point on the way where a connection stops.
    public enum Stop: Hashable, Sendable {
        /// TCP is connected, to the server or to the proxy, and nothing was sent.
        case firstHop
        /// TCP is connected to the server, also through the proxy, and nothing was sent to the server.
        case server
    }

    /// How a connection is closed by us.
    public enum CloseMode: Hashable, Sendable {
        /// Send what is pending, say goodbye (TLS close_notify, TCP FIN), wait for the peer to do the same, close;
        /// within ``Options/closeTimeout``.
        case afterFlush
        /// Close now.
        case abort
    }
}
