/// A protocol other than MQTT, recognized by the first bytes that a server sends.
///
/// The first packet of an MQTT server is CONNACK, AUTH or DISCONNECT, and none of them begins like one of these.
public enum ForeignProtocol: Hashable, Sendable, CaseIterable {
    /// A web server, or anything else that answers HTTP, such as the sign-in page of a public network.
    case http
    case ssh
    /// A TLS server that was spoken to without TLS.
    case tls
    /// A server of SMTP or FTP; both begin with 220.
    case mail
    case imap
    case pop3
    /// AMQP 0-9-1 and 1.0.
    case amqp
    case redis

    /// What a server of the protocol sends first. Some, such as HTTP servers, send it only after the client has sent
    /// something.
    var beginnings: [[UInt8]] {
        switch self {
        case .http: [Array("HTTP/".utf8), Array("<html".utf8), Array("<!DOCTYPE".utf8)]
        case .ssh: [Array("SSH-".utf8)]
        // Alert and handshake records of SSL 3 to TLS 1.3 (RFC 8446, 5.1).
        case .tls: [0x15, 0x16].flatMap { kind in (0...4).map { [kind, 0x03, $0] } }
        case .mail: [Array("220 ".utf8), Array("220-".utf8)]
        case .imap: [Array("* OK".utf8)]
        case .pop3: [Array("+OK".utf8)]
        case .amqp: [Array("AMQP".utf8)]
        case .redis: [Array("-ERR".utf8)]
        }
    }

    /// - Parameter bytes: what the server sent first.
    public init?(beginning bytes: some Sequence<UInt8>) {
        let found = Self.allCases.first { candidate in candidate.beginnings.contains { bytes.starts(with: $0) } }
        guard let found else { return nil }
        self = found
    }

    /// Whether these bytes, which the server sent first, are too few to tell, but may become the beginning of one.
    public static func mayBegin(with bytes: some Collection<UInt8>) -> Bool {
        allCases.contains { $0.beginnings.contains { $0.count > bytes.count && $0.starts(with: bytes) } }
    }

    /// What the server is, as the end of a sentence.
    public var name: String {
        switch self {
        case .http: "a web server: it answers HTTP"
        case .ssh: "an SSH server"
        case .tls: "a TLS server, and the endpoint's scheme is one without TLS"
        case .mail: "a mail or FTP server"
        case .imap: "an IMAP server"
        case .pop3: "a POP3 server"
        case .amqp: "an AMQP server"
        case .redis: "a Redis server"
        }
    }
}
