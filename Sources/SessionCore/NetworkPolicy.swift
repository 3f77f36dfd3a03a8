/// Which of the host's networks a session may use, and which it would rather not: `[network]` in its file.
///
/// A value that only decides; who looks for the paths asks it in which order.
public struct NetworkPolicy: Hashable, Sendable {
    /// The names of the interfaces that may be used, the preferred first; empty for all.
    public var interfaces: [String] = []
    /// The kinds of network that may be used, the preferred first; empty for all.
    public var types: [NetworkType] = []
    /// What networks are that cost by the byte.
    public var metered = MeteredUse.allow

    /// Every network, as the kernel chooses.
    public init() {}

    /// Whether the session's connections have to be bound to an interface: what the kernel chooses is not all that counts.
    public var isBinding: Bool { self != NetworkPolicy() }

    /// Whether the session may use an interface at all; one that is metered may be used where there is no other.
    public func allows(_ link: NetworkLink) -> Bool {
        (interfaces.isEmpty || interfaces.contains(link.name)) && (types.isEmpty || types.contains(link.type))
    }

    /// The interfaces by which a path is to be looked for, the best first.
    ///
    /// The kernel's own choice goes before all others that are metered, or not, as it is: the session only differs from
    /// the rest of the host where it has to.
    /// - Parameters:
    ///   - links: those that the host has.
    ///   - own: the one that the kernel would use; `nil` if it knows no way.
    public func preferred(among links: [NetworkLink], own: NetworkLink?) -> [NetworkLink] {
        let others = links.filter { $0.index != own?.index && isAlternative($0) }
        return ((own.map { [$0] } ?? []) + others).filter(allows).sorted { left, right in
            rank(of: left, own: own).lexicographicallyPrecedes(rank(of: right, own: own))
        }
    }

    /// Whether an interface may be used although the kernel would not. Where none is named, that is for networks which
    /// are surely somebody else's way: a tunnel may lead through the very network that is to be avoided.
    private func isAlternative(_ link: NetworkLink) -> Bool {
        !interfaces.isEmpty || !types.isEmpty || link.type == .ethernet || link.type == .wifi
    }

    private func rank(of link: NetworkLink, own: NetworkLink?) -> [Int] {
        [
            metered == .avoid && link.type.isMetered ? 1 : 0, link.index == own?.index ? 0 : 1,
            interfaces.firstIndex(of: link.name) ?? 0, types.firstIndex(of: link.type) ?? 0, Int(link.index),
        ]
    }
}

/// How a session uses metered networks.
public enum MeteredUse: String, Sendable, CaseIterable {
    /// Like any other.
    case allow
    /// Only while there is no other path.
    case avoid
}

/// An interface, as far as a ``NetworkPolicy`` looks at it.
public struct NetworkLink: Hashable, Sendable {
    /// The kernel's name, for example `wlan0`.
    public var name: String
    /// The kernel's number for it, from 1.
    public var index: Int32
    /// The kind of network behind it.
    public var type: NetworkType

    /// - Parameters:
    ///   - name: the kernel's name.
    ///   - index: the kernel's number for it, from 1.
    ///   - type: the kind of network behind it.
    public init(name: String, index: Int32, type: NetworkType) {
        self.name = name
        self.index = index
        self.type = type
    }
}

extension NetworkType {
    /// Whether traffic costs by the byte: nobody but the network's own manager knows, and cellular networks mostly do.
    public var isMetered: Bool { self == .cellular }
}

extension Path {
    /// The interface that it leads out by.
    public var link: NetworkLink { NetworkLink(name: interface, index: interfaceIndex, type: type) }
}
