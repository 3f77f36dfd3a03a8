import NIOCore
import NIOPosix
import Testing
import Vocabulary

@testable import Transport

/// A connection and the stream of its events, for tests off the event loop.
final class TestClient: Sendable {
    typealias Reaction = @Sendable (ConnectionEvent, Connection) -> Void

    private let loop: any EventLoop
    private let connection: NIOLoopBoundBox<Connection?>
    let events: AsyncStream<ConnectionEvent>
    private let continuation: AsyncStream<ConnectionEvent>.Continuation

    convenience init(
        _ endpoint: String, options: Connection.Options = Connection.Options(),
        lookups: NameLookups? = nil,
        contexts: NIOLoopBoundBox<TLSContextCache>? = nil,
        loop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next(),
        reaction: @escaping Reaction = { _, _ in }
    ) async throws {
        try await self.init(
            endpoint, options: options, lookups: lookups, contexts: contexts, loop: loop, lookUp: systemLookUp,
            reaction: reaction)
    }

    /// - Parameter reaction: called on the loop with each event, before it goes to the stream.
    init(
        _ endpoint: String, options: Connection.Options = Connection.Options(),
        lookups: NameLookups? = nil,
        blocking: BlockingCalls? = nil,
        turns: PolledTurns? = nil,
        contexts: NIOLoopBoundBox<TLSContextCache>? = nil,
        loop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next(),
        lookUp: @escaping LookUp,
        reaction: @escaping Reaction = { _, _ in }
    ) async throws {
        let endpoint = try Endpoint(endpoint)
        let options = Self.patient(options)
        self.loop = loop
        let box = NIOLoopBoundBox<Connection?>.makeEmptyBox(eventLoop: loop)
        connection = box
        let (events, continuation) = AsyncStream.makeStream(of: ConnectionEvent.self)
        self.events = events
        self.continuation = continuation
        try await loop.submit {
            box.value = Connection.open(
                endpoint, options: options, eventLoop: loop, threadPool: .singleton,
                lookups: lookups ?? NameLookups(eventLoop: loop, lookUp: lookUp),
                blocking: blocking ?? BlockingCalls(eventLoop: loop), turns: turns ?? PolledTurns(eventLoop: loop),
                contexts: contexts?.value ?? TLSContextCache()
            ) { event in
                Self.take(event, of: box.value, reaction, continuation)
            }
        }.get()
    }

    /// The users' default is too short for a busy machine; tests of the limit set their own.
    private static func patient(_ options: Connection.Options) -> Connection.Options {
        var patient = options
        if options.dialTimeout == Connection.Options().dialTimeout { patient.dialTimeout = .seconds(600) }
        return patient
    }

    private static func take(
        _ event: ConnectionEvent, of connection: Connection?, _ reaction: Reaction,
        _ continuation: AsyncStream<ConnectionEvent>.Continuation
    ) {
        if let connection { reaction(event, connection) }
        continuation.yield(event)
        if case .closed = event { continuation.finish() }
    }

    /// Goes on where the connection has stopped, with the same stream of events.
    func proceed() async throws {
        try await on { [continuation] connection in
            _ = connection.proceed { [weak connection] in Self.take($0, of: connection, { _, _ in }, continuation) }
        }
    }

    func next() async throws -> ConnectionEvent {
        for await event in events { return event }
        throw Unexpected(event: "end of events")
    }

    func on<Value: Sendable>(_ body: @escaping @Sendable (Connection) -> Value) async throws -> Value {
        try await loop.submit { [connection] in
            guard let connection = connection.value else { preconditionFailure("the connection was opened by init") }
            return body(connection)
        }.get()
    }

    func send(_ text: String) async throws { try await on { $0.send(ByteBuffer(string: text)) } }
    func close(_ mode: Closing) async throws { try await on { $0.close(mode) } }

    /// The next event that is an opening; fails the test when the end comes first.
    func opened() async throws -> Opened {
        for await event in events {
            if case .opened(let opened) = event { return opened }
            if case .closed(let end) = event { throw Unexpected(event: "\(end)") }
        }
        throw Unexpected(event: "end of events")
    }

    /// Reads until this many bytes were received.
    func received(_ count: Int) async throws -> String {
        var text = ""
        for await event in events {
            if case .received(let bytes) = event { text += String(buffer: bytes) }
            if text.utf8.count >= count { return text }
            if case .closed(let end) = event { throw Unexpected(event: "\(end)") }
        }
        throw Unexpected(event: "end of events")
    }

    /// All events that are left, by name, up to the end.
    func end() async throws -> ConnectionEnd {
        for await event in events {
            if case .closed(let end) = event { return end }
        }
        throw Unexpected(event: "end of events without closed")
    }

    /// The failure that the connection ends with.
    func failure() async throws -> TransportFailure {
        let end = try await end()
        guard case .failed(let failure) = end else { throw Unexpected(event: "\(end)") }
        return failure
    }

    /// Ends the stream of events; those that were delivered before can still be read.
    func finish() { continuation.finish() }

    /// Everything that the loop has to do by now is done.
    func settle() async throws { for _ in 0..<3 { try await loop.submit {}.get() } }
}

extension Connection {
    /// How much is read in a turn; `nil` before there is a channel.
    var readPortion: Wire.Portion? {
        guard let options = wire?.channel.syncOptions, let reads = try? options.getOption(.maxMessagesPerRead),
            let allocator = try? options.getOption(.recvAllocator)
        else { return nil }
        if allocator is FixedSizeRecvByteBufferAllocator { return .small }
        return reads == 1 ? .single : .large
    }
}

struct Unexpected: Error { let event: String }

extension ConnectionEvent {
    var name: String {
        switch self {
        case .resolving: "resolving"
        case .resolved: "resolved"
        case .dialing: "dialing"
        case .reached: "reached"
        case .tlsFilesRejected: "tls-files-rejected"
        case .securing: "securing"
        case .upgrading: "upgrading"
        case .opened: "opened"
        case .addressesAvoided: "addresses-avoided"
        case .received: "received"
        case .closed: "closed"
        }
    }
}
