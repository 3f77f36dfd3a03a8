import CNetlink
import Glibc
import SessionCore

/// Asks the kernel which way a packet to an address would go.
struct RouteLookup: ~Copyable {
    private var requests: RequestSocket
    /// The kind of network behind each interface. It does not change while the interface exists under its name.
    private var types: [Int32: (name: String, type: NetworkType)] = [:]
    /// The TCP port of what is looked up; `nil` if any.
    var port: UInt16?
    /// The lookups made so far.
    private(set) var count: UInt64 = 0
    /// Whether a lookup has had no answer since ``takeFailure()``: it says nothing about the paths.
    private var hasFailed = false
    /// The interfaces without a carrier that the kernel has named since ``takeDeadEnds()``.
    private var deadEnds: Set<Int32> = []

    init() throws(NetlinkError) {
        requests = try RequestSocket()
    }

    /// Returns the path to the first of the addresses that has one, and the families of all that have one.
    /// - Parameters:
    ///   - addresses: the endpoint's; if there are none, the default routes are looked up instead.
    ///   - orAnywhere: whether the default route counts for a family of which no address has a path.
    mutating func observe(_ addresses: [IPAddress], orAnywhere: Bool = false) -> PathClassifier.Observation {
        var observation = PathClassifier.Observation()
        for address in addresses + (addresses.isEmpty || orAnywhere ? Self.anywhere : []) {
            // The first path decides. Of the other family it only matters whether there is a path at all.
            guard !observation.families.contains(address.family), let path = path(to: address) else { continue }
            observation.path = observation.path ?? path
            observation.families.insert(address.family)
        }
        return observation
    }

    /// Returns the path to one address; `nil` if the kernel has no usable route or its interface has no carrier.
    /// - Parameter link: the only interface that may be used; the kernel's choice if `nil`.
    mutating func path(to address: IPAddress, by link: NetworkLink? = nil) -> Path? {
        guard let route = route(to: address, port: port, by: link?.index), let hop = route.hops.first,
            let source = route.source,
            // If no IPv4 route leads out by the interface that was asked for, the kernel takes the address for a
            // neighbour there, and names no table.
            link == nil || hop.interfaceIndex == link?.index && route.table != UInt32(RT_TABLE_UNSPEC.rawValue),
            route.kind == UInt8(RTN_UNICAST) || route.kind == UInt8(RTN_LOCAL)
        else { return nil }
        guard hop.flags & UInt32(RTNH_F_LINKDOWN | RTNH_F_DEAD) == 0,
            let interface = requests.interface(index: hop.interfaceIndex),
            interface.flags & LinkFlag.up != 0, interface.flags & LinkFlag.running != 0
        else {
            deadEnds.insert(hop.interfaceIndex)
            return nil
        }
        guard route.kind == UInt8(RTN_LOCAL) || !isMakeshift(source, to: address, by: hop) else { return nil }
        var path = Path(
            interface: interface.name, interfaceIndex: hop.interfaceIndex,
            type: type(of: hop.interfaceIndex, name: interface.name), source: source.description,
            gateway: hop.gateway?.description, table: route.table)
        path.staysHere = route.kind == UInt8(RTN_LOCAL)
        return path
    }

    /// Whether the kernel names a source address only because the interface has no other yet: that of the loopback or of
    /// another interface while duplicate address detection runs. No answer would come back to it. When the interface
    /// has its address, the kernel says so.
    private mutating func isMakeshift(_ source: IPAddress, to address: IPAddress, by hop: RouteMessage.Hop) -> Bool {
        if source.isLoopbackIPv6 { return true }
        guard source.isLinkLocalIPv6, !address.isLinkLocalIPv6 else { return false }
        // A neighbour answers to a link-local address; no router passes its packets on.
        return hop.gateway != nil || !isLocal(source, by: hop.interfaceIndex)
    }

    /// Whether packets to a path's source address can still be delivered here: it is one of the host's addresses, and
    /// its interface was not set down. (The kernel keeps the address of an interface that is down, but that interface's
    /// network does not know another way to it.)
    mutating func hasSource(of path: Path) -> Bool {
        guard let source = IPAddress(path.source) else { return false }
        // An address of an interface that belongs to a VRF is local only there.
        guard isLocal(source) || isLocal(source, by: path.interfaceIndex) else {
            // Without an answer, a path is not given up: it is asked again.
            return hasFailed
        }
        // If the interface is gone and its address is still local, another interface has taken the address over.
        guard let interface = requests.interface(index: path.interfaceIndex) else { return true }
        return interface.flags & LinkFlag.up != 0
    }

    private mutating func isLocal(_ address: IPAddress, by interface: Int32? = nil) -> Bool {
        route(to: address, by: interface)?.kind == UInt8(RTN_LOCAL)
    }

    /// Returns the interfaces without a carrier that the kernel has named since the last call.
    mutating func takeDeadEnds() -> Set<Int32> {
        defer { deadEnds = [] }
        return deadEnds
    }

    /// Returns whether a lookup had no answer since the last call.
    mutating func takeFailure() -> Bool {
        defer { hasFailed = false }
        return hasFailed
    }

    private mutating func route(
        to address: IPAddress, port: UInt16? = nil, by interface: Int32? = nil
    ) -> RouteMessage? {
        count += 1
        do throws(NetlinkError) {
            let request = NetlinkRequest.route(to: address, port: port, by: interface)
            guard case .route(let route) = try requests.first(request) else { return nil }
            return route
        } catch .refused {
            // Whatever the kernel's reason (unreachable, prohibited, no such family), the address cannot be reached.
            return nil
        } catch {
            hasFailed = true
            return nil
        }
    }

    private mutating func type(of index: Int32, name: String) -> NetworkType {
        if let known = types[index], known.name == name { return known.type }
        guard case .link(let link)? = try? requests.first(.link(index: index)) else { return .other }
        let type = NetworkType(link: link)
        types[index] = (link.name, type)
        return type
    }

    /// Forgets interfaces that no longer exist.
    mutating func keepTypes(ofInterfaces interfaces: [NetworkInterface]) {
        types = Dictionary(
            interfaces.map { ($0.index, ($0.name, $0.type)) }, uniquingKeysWith: { first, _ in first })
    }

    /// Public addresses that stand for the rest of the world. They are those of a root name server, far from every
    /// host, so that half-default routes of a VPN (0.0.0.0/1) and lists of excluded networks treat them like any
    /// server. Addresses reserved for documentation would not do: laboratories use them. Looking up a route sends
    /// nothing.
    static let anywhere = [
        IPAddress(bytes: [198, 41, 0, 4]),
        IPAddress(bytes: [0x20, 0x01, 0x05, 0x03, 0xba, 0x3e, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0x30]),
    ].compactMap(\.self)
}
