import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// Lists of endpoints, and servers that come and go.
@Suite("Endpoints", .timeLimit(.minutes(10)))
struct EndpointScenarios {
    @Test func `a session returns to its first server when that answers again, and delivers its messages`() async throws
    {
        try await Scenario.run { scenario in
            scenario.stop(.one)
            let a = try await scenario.host("A", endpoints: [.one, .two]).connected()
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
            #expect(scenario.knocks["A"]?.count == 1, "no checks while connected to the first server")
        }
    }

    @Test(arguments: ["", "username = \"u\"\npassword = \"file:/p\"\n"])
    func `a session behind a proxy returns when the first server answers, not the proxy`(_ login: String) async throws {
        try await Scenario.run { scenario in
            scenario.stop(.one)
            let a = try await scenario.host(
                "A", "[proxy]\nurl = \"http://192.0.2.9:3128\"\n" + login, endpoints: [.one, .two])
            await a.use(TokenService(scenario.loop))
            try await a.until(.connected)
            #expect(try await a.status().endpoint == Scenario.ServerName.two.endpoint)
            await scenario.sleep(.seconds(3600))
            #expect(try await a.status().counters.outages == 0, "the first server is down")
            scenario.start(.one)
            #expect(try await a.until(.reconnecting).reason?.code == "returning")
            try await a.until(.connected, within: .seconds(1))
            #expect(try await a.status().endpoint == Scenario.ServerName.one.endpoint)
        }
    }

