import NIOCore
import NIOPosix
import Testing
import Vocabulary

@testable import Transport

/// After `close(.abort)` has returned, nothing is delivered any more, whatever completes late.
@Suite(.timeLimit(.minutes(10))) struct AbortTests {
    @Test func `an abort before the first event suppresses all events`() async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let count = NIOLoopBoundBox.makeBoxSendingValue(0, eventLoop: loop)
        try await loop.submit {
            let endpoint = try Endpoint("mqtt://127.0.0.1")
            let connection = Connection.open(
                endpoint, options: Connection.Options(), eventLoop: loop, threadPool: .singleton,
                lookups: NameLookups(eventLoop: loop), blocking: BlockingCalls(eventLoop: loop),
                turns: PolledTurns(eventLoop: loop)
            ) { _ in count.value += 1 }
            connection.close(.abort)
        }.get()
        for _ in 0..<3 { try await loop.submit {}.get() }
        #expect(try await loop.submit { count.value }.get() == 0)
    }

    @Test func `an abandoned lookup is harmless`() async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let gate = Gate()
        let lookups = try await loop.submit {
            NameLookups(eventLoop: loop, maximumThreads: 1) { host, port in
                gate.wait()
                return addresses(["127.0.0.1"])(host, port)
            }
        }.get()
        let client = try await TestClient(
            "mqtt://a.example", lookups: lookups, loop: loop
        ) { event, connection in if case .resolving = event { connection.close(.abort) } }
        #expect(try await firstNames(client, 1) == ["resolving"])
        gate.open()
        // The only thread has done the first lookup when there is an answer to the second.
        try await withCheckedThrowingContinuation { (answered: CheckedContinuation<Void, any Error>) in
            loop.execute { lookups.resolve("b.example", 1883) { _ in answered.resume() } }
        }
        try await expectNothingMore(client)
    }

    @Test(arguments: ["resolved", "dialing"])
    func `an abort from an event before dialing leaves nothing behind`(phase: String) async throws {
        let server = try await TestServer(.echo)
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)") { event, connection in
            if event.name == phase { connection.close(.abort) }
        }
        let expected = phase == "resolved" ? ["resolved"] : ["resolved", "dialing"]
        #expect(try await firstNames(client, expected.count) == expected)
        try await expectNothingMore(client)
    }

    @Test func `an abort while addresses are dialed ends the race at once`() async throws {
        let hole = try BlackHole()
        var options = Connection.Options()
        // A machine that stalls must not end the race.
        options.dialTimeout = .seconds(600)
        let client = try await TestClient(
            "mqtt://a.example:\(hole.port)", options: options,
            lookUp: addresses(["127.0.0.1", "127.0.0.1", "127.0.0.1"]))
        #expect(try await firstNames(client, 3) == ["resolving", "resolved", "dialing"])
        try await client.settle()
        try await client.close(.abort)
        try await expectNothingMore(client)
    }

    @Test(arguments: ["securing", "opened", "received"])
    func `an abort from a later event closes the connection`(phase: String) async throws {
        let certificates = try await TestCertificates.shared.value
        let server = try await TestServer(.echo, tls: try certificates.server("localhost"))
        var options = Connection.Options()
        options.tls.authorities = certificates.path("trusted.pem")
        let client = try await TestClient("mqtts://localhost:\(server.port)", options: options) { event, connection in
            if case .opened = event { connection.send(ByteBuffer(string: "x")) }
            if event.name == phase { connection.close(.abort) }
        }
        let all = ["resolving", "resolved", "dialing", "securing", "opened", "received"]
        let expected = Array(all.prefix { $0 != phase }) + [phase]
        #expect(try await firstNames(client, expected.count) == expected)
        try await server.waitFor(.closed)
        try await expectNothingMore(client)
    }

    @Test func `an abort does not wait for the end of TLS`() async throws {
        let server = try await TestServer(.silent)
        let client = try await TestClient("mqtts://127.0.0.1:\(server.port)")
        #expect(try await firstNames(client, 3) == ["resolved", "dialing", "securing"])
        try await client.close(.abort)
        try await server.waitFor(.closed)
        try await expectNothingMore(client)
    }

    @Test func `an abort shortens a close after the flush`() async throws {
        let server = try await TestServer(.silent)
        let options = Connection.Options(closeTimeout: .seconds(3600))
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)", options: options)
        _ = try await client.opened()
        try await client.on { connection in
            connection.send(ByteBuffer(repeating: 0, count: 64 << 20))
            connection.close(.afterFlush)
            connection.close(.abort)
        }
        try await server.waitFor(.closed)
        try await expectNothingMore(client)
    }

    private func firstNames(_ client: TestClient, _ count: Int) async throws -> [String] {
        var names: [String] = []
        for await event in client.events {
            names.append(event.name)
            if names.count == count { return names }
        }
        return names
    }

    /// The client's stream ends without another event.
    private func expectNothingMore(_ client: TestClient) async throws {
        try await client.settle()
        client.finish()
        for await event in client.events { Issue.record("\(event.name) came after the abort") }
    }
}
