import ControlAPI
import Glibc
import MQTT
import NIOCore
import NIOPosix
import SessionCore
import Support
import Testing

@testable import Agent

/// Bare looks at endpoints, with real connections.
@Suite(.timeLimit(.minutes(2)))
struct KnockTests {
    @Test func `a server that is back is noticed while the session waits, and its connection is used`() async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let server = LoopbackServer(eventLoop: group.next())
        try await server.start()
        try await server.stop()
        try makeSessions(directory)
        try directory.write(
            "sessions.d/main.toml",
            """
            endpoints = ["mqtt://127.0.0.1:\(await server.port)"]
            user = "edge-42"
            reconnect.delays = ["0s", "1h"]
            reconnect.spread = "0s"
            reconnect.watch = "100ms"
            """)
        try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
            let peer = try await daemon.watcher("connecting")
            while try await peer.call("session.status", #"{"session":"main"}"#)["attempt"] != 3 {
                try await Task.sleep(for: .milliseconds(5))
            }
            try await server.start()
            let connected = try await peer.state("connected")
            #expect(connected["reason"]?["code"] == "answered")
            let opened = await server.events.all.count { if case .opened = $0 { true } else { false } }
            #expect(opened == 1, "the connection that answered is the one in use")
        }
        try await server.stop()
        try await group.shutdownGracefully()
    }
}

func makeSessions(_ directory: TemporaryDirectory) throws {
    guard mkdir("\(directory.path)/sessions.d", 0o700) == 0 else { throw ConfigurationScratch.ScratchError() }
}
