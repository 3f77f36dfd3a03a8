import ControlAPI
import Foundation
import Support
import Testing

/// An endpoint whose name has several addresses, of one family or both. The path of a session is that of the address in
/// use; without a connection, all of them count.
extension EndToEnd {
    @Suite struct Addresses {}
}

extension EndToEnd.Addresses {
    private static let name = "server.test"
    private static let endpoint = "mqtt://\(name):1883"

    /// Writes a session that makes only the first attempt on its own, and does not knock: everything that it does later
    /// is caused by a change of the network. An attempt that fails because the machine is busy would be its last one.
    private func idleSession(_ daemon: DaemonProcess, dial: String = "1min") throws {
        try daemon.writeSession(
            "main",
            """
            endpoints = ["\(Self.endpoint)"]
            user = "main"
            [reconnect]
            delays = ["600s"]
            spread = "0s"
            watch = "never"
            [heartbeat]
            interval = "600s"
            timeout = "600s"
            [timeouts]
            dial = "\(dial)"
            authenticate = "1min"
            """)
    }

    @Test func `the first address that answers is used, and its path is reported`() async throws {
        try await withServer { lab, _, daemon in
            // Nothing that is sent to these is answered, and the way to them is the other uplink.
            try await lab.router.nft(
                "add table ip hole; add chain ip hole pass { type filter hook forward priority 0; }; "
                    + "add rule ip hole pass ip daddr { 10.77.9.7, 10.77.9.8 } drop")
            try await lab.host.ip(
                "route add 10.77.9.7/32 via 10.77.1.254", "route add 10.77.9.8/32 via 10.77.1.254")
            try lab.host.hosts(
                "10.77.9.7 \(Self.name)", "10.77.9.8 \(Self.name)", "\(Lab.serverAddress) \(Self.name)")
            try daemon.session(endpoint: Self.endpoint, heartbeat: "600s", dial: "1min", authenticate: "1min")
            try await daemon.start()
            let events = try await daemon.events()
            let connected = try await events.until(.connected)
            #expect(connected.path?.interface == "up0")
            #expect(try await daemon.status().counters.attempts == 1)
            // Changes of the paths to the others are not reported, those of this one are.
            try await lab.host.ip("link set up1 down")
            try await lab.host.ip("link set up1 up")
            try await until("up1 is up") { try await lab.host.ip("link show up1").contains("state UP") }
            _ = await events.rest()
            try await lab.host.ip("route add \(Lab.serverAddress)/32 via 10.77.1.254")
            let moved = try await events.until("told that the path moved") { $0.event == .pathChanged }
            #expect(moved.change == "moved-source-kept")
            let told = await events.all
            #expect(told.filter { $0.event == .pathChanged }.count == 1)
        }
    }

    @Test func `the other family is used when one leads nowhere`() async throws {
        try await withLab { lab, daemon in
            try await lab.addIPv6()
            try await LabServer.started(lab)
            try await lab.router.nft(
                "add table ip6 hole; add chain ip6 hole pass { type filter hook forward priority 0; }; "
                    + "add rule ip6 hole pass drop")
            try lab.host.hosts("\(LabFamily.ipv6.server) \(Self.name)", "\(Lab.serverAddress) \(Self.name)")
            try daemon.session(endpoint: Self.endpoint, heartbeat: "600s", dial: "1min", authenticate: "1min")
            try await daemon.start()
            let connected = try await daemon.events().until(.connected)
            #expect(connected.path?.source == LabFamily.ipv4.source(0))
            let status = try await daemon.status()
            #expect(status.counters.attempts == 1)
            let network = try await daemon.call(NetworkStatusMethod.self, .init())
            #expect(network.paths.map(\.source) == [LabFamily.ipv4.source(0)])
        }
    }

    @Test func `the other family is used when the one in use is lost for good`() async throws {
        try await withLab { lab, daemon in
            try await lab.addIPv6()
            try await LabServer.started(lab)
            try lab.host.hosts("\(LabFamily.ipv6.server) \(Self.name)", "\(Lab.serverAddress) \(Self.name)")
            // Breaks IPv4, so that it is not the family in use at first.
            try await lab.breakNetwork()
            try idleSession(daemon)
            try await daemon.start()
            let events = try await daemon.events()
            let connected = try await events.until(.connected)
            #expect(connected.path?.source == LabFamily.ipv6.source(0))
            try await lab.healNetwork()
            try await lab.host.ip("route del \(LabFamily.ipv6.defaultRoute(0))")
            let lost = try await events.until("told that the path is lost") { $0.event == .pathChanged }
            #expect(lost.change == "lost")
            let again = try await events.until("connected by the other family") {
                $0.state == .connected && $0.path?.source == LabFamily.ipv4.source(0)
            }
            #expect(again.resumed == true)
            #expect(try await daemon.status().counters.attempts == 2)
        }
    }

