/// The proxy that a session's connections go through: `http://proxy.example:3128` or `socks5://proxy.example`.
///
/// It has no user name and no password: those are secrets, and the URL is shown to people.
public struct ProxyAddress: Hashable, Sendable {
    /// How the proxy is asked for a connection.
    public enum Scheme: String, Hashable, Sendable, CaseIterable {
        /// HTTP CONNECT (RFC 9110, 9.3.6).
        case http
        /// SOCKS 5 (RFC 1928); the proxy resolves the server's name.
        case socks5
    }

    /// How the proxy is asked for a connection.
    public let scheme: Scheme
    /// A host name in lower case, or an IPv4 or IPv6 literal without brackets.
    public let host: String
    /// 1...65535. The default for SOCKS 5 is 1080; an HTTP proxy has no usual port, so it must be given.
    public let port: Int

    /// Parses `SCHEME://HOST[:PORT]`.
    ///
    /// - Throws: a ``ProxyError`` that says what is wrong and what to write instead.
    public init(_ text: String) throws(ProxyError) {
        do throws(EndpointError) {
            guard text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else { throw .unexpectedCharacter }
            let (schemeText, rest) = try Endpoint.split(text)
            guard let scheme = Scheme(rawValue: schemeText.lowercased()) else { throw .unknownScheme(schemeText) }
            let end = rest.firstIndex { "/?#".contains($0) } ?? rest.endIndex
            guard !rest[..<end].contains("@") else { throw .userInformation }
            guard rest[end...].isEmpty || rest[end...] == "/" else { throw .path }
            let (host, portText) = try Endpoint.splitAuthority(rest[..<end])
            self.scheme = scheme
            self.host = try Endpoint.canonicalHost(host)
            port = try portText.map(Endpoint.port) ?? (scheme == .socks5 ? 1080 : 0)
        } catch {
            throw .invalid(error)
        }
        if port == 0 { throw .noPort }
    }

    /// Whether bytes to the proxy never leave the host.
    public var isLoopback: Bool { Endpoint.isLoopback(host) }

    /// `host:port`, with brackets around an IPv6 address.
    public var authority: String { Endpoint.authority(host, port) }
}

extension ProxyAddress: CustomStringConvertible {
    /// The canonical text, always with the port: `socks5://proxy.example:1080`.
    public var description: String { "\(scheme.rawValue)://\(authority)" }
}

/// Why a text is not a proxy. The description is a sentence for the person who wrote it.
public enum ProxyError: Error, Hashable, Sendable {
    /// Only `socks5` has a usual port.
    case noPort
    case invalid(EndpointError)
}

extension ProxyError: CustomStringConvertible {
    /// What is wrong and what to write instead, in one sentence without the final full stop.
    public var description: String {
        switch self {
        case .invalid(.unexpectedCharacter):
            "the URL of a proxy may contain only printable ASCII without spaces"
        case .invalid(.noScheme):
            "the URL of a proxy begins with http:// or socks5://; write for example http://proxy.example:3128"
        case .invalid(.unknownScheme(let scheme)):
            "\"\(scheme)\" is not a kind of proxy; write http or socks5"
        case .invalid(.noHost):
            "the proxy has no host; write a name or an address after the ://"
        case .noPort:
            "an HTTP proxy has no usual port; write it after the host, for example :3128"
        case .invalid(.userInformation):
            "the URL of a proxy must not contain a user name or password; set username and password in [proxy] instead, the "
                + "password as a reference such as \"file:/etc/holdfast/proxy.password\""
        case .invalid(.path):
            "the URL of a proxy ends with the port; remove what follows it"
        case .invalid(let error):
            error.description
        }
    }
}
