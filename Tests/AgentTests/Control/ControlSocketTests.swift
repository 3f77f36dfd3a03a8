import Configuration
import Foundation
import Glibc
import Support
import Testing

@testable import Agent

struct ControlSocketTests {
    private static func inDirectory(_ body: (TemporaryDirectory, String) throws -> Void) throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        try body(directory, "\(directory.path)/run/control.sock")
    }

    private static func status(_ path: String) throws -> stat {
        var status = stat()
        try #require(lstat(path, &status) == 0)
        return status
    }

    @Test func `the socket is accessible to owner and group only, in its own directory`() throws {
        try Self.inDirectory { _, path in
            let descriptor = try ControlSocket.listen(at: path)
            defer { close(descriptor) }
            let status = try Self.status(path)
            #expect(status.st_mode & S_IFMT == S_IFSOCK)
            #expect(status.st_mode & 0o777 == 0o660)
            if let group = try HostAccounts.gid(ofGroup: ControlSocket.groupName), geteuid() == 0 {
                #expect(status.st_gid == group)
            }
            #expect(fcntl(descriptor, F_GETFL) & O_NONBLOCK != 0)
            #expect(fcntl(descriptor, F_GETFD) & FD_CLOEXEC != 0)
            ControlSocket.remove(path, madeAs: ControlSocket.FileIdentity(path))
            #expect(access(path, F_OK) != 0)
        }
    }

    @Test func `of further sockets, only a Unix stream socket with a path is served`() throws {
        try Self.inDirectory { directory, path in
            let listener = try ControlSocket.listen(at: path)
            let datagrams = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
            let remote = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
            defer { for descriptor in [listener, datagrams, remote] { close(descriptor) } }
            var isBound = false
            try Self.withAddress("\(directory.path)/datagrams.sock") { isBound = bind(datagrams, $0, $1) == 0 }
            #expect(isBound)
            #expect([listener, datagrams, remote].map(ControlSocket.isServable) == [true, false, false])
        }
    }

    /// Ends a listener, and returns when nothing listens at its path any more. A program that another test starts has a
    /// copy of the descriptor until it is executed.
    static func end(_ listener: CInt, at path: String) async throws {
        close(listener)
        try await until("nothing listens at \(path)") {
            let probe = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue), 0)
            defer { close(probe) }
            var isRefused = false
            try withAddress(path) { isRefused = connect(probe, $0, $1) != 0 && errno == ECONNREFUSED }
            return isRefused
        }
    }

    @Test func `a socket left by a crash is replaced`() async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let path = "\(directory.path)/run/control.sock"
        try await Self.end(try ControlSocket.listen(at: path), at: path)
        let descriptor = try ControlSocket.listen(at: path)
        defer { close(descriptor) }
        #expect(try Self.status(path).st_mode & S_IFMT == S_IFSOCK)
    }

    @Test func `a socket that another daemon is just making is not taken for one left by a crash`() throws {
        try Self.inDirectory { directory, path in
            try directory.makeFolder("run")
            let turn = open("\(directory.path)/run", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            #expect(flock(turn, LOCK_EX) == 0)
            // Another daemon has bound it, and does not listen yet.
            let other = try Self.bound(to: path)
            defer { close(other) }
            let identity = ControlSocket.FileIdentity(path)
            let thread = Thread {
                listen(other, 1)
                close(turn)
            }
            thread.start()
            #expect(throws: ControlSocket.Failure.self) { try ControlSocket.listen(at: path, patience: .seconds(180)) }
            #expect(ControlSocket.FileIdentity(path) == identity)
        }
    }

    @Test func `a directory that somebody keeps locked does not keep the daemon from starting`() throws {
        try Self.inDirectory { directory, path in
            try directory.makeFolder("run")
            let turn = open("\(directory.path)/run", O_RDONLY | O_DIRECTORY)
            defer { close(turn) }
            #expect(flock(turn, LOCK_EX) == 0)
            close(try ControlSocket.listen(at: path))
        }
    }

    private static func bound(to path: String) throws -> CInt {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        try #require(result == 0)
        return descriptor
    }

    @Test func `a socket that was removed and made again by another daemon stays with that one`() throws {
        try Self.inDirectory { _, path in
            let first = try ControlSocket.listen(at: path)
            defer { close(first) }
            let identity = ControlSocket.FileIdentity(path)
            unlink(path)
            let second = try ControlSocket.listen(at: path)
            defer { close(second) }
            ControlSocket.remove(path, madeAs: identity)
            #expect(access(path, F_OK) == 0)
        }
    }

    @Test func `a socket in use stays with its daemon`() throws {
        try Self.inDirectory { _, path in
            let descriptor = try ControlSocket.listen(at: path)
            defer { close(descriptor) }
            let failure = #expect(throws: ControlSocket.Failure.self) { try ControlSocket.listen(at: path) }
            #expect(failure?.description.contains("another holdfastd already serves") == true)
            #expect(access(path, F_OK) == 0)
        }
    }

    @Test func `a socket whose daemon is too busy to accept stays with it, without waiting`() throws {
        try Self.inDirectory { _, path in
            let listener = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0)
            defer { close(listener) }
            mkdir(String(path.dropLast("/control.sock".count)), 0o700)
            try Self.withAddress(path) { try #require(bind(listener, $0, $1) == 0) }
            try #require(listen(listener, 0) == 0)
            let clients = (0..<4).map { _ in socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0) }
            defer { clients.forEach { close($0) } }
            try Self.withAddress(path) { address, length in clients.forEach { _ = connect($0, address, length) } }
            #expect(throws: ControlSocket.Failure.self) { try ControlSocket.listen(at: path) }
            #expect(access(path, F_OK) == 0)
        }
    }

    private static func withAddress(
        _ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) throws -> Void
    ) throws {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        try withUnsafeBytes(of: address) { bytes in
            try bytes.withMemoryRebound(to: sockaddr.self) {
                if let base = $0.baseAddress { try body(base, socklen_t(MemoryLayout<sockaddr_un>.size)) }
            }
        }
    }

    @Test func `a file that is not a socket is not touched`() throws {
        try Self.inDirectory { directory, _ in
            try directory.write("file", "precious")
            let failure = #expect(throws: ControlSocket.Failure.self) {
                try ControlSocket.listen(at: "\(directory.path)/file")
            }
            #expect(failure?.description.contains("is not a socket") == true)
            #expect(try Self.status("\(directory.path)/file").st_size == 8)
        }
    }

    @Test(arguments: ["", "/" + String(repeating: "x", count: 200), "/no/such/directory/control.sock"])
    func `an impossible path is refused`(path: String) {
        #expect(throws: ControlSocket.Failure.self) { try ControlSocket.listen(at: path) }
    }
}
