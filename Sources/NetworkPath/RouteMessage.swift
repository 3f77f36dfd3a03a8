import CNetlink
import Glibc
import Vocabulary

/// A route, or the answer to a route lookup (`RTM_NEWROUTE`: `struct rtmsg` and attributes).
struct RouteMessage: Equatable {
    /// One next hop.
    struct Hop: Equatable {
        var interfaceIndex: Int32
        var gateway: IPAddress?
        /// `RTNH_F_…`
        var flags: UInt32
    }

    var family: IPAddress.Family
    /// 0 for a default route.
    var destinationLength: UInt8
    /// `RTN_…`
    var kind: UInt8
    var table: UInt32
    var metric: UInt32 = 0
    /// The source address that the kernel would choose; only lookups and routes with `src` have one.
    var source: IPAddress?
    var hops: [Hop] = []
}

extension RouteMessage {
    init?(_ payload: NetlinkBytes) {
        guard let familyNumber = payload.number(at: 0, as: UInt8.self),
            let destinationLength = payload.number(at: 1, as: UInt8.self),
            let table = payload.number(at: 4, as: UInt8.self),
            let kind = payload.number(at: 7, as: UInt8.self),
            let flags = payload.number(at: 8, as: UInt32.self)
        else { return nil }
        let family: IPAddress.Family
        switch Int32(familyNumber) {
        case AF_INET: family = .ipv4
        case AF_INET6: family = .ipv6
        // Multicast and MPLS routes come in the same dump.
        default: return nil
        }
        self.init(family: family, destinationLength: destinationLength, kind: kind, table: UInt32(table))
        var interfaceIndex: Int32?
        var gateway: IPAddress?
        payload.dropFirst(Self.headerLength).forEachAttribute { type, value in
            switch UInt32(type) {
            case RTA_OIF.rawValue: interfaceIndex = value.number(at: 0)
            case RTA_GATEWAY.rawValue: gateway = IPAddress(bytes: value.array)
            case RTA_VIA.rawValue: gateway = IPAddress(via: value)
            case RTA_PREFSRC.rawValue: source = IPAddress(bytes: value.array)
            case RTA_TABLE.rawValue: self.table = value.number(at: 0) ?? self.table
            case RTA_PRIORITY.rawValue: metric = value.number(at: 0) ?? 0
            case RTA_MULTIPATH.rawValue: hops = Self.hops(value)
            default: break
            }
        }
        if let interfaceIndex, hops.isEmpty {
            hops = [Hop(interfaceIndex: interfaceIndex, gateway: gateway, flags: flags)]
        }
    }

    static let headerLength = 12

    /// `struct rtnexthop`: length, flags, weight, interface; then attributes.
    private static func hops(_ payload: NetlinkBytes) -> [Hop] {
        var hops: [Hop] = []
        var offset = 0
        while let length = payload.number(at: offset, as: UInt16.self).map(Int.init),
            length >= 8, let hop = payload.part(from: offset, length: length),
            let flags = hop.number(at: 2, as: UInt8.self),
            let interfaceIndex = hop.number(at: 4, as: Int32.self)
        {
            var gateway: IPAddress?
            hop.dropFirst(8).forEachAttribute { type, value in
                switch UInt32(type) {
                case RTA_GATEWAY.rawValue: gateway = IPAddress(bytes: value.array)
                case RTA_VIA.rawValue: gateway = IPAddress(via: value)
                default: break
                }
            }
            hops.append(Hop(interfaceIndex: interfaceIndex, gateway: gateway, flags: UInt32(flags)))
            offset += align(length)
        }
        return hops
    }
}

extension IPAddress {
    /// Reads `struct rtvia`, a gateway of another family than the route's: the family, then the address.
    fileprivate init?(via value: NetlinkBytes) {
        guard let family = value.number(at: 0, as: UInt16.self) else { return nil }
        let address = value.dropFirst(2)
        switch (Int32(family), address.count) {
        case (AF_INET, 4), (AF_INET6, 16): self.init(bytes: address.array)
        default: return nil
        }
    }
}
