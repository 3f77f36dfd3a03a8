import Logging
import NIOCore

/// Leaves a listening socket alone for a second when the kernel cannot accept a connection, mostly because the process has
/// as many files open as it may: who connects stays in the queue, and to try at once would keep a processor busy. It is
/// told, but not more than once in ten minutes.
///
/// NIO's AcceptBackoffHandler (2.101) delays reads that are asked for; after an error the socket goes on being read without
/// one.
final class AcceptErrorHandler: ChannelInboundHandler {
    typealias InboundIn = any Channel

    private let socket: String
    private let logger: Logger
    private var toldAt: NIODeadline?

    /// - Parameter socket: what it is, as the subject of a sentence.
    init(of socket: String, _ logger: Logger) {
        self.socket = socket
        self.logger = logger
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard error is IOError else { return context.fireErrorCaught(error) }
        tell(error)
        let channel = context.channel
        channel.setOption(.autoRead, value: false).whenFailure { _ in }
        context.eventLoop.scheduleTask(in: .seconds(1)) {
            // A socket that was closed meanwhile has no options.
            channel.setOption(.autoRead, value: true).whenFailure { _ in }
        }
    }

    private func tell(_ error: any Error) {
        let now = NIODeadline.now()
        guard toldAt.map({ now - $0 >= .minutes(10) }) ?? true else { return }
        toldAt = now
        logger.warning(
            """
            \(socket) cannot take another connection: \(error); it is tried again every second; close connections, or \
            raise LimitNOFILE of the service
            """)
    }
}
