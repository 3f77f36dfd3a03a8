import Glibc
import NIOCore
import NIOPosix
import Support
import Testing

@testable import Agent

/// The file of a running daemon's socket is removed, or replaced.
@Suite(.timeLimit(.minutes(10))) struct KeptSocketTests {
    private static let made = "was removed by somebody, and was made again"
    private static let lost = "was removed by somebody and cannot be made again"

    private func count(_ text: String, in daemon: DaemonUnderTest) -> Int {
        daemon.log.lines.count { $0.message.contains(text) }
    }

    private func replaced(_ daemon: DaemonUnderTest) async throws {
        try await until("the socket is there again") { count(Self.made, in: daemon) > 0 }
        try await daemon.peer().call("session.list")
    }

    @Test func `a socket that was removed is made again, and nobody who is connected notices`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            try await peer.call("session.list")
            unlink(daemon.socket)
            try await replaced(daemon)
            var status = stat()
            try #require(lstat(daemon.socket, &status) == 0)
            #expect(status.st_mode & 0o777 == 0o660)
            try await peer.call("session.list")
            // The new one is watched, too.
            unlink(daemon.socket)
            try await until("it is there once more") { count(Self.made, in: daemon) == 2 }
            try await daemon.peer().call("session.list")
            #expect(count(Self.lost, in: daemon) == 0)
        }
    }

    @Test func `a socket that is moved or whose directory is removed is made again`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            rename(daemon.socket, daemon.socket + ".old")
            try await replaced(daemon)
        }
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            // In one turn of the loop, so that the daemon does not look in between.
            try await daemon.eventLoop.submit {
                #expect(unlink(daemon.socket) == 0 && rmdir("\(daemon.directory.path)/run") == 0)
            }.get()
            try await replaced(daemon)
        }
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            rename("\(daemon.directory.path)/run", "\(daemon.directory.path)/moved")
            try await replaced(daemon)
        }
    }

    @Test func `a socket whose directory cannot be made is made again when there is one`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let run = "\(daemon.directory.path)/run"
            try daemon.directory.write("file", "")
            try await daemon.eventLoop.submit {
                #expect(rename(run, run + ".old") == 0 && rename("\(daemon.directory.path)/file", run) == 0)
            }.get()
            try await until("the loss is reported") { count(Self.lost, in: daemon) == 1 }
            #expect(unlink(run) == 0)
            try await replaced(daemon)
        }
    }

    @Test func `another daemon's socket at the path stays, is reported once, and its end is noticed`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let other = try ControlSocket.listen(at: daemon.socket + ".other")
            defer { close(other) }
            let identity = ControlSocket.FileIdentity(daemon.socket + ".other")
            #expect(rename(daemon.socket + ".other", daemon.socket) == 0)
            try await until("the loss is reported") { count(Self.lost, in: daemon) == 1 }
            // As after a change beside it.
            await daemon.control.keepSocket()
            #expect(ControlSocket.FileIdentity(daemon.socket) == identity)
            #expect(count(Self.lost, in: daemon) == 1)
            unlink(daemon.socket)
            try await replaced(daemon)
            #expect(count(Self.lost, in: daemon) == 1)
        }
    }

    @Test func `a daemon that stops leaves another daemon's socket where it is`() async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        mkdir("\(directory.path)/sessions.d", 0o700)
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let server = LoopbackServer(eventLoop: group.next())
        try await server.start()
        var socket = ""
        var other: CInt?
        try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
            socket = daemon.socket
            other = try ControlSocket.listen(at: socket + ".other")
            rename(socket + ".other", socket)
            try await until("the loss is reported") { count(Self.lost, in: daemon) == 1 }
        }
        #expect(access(socket, F_OK) == 0)
        if let other { try await ControlSocketTests.end(other, at: socket) }
        try await DaemonUnderTest.run(in: directory, server, on: group) { _ in }
        #expect(access(socket, F_OK) != 0)
        try await server.stop()
        try await group.shutdownGracefully()
    }
}
