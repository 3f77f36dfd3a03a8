/// Which of the host's networks a session may use, and in which order they are tried where the kernel's own choice is
/// not allowed: `[network]` in its file.
///
/// It only decides. The code that looks for paths asks it for the order.
public struct NetworkPolicy: Hashable, Sendable {
    /// The names of the interfaces that may be used; empty for all. The order counts only where the kernel's choice is
    /// not among them.
    public var interfaces: [String] = []
    /// The kinds of network that may be used; empty for all. The order counts as that of the interfaces does.
    public var types: [NetworkType] = []
    /// How to treat networks that charge by volume.
    public var metered = MeteredUse.allow

    /// Every network, as the kernel chooses.
    public init() {}

    /// Whether connections must be bound to an interface, because the kernel's choice alone is not enough.
    public var isBinding: Bool { !interfaces.isEmpty || !types.isEmpty || metered == .avoid }

    /// Whether the session may use an interface at all. A metered one may be used when there is no other.
    public func allows(_ link: NetworkLink) -> Bool {
        (interfaces.isEmpty || interfaces.contains(link.name)) && (types.isEmpty || types.contains(link.type))
    }

    /// The interfaces on which to look for a path, best first.
    ///
    /// Among equals (metered or not), the kernel's own choice comes first: the session differs from the rest of the
    /// host only if it has to.
    /// - Parameters:
    ///   - links: those that the host has.
    ///   - own: the one that the kernel would use; `nil` if it has no route.
    public func preferred(among links: [NetworkLink], own: NetworkLink?) -> [NetworkLink] {
        let others = links.filter { $0.index != own?.index && isAlternative($0) }
        return ((own.map { [$0] } ?? []) + others).filter(allows).sorted { left, right in
            rank(of: left, own: own).lexicographicallyPrecedes(rank(of: right, own: own))
        }
    }

    /// Whether an interface may be used although the kernel would not use it. If no interface or type is named, only
    /// networks that are certainly independent qualify: a tunnel may lead through the very network that must be
    /// avoided.
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

    public init(name: String, index: Int32, type: NetworkType) {
        self.name = name
        self.index = index
        self.type = type
    }
}

extension NetworkType {
    /// Whether traffic is charged by volume. The kernel does not know: cellular networks are assumed to be, and no
    /// others.
    public var isMetered: Bool { self == .cellular }
}

extension Path {
    /// The outgoing interface.
    public var link: NetworkLink { NetworkLink(name: interface, index: interfaceIndex, type: type) }
}
