import NIOCore
import NIOWebSocket
import Vocabulary

/// Tells the handlers behind that the server ended the WebSocket. `nil`: it was closed normally.
struct WebSocketEnded { let failure: TransportFailure? }

/// Puts bytes into masked binary frames and takes them out of the server's, answers pings, and closes as RFC 6455, 7.1
/// requires: with a Close frame each way first.
///
/// Frames may be as small as two bytes, and one read may bring thousands of them. Some are taken at once, and the rest in
/// turns (``PolledTurns``); until then nothing more is read. The content of one turn's frames is passed on in one piece,
/// and only the last ping is answered (RFC 6455, 5.5.3), once the previous pong was sent. So a flood of frames costs no
/// more than a flood of bytes, and a server that does not read is owed one pong.
final class WebSocketHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = WebSocketFrame

    static let framesPerTurn = 256

    private let turns: PolledTurns
    private var context: ChannelHandlerContext?
    private var stream = WebSocketStream()
    /// What has arrived and was not taken yet.
    private var unread = ByteBuffer()
    private var waitsForTurn = false
    /// Whether the session wants nothing more for now.
    private var isPaused = false
    /// Whether the channel would have read on.
    private var isReadHeldBack = false
    private var hasSentClose = false
    /// The server's Close has arrived, or it broke the rules: whatever else it sends is ignored.
    private var isOver = false
    /// How to close the channel once the server has answered our Close.
    private var closing: CloseMode?
    /// The content of this turn's frames.
    private var arrived: ByteBuffer?
    /// The content of the last ping that is not answered yet.
    private var ping: ByteBuffer?
    private var isPongUnderWay = false

    init(_ turns: PolledTurns) {
        self.turns = turns
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }
    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    // MARK: Reading

    /// Passes content on, or stops that until the next call. The channel's own option would not do: what was read before
    /// would still be passed on, and to set it reads at once.
    func read(_ isReading: Bool) {
        isPaused = !isReading
        if unread.readableBytes > 0 { waitForTurn() }
        readOn()
    }

    private var holdsBack: Bool { !isOver && (isPaused || waitsForTurn) }

    func read(context: ChannelHandlerContext) {
        if holdsBack { isReadHeldBack = true } else { context.read() }
    }

    private func readOn() {
        guard isReadHeldBack, !holdsBack else { return }
        isReadHeldBack = false
        context?.read()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isOver else { return }
        var bytes = unwrapInboundIn(data)
        if unread.readableBytes == 0 {
            unread = bytes
        } else {
            unread.discardReadBytes()
            unread.writeBuffer(&bytes)
        }
        guard !holdsBack else { return }
        takeFrames(context, atMost: Self.framesPerTurn)
        answer(context)
    }

    private func waitForTurn() {
        guard !waitsForTurn, !isPaused else { return }
        waitsForTurn = true
        turns.wait { [weak self] in self?.takeTurn() }
    }

    private func takeTurn() {
        waitsForTurn = false
        guard let context, !isPaused else { return }
        takeFrames(context, atMost: Self.framesPerTurn)
        answer(context)
        readOn()
    }

    private func takeFrames(_ context: ChannelHandlerContext, atMost limit: Int = .max) {
        var count = 0
        taking: while !isOver {
            guard count < limit || unread.readableBytes == 0 else {
                waitForTurn()
                break
            }
            count += 1
            switch stream.next(in: &unread) {
            case .wait:
                break taking
            case .nothing:
                break
            case .deliver(let bytes):
                if arrived?.writeImmutableBuffer(bytes) == nil { arrived = bytes }
            case .answer(let bytes):
                ping = bytes
            case .close(let code, let failure):
                sendClose(code, context)
                end(context, failure)
            case .violation(let code, let sentence):
                sendClose(code, context)
                end(context, TransportFailure(.protocolError, "the server sent \(sentence)"))
            }
        }
        deliver(context)
    }

    private func deliver(_ context: ChannelHandlerContext) {
        guard let bytes = arrived else { return }
        arrived = nil
        context.fireChannelRead(wrapInboundOut(bytes))
    }

    private func answer(_ context: ChannelHandlerContext) {
        guard let bytes = ping, !isPongUnderWay, !hasSentClose else { return }
        ping = nil
        isPongUnderWay = true
        let promise = context.eventLoop.makePromise(of: Void.self)
        promise.futureResult.assumeIsolated().whenComplete { _ in
            self.isPongUnderWay = false
            // Later, not from within the write: each pong would cause the next one, and the calls would nest.
            if self.ping != nil { context.eventLoop.assumeIsolated().execute { self.answer(context) } }
        }
        send(.pong, bytes, context, promise)
    }

    /// What has arrived before the end may say why.
    func channelInactive(context: ChannelHandlerContext) {
        takeFrames(context)
        ping = nil
        context.fireChannelInactive()
    }

    /// TLS reports an end without its goodbye as an error.
    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        takeFrames(context)
        context.fireErrorCaught(error)
    }

    // MARK: Writing

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard !hasSentClose else {
            promise?.fail(ChannelError.outputClosed)
            return
        }
        let frame = WebSocketFrame(
            fin: true, opcode: .binary, maskKey: .random(), data: unwrapOutboundIn(data))
        context.write(wrapOutboundOut(frame), promise: promise)
    }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard !isOver, closing == nil else {
            context.close(mode: mode, promise: promise)
            return
        }
        closing = mode
        sendClose(.normalClosure, context)
        promise?.succeed()
    }

    private func end(_ context: ChannelHandlerContext, _ failure: TransportFailure?) {
        isOver = true
        unread = ByteBuffer()
        deliver(context)
        if let closing {
            context.close(mode: closing, promise: nil)
        } else {
            context.fireUserInboundEventTriggered(WebSocketEnded(failure: failure))
        }
    }

    private func sendClose(_ code: WebSocketErrorCode?, _ context: ChannelHandlerContext) {
        guard !hasSentClose else { return }
        hasSentClose = true
        var data = ByteBuffer()
        if let code { data.write(webSocketErrorCode: code) }
        send(.connectionClose, data, context, nil)
    }

    private func send(
        _ opcode: WebSocketOpcode, _ data: ByteBuffer, _ context: ChannelHandlerContext,
        _ promise: EventLoopPromise<Void>?
    ) {
        let frame = WebSocketFrame(fin: true, opcode: opcode, maskKey: .random(), data: data)
        context.writeAndFlush(wrapOutboundOut(frame), promise: promise)
    }
}
