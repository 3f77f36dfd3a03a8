import ControlAPI
import Support
import Testing

extension EndToEnd {
    @Test func `a session connects as soon as a server that was down at first is started`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            try await daemon.start()
            let events = try await daemon.events()
            let waiting = try await events.until("waiting after a refusal") {
                $0.phase == .waiting && $0.reason?.code == "refused"
            }
            #expect(waiting.state == .connecting)
            try await LabServer.started(lab)
            let connected = try await events.until(.connected)
            #expect(connected.from == .connecting)
            #expect(connected.resumed == false)
            #expect(connected.path?.source == "10.77.0.1")
            let told = await events.all
            #expect(!told.contains { $0.state == .reconnecting || $0.state == .failed })
            let far = try await LabSubscriber(lab, filter: "hello")
            try await daemon.publish("there", to: "hello", wait: .delivered)
            try await far.received("the message is there") { $0.map(\.payload) == ["there"] }
        }
    }

    @Test func `no attempt is made without a network, and one is enough with it`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(dial: "1min", authenticate: "1min")
            let events = try await daemon.startConnected()
            let before = try await daemon.status()

            try await lab.uplinkDown()
            try await events.until("told that the path is lost") { $0.change == "lost" }
            let waiting = try await events.until(.waitingForNetwork)
            #expect(waiting.state == .reconnecting)
            // Irrelevant news from the kernel, for longer than the table's first delays.
            for number in 1...20 {
                try await lab.host.ip("addr add 10.88.\(number).1/24 dev up1", "route add 10.99.\(number).0/24 dev up1")
                try await Task.sleep(for: .milliseconds(100))
            }
            let offline = try await daemon.status()
            #expect(offline.phase == .waitingForNetwork)
            #expect(offline.counters.attempts == before.counters.attempts)

            try await lab.uplinkUp()
            let connected = try await events.until(.connected)
            #expect(connected.resumed == true)
            let after = try await daemon.status()
            #expect(after.counters.attempts == before.counters.attempts + 1)
            #expect(after.counters.outages == before.counters.outages + 1)
        }
    }

    @Test func `a flap that TCP survives costs no reconnect`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "10s")
            let events = try await daemon.startConnected()
            let far = try await LabSubscriber(lab, filter: "flap")
            let flap = try await BriefLoss(daemon, events) {
                try await lab.uplinkDown()
            } giveBack: {
                try await lab.uplinkUp()
            }
            try await daemon.publish("1", to: "flap", wait: .delivered)
            try await far.received("the message is there") { $0.count == 1 }
            try await flap.expectNoOutage(daemon, events)
        }
    }

    @Test func `a silent network is noticed by the heartbeat, and a healed one is used again`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "2s")
            let events = try await daemon.startConnected()
            try await lab.breakNetwork()
            let lost = try await events.until(.reconnecting)
            // A daemon that was held up may notice first that the heartbeat's question is not acknowledged.
            #expect(["heartbeat-timeout", "unacknowledged"].contains(lost.reason?.code))
            #expect(lost.mode == .quick)
            try await events.until("waiting after a dial without an answer") { $0.reason?.code == "dial-timeout" }
            try await lab.healNetwork()
            let connected = try await events.until(.connected)
            #expect(connected.resumed == true)
            let told = await events.all
            #expect(told.contains { $0.event == .reconnectCompleted && $0.mode == .quick && ($0.outage ?? 0) > 0 })
        }
    }

    @Test func `a disconnect during an outage wins, even over a restart of the daemon`() async throws {
        try await withServer { lab, server, daemon in
            try daemon.session()
            let bystander = try await Bystander(lab, daemon)
            let events = try await daemon.startConnected()
            try await server.kill()
            try await events.until(.reconnecting)
            #expect(try await daemon.disconnect() == .disconnected)
            try await server.start()

            // The daemon is killed right after the answer, which must remain true.
            try await daemon.kill()
            try await daemon.start()
            var status = try await daemon.status()
            #expect(status.state == .disconnected)
            #expect(status.reason?.code == "user-disconnect")
            #expect(try await daemon.stop() == .exited(0))
            try await daemon.start()
            status = try await daemon.status()
            #expect(status.state == .disconnected)
            #expect(status.reason?.code == "user-disconnect")
            try await bystander.goesThroughAnOutage()
            #expect(try await daemon.status().counters.attempts == 0)
            #expect(await !server.log.contains("New client connected"))

            try await daemon.connect()
            try await events.until("connected after the daemon's restarts") { $0.state == .connected }
        }
    }

    @Test func `a crash while a session says goodbye does not undo the disconnect`() async throws {
        try await withServer { lab, server, daemon in
            try daemon.session(heartbeat: "600s")
            try await daemon.startConnected()
            // The message is not answered, and a disconnect waits for that for a while. The server's kernel still takes it, so
            // nothing tells the session that its connection is dead, however long the steps of this test take.
            await server.pause()
            try await daemon.publish("1", to: "goodbye")
            #expect(try await daemon.disconnect() == .disconnecting)
            try await daemon.kill()
            await server.resume()
            try await daemon.start()
            let status = try await daemon.status()
            #expect(status.state == .disconnected)
            #expect(status.reason?.code == "user-disconnect")
            let far = try await LabSubscriber(lab, filter: "goodbye")
            try await daemon.connect()
            // It may come twice: what the kernel still had of the first connection may arrive as well.
            try await far.received("what was accepted is there") { Set($0.map(\.payload)) == ["1"] }
        }
    }
}
