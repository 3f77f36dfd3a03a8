import Glibc
import Logging
import NIOCore
import NIOEmbedded
import Testing

@testable import Agent

struct AcceptErrorsTests {
    /// Counts the reads that reach the socket.
    private final class Socket: ChannelOutboundHandler {
        typealias OutboundIn = any Channel
        var reads = 0

        func read(context: ChannelHandlerContext) { reads += 1 }
    }

    @Test func `a kernel that cannot accept is asked again after a second, and that is told once`() throws {
        let log = RecordingLog()
        let socket = Socket()
        let loop = EmbeddedEventLoop()
        let channel = EmbeddedChannel(
            handlers: [socket, acceptBackoff(of: "the control socket", log.logger)], loop: loop)
        for round in 0..<3 {
            channel.pipeline.fireErrorCaught(IOError(errnoCode: EMFILE, reason: "accept"))
            // As the channel does after each error.
            for _ in 1...5 { channel.read() }
            #expect(socket.reads == round)
            loop.advanceTime(to: .now() + .seconds(1))
            #expect(socket.reads == round + 1)
        }
        #expect(log.lines.map(\.level) == [.warning])
        #expect(log.lines.first?.message.contains("Too many open files") == true)
    }
}
