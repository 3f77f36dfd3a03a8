import ControlAPI
import SessionCore
import Testing

@testable import Agent

/// Lists of endpoints, and servers that come and go.
@Suite("Endpoints", .timeLimit(.minutes(1)))
struct EndpointScenarios {
    @Test func `a session returns to its first server when that answers again, and loses nothing`() async throws {
        try await Scenario.run { scenario in
            scenario.stop(.one)
            let a = try await scenario.host("A", endpoints: [.one, .two])
            try await a.until(.connected)
            #expect(try await a.status().endpoint == Scenario.ServerName.two.endpoint)
            let before = scenario.now
            scenario.start(.one)
            let lost = try await a.until(.reconnecting)
            #expect(lost.reason?.code == "returning")
            #expect((Duration.seconds(48)...Duration.seconds(73)).contains(before.duration(to: scenario.now)))
            try await a.until(.connected, within: .seconds(1))
            #expect(try await a.status().endpoint == Scenario.ServerName.one.endpoint)
            try await a.publish("a", "hello")
            await scenario.sleep(.seconds(3600))
            let status = try await a.status()
            #expect(status.state == .connected)
            #expect(status.outbox.queued == 0)
            #expect(scenario.knocks["A"]?.count == 1, "at home nothing is looked for")
        }
    }

    @Test func `while a server is away for long, it is looked for, and it is back within a quarter of a minute`()
        async throws
    {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A")
            try await a.until(.connected)
            scenario.stop()
            try await a.until(.reconnecting)
            await scenario.sleep(.seconds(3600))
            let looks = scenario.knocks["A"]?.count ?? 0
            #expect((200...500).contains(looks), "\(looks) looks")
            scenario.start()
            let start = scenario.now
            try await a.until(.connected)
            #expect(start.duration(to: scenario.now) < .seconds(20))
        }
    }

    @Test func `a path that heals without a word of the kernel is noticed`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A")
            try await a.until(.connected)
            scenario.silence(a)
            try await a.until(.reconnecting)
            await scenario.sleep(.seconds(900))
            while try await a.status().phase != .waiting { await scenario.sleep(.milliseconds(100)) }
            scenario.unsilence(a)
            let start = scenario.now
            try await a.until(.connected)
            #expect(start.duration(to: scenario.now) < .seconds(19))
        }
    }
}
