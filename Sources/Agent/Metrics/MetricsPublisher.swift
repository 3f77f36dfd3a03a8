import Configuration
import Glibc
import Logging
import NIOCore
import NIOHTTP1
import NIOPosix
import Transport
import Vocabulary

/// Publishes the metrics on a loopback address and in a file, as `[metrics]` says.
actor MetricsPublisher {
    /// How many connections may be open at once.
    static let maximumConnections = 16
    /// How long a text is given to further clients.
    static let lifetime = TimeAmount.seconds(1)
    /// How often the file is written.
    static let interval: Duration = .seconds(15)

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let blocking: BlockingCalls
    private let logger: Logger
    private let read: @Sendable (MetricsFormat) async -> String
    private var configuration = MetricsConfiguration()
    private var listener: (any Channel)?
    /// Why they are not served, and why the file is not written; `nil` when they are, or need not be.
    private(set) var failures: (listener: String?, file: String?) = (nil, nil)
    private var writing: Task<Void, Never>?
    /// The oldest first.
    private var connections: [(channel: any Channel, handler: MetricsHandler)] = []
    private let lifetime: TimeAmount
    private var texts: [MetricsFormat: Task<String, Never>] = [:]

    /// - Parameter read: returns the present metrics.
    init(
        eventLoop: any EventLoop, blocking: BlockingCalls, logger: Logger,
        lifetime: TimeAmount = MetricsPublisher.lifetime,
        read: @escaping @Sendable (MetricsFormat) async -> String
    ) {
        self.eventLoop = eventLoop
        self.blocking = blocking
        self.logger = logger
        self.lifetime = lifetime
        self.read = read
    }

    /// The address that it listens on; `nil` when it does not listen.
    var address: SocketAddress? { listener?.localAddress }

    /// Applies a configuration. What cannot be done is logged and has no other consequences; the next reload tries
    /// again.
    func apply(_ new: MetricsConfiguration) async {
        let old = configuration
        configuration = new
        if new.listen != old.listen || listener == nil { await listen(new.listen) }
        // A later configuration, or a stop, did not wait.
        guard configuration == new else { return }
        if new.textfile != old.textfile {
            writing?.cancel()
            failures.file = nil
            writing = new.textfile.isEmpty ? nil : Task { await write(to: new.textfile) }
            await Self.remove(old.textfile, blocking)
        }
    }

    // MARK: HTTP

    private func listen(_ text: String) async {
        try? await listener?.close()
        (listener, failures.listener) = (nil, nil)
        guard let (host, port) = MetricsConfiguration.address(text) else { return }
        do {
            let address = try SocketAddress(ipAddress: host.description, port: port)
            listener = try await ServerBootstrap(group: eventLoop)
                .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
                .serverChannelInitializer { [logger] channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(
                            AcceptErrorHandler(of: "the listener of metrics", logger))
                    }
                }
                .childChannelInitializer { [weak self] channel in
                    channel.eventLoop.makeCompletedFuture {
                        guard let self else { throw ChannelError.ioOnClosedChannel }
                        try self.assumeIsolated { try $0.accept(channel) }
                    }
                }
                .bind(to: address).get()
        } catch {
            let number = (error as? IOError)?.errnoCode
            let why = number.map(systemText) ?? "\(error)"
            failures.listener = "metrics cannot be served on \(text): \(why)"
            logger.error(
                "metrics cannot be served on \(text): \(why); holdfastctl reload tries again",
                metadata: number.map { ["ERRNO": "\($0)"] })
        }
    }

    private func accept(_ channel: any Channel) throws {
        if connections.count == Self.maximumConnections {
            // Clients that ask nothing must not keep out those that do.
            guard let idle = connections.firstIndex(where: { !$0.handler.isAnswering }) else {
                throw ChannelError.ioOnClosedChannel
            }
            connections.remove(at: idle).channel.close(promise: nil)
        }
        let handler = MetricsHandler(channel) { [weak self] format in await self?.text(format) ?? "" }
        connections.append((channel, handler))
        channel.closeFuture.whenComplete { [weak self] _ in
            self?.assumeIsolated { $0.connections.removeAll { $0.channel === channel } }
        }
        try channel.pipeline.syncOperations.addHandler(HTTPLimitHandler())
        try channel.pipeline.syncOperations.configureHTTPServerPipeline(withPipeliningAssistance: false)
        try channel.pipeline.syncOperations.addHandler(handler)
    }

    /// Returns the metrics for a client. Those that ask soon after each other get the same text: it takes a look at every
    /// session.
    private func text(_ format: MetricsFormat) async -> String {
        if let text = texts[format] { return await text.value }
        let text = Task { [read] in await read(format) }
        texts[format] = text
        _ = eventLoop.scheduleTask(in: lifetime) { [weak self] in
            self?.assumeIsolated { $0.texts[format] = nil }
        }
        return await text.value
    }

    // MARK: The file

    private func write(to path: String) async {
        var told: Int32?
        while !Task.isCancelled {
            let text = await read(.prometheus)
            if Task.isCancelled { return }
            // On another thread, because a file system may not answer.
            let failure = try? await blocking.run(path, within: nil) { Self.replace(path, with: text) }.get()
            if Task.isCancelled { return }
            if let failure, failure != told {
                let advice =
                    switch failure {
                    case EROFS: "; ReadWritePaths= of the service names what else it may write to"
                    case EACCES: "; the daemon's user must be able to write to that directory"
                    default: ""
                    }
                let sentence = "metrics cannot be written to \(path): \(systemText(failure))\(advice)"
                failures.file = sentence
                logger.error("\(sentence)", metadata: ["ERRNO": "\(failure)"])
            }
            if failure == nil { failures.file = nil }
            told = failure
            try? await eventLoop.sleep(for: Self.interval)
        }
    }

    /// Removes a file that is no longer written: it would be read as if it were.
    ///
    /// - Parameter patience: how long to wait for that. If the file is being written for longer, it is removed afterwards.
    static func remove(
        _ path: String, _ blocking: BlockingCalls, patience: TimeAmount = .seconds(1)
    ) async {
        guard !path.isEmpty else { return }
        let removal = blocking.run(path, within: nil) { unlink(path) }
        let enough = removal.eventLoop.makePromise(of: Void.self)
        let timer = removal.eventLoop.scheduleTask(in: patience) { enough.succeed() }
        removal.whenComplete { _ in
            timer.cancel()
            enough.succeed()
        }
        try? await enough.futureResult.get()
    }

    /// Replaces the file atomically, so that no reader sees half of it.
    ///
    /// The directory may belong to another user, who must not be able to choose what is written to.
    ///
    /// - Returns: the kernel's number of the error; `nil` if nothing went wrong.
    static func replace(_ path: String, with text: String) -> Int32? {
        let new = "\(path).new"
        unlink(new)
        let descriptor = open(new, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o644)
        guard descriptor >= 0 else { return errno }
        // The unit's umask is meant for the state, but this file is for other users to read.
        fchmod(descriptor, 0o644)
        var failure = writeAll(Array(text.utf8), to: descriptor)
        close(descriptor)
        if failure == nil, rename(new, path) != 0 { failure = errno }
        if failure != nil { unlink(new) }
        return failure
    }
}

