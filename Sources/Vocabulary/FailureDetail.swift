/// What is known about a failure beyond its kind, where the advice to people depends on it.
public enum FailureDetail: Hashable, Sendable {
    /// The server ended the connection during the TLS handshake. It may not speak TLS on this port.
    case endedInHandshake
    /// The server wants a certificate of ours, or does not take the one that it got.
    case certificateWanted
    /// A certificate of the server's chain has expired or is not valid yet.
    case certificateExpired
    /// The server's certificate is for another name.
    case otherName
    /// The connection was there, and then nothing that was sent was acknowledged any more.
    case noLongerAcknowledged
    /// The server's certificate is not valid, and it was before: another server may answer in its place.
    case otherInItsPlace
    /// Our own TLS files cannot be used.
    case ownFilesUnusable
    /// A web server answered, perhaps the sign-in page of a public network.
    case webServer
    /// Which secret cannot be read: the session's own, or the proxy's.
    case unreadable(ofProxy: Bool)
    /// The server sends its clients elsewhere, but does not say where.
    case elsewhereUnnamed
}
