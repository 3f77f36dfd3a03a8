import NIOSSL

extension NIOSSLCertificate {
    /// Whether the certificate was accepted for the host name, and not only for the address that the name led to.
    ///
    /// NIOSSL compares no name with an underscore, which private networks have. There, nothing has been compared yet, so
    /// one of the certificate's DNS names must match.
    ///
    /// NIOSSL (2.37) also accepts a certificate with the peer's IP address when a host name was asked for. Anybody who
    /// can forge DNS could then pass with a certificate for an address of their own. So where the certificate names an
    /// address, one of its DNS names must match as well (RFC 9525, 6.3). Where it names none, NIOSSL can only have
    /// accepted it for the name.
    func isFor(hostName: String) -> Bool {
        var needsName = hostName.contains("_")
        for name in _subjectAlternativeNames() {
            switch name.nameType {
            case .dnsName where matches(pattern: String(decoding: name.contents, as: UTF8.self), hostName): return true
            case .ipAddress: needsName = true
            default: continue
            }
        }
        return !needsName
    }
}

/// Compares a DNS name of a certificate with a host name. A wildcard stands for exactly one whole label, the first one,
/// and needs at least two others behind it. Only letters of ASCII are equal in both cases (RFC 6125, section 6.4.1).
func matches(pattern: String, _ hostName: String) -> Bool {
    let pattern = lowercased(pattern)
    let hostName = lowercased(hostName)
    guard pattern.starts(with: "*.".utf8) else { return !pattern.isEmpty && pattern == hostName }
    let dot = UInt8(ascii: ".")
    guard let end = hostName.firstIndex(of: dot), end != hostName.startIndex else { return false }
    let parent = pattern.dropFirst(2)
    return parent.contains(dot) && parent == hostName[(end + 1)...]
}

private func lowercased(_ name: String) -> [UInt8] {
    name.utf8.map { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) ? $0 | 0x20 : $0 }
}
