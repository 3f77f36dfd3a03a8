import ControlAPI
import HoldfastClient
import Support
import Testing

extension EndToEnd.Servers {
    /// Two nodes of ejabberd, each in a network of its own; the far end is at the one that survives.
    ///
    ///     HOST ──── ROUTER ──┬── SERVER   first node   10.77.9.1
    ///                        └── BACKUP   second node  10.77.8.1
    @Test(.enabled(if: LabEjabberd.isInstalled || LabRequirements.isAllRequired))
    func `a session whose cluster node is killed is soon at another, and no accepted message is lost`()
        async throws
    {
        try await withLab { lab, daemon in
            try await lab.addBackup()
            let first = try LabEjabberd(lab, in: lab.server, address: Lab.serverAddress)
            let second = try LabEjabberd(lab, in: lab.backup, address: Lab.backupAddress)
            async let started: Void = first.start()
            try await second.start()
            try await started
            try await second.join(first)
            #expect(try await Set(second.cluster()) == [first.node, second.node])

            let secret = try lab.write("password", "secret\n")
            try daemon.writeSession(
                "main",
                """
                endpoints = ["mqtt://\(Lab.serverAddress):1883", "mqtt://\(Lab.backupAddress):1883"]
                user = "main"
                password = "file:\(secret)"
                insecure = true
                [reconnect]
                delays = ["50ms", "250ms", "500ms", "1s"]
                spread = "200ms"
                [timeouts]
                dial = "1min"
                authenticate = "1min"
                """)
            let events = try await daemon.startConnected()
            #expect(try await daemon.status().endpoint == "mqtt://\(Lab.serverAddress):1883")

            let near = LabClient(lab, in: lab.backup, login: LabLogin(user: "near", password: "secret"))
            let far = try await LabSubscriber(near, filter: "cluster/#")
            let inbox = await Inbox(try await daemon.client.subscribe(.init(session: "main", filter: "in/#")))
            try await near.publish("by the cluster", to: "in/1")
            try await inbox.until("by the cluster")

            // In ejabberd 23.01, the other node knows nothing of what this one retains. So the test uses a publication,
            // which the session owns and brings along.
            _ = try await daemon.call(
                PublicationPutMethod.self, .init(session: "main", topic: "state", payload: .init(text: "open")))
            let publisher = Publisher(daemon, topics: "cluster", batch: 5, pause: .milliseconds(5))
            let publishing = Task { await publisher.run() }
            try await until("some are accepted") { await publisher.count >= 200 }
            // What the node has acknowledged but not passed to the other node dies with it, and that would be the
            // server's loss. So it acknowledges nothing from the time when it had nothing left to pass.
            await publisher.hold(true)
            try await until("everything is at the far end") {
                guard await publisher.isResting else { return false }
                let there = Set(far.messages.map { "\($0.topic) \($0.payload)" }).count
                guard await publisher.count == there else { return false }
                return try await daemon.status().outbox.inFlight == 0
            }
            await first.pause()
            await publisher.hold(false)
            try await until("it acknowledges nothing") { try await daemon.status().outbox.inFlight > 0 }
            try await first.kill()
            try await events.until(.reconnecting)
            let connected = try await events.until(.connected)
            #expect(connected.resumed == false, "the session died with its node")
            #expect(try await daemon.status().endpoint == "mqtt://\(Lab.backupAddress):1883")
            // The first attempt is refused by the dead node's host; the second one goes to the other node.
            #expect(try await daemon.status().counters.attempts <= 4)

            let count = await publisher.count
            try await until("more is accepted") { await publisher.count >= count + 200 }
            await publisher.stop()
            await publishing.value
            let accepted = await publisher.accepted
            let arrived = try await far.received("everything accepted is there") { messages in
                let numbers = Dictionary(grouping: messages, by: \.topic).mapValues { Set($0.map(\.payload)) }
                return accepted.allSatisfy { stream in
                    let there = numbers[stream.key] ?? []
                    return stream.value.allSatisfy { there.contains("\($0)") }
                }
            }
            for (topic, _) in accepted {
                // The server lost the session, and with it the knowledge of which messages it had received. Those that
                // it had not acknowledged come again.
                var seen: Set<Int> = []
                let firsts = arrived.filter { $0.topic == topic }.compactMap { Int($0.payload) }
                    .filter { seen.insert($0).inserted }
                #expect(firsts == firsts.sorted(), "\(topic) is not in order")
            }
            try await near.publish("by the second node", to: "in/2")
            try await inbox.until("by the second node")
            try await LabSubscriber(near, filter: "state").received("the publication is there") {
                $0.map(\.payload) == ["open"]
            }
            let outage = await events.all.first { $0.event == .reconnectCompleted }?.outage
            print("Cluster: connected to the other node \(outage ?? 0) s after the loss.")

            try await first.start()
            try await until("the killed node is back in the cluster") {
                try await Set(second.cluster()) == [first.node, second.node]
            }
        }
    }
}
