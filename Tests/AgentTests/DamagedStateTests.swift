import ControlAPI
import DurableStore
import NIOCore
import NIOPosix
import Support
import Testing

@testable import Agent
@testable import DurableStore

/// A disk that gives back other bits than it was given: SQLite sees that its pages are sound, and not what is in them.
@Suite(.timeLimit(.minutes(2)))
struct DamagedStateTests {
    @Test func `a session whose stored state makes no sense is failed and says so, and the others run`() async throws {
        try await DaemonUnderTest.run { daemon in
            let directory = try TemporaryDirectory()
            defer { directory.remove() }
            let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
            try directory.makeSessions()
            for name in ["main", "other"] {
                try directory.write(
                    "sessions.d/\(name).toml", await DaemonUnderTest.session(daemon.server, user: "edge-\(name)"))
            }
            try await DaemonUnderTest.run(in: directory, daemon.server, on: group) { daemon in
                let peer = try await daemon.watcher()
                try await peer.call("message.subscribe", #"{"session":"other","filter":"a","consumer":"billing"}"#)
            }
            let file = try Database(path: "\(directory.path)/state/holdfast.db")
            try file.execute("UPDATE consumer SET qos = 7")
            try await DaemonUnderTest.run(in: directory, daemon.server, on: group) { daemon in
                let peer = try await daemon.watcher()
                let other = try await peer.call("session.status", #"{"session":"other"}"#)
                #expect(other["state"] == "failed")
                #expect(other["reason"]?["message"]?.text?.contains("a consumer is invalid") == true)
                await #expect(throws: ControlPeer.CallFailure(code: "wrong-state")) {
                    try await peer.call("session.connect", #"{"session":"other"}"#)
                }
                // Somebody mends it.
                try file.execute("UPDATE consumer SET qos = 1")
                try await peer.request("daemon.reload")
                try await peer.state("connected", of: "other")
            }
            try await group.shutdownGracefully()
        }
    }
}
