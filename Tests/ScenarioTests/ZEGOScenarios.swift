import ControlAPI
import MQTT
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// What ZEGO's documentation says of the connection to a room: "Room connection status description", with A who loses the
/// network and B who is in the same room.
@Suite("ZEGO", .timeLimit(.minutes(10)))
struct ZEGOScenarios {
    static let room = """
        room = "r1"
        preset = "zego"
        """

    /// A and B in one room, and B has seen A come.
    private static func together(
        _ body: @Sendable (isolated Scenario, _ a: Host, _ b: Host) async throws -> Void
    ) async throws {
        try await Scenario.run { scenario in
            let b = try await scenario.host("B", room).connected()
            let a = try await scenario.host("A", room).connected()
            try await b.until("A is seen") { $0.event == .participantJoined && $0.user == "a" }
            try await body(scenario, a, b)
        }
    }

    @Test func `A is back within the heartbeat timeout: B notices nothing`() async throws {
        try await Self.together { scenario, a, b in
            scenario.cut(a)
            try await a.until(.reconnecting)
            await scenario.sleep(.seconds(60))
            scenario.mend(a)
            #expect(try await a.until(.connected).resumed == true)
            await scenario.sleep(.seconds(300))
            #expect(await b.told(.participantLeft).isEmpty)
            #expect(await b.told(.participantJoined).map(\.user) == ["a"])
            #expect(try await b.participants() == ["a", "b"])
        }
    }

    @Test(arguments: [SessionReconnectMethod.Mode.quick, .full])
    func `A still knows who was in the room while it reconnects`(_ mode: SessionReconnectMethod.Mode) async throws {
        try await Self.together { scenario, a, b in
            scenario.stop()
            try await a.until(.reconnecting)
            #expect(try await a.participants() == ["a", "b"])
            if mode == .full { scenario.with { broker, _ in broker.forget("a") } }
            scenario.start()
            // At every moment until it is back, and afterwards.
            repeat {
                #expect(try await a.participants() == ["a", "b"])
                await scenario.sleep(.milliseconds(10))
            } while try await a.status().state != .connected
            #expect(try await a.participants() == ["a", "b"])
        }
    }

