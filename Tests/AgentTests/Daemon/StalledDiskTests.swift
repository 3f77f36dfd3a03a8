import ControlAPI
import Glibc
import NIOCore
import Support
import Testing

@testable import Agent

struct StalledDiskTests {
    private static let main = #"{"session":"main"}"#

    @Test func `while the disk does not answer, every question is answered, and a message waits`() async throws {
        try await DaemonUnderTest.run(diskPatience: .milliseconds(20)) { daemon in
            _ = try await daemon.watcher()
            let peer = try await daemon.peer()
            let before = try await peer.call("daemon.status")
            let standstill = Standstill(of: daemon.disk)
            let publisher = try await daemon.peer()
            async let published = publisher.call(
                "message.publish", #"{"session":"main","topic":"t","payload":"kept"}"#)
            for method in ["session.history", "message.queue.list"] {
                await #expect(throws: ControlPeer.CallFailure(code: "internal-error"), "\(method)") {
                    try await peer.call(method, Self.main)
                }
            }
            let status = try await peer.call("daemon.status")
            #expect(status["store"]?["schemaVersion"] == before["store"]?["schemaVersion"])
            let failure = try #require(status["storeFailure"]?.text)
            #expect(failure.hasPrefix("the disk with the state directory has not answered"))
            let session = try await peer.call("session.status", Self.main)
            #expect(session["storeFailure"] == status["storeFailure"])
            let metrics = try await peer.call("daemon.metrics")
            #expect(metrics["text"]?.text?.contains("holdfast_store_commits_total") == true)
            standstill.end()
            #expect(try await published["id"] != nil)
            try await until("the disk works") { try await peer.call("daemon.status")["storeFailure"] == .null }
        }
    }

    @Test func `a session that is removed meanwhile counts as removed when the disk answers again`() async throws {
        try await DaemonUnderTest.run(autoconnect: false, diskPatience: .milliseconds(20)) { daemon in
            let peer = try await daemon.watcher("disconnected")
            try await peer.call("message.publish", #"{"session":"main","topic":"t","payload":"own"}"#)
            let standstill = Standstill(of: daemon.disk)
            await #expect(throws: ControlPeer.CallFailure(code: "internal-error")) {
                try await peer.call("message.queue.list", Self.main)
            }
            // Should the reload wait for the disk, the test must not wait for ever.
            let limit = Task {
                try await Patience.last(.seconds(180))
                standstill.end()
            }
            #expect(unlink("\(daemon.directory.path)/sessions.d/main.toml") == 0)
            try await peer.call("daemon.reload")
            limit.cancel()
            standstill.end()
            try await until("the disk works") { try await peer.call("daemon.status")["storeFailure"] == .null }
            let own = await DaemonUnderTest.session(daemon.server, autoconnect: false)
            try daemon.directory.write("sessions.d/main.toml", own.replacing("127.0.0.1", with: "localhost"))
            try await peer.call("daemon.reload")
            // A slow disk may be taken for one that does not answer again: then it is found out after the reload.
            try await until("it has other servers") {
                (try? await peer.call("session.status", Self.main))?["state"] == "failed"
            }
        }
    }

    @Test func `a disk that does not answer is no reason for the watchdog to end the daemon`() async throws {
        try await DaemonUnderTest.run { daemon in
            let watchdog = Watchdog(daemon: daemon.daemon, interval: .zero)
            let standstill = Standstill(of: daemon.disk)
            let (answers, answered) = AsyncStream.makeStream(of: Bool.self)
            Task {
                await watchdog.answered()
                answered.yield(true)
            }
            let limit = Task {
                try await Patience.last(.seconds(180))
                answered.yield(false)
            }
            #expect(await answers.first { _ in true } == true)
            limit.cancel()
            standstill.end()
        }
    }
}
