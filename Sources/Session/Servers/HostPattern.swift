import Vocabulary

/// The servers that a redirection may lead to: one host, or with `*.` every host below a domain.
package struct HostPattern: Hashable, Sendable {
    /// As it is written, in lower case.
    package let text: String
    /// What a host must end with, or be.
    private let host: String
    private let isSuffix: Bool

    /// - Returns: `nil` if it is neither a host name, nor an IP address, nor `*.` and a domain.
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

    /// The dot at the end of a name means nothing here.
    private static func withoutRoot(_ host: String) -> String {
        host.hasSuffix(".") ? String(host.dropLast()) : host
    }
}
