public import NIOCore
public import Vocabulary

extension Connection {
    /// How a connection is made.
    public struct Options: Sendable {
        /// The time limit of each step: the resolver's answer, TCP (per address), the proxy's answer, the TLS handshake
        /// (per address), and the opening of the WebSocket.
        public var dialTimeout: Duration
        /// The time limit of the TLS handshake and of the WebSocket, if it differs from ``dialTimeout``.
        public var handshakeTimeout: Duration?
        /// How `mqtts` and `wss` are secured. `mqtt` and `ws` do not use it.
        public var tls: TLSOptions
        /// The proxy that is dialed instead of the server, and asked to connect to it.
        public var proxy: ProxyOptions?
        /// SO_KEEPALIVE: how long nothing may arrive before the kernel sends keep-alive probes; it sends four, a
        /// quarter of that time apart, in whole seconds. They cover what the heartbeat does not see: a connection that
        /// is not read, or not in use yet.
        public var keepAlive: Duration
        /// The longest time that ``Closing/afterFlush`` takes.
        public var closeTimeout: Duration
        /// How long nothing may come from the server before its address is to blame when we close the connection. The next
        /// attempt then begins with the other addresses of the name.
        public var patience: Duration = .seconds(1)
        /// Chooses the interface by which the resolved addresses are dialed; called on the loop, each time they are
        /// dialed. If it returns `nil`, none may be used, and the connection fails. Without this, the kernel chooses,
        /// and may choose again at any time.
        public var way: (@Sendable ([SocketAddress]) -> Way?)?
        /// Where the connection stops until ``Connection/proceed(onEvent:)``; `nil` means nowhere.
        public var stop: Stop?

        public init(
            dialTimeout: Duration = .seconds(10), handshakeTimeout: Duration? = nil, tls: TLSOptions = TLSOptions(),
            proxy: ProxyOptions? = nil, keepAlive: Duration = .seconds(20), closeTimeout: Duration = .seconds(2),
            stop: Stop? = nil
        ) {
            self.dialTimeout = dialTimeout
            self.handshakeTimeout = handshakeTimeout
            self.tls = tls
            self.proxy = proxy
            self.keepAlive = keepAlive
            self.closeTimeout = closeTimeout
            self.stop = stop
        }
    }

    /// A point on the way where a connection stops.
    public enum Stop: Hashable, Sendable {
        /// TCP is connected, to the server or to the proxy, and nothing was sent.
        case firstHop
        /// TCP is connected to the server, directly or through the proxy, and nothing was sent to the server.
        case server
    }
}
