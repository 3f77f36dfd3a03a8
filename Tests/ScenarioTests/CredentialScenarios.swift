import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// Tokens that expire and helpers that misbehave, during everything else.
@Suite("Credentials", .timeLimit(.minutes(10)))
struct CredentialScenarios {
    static let session = """
        password = "exec:/usr/bin/token"
        insecure = true
        """

    private static func connected(
        lifetime: Duration? = nil,
        _ body: @Sendable (isolated Scenario, _ a: Host, _ service: TokenService) async throws -> Void
    ) async throws {
        try await Scenario.run { scenario in
            let service = TokenService(scenario.loop)
            await service.set("first", lifetime: lifetime)
            scenario.with { broker, _ in broker.password = "first" }
            let a = try await scenario.host("A", session + "\nautoconnect = false")
            await a.use(service)
            try await a.connect()
            try await a.until(.connected)
            try await body(scenario, a, service)
        }
    }

    @Test func `a token that expires during an outage is fetched again for the attempt`() async throws {
        try await Self.connected(lifetime: .seconds(600)) { scenario, a, service in
            await scenario.sleep(.seconds(300))
            scenario.cut(a)
            try await a.until(.reconnecting)
            await scenario.sleep(.seconds(1200))
            await service.set("second", lifetime: .seconds(600))
            scenario.with { broker, _ in broker.password = "second" }
            scenario.mend(a)
            let back = try await a.until(.connected, within: .seconds(1))
            #expect(back.resumed == true)
        }
    }

    @Test func `a token is renewed before it expires, and the session is resumed with it`() async throws {
        try await Self.connected(lifetime: .seconds(600)) { scenario, a, service in
            await service.set("second", lifetime: .seconds(3600))
            scenario.with { broker, _ in broker.password = "second" }
            let begun = scenario.now
            try await a.until(.credentialExpiring)
            #expect(begun.duration(to: scenario.now) < .seconds(600))
            let change = try await a.until(.reconnecting)
            #expect(change.reason?.code == "credential-renewed")
            let back = try await a.until(.connected)
            #expect(back.resumed == true)
            #expect(begun.duration(to: scenario.now) < .seconds(600))
        }
    }

    @Test func `a renewed token is the one sent even behind a proxy with a password`()
        async throws
    {
        try await Scenario.run { scenario in
            let service = TokenService(scenario.loop)
            await service.set("first", lifetime: .seconds(600))
            let proxy = """
                [proxy]
                url = "http://proxy.example:3128"
                username = "us"
                password = "exec:/usr/bin/proxy"
                """
            let a = try await scenario.host("A", Self.session + "\nautoconnect = false\n" + proxy)
            await a.use(service)
            try await a.connect()
            try await a.until(.connected)
            #expect(await service.asked == 2)
            await service.set("second", lifetime: .seconds(3600))
            try await a.until(.reconnecting)
            try await a.until(.connected)
            #expect(await service.asked == 4, "for the renewal, and for the proxy")
        }
    }

    @Test func `a helper that fails does not end the session, and is asked again`() async throws {
        try await Self.connected(lifetime: .seconds(600)) { scenario, a, service in
            await service.fail("the token service is down")
            try await a.until(.credentialExpiring)
            await scenario.sleep(.seconds(30))
            #expect(try await a.status().state == .connected)
            await service.fail(nil)
            await service.set("second", lifetime: .seconds(3600))
            scenario.with { broker, _ in broker.password = "second" }
            try await a.until(.reconnecting, within: .seconds(60))
            try await a.until(.connected)
        }
    }

    @Test func `a helper that fails until the token has expired is asked again afterwards`() async throws {
        try await Self.connected(lifetime: .seconds(600)) { scenario, a, service in
            await service.fail("the token service is down")
            await scenario.sleep(.seconds(3600))
            #expect(try await a.status().state == .connected)
            await service.fail(nil)
            await service.set("second", lifetime: .seconds(3600))
            scenario.with { broker, _ in broker.password = "second" }
            let renewed = try await a.until(.reconnecting, within: .seconds(300))
            #expect(renewed.reason?.code == "credential-renewed")
            try await a.until(.connected)
        }
    }

