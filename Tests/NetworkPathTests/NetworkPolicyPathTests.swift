import NetworkPath
import SessionCore
import Support
import Testing
import Vocabulary

// The topology is that of NetworkWatcherTests, with a tunnel that leads nowhere when a test asks for one.
@Suite(.enabled(if: NetworkLab.isAvailable, "network namespaces need root"), .serialized, .timeLimit(.minutes(10)))
struct NetworkPolicyPathTests {
    private static let target = Target(session: "chat", endpoint: 0)
    private static let endpoint = [IPAddress("203.0.113.10")].compactMap(\.self)

    /// A watcher of one target whose session may use only some networks.
    private func watcher(
        _ lab: NetworkLab, interfaces: [String] = [], types: [NetworkType] = [], addresses: [IPAddress] = endpoint,
        now: @escaping @Sendable () -> Instant = { BootClock.now() }
    ) async throws -> (NetworkWatcher, NetworkLab.Changes, Path?) {
        let (watcher, changes, _) = try await lab.watcher(targets: [:], now: now)
        var policy = NetworkPolicy()
        (policy.interfaces, policy.types) = (interfaces, types)
        await watcher.setPolicy(policy, ofSession: Self.target.session)
        return (watcher, changes, await watcher.setTarget(Self.target, addresses: addresses))
    }

