import Dispatch
import Glibc
import NIOCore
import NIOPosix
import Support
import Testing
import Vocabulary

@testable import Transport

@Suite(.timeLimit(.minutes(10))) struct ConnectionTests {
    @Test func `a connection opens, echoes and is closed by us`() async throws {
        let server = try await TestServer(.echo)
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)")
        let opened = try await client.opened()
        #expect(opened.peerAddress == "127.0.0.1:\(server.port)")
        #expect(opened.localAddress.hasPrefix("127.0.0.1:"))
        #expect(opened.tlsVersion == nil)
        try await client.send("hello")
        #expect(try await client.received(5) == "hello")
        try await client.close(.afterFlush)
        #expect(try await client.end() == .closedLocally)
        try await server.waitFor(.closed)
    }

    @Test func `the kernel says how much the server has acknowledged`() async throws {
        let server = try await TestServer(.echo)
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)")
        _ = try await client.opened()
        var before = 0
        for _ in 0..<3 {
            try await client.send("hello")
            // The answer acknowledges the question.
            #expect(try await client.received(5) == "hello")
            let measurement = try await client.on { $0.measure() }
            let delivered = try #require(measurement?.deliveredSegments)
            #expect((before + 1...before + 5).contains(delivered))
            before = delivered
        }
        try await client.close(.abort)
    }

    @Test func `events come in order, without resolving for an address`() async throws {
        let server = try await TestServer(.close)
        for (host, first) in [("127.0.0.1", []), ("localhost", ["resolving"])] {
            let client = try await TestClient("mqtt://\(host):\(server.port)") { event, connection in
                if case .opened = event { connection.send(ByteBuffer(string: "x")) }
            }
            var names: [String] = []
            for await event in client.events { names.append(event.name) }
            #expect(names == first + ["resolved", "dialing", "opened", "closed"])
        }
    }

    @Test func `of many addresses that failed alike the first are named`() {
        func message(_ count: Int) -> String {
            TransportFailure.message((1...count).map { ("192.0.2.\($0):1883", "Connection refused") })
        }
        let first = "cannot connect to 192.0.2.1:1883, 192.0.2.2:1883, 192.0.2.3:1883, 192.0.2.4:1883"
        #expect(message(4) == first + ": Connection refused")
        #expect(message(5) == first + ", 192.0.2.5:1883: Connection refused")
        #expect(message(200) == first + " and 196 more addresses: Connection refused")
    }

    @Test func `options are set on the socket`() async throws {
        let server = try await TestServer(.echo)
        let options = Connection.Options(keepAlive: .milliseconds(19_500))
        let values = NIOLoopBoundBox<[CInt]>.makeBoxSendingValue(
            [], eventLoop: MultiThreadedEventLoopGroup.singleton.next())
        let client = try await TestClient(
            "mqtt://127.0.0.1:\(server.port)", options: options, loop: values.eventLoop
        ) { event, _ in
            guard case .opened(let opened) = event else { return }
            values.value = socketOptions(local: opened.local, peer: opened.peer)
        }
        _ = try await client.opened()
        #expect(try await values.eventLoop.submit { values.value }.get() == [1, 1, 0, 20, 5, 4])
        try await client.close(.abort)
    }

    @Test func `unacknowledged data is sent again soon, even the tenth time`() async throws {
        let server = try await TestServer(.echo)
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)")
        _ = try await client.opened()
        // TCP_THIN_LINEAR_TIMEOUTS and TCP_RTO_MAX_MS.
        let found = try await client.on { connection in
            [CInt(16), 44].map { option in connection.withSocket { number(of: option, at: $0) } ?? -1 }
        }
        #expect(found.first == 1)
        // Kernels before 6.15 do not know it.
        #expect([1000, -ENOPROTOOPT].contains(found.last))
        try await client.close(.abort)
    }

    @Test(arguments: [(0, 1000), (20, 1000), (125, 1000), (600, 4800), (60_000, 120_000)])
    func `the longest retransmission wait allows several round trips`(roundTrip: Int, limit: CInt) {
        #expect(Connection.retransmissionLimit(roundTrip: .milliseconds(roundTrip)) == limit)
    }

    @Test func `a port without a listener refuses`() async throws {
        let taken = try TakenPort()
        let failure = try await TestClient("mqtt://127.0.0.1:\(taken.port)").failure()
        #expect(failure.code == .refused)
        #expect(failure.systemError == ECONNREFUSED)
        #expect(failure.message == "cannot connect to 127.0.0.1:\(taken.port): Connection refused")
    }

    @Test func `addresses that cannot be dialed for the same reason are named together`() {
        let failures = [("[::1]:1", "refused"), ("10.0.0.1:1", "no route"), ("127.0.0.1:1", "refused")]
        #expect(
            TransportFailure.message(failures.map { (address: $0, cause: $1) })
                == "cannot connect to [::1]:1, 127.0.0.1:1: refused; cannot connect to 10.0.0.1:1: no route")
    }

    @Test func `a reset by the peer is reported as such`() async throws {
        let server = try await TestServer(.reset)
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)")
        _ = try await client.opened()
        try await client.send("x")
        let failure = try await client.failure()
        #expect(failure.code == .reset)
        #expect(failure.systemError == ECONNRESET)
        #expect(failure.message == "the connection to 127.0.0.1:\(server.port) broke: Connection reset by peer")
    }

    @Test func `a clean close by the peer is not a failure`() async throws {
        let server = try await TestServer(.close)
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)")
        _ = try await client.opened()
        try await client.send("x")
        #expect(try await client.end() == .closedByPeer)
    }

    @Test func `a name that does not exist is a failure of DNS`() async throws {
        let failure = try await TestClient("mqtt://nonexistent.invalid").failure()
        #expect(failure.code == .dnsFailed)
        #expect(failure.message.hasPrefix("cannot resolve nonexistent.invalid: "))
    }

    @Test func `a resolver that does not answer is a failure of DNS`() async throws {
        let gate = Gate()
        let client = try await TestClient(
            "mqtt://a.example", options: Connection.Options(dialTimeout: .milliseconds(20)),
            lookUp: { _, _ in
                gate.wait()
                return .success([])
            })
        #expect(try await client.failure().code == .dnsFailed)
        gate.open()
    }

    @Test func `an address that never answers times out`() async throws {
        let hole = try BlackHole()
        let options = Connection.Options(dialTimeout: .milliseconds(50))
        let failure = try await TestClient("mqtt://127.0.0.1:\(hole.port)", options: options).failure()
        #expect(failure.code == .dialTimeout)
        #expect(failure.message == "no answer from 127.0.0.1:\(hole.port) within 0.05 seconds")
    }

    @Test(arguments: ["127.0.0.1", "::1"])
    func `both families of a name are dialed`(listening: String) async throws {
        let server = try await TestServer(.echo, host: listening)
        let client = try await TestClient(
            "mqtt://both.example:\(server.port)", lookUp: addresses(["::1", "127.0.0.1"]))
        #expect(try await client.opened().peer.ipAddress == listening)
        try await client.close(.abort)
    }

    @Test func `a failure names every address that was tried`() async throws {
        let taken = try TakenPort()
        let client = try await TestClient(
            "mqtt://both.example:\(taken.port)", lookUp: addresses(["::1", "127.0.0.1"]))
        let failure = try await client.failure()
        #expect(failure.code == .refused)
        #expect(failure.systemError == ECONNREFUSED)
        #expect(failure.message.contains("[::1]:\(taken.port)") && failure.message.contains("127.0.0.1:\(taken.port)"))
        #expect(failure.message.hasPrefix("cannot connect to ") && failure.message.hasSuffix(": Connection refused"))
    }

    @Test func `flushed is called when the bytes were handed over`() async throws {
        let server = try await TestServer(.echo)
        let (flushes, continuation) = AsyncStream.makeStream(of: Int.self)
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)") { event, connection in
            guard case .dialing = event else { return }
            connection.send(ByteBuffer(string: "early")) { continuation.yield(0) }
        }
        _ = try await client.opened()
        try await client.on { connection in
            connection.send(ByteBuffer(string: "a")) { continuation.yield(1) }
            connection.send(ByteBuffer(string: "b")) { continuation.yield(2) }
        }
        #expect(try await client.received(2) == "ab")
        try await client.close(.abort)
        try await client.on { $0.send(ByteBuffer(string: "late")) { continuation.yield(3) } }
        try await client.settle()
        continuation.finish()
        #expect(await flushes.reduce(into: []) { $0.append($1) } == [1, 2])
    }

    @Test func `flushed is not called for bytes that an abort discarded`() async throws {
        let server = try await TestServer(.silent)
        let (flushes, continuation) = AsyncStream.makeStream(of: Bool.self)
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)")
        _ = try await client.opened()
        try await client.on { connection in
            // More than all socket buffers of both sides hold.
            connection.send(ByteBuffer(repeating: 0, count: 64 << 20)) { continuation.yield(true) }
            connection.close(.abort)
        }
        try await server.waitFor(.closed)
        try await client.settle()
        continuation.finish()
        for await _ in flushes { Issue.record("flushed was called") }
    }

    @Test func `closing after the flush loses nothing`() async throws {
        let server = try await TestServer(.echo)
        let client = try await TestClient(
            "mqtt://127.0.0.1:\(server.port)", options: Connection.Options(closeTimeout: .seconds(600)))
        _ = try await client.opened()
        let size = 8 << 20
        try await client.on { connection in
            connection.send(ByteBuffer(repeating: 0x61, count: size))
            connection.close(.afterFlush)
        }
        var count = 0
        for await event in server.events {
            if case .received(let text) = event { count += text.utf8.count }
            if event == .closed { break }
        }
        #expect(count == size)
        #expect(try await client.end() == .closedLocally)
    }

    @Test func `closing after the flush takes bounded time`() async throws {
        let server = try await TestServer(.silent)
        let client = try await TestClient(
            "mqtt://127.0.0.1:\(server.port)", options: Connection.Options(closeTimeout: .zero))
        _ = try await client.opened()
        try await client.on { connection in
            connection.send(ByteBuffer(repeating: 0, count: 64 << 20))
            connection.close(.afterFlush)
        }
        #expect(try await client.end() == .closedLocally)
    }

    // MARK: Servers that do not answer

    /// The port of two servers: at ::1, which is dialed first, and at 127.0.0.1.
    private static func servers(_ first: TestServer.Behaviour, _ second: TestServer.Behaviour) async throws -> Int {
        let one = try await TestServer(first, host: "::1")
        return try await TestServer(second, beside: one).port
    }

    /// Has a client send something and wait for the answer, or for what comes instead.
    /// - Returns: the address that it was connected to.
    private static func ask(
        _ port: Int, at names: [String], patience: Duration, closes: Bool = false,
        contexts: NIOLoopBoundBox<TLSContextCache>, loop: any EventLoop
    ) async throws -> String? {
        var options = Connection.Options()
        options.patience = patience
        let client = try await TestClient(
            "mqtt://localhost:\(port)", options: options, contexts: contexts, loop: loop, lookUp: addresses(names))
        let peer = try await client.opened().peer.ipAddress
        try await client.send("hello")
        if !closes {
            for await event in client.events {
                if case .received = event { break }
            }
        }
        try await client.close(.abort)
        return peer
    }

    /// What an answer is worth if the connection lasts no longer than the patience: the other address is tried again.
    private static let silences: [(TestServer.Behaviour, Duration, [String])] = [
        (.close, .zero, ["::1", "127.0.0.1", "127.0.0.1"]), (.reset, .zero, ["::1", "127.0.0.1", "127.0.0.1"]),
        (.close, .seconds(600), ["::1", "127.0.0.1", "::1"]),
        (.silent, .zero, ["::1", "127.0.0.1", "127.0.0.1"]), (.silent, .seconds(600), ["::1", "::1", "::1"]),
    ]

    @Test(arguments: silences.indices)
    func `the next attempt begins with other addresses than that of a server that did not answer`(
        index: Int
    ) async throws {
        let (behaviour, patience, peers) = Self.silences[index]
        let port = try await Self.servers(behaviour, .echo)
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let contexts = try await loop.submit { NIOLoopBoundBox(TLSContextCache(), eventLoop: loop) }.get()
        for peer in peers {
            var closes = false
            if case .silent = behaviour { closes = peer == "::1" }
            let asked = try await Self.ask(
                port, at: ["::1", "127.0.0.1"], patience: patience, closes: closes, contexts: contexts, loop: loop)
            #expect(asked == peer)
        }
    }

    /// What is asked for may be a tunnel or a WebSocket, and what comes instead the end, or nothing.
    @Test(arguments: [false, true], [false, true])
    func `the next attempt begins with other addresses than that of a proxy or web server that opens nothing`(
        isProxy: Bool, isSilent: Bool
    ) async throws {
        let one = try await TestServer(isSilent ? .silent : .close, host: "::1")
        let two = try await TestServer(.close, beside: one)
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let contexts = try await loop.submit { NIOLoopBoundBox(TLSContextCache(), eventLoop: loop) }.get()
        var options = Connection.Options()
        options.patience = .zero
        if isProxy {
            options.proxy = ProxyOptions(address: try ProxyAddress("http://localhost:\(one.port)"), login: nil)
        }
        let endpoint = isProxy ? "mqtt://broker.invalid" : "ws://localhost:\(one.port)"
        for server in [one, two, one] {
            let client = try await TestClient(
                endpoint, options: options, contexts: contexts, loop: loop, lookUp: addresses(["::1", "127.0.0.1"]))
            try await server.waitForRequest()
            // As the session does when its time for this step is over.
            if isSilent, server === one { try await client.close(.abort) } else { _ = try await client.failure() }
        }
    }

    /// The memory of an address that is of no use ends with the use of the others.
    @Test func `an address that was of no use is dialed again when the others are of none either`() async throws {
        let one = try await TestServer(.close, host: "::1")
        let two = try await TestServer(.echo, beside: one)
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let contexts = try await loop.submit { NIOLoopBoundBox(TLSContextCache(), eventLoop: loop) }.get()
        var options = Connection.Options()
        options.patience = .zero
        func ask(_ names: [String], _ text: String) async throws -> String? {
            let client = try await TestClient(
                "mqtt://localhost:\(two.port)", options: options, contexts: contexts, loop: loop,
                lookUp: addresses(names))
            let peer = try await client.opened().peer.ipAddress
            try await client.send(text)
            for await event in client.events { if case .received = event { break } }
            try await client.close(.abort)
            return peer
        }
        let names = ["::1", "127.0.0.1"]
        #expect(try await ask(names, "a") == "::1")
        #expect(try await ask(names, "b") == "127.0.0.1")
        #expect(try await ask(names, "c") == "127.0.0.1")
        // Nothing listens at the other one, so the first one is dialed.
        #expect(try await ask(["::1", "127.0.0.2"], "d") == "::1")
        #expect(try await ask(names, "e") == "127.0.0.1")
    }

    @Test func `the address of a server that did not answer is dialed if no other can be`() async throws {
        // Nothing listens at the second address.
        let server = try await TestServer(.close, host: "::1")
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let contexts = try await loop.submit { NIOLoopBoundBox(TLSContextCache(), eventLoop: loop) }.get()
        for _ in 0..<3 {
            let asked = try await Self.ask(
                server.port, at: ["::1", "127.0.0.2"], patience: .seconds(600), contexts: contexts, loop: loop)
            #expect(asked == "::1")
        }
    }

    @Test func `a connection that is no longer acknowledged is not called one that nothing answers on`() {
        let failure = TransportFailure(
            connection: "192.0.2.1:1883", IOError(errnoCode: ETIMEDOUT, reason: "read"))
        #expect(failure.code == .unreachable && failure.detail == .noLongerAcknowledged)
        #expect(failure.systemError == ETIMEDOUT)
        #expect(failure.message.contains("what was sent is no longer acknowledged"))
    }

    /// [MQTT-4.2.0-1]
    @Test func `a paused connection holds the peer back and loses nothing`() async throws {
        let size = 4 << 20
        let server = try await TestServer(.flood(size))
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let counted = NIOLoopBoundBox.makeBoxSendingValue(0, eventLoop: loop)
        let (paused, continuation) = AsyncStream.makeStream(of: Void.self)
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)", loop: loop) { event, connection in
            guard case .received(let bytes) = event else { return }
            if counted.value == 0 {
                connection.pauseReading()
                continuation.finish()
            }
            counted.value += bytes.readableBytes
        }
        for await _ in paused {}
        // The kernel holds what nobody reads, and the peer cannot send the rest.
        try await until("bytes wait in the kernel") {
            try await client.on { $0.withSocket { unread(of: $0) } ?? 0 } >= 16 << 10
        }
        let held = try await loop.submit { counted.value }.get()
        #expect(held > 0 && held <= 128 << 10)
        try await client.settle()
        #expect(try await loop.submit { counted.value }.get() == held)
        try await client.on { $0.resumeReading() }
        #expect(try await client.received(size).utf8.count == size)
        try await client.close(.abort)
    }
}

