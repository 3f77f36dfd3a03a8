/// `daemon.clients`. The role is `control`, since the answer says what the programs of other users do.
public enum DaemonClientsMethod: ControlMethod {
    public static let name = "daemon.clients"
    public static let summary = "Returns which programs are connected to the control socket"
    public static let role: Role? = .control
    public typealias Parameters = NoParameters

    public struct Result: Codable, Hashable, Sendable {
        /// The oldest connection first; the caller's own is among them.
        public var clients: [ConnectedClient]

        public init(clients: [ConnectedClient]) {
            self.clients = clients
        }
    }
}

/// A connection to the control socket.
public struct ConnectedClient: Codable, Hashable, Sendable {
    /// The process that made the connection, as the kernel says.
    public var pid: Int32
    /// The user of that process when it made the connection.
    public var uid: UInt32
    /// What the program calls itself in its `rpc.hello`, 64 characters at most; `nil` if it has not said.
    @OrNull public var client: String?
    public var roles: [Role]
    /// When it connected.
    public var since: Timestamp
    public var calls: Calls
    /// How many watches it has.
    public var watches: Int
    /// The sessions that it receives messages of, in natural order.
    public var sessions: [Session]
    /// How many bytes of answers and notifications wait until the program reads.
    public var unread: Int
    /// How many notifications were dropped because the program did not read.
    public var dropped: Int

    public init(
        pid: Int32, uid: UInt32, client: String?, roles: [Role], since: Timestamp, calls: Calls, watches: Int,
        sessions: [Session], unread: Int, dropped: Int
    ) {
        self.client = client
        self.pid = pid
        self.uid = uid
        self.roles = roles
        self.since = since
        self.calls = calls
        self.watches = watches
        self.sessions = sessions
        self.unread = unread
        self.dropped = dropped
    }

    public struct Calls: Codable, Hashable, Sendable {
        public var answered: Int
        /// Those that have begun and are not answered yet.
        public var inFlight: Int

        public init(answered: Int, inFlight: Int) {
            self.answered = answered
            self.inFlight = inFlight
        }
    }

    /// What a program receives of one session.
    public struct Session: Codable, Hashable, Sendable {
        public var session: String
        /// How many live subscriptions it has.
        public var subscriptions: Int
        /// The durable consumers that it is attached to, in natural order.
        public var consumers: [String]

        public init(session: String, subscriptions: Int, consumers: [String]) {
            self.session = session
            self.subscriptions = subscriptions
            self.consumers = consumers
        }
    }
}
