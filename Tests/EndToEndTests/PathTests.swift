import ControlAPI
import Foundation
import Support
import Testing

/// What a change of the kernel's tables means for a session: every row of the class table, with the real kernel. The
/// session's events and counters and the server's log show what it did, not the time that it took.
extension EndToEnd {
    @Suite struct Paths {}
}

extension EndToEnd.Paths {
    /// Runs a test with a session that is connected over the first uplink and sends nothing on its own for the whole
    /// test. An attempt may take as long as it needs on a busy machine.
    private func withQuietSession(
        _ family: LabFamily = .ipv4, dial: String = "1min",
        _ body: (Lab, DaemonProcess, LabServer, EventFeed) async throws -> Void
    ) async throws {
        try await withLab { lab, daemon in
            if family == .ipv6 { try await lab.addIPv6() }
            let server = try await LabServer.started(lab)
            try daemon.session(endpoint: family.endpoint, heartbeat: "600s", dial: dial, authenticate: "1min")
            try await daemon.start()
            let events = try await daemon.events()
            let connected = try await events.until(.connected)
            #expect(connected.path?.source == family.source(0))
            #expect(connected.path?.interface == "up0")
            try await body(lab, daemon, server, events)
        }
    }

    private func probed(_ server: LabServer) async throws {
        try await until("the server is asked for a sign of life") { await server.log.contains("Received PINGREQ") }
    }

    // MARK: The rows

