import SessionCore

// Lookups for sessions that may not use every network.

extension RouteLookup {
    /// Returns the best path to one address that a session may use. To an address of this host, that is the kernel's own:
    /// it uses no network.
    /// - Parameters:
    ///   - own: the kernel's own path.
    ///   - links: the interfaces that the host has.
    private mutating func path(
        to address: IPAddress, own: Path?, for policy: NetworkPolicy, among links: [NetworkLink]
    ) -> Path? {
        if let own, own.staysHere { return own }
        for link in policy.preferred(among: links, own: own?.link) {
            if let path = link.index == own?.interfaceIndex ? own : path(to: address, by: link) { return path }
        }
        return nil
    }

    /// Returns the path to the first address that the session can reach, and the families that it can reach through the
    /// same interface.
    mutating func observe(
        _ addresses: [IPAddress], orAnywhere: Bool, for policy: NetworkPolicy, among links: [NetworkLink]
    ) -> PathClassifier.Observation {
        guard policy.isBinding else { return observe(addresses, orAnywhere: orAnywhere) }
        var observation = PathClassifier.Observation()
        for address in addresses + (addresses.isEmpty || orAnywhere ? Self.anywhere : []) {
            guard !observation.families.contains(address.family) else { continue }
            let own = path(to: address)
            guard let path = path(to: address, own: own, for: policy, among: links) else {
                observation.excluded = observation.excluded ?? own
                continue
            }
            let first = observation.path ?? path
            observation.path = first
            // A connection is bound to one interface: addresses reached through another one do not count.
            if path.interfaceIndex == first.interfaceIndex { observation.families.insert(address.family) }
        }
        if observation.path != nil { observation.excluded = nil }
        return observation
    }

    /// Returns the paths to the addresses. The first address that can be reached decides the interface; addresses that
    /// cannot be reached through it have `nil`.
    mutating func paths(
        to addresses: [IPAddress], for policy: NetworkPolicy, among links: [NetworkLink]
    ) -> [Path?] {
        var interface: Int32?
        return addresses.map { address in
            guard let path = path(to: address, own: path(to: address), for: policy, among: links),
                path.interfaceIndex == interface ?? path.interfaceIndex
            else { return nil }
            interface = path.interfaceIndex
            return path
        }
    }
}
