import CNetlink
public import SessionCore

/// The whole view of the network that `network.status` shows.
///
/// Interfaces and default routes are as of `takenAt`; paths, changes and counters are current.
public struct NetworkSnapshot: Hashable, Sendable {
    /// In order of their index.
    public var interfaces: [NetworkInterface] = []
    /// The default routes of all tables but `local`, those of IPv4 first, in order of table and metric.
    public var defaultRoutes: [DefaultRoute] = []
    /// The path of each target; the value is `nil` where there is none.
    public var paths: [Target: Path?] = [:]
    /// The kernel's own path of those targets that have none, because their sessions must not use it.
    public var excluded: [Target: Path] = [:]
    /// The last 32 changes, oldest first; none of class `none`.
    public var changes: [PathChange] = []
    /// Since the watcher started.
    public var counters = NetworkCounters()
    /// When the tables were last read completely.
    public var takenAt = Instant(nanoseconds: 0)

    /// An empty view.
    public init() {}

    /// For each network in which the host has an address, the address of a possible neighbour there, whether or not it
    /// exists. Loopback, link-local IPv6 and tunnels do not count.
    var neighbours: [IPAddress] {
        let own = Set(
            interfaces.flatMap(\.addresses).compactMap {
                $0.split(separator: "/").first.flatMap { IPAddress(String($0)) }
            })
        return interfaces.filter { $0.isUp && $0.hasCarrier && $0.type != .loopback && $0.type != .vpn }.flatMap {
            $0.addresses.compactMap { IPAddress(besides: $0, exceptFor: own) }.filter { !$0.isLinkLocalIPv6 }
        }
    }

    /// The interfaces, reduced to what a policy looks at.
    var links: [NetworkLink] { interfaces.map { NetworkLink(name: $0.name, index: $0.index, type: $0.type) } }
}

/// One network interface.
public struct NetworkInterface: Hashable, Sendable {
    /// The kernel's name, for example `wlan0`.
    public var name: String
    /// The kernel's number for it, from 1.
    public var index: Int32
    /// The kind of network behind it.
    public var type: NetworkType
    /// Whether the administrator set it up (`IFF_UP`).
    public var isUp: Bool
    /// Whether it has a carrier and is operational.
    public var hasCarrier: Bool
    /// With prefix, for example `192.0.2.7/24`; IPv4 first.
    public var addresses: [String] = []
}

/// A route that matches every address of a family.
public struct DefaultRoute: Hashable, Sendable {
    /// Which addresses it matches.
    public var family: IPAddress.Family
    /// The outgoing interface's name; its index in decimal if the interface was gone when the tables were read.
    public var interface: String
    /// The next hop in text form; `nil` on a point-to-point link.
    public var gateway: String?
    /// The kernel's priority: the lowest wins.
    public var metric: UInt32
    /// The routing table (254 is `main`).
    public var table: UInt32

    /// Whether it is in the table that all packets are looked up in, unless a rule says otherwise.
    public var isInMainTable: Bool { table == UInt32(RT_TABLE_MAIN.rawValue) }
}

/// What the watcher has seen and done.
public struct NetworkCounters: Hashable, Sendable {
    /// Messages from the kernel that something changed.
    public var hints: UInt64 = 0
    /// Route lookups.
    public var lookups: UInt64 = 0
    /// Complete readings of the tables that succeeded.
    public var dumps: UInt64 = 0
    /// Readings of the tables that were given up because the tables kept changing, or that failed; each is repeated.
    public var interruptedDumps: UInt64 = 0
    /// Times that the kernel dropped messages because they were not read fast enough.
    public var overruns: UInt64 = 0
    /// How many looks at a target had each result; `none` counts those that found nothing new.
    public var changes: [PathClass: UInt64] = [:]

    /// All zero.
    public init() {}
}
