import NIOCore
import NIOWebSocket

/// Tells the handlers behind that the server ended the WebSocket. `nil`: it was closed normally.
struct WebSocketEnded { let failure: TransportFailure? }

/// Puts bytes into masked binary frames and takes them out of the server's, answers pings, and closes as RFC 6455, 7.1
/// requires: with a Close frame each way first.
///
/// Frames may be as small as two bytes, and one read may bring thousands of them. Their content is passed on in
/// one piece, and only the last ping is answered (RFC 6455, 5.5.3), once the previous pong was sent. So a flood of
/// frames costs no more than a flood of bytes, and a server that does not read is owed one pong.
final class WebSocketHandler: ChannelDuplexHandler {
    typealias InboundIn = WebSocketFrame
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = WebSocketFrame

    /// The bytes of one read. It may hold nothing but empty frames, each of which costs as much as hundreds of bytes.
    static let readSize = 4096

    private var stream = WebSocketStream()
    private var hasSentClose = false
    /// The server's Close has arrived, or it broke the rules: whatever else it sends is ignored.
    private var isOver = false
    /// How to close the channel once the server has answered our Close.
    private var closing: CloseMode?
    /// The content of this read's frames.
    private var arrived: ByteBuffer?
    /// The content of the last ping that is not answered yet.
    private var ping: ByteBuffer?
    private var isPongUnderWay = false
    /// Whether a call of `passOn` is scheduled.
    private var passesOnLater = false

    func handlerAdded(context: ChannelHandlerContext) {
        // Other connections get their turn between two reads.
        context.channel.setOption(.maxMessagesPerRead, value: 1).whenFailure { _ in }
        context.channel.setOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: Self.readSize))
            .whenFailure { _ in }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isOver else { return }
        switch stream.received(unwrapInboundIn(data)) {
        case .nothing:
            break
        case .deliver(let bytes):
            if arrived?.writeImmutableBuffer(bytes) == nil { arrived = bytes }
            passOnLater(context)
        case .answer(let bytes):
            ping = bytes
            passOnLater(context)
        case .close(let code, let failure):
            sendClose(code, context)
            end(context, failure)
        case .violation(let code, let sentence):
            sendClose(code, context)
            end(context, TransportFailure(.protocolError, "the server sent \(sentence)"))
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        passOn(context)
        context.fireChannelReadComplete()
    }

    /// Calls `passOn` even if no read completes: frames right behind the answer to the upgrade are not a read of their
    /// own.
    private func passOnLater(_ context: ChannelHandlerContext) {
        guard !passesOnLater else { return }
        passesOnLater = true
        context.eventLoop.assumeIsolated().execute { self.passOn(context) }
    }

    private func passOn(_ context: ChannelHandlerContext) {
        passesOnLater = false
        deliver(context)
        answer(context)
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
            if self.ping != nil { self.passOnLater(context) }
        }
        send(.pong, bytes, context, promise)
    }

    func channelInactive(context: ChannelHandlerContext) {
        deliver(context)
        ping = nil
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let error = error as? NIOWebSocketError else {
            deliver(context)
            context.fireErrorCaught(error)
            return
        }
        guard !isOver else { return }
        sendClose(error == .invalidFrameLength ? .messageTooLarge : .protocolError, context)
        let frame = error == .invalidFrameLength ? "too large a frame" : "a wrong frame"
        end(context, TransportFailure(.protocolError, "the server sent \(frame)"))
    }

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
