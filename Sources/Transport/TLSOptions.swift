/// How a connection is secured: the `[tls]` table of a session's file.
///
/// The server's certificate is always verified: its chain, its dates, and the name or IP address that was dialed.
/// Files are PEM and are read again at every attempt.
public struct TLSOptions: Hashable, Sendable {
    /// The oldest version of TLS that is spoken.
    public enum Version: String, Hashable, Sendable, CaseIterable {
        case tls12 = "1.2"
        case tls13 = "1.3"
    }

    /// The only authorities that are trusted; `nil` is the system's trust store.
    public var certificateAuthorityFile: String?
    /// Our own certificate, followed by its intermediate authorities. Needs ``keyFile``.
    public var certificateFile: String?
    /// The private key of ``certificateFile``, without a passphrase.
    public var keyFile: String?
    /// The host name that the certificate must be for, instead of the endpoint's host. Not an IP address.
    public var serverName: String?
    /// The oldest version of TLS that is spoken.
    public var minimumVersion: Version

    public init(
        certificateAuthorityFile: String? = nil,
        certificateFile: String? = nil,
        keyFile: String? = nil,
        serverName: String? = nil,
        minimumVersion: Version = .tls12
    ) {
        self.certificateAuthorityFile = certificateAuthorityFile
        self.certificateFile = certificateFile
        self.keyFile = keyFile
        self.serverName = serverName
        self.minimumVersion = minimumVersion
    }
}
