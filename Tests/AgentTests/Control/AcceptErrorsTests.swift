import Glibc
import Logging
import NIOCore
import NIOPosix
import Testing

@testable import Agent

@Suite(.timeLimit(.minutes(10))) struct AcceptErrorsTests {
    @Test func `a failed accept is retried after a while, and reported once`() async throws {
        let log = RecordingLog()
        let logger = log.logger
        let (accepted, continuation) = AsyncStream.makeStream(of: Void.self)
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(AcceptErrorHandler(of: "the socket", logger))
                }
            }
            .childChannelInitializer { channel in
                continuation.yield()
                return channel.eventLoop.makeSucceededVoidFuture()
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let isReading = try await server.eventLoop.submit {
            for _ in 1...3 {
                server.pipeline.fireErrorCaught(IOError(errnoCode: EMFILE, reason: "accept"))
            }
            return try server.syncOptions?.getOption(.autoRead)
        }.get()
        #expect(isReading == false)
        let client = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .connect(to: try #require(server.localAddress)).get()
        var iterator = accepted.makeAsyncIterator()
        #expect(await iterator.next() != nil)
        #expect(log.lines.map(\.level) == [.warning])
        #expect(log.lines.first?.message.hasSuffix("Too many open files; raise LimitNOFILE of the service") == true)
        try await client.close()
        try await server.close()
    }
}
