extension Connection {
    /// How a connection is made.
    public struct Options: Hashable, Sendable {
        /// The time for each step: the answer of the resolver, TCP (per address), and the TLS handshake (per address).
        public var dialTimeout: Duration
        /// The time for the TLS handshake, where it is not ``dialTimeout``.
        public var handshakeTimeout: Duration?
        /// How `mqtts` and `wss` are secured. Not used by `mqtt` and `ws`.
        public var tls: TLSOptions
        /// TCP_USER_TIMEOUT, in whole milliseconds: how long the kernel waits for an acknowledgement of what was sent
        /// before it gives the connection up. Zero is the kernel's own default.
        public var userTimeout: Duration
        /// The longest time that ``CloseMode/afterFlush`` takes.
        public var closeTimeout: Duration
        /// Whether the connection stops where the endpoint has answered, until ``Connection/proceed(onEvent:)``: nothing
        /// is sent before.
        public var stopsWhenReached: Bool

        public init(
            dialTimeout: Duration = .seconds(10),
            handshakeTimeout: Duration? = nil,
            tls: TLSOptions = TLSOptions(),
            userTimeout: Duration = .seconds(20),
            closeTimeout: Duration = .seconds(2),
            stopsWhenReached: Bool = false
        ) {
            self.dialTimeout = dialTimeout
            self.handshakeTimeout = handshakeTimeout
            self.tls = tls
            self.userTimeout = userTimeout
            self.closeTimeout = closeTimeout
            self.stopsWhenReached = stopsWhenReached
        }
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
