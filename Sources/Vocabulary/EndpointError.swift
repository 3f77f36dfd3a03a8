/// Why a text is not an endpoint. The description is a sentence for the person who wrote it.
public enum EndpointError: Error, Hashable, Sendable {
    case unexpectedCharacter
    case noScheme
    case unknownScheme(String)
    case noHost
    case badHost(String)
    case badIPv4(String)
    case badIPv6(String)
    case unbracketedIPv6(String)
    case badPort(String)
    case userInformation
    case path
    case query
    case fragment
}

extension EndpointError: CustomStringConvertible {
    /// What is wrong and what to write instead, in one sentence without the final full stop.
    public var description: String {
        switch self {
        case .unexpectedCharacter:
            "an endpoint may contain only printable ASCII without spaces; write an international name in its xn-- form"
        case .noScheme:
            "an endpoint begins with mqtt://, mqtts://, ws:// or wss://; write for example mqtts://broker.example:8883"
        case .unknownScheme(let scheme):
            "\"\(scheme)\" is not a scheme of an endpoint; write mqtt, mqtts, ws or wss"
        case .noHost:
            "the endpoint has no host; write a name or an address after the ://"
        case .badHost(let host):
            "\"\(host)\" is not a host name; write letters, digits, hyphens and underscores in parts of 1 to 63 joined by dots"
        case .badIPv4(let host):
            "\"\(host)\" is not an IPv4 address; write four decimal numbers from 0 to 255 joined by dots"
        case .badIPv6(let host):
            "\"\(host)\" is not an IPv6 address; write it in brackets and without a zone, for example [2001:db8::1]"
        case .unbracketedIPv6(let host):
            "\"\(host)\" has more than one colon; write an IPv6 address in brackets, for example [2001:db8::1]:8883"
        case .badPort(let port):
            "\"\(port)\" is not a port; write a number from 1 to 65535, or leave the colon out for the default port"
        case .userInformation:
            "an endpoint must not contain a user name or password; set username and password in the session's file instead"
        case .path:
            "only a ws or wss endpoint has a path, which begins with a slash; remove what follows the port"
        case .query:
            "only a ws or wss endpoint has a query; remove the question mark and what follows it"
        case .fragment:
            "an endpoint has no fragment; remove the # and what follows it"
        }
    }
}
