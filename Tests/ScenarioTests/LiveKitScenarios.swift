import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// What LiveKit documents of reconnection: quick ("resume") and full reconnects, both announced when they start and when
/// they complete; what survives them; and what the server may order.
@Suite("LiveKit", .timeLimit(.minutes(10)))
struct LiveKitScenarios {
    private static func connected(
        _ extra: String = "", _ body: @Sendable (isolated Scenario, _ a: Host) async throws -> Void
    ) async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", extra).connected()
            try await a.subscribe("news/#")
            await scenario.sleep(.seconds(60))
            try await body(scenario, a)
        }
    }

    @Test func `quick resumes the session, and nothing is set up again`() async throws {
        try await Self.connected { scenario, a in
            scenario.cut(a)
            try await a.until(.reconnecting)
            scenario.with { broker, _ in broker.publish("news/1", "while away") }
            await scenario.sleep(.seconds(20))
            scenario.mend(a)
            let back = try await a.until(.connected)
            #expect(back.resumed == true)
            #expect(back.mode == nil)
            await scenario.sleep(.seconds(1))
            #expect(await a.received == ["while away"])
            #expect(scenario.broker().connects.map(\.cleanStart) == [false, false])
            #expect(scenario.broker().violations.isEmpty)
        }
    }

    @Test func `quick is faster than full, by the time to set everything up again`() async throws {
        try await Self.connected { scenario, a in
            scenario.withUplink(a) { $0.latency = .seconds(1) }
            try await a.reconnect(.quick)
            var began = scenario.now
            try await a.until(.connected)
            let quick = began.duration(to: scenario.now)
            try await a.reconnect(.full)
            began = scenario.now
            try await a.until(.connected)
            let full = began.duration(to: scenario.now)
            #expect(quick == .seconds(4), "TCP, and CONNECT")
            #expect(full >= quick + .seconds(2), "and SUBSCRIBE")
        }
    }

    @Test func `quick is announced when it starts and when it completes`() async throws {
        try await Self.connected { scenario, a in
            scenario.move(a)
            try await a.until(.connected)
            let told = await a.told(.reconnectStarted, .reconnectCompleted)
            #expect(told.map(\.event) == [.reconnectStarted, .reconnectCompleted])
            #expect(told.map(\.mode) == [.quick, .quick])
            #expect(told[1].outage ?? 0 > 0)
        }
    }

    @Test func `quick refused becomes full in the same attempt, and the subscriptions are restored`() async throws {
        try await Self.connected { scenario, a in
            let before = try await a.status().counters
            scenario.with { broker, now in
                broker.disconnect("a", nil, at: now)
                broker.forget("a")
            }
            let back = try await a.until(.connected)
            #expect(back.resumed == false)
            let after = try await a.status().counters
            #expect(after.attempts == before.attempts + 1)
            #expect(after.resumes == before.resumes)
            let told = await a.told(.reconnectStarted, .reconnectCompleted)
            #expect(told.map(\.mode) == [.quick, .full, .full])
            #expect(told.map(\.event) == [.reconnectStarted, .reconnectStarted, .reconnectCompleted])
            scenario.with { broker, _ in broker.publish("news/1", "after") }
            await scenario.sleep(.seconds(1))
            #expect(await a.received == ["after"])
        }
    }

    @Test func `full sends messages accepted during the outage once each, in order`() async throws {
        try await Self.connected { scenario, a in
            scenario.stop(remembering: .nothing)
            try await a.until(.reconnecting)
            for number in 1...20 { try await a.publish("out", "\(number)", qos: .exactlyOnce) }
            await scenario.sleep(.seconds(5))
            scenario.start()
            try await a.until(.connected)
            await scenario.sleep(.seconds(5))
            let arrived = scenario.broker().published.filter { $0.topic == "out" }.map { String(buffer: $0.payload) }
            #expect(arrived == (1...20).map(String.init))
            #expect(try await a.status().outbox.queued == 0)
            #expect(try await a.status().outbox.inFlight == 0)
            scenario.with { broker, _ in broker.publish("news/1", "after") }
            await scenario.sleep(.seconds(1))
            #expect(await a.received == ["after"])
        }
    }

    @Test(arguments: [ReconnectMode.quick, .full])
    func `a reconnect by hand is made at once, in the requested mode`(_ mode: ReconnectMode) async throws {
        try await Self.connected { scenario, a in
            let asked = scenario.now
            try await a.reconnect(mode)
            let change = try await a.until(.reconnecting)
            #expect(change.reason?.code == "user-reconnect")
            let back = try await a.until(.connected)
            #expect(back.resumed == (mode == .quick))
            #expect(asked.duration(to: scenario.now) < .milliseconds(100))
            #expect(scenario.broker().connects.map(\.cleanStart) == [false, mode == .full])
        }
    }

    @Test func `a reconnect by hand while waiting is made at once`() async throws {
        try await Self.connected { scenario, a in
            scenario.stop()
            await scenario.sleep(.seconds(300))
            scenario.start()
            let asked = scenario.now
            try await a.reconnect(nil)
            try await a.until(.connected)
            #expect(asked.duration(to: scenario.now) < .milliseconds(100))
        }
    }

    /// LeaveRequest.Action, and the reason code that an MQTT server has for it.
    @Test(arguments: [
        ("RESUME", ReasonCode.serverShuttingDown, SessionState.reconnecting, "server-shutdown"),
        ("RESUME", .keepAliveTimeout, .reconnecting, "server-keep-alive-timeout"),
        ("DISCONNECT, PARTICIPANT_REMOVED", .administrativeAction, .failed, "removed-by-administrator"),
        ("DISCONNECT, DUPLICATE_IDENTITY", .sessionTakenOver, .failed, "displaced"),
    ])
    func `a DISCONNECT from the server gives the state and the reason`(
        _ action: String, _ code: ReasonCode, _ state: SessionState, _ reason: String
    ) async throws {
        try await Self.connected { scenario, a in
            scenario.with { broker, now in broker.disconnect("a", code, at: now) }
            let change = try await a.until(state)
            #expect(change.reason?.code == reason)
            #expect(change.reason?.serverCode == Int(code.rawValue))
            #expect(change.reason?.message.isEmpty == false)
            #expect(change.reason?.group == Reason.Code(rawValue: reason)?.group.rawValue)
            #expect(change.reason?.terminal == (state == .failed))
            guard state == .reconnecting else { return }
            let back = try await a.until(.connected)
            #expect(back.resumed == true)
            // An ordinary end is another.
            try await a.disconnect()
            let end = try await a.until(.disconnected)
            #expect(end.reason?.code == "user-disconnect")
            #expect(end.reason?.group == "local")
        }
    }

    @Test func `a server that discards the session causes a full reconnect`() async throws {
        try await Self.connected { scenario, a in
            scenario.with { broker, now in
                broker.disconnect("a", .serverShuttingDown, at: now)
                broker.forget("a")
            }
            let back = try await a.until(.connected)
            #expect(back.resumed == false)
            #expect(scenario.broker().subscriptions(of: "a") == ["news/#"])
        }
    }

    @Test func `ten attempts fail the session, not counting those without a network`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "preset = \"livekit\"").connected()
            await scenario.sleep(.seconds(60))
            scenario.cut(a)
            await scenario.sleep(.seconds(3600))
            #expect(try await a.status().state == .reconnecting)
            scenario.stop()
            let before = scenario.dials["A"]?.count ?? 0
            scenario.mend(a)
            let failed = try await a.until(.failed)
            #expect(failed.reason?.code == "retry-timeout")
            #expect(failed.reason?.message.contains("10 attempts") == true)
            #expect(failed.reason?.lastFailure?.code == "refused" && failed.reason?.lastFailure?.group == "network")
            #expect(scenario.dials["A"]?.count == before + 10)
            scenario.start()
            try await a.connect()
            try await a.until(.connected)
        }
    }

    @Test func `the delays are those of LiveKit, each plus up to a second`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "preset = \"livekit\"").connected()
            await scenario.sleep(.seconds(60))
            scenario.stop()
            try await a.until(.reconnecting)
            var last = scenario.now
            try await a.until(.failed)
            let dials = scenario.dials["A"]?.dropFirst() ?? []
            #expect(dials.count >= 7)
            for (delay, dial) in zip([0, 300, 1200, 2700, 4800, 7000, 7000], dials) {
                let waited = last.duration(to: dial)
                #expect(waited >= .milliseconds(delay) && waited <= .milliseconds(delay + 1010))
                last = dial
            }
        }
    }

    @Test func `every change of state says from where, to where and why`() async throws {
        try await Self.connected { scenario, a in
            scenario.stop()
            await scenario.sleep(.seconds(30))
            scenario.start()
            try await a.until(.connected)
            try await a.disconnect()
            try await a.until(.disconnected)
            let changes = await a.told(.stateChanged).filter { $0.from != $0.state }
            #expect(
                changes.map(\.from) == [
                    .disconnected, .connecting, .connected, .reconnecting, .connected, .disconnecting,
                ])
            #expect(
                changes.map(\.state) == [
                    .connecting, .connected, .reconnecting, .connected, .disconnecting, .disconnected,
                ])
            #expect(changes.allSatisfy { $0.reason != nil })
            let numbers = await a.told().map(\.sequence)
            #expect(numbers == Array(numbers[0]..<(numbers[0] + Int64(numbers.count))))
        }
    }
}
