/// What the kernel would use to reach an endpoint: the answer of a route lookup, with the interface's properties.
public struct Path: Hashable, Sendable {
    /// The outgoing interface, for example `wlan0`.
    public var interface: String
    /// The kernel's number for the interface, 1 or more.
    public var interfaceIndex: Int32
    public var type: NetworkType
    /// The source address that the kernel would choose, in text form.
    public var source: String
    /// The next hop in text form; `nil` when the endpoint is on the link.
    public var gateway: String?
    /// The routing table that had the route (254 is `main`).
    public var table: UInt32
    /// Whether it leads only to the networks that the host is in, and nobody knows whether the endpoint is there: its
    /// name does not resolve yet, and no route leads further.
    public var isToNeighbours = false
    /// Whether the endpoint has an address of this host, so that no packet leaves by the interface.
    public var staysHere = false

    public init(
        interface: String, interfaceIndex: Int32, type: NetworkType, source: String, gateway: String?, table: UInt32
    ) {
        self.interface = interface
        self.interfaceIndex = interfaceIndex
        self.type = type
        self.source = source
        self.gateway = gateway
        self.table = table
    }

    /// Whether packets take the same way. A new name, type or routing table of the same interface changes nothing.
    public func leadsLike(_ other: Path) -> Bool {
        sharesSource(with: other) && gateway == other.gateway
    }

    /// Whether packets are sent from the same address of the same interface.
    public func sharesSource(with other: Path) -> Bool {
        interfaceIndex == other.interfaceIndex && source == other.source
    }
}

/// The kind of network behind an interface, for people and for policy.
public enum NetworkType: String, Sendable, CaseIterable {
    case ethernet, wifi, cellular, vpn, loopback, other
}

/// What a change in the kernel's tables means for the path to one endpoint.
public enum PathClass: String, Sendable, CaseIterable {
    /// The path is what it was.
    case none
    /// There was no path, or one only to the host's own networks; now there is one, or one that leads further.
    case gained
    /// Interface, source or gateway changed, and the old source address has left the host, or its interface is down, now
    /// or later: the connection is dead.
    case movedSourceGone = "moved-source-gone"
    /// Interface, source or gateway changed, and the old source address is still there: the connection may live.
    case movedSourceKept = "moved-source-kept"
    /// No route any more, or no carrier.
    case lost
    /// Lost, and back within ``hold`` with the same path and source.
    case returned
    /// Something changed that may matter: resolver configuration, a new address family, the default route of a name
    /// that does not resolve yet.
    case maybe

    /// How long a connection is kept after its path was lost, so that a flap costs nothing.
    public static let hold: Duration = .seconds(5)
}
