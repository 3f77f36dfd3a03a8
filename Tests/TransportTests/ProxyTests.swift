import NIOCore
import Support
import Testing
import Vocabulary

@testable import Transport

@Suite(.timeLimit(.minutes(10))) struct ProxyTests {
    private let agreement = "HTTP/1.1 200 Connection established\r\nVia: here\r\n\r\n"

    private func options(_ url: String, login: ProxyOptions.Login? = nil) throws -> Connection.Options {
        Connection.Options(proxy: ProxyOptions(address: try ProxyAddress(url), login: login))
    }

    @Test(arguments: [
        ("http://proxy.example:3128", "http://proxy.example:3128"),
        ("HTTP://Proxy.Example:80/", "http://proxy.example:80"),
        ("socks5://[2001:DB8::1]", "socks5://[2001:db8::1]:1080"), ("socks5://192.0.2.1:9", "socks5://192.0.2.1:9"),
    ])
    func `a proxy is read and written in its canonical form`(text: String, canonical: String) throws {
        #expect(try ProxyAddress(text).description == canonical)
        #expect(try ProxyAddress(canonical) == ProxyAddress(text))
    }

    @Test(
        arguments: [
            ("", .invalid(.noScheme)), ("proxy:3128", .invalid(.noScheme)),
            ("https://proxy:3128", .invalid(.unknownScheme("https"))),
            ("http://proxy", .noPort), ("http://:3128", .invalid(.noHost)), ("socks5://", .invalid(.noHost)),
            ("http://joe:hunter2@proxy:3128", .invalid(.userInformation)),
            ("socks5://joe@proxy", .invalid(.userInformation)),
            ("http://proxy:3128/x", .invalid(.path)), ("http://proxy:3128?x", .invalid(.path)),
            ("socks5://proxy#x", .invalid(.path)),
            ("http://proxy:0", .invalid(.badPort("0"))), ("socks5://a+b", .invalid(.badHost("a+b"))),
            ("socks5://a b", .invalid(.unexpectedCharacter)), ("socks5://::1", .invalid(.unbracketedIPv6("::1"))),
        ] as [(String, ProxyError)])
    func `an invalid proxy is refused, without repeating a password`(text: String, error: ProxyError) {
        #expect(throws: error) { try ProxyAddress(text) }
        #expect(!error.description.contains("hunter2"))
    }

    // MARK: HTTP CONNECT

    @Test func `an HTTP proxy is asked for the server by its name`() async throws {
        let proxy = try await ScriptServer(text: agreement)
        let client = try await TestClient(
            "mqtt://broker.invalid:1883", options: options("http://127.0.0.1:\(proxy.port)"))
        let opened = try await client.opened()
        #expect(opened.peerAddress == "127.0.0.1:\(proxy.port)")
        #expect(
            try await proxy.request()
                == "CONNECT broker.invalid:1883 HTTP/1.1\r\nHost: broker.invalid:1883\r\n\r\n")
        try await client.send("hello")
        #expect(try await client.received(5) == "hello")
        try await client.close(.afterFlush)
        #expect(try await client.end() == .closedLocally)
    }

    @Test func `the user and the password go to the proxy, and an IPv6 address in brackets`() async throws {
        let proxy = try await ScriptServer(text: agreement)
        let login = ProxyOptions.Login(username: "Aladdin", password: Array("open sesame".utf8))
        let client = try await TestClient(
            "mqtt://[2001:db8::1]", options: options("http://127.0.0.1:\(proxy.port)", login: login))
        _ = try await client.opened()
        let request = try await proxy.request()
        #expect(request.hasPrefix("CONNECT [2001:db8::1]:1883 HTTP/1.1\r\n"))
        #expect(request.contains("\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n"))
        try await client.close(.abort)
    }

    @Test(arguments: [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno",
            "requires a user name and a password, and the configuration has none (407)"
        ),
        (
            "HTTP/1.1 407 No\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM abc\r\n\r\n",
            "it wants a login by Negotiate, NTLM, not by Basic (407)"
        ),
        ("HTTP/1.1 407 No\r\nProxy-Authenticate: Digest x=\"y\", Basic realm=\"z\"\r\n\r\n", "has none (407)"),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "rules do not allow the connection (403)"),
        ("HTTP/1.0 502 Bad Gateway\r\n\r\n<html>", "it answered 502 Bad Gateway"),
        ("HTTP/1.1 407 Pr\u{1}xy\r\n\r\n", "the configuration has none (407)"),
        ("HTTP/1.1 407\r\nX: \u{7}\r\n\r\n", "the configuration has none (407)"),
        ("HTTP/1.1 502 Bad\u{1b}[2J\r\nX: \u{7}\r\n\r\n", "it answered 502 Bad Gateway"),
        ("HTTP/1.1 200 OK\r\nX: \u{7}\r\n\r\n", "its answer 200 has headers that are not HTTP"),
        ("HTTP/1.1 40\u{1} No\r\n\r\n", "it does not speak HTTP"),
        ("SSH-2.0-OpenSSH\r\n", "it does not speak HTTP"),
        ("HTTP/1.1 200 OK\r\n\r\n<html>Sign in</html>", "what it sends is not HTTP"),
        ("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 502 Bad Gateway\r\n\r\n", "comes before the server was asked"),
        ("", "it closed the connection"),
        ("HTTP/1.1 200 OK\r\nX:\(String(repeating: "\t", count: 70_000))\r\n\r\n", "more than 64 KiB of headers"),
    ])
    func `a refusal by an HTTP proxy is explained`(reply: String, words: String) async throws {
        let proxy = try await ScriptServer(text: reply)
        let failure = try await TestClient(
            "mqtt://broker.invalid", options: options("http://127.0.0.1:\(proxy.port)")
        ).failure()
        #expect(failure.code == .proxyFailed)
        #expect(failure.message.contains(words), "\(failure.message)")
        #expect(failure.message.contains("does not connect to broker.invalid:1883"), "\(failure.message)")
    }

    @Test func `a proxy is read in small pieces, and the server behind it in larger ones`() async throws {
        let silent = try await TestServer(.silent)
        let waiting = try await TestClient(
            "mqtt://broker.invalid", options: options("http://127.0.0.1:\(silent.port)"))
        for await event in silent.events { if case .received = event { break } }
        #expect(try await waiting.on { $0.readPortion } == .small)
        try await waiting.close(.abort)
        let proxy = try await ScriptServer(text: agreement)
        let client = try await TestClient(
            "mqtt://broker.invalid", options: options("http://127.0.0.1:\(proxy.port)"))
        _ = try await client.opened()
        #expect(try await client.on { $0.readPortion } == .large)
        try await client.close(.abort)
    }

    @Test func `a login that an HTTP proxy does not accept is named as the cause`() async throws {
        let proxy = try await ScriptServer(text: "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        let login = ProxyOptions.Login(username: "joe", password: [1])
        let failure = try await TestClient(
            "mqtt://broker.invalid", options: options("http://127.0.0.1:\(proxy.port)", login: login)
        ).failure()
        #expect(failure.message.hasSuffix("it does not accept the user name or password (407)"), "\(failure.message)")
    }

    @Test func `a proxy that never answers times out`() async throws {
        let proxy = try await TestServer(.silent)
        var options = try options("http://127.0.0.1:\(proxy.port)")
        // It is also the limit of the connection to the proxy, which is late where this process is.
        options.dialTimeout = .seconds(5)
        let failure = try await TestClient("mqtt://broker.invalid", options: options).failure()
        #expect(failure.code == .proxyFailed)
        #expect(failure.message.contains("did not answer within"))
    }

    @Test(arguments: ["mqtts", "wss"])
    func `TLS is with the server, not with the proxy`(scheme: String) async throws {
        let certificates = try await TestCertificates.shared.value
        let proxy = try await ScriptServer(text: agreement, tls: certificates.server("localhost"))
        var options = try options("http://127.0.0.1:\(proxy.port)")
        options.tls.authorities = certificates.path("trusted.pem")
        let client = try await TestClient("\(scheme)://localhost:8883", options: options)
        if scheme == "mqtts" {
            #expect(try await client.opened().tlsVersion == "TLSv1.3")
            try await client.close(.abort)
        } else {
            // It echoes the request for a WebSocket.
            #expect(try await client.failure().code == .webSocketFailed)
        }
    }

    @Test func `a certificate for the proxy's address is not one for the server`() async throws {
        let certificates = try await TestCertificates.shared.value
        let proxy = try await ScriptServer(text: agreement, tls: certificates.server("address"))
        var options = try options("http://127.0.0.1:\(proxy.port)")
        options.tls.authorities = certificates.path("trusted.pem")
        #expect(try await TestClient("mqtts://broker.invalid", options: options).failure().code == .certificateInvalid)
        let failure = try await TestClient("mqtts://127.0.0.1", options: options).failure()
        #expect(failure.code == .badEndpoint)
        #expect(failure.message.contains("needs a host name"))
    }

    @Test func `every address of a proxy is asked for a tunnel`() async throws {
        let certificates = try await TestCertificates.shared.value
        let proxy = try await ScriptServer(
            [Array(agreement.utf8)], host: "::", tls: certificates.server("untrusted"))
        var options = try options("http://proxy.example:\(proxy.port)")
        options.tls.authorities = certificates.path("trusted.pem")
        let client = try await TestClient(
            "mqtts://localhost:8883", options: options, lookUp: addresses(["::1", "127.0.0.1"]))
        let failure = try await client.failure()
        #expect(failure.code == .certificateInvalid)
        #expect(failure.message.contains("the certificate of localhost:8883 is not"), "\(failure.message)")
        for _ in 1...2 { #expect(try await proxy.request().hasPrefix("CONNECT localhost:8883 ")) }
    }

    // MARK: SOCKS 5

    private func handshake(
        _ host: String = "a.example", _ login: ProxyOptions.Login? = nil, _ replies: [[UInt8]]
    ) -> [SOCKS5Handshake.Step] {
        var handshake = SOCKS5Handshake(to: host, port: 1883, login: login)
        var buffer = ByteBuffer()
        return replies.map { reply in
            buffer.writeBytes(reply)
            return handshake.received(&buffer)
        }
    }

    private let login = ProxyOptions.Login(username: "joe", password: Array("pw".utf8))

    @Test func `SOCKS asks for a name, which the proxy resolves`() {
        #expect(SOCKS5Handshake(to: "a", port: 1, login: nil).greeting == ByteBuffer(bytes: [5, 1, 0]))
        let request = ByteBuffer(bytes: [5, 1, 0, 3, 9] + Array("a.example".utf8) + [0x07, 0x5B])
        #expect(
            handshake("a.example", nil, [[5], [0], [5, 0, 0, 1], [127, 0, 0, 1, 0x10], [0]])
                == [.wait, .send(request), .wait, .wait, .finished])
        #expect(handshake("a", nil, [[5, 0], [5, 0, 0, 3, 2, 0x61, 0x62, 0, 1]]).last == .finished)
    }

    @Test func `SOCKS takes addresses as they are`() {
        #expect(
            handshake("192.0.2.1", nil, [[5, 0]])
                == [.send(ByteBuffer(bytes: [5, 1, 0, 1, 192, 0, 2, 1, 0x07, 0x5B]))])
        let address: [UInt8] = [0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        #expect(
            handshake("2001:db8::1", nil, [[5, 0]])
                == [.send(ByteBuffer(bytes: [5, 1, 0, 4] + address + [0x07, 0x5B]))])
    }

    @Test func `SOCKS logs in if the proxy asks for it`() {
        #expect(SOCKS5Handshake(to: "a", port: 1, login: login).greeting == ByteBuffer(bytes: [5, 2, 0, 2]))
        let steps = handshake("a.example", login, [[5, 2], [1, 0]])
        #expect(steps.first == .send(ByteBuffer(bytes: [1, 3] + Array("joe".utf8) + [2] + Array("pw".utf8))))
        if case .send = steps.last {} else { Issue.record("no request was sent") }
    }

    @Test(
        arguments: [
            ([[4, 0]], "does not speak SOCKS 5"), ([[0x48, 0x54]], "does not speak SOCKS 5"),
            ([[5, 0xFF]], "an unsupported authentication method"), ([[5, 1]], "an unsupported authentication method"),
            ([[5, 2], [1, 1]], "rejected the user name or password"),
            ([[5, 0], [5, 1]], "it failed"), ([[5, 0], [5, 2]], "rules do not allow"),
            ([[5, 0], [5, 4, 0]], "its name is unknown there"), ([[5, 0], [5, 5, 0, 1]], "refused the connection"),
            ([[5, 0], [5, 9]], "unknown code 9"), ([[5, 0], [5, 0, 0, 9, 0]], "does not speak SOCKS 5"),
            ([[5, 0], [4, 0]], "does not speak SOCKS 5"),
        ] as [([[UInt8]], String)])
    func `a refusal by a SOCKS proxy is explained`(replies: [[UInt8]], words: String) {
        guard case .failed(let sentence) = handshake("a.example", login, replies).last else {
            Issue.record("no failure")
            return
        }
        #expect(sentence.contains(words), "\(sentence)")
    }

    @Test func `SOCKS without a password says that one is required`() {
        #expect(
            handshake("a", nil, [[5, 0xFF]])
                == [.failed("it requires a user name and a password, and the configuration has none")])
        let long = ProxyOptions.Login(username: "joe", password: Array(repeating: 1, count: 256))
        if case .failed? = handshake("a", long, [[5, 2]]).last {} else { Issue.record("no failure") }
    }

    @Test func `bytes go through a SOCKS proxy`() async throws {
        let proxy = try await ScriptServer([[5, 2], [1, 0], [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]])
        let client = try await TestClient(
            "mqtt://broker.invalid", options: options("socks5://localhost:\(proxy.port)", login: login),
            lookUp: addresses(["127.0.0.1"]))
        _ = try await client.opened()
        try await client.send("hello")
        #expect(try await client.received(5) == "hello")
        try await client.close(.abort)
    }

    @Test(arguments: ["mqtt", "mqtts", "ws"])
    func `bytes right behind the answer of a SOCKS proxy are the server's`(scheme: String) async throws {
        let greeting = Array("SSH-2.0-OpenSSH_9.2\r\n".utf8)
        let proxy = try await ScriptServer([[5, 0], [5, 0, 0, 1, 0, 0, 0, 0, 0, 0] + greeting])
        let client = try await TestClient(
            "\(scheme)://broker.invalid", options: options("socks5://127.0.0.1:\(proxy.port)"))
        if scheme == "mqtt" {
            _ = try await client.opened()
            #expect(try await client.received(greeting.count) == String(decoding: greeting, as: UTF8.self))
            try await client.close(.abort)
        } else {
            let failure = try await client.failure()
            #expect(failure.code == .wrongProtocol, "\(failure.message)")
        }
    }

    @Test func `a proxy that refuses TCP is reported as refused`() async throws {
        let taken = try TakenPort()
        let failure = try await TestClient(
            "mqtt://broker.invalid", options: options("socks5://127.0.0.1:\(taken.port)")
        ).failure()
        #expect(failure.code == .refused)
    }
}
