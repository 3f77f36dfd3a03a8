import ControlAPI
import MQTT
import NIOCore
import Session
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// What LiveKit documents of published tracks: a quick reconnect keeps them, a full one publishes them again, and they go
/// when they are unpublished and when the participant leaves. A quick reconnect sends them once more, since the server may
/// have been restarted in an older state.
@Suite("Publications", .timeLimit(.minutes(10)))
struct PublicationScenarios {
    /// A publishes in a room, and B receives.
    private static func together(
        _ body: @Sendable (isolated Scenario, _ a: Host, _ b: Host) async throws -> Void
    ) async throws {
        try await Scenario.run { scenario in
            let b = try await scenario.host("B", ZEGOScenarios.room).connected()
            try await b.subscribe("holdfast/rooms/+/track")
            let a = try await scenario.host("A", ZEGOScenarios.room).connected()
            try await a.put("~/track", "camera")
            await scenario.sleep(.seconds(1))
            #expect(await b.received == ["camera"])
            try await body(scenario, a, b)
        }
    }

    @Test func `a quick reconnect keeps publications, and sends them once more`() async throws {
        try await Self.together { scenario, a, b in
            scenario.cut(a)
            try await a.until(.reconnecting)
            await scenario.sleep(.seconds(20))
            scenario.mend(a)
            #expect(try await a.until(.connected).resumed == true)
            await scenario.sleep(.seconds(60))
            #expect(await b.received == ["camera", "camera"])
            #expect(try await a.publications() == ["~/track published"])
        }
    }

