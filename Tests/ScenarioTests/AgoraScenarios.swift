import ControlAPI
import MQTT
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// What Agora's documentation says of "Connection status management": `onConnectionLost` after 10 seconds while the SDK
/// goes on, `FAILED` after 20 minutes, a reason with every change of state, and what other participants see.
@Suite("Agora", .timeLimit(.minutes(10)))
struct AgoraScenarios {
    static let channel = """
        room = "channel"
        preset = "agora"
        """

    @Test func `connection-lost comes once, 10 seconds after the loss, while attempts go on`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.channel).connected()
            scenario.stop()
            try await a.until(.reconnecting)
            let lost = scenario.now
            let event = try await a.until(.connectionLost)
            #expect(lost.duration(to: scenario.now) == .seconds(10))
            #expect(event.outage == 10)
            #expect(try await a.status().lost)
            let dials = scenario.dials["A"]?.count ?? 0
            await scenario.sleep(.seconds(300))
            #expect(scenario.dials["A"]?.count ?? 0 > dials + 3)
            #expect(await a.told(.connectionLost).count == 1)
            scenario.start()
            try await a.until(.connected)
            #expect(try await a.status().lost == false)
        }
    }

    @Test func `an outage shorter than 10 seconds is not called lost`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.channel).connected()
            scenario.stop()
            await scenario.sleep(.seconds(5))
            scenario.start()
            try await a.until(.reconnecting)
            try await a.until(.connected, within: .seconds(5))
            await scenario.sleep(.seconds(60))
            #expect(await a.told(.connectionLost).isEmpty)
        }
    }

    @Test func `20 minutes without success: failed`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.channel).connected()
            scenario.stop()
            try await a.until(.reconnecting)
            let lost = scenario.now
            let failed = try await a.until(.failed)
            #expect(lost.duration(to: scenario.now) == .seconds(1200))
            #expect(failed.reason?.code == "retry-timeout")
            #expect(failed.from == .reconnecting)
        }
    }

    /// A server's reason for ending a connection, and Agora's name for it.
    struct Ending: CustomTestStringConvertible {
        var agora: String
        var code: ReasonCode?
        var state: SessionState
        var reason: String
        var testDescription: String { agora }
    }

    @Test(arguments: [
        Ending(agora: "INTERRUPTED (2)", code: nil, state: .reconnecting, reason: "server-closed"),
        Ending(
            agora: "BANNED_BY_SERVER (3)", code: .administrativeAction, state: .failed,
            reason: "removed-by-administrator"),
        Ending(agora: "SAME_UID_LOGIN (19)", code: .sessionTakenOver, state: .failed, reason: "displaced"),
        Ending(
            agora: "KEEP_ALIVE_TIMEOUT (14), by the server", code: .keepAliveTimeout, state: .reconnecting,
            reason: "server-keep-alive-timeout"),
        Ending(agora: "TOO_MANY_BROADCASTERS (20)", code: .quotaExceeded, state: .reconnecting, reason: "server-busy"),
    ])
    func `the server ends the connection with a reason`(_ ending: Ending) async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "preset = \"agora\"").connected()
            await scenario.sleep(.seconds(60))
            scenario.with { broker, now in broker.disconnect("a", ending.code, at: now) }
            let changed = try await a.until(ending.state)
            #expect(changed.reason?.code == ending.reason)
            #expect(changed.reason?.serverCode == ending.code.map { Int($0.rawValue) })
            #expect(changed.from == .connected)
            if ending.state == .reconnecting { try await a.until(.connected) }
        }
    }

    @Test(arguments: [
        ("INVALID_TOKEN (8)", ReasonCode.badUserNameOrPassword, "credential-rejected"),
        ("REJECTED_BY_SERVER (10)", .notAuthorized, "not-authorized"),
        ("INVALID_APP_ID (6)", .clientIdentifierNotValid, "client-identifier-rejected"),
        ("BANNED_BY_SERVER (3)", .banned, "banned"),
    ])
    func `joining is refused: failed, with the reason`(
        _ agora: String, _ code: ReasonCode, _ reason: String
    ) async throws {
        try await Scenario.run { scenario in
            scenario.with { broker, _ in broker.refusals["a"] = code }
            let a = try await scenario.host("A", "preset = \"agora\"")
            let failed = try await a.until(.failed)
            #expect(failed.reason?.code == reason)
            #expect(failed.reason?.serverCode == Int(code.rawValue))
            #expect(failed.from == .connecting)
            #expect(failed.reason?.message.isEmpty == false)
            #expect(failed.reason?.hint?.isEmpty == false)
            let dials = scenario.dials["A"]?.count
            await scenario.sleep(.seconds(7200))
            #expect(scenario.dials["A"]?.count == dials)
            #expect(try await a.status().state == .failed)
        }
    }

    @Test func `CLIENT_IP_ADDRESS_CHANGED (13): a new address is a new connection at once, and the same session`()
        async throws
    {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.channel).connected()
            let moved = scenario.now
            scenario.move(a)
            let change = try await a.until(.reconnecting)
            #expect(change.reason?.code == "path-moved")
            let back = try await a.until(.connected)
            #expect(back.resumed == true)
            #expect(back.path?.interface == "eth0")
            // Three round trips: TCP, CONNECT, and the subscriptions that are still there.
            #expect(moved.duration(to: scenario.now) < .milliseconds(50))
        }
    }

    @Test func `KEEP_ALIVE_TIMEOUT (14): silence is noticed after interval and timeout of the heartbeat`() async throws
    {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.channel).connected()
            await scenario.sleep(.seconds(100))
            scenario.silence(a)
            let silent = scenario.now
            let change = try await a.until(.reconnecting)
            #expect(change.reason?.code == "heartbeat-timeout")
            #expect(silent.duration(to: scenario.now) <= .seconds(20))
            scenario.unsilence(a)
            try await a.until(.connected)
        }
    }

    @Test func `LEAVE_CHANNEL (5): leaving is not an error, and nothing follows`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.channel).connected()
            try await a.disconnect()
            let left = try await a.until(.disconnected)
            #expect(left.reason?.code == "user-disconnect")
            #expect(left.reason?.terminal == false)
            await scenario.sleep(.seconds(3600))
            #expect(scenario.dials["A"]?.count == 1)
        }
    }

    @Test func `A drops out for longer than 20 seconds: B sees A offline, and again when A is back`() async throws {
        try await Scenario.run { scenario in
            let b = try await scenario.host("B", Self.channel).connected()
            let a = try await scenario.host("A", Self.channel)
            try await b.until(.participantJoined)
            scenario.silence(a)
            let silent = scenario.now
            let offline = try await b.until(.participantLeft)
            #expect(offline.user == "a")
            #expect((Duration.seconds(12)...Duration.seconds(23)).contains(silent.duration(to: scenario.now)))
            scenario.unsilence(a)
            try await a.until(.connected)
            #expect(try await b.until(.participantJoined).user == "a")
        }
    }

    @Test func `A drops out for less: B sees nothing`() async throws {
        try await Scenario.run { scenario in
            let b = try await scenario.host("B", Self.channel).connected()
            let a = try await scenario.host("A", Self.channel)
            try await b.until(.participantJoined)
            for _ in 1...5 {
                scenario.move(a)
                try await a.until(.connected)
                await scenario.sleep(.seconds(15))
            }
            #expect(await b.told(.participantLeft).isEmpty)
        }
    }
}
