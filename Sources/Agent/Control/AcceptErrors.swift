import Logging
import NIOCore
import SessionCore

/// Pauses a listening socket for a second when the kernel cannot accept a connection, usually because the process has
/// reached its limit of open files. New connections wait in the queue meanwhile; trying again at once would keep a
/// processor busy. The error is logged at most once in ten minutes.
///
/// NIO's AcceptBackoffHandler (2.101) delays only reads that are requested, but after an error NIO reads again without
/// a request.
final class AcceptErrorHandler: ChannelInboundHandler {
    typealias InboundIn = any Channel

    private let socket: String
    private let logger: Logger
    private var toldAt: NIODeadline?

    /// - Parameter socket: names the socket, as the subject of a sentence.
    init(of socket: String, _ logger: Logger) {
        self.socket = socket
        self.logger = logger
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let error = error as? IOError else { return context.fireErrorCaught(error) }
        tell(error)
        let channel = context.channel
        channel.setOption(.autoRead, value: false).whenFailure { _ in }
        context.eventLoop.scheduleTask(in: .seconds(1)) {
            // A socket that was closed in the meantime has no options.
            channel.setOption(.autoRead, value: true).whenFailure { _ in }
        }
    }

    private func tell(_ error: IOError) {
        let now = NIODeadline.now()
        guard toldAt.map({ now - $0 >= .minutes(10) }) ?? true else { return }
        toldAt = now
        logger.warning(
            """
            \(socket) cannot take another connection, which is tried again every second: \(systemText(error.errnoCode))
            """, metadata: ["ERRNO": "\(error.errnoCode)"])
    }
}
