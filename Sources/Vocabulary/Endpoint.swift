/// One server address from a session's list: `mqtts://broker.example:8883`.
///
/// Parsing is strict: it accepts only what can be dialed, and refuses every other text with a sentence that says what
/// to write instead. Host names are kept in lower case, IP literals in their canonical form (RFC 5952), so that two
/// spellings of one endpoint are equal.
public struct Endpoint: Hashable, Sendable {
    /// The transport that carries the bytes.
    public enum Scheme: String, Hashable, Sendable, CaseIterable {
        /// MQTT over TCP.
        case mqtt
        /// MQTT over TLS.
        case mqtts
        /// MQTT over WebSocket.
        case ws
        /// MQTT over WebSocket over TLS.
        case wss

        /// The port of an endpoint whose text has none.
        public var defaultPort: Int {
            switch self {
            case .mqtt: 1883
            case .mqtts: 8883
            case .ws: 80
            case .wss: 443
            }
        }

        /// Whether TLS protects the connection.
        public var isSecure: Bool { self == .mqtts || self == .wss }

        /// Whether MQTT is spoken inside a WebSocket, so that the endpoint may have a path and a query.
        public var isWebSocket: Bool { self == .ws || self == .wss }
    }

    /// The transport that carries the bytes.
    public let scheme: Scheme
    /// A host name in lower case, or an IPv4 or IPv6 literal without brackets.
    public let host: String
    /// 1...65535.
    public let port: Int
    /// The request target of a WebSocket endpoint, with its query, `/mqtt` by default; empty for `mqtt` and `mqtts`.
    public let path: String

    /// Parses `SCHEME://HOST[:PORT][/PATH]`.
    ///
    /// - Throws: an ``EndpointError`` that says what is wrong and what to write instead.
    public init(_ text: String) throws(EndpointError) {
        guard text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else { throw .unexpectedCharacter }
        let (schemeText, afterScheme) = try Self.split(text)
        guard let scheme = Scheme(rawValue: schemeText.lowercased()) else { throw .unknownScheme(schemeText) }

        let end = afterScheme.firstIndex { "/?#".contains($0) } ?? afterScheme.endIndex
        let authority = afterScheme[..<end]
        let target = afterScheme[end...]
        guard !authority.contains("@") else { throw .userInformation }
        guard !target.contains("#") else { throw .fragment }

        let (host, portText) = try Self.splitAuthority(authority)
        let port = try portText.map(Self.port) ?? scheme.defaultPort
        try self.init(scheme: scheme, host: host, port: port, path: String(target))
    }

    /// Creates an endpoint from its parts, as a server's redirection gives them. Host and port are checked as in
    /// parsing, but the characters of the path are not.
    ///
    /// - Parameters:
    ///   - host: a name or an IP literal, without brackets.
    ///   - port: 1 to 65535; `nil`: the scheme's default port.
    ///   - path: with the query, if any. Only WebSocket endpoints have one; empty: `/mqtt` there.
    /// - Throws: an ``EndpointError`` that says what is wrong and what to write instead.
    public init(scheme: Scheme, host: String, port: Int? = nil, path: String = "") throws(EndpointError) {
        let port = port ?? scheme.defaultPort
        guard (1...65535).contains(port) else { throw .badPort(String(port)) }
        self.scheme = scheme
        self.host = try Self.canonicalHost(host)
        self.port = port
        self.path = try Self.canonicalPath(path, scheme: scheme)
    }

    /// Whether both lead to the same server: to the same port, or each to the default port of its scheme, on the same
    /// host.
    public func isSameServer(as other: Endpoint) -> Bool {
        guard host == other.host else { return false }
        return port == other.port || (port == scheme.defaultPort && other.port == other.scheme.defaultPort)
    }

    /// Whether bytes to this endpoint never leave the host: 127.0.0.0/8, ::1 and `localhost`.
    public var isLoopback: Bool { Self.isLoopback(host) }

    package static func isLoopback(_ host: String) -> Bool {
        switch IPAddress(host)?.family {
        case .ipv4: host.hasPrefix("127.")
        case .ipv6: host == "::1"
        case nil: host == "localhost"
        }
    }

