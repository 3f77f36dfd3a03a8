/// The kinds of calls that the scheduler distinguishes.
enum CallKind: Int, CaseIterable, Sendable {
    /// A session takes it, and it is answered when it is committed.
    case message
    /// The message is accepted, and the caller waits for its delivery.
    case delivery
    /// A command whose caller waits until a session is connected or has failed.
    case outcome
    /// Answered at once from what is in memory.
    case query
    /// Answered with data read from the disk, or with a long list.
    case read
    /// All other calls. They may take long.
    case command

    /// How many calls of the kind may run at once on one connection.
    var limit: Int {
        switch self {
        case .message: 1024
        case .delivery: 1024
        case .outcome: 64
        case .query: 8
        case .read: 2
        case .command: 16
        }
    }
}

/// A connection to the control socket.
struct ConnectionID: Hashable, Comparable, Sendable {
    var rawValue: Int

    static func < (a: ConnectionID, b: ConnectionID) -> Bool { a.rawValue < b.rawValue }
}
