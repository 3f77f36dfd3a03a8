import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// A server's omissions and refusals are noticed and reported, without false conclusions.
@Suite("Silence", .timeLimit(.minutes(10)))
struct SilenceScenarios {
    @Test func `a server that only drips bytes is dead after interval and timeout`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "[heartbeat]\ninterval = \"15s\"\ntimeout = \"5s\"").connected()
            await scenario.sleep(.seconds(60))
            let start = scenario.now
            scenario.drip(a)
            let lost = try await a.until(.reconnecting, within: .seconds(60))
            #expect(lost.reason?.code == "heartbeat-timeout")
            #expect(start.duration(to: scenario.now) <= .seconds(21))
            try await a.until(.connected)
        }
    }

    @Test func `a message that takes half a minute on a slow uplink is delivered on one connection`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            a.here { $0.forget() }
            // 20 kB in a second, and in this model twice as much behind each further packet.
            scenario.withUplink(a) { ($0.isMeasured, $0.latency, $0.piece) = (true, .milliseconds(50), 1000) }
            try await a.publish("large", String(repeating: "x", count: 1_200_000))
            await scenario.sleep(.seconds(35))
            #expect(try await a.status().outbox.inFlight == 1)
            await scenario.sleep(.seconds(25))
            #expect(try await a.status().outbox.inFlight == 0)
            #expect(await a.told(.stateChanged).isEmpty)
        }
    }

    @Test func `a server that takes bytes and answers nothing is noticed in time, even behind a large message`()
        async throws
    {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            scenario.withUplink(a) { ($0.isMeasured, $0.latency, $0.piece) = (true, .milliseconds(50), 1000) }
            scenario.drip(a)
            try await a.publish("large", String(repeating: "x", count: 600_000))
            let start = scenario.now
            let lost = try await a.until(.reconnecting, within: .seconds(120))
            #expect(lost.reason?.code == "heartbeat-timeout")
            // It has arrived after 22.5 s.
            #expect((.seconds(27)...(.seconds(29))).contains(start.duration(to: scenario.now)))
        }
    }

    @Test func `the status says when a dripping server was last heard`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            scenario.drip(a)
            await scenario.sleep(.seconds(14))
            #expect(try await a.status().state == .connected)
            #expect(try #require(try await a.status().lastHeard) >= 13)
        }
    }

    @Test func `a subscription refused at a reconnect is reported, and requested again in ten minutes`()
        async throws
    {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            try await a.subscribe("in/1")
            try await a.consume("meter", "in/2")
            #expect(try await a.status().subscriptions.map(\.state) == [.granted, .granted])
            a.here { $0.forget() }
            scenario.with { broker, now in
                broker.refusedFilters = ["in/1": .notAuthorized, "in/2": .notAuthorized]
                broker.disconnect("a", nil, at: now)
                broker.forget("a")
            }
            try await a.until(.connected)
            let told = await a.told(.subscriptionChanged).compactMap(\.subscription)
            #expect(told.map(\.filter) == ["in/1", "in/2"])
            #expect(told.allSatisfy { $0.state == .refused && $0.reasonCode == 0x87 })
            let status = try await a.status()
            #expect(status.subscriptions.map(\.state) == [.refused, .refused])
            #expect(status.inbox.consumers.first?.refused == "not authorized (0x87)")
            a.here { $0.forget() }
            scenario.with { broker, _ in broker.refusedFilters = ["in/2": .notAuthorized] }
            await scenario.sleep(.seconds(11 * 60))
            #expect(await a.told(.subscriptionChanged).compactMap(\.subscription).map(\.filter) == ["in/1"])
            #expect(await a.told(.stateChanged).isEmpty, "without another connection")
            #expect(try await a.status().subscriptions.map(\.state) == [.granted, .refused])
            let b = try await scenario.host("B").connected()
            try await b.publish("in/1", "here again")
            await scenario.sleep(.seconds(1))
            #expect(await a.received == ["here again"])
        }
    }

    @Test func `a filter that the server answers only after minutes is set aside, and the rest goes on`()
        async throws
    {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            try await a.subscribe("in/1")
            try await a.subscribe("in/2")
            a.here { $0.forget() }
            scenario.with { broker, now in
                broker.dislikedFilters = ["in/1": .answersLate]
                broker.disconnect("a", nil, at: now)
                broker.forget("a")
            }
            try await a.until(.connected, within: .seconds(10 * 60))
            #expect(await a.told(.stateChanged).allSatisfy { $0.state != .failed })
            #expect(try await a.status().subscriptions.map(\.state) == [.refused, .granted])
            let b = try await scenario.host("B").connected()
            try await b.publish("in/2", "meanwhile")
            await scenario.sleep(.seconds(1))
            #expect(await a.received == ["meanwhile"])
            a.here { $0.forget() }
            scenario.with { broker, _ in broker.dislikedFilters = [:] }
            await scenario.sleep(.seconds(65 * 60))
            #expect(try await a.status().subscriptions.map(\.state) == [.granted, .granted])
            #expect(await a.told(.stateChanged).isEmpty, "without another connection")
        }
    }

    @Test func `a server killed three times within half a minute, with its state, is not taken for a rival`()
        async throws
    {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            for _ in 0..<3 {
                await scenario.sleep(.seconds(6))
                scenario.stop(remembering: .nothing)
                await scenario.sleep(.seconds(3))
                scenario.start()
                let up = scenario.now
                try await a.until(.connected, within: .seconds(60))
                #expect(up.duration(to: scenario.now) < .seconds(5))
            }
            #expect(await a.told(.stateChanged).allSatisfy { $0.reason?.code != "displaced-suspected" })
        }
    }
}
