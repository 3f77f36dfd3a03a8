import Glibc

/// An IP literal, read by the C library and written in its canonical form.
enum IPAddress: Hashable, Sendable {
    case v4(String)
    case v6(String)

    /// Accepts dotted decimal with four parts, and IPv6 without brackets and without a zone.
    init?(_ text: String) {
        let address: IPAddress? = withUnsafeTemporaryAllocation(byteCount: 16, alignment: 4) { bytes in
            if inet_pton(AF_INET, text, bytes.baseAddress) == 1 { return .v4(text) }
            guard inet_pton(AF_INET6, text, bytes.baseAddress) == 1 else { return nil }
            var canonical = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
            guard inet_ntop(AF_INET6, bytes.baseAddress, &canonical, socklen_t(canonical.count)) != nil else {
                return nil
            }
            return .v6(String(decoding: canonical.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self))
        }
        guard let address else { return nil }
        self = address
    }

    var text: String {
        switch self {
        case .v4(let text), .v6(let text): text
        }
    }
    /// In network order, 4 or 16.
    var bytes: [UInt8] {
        let (family, count) = if case .v4 = self { (AF_INET, 4) } else { (AF_INET6, 16) }
        return [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            guard inet_pton(family, text, buffer.baseAddress) == 1 else {
                preconditionFailure("an IP address was read from its text before")
            }
            initialized = count
        }
    }
}
