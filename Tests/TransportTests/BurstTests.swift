import Glibc
import NIOCore
import NIOEmbedded
import NIOPosix
import Support
import Testing
import Vocabulary

@testable import Transport

@Suite(.timeLimit(.minutes(10))) struct BurstTests {
    /// What comes behind the handler.
    private final class Log: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        var sizes: [Int] = []
        var hasEnded = false

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            sizes.append(unwrapInboundIn(data).readableBytes)
        }
        func channelInactive(context: ChannelHandlerContext) { hasEnded = true }
    }

    /// Declines to read while it is told so.
    private final class Gate: ChannelOutboundHandler {
        typealias OutboundIn = Never
        var isOpen = true

        func read(context: ChannelHandlerContext) { if isOpen { context.read() } }
    }

    private static let piece = 16 << 10
    private static let atOnce = BurstHandler.limit / piece

    private func channel() throws -> (EmbeddedChannel, Log, Gate) {
        let (channel, log, gate) = (EmbeddedChannel(), Log(), Gate())
        try channel.pipeline.syncOperations.addHandlers([
            BurstHandler(PolledTurns(eventLoop: channel.embeddedEventLoop)), gate, log,
        ])
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        return (channel, log, gate)
    }

    private func receive(_ pieces: Int, on channel: EmbeddedChannel) throws {
        for _ in 0..<pieces { try channel.writeInbound(ByteBuffer(repeating: 7, count: Self.piece)) }
    }

    private func takeTurn(_ channel: EmbeddedChannel) { channel.embeddedEventLoop.advanceTime(by: .microseconds(500)) }

    @Test func `all that was read in one go comes in turns, and then the end`() throws {
        let (channel, log, _) = try channel()
        try receive(100, on: channel)
        #expect(channel.allowRemoteHalfClosure)
        channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(!channel.allowRemoteHalfClosure)
        #expect(log.sizes.count == Self.atOnce)
        for count in Self.atOnce + 1...100 {
            takeTurn(channel)
            #expect(log.sizes.count == count && !log.hasEnded)
        }
        takeTurn(channel)
        #expect(log.hasEnded && log.sizes.count == 100)
    }

    @Test func `no turn comes while those behind want nothing`() throws {
        let (channel, log, gate) = try channel()
        try receive(Self.atOnce + 3, on: channel)
        channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        gate.isOpen = false
        for _ in 0..<5 { takeTurn(channel) }
        #expect(log.sizes.count == Self.atOnce + 1 && !log.hasEnded)
        gate.isOpen = true
        channel.pipeline.read()
        for _ in 0..<5 { takeTurn(channel) }
        #expect(log.sizes.count == Self.atOnce + 3 && log.hasEnded)
    }

    @Test func `what is read between two polls otherwise is passed on at once`() throws {
        let (channel, log, _) = try channel()
        for round in 1...5 {
            try receive(Self.atOnce, on: channel)
            #expect(log.sizes.count == round * Self.atOnce)
            channel.embeddedEventLoop.run()
        }
        channel.pipeline.fireChannelInactive()
        #expect(log.hasEnded)
    }

    @Test(arguments: [false, true], [1, 64, 65, 400])
    func `after a reset the first mebibyte is still passed on, and not more`(isInputClosed: Bool, kept: Int) throws {
        let (channel, log, _) = try channel()
        try receive(Self.atOnce + kept, on: channel)
        // What we send meanwhile is answered with a reset by a peer that has closed and is gone.
        if isInputClosed { channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed) }
        channel.pipeline.fireErrorCaught(ChannelError.ioOnClosedChannel)
        channel.pipeline.fireChannelInactive()
        #expect(log.sizes.count == Self.atOnce + min(kept, BurstHandler.lastLimit / Self.piece))
        #expect(log.hasEnded)
    }

    /// How much it is depends on the kernel's limits.
    @Test(arguments: ["mqtt", "mqtts"])
    func `a peer that closes behind many bytes does not keep the loop`(scheme: String) async throws {
        let certificates = try await TestCertificates.shared.value
        let size = 3 << 20
        let server = try await TestServer(
            .lastWords(size), tls: scheme == "mqtts" ? certificates.server("localhost") : nil)
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let turns = try await PolledTurns.open(on: loop)
        let counts = NIOLoopBoundBox.makeBoxSendingValue((all: 0, atOnce: 0, most: 0), eventLoop: loop)
        let client = try await TestClient(
            "\(scheme)://localhost:\(server.port)",
            options: Connection.Options(tls: TLSOptions(authorities: certificates.path("trusted.pem"))),
            turns: turns, loop: loop, lookUp: systemLookUp
        ) { event, connection in
            switch event {
            case .opened:
                // As large as the kernel would make it for a peer that is far away.
                var capacity: CInt = 8 << 20
                _ = connection.withSocket {
                    setsockopt($0, SOL_SOCKET, SO_RCVBUF, &capacity, socklen_t(MemoryLayout<CInt>.size))
                }
                connection.pauseReading()
                connection.send(ByteBuffer(string: "x"))
            case .received(let bytes):
                // The loop runs this before it polls again.
                if counts.value.atOnce == 0 { loop.assumeIsolated().execute { counts.value.atOnce = 0 } }
                counts.value.all += bytes.readableBytes
                counts.value.atOnce += bytes.readableBytes
                counts.value.most = max(counts.value.most, counts.value.atOnce)
            default: break
            }
        }
        try await until("bytes wait in the kernel, or the server has closed") {
            try await client.on { counts.value.all > 0 || $0.withSocket { unread(of: $0) } ?? 0 >= 64 << 10 }
        }
        try await client.on { $0.resumeReading() }
        #expect(try await client.end() == .closedByPeer)
        let (all, most) = try await loop.submit { (counts.value.all, counts.value.most) }.get()
        #expect(all == size)
        #expect(most <= 2 * BurstHandler.limit, "\(most)")
        try await loop.submit { turns.close() }.get()
    }
}
