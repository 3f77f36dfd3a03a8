import Logging
import NIOCore

/// Leaves a listening socket alone for a second when the kernel cannot accept a connection, mostly because the process has
/// as many files open as it may: who connects stays in the queue, and to try at once would keep a processor busy. It is
/// told, but not more than once in ten minutes.
func acceptBackoff(of socket: String, _ logger: Logger) -> AcceptBackoffHandler {
    var toldAt: NIODeadline?
    return AcceptBackoffHandler(shouldForwardIOErrorCaught: false) { error in
        let now = NIODeadline.now()
        if toldAt.map({ now - $0 >= .minutes(10) }) ?? true {
            toldAt = now
            logger.warning(
                """
                \(socket) cannot take another connection: \(error); it is tried again every second; close connections, \
                or raise LimitNOFILE of the service
                """)
        }
        return .seconds(1)
    }
}
