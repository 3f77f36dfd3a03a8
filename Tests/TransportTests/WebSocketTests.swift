import NIOCore
import NIOEmbedded
import NIOHTTP1
import NIOPosix
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

    /// The frames as a server of NIO sends them.
    private func bytes(_ frames: [WebSocketFrame]) throws -> ByteBuffer {
        let channel = EmbeddedChannel(handler: WebSocketFrameEncoder())
        var bytes = ByteBuffer()
        for frame in frames {
            try channel.writeOutbound(frame)
            while var part = try channel.readOutbound(as: ByteBuffer.self) { bytes.writeBuffer(&part) }
        }
        _ = try channel.finish()
        return bytes
    }

    private func steps(_ stream: inout WebSocketStream, _ bytes: inout ByteBuffer) -> [WebSocketStream.Step] {
        var steps: [WebSocketStream.Step] = []
        while true {
            let step = stream.next(in: &bytes)
            if step == .wait { return steps }
            steps.append(step)
            switch step {
            case .close, .violation: return steps
            case .wait, .nothing, .deliver, .answer: break
            }
        }
    }

    private func steps(_ bytes: ByteBuffer) -> [WebSocketStream.Step] {
        var (stream, bytes) = (WebSocketStream(), bytes)
        return steps(&stream, &bytes)
    }

    /// [MQTT-6.0.0-2]
    @Test func `a packet may span frames, and a ping may come between them`() throws {
        let bytes = try bytes([
            frame(.binary, "a", fin: false), frame(.ping, "p"), frame(.continuation, "b", fin: false),
            frame(.continuation, "", fin: true), frame(.pong), frame(.binary, "c"),
        ])
        #expect(
            steps(bytes) == [
                .deliver(ByteBuffer(string: "a")), .answer(ByteBuffer(string: "p")), .deliver(ByteBuffer(string: "b")),
                .nothing, .nothing, .deliver(ByteBuffer(string: "c")),
            ])
    }

    @Test(arguments: [0, 1, 125, 126, 127, 65_535, 65_536, 100_000])
    func `a frame of any length is delivered`(length: Int) throws {
        let content = ByteBuffer(repeating: 7, count: length)
        let frames = try bytes([WebSocketFrame(fin: true, opcode: .binary, data: content), frame(.ping, "p")])
        #expect(
            steps(frames) == [length == 0 ? .nothing : .deliver(content), .answer(ByteBuffer(string: "p"))])
    }

    /// On a slow link, it is a sign of life. And none is kept until it is complete, however long it is.
    @Test(arguments: [1 << 20, .max] as [UInt64])
    func `the beginning of a frame is delivered before its end has arrived`(length: UInt64) throws {
        let channel = EmbeddedChannel()
        try channel.pipeline.syncOperations.addHandler(handler(channel))
        var bytes = ByteBuffer(bytes: [0x82, 127])
        bytes.writeInteger(length & UInt64(Int.max))
        bytes.writeString("one")
        try channel.writeInbound(bytes)
        #expect(try channel.readInbound(as: ByteBuffer.self) == ByteBuffer(string: "one"))
        try channel.writeInbound(ByteBuffer(string: "two"))
        #expect(try channel.readInbound(as: ByteBuffer.self) == ByteBuffer(string: "two"))
        _ = try channel.finish()
    }

    @Test func `a frame that breaks the rules is a violation`() {
        let begun: [UInt8] = [0x02, 1, 0x61]
        let cases: [([UInt8], WebSocketErrorCode)] = [
            ([0x81, 1], .unacceptableData), (begun + [0x81, 1], .unacceptableData), ([0x80, 1], .protocolError),
            (begun + [0x82, 1], .protocolError), ([0x82, 0x81], .protocolError), ([0xC2, 1], .protocolError),
            ([0xA2, 1], .protocolError), ([0x92, 1], .protocolError), ([0x83, 1], .protocolError),
            ([0x8B, 1], .protocolError), ([0x09, 0], .protocolError), ([0x89, 126], .protocolError),
            ([0x88, 127], .protocolError), ([0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], .protocolError),
        ]
        for (bytes, code) in cases {
            guard case .violation(code, _)? = steps(ByteBuffer(bytes: bytes)).last else {
                Issue.record("\(bytes) is no violation")
                continue
            }
        }
    }

    /// What comes of the bytes does not depend on how many arrive at once.
    @Test(arguments: 1...200 as ClosedRange<UInt64>)
    func `frames may be split anywhere`(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        let bytes = randomBytes(&random)
        var (stream, rest, arrived, all) = (WebSocketStream(), bytes, ByteBuffer(), [WebSocketStream.Step]())
        while rest.readableBytes > 0 {
            let most = Bool.random(using: &random) ? 3 : 300
            let count = Int.random(in: 1...most, using: &random)
            if var part = rest.readSlice(length: min(count, rest.readableBytes)) { arrived.writeBuffer(&part) }
            all += steps(&stream, &arrived)
            #expect(arrived.readableBytes < 127 || all.last.map(isEnd) == true)
            if all.last.map(isEnd) == true { break }
        }
        #expect(joined(all) == joined(steps(bytes)))
    }

    /// Frames, most of them valid. Lengths that would fit into fewer bytes are among these.
    private func randomBytes(_ random: inout SplitMix64) -> ByteBuffer {
        func isChosen(oneIn count: Int) -> Bool { Int.random(in: 0..<count, using: &random) == 0 }
        var (bytes, isInMessage) = (ByteBuffer(), false)
        for _ in 0..<Int.random(in: 1...40, using: &random) {
            let isControl = isChosen(oneIn: 4)
            let isLast = isControl || isChosen(oneIn: 2)
            var first: UInt8 = isControl ? (isChosen(oneIn: 2) ? 9 : 10) : isInMessage ? 0 : 2
            if isLast { first |= 0x80 }
            if !isControl { isInMessage = !isLast }
            bytes.writeInteger(isChosen(oneIn: 60) ? UInt8.random(in: 0...255, using: &random) : first)
            let length = Int.random(in: 0...(isControl || isChosen(oneIn: 2) ? 125 : 1000), using: &random)
            let mask: UInt8 = isChosen(oneIn: 100) ? 0x80 : 0
            if length > 125 ? isChosen(oneIn: 2) : !isControl && isChosen(oneIn: 3) {
                bytes.writeMultipleIntegers(127 | mask, UInt64(length))
            } else if length > 125 || (!isControl && isChosen(oneIn: 2)) {
                bytes.writeMultipleIntegers(126 | mask, UInt16(length))
            } else {
                bytes.writeInteger(UInt8(length) | mask)
            }
            bytes.writeBytes((0..<length).map { _ in UInt8.random(in: 0...255, using: &random) })
        }
        return bytes
    }

    private func isEnd(_ step: WebSocketStream.Step) -> Bool {
        switch step {
        case .close, .violation: true
        case .wait, .nothing, .deliver, .answer: false
        }
    }

    /// Joins neighbouring pieces of content.
    private func joined(_ steps: [WebSocketStream.Step]) -> [WebSocketStream.Step] {
        var joined: [WebSocketStream.Step] = []
        for step in steps where step != .nothing {
            if case .deliver(let next) = step, case .deliver(var piece)? = joined.last {
                piece.writeImmutableBuffer(next)
                joined[joined.count - 1] = .deliver(piece)
            } else {
                joined.append(step)
            }
        }
        return joined
    }

    // MARK: Turns

    /// A handler whose turns come with the time of the channel's loop.
    private func handler(_ channel: EmbeddedChannel) -> WebSocketHandler {
        WebSocketHandler(PolledTurns(eventLoop: channel.embeddedEventLoop))
    }

    /// A channel whose reads are counted, with a handler in its pipeline.
    private func channel() throws -> (EmbeddedChannel, WebSocketHandler, Reads) {
        let (channel, reads) = (EmbeddedChannel(), Reads())
        let handler = handler(channel)
        try channel.pipeline.syncOperations.addHandlers([reads, handler])
        return (channel, handler, reads)
    }

    private final class Reads: ChannelOutboundHandler {
        typealias OutboundIn = Never
        private(set) var count = 0

        func read(context: ChannelHandlerContext) {
            count += 1
            context.read()
        }
    }

    @Test func `many small frames are taken in turns, and nothing more is read until the last of them`() throws {
        let (channel, _, reads) = try channel()
        let count = 10_000
        try channel.writeInbound(
            bytes((0..<count).flatMap { [frame(.ping, "\($0)"), frame(.binary, "x")] }))
        channel.read()
        var (received, turns) = (0, 0)
        while received < count {
            while let piece = try channel.readInbound(as: ByteBuffer.self) {
                turns += 1
                received += piece.readableBytes
                #expect(piece.readableBytes <= WebSocketHandler.framesPerTurn / 2)
            }
            if received < count { #expect(reads.count == 0) }
            channel.embeddedEventLoop.advanceTime(by: .microseconds(500))
        }
        #expect(received == count)
        #expect(reads.count == 1)
        var pongs: [String] = []
        while let frame = try channel.readOutbound(as: WebSocketFrame.self) { pongs.append(String(buffer: frame.data)) }
        #expect(pongs.last == "9999")
        #expect(pongs.count <= turns, "only the last ping of a turn is answered")
        _ = try channel.finish()
    }

    @Test func `a session that wants nothing is given nothing, and nothing more is read`() throws {
        let (channel, handler, reads) = try channel()
        handler.read(false)
        try channel.writeInbound(bytes([frame(.binary, "a")]))
        channel.read()
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        #expect(try channel.readInbound(as: ByteBuffer.self) == nil)
        #expect(reads.count == 0)
        handler.read(true)
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        #expect(try channel.readInbound(as: ByteBuffer.self) == ByteBuffer(string: "a"))
        #expect(reads.count == 1)
        channel.read()
        #expect(reads.count == 2)
        _ = try channel.finish()
    }

    private enum End: CaseIterable { case close, error }

    /// TLS reports an error when it ends without its goodbye.
    @Test(arguments: End.allCases)
    private func `frames that wait for their turn are delivered before the end is reported`(end: End) throws {
        let (channel, _, _) = try channel()
        let log = Telling()
        try channel.pipeline.syncOperations.addHandler(log)
        try channel.writeInbound(bytes((0..<1000).map { _ in frame(.binary, "x") } + [frame(.binary, "last words")]))
        switch end {
        case .close: channel.pipeline.fireChannelInactive()
        case .error: channel.pipeline.fireErrorCaught(ChannelError.ioOnClosedChannel)
        }
        #expect(log.told.joined() == String(repeating: "x", count: 1000) + "last words" + "\(end)")
        #expect(log.told.last == "\(end)")
    }

    @Test func `frames before a Close are delivered before it is reported`() throws {
        let (channel, _, _) = try channel()
        let log = Telling()
        try channel.pipeline.syncOperations.addHandler(log)
        let close = TestFrame(opcode: .connectionClose, code: .goingAway).frame
        try channel.writeInbound(bytes([frame(.binary, "last words"), close, frame(.binary, "more")]))
        #expect(log.told == ["last words", "ended"])
        _ = try channel.finish()
    }

    /// A server that does not read.
    @Test func `one pong is under way at a time, and the next one answers the last ping`() throws {
        let (kept, channel) = (Keeping(), EmbeddedChannel())
        try channel.pipeline.syncOperations.addHandler(kept)
        try channel.pipeline.syncOperations.addHandler(handler(channel))
        for number in 0..<100 { try channel.writeInbound(bytes([frame(.ping, "\(number)")])) }
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
        func channelInactive(context: ChannelHandlerContext) { told.append("\(End.close)") }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { told.append("\(End.error)") }
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

    @Test(
        arguments: [
            (nil, "", nil), (.normalClosure, "", nil), (.normalClosure, "bye", "1000 (bye)"),
            (.goingAway, "", "1001"), (.policyViolation, "", "1008"),
            (.unexpectedServerError, "disk\nfull", "1011 (diskfull)"), (.unknown(4001), "x", "4001 (x)"),
        ] as [(WebSocketErrorCode?, String, String?)])
    func `a Close gives its reason in one line`(code: WebSocketErrorCode?, text: String, words: String?) throws {
        let frame = TestFrame(opcode: .connectionClose, text: text, code: code).frame
        guard case .close(code, let failure)? = steps(try bytes([frame])).last else {
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
        let certificates = try await TestCertificates.shared.value
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

    @Test func `ten thousand small frames arrive, and a message after them`() async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let small = (0..<10_000).flatMap { [TestFrame(opcode: .binary, text: "\($0 % 10)"), TestFrame(opcode: .ping)] }
        let server = try await WebSocketServer(frames: small + [TestFrame(opcode: .binary, text: "last")])
        let turns = try await PolledTurns.open(on: loop)
        let client = try await TestClient(
            "ws://127.0.0.1:\(server.port)", turns: turns, loop: loop, lookUp: systemLookUp)
        _ = try await client.opened()
        #expect(try await client.received(10_004).hasSuffix("789last"))
        try await client.close(.abort)
        try await loop.submit { turns.close() }.get()
    }

    /// Each read may hold nothing but answers of a few bytes, or empty frames.
    @Test(arguments: ["ws", "wss"])
    func `reads are small from the first byte on`(scheme: String) async throws {
        let certificates = try await TestCertificates.shared.value
        let server = try await WebSocketServer(tls: scheme == "wss" ? certificates.server("localhost") : nil)
        let small = Mutex<[String]>([])
        let client = try await TestClient("\(scheme)://localhost:\(server.port)", options: options(certificates)) {
            event, connection in
            if connection.readPortion == .small { small.withLock { $0.append(event.name) } }
        }
        _ = try await client.opened()
        #expect(small.withLock { $0 } == (scheme == "ws" ? [] : ["securing"]) + ["upgrading", "opened"])
        try await client.close(.abort)
    }

    struct Close: Sendable {
        let code: UInt16
        var text = ""
        let failure: Reason.Code?
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
        ("HTTP/1.1 200 OK\r\nX:\(String(repeating: " ", count: 70_000))\r\n\r\n", "with more than 64 KiB of headers"),
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
        let certificates = try await TestCertificates.shared.value
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
            "ws://127.0.0.1:\(server.port)", options: Connection.Options(closeTimeout: .seconds(600)))
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
