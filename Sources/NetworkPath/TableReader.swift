import CNetlink
import Glibc
import SessionCore

/// Reads the kernel's tables for the snapshot, off the event loop: a full Internet routing table takes a long time.
actor TableReader {
    /// The tables as they were at one time.
    struct Tables: Sendable {
        var interfaces: [NetworkInterface]
        var defaultRoutes: [DefaultRoute]
    }

    private var requests: RequestSocket

    /// - Parameter requests: opened by the caller; it stays in the caller's network namespace.
    init(_ requests: consuming sending RequestSocket) {
        self.requests = requests
    }

    /// Reads all three tables. If one changes meanwhile, all are read again, three times at most.
    /// - Throws: ``NetlinkError/interrupted`` if that was not enough.
    func read() throws(NetlinkError) -> Tables {
        var attempt = 0
        while true {
            do throws(NetlinkError) {
                return try readOnce()
            } catch {
                attempt += 1
                guard error == .interrupted, attempt <= 3 else { throw error }
            }
        }
    }

    private func readOnce() throws(NetlinkError) -> Tables {
        var links: [LinkMessage] = []
        var addresses: [AddressMessage] = []
        var routes: [RouteMessage] = []
        try requests.dump(.dumpLinks) { if case .link(let link) = $0 { links.append(link) } }
        try requests.dump(.dumpAddresses) { if case .address(let address) = $0 { addresses.append(address) } }
        try requests.dump(.dumpRoutes) { body in
            if case .route(let route) = body, route.isDefault { routes.append(route) }
        }
        return Tables(links: links, addresses: addresses, routes: routes) { NetworkType(link: $0) }
    }
}

extension RouteMessage {
    var isDefault: Bool {
        destinationLength == 0 && kind == UInt8(RTN_UNICAST) && table != UInt32(RT_TABLE_LOCAL.rawValue)
    }
}

extension TableReader.Tables {
    init(
        links: [LinkMessage], addresses: [AddressMessage], routes: [RouteMessage],
        type: (LinkMessage) -> NetworkType
    ) {
        let byInterface = Dictionary(grouping: addresses, by: \.interfaceIndex)
        interfaces = links.sorted { $0.index < $1.index }.map { link in
            let own = (byInterface[link.index] ?? []).filter { $0.address.family == .ipv4 }
            let ownV6 = (byInterface[link.index] ?? []).filter { $0.address.family == .ipv6 }
            return NetworkInterface(
                name: link.name, index: link.index, type: type(link), isUp: link.isUp, hasCarrier: link.hasCarrier,
                addresses: (own + ownV6).map { "\($0.address)/\($0.prefixLength)" })
        }
        let names = Dictionary(links.map { ($0.index, $0.name) }, uniquingKeysWith: { first, _ in first })
        defaultRoutes = routes.filter(\.isDefault).flatMap { route in
            route.hops.map { hop in
                DefaultRoute(
                    family: route.family, interface: names[hop.interfaceIndex] ?? "\(hop.interfaceIndex)",
                    gateway: hop.gateway?.description, metric: route.metric, table: route.table)
            }
        }.sorted {
            ($0.family.rawValue, $0.table, $0.metric, $0.interface) < (
                $1.family.rawValue, $1.table, $1.metric, $1.interface
            )
        }
    }
}
