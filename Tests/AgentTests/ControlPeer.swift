import ControlAPI
import NIOCore
import NIOPosix
import Support

/// A program on the control socket.
actor ControlPeer {
    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    /// The lines that the daemon sent: all of them, and separately the answers and the notifications. A test waits for
    /// answers and for notifications independently of each other.
    struct Lines: Sendable {
        /// Ends with `nil`.
        let all: Arrivals<JSONValue?>
        let answers: Arrivals<JSONValue>
        let notifications: Arrivals<JSONValue>

        init(eventLoop: any EventLoop) {
            all = Arrivals(eventLoop: eventLoop)
            answers = Arrivals(eventLoop: eventLoop)
            notifications = Arrivals(eventLoop: eventLoop)
        }

        func append(_ line: JSONValue?) {
            all.assumeIsolated { $0.append(line) }
            guard let line else { return }
            (line["method"] == nil ? answers : notifications).assumeIsolated { $0.append(line) }
        }
    }

    private let received: Lines
    var lines: Arrivals<JSONValue?> { received.all }
    private let channel: any Channel
    private var lastID = 0

    private init(_ channel: any Channel, _ received: Lines) {
        self.channel = channel
        self.received = received
        eventLoop = channel.eventLoop
    }

    static func connect(_ path: String, on eventLoop: any EventLoop, reads: Bool = true) async throws -> ControlPeer {
        let lines = Lines(eventLoop: eventLoop)
        let channel = try await bootstrap(eventLoop, lines, reads: reads).connect(unixDomainSocketPath: path).get()
        return ControlPeer(channel, lines)
    }

    /// Makes a peer on one end of a socket pair.
    static func adopt(_ descriptor: CInt, on eventLoop: any EventLoop) async throws -> ControlPeer {
        let lines = Lines(eventLoop: eventLoop)
        let channel = try await bootstrap(eventLoop, lines, reads: true).withConnectedSocket(descriptor).get()
        return ControlPeer(channel, lines)
    }

    private static func bootstrap(
        _ eventLoop: any EventLoop, _ lines: Lines, reads: Bool
    ) -> ClientBootstrap {
        ClientBootstrap(group: eventLoop)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .channelOption(.autoRead, value: reads)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(LineHandler(lines))
                }
            }
    }

    func send(_ text: String) async throws {
        try await channel.writeAndFlush(ByteBuffer(string: text + "\n"))
    }

    func sendRaw(_ text: String) async throws {
        try await channel.writeAndFlush(ByteBuffer(string: text))
    }

    /// Writes the text `count` times without waiting.
    func pour(_ text: String, count: Int) {
        let buffer = ByteBuffer(string: text)
        for _ in 0..<count { channel.write(buffer, promise: nil) }
        channel.flush()
    }

    func startReading() async throws {
        try await channel.setOption(.autoRead, value: true).get()
    }

    func stopReading() async throws {
        try await channel.setOption(.autoRead, value: false).get()
    }

    func closeOutput() async throws { try await channel.close(mode: .output) }

    func close() async throws { try await channel.close() }

    /// Sends a request without waiting for the answer.
    ///
    /// - Returns: its id.
    @discardableResult
    func request(_ method: String, _ parameters: String = "{}") async throws -> Int {
        lastID += 1
        try await send(#"{"jsonrpc":"2.0","id":\#(lastID),"method":"\#(method)","params":\#(parameters)}"#)
        return lastID
    }

    /// - Returns: the whole answer.
    func answer(_ id: Int) async throws -> JSONValue {
        // Answers come in any order: this one may have been skipped while waiting for another one.
        if let line = await received.answers.all.first(where: { $0["id"] == .integer(Int64(id)) }) { return line }
        return try await received.answers.first { line in line["id"] == .integer(Int64(id)) ? line : nil }
    }

    /// Calls a method and returns its result, or throws its error.
    @discardableResult
    func call(_ method: String, _ parameters: String = "{}") async throws -> JSONValue {
        // A test may repeat a call until something is true; its time limit must end that.
        try Task.checkCancellation()
        let answer = try await answer(try await request(method, parameters))
        guard let result = answer["result"] else { throw CallFailure(code: answer["error"]?["data"]?["code"]?.text) }
        return result
    }

    /// Waits for the next notification with these members.
    func notification(_ method: String, _ members: [String: JSONValue] = [:]) async throws -> JSONValue {
        try await received.notifications.first { line in
            guard line["method"] == .string(method), let parameters = line["params"],
                members.allSatisfy({ parameters[$0.key] == $0.value })
            else { return nil }
            return parameters
        }
    }

    /// Waits until the watched session has this state.
    @discardableResult
    func state(_ state: String, of session: String = "main") async throws -> JSONValue {
        try await notification(
            "session.event",
            ["session": .string(session), "event": .string("state-changed"), "state": .string(state)])
    }

    func end() async throws {
        _ = try await lines.first { line -> Bool? in line == nil ? true : nil }
    }

    struct CallFailure: Error, Equatable {
        var code: String?
    }
}

private final class LineHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let lines: ControlPeer.Lines
    private var buffer = ByteBuffer()
    /// How many bytes of the buffer are known to hold no end of a line.
    private var searched = 0

    init(_ lines: ControlPeer.Lines) {
        self.lines = lines
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        buffer.writeBuffer(&bytes)
        while let end = buffer.readableBytesView.dropFirst(searched).firstIndex(of: UInt8(ascii: "\n")) {
            searched = 0
            let line = buffer.readBytes(length: end - buffer.readerIndex) ?? []
            buffer.moveReaderIndex(forwardBy: 1)
            let value =
                (try? JSONValue(parsing: line[...])) ?? .string("no JSON: \(String(decoding: line, as: UTF8.self))")
            lines.append(value)
        }
        searched = buffer.readableBytes
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case ChannelEvent.inputClosed = event { context.close(promise: nil) }
    }

    func channelInactive(context: ChannelHandlerContext) {
        lines.append(nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}

extension JSONValue {
    var elements: [JSONValue]? {
        if case .array(let elements) = self { elements } else { nil }
    }
}
