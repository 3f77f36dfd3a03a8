import Glibc
import SessionCore
import Vocabulary

extension NetworkType {
    /// The kind of network behind an interface.
    /// - Parameters:
    ///   - link: what the kernel says about it.
    ///   - isWireless: whether `/sys/class/net/IF/wireless` exists.
    ///   - deviceType: `DEVTYPE` in `/sys/class/net/IF/uevent`, for example `wlan` or `wwan`.
    init(link: LinkMessage, isWireless: Bool, deviceType: String?) {
        if link.flags & LinkFlag.loopback != 0 {
            self = .loopback
        } else if isWireless || deviceType == "wlan" {
            self = .wifi
        } else if deviceType == "wwan" || cellularKinds.contains(link.kind ?? "") || link.hardware == Hardware.rawIP {
            self = .cellular
        } else if tunnelKinds.contains(link.kind ?? "") || Hardware.tunnels.contains(link.hardware) {
            self = .vpn
        } else if link.hardware == Hardware.ethernet {
            self = .ethernet
        } else {
            self = .other
        }
    }

    /// Creates it with what sysfs says about the interface, if it is mounted.
    init(link: LinkMessage) {
        let folder = "/sys/class/net/\(link.name)"
        // Three short lines; a sysfs file is at most a page.
        let event = (try? fileContents("\(folder)/uevent", atMost: 4096)) ?? []
        self.init(
            link: link, isWireless: access("\(folder)/wireless", F_OK) == 0,
            deviceType: deviceType(inEvent: String(decoding: event, as: UTF8.self)))
    }
}

/// Returns `DEVTYPE` from the text of a `uevent` file.
func deviceType(inEvent text: String) -> String? {
    text.split(separator: "\n").first { $0.hasPrefix("DEVTYPE=") }.map { String($0.dropFirst("DEVTYPE=".count)) }
}

/// Drivers (`IFLA_INFO_KIND`) whose interfaces carry packets inside other packets to another network.
private let tunnelKinds: Set<String> = [
    "tun", "wireguard", "ovpn", "ipip", "sit", "gre", "gretap", "ip6gre", "ip6gretap", "ip6tnl", "vti", "vti6", "xfrm",
    "erspan", "ip6erspan", "amneziawg",
]

private let cellularKinds: Set<String> = ["wwan", "rmnet"]

/// `ARPHRD_…` in `<linux/if_arp.h>`.
private enum Hardware {
    static let ethernet: UInt16 = 1
    /// Modems that speak IP without Ethernet headers.
    static let rawIP: UInt16 = 519
    /// IPIP, IP6IP6, SIT, GRE, IP6GRE.
    static let tunnels: Set<UInt16> = [768, 769, 776, 778, 823]
}
