import ControlAPI
import Glibc

/// Answers the programs that wait at the sockets of systemd when the daemon cannot start. Otherwise systemd would start it
/// for the same programs again and again, until it closes the socket.
enum TurnedAway {
    /// How long all of them together may take to send their request.
    private static let patience = Duration.seconds(2)
    /// More than can wait at a socket.
    private static let most = 1000

    /// Answers the first request of each with an error, and closes the connections.
    ///
    /// - Parameter sockets: descriptors that listen.
    static func answer(at sockets: [CInt], _ error: RPCError) {
        let end = ContinuousClock.now + patience
        for socket in sockets {
            _ = fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK)
            for _ in 0..<most {
                let connection = accept(socket, nil, nil)
                guard connection >= 0 else { break }
                _ = fcntl(connection, F_SETFD, FD_CLOEXEC)
                let answer = OutgoingLine.failure(firstID(of: connection, before: end), error)
                let flags = Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT)
                _ = answer.withUnsafeBytes { send(connection, $0.baseAddress, $0.count, flags) }
                close(connection)
            }
        }
    }

    /// Returns the id of the first request; `null` if none arrives in time.
    private static func firstID(of connection: CInt, before end: ContinuousClock.Instant) -> RequestID {
        var bytes = [UInt8](repeating: 0, count: 4096)
        var count = 0
        while count < bytes.count {
            var wanted = pollfd(fd: connection, events: Int16(POLLIN), revents: 0)
            let left = max(0, (end - .now) / .milliseconds(1))
            guard poll(&wanted, 1, Int32(left)) > 0 else { return .null }
            let read = bytes[count...].withUnsafeMutableBytes { recv(connection, $0.baseAddress, $0.count, 0) }
            guard read > 0 else { return .null }
            count += read
            guard let newline = bytes[..<count].firstIndex(of: UInt8(ascii: "\n")) else { continue }
            return switch RequestLine(parsing: bytes[..<newline]) {
            case .single(.request(let id, _, _)), .single(.invalid(let id, _)): id
            case .single(.notification), .batch: .null
            }
        }
        return .null
    }
}