    @Test func `a server that is back after a long outage is found within 20 seconds`()
        async throws
    {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
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

    @Test func `a path that heals without a kernel message is noticed`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
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

    @Test(arguments: [ReasonCode.useAnotherServer, .serverMoved])
    func `a session that the server redirects goes there at once`(_ code: ReasonCode) async throws {
        try await Scenario.run { scenario in
            let file = """
                [mqtt]
                redirects = ["\(Scenario.ServerName.two.address)"]
                """
            let a = try await scenario.host("A", file).connected()
            await scenario.sleep(.seconds(60))
            let moved = scenario.now
            scenario.with { broker, now in
                var properties = Disconnect.Properties()
                properties.serverReference = Scenario.ServerName.two.address
                broker.disconnect("a", code, properties, at: now)
            }
            let lost = try await a.until(.reconnecting)
            #expect(lost.reason?.code == "moved")
            try await a.until(.connected)
            #expect(try await a.status().endpoint == Scenario.ServerName.two.endpoint)
            #expect(moved.duration(to: scenario.now) < .milliseconds(100))
            // For one connection, or for good.
            scenario.move(a)
            try await a.until(.connected)
            let home = code == .serverMoved ? Scenario.ServerName.two : .one
            #expect(try await a.status().endpoint == home.endpoint)
        }
    }

    @Test func `a session that returns to a balancer follows it to the server that it names`() async throws {
        try await Scenario.run { scenario in
            let file = """
                [mqtt]
                redirects = ["\(Scenario.ServerName.two.address)"]
                """

            scenario.stop(.one)
            let a = try await scenario.host("A", file, endpoints: [.one, .two]).connected()
            scenario.start(.one)
            scenario.with(.one) { broker, _ in
                broker.refusals["a"] = .useAnotherServer
                broker.connackProperties.serverReference = Scenario.ServerName.two.address
            }
            #expect(try await a.until(.reconnecting).reason?.code == "returning")
            try await a.until(.connected)
            await scenario.sleep(.seconds(3600))
            let status = try await a.status()
            #expect(status.endpoint == Scenario.ServerName.two.endpoint)
            #expect(status.counters.outages == 0, "it left on its own")
            #expect(status.counters.connects == 2, "it does not return for ever")
        }
    }

    @Test func `a redirect to a server that is not on the list fails the session`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            scenario.with { broker, now in
                var properties = Disconnect.Properties()
                properties.serverReference = Scenario.ServerName.two.address
                broker.disconnect("a", .serverMoved, properties, at: now)
            }
            let failed = try await a.until(.failed)
            #expect(failed.reason?.code == "redirect-refused")
            #expect(failed.reason?.message.contains(Scenario.ServerName.two.address) == true)
        }
    }

    @Test func `a server that shuts down is left for the next at once, and no accepted message is lost`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", endpoints: [.one, .two]).connected()
            await scenario.sleep(.seconds(60))
            scenario.with { broker, now in broker.disconnect("a", .serverShuttingDown, at: now) }
            scenario.stop(.one)
            for number in 1...20 { try await a.publish("out", "\(number)", qos: .atLeastOnce) }
            try await a.until(.connected, within: .seconds(5))
            await scenario.sleep(.seconds(5))
            let arrived = scenario.broker(.two).published.filter { $0.topic == "out" }.map {
                String(buffer: $0.payload)
            }
            #expect(arrived == (1...20).map(String.init))
        }
    }

    @Test
    func `a first server that ends each connection it has accepted does not keep the session from the second one`()
        async throws
    {
        try await Scenario.run { scenario in
            scenario.with(.one) { broker, _ in broker.closesAfterConnack = true }
            let a = try await scenario.host("A", endpoints: [.one, .two])
            try await a.publish("a", "hello", qos: .atLeastOnce)
            while try await a.status().endpoint != Scenario.ServerName.two.endpoint {
                await scenario.sleep(.seconds(1))
            }
            try await a.until(.connected)
            await scenario.sleep(.seconds(3600))
            #expect(scenario.broker(.two).published.contains { String(buffer: $0.payload) == "hello" })
            let status = try await a.status()
            #expect(status.outbox.queued + status.outbox.inFlight == 0)
            #expect(status.counters.outages < 20, "returns are rare")
            scenario.with(.one) { broker, _ in broker.closesAfterConnack = false }
            await scenario.sleep(.seconds(1200))
            #expect(try await a.status().endpoint == Scenario.ServerName.one.endpoint)
        }
    }

    @Test func `what a server has kept since the session left it arrives on the return`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "room = \"r\"", endpoints: [.one, .two]).connected()
            try await a.subscribe("old/#")
            scenario.stop(.one)
            try await a.until(.connected)
            try await a.subscribe("new/#")
            await scenario.sleep(.seconds(200))
            scenario.start(.one)
            scenario.with(.one) { broker, _ in broker.publish("old/1", "kept", qos: .atLeastOnce) }
            let lost = try await a.until(.reconnecting)
            #expect(lost.reason?.code == "returning")
            try await a.until(.connected)
            #expect(scenario.broker(.one).subscriptions(of: "a").isSuperset(of: ["old/#", "new/#"]))
            scenario.with(.one) { broker, _ in broker.publish("new/1", "heard") }
            await scenario.sleep(.seconds(300))
            #expect(await a.received == ["kept", "heard"])
            let presence = scenario.broker(.one).retained["holdfast/rooms/r/presence/a/device-a"]
            #expect(presence.map { String(buffer: $0.payload).contains("online") } == true)
        }
    }

    @Test(arguments: [true, false])
    func `a subscription that was given up elsewhere is ended on the return, even after the daemon restarted`(
        isKilledBefore: Bool
    ) async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", endpoints: [.one, .two]).connected()
            let old = try await a.subscribe("old/#")
            if isKilledBefore {
                await a.kill()
                scenario.stop(.one)
                try await a.start()
                try await a.until(.connected)
            } else {
                scenario.stop(.one)
                try await a.until(.connected)
                try await a.unsubscribe(old)
                await scenario.sleep(.seconds(1))
                await a.kill()
            }
            scenario.start(.one)
            if isKilledBefore {
                try await a.until(.reconnecting)
            } else {
                try await a.start()
            }
            try await a.until(.connected)
            #expect(try await a.status().endpoint == Scenario.ServerName.one.endpoint)
            await scenario.sleep(.seconds(1))
            #expect(!scenario.broker(.one).subscriptions(of: "a").contains("old/#"))
        }
    }

    @Test func `a path found to have moved when the connection opens causes no protocol violation`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            for _ in 1...3 {
                try await a.reconnect(nil)
                // The dial is under way.
                await scenario.sleep(.milliseconds(5))
                scenario.moveUnnoticed(a)
                try await a.until(.connected)
                await scenario.sleep(.seconds(60))
            }
            #expect(scenario.broker().violations.isEmpty)
        }
    }
}
