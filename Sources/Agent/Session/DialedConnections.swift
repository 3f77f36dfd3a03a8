import Session
import Transport

/// The connections that a session has dialed and not let go of. Events of all others are not looked at.
struct DialedConnections {
    private var all: [DialID: (role: DialRole, connection: any TransportConnection)] = [:]
    private var last = DialID(rawValue: 0)

    /// `nil` also for a connection that was let go of.
    subscript(id: DialID?) -> (any TransportConnection)? { id.flatMap { all[$0]?.connection } }

    func role(of id: DialID) -> DialRole? { all[id]?.role }

    mutating func nextID() -> DialID {
        last = DialID(rawValue: last.rawValue + 1)
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
