import SessionCore
import Transport

/// Names a connection from the moment it is dialed. Never used twice by one session.
struct DialID: Hashable, Sendable {
    fileprivate(set) var rawValue = 0
}

/// What a connection is dialed for.
enum DialRole: Hashable, Sendable {
    /// An attempt, and the session's connection from CONNECT on. Can become: nothing else.
    case attempt(Attempt)
    /// Set up beside the session's connection, to take over from it. Can become: attempt.
    case successor(Attempt)
    /// Reads who is present in the room, before an attempt goes on, or without one to clear our own presence.
    case look(Attempt?)
    /// Asks whether an endpoint answers. Can become: attempt.
    case knock(EndpointIndex)

    /// The attempt that it is a part of.
    var attempt: Attempt? {
        switch self {
        case .attempt(let attempt), .successor(let attempt): attempt
        case .look(let attempt): attempt
        case .knock: nil
        }
    }
}

/// The connections that a session has dialed and not let go of. Events of all others are not looked at.
struct DialedConnections {
    private var all: [DialID: (role: DialRole, connection: any TransportConnection)] = [:]
    private var last = DialID()

    /// `nil` also for a connection that was let go of.
    subscript(id: DialID?) -> (any TransportConnection)? { id.flatMap { all[$0]?.connection } }

    func role(of id: DialID) -> DialRole? { all[id]?.role }

    mutating func nextID() -> DialID {
        last.rawValue += 1
        return last
    }

    mutating func add(_ connection: any TransportConnection, _ id: DialID, as role: DialRole) {
        all[id] = (role, connection)
    }

    /// The connection goes on as something else.
    mutating func change(_ id: DialID, to role: DialRole) { all[id]?.role = role }

    /// - Parameter mode: how to close it; `nil` if it is closed, or about to be.
    mutating func letGo(of id: DialID?, _ mode: Connection.CloseMode? = nil) {
        guard let id, let entry = all.removeValue(forKey: id) else { return }
        if let mode { entry.connection.close(mode) }
    }
}
