package import MQTT
package import NIOCore
package import SessionCore
package import Vocabulary

/// What a session has dialed and not let go of. Events of all other connections are not looked at.
package struct Connections: Sendable {
    /// The attempt under way and the connection that it becomes.
    package var link: Link?
    /// What is set up beside the link, to take over from it.
    package var successor: Link?
    /// Where the session was connected last, and how: for taking its presence away when it is displaced.
    package var lastOpened: (address: Endpoint, login: Login)?
    /// The link was dropped, and the protocol machine has not heard of it: how it ended.
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

    /// The connection goes on as something else.
    package mutating func change(_ id: DialID, to role: DialRole) { roles[id] = role }

    /// - Returns: whether it was there.
    package mutating func remove(_ id: DialID) -> Bool { roles.removeValue(forKey: id) != nil }
}

/// What happened to a connection.
package enum DialEvent: Sendable {
    case resolved([SocketAddress])
    /// The first hop answers: all that a knock wants to know.
    case reached
    case dialing
    case securing
    case opened(LinkPeer)
    case received(ByteBuffer)
    case closed(Reason, retryAfter: Duration? = nil)
}

/// What the driver has to know to dial.
package struct DialTarget: Hashable, Sendable {
    package enum Goal: Hashable, Sendable {
        /// Everything before CONNECT.
        case open
        /// The answer of the first hop, or the one of the server behind a proxy.
        case knock(isBehindProxy: Bool)
    }

    package let address: Endpoint
    package var goal = Goal.open
    package var proxyPassword: [UInt8]?
    /// The connection of a knock to go on with, if it is still there: it is this one from now on.
    package var knock: DialID?
}
