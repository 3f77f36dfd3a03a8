import CNetlink
import Glibc
import Vocabulary

/// A request of the watcher to the kernel, in the form that the strict checks (`NETLINK_GET_STRICT_CHK`) accept: all
/// header fields are zero except those that select.
enum NetlinkRequest: Equatable {
    case dumpLinks
    case dumpAddresses
    case dumpRoutes
    case link(index: Int32)
    /// `port`: the TCP port, for rules that treat ports differently. `by`: the only interface that is considered; the
    /// kernel's choice if `nil`.
    case route(to: IPAddress, port: UInt16? = nil, by: Int32? = nil)

    var isDump: Bool {
        switch self {
        case .dumpLinks, .dumpAddresses, .dumpRoutes: true
        case .link, .route: false
        }
    }

    /// The whole message with its header.
    func encoded(sequence: UInt32) -> [UInt8] {
        let type: Int
        var body: [UInt8]
        switch self {
        case .dumpLinks:
            type = RTM_GETLINK
            body = [UInt8](repeating: 0, count: LinkMessage.headerLength)
            // The per-family counters are not used.
            body.appendAttribute(UInt16(IFLA_EXT_MASK), UInt32(RTEXT_FILTER_SKIP_STATS).bytes)
        case .dumpAddresses:
            type = RTM_GETADDR
            body = [UInt8](repeating: 0, count: AddressMessage.headerLength)
        case .dumpRoutes:
            type = RTM_GETROUTE
            body = [UInt8](repeating: 0, count: RouteMessage.headerLength)
        case .link(let index):
            type = RTM_GETLINK
            body = [UInt8](repeating: 0, count: LinkMessage.headerLength)
            body.replaceSubrange(4..<8, with: UInt32(bitPattern: index).bytes)
            body.appendAttribute(UInt16(IFLA_EXT_MASK), UInt32(RTEXT_FILTER_SKIP_STATS).bytes)
        case .route(let address, let port, let interface):
            type = RTM_GETROUTE
            body = [UInt8](repeating: 0, count: RouteMessage.headerLength)
            body[0] = UInt8(address.family == .ipv4 ? AF_INET : AF_INET6)
            body[1] = UInt8(address.bytes.count * 8)
            // Without this flag IPv4 reports "main" whichever table had the route. IPv6 always reports the table, and
            // refuses the flag.
            let flags: UInt32 = address.family == .ipv4 ? UInt32(RTM_F_LOOKUP_TABLE) : 0
            body.replaceSubrange(8..<12, with: flags.bytes)
            body.appendAttribute(UInt16(RTA_DST.rawValue), address.bytes)
            if let interface { body.appendAttribute(UInt16(RTA_OIF.rawValue), interface.bytes) }
            // Kernels before 4.19 skip these, and have no such rules.
            if let port {
                body.appendAttribute(UInt16(RTA_IP_PROTO.rawValue), UInt8(IPPROTO_TCP).bytes)
                body.appendAttribute(UInt16(RTA_DPORT.rawValue), port.bigEndian.bytes)
            }
        }
        let flags = UInt16(NLM_F_REQUEST) | (isDump ? UInt16(NLM_F_ROOT | NLM_F_MATCH) : 0)
        var message = UInt32(NetlinkMessage.headerLength + body.count).bytes
        message += UInt16(type).bytes
        message += flags.bytes
        message += sequence.bytes
        // The kernel knows the sender; 0 lets it fill in the port.
        message += UInt32(0).bytes
        return message + body
    }
}

extension FixedWidthInteger {
    /// In the host's byte order.
    fileprivate var bytes: [UInt8] { withUnsafeBytes(of: self) { Array($0) } }
}

extension [UInt8] {
    fileprivate mutating func appendAttribute(_ type: UInt16, _ payload: [UInt8]) {
        self += UInt16(4 + payload.count).bytes
        self += type.bytes
        self += payload
        self += [UInt8](repeating: 0, count: align(payload.count) - payload.count)
    }
}
