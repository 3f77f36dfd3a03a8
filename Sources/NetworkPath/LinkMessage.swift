import CNetlink
import Glibc

/// An interface (`RTM_NEWLINK`: `struct ifinfomsg` and attributes).
struct LinkMessage: Equatable {
    /// The kind of hardware, `ARPHRD_…`.
    var hardware: UInt16
    var index: Int32
    /// `IFF_…`
    var flags: UInt32
    var name: String
    /// The state by RFC 2863, `IF_OPER_…`; 0 (unknown) with drivers that do not keep it.
    var operationalState: UInt8 = 0
    /// The driver's name for virtual devices, for example `veth` or `wireguard`; `nil` for hardware.
    var kind: String?
}

extension LinkMessage {
    init?(_ payload: NetlinkBytes) {
        guard let hardware = payload.number(at: 2, as: UInt16.self),
            let index = payload.number(at: 4, as: Int32.self),
            let flags = payload.number(at: 8, as: UInt32.self),
            payload.count >= Self.headerLength
        else { return nil }
        self.init(hardware: hardware, index: index, flags: flags, name: "")
        payload.dropFirst(Self.headerLength).forEachAttribute { type, value in
            switch type {
            case IFLA_IFNAME: name = value.text
            case IFLA_OPERSTATE: operationalState = value.number(at: 0) ?? 0
            case IFLA_LINKINFO:
                value.forEachAttribute { type, value in
                    if type == IFLA_INFO_KIND { kind = value.text }
                }
            default: break
            }
        }
    }

    static let headerLength = 16

    var isUp: Bool { flags & LinkFlag.up != 0 }

    /// Whether packets can leave: the lower layer is up, and the operational state is up or unknown.
    var hasCarrier: Bool {
        isUp && flags & LinkFlag.lowerUp != 0
            && (operationalState == OperationalState.unknown || operationalState == OperationalState.up)
    }
}

/// The bits of `ifi_flags` (`<linux/if.h>`, which cannot be imported next to glibc's `<net/if.h>`).
enum LinkFlag {
    static let up: UInt32 = 1 << 0
    static let loopback: UInt32 = 1 << 3
    /// Up and operational; the only bit about the carrier that `SIOCGIFFLAGS` returns.
    static let running: UInt32 = 1 << 6
    static let lowerUp: UInt32 = 1 << 16
}

/// RFC 2863, `IF_OPER_…` in `<linux/if.h>`. In all states between these two (not present, down, lower layer down,
/// testing, dormant) nothing can be sent.
enum OperationalState {
    static let unknown: UInt8 = 0
    static let up: UInt8 = 6
}
