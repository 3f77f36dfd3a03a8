import ControlAPI
import MQTT
import NIOCore
import Support
import Testing

@testable import Agent

/// A server that ends the connection because of one message, again at every connection.
@Suite(.timeLimit(.minutes(10)))
struct OutboundEndTests {
    enum End: CaseIterable, Sendable {
        case byClosing, withoutWord, disconnect87, disconnect9B

        var version: ProtocolVersion { self == .withoutWord ? .threeOneOne : .five }
        var code: ReasonCode? {
            switch self {
            case .byClosing, .withoutWord: nil
            case .disconnect87: .notAuthorized
            case .disconnect9B: .qosNotSupported
            }
        }
    }

    /// The session continues. On a busy machine a heartbeat of a second may be late once more.
    private static func connected(_ peer: ControlPeer) async throws {
        try await until("the session is connected") {
            try await peer.call("session.status", #"{"session":"main"}"#)["state"] == "connected"
        }
    }

    /// Publishes to the topic "bad", before it and after it, and checks that only that message is quarantined.
    ///
    /// - Parameters:
    ///   - payload: of the message on "bad".
    ///   - qos: of these three.
    /// - Returns: the session's changes of state.
    private static func publishAroundBad(
        _ daemon: DaemonUnderTest, payload: String = "x", qos: Int = 1, code: ReasonCode? = nil
    ) async throws -> [JSONValue] {
        let peer = try await daemon.watcher()
        for (topic, payload) in [("a", "x"), ("bad", payload), ("b", "x")] {
            try await peer.call(
                "message.publish",
                #"{"session":"main","topic":"\#(topic)","payload":"\#(payload)","qos":\#(qos)}"#)
        }
        let rejected = try await peer.notification("session.event", ["event": "message-rejected"])
        #expect(rejected["id"] == 2)
        let reasonCode = code.map { JSONValue.integer(Int64($0.rawValue)) }
        #expect(rejected["reasonCode"] == reasonCode, "what the server has not said is not told")
        let listed = try await peer.call("message.queue.list", #"{"session":"main","state":"quarantined"}"#)
        guard case .array(let quarantined)? = listed["messages"] else { throw ControlPeer.CallFailure(code: "shape") }
        #expect(quarantined.map { $0["reasonCode"] } == [reasonCode ?? .null])
        #expect(quarantined.first?["message"]?.text?.contains("the server ") == true)
        try await peer.call(
            "message.publish", #"{"session":"main","topic":"c","payload":"x","qos":1,"wait":"delivered"}"#)
        try await connected(peer)
        let status = try await peer.call("session.status", #"{"session":"main"}"#)
        #expect(status["outbox"]?["quarantined"] == 1)
        #expect(status["outbox"]?["queued"] == 0)
        return await peer.lines.all.compactMap { $0?["params"] }.filter { $0["event"] == "state-changed" }
    }

    @Test(arguments: End.allCases)
    func `a message that ends the connection is quarantined, the others arrive, and the session continues`(
        _ end: End
    ) async throws {
        let version = "[mqtt]\nversion = \"\(end.version)\"\n"
        try await DaemonUnderTest.run(version) { daemon in
            let code = end.code
            await daemon.server.set { $0.endings = ["bad": code] }
            let states = try await Self.publishAroundBad(daemon, code: code)
            #expect(!states.contains { $0["state"] == "failed" })
            let reasons = states.compactMap { $0["reason"]?["code"]?.text }
            #expect(!reasons.contains("displaced-suspected"))
            #expect(!reasons.contains { $0.hasPrefix("credential") || $0 == "not-authorized" })
        }
    }

    private static let quickHeartbeat = "[heartbeat]\ninterval = \"1s\"\ntimeout = \"1s\"\n"

    @Test(arguments: ["5", "3.1.1"])
    func `a message that makes the server mute is quarantined, the others arrive, and the session continues`(
        _ version: String
    ) async throws {
        try await DaemonUnderTest.run(Self.quickHeartbeat + "[mqtt]\nversion = \"\(version)\"\n") { daemon in
            await daemon.server.set { $0.mutes = ["bad"] }
            let states = try await Self.publishAroundBad(daemon)
            let reasons = states.filter { $0["from"] == "connected" }.compactMap { $0["reason"]?["code"]?.text }
            // On a busy machine, more heartbeats than those of the mute connections may be late.
            #expect(reasons.count >= 6 && reasons.allSatisfy { $0 == "heartbeat-timeout" }, "\(reasons)")
        }
    }

    @Test func `a filter that makes the server mute is refused, and the session connects`() async throws {
        try await DaemonUnderTest.run(Self.quickHeartbeat) { daemon in
            await daemon.server.set { $0.mutes = ["bad"] }
            let peer = try await daemon.watcher()
            _ = try await peer.request("message.subscribe", #"{"session":"main","filter":"bad","consumer":"meter"}"#)
            let refused = try await peer.notification("session.event", ["event": "subscription-changed"])
            #expect(refused["subscription"]?["filter"] == "bad")
            #expect(refused["subscription"]?["state"] == "refused")
            #expect(refused["subscription"]?["reasonCode"] == .null, "the server has said nothing")
            #expect(
                refused["subscription"]?["message"]
                    == "the server ends connections, falls silent or does not answer, and does not say why")
            try await peer.call(
                "message.publish", #"{"session":"main","topic":"c","payload":"x","qos":1,"wait":"delivered"}"#)
            try await Self.connected(peer)
        }
    }

    /// More than the socket and the server take at once, so that a part of it is written when the reset arrives.
    @Test(arguments: [1, 2])
    func `a message during which the server resets the connection is quarantined`(qos: Int) async throws {
        let limits = "[mqtt]\nmaximum-packet-size = \"9MiB\"\n[outbox]\nmax-bytes = \"64MiB\""
        try await DaemonUnderTest.run(limits) { daemon in
            await daemon.server.set { $0.poison = ByteBuffer(string: "poison") }
            let long = String(repeating: "x", count: 8 << 20)
            let states = try await Self.publishAroundBad(daemon, payload: "poison" + long, qos: qos)
            #expect(!states.contains { $0["state"] == "failed" })
        }
    }
}
