import NIOCore
import NIOPosix
import Support
import Testing
import Vocabulary

@testable import Transport

/// Files and names that are not answered for, and the others.
@Suite(.timeLimit(.minutes(10))) struct BlockingCallsTests {
    private let loop = MultiThreadedEventLoopGroup.singleton.next()
    private let gate = Gate()

    private func blocked(
        _ calls: BlockingCalls, _ key: String, within limit: Duration? = nil
    ) -> EventLoopFuture<Void> {
        calls.run(key, within: limit) { [gate] in gate.wait() }
    }

    @Test func `a call that blocks delays only those with the same key, which keep their order`() async throws {
        let calls = BlockingCalls(eventLoop: loop)
        let hung = blocked(calls, "a")
        let order = NIOLoopBoundBox.makeBoxSendingValue([Int](), eventLoop: loop)
        let later = (1...3).map { number in
            calls.run("a", within: nil) { number }.map { order.value.append($0) }
        }
        #expect(try await calls.run("b", within: nil) { 7 }.get() == 7)
        #expect(try await loop.submit { order.value }.get() == [])
        gate.open()
        try await hung.get()
        for call in later { try await call.get() }
        #expect(try await loop.submit { order.value }.get() == [1, 2, 3])
    }

    @Test func `a caller waits for its limit only, and while the thread is blocked further calls fail at once`()
        async throws
    {
        let calls = BlockingCalls(eventLoop: loop)
        let hung = blocked(calls, "a", within: .milliseconds(1))
        await #expect(throws: BlockingCalls.Failure.self) { try await hung.get() }
        await #expect(throws: BlockingCalls.Failure.self) { try await calls.run("a", within: nil) {}.get() }
        gate.open()
        try await until("further calls succeed") { (try? await calls.run("a", within: nil) {}.get()) != nil }
    }

    @Test func `a call that waits behind a blocked one gives up as well, and never runs`() async throws {
        let calls = BlockingCalls(eventLoop: loop)
        let hung = blocked(calls, "a")
        let ran = NIOLoopBoundBox.makeBoxSendingValue(false, eventLoop: loop)
        let waiting = calls.run("a", within: .milliseconds(1)) { [loop] in loop.execute { ran.value = true } }
        await #expect(throws: BlockingCalls.Failure.self) { try await waiting.get() }
        gate.open()
        try await hung.get()
        try await calls.run("a", within: nil) {}.get()
        #expect(try await loop.submit { ran.value }.get() == false)
    }

    @Test func `calls beyond the threads wait for one`() async throws {
        let calls = BlockingCalls(eventLoop: loop, maximumThreads: 2)
        let hung = [blocked(calls, "a"), blocked(calls, "b")]
        let waiting = calls.run("c", within: .milliseconds(1)) {}
        await #expect(throws: BlockingCalls.Failure.self) { try await waiting.get() }
        gate.open()
        for call in hung { try await call.get() }
        try await calls.run("c", within: nil) {}.get()
    }

    @Test func `calls that were given up take no threads from others, up to a limit`() async throws {
        let calls = BlockingCalls(eventLoop: loop, maximumThreads: 1)
        for key in ["a", "b"] {
            if key == "b" { try await calls.run("c", within: nil) {}.get() }
            let hung = blocked(calls, key, within: .milliseconds(1))
            await #expect(throws: BlockingCalls.Failure.self) { try await hung.get() }
        }
        let waiting = calls.run("c", within: .milliseconds(1)) {}
        await #expect(throws: BlockingCalls.Failure.self) { try await waiting.get() }
        gate.open()
        try await calls.run("c", within: nil) {}.get()
    }

    @Test func `a file system that does not answer leaves threads for others, however many files it has`()
        async throws
    {
        let calls = BlockingCalls(eventLoop: loop, maximumThreads: 8)
        let hung = (1...9).map { blocked(calls, "/mnt/nfs/\($0)/password", within: .milliseconds(1)) }
        for call in hung { await #expect(throws: BlockingCalls.Failure.self) { try await call.get() } }
        await #expect {
            try await calls.run("/mnt/nfs/10", within: nil) {}.get()
        } throws: { error in
            (error as? BlockingCalls.Failure)?.description
                == "earlier calls for other files in /mnt/nfs have not been answered yet"
        }
        for key in ["/mnt/other/password", "/etc/holdfast/password", "accounts"] {
            try await calls.run(key, within: nil) {}.get()
        }
        gate.open()
        try await until("calls for other files succeed") {
            (try? await calls.run("/mnt/nfs/10", within: nil) {}.get()) != nil
        }
    }

    @Test func `TLS files that are not answered for are named, and other connections are made`() async throws {
        let certificates = try await TestCertificates.shared.value
        let server = try await TestServer(.echo, tls: try certificates.server("localhost"))
        let calls = BlockingCalls(eventLoop: loop)
        let path = certificates.path("trusted.pem")
        let hung = blocked(calls, path)
        func connect(_ file: String, within limit: Duration) async throws -> TestClient {
            var options = Connection.Options()
            options.tls.authorities = file
            options.dialTimeout = limit
            return try await TestClient(
                "mqtts://localhost:\(server.port)", options: options, blocking: calls, loop: loop,
                lookUp: addresses(["127.0.0.1"]))
        }
        // Long enough to be connected on any machine.
        let delayed = try await connect(path, within: .seconds(3))
        let other = try await connect("\(certificates.directory)/./trusted.pem", within: .seconds(600))
        _ = try await other.opened()
        try await other.close(.abort)
        let end = try await delayed.end()
        guard case .failed(let failure) = end else {
            Issue.record("\(end)")
            return
        }
        #expect(failure.detail == .ownFilesUnusable)
        #expect(failure.message.hasPrefix("cannot read \(path): there was no answer within 3.0 seconds"))
        gate.open()
        try await hung.get()
    }
}
