import Glibc
import NIOCore
import NIOPosix
import Synchronization
import Testing
import Vocabulary

@testable import Transport

/// Connections that may not use every network; the only one that every host has is the loopback interface.
@Suite(.timeLimit(.minutes(10))) struct WayTests {
    private static func options(
        _ way: @escaping @Sendable ([SocketAddress]) -> Connection.Way?
    ) -> Connection.Options {
        var options = Connection.Options()
        options.way = way
        return options
    }

    @Test func `a connection is bound to the interface that it is given`() async throws {
        let server = try await TestServer(.echo)
        let name = NIOLoopBoundBox.makeBoxSendingValue(
            "", eventLoop: MultiThreadedEventLoopGroup.singleton.next())
        let client = try await TestClient(
            "mqtt://127.0.0.1:\(server.port)", options: Self.options { .init(interface: "lo", addresses: $0) },
            loop: name.eventLoop
        ) { event, connection in
            guard case .opened = event else { return }
            name.value = connection.withSocket { boundInterface(of: $0) } ?? ""
        }
        _ = try await client.opened()
        #expect(try await name.eventLoop.submit { name.value }.get() == "lo")
        try await client.send("hello")
        #expect(try await client.received(5) == "hello")
        try await client.close(.abort)
    }

    /// The kernel would not deliver to a socket that is bound to the loopback what is sent to an address of another
    /// interface.
    @Test func `a connection to this host itself is not bound`() async throws {
        let server = try await TestServer(.echo)
        let name = NIOLoopBoundBox.makeBoxSendingValue(
            "none", eventLoop: MultiThreadedEventLoopGroup.singleton.next())
        let client = try await TestClient(
            "mqtt://127.0.0.1:\(server.port)",
            options: Self.options { .init(interface: "lo", addresses: $0, staysHere: true) }, loop: name.eventLoop
        ) { event, connection in
            guard case .opened = event else { return }
            name.value = connection.withSocket { boundInterface(of: $0) } ?? ""
        }
        _ = try await client.opened()
        #expect(try await name.eventLoop.submit { name.value }.get() == "")
        try await client.close(.abort)
    }

    @Test func `a connection without an allowed network fails before anything is sent`() async throws {
        let server = try await TestServer(.echo)
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)", options: Self.options { _ in nil })
        let failure = try await client.failure()
        #expect(failure.code == .networkNotAllowed)
        #expect(failure.message == "no network that may be used leads to 127.0.0.1:\(server.port)")
        // The next connection is the first that the server sees.
        let next = try await TestClient("mqtt://127.0.0.1:\(server.port)")
        _ = try await next.opened()
        try await next.send("x")
        #expect(try await server.events(upTo: .received("x")) == [.accepted, .received("x")])
        try await next.close(.abort)
    }

    @Test func `a missing interface is named`() async throws {
        let client = try await TestClient(
            "mqtt://127.0.0.1:9", options: Self.options { .init(interface: "gone0", addresses: $0) })
        let failure = try await client.failure()
        #expect(failure.code == .unreachable)
        #expect(failure.message == "a connection cannot be bound to gone0: No such device")
    }

    @Test func `only the addresses that the interface leads to are dialed`() async throws {
        let server = try await TestServer(.echo)
        let asked = Mutex<[[String]]>([])
        let client = try await TestClient(
            "mqtt://a.example:\(server.port)",
            options: Self.options { addresses in
                asked.withLock { $0.append(addresses.map(\.hostAndPort)) }
                return .init(interface: "lo", addresses: addresses.suffix(1))
            }, lookUp: addresses(["192.0.2.1", "127.0.0.1"]))
        #expect(try await client.opened().peerAddress == "127.0.0.1:\(server.port)")
        #expect(asked.withLock { $0 } == [["192.0.2.1:\(server.port)", "127.0.0.1:\(server.port)"]])
        try await client.close(.abort)
    }
}

private func boundInterface(of socket: CInt) -> String {
    var name = [UInt8](repeating: 0, count: 16)
    var length = socklen_t(name.count)
    guard getsockopt(socket, SOL_SOCKET, SO_BINDTODEVICE, &name, &length) == 0 else { return "errno \(errno)" }
    return String(decoding: name.prefix { $0 != 0 }, as: UTF8.self)
}