    @Test(arguments: [ProtocolVersion.five, .threeOneOne])
    func `a server that was restarted in an older state gets everything again`(version: ProtocolVersion) async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "[mqtt]\nversion = \"\(version)\"").connected()
            scenario.with { broker, _ in broker.save() }
            try await a.subscribe("in/#")
            try await a.put("state", "on")
            await scenario.sleep(.seconds(1))
            scenario.stop(remembering: .saved)
            try await a.until(.reconnecting)
            #expect(scenario.broker().retained["state"] == nil)
            scenario.start()
            #expect(try await a.until(.connected).resumed == true)
            await scenario.sleep(.seconds(1))
            scenario.with { broker, _ in broker.publish("in/1", "after") }
            await scenario.sleep(.seconds(1))
            #expect(await a.received == ["after"])
            #expect(scenario.broker().retained["state"].map { String(buffer: $0.payload) } == "on")
            #expect(try await a.publications() == ["state published"])
        }
    }

    @Test func `a publication unanswered together with a message is not refused`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            try await a.put("p", "good")
            await scenario.sleep(.seconds(1))
            try await a.put("p", "better")
            try await a.publish("t", "x")
            scenario.with { broker, now in broker.disconnect("a", .packetTooLarge, at: now) }
            try await a.until(.reconnecting)
            try await a.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(try await a.publications() == ["p published"])
            #expect(scenario.broker().published.filter { $0.topic == "t" }.count == 1)
            #expect(try await a.status().outbox.quarantined == 0)
        }
    }

    @Test func `a full reconnect restores publications before the session is connected`() async throws {
        try await Self.together { scenario, a, b in
            try await a.reconnect(.full)
            try await a.until(.reconnecting)
            try await a.until(.connected)
            #expect(try await a.publications() == ["~/track published"])
            await scenario.sleep(.seconds(1))
            #expect(await b.received == ["camera", "camera"])
        }
    }

    @Test func `a publication removed during an outage is cleared afterwards, even if the daemon was killed`()
        async throws
    {
        try await Self.together { scenario, a, b in
            scenario.cut(a)
            try await a.until(.reconnecting)
            try await a.unpublish("~/track")
            #expect(try await a.publications() == ["holdfast/rooms/r1/track removing"])
            await a.kill()
            scenario.mend(a)
            try await a.start()
            try await a.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(await b.received == ["camera", ""])
            #expect(try await a.publications() == [])
        }
    }

    @Test func `a publication is cleared by a leave, not by the daemon's end`() async throws {
        try await Self.together { scenario, a, b in
            await a.stop()
            #expect(await b.received == ["camera"])
            try await a.start()
            try await a.until(.connected)
            try await a.disconnect()
            try await a.until(.disconnected)
            await scenario.sleep(.seconds(1))
            // Sent again after the start, since it is not known what the server still had.
            #expect(await b.received == ["camera", "camera", ""])
            #expect(try await a.publications() == ["~/track pending"])
            try await a.connect()
            try await a.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(await b.received.last == "camera")
        }
    }

    @Test(arguments: [false, true])
    func `a disconnect that the server cannot have heard says which publications stay, until one that it hears`(
        isOutage: Bool
    ) async throws {
        try await Self.together { scenario, a, b in
            if isOutage {
                scenario.cut(a)
                try await a.until(.reconnecting)
            } else {
                scenario.silence(a)
            }
            try await a.disconnect()
            let reason = try await a.until(.disconnected).reason
            #expect(reason?.code == "goodbye-unheard")
            #expect(reason?.message.contains("the server may keep 1 publication of the session until") == true)
            #expect(try await a.publications() == ["~/track kept"])
            // Neither time nor a restart of the daemon nor a second disconnect changes that.
            await scenario.sleep(.seconds(600))
            await a.kill()
            try await a.start()
            #expect(try await a.publications() == ["~/track kept"])
            try await a.disconnect()
            #expect(try await a.status().reason?.message.contains("may keep 1 publication") == true)
            if isOutage { scenario.mend(a) } else { scenario.unsilence(a) }
            try await a.connect()
            try await a.until(.connected)
            #expect(try await a.publications() == ["~/track published"])
            try await a.disconnect()
            #expect(try await a.until(.disconnected).reason?.code == "user-disconnect")
            #expect(try await a.publications() == ["~/track pending"])
            await scenario.sleep(.seconds(1))
            #expect(await b.received.last == "")
        }
    }

    @Test func `a publication follows the session to another room`() async throws {
        try await Self.together { scenario, a, b in
            try await a.switchRoom(to: "r2")
            await scenario.sleep(.seconds(10))
            #expect(try await a.status().room == "r2")
            #expect(try await a.status().state == .connected)
            #expect(
                scenario.servers[.one]?.broker.retained.keys.filter { $0.hasSuffix("/track") } == [
                    "holdfast/rooms/r2/track"
                ])
        }
    }

    @Test func `a publication whose topic is too long in a room waits, and the others are published`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            try await a.put("~/" + String(repeating: "t", count: 65_520), "camera")
            try await a.put("~/track", "camera")
            try await a.switchRoom(to: "r")
            try await a.until("there") { $0.event == .stateChanged && $0.state == .connected }
            await scenario.sleep(.seconds(10))
            #expect(try await a.status().state == .connected)
            #expect(try await a.publications().last == "~/track published")
            #expect(try await a.publications().count == 2)
            await #expect(throws: RPCError.self) { try await a.switchRoom(to: String(repeating: "r", count: 65_525)) }
        }
    }

    @Test func `a publication connects a session on demand`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "on-demand = true")
            try await a.put("track", "camera")
            try await a.until(.connected, within: .seconds(1))
            #expect(scenario.broker().retained["track"] != nil)
            #expect(try await a.until(.disconnected).reason?.code == "idle")
            try await a.unpublish("track")
            try await a.until(.connected, within: .seconds(1))
            await scenario.sleep(.seconds(1))
            #expect(scenario.broker().retained["track"] == nil)
        }
    }
}

extension Host {
    fileprivate func put(_ topic: String, _ text: String) async throws {
        _ = try await registry().driver("main").putPublication(
            .init(session: "main", topic: topic, payload: MessagePayload(text: text)))
    }

    fileprivate func unpublish(_ topic: String) async throws {
        _ = try await registry().driver("main").removePublication(.init(session: "main", topic: topic))
    }

    fileprivate func publications() async throws -> [String] {
        try await registry().driver("main").session.listedPublications.map { "\($0.topic) \($0.state.rawValue)" }
    }
}
