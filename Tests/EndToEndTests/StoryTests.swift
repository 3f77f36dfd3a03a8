import ControlAPI
import Foundation
import HoldfastClient
import Support
import Testing

/// Stories of ScenarioTests that can be told with a real mosquitto, with shorter times. Others are with their subject:
/// kick strategies and presence in RoomTests, lost sessions in StreamTests, publications in PublicationTests.
extension EndToEnd {
    @Test func `ZEGO: A is not back in time, so A has failed and B saw A leave`() async throws {
        try await withLab { lab, a in
            try await LabServer.started(lab)
            let b = DaemonProcess(lab, name: "b", record: a.record)
            for (daemon, user, extra) in [(a, "a", "give-up-after = \"6s\""), (b, "b", "")] {
                try daemon.writeSession(
                    "main",
                    """
                    endpoints = ["mqtt://\(Lab.serverAddress):1883"]
                    user = "\(user)"
                    room = "r"
                    [reconnect]
                    delays = ["50ms", "500ms"]
                    \(extra)
                    [heartbeat]
                    interval = "1s"
                    timeout = "1s"
                    [presence]
                    timeout = "4s"
                    """)
            }
            let seen = try await b.startConnected()
            let events = try await a.startConnected()
            try await seen.until("told that A joined") { $0.event == .participantJoined && $0.user == "a" }

            // Only A falls silent here; the network that breaks later is that of both.
            await a.pause()
            // On a busy machine, B itself may have been away for too long before.
            try await seen.until("told that A left") { $0.event == .participantLeft && $0.user == "a" }
            try await lab.breakNetwork()
            await a.resume()
            let failed = try await events.until(.failed)
            #expect(failed.reason?.code == "retry-timeout")
            try await lab.healNetwork()
            try await a.connect()
            try await events.until(.connected)
        }
    }

    @Test func `Agora: an outage is reported lost once, after a while, while attempts go on`() async throws {
        try await withServer { lab, server, daemon in
            try daemon.writeSession(
                "main",
                """
                endpoints = ["mqtt://\(Lab.serverAddress):1883"]
                user = "a"
                preset = "agora"
                [reconnect]
                delays = ["50ms", "250ms"]
                lost-after = "1s"
                """)
            let events = try await daemon.startConnected()
            try await server.kill()
            let lost = try await events.until("connection-lost") { $0.event == .connectionLost }
            #expect(lost.outage ?? 0 >= 1)
            #expect(try await daemon.status().lost)
            try await server.start()
            try await events.until(.connected)
            #expect(await events.all.filter { $0.event == .connectionLost }.count == 1)
        }
    }

    @Test func `Nexconn: a session on demand is up while it is used`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(top: "on-demand = true\nidle-timeout = \"1s\"")
            try await daemon.start()
            #expect(try await daemon.status().state == .disconnected)
            let events = try await daemon.events()
            let far = try await LabSubscriber(lab, filter: "out")
            for number in 1...3 {
                try await daemon.publish("\(number)", to: "out")
                try await events.until(.connected)
                let idle = try await events.until(.disconnected)
                #expect(idle.reason?.code == "idle")
            }
            try await far.received("all three") { $0.map(\.payload) == ["1", "2", "3"] }
        }
    }

    @Test func `a client certificate is replaced under a running session, by a good one and by a broken one`()
        async throws
    {
        try await withLab { lab, daemon in
            let certificates = try await Certificates(lab, name: "broker.lab")
            let own = "\(lab.directory)/client"
            try await certificates.issue("first", to: own, in: lab)
            var options = LabServer.Options()
            options.port = 8883
            (options.certificate, options.key) = (certificates.certificate, certificates.key)
            options.clientAuthority = certificates.authority
            let server = try await LabServer.started(lab, options)
            try daemon.session(
                endpoint: "mqtts://\(Lab.serverAddress):8883", heartbeat: "30s", dial: "1min", authenticate: "1min",
                tables: """
                    [tls]
                    ca = "\(certificates.authority)"
                    server-name = "broker.lab"
                    certificate = "\(own).pem"
                    key = "\(own).key"
                    """)
            let events = try await daemon.startConnected()
            try await until("the first certificate's name") { await server.log.contains("u'first'") }

            try await certificates.issue("second", to: own, in: lab)
            _ = try await daemon.ctl("reconnect", "main")
            try await events.until(.reconnecting)
            try await events.until(.connected)
            try await until("the second certificate's name") { await server.log.contains("u'second'") }

            // The new certificate is broken: the last good one stays in use, and that is reported.
            try lab.write("\(own).pem", "-----BEGIN CERTIFICATE-----\nnonsense\n")
            _ = try await daemon.ctl("reconnect", "main")
            try await events.until(.reconnecting)
            try await events.until(.connected)
            #expect(await server.log.components(separatedBy: "u'second'").count == 3)
            #expect(await daemon.log.contains("client.pem"))
        }
    }
}
