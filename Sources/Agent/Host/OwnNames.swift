import Vocabulary

/// The names that are known to lead to the host itself before they are resolved, and therefore need no network.
enum OwnNames {
    /// Returns the addresses of the one name that is the same everywhere (RFC 6761, 6.3); none for other names.
    static func standard(_ name: String) -> [IPAddress] {
        let name = name.lowercased()
        guard name == "localhost" || name.hasSuffix(".localhost") else { return [] }
        return ["127.0.0.1", "::1"].compactMap { IPAddress($0) }
    }

    /// Returns the loopback addresses that /etc/hosts gives a name.
    ///
    /// The file is small and local, and is read only while there is no network. Only its beginning counts: lists of
    /// names to block come later.
    static func inHostsFile(_ name: String, path: String = "/etc/hosts") -> [IPAddress] {
        let bytes = (try? fileContents(path, atMost: 64 << 10)) ?? []
        return addresses(of: name, in: String(decoding: bytes, as: UTF8.self))
    }

    /// - Parameter text: lines of an address and its names, as hosts(5) describes them.
    /// - Returns: none if the name also has addresses of other hosts.
    static func addresses(of name: String, in text: String) -> [IPAddress] {
        let name = name.lowercased()
        let addresses = text.split(separator: "\n").compactMap { line -> IPAddress? in
            let words = line.prefix { $0 != "#" }.split { $0.isWhitespace }
            guard let first = words.first, words.dropFirst().contains(where: { $0.lowercased() == name }) else {
                return nil
            }
            return IPAddress(String(first))
        }
        return addresses.allSatisfy { Endpoint.isLoopback($0.description) } ? addresses : []
    }
}
