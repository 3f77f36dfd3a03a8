import ControlAPI
import Glibc
import MQTT
import NIOCore
import NIOPosix
import SessionCore
import Support
import Testing

@testable import Agent

/// What a server says when it refuses or ends a connection, and what a whole daemon makes of it.
@Suite(.timeLimit(.minutes(10)))
struct ServerReasonTests {
    // MARK: Reason codes

    @Test
    func `a message that the server ends the connection for is quarantined, told, and still there after a restart`()
        async throws
    {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let server = LoopbackServer(eventLoop: group.next())
        try await server.start()
        await server.set { $0.answersMessages = false }
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        mkdir("\(directory.path)/sessions.d", 0o700)
        try directory.write("sessions.d/main.toml", await DaemonUnderTest.session(server))
        try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
            let peer = try await daemon.watcher()
            try await peer.call("message.publish", #"{"session":"main","topic":"bad","payload":"x"}"#)
            _ = try await daemon.server.message()
            await daemon.server.disconnect(.topicNameInvalid, .init(reasonString: "not such a topic"))
            let lost = try await peer.state("reconnecting")
            #expect(
                lost["reason"]?["message"]
                    == .string(
                        "the server said: topic name invalid (0x90), “not such a topic”; what it may have been is set aside"
                    ))
            try await peer.state("connected")
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["outbox"]?["quarantined"] == 1)
            #expect(status["outbox"]?["inFlight"] == 0)
            await daemon.server.set { $0.answersMessages = true }
            let delivered = try await peer.call(
                "message.publish", #"{"session":"main","topic":"good","payload":"x","wait":"delivered"}"#)
            #expect(delivered["delivered"] == .bool(true))
        }
        try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
            let peer = try await daemon.watcher()
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["outbox"]?["quarantined"] == 1)
        }
        try await server.stop()
        try await group.shutdownGracefully()
    }

    @Test(arguments: [ReasonCode.malformedPacket, .protocolError])
    func `a server that calls everything a protocol error is asked once more, and then no more`(
        code: ReasonCode
    ) async throws {
        let prepare: (LoopbackServer) async throws -> Void = { server in
            await server.set {
                $0.connack.reasonCode = code
                $0.connack.properties.reasonString = "no will today"
            }
        }
        try await DaemonUnderTest.run(autoconnect: false, prepare: prepare) { daemon in
            let peer = try await daemon.watcher("disconnected")
            try await peer.call("session.connect", #"{"session":"main"}"#)
            let failed = try await peer.state("failed")
            #expect(failed["reason"]?["code"] == "incompatible")
            #expect(failed["reason"]?["serverCode"] == .integer(Int64(code.rawValue)))
            #expect(
                failed["reason"]?["message"]
                    == .string(
                        "the server said: \(code), “no will today”, and again when it was tried once more"))
            #expect(await daemon.server.events.all.filter { if case .opened = $0 { true } else { false } }.count == 2)
        }
    }

    @Test func `0xA0: the credential is fetched again before the next CONNECT`() async throws {
        let scratch = try CredentialScratch()
        try scratch.write("output", "first")
        let helper = try scratch.helper("cat $here/output")
        try await DaemonUnderTest.run("password = \"exec:\(helper.joined(separator: " "))\"") { daemon in
            let peer = try await daemon.watcher()
            #expect(try await daemon.server.connect().password == ByteBuffer(string: "first"))
            rename(try scratch.write("new", "second"), "\(scratch.path)/output")
            await daemon.server.disconnect(.maximumConnectTime)
            #expect(try await daemon.server.connect().password == ByteBuffer(string: "second"))
            try await peer.state("connected")
        }
    }

    // MARK: Redirections

    /// Runs a daemon whose server is told where another one is.
    private static func run(
        _ extra: String, _ body: (DaemonUnderTest, LoopbackServer) async throws -> Void
    ) async throws {
        try await DaemonUnderTest.run(extra, autoconnect: false) { daemon in
            let other = LoopbackServer(eventLoop: daemon.eventLoop)
            try await other.start()
            try await body(daemon, other)
            try await other.stop()
        }
    }

    private static let allowed = "mqtt.redirects = [\"localhost\"]"

    @Test(arguments: [ReasonCode.useAnotherServer, .serverMoved])
    func `a session goes where CONNACK sends it`(code: ReasonCode) async throws {
        try await Self.run(Self.allowed) { daemon, other in
            let reference = "localhost:\(await other.port)"
            await daemon.server.set {
                $0.connack.reasonCode = code
                $0.connack.properties.serverReference = reference
            }
            let peer = try await daemon.watcher("disconnected")
            try await peer.call("session.connect", #"{"session":"main"}"#)
            let connected = try await peer.state("connected")
            #expect(connected["endpoint"] == .string("mqtt://\(reference)"))
            _ = try await other.connect()
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["endpoint"] == .string("mqtt://\(reference)"))
            #expect(status["counters"]?["attempts"] == 2)
            // The endpoint itself is asked again only if that was for once.
            await daemon.server.set { $0.connack.reasonCode = .success }
            await other.drop()
            try await peer.state("reconnecting")
            let back = try await peer.state("connected")
            let own = "mqtt://127.0.0.1:\(await daemon.server.port)"
            #expect(back["endpoint"] == .string(code == .serverMoved ? "mqtt://\(reference)" : own))
        }
    }

    @Test func `a session goes where DISCONNECT sends it`() async throws {
        try await Self.run(Self.allowed) { daemon, other in
            let peer = try await daemon.watcher("disconnected")
            try await peer.call("session.connect", #"{"session":"main"}"#)
            try await peer.state("connected")
            let reference = "localhost:\(await other.port)"
            await daemon.server.disconnect(.useAnotherServer, .init(serverReference: reference))
            let lost = try await peer.state("reconnecting")
            #expect(lost["reason"]?["code"] == "moved")
            let connected = try await peer.state("connected")
            #expect(connected["endpoint"] == .string("mqtt://\(reference)"))
        }
    }

    @Test func `a redirection that is not allowed fails the session, and says what to do`() async throws {
        try await Self.run("") { daemon, other in
            let reference = "localhost:\(await other.port)"
            await daemon.server.set {
                $0.connack.reasonCode = .useAnotherServer
                $0.connack.properties.serverReference = reference
            }
            let peer = try await daemon.watcher("disconnected")
            try await peer.call("session.connect", #"{"session":"main"}"#)
            let failed = try await peer.state("failed")
            #expect(failed["reason"]?["code"] == "redirect-refused")
            #expect(failed["reason"]?["serverCode"] == 0x9C)
            #expect(
                failed["reason"]?["message"]
                    == .string("the server sends the session to \(reference), which redirects of [mqtt] does not allow")
            )
            #expect(await other.events.all.isEmpty)
        }
    }

    @Test func `servers that send a session round and round are left alone for a while`() async throws {
        try await Self.run(Self.allowed) { daemon, other in
            for (server, next) in [(daemon.server, other), (other, daemon.server)] {
                let reference = "localhost:\(await next.port)"
                await server.set {
                    $0.connack.reasonCode = .useAnotherServer
                    $0.connack.properties.serverReference = reference
                }
            }
            let peer = try await daemon.watcher("disconnected")
            try await peer.call("session.connect", #"{"session":"main"}"#)
            var dialed = 0
            var waiting = try await peer.state("connecting")
            while waiting["phase"] != "waiting" {
                if waiting["phase"] == "dialing" { dialed += 1 }
                waiting = try await peer.notification("session.event", ["event": "phase-changed"])
            }
            #expect(dialed == 4)
            #expect(waiting["reason"]?["code"] == "moved")
            switch waiting["retryIn"] {
            case .integer(let wait)?: #expect(wait > 4)
            case .number(let wait)?: #expect(wait > 4)
            case let wait: Issue.record("there is no delay: \(String(describing: wait))")
            }
        }
    }
}
