public import ControlAPI

/// Why a call failed: the daemon could not be reached, or did not do what it was asked.
public enum ClientError: Error, Hashable, Sendable {
    /// Nothing listens on the socket, or the socket does not exist.
    case notRunning(socket: String)
    /// This user may not open the socket.
    case notPermitted(socket: String)
    /// The socket cannot be used for another reason.
    case unreachable(socket: String, reason: String)
    /// Something listens on the socket, but did not answer the greeting within
    /// ``HoldfastClient/Options/attachTimeout``. The request was not sent.
    case unresponsive(socket: String)
    /// The daemon speaks another version of the protocol.
    case versionMismatch(daemon: String)
    /// The daemon answered with an error.
    case refused(RPCError)
    /// The connection ended before the answer arrived. It is not known whether the request was carried out.
    case connectionLost
    /// The daemon ended the connection before the answer arrived, and said why: a reload took away what this user may
    /// do. It is not known whether the request was carried out.
    case dismissed(RPCError)
    /// A message was sent, and the connection, the timeout or the caller's task ended before the answer arrived; where the
    /// message was sent again with the same key, that failed as well. It is not known whether the message was accepted. It
    /// can be published again with this key, which does nothing if it was.
    indirect case publishInDoubt(key: String, because: ClientError)
    /// No answer arrived within the caller's timeout. It is not known whether the request was carried out.
    case timeout
    /// The caller's task was cancelled while it waited. It is not known whether the request was carried out.
    case cancelled
    /// The request is longer than the daemon accepts and was not sent. The limit is `RequestLine.maximumLineLength`, or
    /// `RequestLine.maximumPayloadLineLength` for a method that carries a payload.
    case requestTooLong
    /// The daemon's answer does not fit the method, or a line from the daemon cannot be read.
    case invalidAnswer(String)
    /// Another program has taken over the durable consumer of this name, or the consumer was ended.
    case consumerEnded(String)
    /// ``HoldfastClient/close()`` was called, or the sequence that delivered the message being acknowledged is no
    /// longer iterated.
    case closed

    /// Whether the daemon has no such subscription on this connection.
    var isUnknownSubscription: Bool {
        if case .refused(let error) = self { error.known == .unknownSubscription } else { false }
    }

    /// The error of a durable consumer's subscription: the daemon has no such subscription any more if the consumer was
    /// taken over before it answered.
    func ofConsumer(_ name: String) -> ClientError { isUnknownSubscription ? .consumerEnded(name) : self }

    /// Whether trying again later may help.
    var isPassing: Bool {
        switch self {
        case .notRunning, .notPermitted, .unreachable, .unresponsive, .connectionLost, .dismissed, .timeout,
            .invalidAnswer:
            true
        case .refused(let error): error.known == .shuttingDown || error.known == .tooManyRequests
        case .versionMismatch, .publishInDoubt, .cancelled, .requestTooLong, .consumerEnded, .closed: false
        }
    }
}

extension ClientError: CustomStringConvertible {
    /// One sentence without the final full stop.
    public var description: String {
        switch self {
        case .notRunning(let socket): "the daemon is not running: nothing listens on \(socket)"
        case .notPermitted(let socket): "you may not open \(socket)"
        case .unreachable(let socket, let reason): "the daemon cannot be reached on \(socket): \(reason)"
        case .unresponsive(let socket): "the daemon does not answer on \(socket)"
        case .versionMismatch(let daemon): "the daemon speaks another version of the protocol: \(daemon)"
        case .refused(let error), .dismissed(let error):
            [error.message, error.data?.hint].compactMap(\.self).joined(separator: "; ")
        case .connectionLost: "the daemon closed the connection"
        case .publishInDoubt(_, let cause): "the message may or may not have been accepted: \(cause)"
        case .timeout: "the daemon did not answer in time"
        case .cancelled: "cancelled"
        case .requestTooLong: "the request is longer than the daemon accepts; a payload may have up to 16 MiB"
        case .invalidAnswer(let problem): "the daemon's answer cannot be read: \(problem)"
        case .consumerEnded(let name): "another program has taken over the consumer \(name), or it was ended"
        case .closed: "the client was closed"
        }
    }
}
