import Glibc
import NIOCore
import NIOPosix
import Support
import Testing

@testable import Agent

/// Real files, watched by the kernel.
@Suite(.timeLimit(.minutes(10))) struct ResolverWatchTests {
    /// Makes a change and, when that had time to be reported, one that must be reported; returns what was.
    private func news(
        of path: String, in scratch: CredentialScratch, _ change: () throws -> Void, end: () throws -> Void
    ) async throws -> [String] {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let (changes, continuation) = AsyncStream.makeStream(of: String.self)
        let watch = ResolverWatch(path: path, eventLoop: loop) {
            continuation.yield(ResolverWatch.settings(of: path) ?? "")
        }
        #expect(await watch.start())
        try change()
        try await scratch.changeSomethingElse()
        try await loop.submit { _ = continuation.yield("then") }.get()
        try end()
        var reports: [String] = []
        for await settings in changes {
            reports.append(settings)
            if settings == "nameserver 192.0.2.99" { break }
        }
        await watch.stop()
        return reports
    }

    @Test func `reports that a file was replaced`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("resolv.conf", "nameserver 192.0.2.1\n")
        let reports = try await news(of: path, in: scratch) {
        } end: {
            rename(try scratch.write("new", "nameserver 192.0.2.99\n"), path)
        }
        #expect(reports == ["then", "nameserver 192.0.2.99"])
    }

    @Test func `is silent when the file's settings stay the same`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("resolv.conf", "nameserver 192.0.2.1\n")
        let reports = try await news(of: path, in: scratch) {
            rename(try scratch.write("new", "# by the DHCP client, at noon\n\nnameserver 192.0.2.1\n"), path)
            chmod(path, 0o600)
            unlink(path)
            try scratch.write("resolv.conf", "nameserver 192.0.2.1\n")
        } end: {
            rename(try scratch.write("new", "nameserver 192.0.2.99\n"), path)
        }
        #expect(reports == ["then", "nameserver 192.0.2.99"])
    }

    @Test func `reports a file that was not there`() async throws {
        let scratch = try CredentialScratch()
        let path = "\(scratch.path)/resolv.conf"
        let reports = try await news(of: path, in: scratch) {
        } end: {
            try scratch.write("resolv.conf", "nameserver 192.0.2.99\n")
        }
        #expect(reports == ["then", "nameserver 192.0.2.99"])
    }

    @Test func `follows a link to the file's directory, even one that does not exist yet`() async throws {
        let scratch = try TemporaryDirectory()
        defer { scratch.remove() }
        let path = "\(scratch.path)/resolv.conf"
        let run = "\(scratch.path)/run"
        mkdir(run, 0o700)
        symlink("run/resolve/stub.conf", path)
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let (changes, continuation) = AsyncStream.makeStream(of: String.self)
        let watch = ResolverWatch(path: path, eventLoop: loop) {
            continuation.yield(ResolverWatch.settings(of: path) ?? "")
        }
        #expect(await watch.start())
        mkdir("\(run)/resolve", 0o700)
        try scratch.write("run/resolve/stub.conf", "nameserver 192.0.2.1\n")
        var iterator = changes.makeAsyncIterator()
        #expect(await iterator.next(isolation: nil) == "nameserver 192.0.2.1")
        try scratch.write("run/resolve/stub.conf", "nameserver 192.0.2.99\n")
        #expect(await iterator.next(isolation: nil) == "nameserver 192.0.2.99")
        await watch.stop()
    }

    @Test func `reports a file whose directory was not there`() async throws {
        let scratch = try CredentialScratch()
        let reports = try await news(of: "\(scratch.path)/run/resolv.conf", in: scratch) {
        } end: {
            mkdir("\(scratch.path)/run", 0o700)
            try scratch.write("run/resolv.conf", "nameserver 192.0.2.99\n")
        }
        #expect(reports == ["then", "nameserver 192.0.2.99"])
    }
}