    @Test func `none: five hundred containers that come and go are not reported`() async throws {
        try await withQuietSession { lab, daemon, server, events in
            let (before, log) = (try await daemon.status(), await daemon.log)
            // As for 500 containers: a pair of interfaces each, with an address at one end, set up and removed.
            try await lab.host.ip(
                (0..<500).map { "link add c\($0) group 7 type veth peer name d\($0) group 7" } + ["link set group 7 up"]
                    + (0..<500).map { "addr add 10.88.\($0 / 250).\($0 % 250)/32 dev c\($0)" })
            try await lab.host.ip("link del group 7")

            // Once the daemon reports the change that matters, it has handled all of these.
            try await lab.host.ip("route del \(LabFamily.ipv4.defaultRoute(0))")
            try await events.until("told that the path is lost") { $0.event == .pathChanged }
            // What comes after that depends on how long these steps take.
            let all = await events.all
            let told = try all[...#require(all.firstIndex { $0.event == .pathChanged })]
            #expect(told.last?.change == "lost")
            #expect(!told.contains { $0.event == .stateChanged && $0.state != .connected })
            let network = try await daemon.call(NetworkStatusMethod.self, .init())
            #expect(network.changes.map(\.class) == ["lost"])
            // If the daemon is slower than the kernel, messages are lost, and it looks at everything again instead.
            let isOverrun = try #require(network.counters["overruns"]) > 0
            #expect(try isOverrun || #require(network.counters["hints"]) >= 2000)
            #expect(try #require(network.counters["none"]) > 0)
            #expect(await !server.log.contains("Received PINGREQ"))
            #expect(try await daemon.status().counters.attempts == before.counters.attempts)
            if !isOverrun { #expect(await daemon.log == log) }
        }
    }

    @Test(arguments: LabFamily.allCases)
    func `moved, source kept: the connection is probed, and left only for the new path`(
        _ family: LabFamily
    ) async throws {
        try await withQuietSession(family) { lab, daemon, server, events in
            try await lab.host.ip("route replace \(family.defaultRoute(1))")
            let moved = try await events.until("told that the path moved") { $0.event == .pathChanged }
            #expect(moved.change == "moved-source-kept")
            #expect(moved.path?.interface == "up1")
            try await probed(server)
            try await daemon.publish("still here", to: "path", wait: .delivered)
            // A session that moves to the new path on its own says so.
            let told = await events.all
            #expect(told.allSatisfy { $0.state != .reconnecting || $0.reason?.code == "path-moved" })
        }
    }

    @Test(arguments: LabFamily.allCases)
    func `moved, source gone: the connection is dropped, and one attempt is enough`(_ family: LabFamily) async throws {
        try await withQuietSession(family) { lab, daemon, server, events in
            let before = try await daemon.status()
            try await lab.host.ip("route add \(family.defaultRoute(1)) metric 2000", family.removal(0))
            let lost = try await events.until(.reconnecting)
            #expect(lost.reason?.code == "path-moved")
            let connected = try await events.until(.connected)
            #expect(connected.path?.source == family.source(1))
            #expect(connected.resumed == true)
            let told = await events.all
            #expect(told.contains { $0.change == "moved-source-gone" })
            #expect(try await daemon.status().counters.attempts == before.counters.attempts + 1)
        }
    }

    @Test(arguments: LabFamily.allCases)
    func `moved, source gone later: the connection is dropped then, and the one being set up takes over`(
        _ family: LabFamily
    ) async throws {
        try await withQuietSession(family, dial: "3min") { lab, daemon, server, events in
            let before = try await daemon.status()
            // Nothing passes over the other uplink for now, so the old connection stays while the next one is dialed.
            try await lab.router.nft(
                "add table inet hole; add chain inet hole pass { type filter hook forward priority 0; }; "
                    + "add rule inet hole pass \(family == .ipv4 ? "ip" : "ip6") saddr \(family.source(1)) drop")
            try await lab.host.ip("route replace \(family.defaultRoute(1))")
            try await events.until("told that the path moved") { $0.change == "moved-source-kept" }
            try await daemon.publish("still here", to: "path", wait: .delivered)
            #expect(try await daemon.status().counters.outages == 0)
            try await lab.host.ip(family.removal(0))
            // In this order, and not because something was left unanswered.
            let gone = try await events.until("told that the address is gone") { $0.change == "moved-source-gone" }
            #expect(gone.path?.source == family.source(1))
            let lost = try await events.until(.reconnecting)
            #expect(lost.reason?.code == "path-moved")
            try await lab.router.nft("delete table inet hole")
            let connected = try await events.until(.connected)
            #expect(connected.path?.source == family.source(1))
            #expect(connected.resumed == true)
            let told = await events.all
            #expect(told.filter { $0.event == .pathChanged }.count == 2)
            #expect(try await daemon.status().counters.attempts == before.counters.attempts + 1)
            let network = try await daemon.call(NetworkStatusMethod.self, .init())
            #expect(network.changes.map(\.class) == ["moved-source-kept", "moved-source-gone"])
            #expect(network.changes.allSatisfy { $0.from?.interface == "up0" && $0.to?.interface == "up1" })
        }
    }

    @Test func `moved, source gone later: a connection whose address has gone is replaced at once`() async throws {
        try await withQuietSession { lab, daemon, server, events in
            let before = try await daemon.status()
            // Connections over the other uplink are refused until the session has tried one.
            try await lab.router.nft(
                "add table ip wall; add chain ip wall pass { type filter hook forward priority 0; }; "
                    + "add rule ip wall pass tcp flags syn ip saddr 10.77.1.1 counter reject with tcp reset")
            try await lab.host.ip("route replace \(LabFamily.ipv4.defaultRoute(1))")
            try await events.until("told that the path moved") { $0.change == "moved-source-kept" }
            try await until("the other uplink was tried") {
                try await !lab.router.run(["nft", "list table ip wall"]).contains("counter packets 0 ")
            }
            try await daemon.publish("still here", to: "path", wait: .delivered)
            try await lab.router.nft("delete table ip wall")
            try await lab.host.ip(LabFamily.ipv4.removal(0))
            try await events.until("told that the address is gone") { $0.change == "moved-source-gone" }
            let lost = try await events.until(.reconnecting)
            #expect(lost.reason?.code == "path-moved")
            let connected = try await events.until(.connected)
            #expect(connected.path?.source == "10.77.1.1")
            #expect(try await daemon.status().counters.attempts == before.counters.attempts + 1)
        }
    }

    @Test(arguments: LabFamily.allCases)
    func `lost and returned: the connection is held, and probed when the path is back`(
        _ family: LabFamily
    ) async throws {
        try await withQuietSession(family) { lab, daemon, server, events in
            let loss = try await BriefLoss(daemon, events) {
                try await lab.host.ip("route del \(family.defaultRoute(0))")
            } giveBack: {
                try await lab.host.ip("route add \(family.defaultRoute(0))")
            }
            try await probed(server)
            try await loss.expectNoOutage(daemon, events)
        }
    }

    @Test(arguments: LabFamily.allCases)
    func `lost and returned: a carrier that goes and comes leaves the routes, and costs nothing`(
        _ family: LabFamily
    ) async throws {
        try await withQuietSession(family) { lab, daemon, server, events in
            let loss = try await BriefLoss(daemon, events) {
                try await lab.router.ip("link set near0 down")
            } giveBack: {
                let routes = try await lab.host.ip(family == .ipv4 ? "route" : "-6 route")
                #expect(routes.split(separator: "\n").contains { $0.hasPrefix("default") && $0.contains("linkdown") })
                // The host no longer has the address there, which was removed with the link.
                try await lab.router.ip(
                    ["link set near0 up"] + (family == .ipv4 ? [] : ["addr add 2001:db8:77:a0::fe/64 dev near0 nodad"]))
            }
            try await probed(server)
            try await loss.expectNoOutage(daemon, events)
        }
    }

    @Test(arguments: LabFamily.allCases)
    func `lost for long: the session waits for the network, and gained: it connects at once`(
        _ family: LabFamily
    ) async throws {
        try await withQuietSession(family) { lab, daemon, server, events in
            let before = try await daemon.status()
            try await lab.host.ip("route del \(family.defaultRoute(0))")
            let lost = try await events.until("told that the path is lost") { $0.event == .pathChanged }
            #expect(lost.change == "lost")
            let waiting = try await events.until(.waitingForNetwork)
            #expect(waiting.reason?.code == "path-lost")
            #expect(waiting.retryIn == nil)
            #expect(try await daemon.status().counters.attempts == before.counters.attempts)
            try await lab.host.ip("route add \(family.defaultRoute(0))")
            let gained = try await events.until("told that there is a path") { $0.event == .pathChanged }
            #expect(gained.change == "gained")
            let connected = try await events.until(.connected)
            #expect(connected.resumed == true)
            #expect(try await daemon.status().counters.attempts == before.counters.attempts + 1)
        }
    }

    /// The kernel goes on naming the route without a carrier until packets have got nowhere there, and says nothing when it
    /// takes the other one. With IPv4 it does so only if both have the same metric.
    @Test(arguments: LabFamily.allCases)
    func `lost, with another uplink: the session tries, and finds the route that the kernel takes then`(
        _ family: LabFamily
    ) async throws {
        try await withQuietSession(family) { lab, daemon, server, events in
            try await lab.host.ip(
                family == .ipv4
                    ? "route append \(family.defaultRoute(1))" : "route add \(family.defaultRoute(1)) metric 2000")
            try await lab.router.ip("link set near0 down")
            let lost = try await events.until("told that the path is lost") { $0.event == .pathChanged }
            #expect(lost.change == "lost")
            let connected = try await events.until("connected over the other uplink") {
                $0.state == .connected && $0.path?.source == family.source(1)
            }
            #expect(connected.resumed == true)
            #expect(connected.path?.interface == "up1")
            #expect(try await daemon.status().path?.interface == "up1")
            let told = await events.all
            #expect(!told.contains { $0.phase == .waitingForNetwork })
        }
    }

    @Test(arguments: LabFamily.allCases)
    func `lost, with another uplink: a check tries, as the session does`(_ family: LabFamily) async throws {
        try await withQuietSession(family) { lab, daemon, server, events in
            try await lab.host.ip(
                family == .ipv4
                    ? "route append \(family.defaultRoute(1))" : "route add \(family.defaultRoute(1)) metric 2000")
            try await lab.router.ip("link set near0 down")
            try await events.until("told that the path is lost") { $0.event == .pathChanged }
            let steps = try await daemon.call(CheckRunMethod.self, .init(session: "main")).endpoints.flatMap(\.steps)
            #expect(steps.first { $0.step == .route }?.ok == true, "\(steps)")
            #expect(steps.contains { $0.step == .tcp }, "\(steps)")
        }
    }

    // MARK: More news than the kernel can deliver

    @Test func `two thousand routes at once overrun the socket, and a change among them is still noticed`() async throws
    {
        try await withQuietSession { lab, daemon, server, events in
            await daemon.pause()
            // 1 MiB of news may wait to be read; whatever comes after that is lost.
            for round in 0..<4 {
                let routes = (0..<2000).map { "10.\(100 + $0 / 250).\($0 % 250).0/24 dev up1" }
                try await lab.host.ip(routes.map { "route \(round % 2 == 0 ? "add" : "del") \($0)" })
            }
            try await lab.host.ip("route del \(LabFamily.ipv4.defaultRoute(0))")
            await daemon.resume()
            let lost = try await events.until("told that the path is lost") { $0.event == .pathChanged }
            #expect(lost.change == "lost")
            let network = try await daemon.call(NetworkStatusMethod.self, .init())
            #expect(try #require(network.counters["overruns"]) > 0)
            let told = await daemon.log.split(separator: "\n").filter { $0.contains("faster than it could be read") }
            #expect(told.count == 1)
            // The daemon still listens to the kernel.
            try await lab.host.ip("route add \(LabFamily.ipv4.defaultRoute(0))")
            let back = try await events.until("told that the path is back") { $0.event == .pathChanged }
            if BriefLoss.isShort(lost, back) {
                #expect(back.change == "returned")
            } else {
                #expect(["returned", "gained"].contains(back.change))
            }
            try await daemon.publish("still here", to: "path", wait: .delivered)
        }
    }

    // MARK: For people

    @Test func `the last 32 changes are shown with their class`() async throws {
        try await withQuietSession { lab, daemon, server, events in
            let route = LabFamily.ipv4.defaultRoute(0)
            for _ in 1...20 {
                try await lab.host.ip("route del \(route)")
                try await events.until("told that the path is lost") { $0.change == "lost" }
                try await lab.host.ip("route add \(route)")
                // It has only gained one if the machine stalled while it was lost.
                try await events.until("told that the path is back") {
                    $0.change == "returned" || $0.change == "gained"
                }
            }
            try await lab.host.ip("route del \(route)")
            try await events.until("told that the path is lost") { $0.change == "lost" }

            let network = try await daemon.call(NetworkStatusMethod.self, .init())
            let isLost = network.changes.map { $0.class == "lost" }
            #expect(isLost == (1...32).map { $0 % 2 == 0 })
            #expect(network.changes.allSatisfy { ["lost", "returned", "gained"].contains($0.class) })
            #expect(network.changes.allSatisfy { $0.session == "main" })
            #expect(
                network.changes.allSatisfy {
                    ($0.class == "lost" ? $0.from : $0.to)?.interface == "up0"
                        && ($0.class == "lost" ? $0.to : $0.from) == nil
                })
            #expect(zip(network.changes, network.changes.dropFirst()).allSatisfy { $0.time <= $1.time })
            #expect(network.paths.map(\.interface) == [nil])

            let (ending, output, errors) = try await daemon.ctl("network")
            #expect(ending == .exited(0), "\(errors)")
            let lines = output.split(separator: "\n")
            #expect(lines.filter { $0.hasSuffix(", none → up0") }.count == 16)
            #expect(lines.filter { $0.hasSuffix("main: lost, up0 → none") }.count == 16)
            #expect(lines.last?.hasSuffix("main: lost, up0 → none") == true)
            #expect(lines.first == "There is no path to any endpoint.")
        }
    }
}
