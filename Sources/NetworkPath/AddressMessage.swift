import CNetlink
import Glibc
import Vocabulary

/// An address of an interface (`RTM_NEWADDR`: `struct ifaddrmsg` and attributes).
struct AddressMessage: Equatable {
    var interfaceIndex: Int32
    var prefixLength: UInt8
    var address: IPAddress
}

extension AddressMessage {
    init?(_ payload: NetlinkBytes) {
        guard let prefixLength = payload.number(at: 1, as: UInt8.self),
            let index = payload.number(at: 4, as: Int32.self)
        else { return nil }
        var local: IPAddress?
        var other: IPAddress?
        payload.dropFirst(Self.headerLength).forEachAttribute { type, value in
            switch type {
            case Int(IFA_LOCAL): local = IPAddress(bytes: value.array)
            case Int(IFA_ADDRESS): other = IPAddress(bytes: value.array)
            default: break
            }
        }
        // On a point-to-point link IFA_ADDRESS is the peer's address; without IFA_LOCAL (IPv6) it is ours.
        guard let address = local ?? other else { return nil }
        self.init(interfaceIndex: index, prefixLength: prefixLength, address: address)
    }

    static let headerLength = 8
}
