import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent
@testable import Session
@testable import SimulationSupport

/// What the four SDKs promise about their reports: events, outcomes, and words. All their statements, and where each is
/// kept, are in Documentation/Statements.md.
@Suite("Statements", .timeLimit(.minutes(10)))
struct StatementScenarios {
    // MARK: Events

    @Test func `states and phases are separate events, and a state says how long the one before lasted`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            #expect(try await a.status().state == .connected)
            await scenario.sleep(.seconds(100))
            scenario.stop()
            try await a.until(.reconnecting)
            #expect(try await a.status().state == .reconnecting)
            #expect(try await a.status().mode == .quick)
            await scenario.sleep(.seconds(20))
            scenario.start()
            let connected = try await a.until(.connected)
            #expect(try await a.status().state == .connected)
            #expect(connected.lasted.map { $0 > 19 } == true)
            let states = await a.told(.stateChanged)
            #expect(states.allSatisfy { $0.from != $0.state })
            #expect(states.compactMap(\.state) == [.connecting, .connected, .reconnecting, .connected])
            #expect(states.dropFirst(2).first?.lasted.map { (99...101).contains($0) } == true)
            let phases = await a.told(.phaseChanged)
            #expect(phases.contains { $0.phase == .waiting })
            #expect(phases.allSatisfy { $0.from == $0.state && $0.lasted == nil })
        }
    }

    @Test func `every event of a reconnect says why`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            scenario.stop()
            try await a.until(.connectionLost)
            scenario.start()
            try await a.until(.reconnectCompleted)
            let told = await a.told(.reconnectStarted, .connectionLost, .reconnectCompleted)
            #expect(told.map(\.reason?.code) == ["server-closed", "refused", "answered"])
        }
    }

    @Test func `every event of a session in a room names it, and a change of rooms is an event`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "room = \"r1\"").connected()
            try await a.switchRoom(to: "r2")
            let changed = try await a.until(.roomChanged)
            #expect(changed.previousRoom == "r1")
            #expect(changed.room == "r2")
            scenario.reset(a)
            try await a.until(.connected)
            let told = await a.told()
            #expect(told.allSatisfy { $0.room != nil })
            #expect(told.last?.room == "r2")
        }
    }

    @Test func `events about participants, publications, messages and consumers name the room, too`() async throws {
        try await Scenario.run { scenario in
            scenario.with { broker, _ in broker.refusedTopics["secret"] = .notAuthorized }
            let a = try await scenario.host("A", "room = \"r\"").connected()
            let b = try await scenario.host("B", "room = \"r\"")
            try await a.until(.participantJoined)
            scenario.withUplink(b) { ($0.isMeasured, $0.latency) = (true, .milliseconds(300)) }
            try await a.until(.participantChanged)
            try await b.disconnect()
            try await a.until(.participantLeft)
            let driver = try await a.registry().driver("main")
            _ = try await driver.putPublication(.init(session: "main", topic: "p", payload: .init(text: "1")))
            try await a.until(.publicationChanged)
            try await a.publish("secret", "1")
            try await a.until(.messageRejected)
            let told = await a.told()
            #expect(told.map(\.event).contains(.stateChanged))
            #expect(told.allSatisfy { $0.room == "r" })
            try await a.consume("billing", "orders/#")
            try await a.consume("billing", "orders/#")
            #expect(await a.takenOver.map(\.event.room) == ["r"])
            #expect(await a.takenOver.map(\.event.consumer) == ["billing"])
        }
    }

    @Test func `a publication is reported when published, again after each reconnect, and when removed`()
        async throws
    {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            let driver = try await a.registry().driver("main")
            _ = try await driver.putPublication(.init(session: "main", topic: "p", payload: .init(text: "1")))
            func next() async throws -> PublicationState? {
                let event = try await a.until(.publicationChanged)
                #expect(event.topic == "p")
                return event.publication
            }
            #expect(try await next() == .published)
            for mode in [ReconnectMode.quick, .full] {
                try await a.reconnect(mode)
                #expect(try await next() == .pending)
                #expect(try await next() == .published)
            }
            _ = try await driver.removePublication(.init(session: "main", topic: "p"))
            #expect(try await next() == .removed)
        }
    }

    @Test func `participants are told why another one left, and how good its connection is`() async throws {
        try await Scenario.run { scenario in
            let b = try await scenario.host("B", "room = \"r\"").connected()
            let a = try await scenario.host("A", "room = \"r\"").connected()
            try await b.until(.participantJoined)
            scenario.withUplink(a) { $0.isMeasured = true }
            #expect(try await a.until(.qualityChanged).quality == .excellent)
            try await b.until("excellent") { $0.event == .participantChanged && $0.quality == .excellent }
            scenario.withUplink(a) { $0.latency = .milliseconds(300) }
            try await a.until("poor") { $0.event == .qualityChanged && $0.quality == .poor }
            let changed = try await b.until("poor") { $0.event == .participantChanged && $0.quality == .poor }
            #expect(changed.user == "a")
            let listed = try await b.registry().driver("main").session.participants().result.participants
            #expect(listed.first { $0.user == "a" }?.quality == .poor)
            try await a.disconnect()
            #expect(try await b.until(.participantLeft).cause == .left)
            try await a.connect()
            try await b.until(.participantJoined)
            scenario.silence(a)
            #expect(try await b.until(.participantLeft).cause == .lost)
        }
    }

    // MARK: Goodbye

    @Test func `a goodbye the server cannot have heard is reported, with how long others see the session`()
        async throws
    {
        try await Scenario.run { scenario in
            let b = try await scenario.host("B", "room = \"r\"").connected()
            let a = try await scenario.host("A", "room = \"r\"").connected()
            try await b.until(.participantJoined)
            scenario.cut(a)
            try await a.until(.reconnecting)
            try await a.disconnect()
            let status = try await a.status()
            #expect(status.state == .disconnected)
            #expect(status.reason?.code == "goodbye-unheard")
            #expect(status.reason?.terminal == false)
            let sentence = status.reason?.message ?? ""
            let rest = sentence.split(separator: " ").dropLast().compactMap { Int($0) }.first
            #expect(sentence.contains("others in the room may see the session for up to"), "\(sentence)")
            #expect(try await b.participants() == ["a", "b"])
            let told = scenario.now
            try await b.until(.participantLeft)
            #expect(told.duration(to: scenario.now) <= .seconds(rest ?? 0))
            // It stays disconnected over a restart of the daemon, as after every disconnect.
            await a.kill()
            scenario.mend(a)
            try await a.start()
            await scenario.sleep(.seconds(60))
            #expect(try await a.status().reason?.code == "goodbye-unheard")
        }
    }

    @Test func `a goodbye on a silent connection is reported as unheard, one after the will fired is not`()
        async throws
    {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "room = \"r\"").connected()
            scenario.silence(a)
            try await a.disconnect()
            #expect(try await a.until(.disconnected).reason?.code == "goodbye-unheard")
            #expect(try await a.status().counters.outages == 0)
            scenario.unsilence(a)
            try await a.connect()
            try await a.until(.connected)
            scenario.cut(a)
            await scenario.sleep(.seconds(300))
            try await a.disconnect()
            #expect(try await a.until(.disconnected).reason?.code == "user-disconnect")
        }
    }

    // MARK: Outcomes

    @Test func `connect answers with the outcome: connected, failed, or not yet`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "autoconnect = false")
            let driver = try await a.registry().driver("main")
            _ = try await a.connect()
            let connected = await driver.outcome(within: .seconds(30))
            #expect(connected.outcome == .connected)
            #expect(connected.state == .connected)
            #expect(await driver.outcome(within: nil).outcome == .connected, "the session is connected already")
            scenario.stop()
            try await a.until(.reconnecting)
            let late = await driver.outcome(within: .seconds(20))
            #expect(late.outcome == .timeout)
            #expect(late.state == .reconnecting)
            scenario.with { broker, _ in broker.refusals["a"] = .banned }
            scenario.start()
            let failed = await driver.outcome(within: nil)
            #expect(failed.outcome == .failed)
            #expect(failed.reason?.code == "banned")
        }
    }

    @Test func `a requested reconnect is not an outage, unless it fails`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "room = \"r1\"").connected()
            try await a.switchRoom(to: "r2")
            try await a.until(.reconnectCompleted)
            try await a.reconnect(.quick)
            let completed = try await a.until(.reconnectCompleted)
            #expect(completed.outage == nil)
            #expect(try await a.status().counters.outages == 0)
            #expect(try await a.status().counters.longestOutage == nil)
            await scenario.sleep(.seconds(60))
            scenario.stop()
            try await a.until(.reconnecting)
            scenario.start()
            try await a.until(.connected)
            #expect(try await a.status().counters.outages == 1)
            await scenario.sleep(.seconds(60))
            scenario.withUplink(a) { $0.dialing = .refused }
            try await a.reconnect(.quick)
            await scenario.sleep(.seconds(60))
            #expect(try await a.status().counters.outages == 2, "a reconnect that fails becomes an outage")
        }
    }

    @Test func `giving up names the limit and the last failure`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "preset = \"agora\"").connected()
            scenario.stop()
            let failed = try await a.until(.failed)
            #expect(failed.reason?.code == "retry-timeout")
            #expect(failed.reason?.message.contains("1200 s, as give-up-after says") == true)
            #expect(failed.reason?.message.contains("refused") == true)
            #expect(failed.reason?.hint == "holdfastctl connect main tries again")
        }
    }

    @Test(arguments: [false, true])
    func `yield: the device that was online is displaced by a first connect`(silent: Bool) async throws {
        try await Scenario.run { scenario in
            scenario.with { broker, _ in broker.takesOverSilently = silent }
            let a = try await scenario.host("A", NexconnScenarios.device("yield"), user: "u").connected()
            await scenario.sleep(.seconds(60))
            try await scenario.host("B", NexconnScenarios.device("yield"), user: "u").connected()
            #expect(try await a.until(.failed).reason?.code == "displaced")
        }
    }

    // MARK: Tokens

    @Test func `renewToken sends a token to the server at once, and it is used until it is rejected`()
        async throws
    {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "insecure = true").connected()
            scenario.with { broker, _ in broker.password = "fresh" }
            let driver = try await a.registry().driver("main")
            _ = try await driver.renewToken("fresh", expires: nil)
            #expect(try await a.until(.reconnecting).reason?.code == "credential-renewed")
            try await a.until(.connected)
            scenario.reset(a)
            try await a.until(.connected)
            scenario.with { broker, _ in broker.password = "fresher" }
            scenario.reset(a)
            #expect(try await a.until(.failed).reason?.code == "credential-rejected")
            // Another token from the program is tried at once.
            _ = try await driver.renewToken("fresher", expires: nil)
            try await a.until(.connected)
        }
    }

    // MARK: Faults

    @Test func `a simulated drop is reported like a real one`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            let driver = try await a.registry().driver("main")
            _ = try await driver.simulate(.init(session: "main", fault: .drop))
            #expect(try await a.until(.reconnecting).reason?.code == "reset")
            let connected = try await a.until(.connected)
            #expect(connected.resumed == true)
            #expect(try await a.status().counters.outages == 1)
        }
    }

    @Test func `a simulated silence is detected, and loses no message`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            let driver = try await a.registry().driver("main")
            _ = try await driver.simulate(.init(session: "main", fault: .silence))
            let began = scenario.now
            try await a.publish("t", "hello")
            let lost = try await a.until(.reconnecting)
            #expect(lost.reason?.code == "heartbeat-timeout")
            #expect(lost.reason?.message.hasSuffix(" (simulated)") == true)
            #expect(began.duration(to: scenario.now) <= .seconds(20))
            try await a.until(.connected)
            await scenario.sleep(.seconds(10))
            #expect(try await a.status().outbox.queued == 0)
            #expect(try await a.status().counters.published == 1)
        }
    }

    @Test func `a simulated full reconnect sets everything up again`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            try await a.subscribe("t")
            let driver = try await a.registry().driver("main")
            _ = try await driver.simulate(.init(session: "main", fault: .fullReconnect))
            #expect(try await a.until(.reconnectStarted).mode == .full)
            #expect(try await a.until(.connected).resumed == false)
            try await a.publish("t", "hello")
            await scenario.sleep(.seconds(1))
            #expect(await a.received == ["hello"])
        }
    }

    @Test func `a simulated loss of the path is waited out, and ends on its own`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            let driver = try await a.registry().driver("main")
            _ = try await driver.simulate(.init(session: "main", fault: .pathLost, duration: 3))
            #expect(try await a.status().doubt == .pathLost)
            await scenario.sleep(.seconds(10))
            #expect(try await a.status().counters.outages == 0, "a flap costs nothing")
            let began = scenario.now
            _ = try await driver.simulate(.init(session: "main", fault: .pathLost, duration: 60))
            try await a.until(.reconnecting)
            #expect(try await a.status().phase == .waitingForNetwork)
            let connected = try await a.until(.connected)
            #expect(connected.reason?.code == "path-gained")
            #expect((Duration.seconds(60)...Duration.seconds(61)).contains(began.duration(to: scenario.now)))
        }
    }
}