    @Test func `the path is that of the allowed interface even if the default route uses another`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, none) = try await watcher(lab, interfaces: ["up1"])
            // IPv4 takes an address for a neighbour where no route leads out by an interface.
            #expect(none == nil)
            #expect(await watcher.excluded(Self.target)?.interface == "up0")
            try await lab.host.ip("route add default via 10.9.1.254 metric 100")
            #expect(try await changes.until { $0 != nil }.last?.pathClass == .gained)
            let path = await watcher.setTarget(Self.target, addresses: Self.endpoint)
            #expect(path?.interface == "up1" && path?.source == "10.9.1.1" && path?.gateway == "10.9.1.254")
            #expect(path?.table == 254)
            #expect(await watcher.excluded(Self.target) == nil)
            #expect(await watcher.paths(to: Self.endpoint, ofSession: "chat") == [path])
            #expect(await watcher.paths(to: Self.endpoint, ofSession: "other").first??.interface == "up0")
            await watcher.stop()
        }
    }

    @Test func `an address of this host is reached whatever networks are allowed`() async throws {
        try await NetworkLab.run { lab in
            let own = ["10.9.0.1", "127.0.0.1"].compactMap { IPAddress($0) }
            let (watcher, _, path) = try await watcher(lab, interfaces: ["up1"], addresses: own)
            #expect(path?.interface == "lo" && path?.staysHere == true)
            #expect(await watcher.excluded(Self.target) == nil)
            #expect(await watcher.paths(to: own, ofSession: "chat").map { $0?.staysHere } == [true, true])
            let far = await watcher.paths(to: Self.endpoint, ofSession: "other")
            #expect(far.map { $0?.staysHere } == [false])
            await watcher.stop()
        }
    }

    @Test func `a default route that moves to a tunnel loses the path, and returns it`() async throws {
        try await NetworkLab.run { lab in
            let tunnel = try await LabTunnel("tun7", address: "10.50.0.1/24", in: lab.host)
            defer { withExtendedLifetime(tunnel) {} }
            var (watcher, changes, path) = try await watcher(lab, types: [.ethernet], now: NetworkLab.slowClock())
            #expect(path?.interface == "up0")
            try await lab.host.ip("route replace default dev tun7")
            let lost = try await changes.next()
            #expect(lost.pathClass == .lost && lost.to == nil)
            #expect(lost.excluded?.interface == "tun7" && lost.excluded?.type == .vpn)
            #expect(await watcher.snapshot().excluded == [Self.target: lost.excluded])
            try await lab.host.ip("route replace default via 10.9.0.254")
            let returned = try await changes.next()
            #expect(returned.pathClass == .returned && returned.to == path && returned.excluded == nil)
            await watcher.stop()
        }
    }

    @Test func `a tunnel that takes over the default route moves nothing while the other route stays`() async throws {
        try await NetworkLab.run { lab in
            let tunnel = try await LabTunnel("tun7", address: "10.50.0.1/24", in: lab.host)
            defer { withExtendedLifetime(tunnel) {} }
            try await lab.host.ip(["route del default", "route add default via 10.9.0.254 metric 100"])
            var (watcher, changes, path) = try await watcher(lab, types: [.ethernet])
            try await lab.host.ip("route add default dev tun7 metric 10")
            // The first change reported is the one that follows.
            try await lab.host.ip("route del default via 10.9.0.254 metric 100")
            let lost = try await changes.next()
            #expect(lost.pathClass == .lost && lost.from == path && path?.interface == "up0")
            await watcher.stop()
        }
    }

    @Test func `the kernel's own choice takes precedence over the order of the list`() async throws {
        try await NetworkLab.run { lab in
            try await lab.host.ip("route add default via 10.9.1.254 metric 100")
            var (watcher, changes, path) = try await watcher(lab, interfaces: ["up1", "up0"])
            #expect(path?.interface == "up0")
            let tunnel = try await LabTunnel("tun7", address: "10.50.0.1/24", in: lab.host)
            defer { withExtendedLifetime(tunnel) {} }
            try await lab.host.ip(["route add default via 10.9.0.254 metric 50", "route replace default dev tun7"])
            // Whichever look came between, in the end the list decides.
            let moves = try await changes.until { $0?.interface == "up1" }
            #expect(moves.last?.to?.source == "10.9.1.1")
            await watcher.stop()
        }
    }

    @Test func `an interface that did not exist is used as soon as it leads there`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, path) = try await watcher(lab, interfaces: ["late0"])
            #expect(path == nil)
            try await lab.host.ip([
                "link set up1 down", "link set up1 name late0", "link set late0 up",
                "route add default via 10.9.1.254 dev late0 metric 100",
            ])
            #expect(try await changes.until { $0?.interface == "late0" }.last?.pathClass == .gained)
            await watcher.stop()
        }
    }

    @Test func `an IPv6 path is looked up by the allowed interface too`() async throws {
        try await NetworkLab.run { lab in
            try await lab.enableIPv6()
            try await lab.host.ip([
                "addr add 2001:db8:9::1/64 dev up0 nodad", "addr add 2001:db8:a::1/64 dev up1 nodad",
                "route add default via 2001:db8:9::fe dev up0",
            ])
            let six = [IPAddress("2001:db8:ffff::10")].compactMap(\.self)
            var (watcher, changes, none) = try await watcher(lab, interfaces: ["up1"], addresses: six)
            #expect(none == nil)
            try await lab.host.ip("route add default via 2001:db8:a::fe dev up1 metric 2000")
            #expect(try await changes.until { $0 != nil }.last?.pathClass == .gained)
            let path = await watcher.setTarget(Self.target, addresses: six)
            #expect(path?.interface == "up1" && path?.gateway == "2001:db8:a::fe")
            await watcher.stop()
        }
    }

    @Test func `addresses that only another interface leads to have no path`() async throws {
        try await NetworkLab.run { lab in
            try await lab.host.ip("route add 198.51.100.0/24 via 10.9.1.254")
            let both = ["203.0.113.10", "198.51.100.7"].compactMap { IPAddress($0) }
            let (watcher, _, _) = try await watcher(lab, types: [.ethernet])
            let paths = await watcher.paths(to: both, ofSession: "chat")
            #expect(paths.map { $0?.interface } == ["up0", nil])
            await watcher.stop()
        }
    }

    @Test func `a changed resolver configuration is a maybe for names only`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(targets: [:])
            let named = Target(session: "chat", endpoint: 1)
            await watcher.setTarget(Self.target, addresses: Self.endpoint, origin: .literal)
            let path = await watcher.setTarget(named, addresses: Self.endpoint, origin: .peer)
            await watcher.resolverChanged()
            let change = try await changes.next()
            #expect(change.target == named && change.pathClass == .maybe)
            #expect(change.from == path && change.to == path)
            try await lab.host.ip("link set up0 down")
            #expect(try await changes.next().pathClass == .lost)
            #expect(await watcher.snapshot().counters.changes[.maybe] == 1)
            await watcher.stop()
        }
    }

    @Test func `an address that leaves an allowed interface after its path is reported too`() async throws {
        try await NetworkLab.run { lab in
            try await lab.host.ip("addr add 10.9.3.2/32 dev up0")
            var (watcher, changes, path) = try await watcher(lab, interfaces: ["up0"])
            #expect(path?.source == "10.9.0.1")
            try await lab.host.ip("route replace default via 10.9.0.254 src 10.9.3.2")
            let moved = try await changes.next()
            #expect(moved.pathClass == .movedSourceKept && moved.to?.source == "10.9.3.2")
            try await lab.host.ip("addr del 10.9.0.1/24 dev up0")
            let gone = try await changes.next()
            #expect(gone.pathClass == .movedSourceGone && gone.from == path && gone.to == moved.to)
            #expect(gone.excluded == nil)
            await watcher.stop()
        }
    }
}
