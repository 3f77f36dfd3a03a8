import NIOCore
import NIOPosix
import Testing
import Vocabulary

@testable import Transport

/// Connections that stop where the endpoint has answered.
@Suite(.timeLimit(.minutes(10))) struct ReachedTests {
    private let certificates: TestCertificates

    init() async throws { certificates = try await TestCertificates.shared.value }

    private var options: Connection.Options {
        Connection.Options(
            tls: TLSOptions(authorities: certificates.path("trusted.pem")), stop: .firstHop)
    }

    private func reached(_ client: TestClient) async throws {
        while true {
            switch try await client.next() {
            case .reached: return
            case .resolving, .resolved, .dialing: continue
            case let event: throw Unexpected(event: event.name)
            }
        }
    }

    @Test(arguments: [false, true])
    func `a reached connection proceeds when told to, with or without TLS`(isSecure: Bool) async throws {
        let server = try await TestServer(.echo, tls: isSecure ? try certificates.server("localhost") : nil)
        let client = try await TestClient(
            "\(isSecure ? "mqtts" : "mqtt")://localhost:\(server.port)", options: options)
        try await reached(client)
        try await server.waitFor(.accepted)
        try await client.proceed()
        #expect(try await client.opened().tlsVersion == (isSecure ? "TLSv1.3" : nil))
        try await client.send("hello")
        #expect(try await client.received(5) == "hello")
        try await client.close(.afterFlush)
        #expect(try await client.end() == .closedLocally)
    }

    @Test func `a reached connection sends nothing before it proceeds`() async throws {
        let server = try await TestServer(.echo)
        let client = try await TestClient("mqtts://localhost:\(server.port)", options: options)
        try await reached(client)
        try await client.send("hello")
        try await client.settle()
        try await client.close(.afterFlush)
        var seen: [TestServer.Event] = []
        for await event in server.events {
            seen.append(event)
            if event == .closed { break }
        }
        #expect(seen == [.accepted, .closed])
    }

    @Test func `a server that hangs up is noticed at the latest when the connection proceeds`() async throws {
        let server = try await TestServer(.hangUp)
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)", options: options)
        try await reached(client)
        try await server.waitFor(.closed)
        try await client.proceed()
        switch try await client.end() {
        case .closedByPeer: break
        case .failed(let failure): #expect(failure.code == .reset)
        case .closedLocally: Issue.record("nobody closed it here")
        }
    }

    @Test(arguments: [Connection.Stop.firstHop, .server])
    func `a connection through a proxy stops at the proxy, or at the server behind it`(_ stop: Connection.Stop)
        async throws
    {
        let proxy = try await ScriptServer(text: "HTTP/1.1 200 Connection established\r\n\r\n")
        var options = Connection.Options(
            proxy: ProxyOptions(address: try ProxyAddress("http://127.0.0.1:\(proxy.port)"), login: nil))
        options.stop = stop
        let client = try await TestClient("mqtt://broker.invalid:1883", options: options)
        try await reached(client)
        if stop == .server { #expect(try await proxy.request().hasPrefix("CONNECT broker.invalid:1883 ")) }
        try await client.proceed()
        _ = try await client.opened()
        try await client.send("hello")
        #expect(try await client.received(5) == "hello")
        try await client.close(.abort)
    }

    @Test func `a proxy that does not lead to the server is a failure`() async throws {
        let proxy = try await ScriptServer(text: "HTTP/1.1 502 Bad Gateway\r\n\r\n")
        var options = Connection.Options(
            proxy: ProxyOptions(address: try ProxyAddress("http://127.0.0.1:\(proxy.port)"), login: nil))
        options.stop = .server
        let client = try await TestClient("mqtt://broker.invalid:1883", options: options)
        switch try await client.end() {
        case .failed(let failure): #expect(failure.code == .proxyFailed)
        case let end: Issue.record("it ended otherwise: \(end)")
        }
    }

    @Test func `proceeding twice, or without having stopped, does nothing`() async throws {
        let server = try await TestServer(.echo)
        let client = try await TestClient("mqtt://127.0.0.1:\(server.port)")
        _ = try await client.opened()
        try await client.proceed()
        try await client.send("hello")
        #expect(try await client.received(5) == "hello")
        try await client.close(.abort)
    }
}
