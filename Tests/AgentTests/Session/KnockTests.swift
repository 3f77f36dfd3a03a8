import Configuration
import ControlAPI
import Glibc
import MQTT
import NIOCore
import NIOPosix
import SessionCore
import Support
import Testing

@testable import Agent

/// Knocks on endpoints, with real connections.
@Suite(.timeLimit(.minutes(10)))
struct KnockTests {
    /// On a machine that is busy with other tests, no time limit may end a connection.
    private static let patience = """
        heartbeat.interval = "1h"
        heartbeat.timeout = "1h"
        timeouts.dial = "1h"
        timeouts.authenticate = "1h"
        timeouts.restore = "1h"
        timeouts.acknowledge = "1h"
        """

    @Test func `a server that is back is noticed while the session waits, and its connection is used`() async throws {
        try await DaemonUnderTest.withServer { directory, server, group in
            try await server.stop()
            try directory.write(
                "sessions.d/main.toml",
                """
                endpoints = ["mqtt://127.0.0.1:\(await server.port)"]
                user = "edge-42"
                \(Self.patience)
                reconnect.delays = ["0s", "1h"]
                reconnect.spread = "0s"
                reconnect.watch = "1s"
                """)
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                let peer = try await daemon.watcher("connecting")
                try await until("two attempts have failed") {
                    try await peer.call("session.status", #"{"session":"main"}"#)["attempt"]?.wholeNumber ?? 0 >= 3
                }
                try await server.start()
                let connected = try await peer.state("connected")
                #expect(connected["reason"]?["code"] == "answered")
                let opened = await server.events.all.count { if case .opened = $0 { true } else { false } }
                #expect(opened == 1, "the connection that answered is the one in use")
            }
        }
    }

    @Test func `a session returns to its first endpoint, and leaves it again when that goes away`() async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let loop = group.next()
        let (first, second) = (LoopbackServer(eventLoop: loop), LoopbackServer(eventLoop: loop))
        try await first.start()
        try await second.start()
        try await first.stop()
        let names = ["mqtt://127.0.0.1:\(await first.port)", "mqtt://127.0.0.1:\(await second.port)"]
        try directory.makeFolder("sessions.d")
        try directory.write(
            "sessions.d/main.toml",
            """
            endpoints = ["\(names[0])", "\(names[1])"]
            user = "edge-42"
            \(Self.patience)
            reconnect.delays = ["10ms"]
            reconnect.spread = "0s"
            """)
        let impatient: (inout SessionConfiguration) -> Void = { $0.reconnect.returnAfter = .seconds(1) }
        try await DaemonUnderTest.run(in: directory, second, on: group, configure: impatient) { daemon in
            let peer = try await daemon.watcher("connected")
            let program = try await daemon.peer()
            #expect(try await program.call("session.status", #"{"session":"main"}"#)["endpoint"] == .string(names[1]))
            try await first.start()
            let returning = try await peer.state("reconnecting")
            #expect(returning["reason"]?["code"] == "returning")
            #expect(returning["mode"] == "quick")
            #expect(try await peer.state("connected")["endpoint"] == .string(names[0]))
            let opened = await first.events.all.count { if case .opened = $0 { true } else { false } }
            #expect(opened == 1, "the look became the connection")
            let published = try await program.call(
                "message.publish", #"{"session":"main","topic":"a","payload":"hello","wait":"delivered"}"#)
            #expect(published["delivered"] == .bool(true))
            try await first.stop()
            try await peer.state("reconnecting")
            #expect(try await peer.state("connected")["endpoint"] == .string(names[1]))
        }
        try await second.stop()
        try await group.shutdownGracefully()
    }
}
