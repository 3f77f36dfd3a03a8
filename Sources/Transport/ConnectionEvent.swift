public import NIOCore

/// What happened to a connection, in the order in which it happens:
/// `resolving?, resolved, dialing, (reached,)? (securing,)? (upgrading,)? opened, received*, closed`.
/// `closed` may follow any of them; it comes once and is the last. After ``Connection/close(_:)`` with `.abort` nothing
/// comes, not even `closed`. When the TLS handshake with one address fails for a reason that another address of the
/// same name may not share, `dialing` and `securing` are repeated for the remaining addresses.
public enum ConnectionEvent: Sendable {
    /// The name is being looked up. Not for IP literals.
    case resolving
    /// The addresses that will be dialed, in the resolver's order, with the port: those of the endpoint, or of the proxy
    /// where there is one. Not empty.
    case resolved([SocketAddress])
    /// TCP connections to the addresses are being raced (RFC 8305).
    case dialing
    /// TCP is connected, and nothing more happens until ``Connection/proceed(onEvent:)``.
    /// See ``Connection/Options/stop``.
    case reached(SocketAddress)
    /// The present TLS files cannot be used; the last good ones stay in use. Reported once for each version of the
    /// files.
    case tlsFilesRejected(TransportFailure)
    /// TCP is connected, the TLS handshake runs.
    case securing(SocketAddress)
    /// TCP is connected, and TLS, if the scheme has it, is set up; the server has been asked for a WebSocket.
    case upgrading(tlsVersion: String?)
    /// Bytes can be sent, and will be received.
    case opened(Opened)
    /// The server has answered for the first time on this connection, and these addresses of its name are only dialed from
    /// now on if no other one can be. Says which, and why.
    case addressesAvoided(String, because: String)
    /// Bytes from the server, without what carries them: TLS or a WebSocket.
    case received(ByteBuffer)
    /// The end.
    case closed(ConnectionEnd)
}

/// Why a connection ended.
public enum ConnectionEnd: Hashable, Sendable {
    /// The server closed it without an error. A server that skips TLS's close_notify counts as well: MQTT has its own
    /// framing, and common servers do that.
    case closedByPeer
    /// ``Connection/close(_:)`` with `.afterFlush` is finished.
    case closedLocally
    /// It could not be opened, or broke.
    case failed(TransportFailure)
}

/// What is known about a connection when it opens.
public struct Opened: Hashable, Sendable {
    /// The address that TCP is connected to: the server's, or the proxy's where there is one.
    public let peer: SocketAddress
    /// Our own address: the source that the kernel chose.
    public let local: SocketAddress
    /// `TLSv1.2` or `TLSv1.3`; nil without TLS.
    public let tlsVersion: String?
    /// A sentence if our own certificate has expired; otherwise `nil`. A server may object to it without saying so.
    public var expiry: String?

    /// `203.0.113.9:8883` or `[2001:db8::1]:8883`.
    public var peerAddress: String { peer.hostAndPort }
    /// `192.0.2.4:49152` or `[2001:db8::4]:49152`.
    public var localAddress: String { local.hostAndPort }
}

extension SocketAddress {
    /// `203.0.113.9:8883` or `[2001:db8::1]:8883`; the plain description for what is not IP.
    public var hostAndPort: String {
        guard let ipAddress, let port else { return description }
        return ipAddress.contains(":") ? "[\(ipAddress)]:\(port)" : "\(ipAddress):\(port)"
    }
}
