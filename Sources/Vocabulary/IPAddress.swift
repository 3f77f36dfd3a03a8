import Glibc

/// An IPv4 or IPv6 address without a zone or port.
public struct IPAddress: Hashable, Sendable {
    /// The version of IP.
    public enum Family: String, Hashable, Sendable, CaseIterable {
        case ipv4, ipv6
    }

    /// The version of IP.
    public let family: Family
    /// In network order: 4 bytes for IPv4, 16 for IPv6.
    public let bytes: [UInt8]

    /// - Parameter bytes: in network order; `nil` unless there are 4 or 16 of them.
    public init?(bytes: some Collection<UInt8>) {
        switch bytes.count {
        case 4: family = .ipv4
        case 16: family = .ipv6
        default: return nil
        }
        self.bytes = Array(bytes)
    }

    /// - Parameter text: `192.0.2.1` or `2001:db8::1`, without brackets, zone or port; `nil` if it is neither.
    public init?(_ text: String) {
        var bytes = [UInt8](repeating: 0, count: 16)
        if inet_pton(AF_INET, text, &bytes) == 1 {
            family = .ipv4
            self.bytes = Array(bytes[..<4])
        } else if inet_pton(AF_INET6, text, &bytes) == 1 {
            family = .ipv6
            self.bytes = bytes
        } else {
            return nil
        }
    }
}

extension IPAddress {
    /// Picks an address near the given one that another host in the same network could have; `nil` if the network has no
    /// room for another host.
    ///
    /// - Parameters:
    ///   - text: an address with its prefix length, `192.0.2.7/24`; the result is `nil` for any other form.
    ///   - taken: the addresses of the host itself, which are not picked.
    package init?(besides text: String, exceptFor taken: Set<IPAddress> = []) {
        let parts = text.split(separator: "/")
        guard parts.count == 2, let address = IPAddress(String(parts[0])), let length = Int(parts[1]),
            length < address.bytes.count * 8
        else { return nil }
        let last = address.bytes.count - 1
        let hostBits = address.bytes.count * 8 - length
        let mask: UInt8 = hostBits < 8 ? 1 << hostBits - 1 : .max
        for difference in 1...mask {
            var bytes = address.bytes
            bytes[last] ^= difference
            // No host has the first or the last address of an IPv4 network, unless there are only two (RFC 3021).
            if address.family == .ipv4, hostBits > 1, [0, mask].contains(bytes[last] & mask) { continue }
            if let other = IPAddress(bytes: bytes), !taken.contains(other) {
                self = other
                return
            }
        }
        return nil
    }

    /// The IPv4 address that the kernel uses for an IPv6 address that stands for one, such as ::ffff:192.0.2.1; otherwise
    /// the address itself.
    package var unmapped: IPAddress {
        let prefix: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
        guard family == .ipv6, bytes.starts(with: prefix) else { return self }
        return IPAddress(bytes: bytes[prefix.count...]) ?? self
    }

    /// Whether it is ::1.
    package var isLoopbackIPv6: Bool { family == .ipv6 && bytes.last == 1 && bytes.dropLast().allSatisfy { $0 == 0 } }

    /// Whether it is in fe80::/10.
    package var isLinkLocalIPv6: Bool { family == .ipv6 && bytes[0] == 0xfe && bytes[1] & 0xc0 == 0x80 }
}

extension IPAddress: CustomStringConvertible {
    /// The canonical text form (RFC 5952 for IPv6).
    public var description: String {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(INET6_ADDRSTRLEN)) { text in
            let written = inet_ntop(
                family == .ipv4 ? AF_INET : AF_INET6, bytes, text.baseAddress, socklen_t(text.count))
            precondition(written != nil, "an address of 4 or 16 bytes always fits INET6_ADDRSTRLEN characters")
            return text.baseAddress.map { String(cString: $0) } ?? ""
        }
    }
}
