import Glibc
import SessionCore
import Support
import Synchronization
import Testing
import Vocabulary

@testable import NetworkPath

// The real kernel, in network namespaces (root):
//
//      namespace "host"                          namespace "far"
//     ┌───────────────────────────────┐         ┌──────────────────────┐
//     │  watcher   up0 10.9.0.1/24 ───┼── veth ─┼─── far0 ┐            │
//     │                               │         │         ├ br0        │
//     │            up1 10.9.1.1/24 ───┼── veth ─┼─── far1 ┘ 10.9.0.254 │
//     │  default via 10.9.0.254       │         │           10.9.1.254 │
//     └───────────────────────────────┘         └──────────────────────┘
//
// The endpoint, 203.0.113.10, is beyond the gateways; nothing is ever sent to it.
@Suite(.enabled(if: NetworkLab.isAvailable, "network namespaces need root"), .serialized, .timeLimit(.minutes(10)))
struct NetworkWatcherTests {
    private static let target = Target(session: "chat", endpoint: 0)
    private static let endpoint = [IPAddress("203.0.113.10")].compactMap(\.self)
    private static let targets = [target: endpoint]

    private static func viaUp0(_ path: Path?) -> Bool {
        path?.interface == "up0" && path?.source == "10.9.0.1" && path?.gateway == "10.9.0.254" && path?.table == 254
            && path?.type == .ethernet
    }

