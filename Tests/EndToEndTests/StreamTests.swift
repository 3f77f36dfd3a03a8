import ControlAPI
import HoldfastClient
import Support
import Testing

extension EndToEnd {
    @Test func `no accepted message is lost when the daemon is killed repeatedly in mid-stream`()
        async throws
    {
        try await withLab { lab, daemon in
            var options = LabServer.Options()
            options.isPersistent = false
            try await LabServer.started(lab, options)
            try daemon.session(heartbeat: "5s")
            try await daemon.start()
            let far = try await LabSubscriber(lab, filter: "stream/#")
            let publisher = Publisher(daemon, topics: "stream")
            let publishing = Task { await publisher.run() }
            var moments = Moments(seed: 1)
            for kill in 1...8 {
                let count = await publisher.count
                try await until("\(kill): more is accepted") { await publisher.count >= count + 600 }
                // At an arbitrary moment.
                try await moments.wait(upTo: 150)
                try await daemon.kill()
                try await daemon.start()
            }
            let count = await publisher.count
            try await until("more is accepted") { await publisher.count >= count + 600 }
            await publisher.stop()
            await publishing.value
            try await until("the outbox is empty") {
                let outbox = try await daemon.status().outbox
                return outbox.queued == 0 && outbox.inFlight == 0
            }
            let accepted = await publisher.accepted
            func numbers(_ messages: [LabSubscriber.Message], _ topic: String) -> [Int] {
                messages.filter { $0.topic == topic }.compactMap { Int($0.payload) }
            }
            // The server has everything; the far end gets it soon after.
            let arrived = try await far.received("everything accepted is there") { messages in
                accepted.allSatisfy { Set($0.value).isSubset(of: numbers(messages, $0.key)) }
            }
            let once = numbers(arrived, "stream/2")
            #expect(Set(once).count == once.count, "a number came twice with QoS 2")
            #expect(once == once.sorted(), "with QoS 2 not in order")
            // Messages sent again may arrive twice with QoS 1; each number's first arrival is in order.
            var seen: Set<Int> = []
            let first = numbers(arrived, "stream/1").filter { seen.insert($0).inserted }
            #expect(first == first.sorted(), "with QoS 1 not in order")
            #expect(await publisher.count >= 9 * 600)
        }
    }

    @Test func `messages published offline arrive in order when the network is back`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session()
            let events = try await daemon.startConnected()
            let far = try await LabSubscriber(lab, filter: "offline/#")
            try await lab.uplinkDown()
            try await events.until(.waitingForNetwork)
            for number in 1...30 {
                for qos in QoS.allCases {
                    let result = try await daemon.publish("\(number)", to: "offline/\(qos.rawValue)", qos: qos)
                    #expect(result.accepted && !result.delivered)
                }
            }
            #expect(try await daemon.status().outbox.queued == 90)
            async let last = daemon.publish("last", to: "offline/1", wait: .delivered)
            try await until("the one that is waited for is in the outbox") {
                try await daemon.status().outbox.queued == 91
            }
            try await lab.uplinkUp()
            try await events.until(.connected)
            let result = try await last
            #expect(result.delivered)
            #expect(result.reasonCode == 0)
            let arrived = try await far.received("all 91 are there") { $0.count >= 91 }
            for qos in 0...2 {
                let expected = (1...30).map(String.init) + (qos == 1 ? ["last"] : [])
                let payloads = arrived.filter { $0.topic == "offline/\(qos)" }.map(\.payload)
                #expect(payloads == expected, "QoS \(qos)")
            }
            try await until("the outbox is empty") {
                let outbox = try await daemon.status().outbox
                return outbox.queued == 0 && outbox.inFlight == 0
            }
        }
    }

    @Test(arguments: [true, false])
    func `a killed server is used again, whether it kept the session or not`(keeps: Bool) async throws {
        try await withServer { lab, server, daemon in
            try daemon.session()
            let events = try await daemon.startConnected()
            // mosquitto 2.0.11 does not write a session to disk that began with Clean Start 1, as every first one does.
            _ = try await daemon.call(SessionReconnectMethod.self, .init(session: "main", mode: .quick))
            try await events.until("resumed") { $0.state == .connected && $0.resumed == true }
            let consumer = try await daemon.client.subscribe(.init(session: "main", filter: "near/#"))
            let inbox = await Inbox(consumer)
            try await server.publish("before", to: "near/1")
            try await inbox.until("before")
            try await server.hasPersisted("near/#")

            try await server.kill()
            try await events.until(.reconnecting)
            for number in 1...5 { try await daemon.publish("\(number)", to: "between/\(number)", retain: true) }
            if !keeps { await server.forget() }
            try await server.start()
            let connected = try await events.until(.connected)
            #expect(connected.resumed == keeps)
            let completed = await events.all.last { $0.event == .reconnectCompleted }
            #expect(completed?.mode == (keeps ? .quick : .full))

            try await server.publish("after", to: "near/2")
            try await inbox.until("after")
            let far = try await LabSubscriber(lab, filter: "between/#")
            try await far.received("all are there") { Set($0.map(\.payload)) == ["1", "2", "3", "4", "5"] }
        }
    }
}
