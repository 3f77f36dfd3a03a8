import ControlAPI
import Support
import Testing

// Sessions that may not use every network. The host has two uplinks of type ethernet. Tests that need a tunnel, as a
// VPN has one, or something that passes for a modem, make it themselves.

extension EndToEnd {
    @Test func `a session for ethernet waits while the default route is a VPN's, and says why`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "20s", tables: "[network]\ntypes = [\"ethernet\"]")
            try daemon.session("any", heartbeat: "20s")
            let events = try await daemon.startConnected()
            try await daemon.events(of: "any").until(.connected)
            #expect(try await daemon.status().network?.types == ["ethernet"])

            let tunnel = try await LabTunnel("tun7", address: "10.50.0.1/24", in: lab.host)
            let capture = try await LabCapture(lab)
            try await lab.host.ip("route replace default dev tun7")
            try await events.until("told that the path is lost") { $0.change == "lost" }
            let waiting = try await events.until(.waitingForNetwork)
            #expect(waiting.state == .reconnecting)
            #expect(waiting.reason?.code == "network-not-allowed")
            #expect(waiting.reason?.message.contains("tun7 (vpn)") == true)
            let network = try await daemon.call(NetworkStatusMethod.self, .init())
            let path = network.paths.first { $0.session == "main" }
            #expect(path != nil && path?.interface == nil)
            #expect(path?.excluded?.interface == "tun7")
            let shown = try await daemon.ctl("status", "main")
            #expect(shown.output.contains("no network that it may use"))
            #expect(shown.output.contains("only ethernet"))
            let before = try await daemon.status()
            // A session that may use the VPN dials through it, and the kernel repeats that after a second.
            try await until("the other session dials twice") { capture.connects(from: "10.50.0.1").count >= 2 }
            #expect(try await daemon.status().counters.attempts == before.counters.attempts)
            #expect(capture.connects(from: "10.77.0.1").isEmpty)

            try await lab.host.ip("route replace default via 10.77.0.254")
            let connected = try await events.until(.connected)
            #expect(connected.path?.interface == "up0")
            #expect(connected.resumed == true)
            withExtendedLifetime(tunnel) {}
        }
    }

    @Test func `a session for one interface uses it even if the default route uses another`() async throws {
        try await withServer { lab, server, daemon in
            try daemon.session(heartbeat: "20s", tables: "[network]\ninterfaces = [\"up1\"]")
            try await lab.host.ip("route add default via 10.77.1.254 metric 100")
            try await daemon.start()
            let events = try await daemon.events()
            let connected = try await events.until(.connected)
            #expect(connected.path?.interface == "up1")
            let far = try await LabSubscriber(lab, filter: "bound")
            try await daemon.publish("1", to: "bound", wait: .delivered)
            try await far.received("the message is there") { $0.count == 1 }
            #expect(await server.log.contains("from 10.77.1.1"))
            #expect(await !server.log.contains("10.77.0.1"))

            // The session does not use the default route's interface, so the loss of that interface does not matter.
            try await lab.uplinkDown()
            try await daemon.publish("2", to: "bound", wait: .delivered)
            #expect(try await daemon.status().counters.connects == 1)

            // And another interface does not replace the one that it may use.
            try await lab.uplinkUp()
            try await lab.host.ip("link set up1 down")
            try await events.until(.waitingForNetwork)
            #expect(try await daemon.status().reason?.code == "network-not-allowed")
            try await lab.host.ip("link set up1 up", "route add default via 10.77.1.254 metric 100")
            #expect(try await events.until(.connected).path?.interface == "up1")
        }
    }

    @Test func `a session follows the host from one allowed interface to the other at once`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "20s", tables: "[network]\ninterfaces = [\"up0\", \"up1\"]")
            try await daemon.start()
            let events = try await daemon.events()
            #expect(try await events.until(.connected).path?.interface == "up0")
            try await lab.host.ip("route replace default via 10.77.1.254")
            let lost = try await events.until(.reconnecting)
            #expect(lost.reason?.code == "path-moved")
            let connected = try await events.until(.connected)
            #expect(connected.path?.interface == "up1")
            #expect(connected.resumed == true)
        }
    }

    @Test func `a metered network is used only while there is no other`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "20s", tables: "[network]\nmetered = \"avoid\"")
            // To the daemon, the second uplink is a modem, because sysfs says so.
            let modem = try lab.write("modem", "DEVTYPE=wwan\nINTERFACE=up1\nIFINDEX=0\n")
            try await daemon.start(after: "mount --bind \(modem) /sys/class/net/up1/uevent")
            let events = try await daemon.events()
            #expect(try await events.until(.connected).path?.interface == "up0")

            // The kernel now prefers the modem; the session does not.
            try await lab.host.ip(
                "route add default via 10.77.0.254 metric 100", "route replace default via 10.77.1.254")
            try await daemon.publish("1", to: "metered", wait: .delivered)
            #expect(try await daemon.status().path?.interface == "up0")
            #expect(try await daemon.status().counters.connects == 1)

            // Without the other uplink, the modem is used.
            try await lab.uplinkDown()
            let metered = try await events.until("connected by the modem") {
                $0.state == .connected && $0.path?.interface == "up1"
            }
            #expect(metered.path?.type == "cellular")

            try await lab.host.ip("link set up0 up", "route add default via 10.77.0.254 metric 100")
            let back = try await events.until("connected without the modem") {
                $0.state == .connected && $0.path?.interface == "up0"
            }
            #expect(back.resumed == true)
        }
    }

    @Test(arguments: ["metered = \"avoid\"", "interfaces = [\"up1\"]"])
    func `a session with networks of its own reaches a server on this host by the host's own address`(
        _ key: String
    ) async throws {
        try await withLab { lab, daemon in
            // In its local mode, mosquitto listens on the loopback only.
            let settings = try lab.write("own.conf", "listener 1883\nallow_anonymous true\n")
            let server = try await lab.start("mosquitto", ["mosquitto", "-c", settings], in: lab.host)
            try daemon.session(endpoint: "mqtt://10.77.0.1:1883", tables: "[network]\n\(key)")
            try await daemon.start()
            let events = try await daemon.events()
            #expect(try await events.until(.connected).path?.interface == "lo")
            let checked = try await daemon.ctl("check", "main")
            #expect(checked.ending == .exited(0), "\(checked)")
            #expect(await server.isRunning)
        }
    }

    @Test func `a reload of the networks takes effect`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session()
            try await lab.host.ip("route add default via 10.77.1.254 metric 100")
            try await daemon.start()
            let events = try await daemon.events()
            #expect(try await events.until(.connected).path?.interface == "up0")
            try daemon.session(tables: "[network]\ninterfaces = [\"up1\"]")
            _ = try await daemon.ctl("reload")
            let connected = try await events.until("connected by up1") {
                $0.state == .connected && $0.path?.interface == "up1"
            }
            #expect(connected.resumed == true)
            try daemon.session(tables: "[network]\ninterfaces = [\"wlan0\"]")
            _ = try await daemon.ctl("reload")
            let waiting = try await events.until(.waitingForNetwork)
            #expect(waiting.reason?.code == "network-not-allowed")
        }
    }
}
