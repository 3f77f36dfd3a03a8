package import MQTT
package import NIOCore
import SessionCore

/// The connections that a session has dialed and still holds. Events of all other connections are ignored.
package struct Connections: Sendable {
    /// The attempt under way and the connection that it becomes.
    package var link: Link?
    /// The connection that is set up beside the link, to take over from it.
    package var successor: Link?
    /// The address and login of the last connection that was opened, to remove the session's presence there when it is
    /// displaced.
    package var lastOpened: (address: Endpoint, login: Login)?
    /// Whether something other than this host's network has ended a link, or an attempt, since a server last accepted the
    /// session. It may have been a restart of the server.
    package var serverMayHaveRestarted = false
    /// How the dropped link ended, if the protocol machine has not been told yet.
    package var untoldEnd: MQTTClientMachine.Input?
    private var roles: [DialID: DialRole] = [:]
    private var last = DialID(rawValue: 0)

    package init() {}

    package func role(of id: DialID) -> DialRole? { roles[id] }

    package mutating func add(as role: DialRole) -> DialID {
        last = DialID(rawValue: last.rawValue + 1)
        roles[last] = role
        return last
    }

    /// The connection is used for something else from now on.
    package mutating func change(_ id: DialID, to role: DialRole) { roles[id] = role }

    /// - Returns: whether it was present.
    package mutating func remove(_ id: DialID) -> Bool { roles.removeValue(forKey: id) != nil }
}

/// What happened to a connection.
package enum DialEvent: Sendable {
    case resolved([SocketAddress])
    /// The first hop answered, which is all that a knock has to find out.
    case reached
    case dialing
    case securing
    case opened(LinkPeer)
    case received(ByteBuffer)
    case closed(Reason, retryAfter: Duration? = nil)
}

/// What the driver needs to know to dial.
package struct DialTarget: Hashable, Sendable {
    package enum Goal: Hashable, Sendable {
        /// Everything that comes before CONNECT.
        case open
        /// An answer from the first hop, or from the server behind a proxy.
        case knock(isBehindProxy: Bool, within: Duration)
    }

    package let address: Endpoint
    package var goal = Goal.open
    package var proxyPassword: [UInt8]?
    /// The connection of a knock to reuse if it is still open; from then on it has the new id.
    package var knock: DialID?
}
