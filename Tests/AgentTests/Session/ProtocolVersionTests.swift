import ControlAPI
import MQTT
import NIOCore
import Support
import Testing

@testable import Agent

/// A whole daemon and a server that speaks MQTT 3.1.1.
@Suite("A session with a configured version", .timeLimit(.minutes(10)))
struct ProtocolVersionTests {
    private static let main = #"{"session":"main"}"#

    @Test func `speaks MQTT 3.1.1 when it is configured, says so, and resumes`() async throws {
        try await DaemonUnderTest.run("mqtt.version = \"3.1.1\"") { daemon, peer in
            let status = try await peer.call("session.status", Self.main)
            #expect(status["protocol"] == "3.1.1")
            #expect(status["granted"] == .null, "the server has said nothing")
            #expect(await daemon.server.version == .threeOneOne)
            for qos in 0...2 {
                let answer = try await peer.call(
                    "message.publish",
                    #"{"session":"main","topic":"t","payload":"x","qos":\#(qos),"wait":"delivered"}"#)
                #expect(answer["delivered"] == .bool(true))
            }
            try await daemon.server.stop()
            #expect(try await peer.state("reconnecting")["reason"]?["code"] == "server-closed")
            #expect(try await peer.call("session.status", Self.main)["protocol"] == .null)
            try await daemon.server.start()
            #expect(try await peer.state("connected")["resumed"] == .bool(true))
        }
    }

    @Test func `refuses a message with properties with MQTT 3.1.1, where they would be lost`() async throws {
        try await DaemonUnderTest.run("mqtt.version = \"3.1.1\"") { daemon, peer in
            for method in ["message.publish", "publication.put"] {
                await #expect(throws: ControlPeer.CallFailure(code: "message-rejected")) {
                    try await peer.call(
                        method,
                        #"{"session":"main","topic":"t","payload":"x","properties":{"contentType":"text"}}"#)
                }
            }
        }
    }

    @Test func `with auto, uses MQTT 5 where the server accepts it`() async throws {
        try await DaemonUnderTest.run("mqtt.version = \"auto\"") { _, peer in
            let status = try await peer.call("session.status", Self.main)
            #expect(status["protocol"] == "5")
            #expect(status["granted"] != .null)
        }
    }

    @Test func `discards a session that only the server has first`() async throws {
        let prepare: (LoopbackServer) async throws -> Void = { await $0.beginSession() }
        try await DaemonUnderTest.run("mqtt.version = \"3.1.1\"", prepare: prepare) { daemon in
            let peer = try await daemon.watcher()
            var starts: [Bool] = []
            for _ in 0..<3 { starts.append(try await daemon.server.connect().cleanStart) }
            #expect(starts == [false, true, false])
            #expect(try await peer.call("session.status", Self.main)["resumed"] == .bool(false))
        }
    }

    @Test func `announces its presence again after every outage, since the server saw it leave`() async throws {
        try await DaemonUnderTest.run("room = \"plant\"\nmqtt.version = \"3.1.1\"") { daemon, peer in
            let first = try await daemon.server.message()
            await daemon.server.drop()
            try await peer.state("reconnecting")
            let again = try await daemon.server.message()
            #expect(again.topic == first.topic)
            #expect(again.retain)
            try await peer.state("connected")
        }
    }
}
