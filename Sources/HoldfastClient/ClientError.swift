public import ControlAPI

/// Why the daemon could not be asked, or did not do what it was asked.
public enum ClientError: Error, Hashable, Sendable {
    /// Nobody listens on the socket, or it does not exist.
    case notRunning(socket: String)
    /// This user may not open the socket.
    case notPermitted(socket: String)
    /// The socket cannot be used for another reason.
    case unreachable(socket: String, reason: String)
    /// The daemon speaks another version of the protocol.
    case versionMismatch(daemon: String)
    /// The daemon answered with an error.
    case refused(RPCError)
    /// The connection ended before the answer came. Whether the request was carried out is not known.
    case connectionLost
    /// No answer within the time that the caller gave. Whether the request was carried out is not known.
    case timeout
    /// The caller's task was cancelled while it waited. Whether the request was carried out is not known.
    case cancelled
    /// The request is longer than the daemon takes (`RequestLine.maximumLineLength`, or `RequestLine.maximumPayloadLineLength` where
    /// that counts); it was not sent.
    case requestTooLong
    /// What the daemon sent is not what this method answers.
    case invalidAnswer(String)
    /// Another program has taken over the durable consumer of this name, or it was ended for good.
    case consumerEnded(String)
    /// ``HoldfastClient/close()`` was called.
    case closed

    /// Whether trying again later, without anybody changing anything, can help.
    var isPassing: Bool {
        switch self {
        case .notRunning, .notPermitted, .unreachable, .connectionLost, .timeout, .invalidAnswer: true
        case .refused(let error): error.known == .shuttingDown || error.known == .tooManyRequests
        case .versionMismatch, .cancelled, .requestTooLong, .consumerEnded, .closed: false
        }
    }
}

extension ClientError: CustomStringConvertible {
    /// One sentence without the final full stop.
    public var description: String {
        switch self {
        case .notRunning(let socket): "the daemon is not running: nobody listens on \(socket)"
        case .notPermitted(let socket): "you may not open \(socket)"
        case .unreachable(let socket, let reason): "the daemon cannot be reached on \(socket): \(reason)"
        case .versionMismatch(let daemon): "the daemon speaks another version of the protocol: \(daemon)"
        case .refused(let error): error.message
        case .connectionLost: "the daemon closed the connection before it answered"
        case .timeout: "the daemon did not answer in time"
        case .cancelled: "cancelled"
        case .requestTooLong: "the request is longer than the daemon takes; a payload may have 16 MiB"
        case .invalidAnswer(let problem): "the daemon's answer cannot be read: \(problem)"
        case .consumerEnded(let name): "another program has taken over the consumer \(name), or it was ended"
        case .closed: "the client was closed"
        }
    }
}
