import ControlAPI
import Foundation
import HoldfastClient
import Support
import Testing

// Faults that no other test of this suite makes. Documentation/Faults.md lists all of them and the tests that make
// them.

extension EndToEnd {
    @Test func `a connection that is reset is replaced at once, and messages in flight arrive`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "60s")
            let events = try await daemon.startConnected()
            let far = try await LabSubscriber(lab, filter: "reset")
            // Like a firewall that has forgotten the connection: every packet is answered with RST.
            try await lab.router.nft(
                "add table ip cut; add chain ip cut pass { type filter hook forward priority 0; }; "
                    + "add rule ip cut pass ip protocol tcp reject with tcp reset")
            try await daemon.publish("1", to: "reset")
            let lost = try await events.until(.reconnecting)
            #expect(lost.reason?.code == "reset")
            #expect(lost.reason?.group == "network")
            try await lab.router.nft("delete table ip cut")
            #expect(try await events.until(.connected).resumed == true)
            try await far.received("the message is there") { $0.map(\.payload) == ["1"] }
        }
    }

    @Test func `an expired certificate is tried again, and the renewed one is used`() async throws {
        try await withLab { lab, daemon in
            let certificates = try await Certificates(lab, name: "broker.lab", days: -1)
            var options = LabServer.Options()
            options.port = 8883
            (options.certificate, options.key) = (certificates.certificate, certificates.key)
            let server = try await LabServer.started(lab, options)
            try daemon.session(
                endpoint: "mqtts://\(Lab.serverAddress):8883", dial: "1min",
                tables: "[tls]\nca = \"\(certificates.authority)\"\nserver-name = \"broker.lab\"")
            try await daemon.start()
            let events = try await daemon.events()
            for _ in 1...3 {
                let waiting = try await events.until("waiting") { $0.phase == .waiting }
                #expect(waiting.reason?.terminal == false)
                #expect(waiting.reason?.message.contains("expired") == true, "\(waiting.reason?.message ?? "")")
            }
            try await certificates.renew(name: "broker.lab", in: lab)
            try await server.kill()
            try await server.start()
            try await events.until(.connected)
        }
    }

    @Test func `a server with another certificate in the place of a known one stops no session`() async throws {
        try await withLab { lab, daemon in
            let known = try await Certificates(lab, name: "broker.lab")
            for file in [known.authority, known.certificate, known.key] {
                try FileManager.default.copyItem(atPath: file, toPath: "\(file).known")
            }
            var options = LabServer.Options()
            options.port = 8883
            (options.certificate, options.key) = (known.certificate, known.key)
            let server = try await LabServer.started(lab, options)
            try daemon.session(
                endpoint: "mqtts://\(Lab.serverAddress):8883", dial: "1min",
                tables: "[tls]\nca = \"\(known.authority).known\"\nserver-name = \"broker.lab\"")
            let events = try await daemon.startConnected()
            // A sign-in page has a certificate of its own too.
            try await server.kill()
            _ = try await Certificates(lab, name: "broker.lab")
            try await server.start()
            let waiting = try await events.until("another certificate") { $0.reason?.code == "tls-failed" }
            #expect(waiting.state == .reconnecting)
            #expect(waiting.reason?.message.contains("may answer in the server's place") == true)
            try await server.kill()
            for file in [known.certificate, known.key] { rename("\(file).known", file) }
            try await server.start()
            try await events.until(.connected)
        }
    }

    @Test(arguments: [true, false])
    func `a session that did not know the server's authority connects when the file of authorities is repaired`(
        isRunning: Bool
    ) async throws {
        try await withLab { lab, daemon in
            let trusted = "\(lab.directory)/trusted.pem"
            let former = try await Certificates(lab, name: "broker.lab")
            rename(former.authority, trusted)
            let certificates = try await Certificates(lab, name: "broker.lab")
            var options = LabServer.Options()
            options.port = 8883
            (options.certificate, options.key) = (certificates.certificate, certificates.key)
            try await LabServer.started(lab, options)
            try daemon.session(
                endpoint: "mqtts://\(Lab.serverAddress):8883", dial: "1min",
                tables: "[tls]\nca = \"\(trusted)\"\nserver-name = \"broker.lab\"")
            try await daemon.start()
            var events = try await daemon.events()
            #expect(try await events.until(.failed).reason?.code == "certificate-invalid")
            if isRunning {
                rename(certificates.authority, trusted)
            } else {
                #expect(try await daemon.stop() == .exited(0))
                rename(certificates.authority, trusted)
                try await daemon.start()
                events = try await daemon.events()
            }
            // A feed that begins after the restart may find it connected.
            #expect(try await events.until(.connected).reason?.code == "credential-changed")
        }
    }

    @Test func `a session connects when its server's authority becomes one of those that the system trusts`()
        async throws
    {
        try await withLab { lab, daemon in
            let bundle = "\(lab.directory)/certs/ca-certificates.crt"
            try FileManager.default.createDirectory(
                atPath: "\(lab.directory)/certs", withIntermediateDirectories: true)
            let former = try await Certificates(lab, name: "broker.lab")
            rename(former.authority, bundle)
            let certificates = try await Certificates(lab, name: "broker.lab")
            var options = LabServer.Options()
            options.port = 8883
            (options.certificate, options.key) = (certificates.certificate, certificates.key)
            try await LabServer.started(lab, options)
            try daemon.session(
                endpoint: "mqtts://\(Lab.serverAddress):8883", dial: "1min",
                tables: "[tls]\nserver-name = \"broker.lab\"")
            try await daemon.start(after: "mount --bind '\(lab.directory)/certs' /etc/ssl/certs")
            let events = try await daemon.events()
            #expect(try await events.until(.failed).reason?.code == "certificate-invalid")
            // As update-ca-certificates does it.
            rename(certificates.authority, bundle)
            #expect(try await events.until(.connecting).reason?.code == "credential-changed")
            try await events.until(.connected)
        }
    }

    @Test func `a token is replaced before it expires, and no message is lost`() async throws {
        try await withLab { lab, daemon in
            // A server that takes any token.
            try await LabServer.started(lab)
            let far = try await LabSubscriber(lab, filter: "token")
            let token = try lab.write("token", #"{"token": "one", "expiresIn": 20}"#)
            try daemon.session(top: "password = \"exec:/bin/cat \(token)\"\ninsecure = true", heartbeat: "60s")
            let events = try await daemon.startConnected()
            try lab.write("token", #"{"token": "two", "expiresIn": 3600}"#)
            try await daemon.publish("1", to: "token", qos: .exactlyOnce, wait: .delivered)
            // When a fifth of the token's life is left.
            try await events.until("told that the token ends") { $0.event == .credentialExpiring }
            try await daemon.publish("2", to: "token", qos: .exactlyOnce)
            let renewed = try await events.until(.reconnecting)
            #expect(renewed.mode == .quick)
            #expect(renewed.reason?.code == "credential-renewed")
            #expect(try await events.until(.connected).resumed == true)
            try await daemon.publish("3", to: "token", qos: .exactlyOnce, wait: .delivered)
            try await far.received("all three") { $0.map(\.payload) == ["1", "2", "3"] }
        }
    }

    @Test func `a token that has expired is refused, and the next one is fetched at once`() async throws {
        try await withLab { lab, daemon in
            var options = LabServer.Options()
            options.users = ["main": "one"]
            let server = try await LabServer.started(lab, options)
            // The command that prints the token has the new one only when it is run again.
            try lab.write("token", "one\n")
            let folder = lab.directory
            let helper = try lab.write("helper", "cat \(folder)/token; mv -f \(folder)/next \(folder)/token; true\n")
            try daemon.session(top: "password = \"exec:/bin/sh \(helper)\"\ninsecure = true")
            let events = try await daemon.startConnected()
            try lab.write("next", "two\n")
            try await server.change(password: "two", of: "main")
            try await server.kill()
            try await server.start()
            try await events.until(.reconnecting)
            try await events.until(.connected)
            #expect(await events.all.allSatisfy { $0.state != .failed })
        }
    }

    /// Only the wall clock changes: the kernel's own notice of that cannot be caused without setting this machine's
    /// clock.
    @Test(.disabled(if: LabFakeClock.isInTheWay, "libfaketime does not go with a sanitizer"), arguments: [8760, -8760])
    func `a wall clock that is set by a year interrupts nothing, and makes no message too old`(
        hours: Int
    ) async throws {
        try await withServer { lab, server, daemon in
            try daemon.session(heartbeat: "6s", tables: "[outbox]\nmax-age = \"1h\"")
            let clock = try lab.write("clock", "+0")
            // The library sets a variable in the first program that loads it, and the Swift runtime would no longer
            // find the arguments there.
            try await daemon.start(
                after: "export LD_PRELOAD=\(LabFakeClock.library ?? "") DONT_FAKE_MONOTONIC=1 FAKETIME_NO_CACHE=1 "
                    + "FAKETIME_TIMESTAMP_FILE=\(clock) && set -- env \"$@\"")
            let events = try await daemon.events()
            try await events.until(.connected)
            let far = try await LabSubscriber(lab, filter: "clock")
            try await daemon.publish("1", to: "clock", wait: .delivered)
            try await lab.breakNetwork()
            try await events.until(.reconnecting)
            try await daemon.publish("2", to: "clock")
            try lab.write("clock", "\(hours > 0 ? "+" : "")\(hours)h")
            try await daemon.publish("3", to: "clock")
            try await lab.healNetwork()
            let connected = try await events.until(.connected)
            #expect(connected.resumed == true)
            let told = Double(connected.time.rawValue) / 1000 - Date.now.timeIntervalSince1970
            #expect(abs(told - Double(hours) * 3600) < 1800, "it has the new time")
            try await far.received("all three") { $0.map(\.payload) == ["1", "2", "3"] }
            let counters = try await daemon.status().counters
            try await daemon.publish("4", to: "clock", wait: .delivered)
            func heartbeats() async -> Int { await server.log.components(separatedBy: "Received PINGREQ from").count }
            let before = await heartbeats()
            try await until("there are three heartbeats") { await heartbeats() >= before + 3 }
            #expect(try await daemon.status().counters.connects == counters.connects)
        }
    }

    @Test func `three thousand topics are sent and received, each in order`() async throws {
        try await withLab { lab, daemon in
            var options = LabServer.Options()
            options.isPersistent = false
            try await LabServer.started(lab, options)
            try daemon.session(heartbeat: "20s")
            try await daemon.startConnected()
            let worker = Worker()
            let subscription = try await daemon.client.consume(
                session: "main", filter: "many/#", qos: .atLeastOnce, consumer: "many")
            let working = Task { await worker.run(subscription) }
            let far = try await LabSubscriber(lab, filter: "many/#")
            for first in stride(from: 0, to: 3_000, by: 500) {
                let requests = (first..<first + 500).map { number in
                    MessagePublishMethod.Parameters(
                        session: "main", topic: "many/\(number % 100)/\(number)", payload: .init(text: "\(number)"),
                        qos: number % 2 == 0 ? .atLeastOnce : .exactlyOnce)
                }
                let answers = try await daemon.client.callInOrder(
                    MessagePublishMethod.self, requests, timeout: .seconds(180))
                for answer in answers { #expect(try answer.get().accepted) }
            }
            func isInPlace(_ topic: String, _ payload: String?) -> Bool {
                guard let number = payload.flatMap({ Int($0) }) else { return false }
                return topic == "many/\(number % 100)/\(number)"
            }
            let arrived = try await far.received("three thousand at the far end") { $0.count >= 3_000 }
            #expect(Set(arrived).count == 3_000 && arrived.count == 3_000)
            #expect(arrived.allSatisfy { isInPlace($0.topic, $0.payload) })
            try await until("three thousand at the consumer", within: .seconds(300)) {
                await worker.done.count >= 3_000
            }
            let done = await worker.done
            #expect(Set(done.map(\.topic)).count == 3_000 && done.count == 3_000)
            #expect(done.allSatisfy { isInPlace($0.topic, $0.payload.text) })
            await daemon.client.close()
            await working.value
        }
    }

    /// 64 KiB, and as much as fits into a line of 1 MiB to the control socket.
    @Test(arguments: [64 << 10, (1 << 20) - 512])
    func `large payloads arrive whole and once in both directions, even if the connection is cut`(
        size: Int
    ) async throws {
        try await withServer { lab, server, daemon in
            try daemon.session(heartbeat: "20s", tables: "[mqtt]\nmaximum-packet-size = \"2MiB\"")
            let events = try await daemon.startConnected()
            let worker = Worker()
            // Its own messages come back to it, so each goes both ways.
            let subscription = try await daemon.client.consume(
                session: "main", filter: "large/#", qos: .exactlyOnce, consumer: "large")
            let working = Task { await worker.run(subscription) }
            try await until("the consumer is there") { try await daemon.status().inbox.consumers.count == 1 }
            // A message takes a minute, so that the cut is in the middle of one.
            let rate = size * 8 / 1000 / 60
            try await lab.router.run([
                "tc", "qdisc", "add", "dev", "far", "root", "tbf", "rate", "\(rate)kbit", "burst", "20000", "latency",
                "2s",
            ])
            func payload(_ number: Int) -> String {
                String(repeating: "\(number) is a payload of a size. ", count: size / 25 + 1).prefix(size - 8)
                    + String(format: "%08d", number)
            }
            for number in 1...4 {
                try await daemon.publish(
                    payload(number), to: "large/\(number)", qos: number % 2 == 0 ? .exactlyOnce : .atLeastOnce)
                if number == 2 {
                    try await until("something is in flight") { try await daemon.status().outbox.inFlight > 0 }
                    try await lab.uplinkDown()
                    try await events.until(.waitingForNetwork)
                    try await lab.router.run(["tc", "qdisc", "del", "dev", "far", "root"])
                    try await lab.uplinkUp()
                    try await events.until(.connected)
                }
            }
            try await until("all are there") { Set(await worker.done.map(\.topic)).count == 4 }
            let done = await worker.done
            for number in 1...4 {
                let messages = done.filter { $0.topic == "large/\(number)" }
                #expect(messages.allSatisfy { $0.payload.text == payload(number) }, "\(number) is whole")
                #expect(number % 2 == 1 || Set(messages.map(\.id)).count == 1, "\(number) is there once")
            }
            // A message from elsewhere may be longer than a line to the daemon.
            let file = try lab.write("mebibyte", String(repeating: "m", count: 1 << 20))
            try await lab.server.run([
                "mosquitto_pub", "-V", "5", "-t", "large/mebibyte", "-q", "2", "-f", file,
            ])
            try await until("a mebibyte is there") {
                await worker.done.last?.payload.text?.utf8.count == 1 << 20
            }
            await daemon.client.close()
            await working.value
        }
    }

    @Test func `a program that never reads does not slow others, and costs little memory`() async throws {
        try await withLab { lab, daemon in
            var options = LabServer.Options()
            options.isPersistent = false
            try await LabServer.started(lab, options)
            try daemon.session(heartbeat: "20s")
            try await daemon.startConnected()
            let idle = try await RawControl(daemon.socket)
            _ = try await idle.ask(
                #"{"jsonrpc":"2.0","id":1,"method":"message.subscribe","params":{"session":"main","filter":"load"}}"#)
            let reader = try await daemon.client.subscribe(.init(session: "main", filter: "load"))
            let inbox = await Inbox(reader)
            func load(_ rounds: ClosedRange<Int>) async throws {
                for round in rounds {
                    // 4 MiB. Each message waits for the previous one, so that nothing is dropped for a reader that is
                    // merely slow.
                    for number in 1...64 {
                        let text = "\(round) \(number) "
                        let accepted = try await daemon.call(
                            MessagePublishMethod.self,
                            .init(
                                session: "main", topic: "load",
                                payload: .init(text: text + String(repeating: "x", count: 65_536))))
                        #expect(accepted.accepted)
                        try await until("the other one has it", within: .seconds(300)) {
                            await inbox.messages.last?.payload.text?.hasPrefix(text) == true
                        }
                    }
                }
            }
            // After the first load, the daemon has the memory that such a load needs; any growth after that is for what
            // nobody reads.
            try await load(1...3)
            let before = try #require(await daemon.residentMemory)
            try await load(4...8)
            let after = try #require(await daemon.residentMemory)
            #expect(after < before + 16 << 10, "\(before) KiB, then \(after) KiB")
            // It is closed only if others wait for what it holds.
            let log = await daemon.log
            #expect(!log.contains("closed a stalled connection"), "\(log)")
            #expect(try await daemon.status().counters.connects == 1)
            await idle.close()
        }
    }
}
