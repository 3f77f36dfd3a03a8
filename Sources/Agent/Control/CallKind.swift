/// What a call needs, as far as its turn depends on it.
enum CallKind: Int, CaseIterable, Sendable {
    /// Taken by a session and answered when it is committed.
    case message
    /// A message that is accepted, while its caller waits for the delivery.
    case delivery
    /// Answered at once from what is in memory.
    case look
    /// Read from the disk, and possibly long.
    case read
    /// All others. They may take long.
    case command

    /// How many of the kind run at once on one connection.
    var limit: Int {
        switch self {
        case .message: 1024
        case .delivery: 1024
        case .look: 8
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
