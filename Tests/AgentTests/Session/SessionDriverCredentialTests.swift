import ControlAPI
import Glibc
import MQTT
import NIOCore
import NIOPosix
import Support
import Testing

@testable import Agent

/// A session with a credential that changes, with a server that checks it.
@Suite(.timeLimit(.minutes(10))) struct SessionDriverCredentialTests {
    /// Configures a helper that prints the file `output` of the directory, and counts its runs in `runs`.
    private static func password(_ scratch: CredentialScratch) throws -> String {
        let helper = try scratch.helper("echo run >> $here/runs; cat $here/output")
        return "password = \"exec:\(helper.joined(separator: " "))\""
    }

    private static func runs(_ scratch: CredentialScratch) -> Int {
        (scratch.read("runs") ?? "").split(separator: "\n").count
    }

    @Test func `a helper's token is sent, and a new one before it expires`() async throws {
        let scratch = try CredentialScratch()
        try scratch.write("output", #"{"token": "tulip-1", "expiresIn": 2}"#)
        try await DaemonUnderTest.run(try Self.password(scratch), autoconnect: false) { daemon in
            let peer = try await daemon.watcher("disconnected")
            try await peer.call("session.connect", #"{"session":"main"}"#)
            #expect(try await daemon.server.connect().password == ByteBuffer(string: "tulip-1"))
            try await peer.state("connected")
            // Replaced in one step, since the helper may run at any moment.
            rename(try scratch.write("new", #"{"token": "tulip-2", "expiresIn": 3600}"#), "\(scratch.path)/output")
            // On a slow machine the session may connect with the first token once more.
            var password: ByteBuffer?
            repeat {
                password = try await daemon.server.connect().password
            } while password == ByteBuffer(string: "tulip-1")
            #expect(password == ByteBuffer(string: "tulip-2"))
            let reconnecting = try await peer.state("reconnecting")
            #expect(reconnecting["reason"]?["code"] == "credential-renewed")
            try await peer.state("connected")
            #expect(daemon.log.lines.allSatisfy { !$0.message.contains("tulip") })
        }
    }

    @Test func `a session whose password was rejected starts again when the file changes`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("password", "wrong")
        let refuse: (LoopbackServer) async throws -> Void = { server in
            await server.set { $0.connack.reasonCode = .badUserNameOrPassword }
        }
        try await DaemonUnderTest.run("password = \"file:\(path)\"", prepare: refuse) { daemon in
            let peer = try await daemon.watcher("failed")
            #expect(try await daemon.server.connect().password == ByteBuffer(string: "wrong"))
            await daemon.server.set { $0.connack.reasonCode = .success }
            rename(try scratch.write("new", "right"), path)
            #expect(try await daemon.server.connect().password == ByteBuffer(string: "right"))
            let connecting = try await peer.state("connecting")
            #expect(connecting["reason"]?["code"] == "credential-changed")
            try await peer.state("connected")
        }
    }

    @Test func `a terminal state that outlived the daemon ends with a changed file`() async throws {
        try await withRejectedFile { file, directory, server, group in
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                let peer = try await daemon.watcher("failed")
                try file.replace()
                try await peer.state("connected")
            }
        }
    }

    @Test func `a file replaced while the daemon was down ends the terminal state`() async throws {
        try await withRejectedFile { file, directory, server, group in
            let attempts = await server.events.all.count { if case .opened = $0 { true } else { false } }
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                _ = try await daemon.watcher("failed")
            }
            #expect(await server.events.all.count { if case .opened = $0 { true } else { false } } == attempts)
            try file.replace()
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                _ = try await daemon.watcher("connected")
            }
        }
    }

    /// A file with a password that the server has rejected.
    private struct RejectedFile {
        let scratch: CredentialScratch
        let path: String

        /// Replaces the password by one that the server accepts.
        func replace() throws {
            rename(try scratch.write("new", "right"), path)
        }
    }

    /// Runs a test after the daemon has failed for good with the file's password and has ended. From then on the server
    /// accepts every login.
    private func withRejectedFile(
        _ body: (RejectedFile, TemporaryDirectory, LoopbackServer, MultiThreadedEventLoopGroup) async throws -> Void
    ) async throws {
        let scratch = try CredentialScratch()
        let file = RejectedFile(scratch: scratch, path: try scratch.write("password", "wrong"))
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let server = LoopbackServer(eventLoop: group.next())
        try await server.start()
        await server.set { $0.connack.reasonCode = .notAuthorized }
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        mkdir("\(directory.path)/sessions.d", 0o700)
        try directory.write(
            "sessions.d/main.toml", await DaemonUnderTest.session(server, "password = \"file:\(file.path)\""))
        try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
            _ = try await daemon.watcher("failed")
        }
        await server.set { $0.connack.reasonCode = .success }
        try await body(file, directory, server, group)
        try await server.stop()
        try await group.shutdownGracefully()
    }

    @Test func `a helper that fails after a rejection is run again with the table's delays`() async throws {
        let scratch = try CredentialScratch()
        try scratch.write("output", "stale")
        try await DaemonUnderTest.run(try Self.password(scratch)) { daemon in
            let peer = try await daemon.watcher()
            _ = try await daemon.server.connect()
            unlink("\(scratch.path)/output")
            await daemon.server.disconnect(.notAuthorized)
            let lost = try await peer.state("reconnecting")
            #expect(lost["reason"]?["code"] == "not-authorized")
            // The second run has failed when there is a third.
            try await until("the helper runs for the third time") { Self.runs(scratch) >= 3 }
            rename(try scratch.write("new", "fresh"), "\(scratch.path)/output")
            #expect(try await daemon.server.connect().password == ByteBuffer(string: "fresh"))
            try await peer.state("connected")
        }
    }

    // MARK: Helpers that are no longer needed

    /// Configures a helper that never prints anything, that leaves the file `ended` when it is terminated, and that has
    /// started a process that cannot be terminated.
    private static func hangingPassword(_ scratch: CredentialScratch) throws -> String {
        let helper = try scratch.helper(
            """
            trap 'echo > $here/ended; exit 1' TERM
            (trap '' TERM; exec sleep 1000) &
            printf '%s\\n' $$ $! > $here/pids
            wait
            """)
        return "password = \"exec:\(helper.joined(separator: " "))\""
    }

    /// Returns the processes of a helper that hangs, when both run.
    private static func hanging(_ scratch: CredentialScratch) async throws -> [pid_t] {
        try await until("the helper has started another process") { scratch.processes("pids").count == 2 }
        return scratch.processes("pids")
    }

    @Test func `a daemon that stops ends the helper of an attempt first`() async throws {
        let scratch = try CredentialScratch()
        var processes: [pid_t] = []
        var stop = ContinuousClock.now
        try await DaemonUnderTest.run(try Self.hangingPassword(scratch)) { _ in
            processes = try await Self.hanging(scratch)
            stop = .now
        }
        try await until("both are gone") { !processes.contains(where: isRunning) }
        // On a busy machine the second that it has may not be enough for it.
        let hadTime = stop.duration(to: .now) >= .seconds(1)
        #expect(scratch.read("ended") != nil || hadTime, "it is terminated before it is killed")
    }

    @Test func `a daemon that stops ends the helper of a check first`() async throws {
        let scratch = try CredentialScratch()
        var processes: [pid_t] = []
        try await DaemonUnderTest.run(try Self.hangingPassword(scratch), autoconnect: false) { daemon in
            try await daemon.peer().request("check.run", #"{"session":"main"}"#)
            processes = try await Self.hanging(scratch)
        }
        try await until("both are gone") { !processes.contains(where: isRunning) }
    }

    @Test func `a helper ends with the attempt that it runs for`() async throws {
        let scratch = try CredentialScratch()
        try await DaemonUnderTest.run(try Self.hangingPassword(scratch)) { daemon in
            let processes = try await Self.hanging(scratch)
            let peer = try await daemon.peer()
            try await peer.call("session.disconnect", #"{"session":"main"}"#)
            try await until("both are gone") { !processes.contains(where: isRunning) }
        }
    }
}