/// Resolves every name to the given addresses.
func addresses(_ texts: [String]) -> LookUp {
    { _, port in .success(texts.compactMap { try? SocketAddress(ipAddress: $0, port: port) }) }
}

/// Something that a thread waits for until a test opens it.
final class Gate: Sendable {
    private let semaphore = DispatchSemaphore(value: 0)
    /// The thread that passes leaves the gate open for the next.
    func wait() {
        semaphore.wait()
        semaphore.signal()
    }
    func open() { semaphore.signal() }
}

/// SO_KEEPALIVE, TCP_NODELAY, TCP_USER_TIMEOUT and the three times of keep-alive of the socket of this process that has the addresses: one of them is not
/// enough, since the kernel gives the same local port to connections with different peers.
private func socketOptions(local: SocketAddress, peer: SocketAddress) -> [CInt] {
    for descriptor in CInt(3)..<getdtablesize() {
        guard address(of: descriptor, getsockname) == local, address(of: descriptor, getpeername) == peer else {
            continue
        }
        return [
            (SOL_SOCKET, SO_KEEPALIVE), (CInt(IPPROTO_TCP), TCP_NODELAY), (CInt(IPPROTO_TCP), TCP_USER_TIMEOUT),
            (CInt(IPPROTO_TCP), TCP_KEEPIDLE), (CInt(IPPROTO_TCP), TCP_KEEPINTVL), (CInt(IPPROTO_TCP), TCP_KEEPCNT),
        ].map { level, name in
            var value: CInt = -1
            var size = socklen_t(MemoryLayout<CInt>.size)
            return getsockopt(descriptor, level, name, &value, &size) == 0 ? value : -1
        }
    }
    return []
}

/// The number of bytes that the kernel holds for a socket.
func unread(of socket: CInt) -> CInt {
    var count: CInt = 0
    return ioctl(socket, UInt(FIONREAD), &count) == 0 ? count : -errno
}

/// The value of a TCP option, or the negative `errno`.
private func number(of option: CInt, at socket: CInt) -> CInt {
    var value: CInt = 0
    var length = socklen_t(MemoryLayout<CInt>.size)
    return getsockopt(socket, CInt(IPPROTO_TCP), option, &value, &length) == 0 ? value : -errno
}