    @Test func `the path is known at once, and the snapshot has interfaces and default routes`() async throws {
        try await NetworkLab.run { lab in
            let (watcher, _, paths) = try await lab.watcher(targets: Self.targets)
            #expect(Self.viaUp0(paths[Self.target] ?? nil))
            #expect(Self.viaUp0(await watcher.path(to: Self.endpoint)))
            #expect(Self.viaUp0(await watcher.path(to: [])))
            #expect(await watcher.path(to: [IPAddress("2001:db8::7")].compactMap(\.self)) == nil)
            #expect(await watcher.path(to: [IPAddress("127.0.0.1")].compactMap(\.self))?.type == .loopback)
            let snapshot = await watcher.snapshot()
            #expect(snapshot.interfaces.map(\.name).filter { $0.hasPrefix("up") }.count == 2)
            let up0 = try #require(snapshot.interfaces.first { $0.name == "up0" })
            #expect(up0.isUp && up0.hasCarrier && up0.type == .ethernet && up0.addresses == ["10.9.0.1/24"])
            #expect(
                snapshot.defaultRoutes == [
                    DefaultRoute(family: .ipv4, interface: "up0", gateway: "10.9.0.254", metric: 0, table: 254)
                ])
            #expect(snapshot.counters.dumps == 1)
            #expect(snapshot.changes.isEmpty)
            await watcher.stop()
            await #expect(throws: NetlinkError.notStartable) { try await watcher.start() }
        }
    }

    @Test func `a link set down loses the path, and set up within the hold returns it`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets, now: NetworkLab.slowClock())
            try await lab.host.ip("link set up0 down")
            let lost = try await changes.next()
            #expect(lost.pathClass == .lost && Self.viaUp0(lost.from) && lost.to == nil)
            try await lab.host.ip(["link set up0 up", "route add default via 10.9.0.254"])
            let returned = try await changes.next()
            #expect(returned.pathClass == .returned && returned.from == nil && Self.viaUp0(returned.to))
            #expect(await watcher.snapshot().changes == [lost, returned])
            await watcher.stop()
        }
    }

    @Test func `a path that comes back after the hold is gained`() async throws {
        try await NetworkLab.run { lab in
            let slept = Sleep()
            var (watcher, changes, _) = try await lab.watcher(
                targets: Self.targets, now: { BootClock.now().advanced(by: .seconds(slept.seconds)) })
            try await lab.host.ip("route del default")
            #expect(try await changes.next().pathClass == .lost)
            slept.forward(6)
            try await lab.host.ip("route add default via 10.9.0.254")
            #expect(try await changes.next().pathClass == .gained)
            await watcher.stop()
        }
    }

    @Test func `an address that is removed takes the path with it`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets)
            try await lab.host.ip("addr del 10.9.0.1/24 dev up0")
            #expect(try await changes.until { $0 == nil }.last?.pathClass == .lost)
            await watcher.stop()
        }
    }

    @Test func `a default route that moves leaves the old source on the host`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets)
            try await lab.host.ip("route replace default via 10.9.1.254")
            let moved = try await changes.next()
            #expect(moved.pathClass == .movedSourceKept && Self.viaUp0(moved.from))
            #expect(moved.to?.interface == "up1" && moved.to?.source == "10.9.1.1")
            await watcher.stop()
        }
    }

    @Test(arguments: ["addr del 10.9.0.1/24 dev up0", "link set up0 down", "link del up0"])
    func `an address that leaves after the default route moved is reported once, as is the next change`(
        departure: String
    ) async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets)
            try await lab.host.ip("route replace default via 10.9.1.254")
            let moved = try await changes.next()
            #expect(moved.pathClass == .movedSourceKept)
            try await lab.host.ip(departure)
            let gone = try await changes.next()
            #expect(gone.pathClass == .movedSourceGone && Self.viaUp0(gone.from) && gone.to == moved.to)
            try await lab.host.ip("link set up1 down")
            let lost = try await changes.next()
            #expect(lost.pathClass == .lost && lost.from == moved.to)
            #expect(await watcher.snapshot().changes == [moved, gone, lost])
            await watcher.stop()
        }
    }

    @Test func `an address left behind before a new connection does not matter`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets)
            try await lab.host.ip("route replace default via 10.9.1.254")
            let moved = try await changes.next()
            #expect(await watcher.setTarget(Self.target, addresses: Self.endpoint) == moved.to)
            try await lab.host.ip("addr del 10.9.0.1/24 dev up0")
            // The first change reported is the one that follows.
            try await lab.host.ip("link set up1 down")
            #expect(try await changes.next().pathClass == .lost)
            await watcher.stop()
        }
    }

    @Test func `an address that leaves while another uplink takes over is a dead source`() async throws {
        try await NetworkLab.run { lab in
            try await lab.host.ip("route add default via 10.9.1.254 metric 200")
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets, now: NetworkLab.slowClock())
            try await lab.host.ip("addr del 10.9.0.1/24 dev up0")
            let moves = try await changes.until { $0?.interface == "up1" }
            #expect(moves.contains { $0.pathClass == .movedSourceGone })
            #expect(moves.last?.to?.source == "10.9.1.1")
            await watcher.stop()
        }
    }

    @Test func `an uplink set down while another takes over is a dead source`() async throws {
        try await NetworkLab.run { lab in
            try await lab.host.ip("route add default via 10.9.1.254 metric 200")
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets, now: NetworkLab.slowClock())
            try await lab.host.ip("link set up0 down")
            let moves = try await changes.until { $0?.interface == "up1" }
            #expect(moves.last?.pathClass == .movedSourceGone)
            #expect(moves.dropLast().allSatisfy { $0.pathClass == .lost })
            await watcher.stop()
        }
    }

    @Test func `a carrier lost at the far end loses the path even if the route stays`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets, now: NetworkLab.slowClock())
            try await lab.far.ip("link set far0 down")
            #expect(try await changes.next().pathClass == .lost)
            try await lab.far.ip("link set far0 up")
            #expect(try await changes.next().pathClass == .returned)
            await watcher.stop()
        }
    }

    @Test func `a move of the default route is only a maybe while the name does not resolve`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, paths) = try await lab.watcher(targets: [Self.target: []])
            #expect(Self.viaUp0(paths[Self.target] ?? nil))
            try await lab.host.ip("route replace default via 10.9.1.254")
            #expect(try await changes.next().pathClass == .maybe)
            await watcher.stop()
        }
    }

    @Test func `an unresolved name without a default route may be that of a neighbour`() async throws {
        try await NetworkLab.run { lab in
            try await lab.host.ip(["route del default", "addr flush dev up0", "addr flush dev up1"])
            var (watcher, changes, paths) = try await lab.watcher(targets: [Self.target: []])
            #expect(paths[Self.target] == .some(nil), "there is the host itself, and that is no network")
            try await lab.host.ip("addr add 10.9.0.1/24 dev up0")
            let gained = try await changes.next()
            #expect(gained.pathClass == .gained && gained.to?.source == "10.9.0.1" && gained.to?.gateway == nil)
            #expect(gained.to?.isToNeighbours == true)
            try await lab.host.ip("route add default via 10.9.0.254")
            let wider = try await changes.next()
            #expect(wider.pathClass == .gained && Self.viaUp0(wider.to) && wider.to?.isToNeighbours == false)
            try await lab.host.ip("route del default")
            let neighbour = try await changes.next()
            #expect(neighbour.pathClass == .maybe && neighbour.to == gained.to)
            try await lab.host.ip("addr flush dev up0")
            #expect(try await changes.next().pathClass == .lost)
            await watcher.stop()
        }
    }

    @Test func `an IPv6 endpoint has an IPv6 path, and a new family is a maybe`() async throws {
        try await NetworkLab.run { lab in
            let both = ["203.0.113.10", "2001:db8:ffff::10"].compactMap { IPAddress($0) }
            var (watcher, changes, paths) = try await lab.watcher(targets: [Self.target: both])
            #expect(Self.viaUp0(paths[Self.target] ?? nil))
            try await lab.enableIPv6()
            try await lab.host.ip([
                "addr add 2001:db8:9::1/64 dev up0 nodad", "route add default via 2001:db8:9::fe dev up0",
            ])
            #expect(try await changes.next().pathClass == .maybe)
            let path = await watcher.path(to: Array(both.dropFirst()))
            #expect(path?.interface == "up0" && path?.source == "2001:db8:9::1" && path?.gateway == "2001:db8:9::fe")
            #expect(path?.table == 254)
            try await lab.host.ip("route del default via 10.9.0.254")
            let moved = try await changes.next()
            #expect(moved.pathClass == .movedSourceKept && moved.to == path)
            await watcher.stop()
        }
    }

    @Test func `a name may have other addresses in another network, so the default route counts`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(targets: [:])
            #expect(Self.viaUp0(await watcher.setTarget(Self.target, addresses: Self.endpoint, origin: .name)))
            try await lab.host.ip("route del default")
            #expect(try await changes.next().pathClass == .lost)
            try await lab.enableIPv6()
            try await lab.host.ip([
                "addr add 2001:db8:9::1/64 dev up0 nodad", "route add default via 2001:db8:9::fe dev up0",
            ])
            let gained = try await changes.next()
            #expect(gained.pathClass != .lost && gained.to?.source == "2001:db8:9::1")
            // The address that is in use has none.
            #expect(await watcher.setTarget(Self.target, addresses: Self.endpoint, origin: .peer) == nil)
            await watcher.stop()
        }
    }

    /// The kernel says nothing about the route itself.
    @Test func `a default route by a nexthop object follows that object`() async throws {
        try await NetworkLab.run { lab in
            try await lab.host.ip(
                "route del default", "nexthop add id 1 via 10.9.0.254 dev up0", "route add default nhid 1")
            var (watcher, changes, paths) = try await lab.watcher(
                targets: Self.targets, now: NetworkLab.slowClock())
            #expect(Self.viaUp0(paths[Self.target] ?? nil))
            try await lab.host.run(["sysctl", "-qw", "net.ipv4.nexthop_compat_mode=0"])
            try await lab.host.ip("nexthop replace id 1 via 10.9.1.254 dev up1")
            let moved = try await changes.next()
            #expect(moved.pathClass == .movedSourceKept && moved.to?.source == "10.9.1.1")
            try await lab.host.ip("nexthop del id 1")
            #expect(try await changes.next().pathClass == .lost)
            await watcher.stop()
        }
    }

    /// Until duplicate address detection is over, the kernel answers with any other address: that of the loopback, or of
    /// another interface.
    @Test func `a flap costs nothing although duplicate address detection follows it`() async throws {
        try await NetworkLab.run { lab in
            try await lab.far.run(["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0"])
            try await lab.far.ip("addr add 2001:db8:9::fe/64 dev br0 nodad")
            try await lab.enableIPv6()
            try await lab.host.ip("addr add 2001:db8:9::1/64 dev up0", "route add default via 2001:db8:9::fe dev up0")
            let endpoint = ["2001:db8:ffff::10"].compactMap { IPAddress($0) }
            var (watcher, changes, paths) = try await lab.watcher(targets: [Self.target: endpoint])
            if paths[Self.target] ?? nil == nil { _ = try await changes.next() }
            #expect(await watcher.path(to: endpoint)?.source == "2001:db8:9::1")
            try await lab.host.ip("link set up0 down")
            // Not missed by a watcher that looks only when the detection is over.
            #expect(try await changes.next().pathClass == .lost)
            try await lab.host.ip([
                "link set up0 up", "addr add 2001:db8:9::1/64 dev up0", "route add default via 2001:db8:9::fe dev up0",
            ])
            let returned = try await changes.next()
            // On a busy machine the detection may take longer than the hold.
            #expect(returned.pathClass == .returned || returned.pathClass == .gained)
            #expect(returned.to?.source == "2001:db8:9::1", "\(returned)")
            await watcher.stop()
        }
    }

    @Test func `a neighbour is reached from a link-local address if there is no other`() async throws {
        try await NetworkLab.run { lab in
            try await lab.enableIPv6()
            try await lab.host.ip("route add 2001:db8:9::/64 dev up0", "route add default via 2001:db8:9::fe dev up0")
            let near = ["2001:db8:9::7"].compactMap { IPAddress($0) }
            var (watcher, changes, paths) = try await lab.watcher(targets: [Self.target: near])
            if paths[Self.target] ?? nil == nil { _ = try await changes.next() }
            #expect(await watcher.path(to: near)?.source.hasPrefix("fe80:") == true)
            // A router does not pass on what comes from there.
            #expect(await watcher.path(to: ["2001:db8:ffff::10"].compactMap { IPAddress($0) }) == nil)
            await watcher.stop()
        }
    }

    @Test func `an IPv6 address that stands for one of IPv4 has the path of that`() async throws {
        try await NetworkLab.run { lab in
            let mapped = ["::ffff:203.0.113.10"].compactMap { IPAddress($0) }
            let (watcher, _, paths) = try await lab.watcher(targets: [Self.target: mapped])
            #expect(Self.viaUp0(paths[Self.target] ?? nil))
            #expect(Self.viaUp0(await watcher.path(to: mapped)))
            #expect(Self.viaUp0(await watcher.paths(to: mapped, ofSession: "chat").first ?? nil))
            await watcher.stop()
        }
    }

    @Test func `a rule for a port leads only sessions to that port elsewhere`() async throws {
        try await NetworkLab.run { lab in
            try await lab.enableIPv6()
            try await lab.host.ip(
                "addr add 2001:db8:a::1/64 dev up1 nodad", "route add default via 2001:db8:a::fe dev up1 table 100",
                "route del default", "route add default via 10.9.1.254 table 100",
                "rule add ipproto tcp dport 8883 lookup 100")
            try await lab.host.run([
                "ip", "-6", "rule", "add", "ipproto", "tcp", "dport", "8883", "lookup", "100",
            ])
            var (watcher, changes, paths) = try await lab.watcher(targets: Self.targets)
            #expect(paths[Self.target] == .some(nil))
            let both = Self.endpoint + ["2001:db8:ffff::10"].compactMap { IPAddress($0) }
            for (address, source) in zip(both, ["10.9.1.1", "2001:db8:a::1"]) {
                let path = await watcher.setTarget(Self.target, addresses: [address], port: 8883)
                #expect(path?.interface == "up1" && path?.source == source && path?.table == 100)
                #expect(await watcher.paths(to: [address], port: 8883, ofSession: "chat") == [path])
                #expect(await watcher.setTarget(Self.target, addresses: [address], port: 1883) == nil)
            }
            _ = await watcher.setTarget(Self.target, addresses: Self.endpoint, port: 8883)
            try await lab.host.ip("rule del ipproto tcp dport 8883 lookup 100")
            #expect(try await changes.next().pathClass == .lost)
            await watcher.stop()
        }
    }

    @Test func `an unreachable route to the endpoint does not count as a path`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets, now: NetworkLab.slowClock())
            try await lab.host.ip("route add unreachable 203.0.113.0/24")
            #expect(try await changes.next().pathClass == .lost)
            try await lab.host.ip("route replace blackhole 203.0.113.0/24")
            try await lab.host.ip("route del 203.0.113.0/24")
            #expect(try await changes.next().pathClass == .returned)
            await watcher.stop()
        }
    }

    @Test func `two thousand routes overrun the buffer, and the next change is still noticed`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(
                targets: Self.targets, receiveBuffer: 4096, now: NetworkLab.slowClock())
            // It is done on the event loop that would read: nothing is read before everything has happened.
            try await lab.addRoutes(2000, to: Self.endpoint, via: "10.9.1.254")
            let moved = try await changes.next()
            #expect(moved.pathClass == .movedSourceKept && moved.to?.interface == "up1")
            try await lab.host.ip("link set up1 down")
            #expect(try await changes.until { $0 != nil }.last?.pathClass == .movedSourceGone)
            let counters = await watcher.snapshot().counters
            #expect(counters.overruns > 0)
            await watcher.stop()
            // There may have been another one before the stop.
            #expect(await watcher.snapshot().counters.overruns >= counters.overruns)
        }
    }

    @Test func `a stop while the watcher starts closes every socket`() async throws {
        try await NetworkLab.run { lab in
            let starting = try await lab.startAndStop()
            await #expect(throws: NetlinkError.notStartable) { try await starting.value }
            // A child that another test is starting has them, too, until it runs its program.
            try await until("every socket is closed") { try await lab.netlinkPorts() == [] }
        }
    }

    @Test func `only the kernel can send to the sockets`() async throws {
        try await NetworkLab.run { lab in
            let (watcher, _, _) = try await lab.watcher(targets: Self.targets)
            let errors = try await lab.sendToNetlinkSockets()
            #expect(errors.count == 3 && errors.allSatisfy { $0 == ECONNREFUSED })
            await watcher.stop()
        }
    }

    @Test func `two hundred container links change no path`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets)
            try await lab.host.ip(
                (0..<200).flatMap { ["link add c\($0) type veth peer name d\($0)", "link set c\($0) up"] }
                    + (0..<200).map { "link del c\($0)" })
            // The first change reported is the one that follows.
            try await lab.host.ip("link set up0 down")
            #expect(try await changes.next().pathClass == .lost)
            let counters = await watcher.snapshot().counters
            // A watcher that is late misses some, and then notices that.
            #expect(counters.hints >= 800 || counters.overruns > 0)
            #expect(counters.changes.filter { $0.key != .none } == [.lost: 1])
            #expect(counters.changes[.none, default: 0] > 0)
            // One for each hint, and one at the end of a burst; links that are made slowly are a burst each.
            #expect(counters.lookups <= 2 * (counters.hints + counters.overruns) + 10)
            await watcher.stop()
        }
    }

    @Test func `targets with the same addresses cost one lookup together`() async throws {
        try await NetworkLab.run { lab in
            let targets = (0..<1000).map { (Target(session: "s\($0)", endpoint: 0), Self.endpoint) }
            let (watcher, _, _) = try await lab.watcher(targets: Dictionary(uniqueKeysWithValues: targets))
            let before = await watcher.snapshot().counters
            try await lab.host.ip("link add c0 type veth peer name d0")
            try await until("the tables are read") { await watcher.snapshot().counters.dumps > before.dumps }
            let after = await watcher.snapshot().counters
            #expect(after.hints > before.hints)
            #expect(after.lookups - before.lookups < 100)
            await watcher.stop()
        }
    }

    @Test func `the tables are read again after a change`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets)
            try await lab.host.ip("route replace default via 10.9.1.254")
            _ = try await changes.next()
            try await until("they are read again") {
                await watcher.snapshot().defaultRoutes.map(\.interface) == ["up1"]
            }
            #expect(await watcher.snapshot().counters.dumps >= 2)
            await watcher.stop()
        }
    }

    // MARK: What the kernel does not say

    /// Two routes of the same metric. The kernel goes on naming the one without a carrier until it has tried in vain.
    @Test func `another uplink is a detour as long as it has a carrier, and is found without a message`() async throws {
        try await NetworkLab.run { lab in
            try await lab.host.ip("route append default via 10.9.1.254")
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets)
            try await lab.far.ip("link set far0 down")
            let lost = try await changes.next()
            #expect(lost.pathClass == .lost && lost.to == nil && lost.hasDetour)
            #expect(await watcher.hasDetour(Self.target))
            try await lab.far.ip("link set far1 down")
            let deadEnd = try await changes.next()
            #expect(deadEnd.pathClass == .maybe && deadEnd.to == nil && !deadEnd.hasDetour)
            #expect(await !watcher.hasDetour(Self.target))
            try await lab.far.ip("link set far1 up")
            let again = try await changes.next()
            #expect(again.pathClass == .maybe && again.to == nil && again.hasDetour)

            #expect(await watcher.setTarget(Self.target, addresses: Self.endpoint) == nil)
            // The first packet gets nowhere, as the kernel notices after three seconds.
            try await until("the kernel takes the other route") {
                _ = try? await lab.host.run(["timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/203.0.113.10/9"])
                return try await lab.host.ip("route get 203.0.113.10").contains("dev up1")
            }
            #expect(await watcher.setTarget(Self.target, addresses: Self.endpoint)?.interface == "up1")
            await watcher.stop()
        }
    }

    @Test func `a changed resolver configuration does not end a detour`() async throws {
        try await NetworkLab.run { lab in
            try await lab.host.ip("route append default via 10.9.1.254")
            var (watcher, changes, _) = try await lab.watcher(targets: [:])
            await watcher.setTarget(Self.target, addresses: Self.endpoint, origin: .peer)
            try await lab.far.ip("link set far0 down")
            let lost = try await changes.next()
            #expect(lost.pathClass == .lost && lost.hasDetour)
            await watcher.resolverChanged()
            let change = try await changes.next()
            #expect(change.pathClass == .maybe && change.to == nil && change.hasDetour)
            await watcher.stop()
        }
    }

    /// A clock that only the test moves shows which look finds it.
    @Test func `a detour is looked for during the hold, whichever program made the kernel take it`() async throws {
        try await NetworkLab.run { lab in
            try await lab.host.ip("route append default via 10.9.1.254")
            let (begin, clock) = (BootClock.now(), Sleep())
            var (watcher, changes, _) = try await lab.watcher(
                targets: Self.targets, now: { begin.advanced(by: .seconds(clock.seconds)) })
            try await lab.far.ip("link set far0 down")
            #expect(try await changes.next().pathClass == .lost)
            // The looks that follow the messages are over when the tables have been read.
            clock.forward(1)
            try await until("the tables are read") { await watcher.snapshot().counters.dumps >= 2 }
            try await until("the kernel takes the other route") {
                _ = try? await lab.host.run(["timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/203.0.113.10/9"])
                return try await lab.host.ip("route get 203.0.113.10").contains("dev up1")
            }
            clock.forward(1)
            let found = try await changes.next()
            #expect(found.pathClass == .gained && found.to?.interface == "up1")
            await watcher.stop()
        }
    }

    /// The kernel never takes it for packets of IPv4, however long they get nowhere, so an attempt would be in vain.
    @Test func `an uplink of a higher metric is no detour with IPv4`() async throws {
        try await NetworkLab.run { lab in
            try await lab.host.ip("route append default via 10.9.1.254 metric 700")
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets)
            try await lab.far.ip("link set far0 down")
            let lost = try await changes.next()
            #expect(lost.pathClass == .lost && !lost.hasDetour)
            // Without the first uplink's route, as NetworkManager has it then.
            try await lab.host.ip("route del default via 10.9.0.254")
            let gained = try await changes.next()
            #expect(gained.pathClass == .gained && gained.to?.interface == "up1")
            await watcher.stop()
        }
    }

    @Test func `an uplink of a higher metric is a detour with IPv6`() async throws {
        try await NetworkLab.run { lab in
            try await lab.enableIPv6()
            for (index, metric) in [(0, 100), (1, 700)] {
                let network = "2001:db8:\(index)::"
                try await lab.host.ip([
                    "address add \(network)2/64 dev up\(index) nodad",
                    "route append default via \(network)fe dev up\(index) metric \(metric)",
                ])
            }
            let endpoint = try #require(IPAddress("2001:db8:ffff::10"))
            var (watcher, changes, _) = try await lab.watcher(targets: [Self.target: [endpoint]])
            try await lab.far.ip("link set far0 down")
            let lost = try await changes.next()
            #expect(lost.pathClass == .lost && lost.hasDetour)
            await watcher.stop()
        }
    }

    @Test func `one uplink without a carrier has no detour`() async throws {
        try await NetworkLab.run { lab in
            // A second network without a default route leads nowhere.
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets)
            try await lab.far.ip("link set far0 down")
            let lost = try await changes.next()
            #expect(lost.pathClass == .lost && !lost.hasDetour)
            await watcher.stop()
        }
    }

    @Test func `an interface with another name is told, and is no change`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, paths) = try await lab.watcher(targets: Self.targets, now: NetworkLab.slowClock())
            // A look may fall right between two of these.
            let names = ["up0"] + (1...50).map { "wan\($0)" }
            try await lab.host.ip(zip(names, names.dropFirst()).map { "link set \($0) name \($1)" })
            let renamed = try await changes.until { $0?.interface == "wan50" }
            #expect(renamed.first?.from == paths[Self.target] && renamed.last?.to?.source == "10.9.0.1")
            #expect(renamed.allSatisfy { $0.pathClass == .none })
            let snapshot = await watcher.snapshot()
            #expect(snapshot.changes.isEmpty && snapshot.paths == [Self.target: renamed.last?.to])
            await watcher.stop()
        }
    }

    // MARK: Targets on this host

    /// - Parameter staysAmongNeighbours: whether the host loses only the way to other networks.
    @Test(arguments: [false, true])
    func `what listens on this host may be a proxy, which needs the network`(staysAmongNeighbours: Bool) async throws {
        try await NetworkLab.run { lab in
            let local = ["127.0.0.1"].compactMap { IPAddress($0) }
            try await lab.host.ip("addr flush dev up1", "link set lo up")
            if staysAmongNeighbours { try await lab.host.ip("addr add 10.9.1.1/24 dev up1") }
            var (watcher, changes, paths) = try await lab.watcher(targets: [Self.target: local])
            let path = try #require(paths[Self.target] ?? nil)
            #expect(path.staysHere && path.type == .loopback)
            // Nothing is reported of the loss, but about a name that does not resolve, which is looked at afterwards.
            let world = Target(session: "world", endpoint: 0)
            await watcher.setTarget(world, addresses: [], origin: .name)
            try await lab.host.ip(staysAmongNeighbours ? "route del default" : "addr flush dev up0")
            let lost = try await changes.until { staysAmongNeighbours ? $0?.isToNeighbours == true : $0 == nil }
            #expect(lost.allSatisfy { $0.target == world })
            if !staysAmongNeighbours { try await lab.host.ip("addr add 10.9.0.1/24 dev up0") }
            try await lab.host.ip("route add default via 10.9.0.254")
            var back = try await changes.next()
            while back.target == world { back = try await changes.next() }
            #expect([.gained, .returned].contains(back.pathClass) && back.from == path && back.to == path)
            await watcher.stop()
        }
    }

    @Test func `a target with the same addresses is kept, one with others is looked up again`() async throws {
        try await NetworkLab.run { lab in
            var (watcher, changes, _) = try await lab.watcher(targets: Self.targets, now: NetworkLab.slowClock())
            let other = Target(session: "other", endpoint: 1)
            #expect(await watcher.setTarget(Self.target, addresses: Self.endpoint) != nil)
            await watcher.setTarget(other, addresses: [])
            await watcher.removeTargets(ofSession: "other")
            let onLink = await watcher.setTarget(Self.target, addresses: [IPAddress("10.9.1.7")].compactMap(\.self))
            #expect(onLink?.interface == "up1" && onLink?.gateway == nil)
            try await lab.host.ip("link set up1 down")
            let moved = try #require(try await changes.until { $0 != nil }.last)
            #expect(moved.target == Self.target && moved.pathClass == .movedSourceGone && Self.viaUp0(moved.to))
            #expect(await watcher.snapshot().paths == [Self.target: moved.to])
            await watcher.stop()
        }
    }
}

/// Time that a test lets pass at once.
private final class Sleep: Sendable {
    private let total = Atomic<Int64>(0)
    var seconds: Int64 { total.load(ordering: .relaxed) }
    func forward(_ seconds: Int64) { total.add(seconds, ordering: .relaxed) }
}
