/// How a connection is secured: the `[tls]` table of a session's file.
///
/// The server's certificate is always verified: its chain, its dates, and the name or IP address that was dialed.
/// Files are PEM and are read again at every attempt.
public struct TLSOptions: Hashable, Sendable {
    public enum Version: String, Hashable, Sendable, CaseIterable {
        case tls12 = "1.2"
        case tls13 = "1.3"
    }

    /// The file with the only authorities that are trusted; `nil` is the system's trust store.
    public var authorities: String?
    /// The file with our own certificate, followed by its intermediate authorities. Needs ``key``.
    public var certificate: String?
    /// The file with the private key of ``certificate``, without a passphrase.
    public var key: String?
    /// The host name that the certificate must be for, instead of the endpoint's host. Not an IP address.
    public var serverName: String?
    /// The oldest version of TLS that is spoken.
    public var minimum: Version

    public init(
        authorities: String? = nil, certificate: String? = nil, key: String? = nil, serverName: String? = nil,
        minimum: Version = .tls12
    ) {
        self.authorities = authorities
        self.certificate = certificate
        self.key = key
        self.serverName = serverName
        self.minimum = minimum
    }
}
