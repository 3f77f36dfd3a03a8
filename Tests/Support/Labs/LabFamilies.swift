/// A family of addresses, with those of the lab.
public enum LabFamily: String, Sendable, CaseIterable {
    case ipv4, ipv6

    /// The address of `Lab.server`.
    public var server: String {
        switch self {
        case .ipv4: Lab.serverAddress
        case .ipv6: "2001:db8:77:9::1"
        }
    }

    /// The session's endpoint at the server's usual port.
    public var endpoint: String {
        switch self {
        case .ipv4: "mqtt://\(server):1883"
        case .ipv6: "mqtt://[\(server)]:1883"
        }
    }

    /// The host's address on an uplink.
    /// - Parameter uplink: 0 or 1.
    public func source(_ uplink: Int) -> String {
        switch self {
        case .ipv4: "10.77.\(uplink).1"
        case .ipv6: "2001:db8:77:a\(uplink)::1"
        }
    }

    /// The words of `ip` that remove the host's address from an uplink.
    public func removal(_ uplink: Int) -> String {
        switch self {
        case .ipv4: "addr del \(source(uplink))/24 dev up\(uplink)"
        case .ipv6: "addr del \(source(uplink))/64 dev up\(uplink)"
        }
    }

    /// The default route through an uplink, as the words of `ip` after `route add`, `replace` or `del`.
    public func defaultRoute(_ uplink: Int) -> String {
        switch self {
        case .ipv4: "default via 10.77.\(uplink).254 dev up\(uplink)"
        case .ipv6: "default via 2001:db8:77:a\(uplink)::fe dev up\(uplink)"
        }
    }

}

extension Lab {
    /// Adds IPv6 to everything that the lab has from the start, with the default route through the first uplink. Call
    /// it before the server is started.
    ///
    /// - Parameter isOnHost: `false` if the host is to have none yet; `addIPv6ToHost` adds it.
    public func addIPv6(isOnHost: Bool = true) async throws {
        for namespace in [router, server] { try await namespace.enableIPv6() }
        try await router.run(["sysctl", "-qw", "net.ipv6.conf.all.forwarding=1"])
        try await router.ip(
            "addr add 2001:db8:77:a0::fe/64 dev near0 nodad", "addr add 2001:db8:77:a1::fe/64 dev near1 nodad",
            "addr add 2001:db8:77:9::fe/64 dev far nodad")
        try await server.ip(
            "addr add \(LabFamily.ipv6.server)/64 dev eth0 nodad", "route add default via 2001:db8:77:9::fe dev eth0")
        if isOnHost { try await addIPv6ToHost() }
    }

    /// Gives the host its IPv6 addresses and its default route.
    public func addIPv6ToHost() async throws {
        try await host.enableIPv6()
        let (family, uplinks) = (LabFamily.ipv6, [0, 1])
        try await host.ip(
            uplinks.map { "addr add \(family.source($0))/64 dev up\($0) nodad" }
                + ["route add \(family.defaultRoute(0))"])
    }
}

extension Namespace {
    fileprivate func enableIPv6() async throws {
        try await run([
            "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.default.disable_ipv6=0",
            // All addresses of the lab are its own; there is no need to ask for seconds whether anybody else has them.
            "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0",
        ])
    }
}
