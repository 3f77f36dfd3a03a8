import Vocabulary

/// The servers that a redirection may lead to: one host or, with `*.`, every host below a domain.
package struct HostPattern: Hashable, Sendable {
    /// The pattern in lower case, without a final dot.
    package let text: String
    /// The host, or the domain that a host must be below.
    private let host: String
    private let isSuffix: Bool

    /// - Returns: `nil` if the text is not a host name, an IP address, or `*.` and a domain.
    package init?(_ text: String) {
        isSuffix = text.hasPrefix("*.")
        guard let endpoint = try? Endpoint(scheme: .mqtts, host: String(text.dropFirst(isSuffix ? 2 : 0))),
            !isSuffix || !endpoint.isLiteral
        else { return nil }
        host = Self.withoutRoot(endpoint.host)
        self.text = (isSuffix ? "*." : "") + host
    }

    package func matches(_ host: String) -> Bool {
        let host = Self.withoutRoot(host)
        return isSuffix ? host.hasSuffix("." + self.host) : host == self.host
    }

    /// Removes the dot at the end of a name, which makes no difference here.
    private static func withoutRoot(_ host: String) -> String {
        host.hasSuffix(".") ? String(host.dropLast()) : host
    }
}
