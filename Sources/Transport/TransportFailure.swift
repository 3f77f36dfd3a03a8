public import Vocabulary

/// Why a connection could not be opened, or broke.
public struct TransportFailure: Error, Hashable, Sendable {
    /// The kinds of failure. The raw values are the codes of the session's reasons where one of the same name exists.
    public enum Code: String, Hashable, Sendable, CaseIterable {
        /// The name could not be resolved, or the resolver did not answer in time.
        case dnsFailed = "dns-failed"
        /// The network could not deliver to any address; on an open connection: what we sent was not acknowledged.
        case unreachable
        /// No permitted network leads to any address, or the kernel does not let the connection be bound to one.
        case networkNotAllowed = "network-not-allowed"
        /// At least one address answered that nothing listens there.
        case refused
        /// The peer, or something on the way, broke the connection.
        case reset
        /// No address answered in time.
        case dialTimeout = "dial-timeout"
        /// TCP was connected, but the TLS handshake did not finish in time.
        case tlsTimeout = "tls-timeout"
        /// The TLS handshake failed, or TLS failed later.
        case tlsFailed = "tls-failed"
        /// The server speaks another protocol.
        case wrongProtocol = "wrong-protocol"
        /// The server's certificate is for another name, or not signed by a trusted authority.
        case certificateInvalid = "certificate-invalid"
        /// A certificate of the server's chain is expired or not yet valid. Worth retrying: the clock of this host may
        /// be wrong.
        case certificateExpired = "certificate-expired"
        /// Our own TLS files are missing, unreadable or invalid. Worth retrying: they may be in the middle of being
        /// replaced.
        case tlsFilesUnusable = "tls-files-unusable"
        /// The proxy was reached, but does not connect to the server, or does not speak its protocol.
        case proxyFailed = "proxy-failed"
        /// The server opened no WebSocket for MQTT.
        case webSocketFailed = "websocket-failed"
        /// The server said, in its HTTP answer or when it closed a WebSocket, that it is overloaded.
        case serverBusy = "server-busy"
        /// The server said when it closed a WebSocket that it is going away.
        case serverShutdown = "server-shutdown"
        /// The server closed a WebSocket with another code, or with a text.
        case serverError = "server-error"
        /// The server broke the rules of an open WebSocket.
        case protocolError = "protocol-error"
        /// An option makes no sense for the endpoint.
        case unsupported
        /// Anything else that the kernel said.
        case ioError = "io-error"
    }

    /// What kind of failure it was.
    public let code: Code
    /// What happened, in one sentence without the final full stop, with the addresses tried and the kernel's words.
    public let message: String
    /// How long the server asks us to wait; `nil` if it does not say.
    public let retryAfter: Duration?
    /// The kernel's number of the error, as in errno(3); `nil` if it was not the kernel that failed.
    public let systemError: Int32?
    /// What else is known about it.
    public let detail: FailureDetail?

    public init(
        _ code: Code, _ message: String, retryAfter: Duration? = nil, systemError: Int32? = nil,
        detail: FailureDetail? = nil
    ) {
        self.code = code
        self.message = message
        self.retryAfter = retryAfter
        self.systemError = systemError
        self.detail = detail
    }

    /// Returns the same failure in other words.
    func saying(_ message: String) -> TransportFailure {
        TransportFailure(code, message, retryAfter: retryAfter, systemError: systemError, detail: detail)
    }
}

extension TransportFailure: CustomStringConvertible {
    public var description: String { "\(code.rawValue): \(message)" }
}
