import ControlAPI
import MQTT
import NIOCore
import Session
import SessionCore
import Support
import Testing

@testable import Agent

/// Two devices of one user: what a whole session does when it has looked.
@Suite(.timeLimit(.minutes(10)))
struct PresenceLookSessionTests {
    private static let ownTopic = RoomSessionTests.own

    /// The next connection of the look, up to its SUBSCRIBE, which is answered with these presences and then as asked.
    private func answerLook(_ server: LoopbackServer, _ messages: [(topic: String, payload: String)]) async throws {
        let connect = try await server.connect()
        #expect(connect.clientID == "edge-42-look")
        let subscribe = try await server.packet { packet in
            if case .subscribe(let subscribe) = packet { subscribe } else { nil }
        }
        for (topic, payload) in messages {
            await server.send(.publish(Publish(topic: topic, payload: ByteBuffer(string: payload), retain: true)))
        }
        await server.send(.suback(Suback(packetID: subscribe.packetID, reasonCodes: [.success])))
    }

    private func inRoom(
        _ body: (DaemonUnderTest, ControlPeer, Publish) async throws -> Void
    ) async throws {
        try await DaemonUnderTest.run("room = \"plant\"") { daemon in
            let peer = try await daemon.watcher()
            _ = try await daemon.server.connect()
            let presence = try await daemon.server.message()
            await daemon.server.set { $0.answersSubscribe = false }
            try await body(daemon, peer, presence)
        }
    }

    @Test func `a close without a reason and a newer device displace the session, and its presence goes`() async throws
    {
        try await inRoom { daemon, peer, presence in
            await daemon.server.drop()
            try await answerLook(
                daemon.server,
                [
                    (Self.ownTopic, String(buffer: presence.payload)),
                    (
                        "holdfast/rooms/plant/presence/edge-42/other",
                        RoomSessionTests.presence(
                            "edge-42", "other",
                            connection: ConnectionMark(
                                clientID: "edge-42", time: RFC3339(milliseconds: 0), random: 7))
                    ),
                ])
            let failed = try await peer.state("failed")
            #expect(failed["reason"]?["code"] == "displaced")
            let cleared = try await daemon.server.message()
            #expect(cleared.topic == Self.ownTopic && cleared.retain && cleared.payload.readableBytes == 0)
        }
    }

    @Test func `a close without a reason and nobody else is an outage like every other`() async throws {
        try await inRoom { daemon, peer, presence in
            await daemon.server.drop()
            // The second look is for a device that has not said yet that it is there.
            for _ in 1...2 { try await answerLook(daemon.server, [(Self.ownTopic, String(buffer: presence.payload))]) }
            #expect(try await daemon.server.connect().clientID == "edge-42")
            try await peer.state("connected")
        }
    }

    /// A session that yields, and is connected; the server does not answer the next SUBSCRIBE by itself.
    private func yielding(_ body: (DaemonUnderTest, ControlPeer) async throws -> Void) async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let session = await DaemonUnderTest.session(daemon.server, "room = \"plant\"")
            try daemon.directory.write("sessions.d/main.toml", session + "\nkick = \"yield\"\n")
            let peer = try await daemon.peer()
            try await peer.call("session.watch")
            try await peer.call("daemon.reload")
            try await peer.call("session.connect", RoomSessionTests.main)
            #expect(try await daemon.server.connect().clientID == "edge-42", "a first connect does not look")
            try await peer.state("connected")
            await daemon.server.set { $0.answersSubscribe = false }
            try await body(daemon, peer)
        }
    }

    private static let other = (
        topic: "holdfast/rooms/plant/presence/edge-42/other",
        payload: RoomSessionTests.presence("edge-42", "other", since: RFC3339(milliseconds: 0))
    )

    @Test func `with yield the session stops for an older device, too`() async throws {
        try await yielding { daemon, peer in
            await daemon.server.disconnect(.serverShuttingDown)
            try await answerLook(daemon.server, [Self.other])
            #expect(try await peer.state("failed")["reason"]?["code"] == "yielded")
        }
    }

    @Test func `with yield a device that took over and has not said so yet is not thrown out again`() async throws {
        try await yielding { daemon, peer in
            await daemon.server.drop()
            try await answerLook(daemon.server, [])
            try await answerLook(daemon.server, [Self.other])
            #expect(try await peer.state("failed")["reason"]?["code"] == "yielded")
        }
    }

    @Test func `with yield one look is enough when the server has given its reason`() async throws {
        try await yielding { daemon, peer in
            await daemon.server.disconnect(.serverShuttingDown)
            try await answerLook(daemon.server, [])
            #expect(try await daemon.server.connect().clientID == "edge-42")
            try await peer.state("connected")
        }
    }

    @Test func `a server that does not let the room be looked into is connected to`() async throws {
        try await inRoom { daemon, peer, _ in
            await daemon.server.drop()
            _ = try await daemon.server.connect()
            let subscribe = try await daemon.server.packet { packet in
                if case .subscribe(let subscribe) = packet { subscribe } else { nil }
            }
            await daemon.server.send(.suback(Suback(packetID: subscribe.packetID, reasonCodes: [.notAuthorized])))
            #expect(try await daemon.server.connect().clientID == "edge-42")
            try await peer.state("connected")
        }
    }

    @Test func `a session that is told to be displaced takes its presence away`() async throws {
        try await inRoom { daemon, peer, presence in
            await daemon.server.disconnect(.sessionTakenOver)
            #expect(try await peer.state("failed")["reason"]?["code"] == "displaced")
            try await answerLook(daemon.server, [(Self.ownTopic, String(buffer: presence.payload))])
            let cleared = try await daemon.server.message()
            #expect(cleared.topic == Self.ownTopic && cleared.payload.readableBytes == 0)
        }
    }

    @Test func `what another device says under the same name stays`() async throws {
        try await inRoom { daemon, peer, _ in
            await daemon.server.disconnect(.sessionTakenOver)
            try await peer.state("failed")
            try await answerLook(daemon.server, [(Self.ownTopic, RoomSessionTests.presence("edge-42", "device"))])
            let last = try await daemon.server.packet { packet -> String? in
                switch packet {
                case .publish: "PUBLISH"
                case .disconnect: "DISCONNECT"
                default: nil
                }
            }
            #expect(last == "DISCONNECT")
        }
    }
}
