import NIOCore

/// The first handler of a channel's pipeline. Passes on in turns (``PolledTurns``) what the channel reads in one go: when
/// the peer has closed, that is everything that the kernel holds, 6 MiB or more, whatever `maxMessagesPerRead` and
/// `autoRead` say.
///
/// The channel may be half closed meanwhile, because a closed channel loses its handlers; it is closed after the last
/// turn. A reset closes it at once, and then only what comes first is still passed on. A peer that has closed and is gone
/// answers what we send meanwhile with a reset, so that is more than is passed on in a turn.
final class BurstHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = ByteBuffer

    /// Bytes that are passed on between two polls of the loop: as much as is read then otherwise.
    static let limit = 256 << 10
    /// Bytes that are passed on at once when the channel is closed under the handler. TLS takes about 25 ms for them.
    static let lastLimit = 1 << 20

    private let turns: PolledTurns
    private var context: ChannelHandlerContext?
    /// Bytes that were passed on since the loop has polled.
    private var count = 0
    private var isKeeping = false
    /// One for each read.
    private var kept = CircularBuffer<ByteBuffer>()
    private var isInputClosed = false
    private var waitsForTurn = false

    init(_ turns: PolledTurns) {
        self.turns = turns
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        kept = []
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data)
        if !isKeeping {
            // The loop runs this before it polls again.
            if count == 0 { context.eventLoop.assumeIsolated().execute { self.count = 0 } }
            count += bytes.readableBytes
            guard count > Self.limit else { return context.fireChannelRead(data) }
            isKeeping = true
            allowHalfClosure(true, context)
            waitForTurn()
        }
        kept.append(bytes)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        if !isKeeping { context.fireChannelReadComplete() }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard isKeeping, case .inputClosed? = event as? ChannelEvent else {
            return context.fireUserInboundEventTriggered(event)
        }
        isInputClosed = true
        // TLS asks for it when it comes upon the server's goodbye.
        allowHalfClosure(false, context)
    }

    /// Those behind may want no more for now, and then a turn comes when they do.
    func read(context: ChannelHandlerContext) {
        if isKeeping { waitForTurn() } else { context.read() }
    }

    private func waitForTurn() {
        guard !waitsForTurn else { return }
        waitsForTurn = true
        turns.wait { [weak self] in self?.takeTurn() }
    }

    private func takeTurn() {
        waitsForTurn = false
        guard let context, isKeeping else { return }
        if let bytes = kept.popFirst() {
            context.fireChannelRead(wrapInboundOut(bytes))
            context.fireChannelReadComplete()
            context.pipeline.read()
        } else if isInputClosed {
            context.close(promise: nil)
        } else {
            isKeeping = false
            allowHalfClosure(false, context)
            context.read()
        }
    }

    private func allowHalfClosure(_ isAllowed: Bool, _ context: ChannelHandlerContext) {
        try? context.channel.syncOptions?.setOption(.allowRemoteHalfClosure, value: isAllowed)
    }

    // MARK: A reset

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        passOnRest(context)
        context.fireErrorCaught(error)
    }

    func channelInactive(context: ChannelHandlerContext) {
        passOnRest(context)
        context.fireChannelInactive()
    }

    /// What has arrived before the end may say why. What exceeds the limit is lost, as what was still on its way is.
    private func passOnRest(_ context: ChannelHandlerContext) {
        let rest = kept
        (kept, isKeeping) = ([], false)
        guard !rest.isEmpty else { return }
        var left = Self.lastLimit
        for bytes in rest where left > 0 {
            left -= bytes.readableBytes
            context.fireChannelRead(wrapInboundOut(bytes))
        }
        context.fireChannelReadComplete()
    }
}
