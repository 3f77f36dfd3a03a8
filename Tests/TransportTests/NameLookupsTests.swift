import NIOCore
import NIOPosix
import Support
import Synchronization
import Testing
import Vocabulary

@testable import Transport

private final class Counter: Sendable {
    private let count = Mutex(0)
    var last: Int { count.withLock { $0 } }

    func next() -> Int {
        count.withLock {
            $0 += 1
            return $0
        }
    }
}

/// Names whose name servers do not answer, and the others.
@Suite(.timeLimit(.minutes(10))) struct NameLookupsTests {
    private let loop = MultiThreadedEventLoopGroup.singleton.next()
    private let gate = Gate()

    /// `good.example` is answered at once, others when the gate is open.
    private func lookups(threads: Int = NameLookups.maximumThreads) async throws -> NameLookups {
        let (loop, gate) = (loop, gate)
        return try await loop.submit {
            NameLookups(eventLoop: loop, maximumThreads: threads) { host, port in
                if host != "good.example" { gate.wait() }
                return addresses(["127.0.0.1"])(host, port)
            }
        }.get()
    }

    /// Gives the host to `answered` when there is an answer.
    private func ask(
        _ lookups: NameLookups, _ hosts: [String], _ answered: AsyncStream<String>.Continuation
    ) async throws {
        try await loop.submit {
            for host in hosts { lookups.resolve(host, 1883) { _ in answered.yield(host) } }
        }.get()
    }

    @Test func `a name is found while forty others are not answered`() async throws {
        let lookups = try await lookups()
        let (answers, answered) = AsyncStream.makeStream(of: String.self)
        try await ask(lookups, (1...40).map { "dead-\($0).example" }, answered)
        try await ask(lookups, ["good.example"], answered)
        var iterator = answers.makeAsyncIterator()
        #expect(await iterator.next() == "good.example")
        gate.open()
        var others: Set<String> = []
        while others.count < 40, let host = await iterator.next() { others.insert(host) }
        #expect(!others.contains("good.example"))
    }

    @Test func `one name has at most three threads, however often it is looked up`() async throws {
        let lookups = try await lookups(threads: 4)
        let (answers, answered) = AsyncStream.makeStream(of: String.self)
        try await ask(lookups, Array(repeating: "dead.example", count: 100), answered)
        try await ask(lookups, ["good.example"], answered)
        var iterator = answers.makeAsyncIterator()
        #expect(await iterator.next() == "good.example")
        gate.open()
        for _ in 1...100 { #expect(await iterator.next() == "dead.example") }
    }

    /// As where a name server answers for one family of addresses only.
    @Test func `an answer that comes late is also that of lookups begun in the meantime`() async throws {
        let (loop, first, second, calls) = (loop, gate, Gate(), Counter())
        defer { second.open() }
        let lookups = try await loop.submit {
            NameLookups(eventLoop: loop) { host, port in
                (calls.next() == 1 ? first : second).wait()
                return addresses(["127.0.0.1"])(host, port)
            }
        }.get()
        let (answers, answered) = AsyncStream.makeStream(of: String.self)
        try await ask(lookups, ["slow.example"], answered)
        try await until("the first lookup has begun") { calls.last == 1 }
        try await ask(lookups, ["slow.example"], answered)
        first.open()
        var iterator = answers.makeAsyncIterator()
        for _ in 1...2 { #expect(await iterator.next() == "slow.example") }
    }

    @Test func `lookups beyond the threads wait for their turn`() async throws {
        let lookups = try await lookups(threads: 1)
        let (answers, answered) = AsyncStream.makeStream(of: String.self)
        try await ask(lookups, ["a.example", "b.example", "good.example", "c.example"], answered)
        gate.open()
        var hosts: [String] = []
        for await host in answers {
            hosts.append(host)
            if hosts.count == 4 { break }
        }
        #expect(hosts == ["a.example", "b.example", "good.example", "c.example"])
    }

    // MARK: Lookups that are no longer wanted

    @Test func `a lookup that is withdrawn before it has a thread does not get one`() async throws {
        let (loop, gate) = (loop, gate)
        let hosts = Mutex<[String]>([])
        let lookups = try await loop.submit {
            NameLookups(eventLoop: loop, maximumThreads: 1) { host, port in
                hosts.withLock { $0.append(host) }
                gate.wait()
                return addresses(["127.0.0.1"])(host, port)
            }
        }.get()
        let (answers, answered) = AsyncStream.makeStream(of: String.self)
        try await ask(lookups, ["a.example"], answered)
        let client = try await TestClient("mqtt://b.example", lookups: lookups, loop: loop) { event, connection in
            if case .resolving = event { connection.close(.abort) }
        }
        #expect(try await client.next().name == "resolving")
        try await ask(lookups, ["c.example"], answered)
        gate.open()
        var iterator = answers.makeAsyncIterator()
        #expect(await iterator.next() == "a.example")
        #expect(await iterator.next() == "c.example")
        #expect(hosts.withLock { $0 } == ["a.example", "c.example"])
    }

    @Test func `names whose lookups were given up leave half of the threads to others`() async throws {
        let lookups = try await lookups(threads: 4)
        let (answers, answered) = AsyncStream.makeStream(of: String.self)
        let dead = ["dead-1.example", "dead-2.example"]
        try await loop.submit {
            for request in dead.map({ lookups.resolve($0, 1883) { _ in answered.yield("nothing") } }) {
                lookups.withdraw(request)
            }
        }.get()
        try await ask(lookups, dead, answered)
        try await ask(lookups, ["good.example"], answered)
        var iterator = answers.makeAsyncIterator()
        #expect(await iterator.next() == "good.example")
        gate.open()
        #expect(Set([await iterator.next(), await iterator.next()]) == Set(dead))
        // They were answered, and may use all threads again.
        try await ask(lookups, dead, answered)
        #expect(Set([await iterator.next(), await iterator.next()]) == Set(dead))
    }
}