    @Test func `maybe: a family that appears while a session waits is tried early`() async throws {
        try await withLab { lab, daemon in
            try await lab.addIPv6(isOnHost: false)
            try await LabServer.started(lab)
            try await lab.breakNetwork()
            try lab.host.hosts("\(LabFamily.ipv6.server) \(Self.name)", "\(Lab.serverAddress) \(Self.name)")
            try idleSession(daemon, dial: "10s")
            try await daemon.start()
            let events = try await daemon.events()
            try await events.until("waiting after a dial without an answer") {
                $0.phase == .waiting && $0.reason?.code == "dial-timeout"
            }
            try await lab.addIPv6ToHost()
            let told = try await events.until("told that there may be another way") { $0.event == .pathChanged }
            #expect(told.change == "maybe")
            let connected = try await events.until(.connected)
            #expect(connected.path?.source == LabFamily.ipv6.source(0))
            #expect(try await daemon.status().counters.attempts == 2)
        }
    }

    @Test func `a name of the host itself needs no network, for the session as for its check`() async throws {
        try await withLab { lab, daemon in
            try await lab.host.ip("link set up0 down", "link set up1 down")
            try lab.host.hosts("127.0.0.1 localhost", "127.0.1.1 \(Self.name)")
            try idleSession(daemon)
            try await daemon.start()
            let events = try await daemon.events()
            try await events.until("waiting after a refusal") { $0.phase == .waiting && $0.reason?.code == "refused" }
            let check = try await daemon.ctl("check", "main", "--json")
            #expect(check.output.contains("via lo") && check.output.contains("refused"), "\(check)")
        }
    }

    @Test func `check and session give the same reason when the only way is not allowed`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(tables: "[network]\ninterfaces = [\"wlan0\"]")
            try await daemon.start()
            let events = try await daemon.events()
            try await events.until("waiting for the network") { $0.reason?.code == "network-not-allowed" }
            let check = try await daemon.ctl("check", "main", "--json")
            #expect(check.output.contains("network-not-allowed"), "\(check)")
        }
    }

    @Test func `maybe: a default route that moves causes an early attempt while the name does not resolve`()
        async throws
    {
        try await withServer { lab, _, daemon in
            try lab.host.hosts("127.0.0.1 localhost")
            try idleSession(daemon)
            try await daemon.start()
            let events = try await daemon.events()
            try await events.until("waiting for the name") { $0.phase == .waiting && $0.reason?.code == "dns-failed" }
            try lab.host.hosts("\(Lab.serverAddress) \(Self.name)")
            try await lab.host.ip("route replace \(LabFamily.ipv4.defaultRoute(1))")
            let told = try await events.until("told that the name may resolve now") { $0.event == .pathChanged }
            #expect(told.change == "maybe")
            let connected = try await events.until(.connected)
            #expect(connected.path?.source == LabFamily.ipv4.source(1))
            #expect(try await daemon.status().counters.attempts == 2)
        }
    }

    @Test func `maybe: a changed resolver configuration causes an early attempt`() async throws {
        try await withServer { lab, server, daemon in
            try lab.host.hosts("127.0.0.1 localhost")
            try lab.host.resolver("nameserver \(Lab.serverAddress)")
            try idleSession(daemon)
            try await daemon.start()
            let events = try await daemon.events()
            try await events.until("waiting for the name") { $0.phase == .waiting && $0.reason?.code == "dns-failed" }
            try lab.host.hosts("\(Lab.serverAddress) \(Self.name)")
            // The same contents written again, as when a lease is renewed, are not reported.
            try lab.host.resolver("nameserver \(Lab.serverAddress)")
            try lab.host.resolver("nameserver \(Lab.serverAddress)", "search test")
            let told = try await events.until("told that the name may resolve now") { $0.event == .pathChanged }
            #expect(told.change == "maybe")
            try await events.until(.connected)
            #expect(try await daemon.status().counters.attempts == 2)
            // For a connected session, a change is worth a probe.
            try lab.host.resolver("nameserver \(Lab.serverAddress)")
            try await events.until("told of the resolver again") { $0.change == "maybe" }
            try await until("the server is probed") { await server.log.contains("Received PINGREQ") }
            #expect(try await daemon.status().counters.outages == 0)
        }
    }

    @Test func `a name with another address in another network is followed there`() async throws {
        try await withLab { lab, daemon in
            try await lab.addIPv6(isOnHost: false)
            try await LabServer.started(lab)
            try lab.host.hosts("\(Lab.serverAddress) \(Self.name)")
            try idleSession(daemon)
            let events = try await daemon.startConnected()
            try await lab.uplinkDown()
            try await events.until(.waitingForNetwork)
            // The next network has only IPv6, and there the name has only an IPv6 address.
            try lab.host.hosts("\(LabFamily.ipv6.server) \(Self.name)")
            try await lab.host.ip("link set up0 up")
            try await lab.uplinkIsUp()
            try await lab.addIPv6ToHost()
            let gained = try await events.until("told that there is a path") { $0.event == .pathChanged }
            #expect(gained.change == "gained")
            let connected = try await events.until(.connected)
            #expect(connected.path?.source == LabFamily.ipv6.source(0))
            #expect(connected.resumed == true)
        }
    }
}
