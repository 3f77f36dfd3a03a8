import ControlAPI
import Glibc
import MQTT
import NIOCore
import NIOPosix
import SessionCore
import Support
import Testing

@testable import Agent

/// What a server says when it refuses or ends a connection, and how a whole daemon reacts.
@Suite(.timeLimit(.minutes(10)))
struct ServerReasonTests {
    // MARK: Reason codes

    @Test
    func `a message that the server ends the connection for is quarantined, reported, and kept across a restart`()
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
                        "the server said: topic name invalid (0x90), \"not such a topic\"; the suspected message or "
                            + "filter is set aside"
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
    func `a server that calls everything a protocol error is tried only once more`(
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
                        "the server said: \(code), \"no will today\", and again when it was tried once more"))
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
}
