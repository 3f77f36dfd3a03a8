import NIOCore
import NIOEmbedded
import NIOHTTP1
import NIOWebSocket
import Synchronization
import Testing
import Vocabulary

@testable import Transport

@Suite(.timeLimit(.minutes(10))) struct WebSocketTests {
    // MARK: Frames

    private func frame(_ opcode: WebSocketOpcode, _ text: String = "", fin: Bool = true) -> WebSocketFrame {
        WebSocketFrame(fin: fin, opcode: opcode, data: ByteBuffer(string: text))
    }

    /// [MQTT-6.0.0-2]
    @Test func `a packet may span frames, and a ping may come between them`() {
        var stream = WebSocketStream()
        let steps = [
            frame(.binary, "a", fin: false), frame(.ping, "p"), frame(.continuation, "b", fin: false),
            frame(.continuation, "", fin: true), frame(.pong), frame(.binary, "c"),
        ].map { stream.received($0) }
        #expect(
            steps == [
                .deliver(ByteBuffer(string: "a")), .answer(ByteBuffer(string: "p")), .deliver(ByteBuffer(string: "b")),
                .nothing, .nothing, .deliver(ByteBuffer(string: "c")),
            ])
    }

    @Test func `ten thousand small frames of one read are one piece, and only the last of their pings is answered`()
        throws
    {
        let channel = EmbeddedChannel(handler: WebSocketHandler())
        let pipeline = channel.pipeline.syncOperations
        for number in 0..<10_000 {
            pipeline.fireChannelRead(NIOAny(frame(.ping, "\(number)")))
            pipeline.fireChannelRead(NIOAny(frame(.binary, "x")))
        }
        pipeline.fireChannelReadComplete()
        #expect(try channel.readInbound(as: ByteBuffer.self)?.readableBytes == 10_000)
        #expect(try channel.readInbound(as: ByteBuffer.self) == nil)
        #expect(try channel.readOutbound(as: WebSocketFrame.self)?.data == ByteBuffer(string: "9999"))
        #expect(try channel.readOutbound(as: WebSocketFrame.self) == nil)
        _ = try channel.finish()
    }

    @Test func `frames without an end of the read are still delivered`() throws {
        let channel = EmbeddedChannel(handler: WebSocketHandler())
        channel.pipeline.syncOperations.fireChannelRead(NIOAny(frame(.binary, "a")))
        channel.embeddedEventLoop.run()
        #expect(try channel.readInbound(as: ByteBuffer.self) == ByteBuffer(string: "a"))
        _ = try channel.finish()
    }

    @Test func `frames before a Close are delivered before it is reported`() throws {
        let (log, channel) = (Telling(), EmbeddedChannel(handler: WebSocketHandler()))
        try channel.pipeline.syncOperations.addHandler(log)
        let pipeline = channel.pipeline.syncOperations
        pipeline.fireChannelRead(NIOAny(frame(.binary, "last words")))
        pipeline.fireChannelRead(NIOAny(TestFrame(opcode: .connectionClose, code: .goingAway).frame))
        #expect(log.told == ["last words", "ended"])
        _ = try channel.finish()
    }

    /// A server that does not read.
    @Test func `one pong is under way at a time, and the next one answers the last ping`() throws {
        let (kept, channel) = (Keeping(), EmbeddedChannel())
        try channel.pipeline.syncOperations.addHandler(kept)
        try channel.pipeline.syncOperations.addHandler(WebSocketHandler())
        for number in 0..<100 { try channel.writeInbound(frame(.ping, "\(number)")) }
        #expect(kept.written == ["0"])
        kept.flushed()
        channel.embeddedEventLoop.run()
        #expect(kept.written == ["0", "99"])
        kept.flushed()
        channel.embeddedEventLoop.run()
        #expect(kept.written == ["0", "99"])
        _ = try channel.finish()
    }

    /// What the later handlers receive, in order.
    private final class Telling: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        var told: [String] = []

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            told.append(String(buffer: unwrapInboundIn(data)))
        }
        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            if event is WebSocketEnded { told.append("ended") }
        }
    }

    /// Keeps what is written, until it is said to be flushed.
    private final class Keeping: ChannelOutboundHandler {
        typealias OutboundIn = WebSocketFrame
        var written: [String] = []
        private var promises: [EventLoopPromise<Void>] = []

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            written.append(String(buffer: unwrapOutboundIn(data).data))
            if let promise { promises.append(promise) }
        }

        func flush(context: ChannelHandlerContext) {}

        func flushed() {
            for promise in promises { promise.succeed() }
            promises = []
        }
    }

    @Test func `a frame that breaks the rules is a violation`() {
        var inMessage = WebSocketStream()
        _ = inMessage.received(frame(.binary, "a", fin: false))
        var masked = frame(.binary, "a")
        masked.maskKey = .random()
        var extended = frame(.binary, "a")
        extended.rsv1 = true
        let cases: [(WebSocketStream, WebSocketFrame, WebSocketErrorCode)] = [
            (WebSocketStream(), frame(.text, "a"), .unacceptableData),
            (inMessage, frame(.text, "a"), .unacceptableData),
            (WebSocketStream(), frame(.continuation, "a"), .protocolError),
            (inMessage, frame(.binary, "a"), .protocolError), (WebSocketStream(), masked, .protocolError),
            (WebSocketStream(), extended, .protocolError),
            (WebSocketStream(), frame(.init(encodedWebSocketOpcode: 3) ?? .text), .protocolError),
        ]
        for (stream, frame, code) in cases {
            var stream = stream
            guard case .violation(code, _) = stream.received(frame) else {
                Issue.record("\(frame) is no violation")
                continue
            }
        }
    }

    @Test(
        arguments: [
            (nil, "", nil), (.normalClosure, "", nil), (.normalClosure, "bye", "1000 (bye)"),
            (.goingAway, "", "1001"), (.policyViolation, "", "1008"),
            (.unexpectedServerError, "disk\nfull", "1011 (diskfull)"), (.unknown(4001), "x", "4001 (x)"),
        ] as [(WebSocketErrorCode?, String, String?)])
    func `a Close gives its reason in one line`(code: WebSocketErrorCode?, text: String, words: String?) {
        var stream = WebSocketStream()
        let frame = TestFrame(opcode: .connectionClose, text: text, code: code).frame
        guard case .close(code, let failure) = stream.received(frame) else {
            Issue.record("no close")
            return
        }
        #expect(failure?.message == words.map { "the server closed the WebSocket with \($0)" })
    }

    // MARK: Connections

    private func options(_ certificates: TestCertificates) -> Connection.Options {
        Connection.Options(tls: TLSOptions(authorities: certificates.path("trusted.pem")))
    }

    /// [MQTT-6.0.0-1] [MQTT-6.0.0-3]
    @Test func `a WebSocket is requested as the MQTT standard demands`() async throws {
        let heads = Mutex<[HTTPRequestHead]>([])
        let server = try await WebSocketServer { head in heads.withLock { $0.append(head) } }
        let client = try await TestClient("ws://127.0.0.1:\(server.port)/mqtt?x=1")
        let opened = try await client.opened()
        #expect(opened.tlsVersion == nil)
        let head = try #require(heads.withLock { $0.first })
        #expect(head.uri == "/mqtt?x=1")
        #expect(head.headers["Host"] == ["127.0.0.1:\(server.port)"])
        #expect(head.headers["Sec-WebSocket-Protocol"] == ["mqtt"])
        #expect(head.headers["Sec-WebSocket-Version"] == ["13"])
        #expect(!head.headers.contains(name: "Sec-WebSocket-Extensions"))
        try await client.send("hello")
        #expect(try await client.received(5) == "hello")
        #expect(try await server.next() == "binary hello")
        try await client.close(.afterFlush)
        #expect(try await client.end() == .closedLocally)
        #expect(try await server.next() == "close 1000")
        #expect(try await server.next() == "end")
    }

    @Test func `wss verifies the server like mqtts`() async throws {
        let certificates = try TestCertificates.shared.get()
        let server = try await WebSocketServer(tls: certificates.server("localhost"))
        let client = try await TestClient("wss://localhost:\(server.port)", options: options(certificates))
        var versions: [String?] = []
        for await event in client.events {
            if case .upgrading(let version) = event { versions.append(version) }
            if case .opened = event { break }
        }
        #expect(versions == ["TLSv1.3"])
        try await client.send("hello")
        #expect(try await client.received(5) == "hello")
        try await client.close(.afterFlush)
        #expect(try await client.end() == .closedLocally)
        let other = try await TestClient("wss://127.0.0.1:\(server.port)", options: options(certificates))
        #expect(try await other.failure().code == .certificateInvalid)
    }

    @Test func `frames right after the answer are delivered, and a ping is answered`() async throws {
        let server = try await WebSocketServer(frames: [
            TestFrame(opcode: .binary, text: "one ", isLast: false), TestFrame(opcode: .ping, text: "still there?"),
            TestFrame(opcode: .continuation, text: "two"),
        ])
        let client = try await TestClient("ws://127.0.0.1:\(server.port)")
        _ = try await client.opened()
        #expect(try await client.received(7) == "one two")
        #expect(try await server.next() == "pong still there?")
        try await client.close(.abort)
        #expect(try await server.next() == "end")
    }

    /// [MQTT-6.0.0-1]
    @Test func `a text frame ends the connection, and the server is told why`() async throws {
        let server = try await WebSocketServer(frames: [TestFrame(opcode: .text, text: "hello")])
        let failure = try await TestClient("ws://127.0.0.1:\(server.port)").failure()
        #expect(failure.code == .protocolError)
        #expect(failure.message.contains("a text frame"))
        #expect(try await server.next() == "close 1003")
    }

    /// Each read may hold nothing but empty frames.
    @Test func `a read of a WebSocket is small`() async throws {
        let server = try await WebSocketServer()
        let client = try await TestClient("ws://127.0.0.1:\(server.port)")
        _ = try await client.opened()
        let capacity = try await client.on { connection in
            let allocator = try? connection.wire?.channel.syncOptions?.getOption(.recvAllocator)
            return (allocator as? FixedSizeRecvByteBufferAllocator)?.capacity
        }
        #expect(capacity == WebSocketHandler.readSize)
        try await client.close(.abort)
    }

    @Test func `a frame beyond the limit ends the connection`() async throws {
        let server = try await WebSocketServer(frames: [
            TestFrame(opcode: .binary, text: String(repeating: "x", count: 2000))
        ])
        let client = try await TestClient(
            "ws://127.0.0.1:\(server.port)", options: Connection.Options(maximumFrameSize: 1000))
        #expect(try await client.failure().message.contains("too large a frame"))
        #expect(try await server.next() == "close 1009")
    }

    struct Close: Sendable {
        let code: UInt16
        var text = ""
        let failure: TransportFailure.Code?
    }

    @Test(arguments: [
        Close(code: 1000, failure: nil), .init(code: 1000, text: "kicked", failure: .serverError),
        .init(code: 1001, text: "drain", failure: .serverShutdown), .init(code: 1012, failure: .serverShutdown),
        .init(code: 1013, failure: .serverBusy), .init(code: 1008, text: "not\u{1b}[2J now", failure: .serverError),
    ])
    func `a Close by the server is a clean end, or a failure that says why`(close: Close) async throws {
        let server = try await WebSocketServer(frames: [
            TestFrame(opcode: .connectionClose, text: close.text, code: WebSocketErrorCode(codeNumber: Int(close.code)))
        ])
        let end = try await TestClient("ws://127.0.0.1:\(server.port)").end()
        if let code = close.failure {
            guard case .failed(let failure) = end else { throw Unexpected(event: "\(end)") }
            #expect(failure.code == code)
            let words = close.text.filter { $0 != "\u{1b}" }
            #expect(failure.message.hasPrefix("the server closed the WebSocket with \(close.code)"))
            #expect(failure.message.contains(words.isEmpty ? "\(close.code) (127.0.0.1" : "(\(words))"), "\(failure)")
        } else {
            #expect(end == .closedByPeer)
        }
        #expect(try await server.next() == "close \(close.code)")
    }

    @Test(arguments: [
        ("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 30\r\n\r\n", Duration.seconds(30)),
        ("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 4000000000\r\n\r\n", .seconds(3600)),
        ("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 99999999999999999999\r\n\r\n", .seconds(3600)),
        ("HTTP/1.1 503 Service Unavailable\r\nRetry-After: -1\r\n\r\n", nil),
        ("HTTP/1.1 503 Service Unavailable\r\nRetry-After: tomorrow\r\n\r\n", nil),
        ("HTTP/1.1 503 Service Unavailable\r\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n\r\n", .zero),
        ("HTTP/1.1 503 Service Unavailable\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n\r\n", .seconds(3600)),
        (
            "HTTP/1.1 503 Service Unavailable\r\nDate: Fri, 31 Dec 1999 23:59:59 GMT\r\n"
                + "Retry-After: Sat, 01 Jan 2000 00:01:00 GMT\r\n\r\n", .seconds(61)
        ),
        ("HTTP/1.1 429 Too Many Requests\r\n\r\n", nil),
    ])
    func `a busy server is left alone for as long as it asks`(reply: String, retryAfter: Duration?) async throws {
        let server = try await ScriptServer(text: reply)
        let failure = try await TestClient("ws://127.0.0.1:\(server.port)").failure()
        #expect(failure.code == .serverBusy)
        #expect(failure.retryAfter == retryAfter)
    }

    @Test(arguments: [
        ("SSH-2.0-OpenSSH_9.2\r\n", "an SSH server"), ("\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{28}", "a TLS server"),
    ])
    func `a server of another protocol is named`(greeting: String, name: String) async throws {
        let server = try await ScriptServer(text: greeting)
        let failure = try await TestClient("ws://127.0.0.1:\(server.port)").failure()
        #expect(failure.code == .wrongProtocol)
        #expect(failure.message.contains(name), "\(failure.message)")
    }

    /// [MQTT-6.0.0-4]
    @Test func `a server without the subprotocol is refused with a hint`() async throws {
        for headers in [HTTPHeaders(), ["Sec-WebSocket-Protocol": "chat"]] {
            let server = try await WebSocketServer(headers: headers)
            let failure = try await TestClient("ws://127.0.0.1:\(server.port)").failure()
            #expect(failure.code == .webSocketFailed)
            #expect(failure.message.contains("without the subprotocol \"mqtt\""), "\(failure.message)")
            #expect(failure.message.contains("check the path"))
        }
    }

    @Test(arguments: [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "with 404 Not Found"),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", "RFC 6455"),
        ("HTTP/1.1 401 N\u{1}\r\nX: \u{7}\r\n\r\n", "with 401 Unauthorized; it wants a login by HTTP"),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "with 403 Forbidden; it does not permit the request: check the path"),
        (
            "HTTP/1.1 301 Moved Permanently\r\nLocation: https://new.example/mqtt\r\n\r\n",
            "is not followed: it leads to https://new.example/mqtt; correct the endpoint"
        ),
        ("HTTP/1.1 302 Found\r\n\r\n", "with 302 Found; such a redirection is not followed; correct the endpoint"),
        ("HTTP/1.1 101 Go\r\nX: \u{7}\r\n\r\n", "RFC 6455"),
        ("HTTP/1.1 200 OK\r\n\r\n", "with 200 OK"), ("\u{10}\u{2}\r\n", "does not speak HTTP"),
        ("", "instead of opening"),
    ])
    func `an answer that opens no WebSocket is explained`(reply: String, words: String) async throws {
        let server = try await ScriptServer(text: reply)
        let failure = try await TestClient("ws://127.0.0.1:\(server.port)").failure()
        #expect(failure.code == .webSocketFailed)
        #expect(failure.message.contains(words), "\(failure.message)")
    }

    @Test func `a redirection that leads far is cut`() async throws {
        let location = "https://new.example/" + String(repeating: "x", count: 10_000)
        let server = try await ScriptServer(text: "HTTP/1.1 308 Permanent Redirect\r\nLocation: \(location)\r\n\r\n")
        let failure = try await TestClient("ws://127.0.0.1:\(server.port)").failure()
        #expect(failure.message.contains("it leads to https://new.example/xxx"))
        #expect(failure.message.count < 500)
    }

    @Test func `a reset instead of an answer is a WebSocket failure`() async throws {
        let server = try await TestServer(.reset)
        let failure = try await TestClient("ws://127.0.0.1:\(server.port)").failure()
        #expect(failure.code == .webSocketFailed)
    }

    @Test func `an end without the goodbye of TLS instead of an answer is a WebSocket failure`() async throws {
        let certificates = try TestCertificates.shared.get()
        let server = try await TestServer(.closeBeneathTLS, tls: certificates.server("localhost"))
        let failure = try await TestClient("wss://localhost:\(server.port)", options: options(certificates)).failure()
        #expect(failure.code == .webSocketFailed, "\(failure.message)")
    }

    @Test func `a server that never answers the request times out`() async throws {
        let server = try await TestServer(.silent)
        let options = Connection.Options(handshakeTimeout: .milliseconds(50))
        let failure = try await TestClient("ws://127.0.0.1:\(server.port)", options: options).failure()
        #expect(failure.code == .webSocketFailed)
        #expect(failure.message.contains("within 0.05 seconds"))
    }

    @Test func `closing after the flush loses nothing`() async throws {
        let server = try await WebSocketServer()
        let client = try await TestClient(
            "ws://127.0.0.1:\(server.port)", options: Connection.Options(closeTimeout: .seconds(60)))
        _ = try await client.opened()
        try await client.on { connection in
            connection.send(ByteBuffer(repeating: 0x61, count: 1 << 20))
            connection.close(.afterFlush)
        }
        #expect(try await server.next().utf8.count == (1 << 20) + "binary ".utf8.count)
        #expect(try await server.next() == "close 1000")
        #expect(try await client.end() == .closedLocally)
    }
}