    /// Whether the host is an IP address, so that there is no name to resolve.
    public var isLiteral: Bool { IPAddress(host) != nil }
}

extension Endpoint: CustomStringConvertible {
    /// The canonical text, always with the port: `mqtts://[2001:db8::1]:8883`.
    public var description: String { "\(scheme.rawValue)://\(authority)\(path)" }

    /// `host:port`, with brackets around an IPv6 address.
    public var authority: String { Self.authority(host, port) }

    package static func authority(_ host: String, _ port: Int) -> String {
        host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
    }
}

extension Endpoint {
    package static func split(_ text: String) throws(EndpointError) -> (scheme: String, rest: Substring) {
        guard let colon = text.firstIndex(of: ":"), text[colon...].hasPrefix("://") else { throw .noScheme }
        return (String(text[..<colon]), text[text.index(colon, offsetBy: 3)...])
    }

    package static func splitAuthority(
        _ authority: Substring
    ) throws(EndpointError) -> (host: String, port: Substring?) {
        guard authority.first == "[" else {
            let parts = authority.split(separator: ":", omittingEmptySubsequences: false)
            switch parts.count {
            case 0, 1: return (String(authority), nil)
            case 2: return (String(parts[0]), parts[1])
            default: throw .unbracketedIPv6(String(authority))
            }
        }
        guard let bracket = authority.firstIndex(of: "]") else { throw .badIPv6(String(authority)) }
        let literal = String(authority[authority.index(after: authority.startIndex)..<bracket])
        guard IPAddress(literal)?.family == .ipv6 else { throw .badIPv6(literal) }
        let rest = authority[authority.index(after: bracket)...]
        if rest.isEmpty { return (literal, nil) }
        guard rest.first == ":" else { throw .badIPv6(String(authority)) }
        return (literal, rest.dropFirst())
    }

    package static func port(_ text: Substring) throws(EndpointError) -> Int {
        // The standard library reads "+1" and "007" as numbers, but a port is not written like that.
        guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) }), text.first != "0", let port = Int(text) else {
            throw .badPort(String(text))
        }
        guard (1...65535).contains(port) else { throw .badPort(String(text)) }
        return port
    }

    package static func canonicalHost(_ host: String) throws(EndpointError) -> String {
        guard !host.isEmpty else { throw .noHost }
        if let address = IPAddress(host) { return address.description }
        guard !host.contains(":") else { throw .badIPv6(host) }
        let name = host.lowercased()
        // RFC 1123, 2.1: letters, digits, hyphens; labels of 1 to 63, 253 in all. One dot at the end is the root. Names
        // with underscores are common in private networks, and resolvers take them.
        let labels = (name.hasSuffix(".") ? name.dropLast() : name[...])
            .split(separator: ".", omittingEmptySubsequences: false)
        guard name.utf8.count <= (name.hasSuffix(".") ? 254 : 253) else { throw .badHost(host) }
        for label in labels {
            guard (1...63).contains(label.utf8.count), label.first != "-", label.last != "-" else {
                throw .badHost(host)
            }
            guard label.utf8.allSatisfy({ $0.isLetterDigitHyphen || $0 == UInt8(ascii: "_") }) else {
                throw .badHost(host)
            }
        }
        // A name whose last label is a number would be read as an IPv4 address by some resolvers (RFC 3696, 2).
        guard let last = labels.last, !last.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            throw .badIPv4(host)
        }
        return name
    }

    private static func canonicalPath(_ path: String, scheme: Scheme) throws(EndpointError) -> String {
        if scheme.isWebSocket {
            // The default path of most servers and clients; the MQTT standard defines none.
            if path.isEmpty { return "/mqtt" }
            guard path.first == "/" || path.first == "?" else { throw .path }
            return path.first == "/" ? path : "/mqtt" + path
        }
        guard !path.contains("?") else { throw .query }
        guard path.isEmpty || path == "/" else { throw .path }
        return ""
    }
}

extension UInt8 {
    /// Whether it is the code of a lower-case letter, a digit or a hyphen.
    package var isLetterDigitHyphen: Bool {
        switch self {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"): true
        default: false
        }
    }
}
