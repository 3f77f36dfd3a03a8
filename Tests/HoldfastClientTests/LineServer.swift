import ControlAPI
import Glibc
import HoldfastClient
import NIOCore
import NIOPosix
import Support
import Testing

/// A daemon in a test: it listens on a Unix socket, and the test reads each request and writes each line itself.
///
///     test ──lines──▶ LineServer ──Unix socket──▶ HoldfastClient ◀──calls── test
///
struct LineServer {
    private let channel: NIOAsyncChannel<any Channel, Never>

    static func start(_ socket: String) async throws -> LineServer {
        let channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelOption(.autoRead, value: false)
            .bind(unixDomainSocketPath: socket, cleanupExistingSocketFile: true) { channel in
                // A connection that the test did not come to accept ends with the server, as one in a backlog does.
                channel.parent?.closeFuture.whenComplete { _ in channel.close(promise: nil) }
                return channel.eventLoop.makeSucceededFuture(channel)
            }
        return LineServer(channel: channel)
    }

    /// Accepts connections one after another until the body returns; then the socket is gone.
    func run(_ body: (inout Accepting) async throws -> Void) async throws {
        try await channel.executeThenClose { inbound in
            var accepting = Accepting(inbound: inbound.makeAsyncIterator())
            try await body(&accepting)
        }
    }

    struct Accepting {
        var inbound: NIOAsyncChannelInboundStream<any Channel>.AsyncIterator

        /// Serves one connection; it is closed when the body returns.
        mutating func accept(_ body: (inout Peer) async throws -> Void) async throws {
            let accepted = try await inbound.next(isolation: #isolation)
            let channel = try #require(accepted)
            let connection = try await channel.eventLoop.submit {
                try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel)
            }.get()
            try await channel.setOption(.autoRead, value: true).get()
            try await connection.executeThenClose { inbound, outbound in
                var peer = Peer(inbound: inbound.makeAsyncIterator(), outbound: outbound)
                try await body(&peer)
            }
        }

        /// Serves one connection that begins with the greeting, as every client's does.
        mutating func greet(_ body: (inout Peer) async throws -> Void) async throws {
            try await accept { peer in
                let (id, method, parameters) = try await peer.request()
                #expect(method == "rpc.hello")
                #expect(parameters?["protocol"] == .integer(1))
                try await peer.answer(
                    id, RPCHelloMethod.Result(version: "9.9", protocol: 1, capabilities: [], roles: [.observe]))
                try await body(&peer)
            }
        }
    }

    struct Peer {
        var inbound: NIOAsyncChannelInboundStream<ByteBuffer>.AsyncIterator
        let outbound: NIOAsyncChannelOutboundWriter<ByteBuffer>
        var buffer = ByteBuffer()

        init(
            inbound: NIOAsyncChannelInboundStream<ByteBuffer>.AsyncIterator,
            outbound: NIOAsyncChannelOutboundWriter<ByteBuffer>
        ) {
            self.inbound = inbound
            self.outbound = outbound
        }

        /// The next request of the client.
        mutating func request() async throws -> (RequestID, String, JSONValue?) {
            while true {
                if let end = buffer.readableBytesView.firstIndex(of: UInt8(ascii: "\n")) {
                    let line = Array(buffer.readBytes(length: end - buffer.readerIndex) ?? [])
                    buffer.moveReaderIndex(forwardBy: 1)
                    guard case .single(.request(let id, let method, let parameters)) = RequestLine(parsing: line) else {
                        throw Unexpected(line: String(decoding: line, as: UTF8.self))
                    }
                    return (id, method, parameters)
                }
                guard var read = try await inbound.next(isolation: #isolation) else {
                    throw Unexpected(line: "the end of the connection")
                }
                buffer.writeBuffer(&read)
            }
        }

        /// Waits until the client has closed. A client that closes before it has read everything resets the connection,
        /// which is an end like any other.
        mutating func end() async throws {
            do {
                while try await inbound.next(isolation: #isolation) != nil {}
            } catch let error as IOError where Self.isEnd(error) {}
        }

        /// Waits until the client has closed, and checks that it sends nothing more.
        mutating func endInSilence() async throws {
            let more = try await inbound.next(isolation: #isolation)
            #expect(buffer.readableBytes == 0 && more == nil)
        }

        func write(_ line: [UInt8]) async throws {
            try await write(ByteBuffer(bytes: line))
        }

        func write(_ text: String) async throws {
            try await write(ByteBuffer(string: text + "\n"))
        }

        /// Writes to a client that may have closed meanwhile, when nothing that it waits for is missing: then the bytes are
        /// lost, as they would be in its socket. What it does wait for it misses, and the test sees that there.
        private func write(_ bytes: ByteBuffer) async throws {
            do {
                try await outbound.write(bytes)
            } catch ChannelError.ioOnClosedChannel {
            } catch is NIOAsyncWriterError {
            } catch let error as IOError where Self.isEnd(error) {}
        }

        private static func isEnd(_ error: IOError) -> Bool {
            error.errnoCode == ECONNRESET || error.errnoCode == EPIPE
        }

        func answer(_ id: RequestID, _ result: some Encodable) async throws {
            try await write(OutgoingLine.answer(id, result: result))
        }
    }

    /// What the daemon tells the program of the subscription s1 once the session is connected: the server grants the filter,
    /// which changes nothing, and refuses it.
    static var lateAnswers: [[UInt8]] {
        [SessionStatus.Subscription.State.granted, .refused].map { state in
            var event = SessionEvent(
                watch: .init(rawValue: "s1"), time: .init(rawValue: 0), session: "main", event: .subscriptionChanged)
            var answer = SessionStatus.Subscription(filter: "a/#", qos: .atLeastOnce, state: state)
            if state == .refused { (answer.reasonCode, answer.message) = (0x87, "not authorized (0x87)") }
            event.subscription = answer
            return OutgoingLine.notification(event) ?? []
        }
    }

    struct Unexpected: Error {
        var line: String
    }
}

/// A directory of its own for the socket of one test, removed at its end.
func withSocket(_ body: (String) async throws -> Void) async throws {
    let directory = try TemporaryDirectory()
    defer { directory.remove() }
    try await body("\(directory.path)/s")
}

func impatientClient(_ socket: String, bufferedElements: Int = 64, bufferedBytes: Int = 1 << 20) -> HoldfastClient {
    var options = HoldfastClient.Options()
    // A daemon of a test that is slow is there all the same.
    options.attachTimeout = .seconds(600)
    options.patience = .seconds(600)
    options.reattachDelays = [.milliseconds(1)]
    options.bufferedElements = bufferedElements
    options.bufferedBytes = bufferedBytes
    options.maximumAnswerLength = 1 << 16
    return HoldfastClient(socket: socket, options: options)
}