    @Test func `A is back after the heartbeat timeout: B sees A leave and join again`() async throws {
        try await Self.together { scenario, a, b in
            // Only the silence tells the server that A is gone, and A that the server is.
            scenario.silence(a)
            let silent = scenario.now
            try await a.until(.reconnecting)
            let left = try await b.until(.participantLeft)
            #expect(left.user == "a")
            #expect(left.cause == .lost)
            #expect(silent.duration(to: scenario.now) > .seconds(54))
            #expect(silent.duration(to: scenario.now) < .seconds(100))
            #expect(try await b.participants() == ["b"])
            scenario.unsilence(a)
            try await a.until(.connected)
            #expect(try await b.until(.participantJoined).user == "a")
            #expect(try await b.participants() == ["a", "b"])
            #expect(
                await b.told(.participantJoined, .participantLeft).map(\.event) == [
                    .participantJoined, .participantLeft, .participantJoined,
                ])
        }
    }

    @Test func `the server notices the loss at once: B sees A leave after 57 to 58 seconds`() async throws {
        try await Self.together { scenario, a, b in
            scenario.silence(a)
            scenario.reset(a)
            let lost = scenario.now
            let left = try await b.until(.participantLeft)
            #expect(left.cause == .lost)
            #expect((Duration.seconds(57)...Duration.seconds(58)).contains(lost.duration(to: scenario.now)))
        }
    }

    @Test func `Logout is the first state and the last, and a switch of rooms names the old room`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "\(Self.room)\nautoconnect = false")
            #expect(try await a.status().state == .disconnected)
            try await a.connect()
            try await a.until(.connected)
            try await a.switchRoom(to: "r2")
            let change = try await a.until(.roomChanged)
            #expect(change.previousRoom == "r1" && change.room == "r2")
            try await a.disconnect()
            let end = try await a.until(.disconnected)
            #expect(end.reason?.code == "user-disconnect")
            #expect(try await a.status().state == .disconnected)
        }
    }

    @Test func `A is not back within 20 minutes: A has failed, B saw A leave`() async throws {
        try await Self.together { scenario, a, b in
            scenario.cut(a)
            try await a.until(.reconnecting)
            let lost = scenario.now
            let failed = try await a.until(.failed)
            #expect(failed.reason?.code == "retry-timeout")
            #expect(lost.duration(to: scenario.now) == .seconds(1200))
            #expect(await b.told(.participantLeft).map(\.user) == ["a"])
            // No more attempts are made, whatever the network does.
            let dials = scenario.dials["A"]?.count
            scenario.mend(a)
            await scenario.sleep(.seconds(3600))
            #expect(scenario.dials["A"]?.count == dials)
            // Until connect by hand.
            try await a.connect()
            try await a.until(.connected)
            try await b.until(.participantJoined)
        }
    }

    @Test func `the first login is retried like every other, for 20 minutes`() async throws {
        try await Scenario.run { scenario in
            scenario.stop()
            let a = try await scenario.host("A", Self.room)
            try await a.until("a refusal") { $0.reason?.code == "refused" }
            #expect(try await a.status().state == .connecting)
            await scenario.sleep(.seconds(600))
            scenario.start()
            try await a.until(.connected)

            scenario.stop()
            let b = try await scenario.host("B", Self.room)
            let begun = scenario.now
            let failed = try await b.until(.failed)
            #expect(failed.reason?.code == "retry-timeout")
            #expect(failed.from == .connecting)
            #expect(begun.duration(to: scenario.now) == .seconds(1200))
        }
    }

    @Test func `switchRoom leaves one room and joins another`() async throws {
        try await Self.together { scenario, a, b in
            let c = try await scenario.host("C", "room = \"r2\"\npreset = \"zego\"").connected()
            try await a.switchRoom(to: "r2")
            #expect(try await b.until(.participantLeft).user == "a")
            #expect(try await c.until(.participantJoined).user == "a")
            #expect(try await a.status().room == "r2")
            await scenario.sleep(.seconds(300))
            #expect(try await c.participants() == ["a", "c"])
            #expect(try await b.participants() == ["b"])
            #expect(await c.told(.participantLeft).isEmpty)
        }
    }

    @Test func `switchRoom to a room that refuses stays in the old one and says so`() async throws {
        try await Self.together { scenario, a, b in
            scenario.with { broker, _ in
                broker.refusedFilters["holdfast/rooms/r2/presence/+/+"] = .notAuthorized
            }
            var sentence = ""
            do { try await a.switchRoom(to: "r2") } catch let error as RPCError { sentence = error.message }
            #expect(sentence.contains("stays in r1"))
            #expect(try await a.status().room == "r1")
            #expect(try await a.status().state == .connected)
            await scenario.sleep(.seconds(300))
            #expect(await b.told(.participantLeft).isEmpty)
            #expect(
                scenario.broker().retained.keys.sorted() == [
                    "holdfast/rooms/r1/presence/a/device-a", "holdfast/rooms/r1/presence/b/device-b",
                ])
        }
    }

    @Test func `several rooms at once are several sessions, each with its own state`() async throws {
        try await Scenario.run { scenario in
            func file(_ room: String, _ server: Scenario.ServerName) -> String {
                """
                endpoints = ["\(server.endpoint)"]
                user = "a"
                room = "\(room)"
                preset = "zego"
                """
            }
            let a = try await scenario.host("A", sessions: ["first": file("r1", .one), "second": file("r2", .two)])
                .connected()
            try await a.until(.connected)
            scenario.stop(.two)
            try await a.until("the second is lost") { $0.session == "second" && $0.state == .reconnecting }
            await scenario.sleep(.seconds(120))
            #expect(try await a.status("first").state == .connected)
            #expect(try await a.status("first").counters.outages == 0)
            #expect(try await a.status("second").state == .reconnecting)
            try await a.disconnect("first")
            #expect(try await a.status("second").state == .reconnecting)
            scenario.start(.two)
            try await a.until("the second is back") { $0.session == "second" && $0.state == .connected }
            #expect(try await a.status("first").state == .disconnected)
        }
    }

    @Test func `several rooms at one server: each with a client-id of its own, and nothing is lost`() async throws {
        try await Scenario.run { scenario in
            func file(_ room: String) -> String {
                """
                endpoints = ["\(Scenario.ServerName.one.endpoint)"]
                user = "a"
                client-id = "a-\(room)"
                room = "\(room)"
                preset = "zego"
                """
            }
            let b = try await scenario.host("B", Self.room).connected()
            let a = try await scenario.host("A", sessions: ["first": file("r1"), "second": file("r2")])
            try await a.until("the first is up") { $0.session == "first" && $0.state == .connected }
            try await a.until("the second is up") { $0.session == "second" && $0.state == .connected }
            let program = try await a.consume("program", "~/chat", "first")
            for number in 1...100 {
                try await b.publish("~/chat", "\(number)")
                if number == 50 { scenario.reset(a) }
                await scenario.sleep(.seconds(1))
            }
            await scenario.sleep(.seconds(60))
            let given = await a.takeGiven().map { $0.filter(\.isNumber) }
            #expect(Set(given) == Set((1...100).map { "\($0)" }))
            #expect(try await a.participants("first") == ["a", "b"])
            #expect(try await a.participants("second") == ["a"])
            for session in ["first", "second"] { #expect(try await a.status(session).counters.outages == 1) }
            try await a.detach(program, "first")
            // One room is left, and the other one goes on.
            try await a.disconnect("first")
            try await b.until(.participantLeft)
            #expect(try await a.status("second").state == .connected)
        }
    }

    @Test func `several rooms at one server with one client-id are refused, and the error says what to configure`()
        async throws
    {
        try await Scenario.run { scenario in
            let text = "endpoints = [\"\(Scenario.ServerName.one.endpoint)\"]\nuser = \"a\"\n"
            let a = try await scenario.host(
                "A", sessions: ["first": text + "room = \"r1\"", "second": text + "room = \"r2\""])
            for (session, other) in [("first", "second"), ("second", "first")] {
                let status = try await a.status(session)
                #expect(status.state == .failed)
                #expect(status.reason?.code == "bad-configuration")
                #expect(status.reason?.message.contains("sessions \(session) and \(other)") == true)
                #expect(status.reason?.message.contains("client-id = \"a-\(session)\"") == true)
            }
            #expect(scenario.dials["A"] == nil)
        }
    }

    @Test func `the same user logs in elsewhere: kicked out, and no fight`() async throws {
        try await Self.together { scenario, a, _ in
            let again = try await scenario.host("A2", Self.room, user: "a")
            let kicked = try await a.until(.failed)
            #expect(kicked.reason?.code == "displaced")
            #expect(kicked.reason?.terminal == true)
            #expect(await a.told(.displaced).count == 1)
            await scenario.sleep(.seconds(3600))
            #expect(try await a.status().state == .failed)
            #expect(try await again.status().state == .connected)
            #expect(try await again.status().counters.outages == 0)
        }
    }

    @Test func `removed by the backend: kicked out, and it stays out`() async throws {
        try await Self.together { scenario, a, b in
            scenario.with { broker, now in broker.disconnect("a", .administrativeAction, at: now) }
            let removed = try await a.until(.failed)
            #expect(removed.reason?.code == "removed-by-administrator")
            #expect(removed.reason?.serverCode == 0x98)
            #expect(removed.reason?.terminal == true)
            try await b.until(.participantLeft)
            await scenario.sleep(.seconds(3600))
            #expect(try await a.status().state == .failed)
            #expect(scenario.dials["A"]?.count == 1)
        }
    }

    @Test func `logout is seen by other participants at once`() async throws {
        try await Self.together { scenario, a, b in
            let asked = scenario.now
            try await a.disconnect()
            #expect(try await b.until(.participantLeft).user == "a")
            #expect(asked.duration(to: scenario.now) < .seconds(1))
            #expect(try await a.until(.disconnected).reason?.code == "user-disconnect")
            // No participant is told twice, and nothing of A is left.
            await scenario.sleep(.seconds(300))
            #expect(await b.told(.participantLeft).count == 1)
            #expect(scenario.broker().retained.keys.sorted() == ["holdfast/rooms/r1/presence/b/device-b"])
        }
    }

    @Test func `logout without login is not an error and changes nothing`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.room + "\nautoconnect = false")
            #expect(try await a.disconnect() == .disconnected)
            #expect(try await a.disconnect() == .disconnected)
            await scenario.sleep(.seconds(60))
            #expect(scenario.dials["A"] == nil)
        }
    }
}
