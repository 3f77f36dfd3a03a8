import NIOCore
import SessionCore

// What happens to the paths of hosts, and what the kernel reports of it.

extension Scenario {
    /// Takes the path away; the kernel reports it.
    func cut(_ host: Host) async {
        let old = uplinks[host.name]?.path
        unnoticed.removeValue(forKey: host.name)
        uplinks[host.name]?.path = nil
        if let old { uplinks[host.name]?.left.append(old) }
        await host.pathChanged(.lost, from: old, to: nil)
    }

    /// Restores the path; the kernel reports it.
    func mend(_ host: Host) async {
        unnoticed.removeValue(forKey: host.name)
        take(Self.path(), on: host.name)
        uplinks[host.name]?.dialing = .works
        sendAgain(of: host.name)
        await host.pathChanged(.gained, from: nil, to: Self.path())
    }

    /// Moves the host from one network to another. The old addresses are gone, and with them all connections.
    func move(_ host: Host) async {
        let old = uplinks[host.name]?.path
        let new = Self.path(interface: old?.interface == "wlan0" ? "eth0" : "wlan0", source: "203.0.113.40")
        let believed = unnoticed.removeValue(forKey: host.name) ?? old
        take(new, on: host.name)
        let left = uplinks[host.name]?.left ?? []
        uplinks[host.name]?.left = []
        for (id, wire) in wires.sorted(by: { $0.key < $1.key }) where wire.host == host.name {
            // A connection that was made from the host's new address has lost nothing.
            if wire.path?.sharesSource(with: new) != true { forget(id, tellingServer: false) }
        }
        // If the host left and came back before the daemon was told, the daemon has seen no change.
        if believed?.leadsLike(new) != true { await host.pathChanged(.movedSourceGone, from: believed, to: new) }
        for path in left where path != believed { await host.pathChanged(.movedSourceGone, from: path, to: new) }
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
    ) async {
        guard var uplink = uplinks[host.name] else { return }
        let old = uplink.path
        let interface = interface ?? (old?.interface == "wlan0" ? "eth0" : "wlan0")
        let sources = ["wlan0": "198.51.100.7", "eth0": "203.0.113.40", "wwan0": "192.0.2.99"]
        let new = Self.path(interface: interface, source: sources[interface] ?? "")
        unnoticed.removeValue(forKey: host.name)
        for (id, wire) in wires where wire.host == host.name {
            wires[id]?.latency = wire.latency ?? uplink.latency
            wires[id]?.isStranded = strands
        }
        (uplink.dialing, uplink.latency) = (dialing, latency)
        uplinks[host.name] = uplink
        take(new, on: host.name)
        await host.pathChanged(.movedSourceKept, from: old, to: new)
    }

    /// Moves the host from one network to another without the daemon noticing: it has not read the kernel's message
    /// yet.
    func moveUnnoticed(_ host: Host) {
        let old = uplinks[host.name]?.path
        let new = Self.path(interface: old?.interface == "wlan0" ? "eth0" : "wlan0", source: "203.0.113.41")
        take(new, on: host.name)
        unnoticed[host.name] = unnoticed[host.name] ?? old
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
    /// Does nothing while there is no path, because the daemon does not look for old addresses then.
    ///
    /// - Parameter number: which of the kept addresses, the oldest first.
    /// - Returns: the path that had the address; `nil` if there is none.
    @discardableResult
    func dropOldAddress(of host: Host, _ number: Int = 0) async -> Path? {
        guard var uplink = uplinks[host.name], let new = uplink.path, !uplink.left.isEmpty else { return nil }
        let departed = uplink.left.remove(at: number % uplink.left.count)
        uplinks[host.name] = uplink
        for (id, wire) in wires.sorted(by: { $0.key < $1.key }) where wire.host == host.name {
            if wire.path?.sharesSource(with: departed) == true { forget(id, tellingServer: false) }
        }
        // A daemon that looks now finds all of it.
        if unnoticed[host.name]??.sharesSource(with: departed) == true {
            unnoticed.removeValue(forKey: host.name)
        } else {
            tellUnnoticed(host.name)
        }
        await host.pathChanged(.movedSourceGone, from: departed, to: new)
        return departed
    }

    func tellUnnoticed(_ host: String) {
        guard let old = unnoticed.removeValue(forKey: host), let told = hosts.first(where: { $0.name == host }) else {
            return
        }
        let new = uplinks[host]?.path
        told.assumeIsolated { $0.pathChanged(old == nil ? .gained : .movedSourceKept, from: old, to: new) }
    }
}
