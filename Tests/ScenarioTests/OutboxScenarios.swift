import ControlAPI
import MQTT
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// What becomes of messages that wait for long: age, room, and a person's decision, over outages and restarts.
@Suite("The outbox", .timeLimit(.minutes(10)))
struct OutboxScenarios {
    /// A publishes, B receives.
    private static func together(
        _ outbox: String, _ body: @Sendable (isolated Scenario, _ a: Host, _ b: Host) async throws -> Void
    ) async throws {
        try await Scenario.run { scenario in
            let b = try await scenario.host("B")
            try await b.until(.connected)
            try await b.subscribe("t")
            let a = try await scenario.host("A", "[outbox]\n\(outbox)")
            try await a.until(.connected)
            try await body(scenario, a, b)
        }
    }

    @Test func `readings of a long outage that are too old are dropped while it lasts, and the others arrive`()
        async throws
    {
        try await Self.together("max-age = \"1h\"") { scenario, a, b in
            await scenario.cut(a)
            try await a.until(.reconnecting)
            for hour in 0..<4 {
                try await a.publish("t", "\(hour)")
                await scenario.sleep(.seconds(3600))
            }
            // Offline nothing wakes the daemon but one attempt every five minutes, and that is enough.
            await scenario.sleep(.seconds(600))
            let dropped = await a.told(.messageDropped)
            #expect(dropped.map(\.id) == [1, 2, 3, 4])
            #expect(dropped.allSatisfy { $0.reason?.code == "too-old" && $0.topic == "t" })
            try await a.publish("t", "fresh")
            #expect(try await a.status().counters.dropped == 4)
            #expect(try await a.status().outbox.queued == 1)
            await scenario.mend(a)
            try await a.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(await b.received == ["fresh"])
        }
    }

    @Test func `the age goes on while the daemon is down`() async throws {
        try await Self.together("max-age = \"1h\"") { scenario, a, b in
            await scenario.cut(a)
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
            await scenario.mend(a)
            try await a.start()
            try await a.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(await b.received == ["young"])
            #expect(await a.told(.messageDropped).map(\.id) == [1])
        }
    }

    @Test func `a small outbox keeps the newest, also when the daemon is killed in between`() async throws {
        try await Self.together("max-messages = 3\nwhen-full = \"drop-oldest\"") { scenario, a, b in
            await scenario.cut(a)
            try await a.until(.reconnecting)
            for number in 1...5 { try await a.publish("t", "\(number)") }
            await a.kill()
            try await a.start()
            for number in 6...7 { try await a.publish("t", "\(number)") }
            await scenario.mend(a)
            try await a.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(await b.received == ["5", "6", "7"])
            // What was told and not durable when the daemon was killed is told again.
            #expect(Set(await a.told(.messageDropped).compactMap(\.id)) == [1, 2, 3, 4])
        }
    }

    @Test func `a clock that is set during an outage makes no message too old`() async throws {
        try await Self.together("max-age = \"1h\"") { scenario, a, b in
            await scenario.cut(a)
            try await a.until(.reconnecting)
            try await a.publish("t", "kept")
            await a.setClock(by: .seconds(50 * 365 * 86_400))
            await scenario.sleep(.seconds(1200))
            await scenario.mend(a)
            try await a.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(await b.received == ["kept"])
            #expect(await a.told(.messageDropped).isEmpty)
        }
    }
}
