import NIOCore
import NIOTLS

/// The last handler of a channel's pipeline: reports to the connection what happens there, until it is cut off.
final class ConnectionHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private var connection: Connection?

    init(_ connection: Connection) {
        self.connection = connection
    }

    /// Stops reporting. The channel may finish closing on its own.
    func cutOff() { connection = nil }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        connection?.channelReceived(unwrapInboundIn(data))
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .handshakeCompleted? = event as? TLSUserEvent { connection?.channelSecured() }
        if let ended = event as? WebSocketEnded { connection?.webSocketEnded(ended) }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        connection?.channelFailed(error)
    }

    func channelInactive(context: ChannelHandlerContext) {
        connection?.channelEnded()
        context.fireChannelInactive()
    }
}
