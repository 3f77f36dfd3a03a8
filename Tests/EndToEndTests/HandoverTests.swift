import ControlAPI
import Foundation
import HoldfastClient
import Support
import Testing

/// Make before break, with a real server: the default route moves to the other uplink, and the old address stays.
extension EndToEnd {
    /// A new connection that is not there in time is dropped, and the session stays where it is until its path moves again.
    private static let dial = "1min"

    private func move(_ lab: Lab, to gateway: String) async throws {
        try await lab.host.ip("route replace default via \(gateway)")
    }

    @Test(arguments: ["5", "3.1.1"])
    func `a stream continues over the other uplink without loss or duplicates, with a short outage`(
        version: String
    ) async throws {
        try await withLab { lab, daemon in
            var options = LabServer.Options()
            // In MQTT 3.1.1 a server cannot say how much it takes at once; this one closes the connection above 20.
            if version == "3.1.1" { options.inFlight = 2000 }
            try await LabServer.started(lab, options)
            try daemon.session(
                top: "room = \"r\"\nmqtt.version = \"\(version)\"", heartbeat: "10s", dial: Self.dial)
            let events = try await daemon.startConnected()
            let far = try await LabSubscriber(lab, filter: "stream/#")
            let presence = try await LabSubscriber(lab, filter: "holdfast/rooms/r/presence/#")
            // What the session publishes comes back to it, so there is a stream in each direction. It has QoS 1,
            // because with QoS 2 a stream of thousands of messages ends in a protocol error of this mosquitto (2.0.11)
            // after a while.
            let consumer = try await daemon.client.subscribe(
                .init(session: "main", filter: "stream/#", qos: .atLeastOnce))
            let inbox = await Inbox(consumer)
            let publisher = Publisher(daemon, topics: "stream", batch: 5, pause: .milliseconds(10))
            let publishing = Task { await publisher.run() }
            var outages: [Double] = []
            for gateway in ["10.77.1.254", "10.77.0.254", "10.77.1.254"] {
                let count = await publisher.count
                try await until("more is accepted") { await publisher.count >= count + 200 }
                try await move(lab, to: gateway)
                let lost = try await events.until(.reconnecting)
                #expect(lost.reason?.code == "path-moved")
                let connected = try await events.until(.connected)
                #expect(connected.resumed == true)
                #expect(connected.path?.source == (gateway == "10.77.1.254" ? "10.77.1.1" : "10.77.0.1"))
                outages.append(try await daemon.status().counters.longestOutage ?? 1)
            }
            let count = await publisher.count
            try await until("more is accepted") { await publisher.count >= count + 200 }
            await publisher.stop()
            await publishing.value
            try await until("the outbox is empty") {
                let outbox = try await daemon.status().outbox
                return outbox.queued == 0 && outbox.inFlight == 0
            }
            let accepted = await publisher.accepted
            try await publisherIsHeard(accepted, inbox)
            let arrived = try await far.received("everything accepted is there") { messages in
                Set(messages).count >= accepted.values.reduce(0) { $0 + $1.count }
            }
            for topic in ["stream/1", "stream/2"] {
                // The old connection has a second to finish, by the clock of a machine that may be busy. What was not
                // acknowledged by then is sent again, in either direction. The server marks what it sends again; what it
                // was sent again is a new message to it, unless it has QoS 2. In virtual time nothing comes twice: see
                // HandoverScenarios.
                let numbers = arrived.filter { $0.topic == topic }.compactMap { Int($0.payload) }
                var there: Set<Int> = []
                var twice: Set<Int> = []
                let inOrder = numbers.filter { number in
                    let isFirst = there.insert(number).inserted
                    if !isFirst { twice.insert(number) }
                    return isFirst
                }
                #expect(inOrder == accepted[topic], "\(topic) at the far end, whole and in order")
                #expect(topic == "stream/1" || twice.isEmpty, "\(topic) at the far end, once")
                var seen: Set<String> = []
                let near = await inbox.messages.filter { $0.topic == topic }
                let (firsts, again) = near.reduce(into: ([Int](), [ReceivedMessage]())) { result, message in
                    let text = message.payload.text ?? ""
                    if seen.insert(text).inserted { result.0.append(Int(text) ?? 0) } else { result.1.append(message) }
                }
                #expect(firsts == accepted[topic], "\(topic) at the session's own consumer, whole and in order")
                let unmarked = again.filter { !$0.duplicate }.compactMap { Int($0.payload.text ?? "") }
                #expect(twice.isSuperset(of: unmarked), "what comes again says so")
            }
            let status = try await daemon.status()
            #expect(status.counters.outages == 3)
            #expect(status.counters.connects == 4)
            #expect(!presence.messages.contains { $0.payload.contains("offline") }, "nobody saw it leave")
            let text = outages.map { String(format: "%.1f", $0 * 1000) }
            print("hand-over, MQTT \(version): the longest outage so far, ms: \(text.joined(separator: ", "))")
        }
    }