/// Answers the first request of a connection, and reads no other: NIO traps if the answers to two requests mix.
///
/// A client that sends no request, or does not read the answer, is disconnected after ``patience``.
private final class MetricsHandler: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let read: @Sendable (MetricsFormat) async -> String
    private var head: HTTPRequestHead?
    private(set) var isAnswering = false
    private let timer: Scheduled<Void>

    /// How long a client may take to ask, and to read the answer.
    private static let patience = TimeAmount.seconds(10)

    init(_ channel: any Channel, read: @escaping @Sendable (MetricsFormat) async -> String) {
        self.read = read
        timer = Self.closing(channel)
    }

    private static func closing(_ channel: any Channel) -> Scheduled<Void> {
        let timer = channel.eventLoop.scheduleTask(in: patience) { channel.close(promise: nil) }
        channel.closeFuture.whenComplete { _ in timer.cancel() }
        return timer
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isAnswering else { return }
        switch unwrapInboundIn(data) {
        case .head(let head): self.head = head
        case .body: break
        case .end:
            guard let head else { return }
            isAnswering = true
            timer.cancel()
            Self.respond(to: head, on: context.channel, read)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    private static func respond(
        to request: HTTPRequestHead, on channel: any Channel,
        _ read: @escaping @Sendable (MetricsFormat) async -> String
    ) {
        Task { await answer(request, on: channel, read) }
    }

    private static func answer(
        _ request: HTTPRequestHead, on channel: any Channel, _ read: @Sendable (MetricsFormat) async -> String
    ) async {
        let path = request.uri.prefix { $0 != "?" }
        let status: HTTPResponseStatus =
            request.method != .GET && request.method != .HEAD ? .methodNotAllowed : path == "/metrics" ? .ok : .notFound
        let accepted = request.headers[canonicalForm: "Accept"]
        let format: MetricsFormat =
            accepted.contains { $0.hasPrefix("application/openmetrics-text") } ? .openMetrics : .prometheus
        let text = status == .ok ? await read(format) : "the metrics are at /metrics\n"
        let type = status == .ok ? format.contentType : "text/plain; charset=utf-8"
        let headers: HTTPHeaders = [
            "Content-Type": type, "Content-Length": "\(text.utf8.count)", "Connection": "close",
        ]
        let head = HTTPResponseHead(version: .http1_1, status: status, headers: headers)
        channel.write(HTTPServerResponsePart.head(head), promise: nil)
        if request.method != .HEAD {
            channel.write(HTTPServerResponsePart.body(.byteBuffer(ByteBuffer(string: text))), promise: nil)
        }
        _ = closing(channel)
        // This fails if the client is gone.
        try? await channel.writeAndFlush(HTTPServerResponsePart.end(nil))
        channel.close(promise: nil)
    }
}
