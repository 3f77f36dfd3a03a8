/// The parameters of a method about one session.
public struct SessionParameters: ClosedObject {
    /// The session's name.
    public var session: String

    public init(session: String) {
        self.session = session
    }

    enum CodingKeys: String, CodingKey, CaseIterable {
        case session
    }
    public static var members: [String] { CodingKeys.allCases.map(\.stringValue) }
}

/// The states of several sessions.
public struct SessionSnapshot: Codable, Hashable, Sendable {
    /// Ordered by name.
    public var sessions: [SessionStatus]

    public init(sessions: [SessionStatus]) {
        self.sessions = sessions
    }
}

/// The state that a command led to.
public struct SessionStateResult: Codable, Hashable, Sendable {
    public var state: SessionStatus.State

    public init(state: SessionStatus.State) {
        self.state = state
    }
}

/// `session.list`
public enum SessionListMethod: ControlMethod {
    public static let name = "session.list"
    public static let role: Role? = .observe
    public typealias Parameters = NoParameters
    public typealias Result = SessionSnapshot
}

/// `session.status`
public enum SessionStatusMethod: ControlMethod {
    public static let name = "session.status"
    public static let role: Role? = .observe
    public typealias Parameters = SessionParameters
    public typealias Result = SessionStatus
}

/// `session.connect`
public enum SessionConnectMethod: ControlMethod {
    public static let name = "session.connect"
    public static let role: Role? = .control
    public typealias Parameters = SessionParameters
    public typealias Result = SessionStateResult
}

/// `session.disconnect`
public enum SessionDisconnectMethod: ControlMethod {
    public static let name = "session.disconnect"
    public static let role: Role? = .control
    public typealias Parameters = SessionParameters
    public typealias Result = SessionStateResult
}

/// `session.reconnect`
public enum SessionReconnectMethod: ControlMethod {
    public static let name = "session.reconnect"
    public static let role: Role? = .control
    public typealias Result = SessionStateResult

    public enum Mode: String, Codable, Sendable, CaseIterable {
        case quick, full
        /// Quick if the server still has the session.
        case auto
    }

    public struct Parameters: ClosedObject {
        public var session: String
        /// Default: `auto`.
        public var mode: Mode

        public init(session: String, mode: Mode = .auto) {
            self.session = session
            self.mode = mode
        }

        public init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            self.session = try container.decode(String.self, forKey: .session)
            self.mode = try container.decodeIfPresent(Mode.self, forKey: .mode) ?? .auto
        }

        enum CodingKeys: String, CodingKey, CaseIterable {
            case session, mode
        }
        public static var members: [String] { CodingKeys.allCases.map(\.stringValue) }
    }
}

/// `session.watch`: the answer is a snapshot; ``SessionEvent`` notifications follow.
public enum SessionWatchMethod: ControlMethod {
    public static let name = "session.watch"
    public static let role: Role? = .observe

    public struct Parameters: ClosedObject {
        /// Only this session; `nil`: all of them.
        public var session: String?
        /// Replays the events after this sequence number, as far as the daemon still has them.
        public var since: Int64?
        /// The epoch that `since` is a number of, as the answer to an earlier watch told it; `nil`: the present one.
        public var epoch: String?

        public init(session: String? = nil, since: Int64? = nil, epoch: String? = nil) {
            self.session = session
            self.since = since
            self.epoch = epoch
        }

        enum CodingKeys: String, CodingKey, CaseIterable {
            case session, since, epoch
        }
        public static var members: [String] { CodingKeys.allCases.map(\.stringValue) }
    }

    public struct Result: Codable, Hashable, Sendable {
        public var watch: WatchID
        public var snapshot: SessionSnapshot
        /// The sequence number of the last event that the snapshot contains.
        public var sequence: Int64
        /// Stands for the numbering: another one with every start of the daemon.
        public var epoch: String
        /// `since` was a number of another epoch: what happened until that one's end is not known any more, and the events
        /// of this one follow from its first.
        public var restarted: Bool

        public init(
            watch: WatchID, snapshot: SessionSnapshot, sequence: Int64, epoch: String = "", restarted: Bool = false
        ) {
            self.watch = watch
            self.snapshot = snapshot
            self.sequence = sequence
            self.epoch = epoch
            self.restarted = restarted
        }
    }
}

/// `session.unwatch`
public enum SessionUnwatchMethod: ControlMethod {
    public static let name = "session.unwatch"
    public static let role: Role? = .observe

    public struct Parameters: ClosedObject {
        public var watch: WatchID

        public init(watch: WatchID) {
            self.watch = watch
        }

        enum CodingKeys: String, CodingKey, CaseIterable {
            case watch
        }
        public static var members: [String] { CodingKeys.allCases.map(\.stringValue) }
    }

    public struct Result: Codable, Hashable, Sendable {
        public init() {}
    }
}

/// Names a watch on one connection to the control socket, for example `w1`.
public struct WatchID: RawRepresentable, Codable, Hashable, Sendable {
    public var rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }
}
