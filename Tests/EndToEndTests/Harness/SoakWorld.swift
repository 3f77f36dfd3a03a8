import ControlAPI
import Glibc
import Support

/// The lab of a soak, and what is done to it. Two daemons have two sessions each, with MQTT 5 and 3.1.1: one daemon is
/// killed and stopped now and then, the other one keeps running. A third daemon, beside the server, exchanges messages
/// with both.
struct SoakWorld {
    /// A session, and the daemon that has it.
    struct Member {
        var daemon: DaemonProcess
        var session: String
        /// The version as mosquitto's clients write it.
        var version: LabVersion
    }

    let lab: Lab
    let server: LabServer
    let killed: DaemonProcess
    let steady: DaemonProcess
    let far: DaemonProcess
    let members: [Member]

    private var uplink = 0
    /// The last byte of each uplink's address.
    private var hosts = [1, 1]

    init(_ lab: Lab, _ daemon: DaemonProcess) async throws {
        self.lab = lab
        server = try await LabServer(lab)
        killed = daemon
        steady = DaemonProcess(lab, name: "steady", record: daemon.record)
        far = DaemonProcess(lab, name: "far", in: lab.server, record: EventRecord())
        members = [(killed, "killed"), (steady, "steady")].flatMap { daemon, name in
            [
                Member(daemon: daemon, session: "\(name)-5", version: .five),
                Member(daemon: daemon, session: "\(name)-3", version: .threeOneOne),
            ]
        }
    }

    func start() async throws {
        try await server.start()
        for member in members {
            try member.daemon.session(
                member.session, heartbeat: "2s",
                tables: "[mqtt]\nversion = \"\(member.version == .five ? "5" : "3.1.1")\"")
        }
        try far.session("far", heartbeat: "5s")
        for daemon in [killed, steady, far] { try await daemon.start() }
        try await connected()
    }

    /// Waits until a message of every session has gone through. A displaced session is told to connect, as a person
    /// would do.
    func connected() async throws {
        for member in members + [Member(daemon: far, session: "far", version: .five)] {
            try await until("\(member.session) is connected", within: .seconds(300)) {
                let status = try? await member.daemon.status(member.session)
                if status?.reason?.code == "displaced", status?.state == .failed {
                    try await member.daemon.connect(member.session)
                }
                return status?.state == .connected
            }
            // The session may not have noticed yet that it is no longer connected.
            try await until("a message of \(member.session) is through", within: .seconds(300)) {
                (try? await member.daemon.publish("", to: "probe", session: member.session, wait: .delivered)) != nil
            }
        }
    }

    // MARK: Faults

    mutating func begin(_ fault: SoakFault, _ moments: inout Moments) async throws {
        switch fault {
        case .linkDown: try await lab.host.ip("link set up\(uplink) down")
        case .addressChanged:
            let old = address(uplink)
            hosts[uplink] = hosts[uplink] % 100 + 1
            try await lab.host.ip(
                "addr del \(old) dev up\(uplink)", "addr add \(address(uplink)) dev up\(uplink)",
                "route replace default via \(gateway(uplink))")
        case .routeMoved:
            uplink = 1 - uplink
            try await lab.host.ip("route replace default via \(gateway(uplink))")
        case .uplinkReplaced:
            let old = uplink
            uplink = 1 - uplink
            try await lab.host.ip(
                "addr del \(address(old)) dev up\(old)", "route replace default via \(gateway(uplink))")
        case .blackHole: try await lab.breakNetwork()
        case .deaf: try await forward("ip saddr \(Lab.serverAddress) drop")
        case .reset: try await forward("ip protocol tcp reject with tcp reset")
        case .congestion:
            try await lab.router.run([
                "tc", "qdisc", "add", "dev", "far", "root", "tbf", "rate", "64kbit", "burst", "1600", "latency", "60s",
            ])
        case .serverPaused: await server.pause()
        case .serverKilled: try await server.kill()
        case .serverForgot:
            try await server.kill()
            await server.forget()
        case .takenOver:
            let member = members[Int.random(in: members.indices, using: &moments)]
            // It fails if the session takes its place back before it has published.
            _ = try await lab.finish(
                [
                    "mosquitto_pub", "-V", member.version.rawValue, "-i", member.session, "-t", "intruder", "-m", "x",
                    "-q", "0",
                ], in: lab.server)
        case .daemonPaused: await killed.pause()
        case .daemonStopped: _ = try await killed.stop()
        case .daemonKilled: try await killed.kill()
        }
    }

    mutating func end(_ fault: SoakFault) async throws {
        switch fault {
        case .linkDown:
            try await lab.host.ip("link set up\(uplink) up")
            try await until("up\(uplink) is up") {
                try await lab.host.ip("link show up\(uplink)").contains("state UP")
            }
            try await lab.host.ip("route replace default via \(gateway(uplink))")
        case .uplinkReplaced: try await lab.host.ip("addr add \(address(1 - uplink)) dev up\(1 - uplink)")
        case .blackHole: try await lab.healNetwork()
        case .deaf, .reset: try await lab.router.nft("delete table ip soak")
        case .congestion: try await lab.router.run(["tc", "qdisc", "del", "dev", "far", "root"])
        case .serverPaused: await server.resume()
        case .serverKilled, .serverForgot: try await server.start()
        case .daemonPaused: await killed.resume()
        case .daemonStopped, .daemonKilled: try await killed.start()
        case .addressChanged, .routeMoved, .takenOver: break
        }
    }

    private func address(_ uplink: Int) -> String { "10.77.\(uplink).\(hosts[uplink])/24" }
    private func gateway(_ uplink: Int) -> String { "10.77.\(uplink).254" }

    /// Adds a rule for everything that the router forwards.
    private func forward(_ rule: String) async throws {
        try await lab.router.nft(
            "add table ip soak; add chain ip soak pass { type filter hook forward priority 0; }; "
                + "add rule ip soak pass \(rule)")
    }
}
