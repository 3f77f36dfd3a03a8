import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// A server that has no room for any message of the session, and closes the connection for each.
@Suite("Quota", .timeLimit(.minutes(10)))
struct QuotaScenarios {
    @Test(arguments: [QoS.atLeastOnce, .exactlyOnce])
    func `a server whose session is full of old exchanges gets a new session, and every message`(
        qos: QoS
    ) async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            try await a.subscribe("u")
            scenario.with { broker, _ in broker.fill("a") }
            for number in 1...30 { try await a.publish("t", "\(number)", qos: qos) }
            let narrowed = try await a.until(.reconnecting)
            #expect(narrowed.reason?.code == "server-error")
            #expect(narrowed.reason?.serverCode == 0x97)
            #expect(narrowed.reason?.message.contains("messages are sent at a time") == true)
            #expect(narrowed.mode == .quick)
            let fresh = try await a.until("the session is given up") { $0.reason?.code == "state-mismatch" }
            #expect(fresh.mode == .full)
            #expect(fresh.reason?.message.contains("the session at the server is given up") == true)
            let back = try await a.until("connected again", within: .seconds(5)) {
                $0.state == .connected && $0.resumed == false
            }
            #expect(back.reason?.code == "state-mismatch")
            await scenario.sleep(.seconds(1))
            let outbox = try await a.status().outbox
            #expect(outbox.queued == 0 && outbox.inFlight == 0 && outbox.quarantined == 0)
            let arrived = scenario.broker().published.filter { $0.topic == "t" }.map { String(buffer: $0.payload) }
            #expect(arrived == (1...30).map { "\($0)" })
            #expect(scenario.broker().subscriptions(of: "a") == ["u"])
            #expect(await a.told(.messageRejected).isEmpty)
        }
    }

    @Test func `a server whose session is full refuses the presence too, until it gets a new session`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", ZEGOScenarios.room).connected()
            scenario.with { broker, _ in broker.fill("a") }
            try await a.publish("~/t", "x")
            try await a.until(.reconnecting)
            let back = try await a.until("connected again", within: .seconds(300)) {
                $0.state == .connected && $0.resumed == false
            }
            #expect(back.reason?.code == "state-mismatch")
            await scenario.sleep(.seconds(1))
            #expect(try await a.status().outbox.quarantined == 0)
            #expect(try await a.status().outbox.queued == 0)
            #expect(scenario.broker().retained.keys.contains { $0.contains("presence") })
        }
    }
}
