import NIOCore
import SessionCore

// What happens to the paths of hosts, and what the kernel reports of it.

extension Scenario {
    /// Takes the path away; the kernel reports it.
    func cut(_ host: Host) {
        if let old = uplinks[host.name]?.path { uplinks[host.name]?.left.append(old) }
        uplinks[host.name]?.path = nil
        look(host.name)
    }

    /// Restores the path; the kernel reports it.
    func mend(_ host: Host) {
        take(Self.path(), on: host.name)
        uplinks[host.name]?.dialing = .works
        sendAgain(of: host.name)
        look(host.name)
    }

    /// Moves the host from one network to another. The old addresses are gone, and with them all connections.
    func move(_ host: Host) {
        let old = uplinks[host.name]?.path
        let new = Self.path(interface: old?.interface == "wlan0" ? "eth0" : "wlan0", source: "203.0.113.40")
        take(new, on: host.name)
        uplinks[host.name]?.left = []
        for (id, wire) in wires.sorted(by: { $0.key < $1.key }) where wire.host == host.name {
            // A connection that was made from the host's new address has lost nothing.
            if wire.path?.sharesSource(with: new) != true { forget(id, tellingServer: false) }
        }
        look(host.name)
    }

    /// Moves the default route to another uplink; the address that was used before stays.
    ///
    /// - Parameters:
    ///   - strands: whether the network there drops what comes from the old address, so that present connections are
    ///     dead.
    ///   - dialing: what happens to connections over the new path.
    func shift(
        _ host: Host, to interface: String? = nil, strands: Bool = false, _ dialing: Dialing = .works,
        latency: TimeAmount = Scenario.latency
    ) {
        guard var uplink = uplinks[host.name] else { return }
        let interface = interface ?? (uplink.path?.interface == "wlan0" ? "eth0" : "wlan0")
        let sources = ["wlan0": "198.51.100.7", "eth0": "203.0.113.40", "wwan0": "192.0.2.99"]
        let new = Self.path(interface: interface, source: sources[interface] ?? "")
        for (id, wire) in wires where wire.host == host.name {
            wires[id]?.latency = wire.latency ?? uplink.latency
            wires[id]?.isStranded = strands
        }
        (uplink.dialing, uplink.latency) = (dialing, latency)
        uplinks[host.name] = uplink
        take(new, on: host.name)
        look(host.name)
    }

    /// Lets the network drop everything on present connections from now on, without the kernel's knowing.
    func strand(_ host: Host) {
        for (id, wire) in wires where wire.host == host.name { wires[id]?.isStranded = true }
    }

    /// Moves the host from one network to another without the daemon noticing: it has not read the kernel's message
    /// yet.
    func moveUnnoticed(_ host: Host) {
        let old = uplinks[host.name]?.path
        take(
            Self.path(interface: old?.interface == "wlan0" ? "eth0" : "wlan0", source: "203.0.113.41"), on: host.name)
    }

    /// Takes the host's path away without a message of the kernel.
    func losePathUnnoticed(_ host: Host) {
        uplinks[host.name]?.path = nil
    }

    /// Puts the host on this path; it keeps the address of the one before as well.
    private func take(_ path: Path, on host: String) {
        guard var uplink = uplinks[host] else { return }
        if let old = uplink.path { uplink.left.append(old) }
        uplink.left.removeAll { $0.sharesSource(with: path) }
        uplink.path = path
        uplinks[host] = uplink
    }

    /// Removes an address that the host had kept from an earlier path, with all connections that were made from it.
    ///
    /// - Parameter number: which of the kept addresses, the oldest first.
    /// - Returns: the path that had the address; `nil` if there is none, and while the host has no path at all, because
    ///   the daemon does not look for old addresses then.
    @discardableResult
    func dropOldAddress(of host: Host, _ number: Int = 0) -> Path? {
        guard var uplink = uplinks[host.name], uplink.path != nil, !uplink.left.isEmpty else { return nil }
        let departed = uplink.left.remove(at: number % uplink.left.count)
        uplinks[host.name] = uplink
        for (id, wire) in wires.sorted(by: { $0.key < $1.key }) where wire.host == host.name {
            if wire.path?.sharesSource(with: departed) == true { forget(id, tellingServer: false) }
        }
        look(host.name)
        return departed
    }

    /// Whether the host still has the source address of a path.
    func hasSource(of path: Path, on host: String) -> Bool {
        guard let uplink = uplinks[host] else { return false }
        return ([uplink.path].compactMap(\.self) + uplink.left).contains { $0.sharesSource(with: path) }
    }

    /// Lets the host's daemon look at its paths, as after a message of the kernel.
    func look(_ host: String) {
        hosts.first { $0.name == host }?.assumeIsolated { $0.lookAtPaths() }
    }
}
