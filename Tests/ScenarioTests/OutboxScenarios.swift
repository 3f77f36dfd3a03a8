import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// Messages that wait for a long time: age, room, and decisions by hand, over outages and restarts.
@Suite("The outbox", .timeLimit(.minutes(10)))
struct OutboxScenarios {
    /// A publishes, B receives.
    private static func together(
        _ outbox: String, _ body: @Sendable (isolated Scenario, _ a: Host, _ b: Host) async throws -> Void
    ) async throws {
        try await Scenario.run { scenario in
            let b = try await scenario.host("B").connected()
            try await b.subscribe("t")
            let a = try await scenario.host("A", "[outbox]\n\(outbox)").connected()
            try await body(scenario, a, b)
        }
    }

    @Test func `messages that get too old are dropped during an outage, and the others arrive`()
        async throws
    {
        try await Self.together("max-age = \"1h\"") { scenario, a, b in
            scenario.cut(a)
            try await a.until(.reconnecting)
            for hour in 0..<4 {
                try await a.publish("t", "\(hour)")
                await scenario.sleep(.seconds(3600))
            }
            // Offline the daemon wakes only for an attempt every five minutes, which is enough.
            await scenario.sleep(.seconds(600))
            let dropped = await a.told(.messageDropped)
            #expect(dropped.map(\.id) == [1, 2, 3, 4])
            #expect(dropped.allSatisfy { $0.reason?.code == "too-old" && $0.topic == "t" })
            try await a.publish("t", "fresh")
            #expect(try await a.status().counters.dropped == 4)
            #expect(try await a.status().outbox.queued == 1)
            scenario.mend(a)
            try await a.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(await b.received == ["fresh"])
        }
    }

    @Test(arguments: [true, false])
    func `a disconnect waits for unacknowledged messages, but not for long`(isAnswered: Bool) async throws {
        try await Self.together("") { scenario, a, b in
            scenario.with { broker, _ in broker.holdsAnswers = true }
            try await a.publish("t", "x")
            await scenario.sleep(.seconds(1))
            #expect(try await a.status().outbox.inFlight == 1)
            #expect(try await a.disconnect() == .disconnecting)
            await scenario.sleep(.seconds(2))
            #expect(try await a.status().state == .disconnecting)
            if isAnswered { scenario.with { broker, _ in broker.holdsAnswers = false } }
            try await a.until(.disconnected, within: isAnswered ? .milliseconds(100) : .seconds(2))
            #expect(try await a.status().outbox.inFlight == (isAnswered ? 0 : 1))
        }
    }

    @Test func `the age of messages grows while the daemon is down`() async throws {
        try await Self.together("max-age = \"1h\"") { scenario, a, b in
            scenario.cut(a)
            try await a.until(.reconnecting)
            try await a.publish("t", "old")
            await scenario.sleep(.seconds(1800))
            try await a.publish("t", "young")
            let accepted = try await a.status().outbox.oldest
            await a.kill()
            await scenario.sleep(.seconds(1700))
            try await a.start()
            await scenario.sleep(.seconds(1))
            #expect(try await a.status().outbox.oldest == accepted, "the time of acceptance outlives the daemon")
            await a.kill()
            await scenario.sleep(.seconds(300))
            scenario.mend(a)
            try await a.start()
            try await a.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(await b.received == ["young"])
            #expect(await a.told(.messageDropped).map(\.id) == [1])
        }
    }

    @Test func `a small outbox keeps the newest messages, even if the daemon is killed`() async throws {
        try await Self.together("max-messages = 3\nwhen-full = \"drop-oldest\"") { scenario, a, b in
            scenario.cut(a)
            try await a.until(.reconnecting)
            for number in 1...5 { try await a.publish("t", "\(number)") }
            await a.kill()
            try await a.start()
            for number in 6...7 { try await a.publish("t", "\(number)") }
            scenario.mend(a)
            try await a.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(await b.received == ["5", "6", "7"])
            // A drop that was reported but not durable when the daemon was killed is reported again.
            #expect(Set(await a.told(.messageDropped).compactMap(\.id)) == [1, 2, 3, 4])
        }
    }

    @Test func `a clock that is set during an outage makes no message too old`() async throws {
        try await Self.together("max-age = \"1h\"") { scenario, a, b in
            scenario.cut(a)
            try await a.until(.reconnecting)
            try await a.publish("t", "kept")
            await a.setClock(by: .seconds(50 * 365 * 86_400))
            await scenario.sleep(.seconds(1200))
            scenario.mend(a)
            try await a.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(await b.received == ["kept"])
            #expect(await a.told(.messageDropped).isEmpty)
        }
    }

    @Test func `a server that does not read the session's answers is not read from`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            var bytes = ByteBuffer()
            for _ in 0..<20_000 {
                Packet.pubrel(Acknowledgement(packetID: try #require(PacketID(rawValue: 9))))
                    .encode(into: &bytes, as: .five)
            }
            scenario.inject(bytes, to: "A")
            await scenario.sleep(.seconds(1))
            var isReading = scenario.isReading("A")
            #expect(isReading, "answers that leave the host do not pile up")
            scenario.holdsFlushes = true
            for _ in 1...3 { scenario.inject(bytes, to: "A") }
            await scenario.sleep(.seconds(1))
            isReading = scenario.isReading("A")
            #expect(!isReading)
            let lost = try await a.until(.reconnecting, within: .seconds(60))
            #expect(lost.reason?.code == "heartbeat-timeout")
            scenario.holdsFlushes = false
            try await a.until(.connected)
            isReading = scenario.isReading("A")
            #expect(isReading)
        }
    }

    @Test func `messages left out by a full inbox arrive on another connection when there is room`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "[inbox]\nmax-messages = 8\nwhen-full = \"withhold\"").connected()
            await a.limitWaiting(to: 64 << 10)
            let consumer = try await a.consume("billing", "t", qos: .exactlyOnce)
            let large = String(repeating: "x", count: 8 << 10)
            for number in 1...40 {
                scenario.with { broker, _ in broker.publish("t", "\(number) \(large)", qos: .exactlyOnce) }
            }
            await scenario.sleep(.seconds(60))
            #expect(try await a.status().state == .connected, "a full inbox does not end the session")
            let inbox = try await a.status().inbox
            #expect(inbox.withheld > 20)
            var taken: [Int] = []
            for _ in 1...2000 where taken.count < 40 {
                for given in await a.takeGiven() { taken.append(Int(given.prefix { $0 != " " }) ?? 0) }
                if let last = await a.lastGiven { try? await a.acknowledge(last, upTo: true, by: consumer) }
                await scenario.sleep(.seconds(1))
            }
            #expect(taken == Array(1...40))
            #expect(await a.told(.stateChanged).contains { $0.reason?.code == "inbox-room" })
        }
    }
}
