import ControlAPI
import Foundation
import Support
import Testing

extension EndToEnd {
    @Test func `a session over WebSocket works like any other, with and without TLS`() async throws {
        try await withLab { lab, daemon in
            let certificates = try await Certificates(lab, name: "broker.lab")
            var options = LabServer.Options()
            options.webSocketPort = 8080
            options.secureWebSocketPort = 8443
            options.certificate = certificates.certificate
            options.key = certificates.key
            try await LabServer.started(lab, options)
            let address = Lab.serverAddress
            try daemon.session("plain", endpoint: "ws://\(address):8080/mqtt")
            let tls = "[tls]\nca = \"\(certificates.authority)\"\nserver-name = "
            try daemon.session("secure", endpoint: "wss://\(address):8443", tables: tls + "\"broker.lab\"")
            try daemon.session("wrong-name", endpoint: "wss://\(address):8443", tables: tls + "\"other.lab\"")
            // A port where MQTT is spoken, but not HTTP.
            try daemon.session("no-websocket", endpoint: "ws://\(address):1883", dial: "1min")
            try await daemon.start()

            let far = try await LabSubscriber(lab, filter: "far/#")
            for name in ["plain", "secure"] {
                let events = try await daemon.events(of: name)
                try await events.until(.connected)
                try await daemon.publish("1", to: "far/\(name)", session: name, qos: .exactlyOnce, wait: .delivered)
                // Larger than one read, than one of mosquitto's frames, and than one TLS record.
                let large = String(repeating: "x", count: 300_000)
                try await daemon.publish(large, to: "far/\(name)", session: name, wait: .delivered)
            }
            try await far.received("all of it is there") { $0.count == 4 }
            #expect(far.messages.map(\.payload.count).sorted() == [1, 1, 300_000, 300_000])
            #expect(try await daemon.status("secure").tls == "TLSv1.3")
            #expect(try await daemon.status("plain").tls == nil)
            #expect(try await daemon.status("plain").peer == "\(address):8080")

            let wrong = try await daemon.events(of: "wrong-name").until(.failed)
            #expect(wrong.reason?.code == "certificate-invalid")
            let none = try await daemon.events(of: "no-websocket").until("waiting") { $0.phase == .waiting }
            #expect(none.reason?.code == "websocket-failed")
            #expect(none.reason?.terminal == false)

            // The session is resumed like any other, and what was accepted meanwhile is there.
            let events = try await daemon.events(of: "secure")
            try await lab.breakNetwork()
            try await events.until(.reconnecting)
            try await daemon.publish("2", to: "far/secure", session: "secure")
            try await lab.healNetwork()
            let back = try await events.until(.connected)
            #expect(back.resumed == true)
            try await far.received("what was accepted meanwhile is there") { $0.contains { $0.payload == "2" } }
            #expect(try await daemon.disconnect("plain") != .failed)
            try await daemon.events(of: "plain").until(.disconnected)
        }
    }

    @Test func `a session connects where a proxy is the only way out`() async throws {
        try await withLab { lab, daemon in
            let certificates = try await Certificates(lab, name: "broker.lab")
            var options = LabServer.Options()
            options.secureWebSocketPort = 8443
            options.certificate = certificates.certificate
            options.key = certificates.key
            let server = try await LabServer.started(lab, options)
            // The router forwards nothing; its own connections still work.
            try await lab.breakNetwork()
            let router = "10.77.0.254"
            let configuration = try lab.write(
                "tinyproxy.conf",
                """
                Port 3128
                Listen \(router)
                Timeout 600
                BasicAuth edge right
                ConnectPort 1883
                ConnectPort 8443

                """)
            _ = try await lab.start("tinyproxy", ["tinyproxy", "-d", "-c", configuration], in: lab.router)
            _ = try await lab.start(
                "microsocks", ["microsocks", "-i", router, "-p", "1080", "-u", "edge", "-P", "right"], in: lab.router)
            let right = try lab.write("right", "right\n")
            let wrong = try lab.write("wrong", "wrong\n")
            func session(_ name: String, _ endpoint: String, _ proxy: String, _ password: String? = nil) throws {
                let login = password.map { "username = \"edge\"\npassword = \"file:\($0)\"\n" } ?? ""
                try daemon.session(
                    name, endpoint: endpoint,
                    tables: """
                        [tls]
                        ca = "\(certificates.authority)"
                        server-name = "broker.lab"
                        [proxy]
                        url = "\(proxy)"
                        \(login)
                        """)
            }
            let plain = "mqtt://\(Lab.serverAddress):1883"
            let secure = "wss://\(Lab.serverAddress):8443"
            try session("http", plain, "http://\(router):3128", right)
            try session("http-secure", secure, "http://\(router):3128", right)
            try session("socks", plain, "socks5://\(router)", right)
            try session("socks-secure", secure, "socks5://\(router)", right)
            try session("http-password", plain, "http://\(router):3128", wrong)
            try session("http-port", "mqtt://\(Lab.serverAddress):1884", "http://\(router):3128", right)
            try session("socks-password", plain, "socks5://\(router)", wrong)
            try session("socks-none", plain, "socks5://\(router)")
            try session("socks-refused", "mqtt://\(Lab.serverAddress):1884", "socks5://\(router)", right)
            try await daemon.start()

            let far = try await LabSubscriber(lab, filter: "far")
            for name in ["http", "http-secure", "socks", "socks-secure"] {
                try await daemon.events(of: name).until(.connected)
                try await daemon.publish(name, to: "far", session: name, wait: .delivered)
                let status = try await daemon.status(name)
                let isHTTP = name.hasPrefix("http")
                #expect(status.proxy == (isHTTP ? "http://\(router):3128" : "socks5://\(router):1080"))
                #expect(status.peer == (isHTTP ? "\(router):3128" : "\(router):1080"))
                #expect(status.endpoint == (name.hasSuffix("secure") ? secure + "/mqtt" : plain))
                #expect(status.tls == (name.hasSuffix("secure") ? "TLSv1.3" : nil))
                #expect(status.path?.interface == "up0")
            }
            try await far.received("all of it is there") { $0.count == 4 }
            #expect(await !server.log.contains("New connection from 10.77.0.1"))
            for (name, words) in [
                ("http-password", "does not accept the user name or password (401)"), ("http-port", "(403)"),
                ("socks-password", "user name or password"),
                ("socks-none", "requires a user name"), ("socks-refused", "refused the connection"),
            ] {
                // The last attempt may have been made before the proxies listened.
                let waiting = try await daemon.events(of: name).until("waiting, for it \(words)") {
                    $0.reason?.code == "proxy-failed" && $0.reason?.message.contains(words) == true
                }
                #expect(waiting.reason?.terminal == false)
            }
            // The wrong password is corrected, and read again at the next attempt.
            try lab.write(wrong, "right\n")
            for name in ["http-password", "socks-password"] { try await daemon.events(of: name).until(.connected) }

            // The session's path is the one to the proxy, so news of that one counts.
            let events = try await daemon.events(of: "http")
            try await lab.uplinkDown()
            try await events.until("told that the path is lost") { $0.change == "lost" }
            try await lab.uplinkUp()
            try await daemon.publish("again", to: "far", session: "http", wait: .delivered)
            for secret in ["right", "wrong"] { #expect(await !daemon.log.contains("edge:\(secret)")) }
        }
    }
}
