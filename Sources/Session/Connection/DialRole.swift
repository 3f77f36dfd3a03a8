package import SessionCore

/// Identifies a connection from the moment it is dialed. A session never uses an id twice.
package struct DialID: Hashable, Sendable {
    package let rawValue: Int
}

/// What a connection is dialed for.
package enum DialRole: Hashable, Sendable {
    /// An attempt, and the session's connection from CONNECT on. Can become: nothing else.
    case attempt(Attempt)
    /// Set up beside the session's connection, to take over from it. Can become: attempt.
    case successor(Attempt)
    /// Reads who is present in the room: before an attempt continues or, without an attempt, to clear our own presence.
    case look(Attempt?)
    /// Asks whether an endpoint answers. An attempt may continue on the connection, under a new id.
    case knock(EndpointIndex)

    /// The attempt that the connection belongs to.
    package var attempt: Attempt? {
        switch self {
        case .attempt(let attempt), .successor(let attempt): attempt
        case .look(let attempt): attempt
        case .knock: nil
        }
    }
}