    @Test func `a helper that answers the old token with a new expiry is asked again`()
        async throws
    {
        try await Self.connected(lifetime: .seconds(3)) { scenario, a, service in
            await scenario.sleep(.seconds(60))
            #expect(await service.asked > 20)
            await service.set("second", lifetime: .seconds(3600))
            scenario.with { broker, _ in broker.password = "second" }
            let renewed = try await a.until(.reconnecting, within: .seconds(3))
            #expect(renewed.reason?.code == "credential-renewed")
            try await a.until(.connected)
        }
    }

    @Test func `a token that expires during connection setup is renewed once connected`() async throws {
        try await Scenario.run { scenario in
            let service = TokenService(scenario.loop)
            await service.set("first", lifetime: .seconds(3))
            let a = try await scenario.host("A", Self.session + "\nautoconnect = false")
            scenario.withUplink(a) { $0.latency = .seconds(2) }
            await a.use(service)
            try await a.connect()
            try await a.until(.connected)
            await service.set("second", lifetime: .seconds(3600))
            let renewed = try await a.until(.reconnecting, within: .seconds(10))
            #expect(renewed.reason?.code == "credential-renewed")
            try await a.until(.connected)
            #expect(scenario.broker().connects.last?.password.map { String(buffer: $0) } == "second")
        }
    }

    @Test(arguments: ["it ended with 1: no network", "what it printed is no token: expected a string"])
    func `a helper that fails or prints nonsense is asked again at the next attempt, and is the reason`(
        _ sentence: String
    ) async throws {
        try await Self.connected { scenario, a, service in
            await service.fail(sentence)
            scenario.move(a)
            let failed = try await a.until("the credential cannot be read") {
                $0.reason?.code == "credential-unreadable"
            }
            #expect(failed.reason?.message.contains(sentence) == true)
            #expect(failed.reason?.terminal == false)
            await scenario.sleep(.seconds(120))
            #expect(await service.asked > 3)
            await service.fail(nil)
            try await a.until(.connected)
        }
    }

    @Test func `a helper that hangs is given up, and the session tries again`() async throws {
        try await Self.connected { scenario, a, service in
            await service.hang(true)
            scenario.move(a)
            try await a.until(.reconnecting)
            let failed = try await a.until("given up") { $0.phase == .waiting }
            #expect(failed.reason?.code == "credential-unreadable")
            await service.hang(false)
            try await a.until(.connected)
        }
    }

    @Test func `a rejected token is renewed once, and the same token again is terminal`() async throws {
        try await Self.connected { scenario, a, service in
            scenario.with { broker, _ in broker.password = "second" }
            scenario.move(a)
            let failed = try await a.until(.failed)
            #expect(failed.reason?.code == "credential-rejected")
            #expect(failed.reason?.terminal == true)
            // At the start, for the attempt, and once more after the rejection.
            #expect(await service.asked == 3)
            await scenario.sleep(.seconds(3600))
            #expect(await service.asked == 3)
        }
    }

    @Test func `a session whose connection the server ended is not reported connected while the helper is asked`()
        async throws
    {
        try await Self.connected { scenario, a, service in
            await service.hang(true)
            scenario.with { broker, now in broker.disconnect("a", .notAuthorized, at: now) }
            await scenario.sleep(.milliseconds(100))
            let status = try await a.status()
            #expect(status.state == .reconnecting)
            #expect(status.phase == .resolving)
            #expect(status.reason?.code == "not-authorized")
            let given = try await a.until("given up") { $0.phase == .waiting }
            #expect(given.reason?.code == "credential-unreadable")
            #expect(given.reason?.serverCode == Int(ReasonCode.notAuthorized.rawValue))
            await service.hang(false)
            await service.set("second")
            scenario.with { broker, _ in broker.password = "second" }
            try await a.until(.connected)
        }
    }