    private func publisherIsHeard(_ accepted: [String: [Int]], _ inbox: Inbox) async throws {
        let count = accepted.values.reduce(0) { $0 + $1.count }
        try await until("the session's own consumer has everything") {
            Set(await inbox.messages.map { $0.topic + "/" + ($0.payload.text ?? "") }).count >= count
        }
    }

    @Test func `a new uplink that leads nowhere changes nothing while the old connection works`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "10s", dial: Self.dial)
            let events = try await daemon.startConnected()
            let before = try await daemon.status().counters
            // Packets from the new address are dropped.
            try await lab.router.nft(
                "add table ip check; add chain ip check pass { type filter hook forward priority 0; }; "
                    + "add rule ip check pass ip saddr 10.77.1.0/24 drop")
            let far = try await LabSubscriber(lab, filter: "moved")
            let capture = try await LabCapture(lab)
            try await move(lab, to: "10.77.1.254")
            try await events.until("told that the path moved") { $0.change == "moved-source-kept" }
            for number in 1...10 { try await daemon.publish("\(number)", to: "moved", wait: .delivered) }
            // The kernel repeats what is not answered after a second.
            try await until("the new uplink is tried") { capture.connects(from: "10.77.1.1").count >= 2 }
            for number in 11...20 { try await daemon.publish("\(number)", to: "moved", wait: .delivered) }
            try await far.received("the messages are there") { $0.count == 20 }
            #expect(try await daemon.status().counters == before.with(published: 20))
            // It was connected until it is told not to be.
            try await daemon.disconnect()
            try await events.until(.disconnected)
            let ends = await events.all.filter { $0.event == .stateChanged && $0.from == .connected }
            #expect(ends.count == 1 && ends.first?.state != .reconnecting, "\(ends.map(\.line))")
        }
    }

    @Test func `an old connection that the new uplink does not carry is replaced within two seconds`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "20s", dial: Self.dial)
            let events = try await daemon.startConnected()
            // Like a provider that checks its customers' source addresses.
            try await lab.router.nft(
                "add table ip check; add chain ip check pass { type filter hook forward priority 0; }; "
                    + "add rule ip check pass iifname near1 ip saddr != 10.77.1.0/24 drop")
            try await move(lab, to: "10.77.1.254")
            try await events.until("told that the path moved") { $0.change == "moved-source-kept" }
            let lost = try await events.until(.reconnecting)
            #expect(lost.reason?.code == "path-moved")
            let connected = try await events.until(.connected)
            #expect(connected.path?.source == "10.77.1.1")
            #expect(connected.resumed == true)
            #expect(try await daemon.status().counters.outages == 1)
        }
    }

    @Test func `other participants do not notice a hand-over, and a disconnect right after it works`() async throws {
        try await withServer { lab, server, daemon in
            // With a shorter one the server wants to hear something every second, which a daemon on a busy machine may miss.
            try daemon.session(top: "room = \"r\"\npresence.timeout = \"20s\"", heartbeat: "10s", dial: Self.dial)
            let events = try await daemon.startConnected()
            let presence = try await LabSubscriber(
                LabClient(lab), filter: "holdfast/rooms/r/presence/#", "another/will")
            let another = try await lab.start(
                "mosquitto_sub",
                [
                    "stdbuf", "-oL", "mosquitto_sub", "-d", "-V", "5", "-i", "another", "-x", "600", "-t", "none",
                    "--will-topic", "another/will", "--will-payload", "lost", "-D", "will", "will-delay-interval", "20",
                ], in: lab.server)
            try await until("another client is connected") { another.output.contains("Subscribed (mid") }
            try await move(lab, to: "10.77.1.254")
            try await events.until("handed over") { $0.state == .connected && $0.path?.source == "10.77.1.1" }
            // Another will with the same delay comes later than this session's would.
            try await another.killed()
            try await presence.received("another will") { $0.contains { $0.topic == "another/will" } }
            #expect(!presence.messages.contains { $0.payload.contains("offline") })
            try await move(lab, to: "10.77.0.254")
            // Before that, the session has no connection on which it could say that it leaves.
            try await events.until("handed over again") { $0.state == .connected && $0.path?.source == "10.77.0.1" }
            try await daemon.disconnect()
            try await events.until(.disconnected)
            try await presence.received("it left for good") { $0.last?.payload == "" }
            #expect(!presence.messages.contains { $0.payload.contains("offline") })
        }
    }
}

extension SessionStatus.Counters {
    fileprivate func with(published: Int64) -> Self {
        var counters = self
        counters.published = published
        return counters
    }
}
