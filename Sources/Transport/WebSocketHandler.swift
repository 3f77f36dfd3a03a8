import NIOCore
import NIOWebSocket

/// The end of a WebSocket by the server, told to the handlers behind. `nil`: it was closed as usual.
struct WebSocketEnded { let failure: String? }

/// Puts bytes into masked binary frames and takes them out of the server's, answers pings, and closes as RFC 6455, 7.1
/// wants it: a Close frame each way first.
final class WebSocketHandler: ChannelDuplexHandler {
    typealias InboundIn = WebSocketFrame
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = WebSocketFrame

    private var stream = WebSocketStream()
    private var hasSentClose = false
    /// The server's Close has come, or it broke the rules: nothing more of it is looked at.
    private var isOver = false
    /// How the channel is to be closed when the server has answered our Close.
    private var closing: CloseMode?

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isOver else { return }
        switch stream.received(unwrapInboundIn(data)) {
        case .nothing:
            break
        case .deliver(let bytes):
            context.fireChannelRead(wrapInboundOut(bytes))
        case .answer(let bytes):
            if !hasSentClose { send(.pong, bytes, context, nil) }
        case .close(let code, let sentence):
            sendClose(code, context)
            end(context, sentence.map { "the server closed the WebSocket with \($0)" })
        case .violation(let code, let sentence):
            sendClose(code, context)
            end(context, "the server sent \(sentence)")
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let error = error as? NIOWebSocketError else {
            context.fireErrorCaught(error)
            return
        }
        guard !isOver else { return }
        sendClose(error == .invalidFrameLength ? .messageTooLarge : .protocolError, context)
        end(
            context,
            error == .invalidFrameLength ? "the server sent too large a frame" : "the server sent a wrong frame")
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

    private func end(_ context: ChannelHandlerContext, _ failure: String?) {
        isOver = true
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
