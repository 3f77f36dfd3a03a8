import ControlAPI
import Foundation
import Support
import Testing

extension EndToEnd {
    @Test func `a rejected password ends all attempts until a person connects`() async throws {
        try await withLab { lab, daemon in
            var options = LabServer.Options()
            options.users = ["main": "right"]
            let server = try await LabServer.started(lab, options)
            let secret = try lab.write("secret", "wrong\n")
            try daemon.session(
                top: "password = \"file:\(secret)\"\ninsecure = true", dial: "1min", authenticate: "1min")
            let bystander = try await Bystander(lab, daemon)
            try await daemon.start()
            let events = try await daemon.events()
            let failed = try await events.until(.failed)
            let code = try #require(failed.reason?.code)
            #expect(code == "not-authorized", "mosquitto does not say that it is the password")
            #expect(failed.reason?.terminal == true)
            let before = try await daemon.status()
            // The second attempt only checked whether there is another password by now.
            #expect(before.counters.attempts == 2)
            // Neither news from the kernel nor the end of the table's delays are a reason.
            for _ in 1...2 {
                try await lab.host.ip("route replace default via 10.77.1.254")
                try await lab.host.ip("route replace default via 10.77.0.254")
                try await bystander.goesThroughAnOutage()
            }
            #expect(try await daemon.status().counters.attempts == 2)
            #expect(await server.log.components(separatedBy: "New connection from").count == 2)

            // The failure survives a crash.
            try await daemon.kill()
            try await daemon.start()
            let again = try await daemon.status()
            #expect(again.state == .failed)
            #expect(again.reason?.code == code)

            try lab.write(secret, "right\n")
            try await daemon.connect()
            try await events.until(.connected)
        }
    }

    @Test func `a certificate is verified against the right authority and name`() async throws {
        try await withLab { lab, daemon in
            let certificates = try await Certificates(lab, name: "broker.lab")
            var options = LabServer.Options()
            options.port = 8883
            options.certificate = certificates.certificate
            options.key = certificates.key
            try await LabServer.started(lab, options)
            let endpoint = "mqtts://\(Lab.serverAddress):8883"
            func session(_ name: String, authority: String?, serverName: String?) throws {
                let ca = authority.map { "ca = \"\($0)\"\n" } ?? ""
                let expected = serverName.map { "server-name = \"\($0)\"" } ?? ""
                try daemon.session(name, endpoint: endpoint, tables: "[tls]\n\(ca)\(expected)")
            }
            try session("right", authority: certificates.authority, serverName: "broker.lab")
            try session("wrong-name", authority: certificates.authority, serverName: "other.lab")
            try session("no-name", authority: certificates.authority, serverName: nil)
            try session("wrong-authority", authority: nil, serverName: "broker.lab")
            try await daemon.start()
            try await daemon.events(of: "right").until(.connected)
            let status = try await daemon.status("right")
            #expect(status.tls == "TLSv1.3")
            for name in ["wrong-name", "no-name", "wrong-authority"] {
                let failed = try await daemon.events(of: name).until(.failed)
                #expect(failed.reason?.code == "certificate-invalid", "\(name)")
                #expect(failed.reason?.terminal == true, "\(name)")
            }
        }
    }

    @Test(arguments: [
        // After CONNACK: a reserved packet type; a remaining length of five bytes; PUBLISH with QoS 3.
        [0x20, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00], [0x20, 0x03, 0x00, 0x00, 0x00, 0x30, 0xff, 0xff, 0xff, 0xff, 0x01],
        [0x20, 0x03, 0x00, 0x00, 0x00, 0x36, 0x03, 0x00, 0x01, 0x61],
        // Instead of CONNACK.
        Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8),
    ])
    func `a server that sends rubbish is disconnected, and tried again with the table's delays`(
        rubbish: [UInt8]
    ) async throws {
        try await withLab { lab, daemon in
            let server = try await LabFakeServer(lab, port: 1884, answer: rubbish)
            defer { server.stop() }
            try await LabServer.started(lab)
            try daemon.session(
                "fake", endpoint: "mqtt://\(Lab.serverAddress):1884", top: "autoconnect = false", dial: "1min",
                authenticate: "1min")
            try daemon.session("good")
            try await daemon.start()
            let events = try await daemon.events(of: "fake")
            try await daemon.connect("fake")
            let code = rubbish.starts(with: "HTTP".utf8) ? "wrong-protocol" : "protocol-error"
            // The table's values with full jitter; the first one is the spread. A brief connection, as after the
            // CONNACK with which some of the rubbish begins, does not restart the table.
            for limit in [0.2, 0.25, 0.5, 1] {
                let waiting = try await events.until("waiting") { $0.phase == .waiting }
                #expect(waiting.reason?.code == code)
                #expect(try #require(waiting.retryIn) <= limit, "\(waiting.line)")
            }
            try await daemon.events(of: "good").until(.connected)
            #expect(await daemon.isRunning)
        }
    }

    @Test func `a second daemon is refused, and the first is not disturbed`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "60s")
            let events = try await daemon.startConnected()
            func second(state: String, socket: String) async throws -> (LabProcess.Ending, String) {
                let result = try await lab.finish(
                    [
                        "\(DaemonProcess.programs)/holdfastd", "--config-directory", daemon.configuration,
                        "--state-directory",
                        state, "--socket", socket,
                    ], in: lab.host)
                return (result.ending, result.errors)
            }
            let other = "\(lab.directory)/other"
            try FileManager.default.createDirectory(atPath: other, withIntermediateDirectories: true)
            let sameState = try await second(state: daemon.state, socket: "\(other)/control.sock")
            #expect(sameState.0 == .exited(75))
            #expect(sameState.1.contains(daemon.state))
            let sameSocket = try await second(state: other, socket: daemon.socket)
            #expect(sameSocket.0 == .exited(74))
            #expect(sameSocket.1.contains("another holdfastd already serves \(daemon.socket)"))

            try await daemon.publish("1", to: "still/there", wait: .delivered)
            #expect(try await daemon.status().counters.connects == 1)
            let told = await events.rest()
            #expect(!told.contains { $0.event == .stateChanged })
        }
    }
}