    @Test func `a helper that hangs after a rejection does not make the server look silent`() async throws {
        try await Self.connected { scenario, a, service in
            scenario.with { broker, _ in broker.password = "second" }
            scenario.move(a)
            await scenario.sleep(.milliseconds(15))
            await service.hang(true)
            let given = try await a.until("given up") { $0.phase == .waiting }
            #expect(given.reason?.code == "credential-unreadable")
            #expect(given.reason?.message.contains("bad user name or password") == true)
            let dials = scenario.dials["A"]?.count
            await service.hang(false)
            let failed = try await a.until(.failed)
            #expect(failed.reason?.code == "credential-rejected", "the rejected token is not sent to the server again")
            #expect(scenario.dials["A"]?.count == dials)
            #expect(await a.told(.stateChanged).allSatisfy { $0.reason?.code != "authenticate-timeout" })
        }
    }

    @Test func `a rejection is not terminal when a new token is available`() async throws {
        try await Self.connected { scenario, a, service in
            scenario.with { broker, _ in broker.password = "second" }
            scenario.move(a)
            // The token changes after it was fetched and before it is rejected.
            await scenario.sleep(.milliseconds(15))
            await service.set("second")
            try await a.until(.connected, within: .seconds(5))
            #expect(await a.told(.stateChanged).allSatisfy { $0.state != .failed })
        }
    }

    @Test func `a rejected token that has expired is reported as expired, and a new one works again`() async throws {
        try await Self.connected(lifetime: .seconds(600)) { scenario, a, service in
            // The helper still answers with the old token.
            await service.set("first", lifetime: .zero)
            await scenario.sleep(.seconds(700))
            #expect(try await a.status().state == .connected)
            scenario.with { broker, now in
                broker.password = "second"
                broker.disconnect("a", .notAuthorized, at: now)
            }
            let failed = try await a.until(.failed)
            #expect(failed.reason?.code == "credential-expired")
            #expect(failed.reason?.serverCode == Int(ReasonCode.notAuthorized.rawValue))
            await service.set("second")
            try await a.connect()
            try await a.until(.connected)
        }
    }

    // MARK: Passwords that are proven

    private static func proven(
        lifetime: Duration,
        _ body: @Sendable (isolated Scenario, _ a: Host, _ service: TokenService) async throws -> Void
    ) async throws {
        try await Scenario.run { scenario in
            let service = TokenService(scenario.loop)
            await service.set("first", lifetime: lifetime)
            scenario.with { broker, _ in broker.scramPassword = "first" }
            let a = try await scenario.host(
                "A", session + "\nautoconnect = false\nmqtt.authentication = \"SCRAM-SHA-256\"")
            await a.use(service)
            try await a.connect()
            try await a.until(.connected)
            try await body(scenario, a, service)
        }
    }

    @Test func `a password that expires is renewed on the same connection`() async throws {
        try await Self.proven(lifetime: .seconds(600)) { scenario, a, service in
            scenario.with { broker, _ in broker.scramPassword = "second" }
            await service.set("second", lifetime: .seconds(7200))
            try await a.until(.credentialExpiring)
            await scenario.sleep(.seconds(3600))
            let status = try await a.status()
            #expect(status.state == .connected)
            #expect(status.counters.connects == 1)
            #expect(await service.asked == 2)
            // The next connection uses the new password.
            scenario.reset(a)
            try await a.until(.reconnecting)
            try await a.until(.connected)
            #expect(scenario.broker().connects.allSatisfy { $0.password == nil })
        }
    }

    @Test func `a new password causes a reconnect when the server does not answer the renewal`() async throws {
        try await Self.proven(lifetime: .seconds(600)) { scenario, a, service in
            scenario.with { broker, _ in (broker.scramPassword, broker.answersAuth) = ("second", false) }
            await service.set("second", lifetime: .seconds(7200))
            try await a.until(.credentialExpiring)
            let lost = try await a.until(.reconnecting, within: .seconds(60))
            #expect(lost.reason?.code == "credential-renewed")
            scenario.with { broker, _ in broker.answersAuth = true }
            try await a.until(.connected)
        }
    }
}
