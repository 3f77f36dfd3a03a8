/// The parameters of a method about one session.
public struct SessionParameters: ClosedObject {
    /// The session's name.
    public var session: String

    public init(session: String) {
        self.session = session
    }
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
    public var state: SessionState
    /// The outcome of the command; omitted unless the call waits.
    public var outcome: SessionOutcome?
    /// Why the session is in the state; omitted unless the call waits.
    public var reason: SessionStatus.Reason?

    public init(
        state: SessionState, outcome: SessionOutcome? = nil, reason: SessionStatus.Reason? = nil
    ) {
        self.state = state
        self.outcome = outcome
        self.reason = reason
    }
}

/// The outcome of a command that was waited for.
public struct SessionOutcome: RawRepresentable, Codable, Hashable, Sendable {
    public var rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    public static let connected = SessionOutcome(rawValue: "connected")
    public static let disconnected = SessionOutcome(rawValue: "disconnected")
    public static let failed = SessionOutcome(rawValue: "failed")
    /// The command continues, but this call stops waiting.
    public static let timeout = SessionOutcome(rawValue: "timeout")
}

/// The parameters of a command that may wait for its outcome.
public struct SessionCommandParameters: ClosedObject {
    /// The session's name.
    public var session: String
    /// Whether the answer waits for the outcome; default: no.
    public var wait: Bool
    /// How many seconds to wait at most; `nil`: as long as it takes.
    public var timeout: Double?

    public init(session: String, wait: Bool = false, timeout: Double? = nil) {
        self.session = session
        self.wait = wait
        self.timeout = timeout
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        session = try container.decode(String.self, forKey: .session)
        wait = try container.decodeIfPresent(Bool.self, forKey: .wait) ?? false
        timeout = try container.decodeIfPresent(Double.self, forKey: .timeout)
    }
}

public enum SessionListMethod: ControlMethod {
    public static let name = "session.list"
    public static let summary = "Returns the status of all sessions"
    public static let role: Role? = .observe
    public typealias Parameters = NoParameters
    public typealias Result = SessionSnapshot
}

public enum SessionStatusMethod: ControlMethod {
    public static let name = "session.status"
    public static let summary = "Returns the status of one session"
    public static let role: Role? = .observe
    public typealias Parameters = SessionParameters
    public typealias Result = SessionStatus
}

public enum SessionConnectMethod: ControlMethod {
    public static let name = "session.connect"
    public static let summary = "Connects a session"
    public static let role: Role? = .control
    public typealias Parameters = SessionCommandParameters
    public typealias Result = SessionStateResult
}

public enum SessionDisconnectMethod: ControlMethod {
    public static let name = "session.disconnect"
    public static let summary = "Disconnects a session"
    public static let role: Role? = .control
    public typealias Parameters = SessionCommandParameters
    public typealias Result = SessionStateResult
}

public enum SessionReconnectMethod: ControlMethod {
    public static let name = "session.reconnect"
    public static let summary = "Ends a session's connection and makes a new one"
    public static let role: Role? = .control
    public typealias Result = SessionStateResult

    /// How to reconnect.
    public enum Mode: String, Codable, Sendable, CaseIterable {
        /// Resume the session at the server.
        case quick
        /// Set everything up again.
        case full
        /// Quick if the server still has the session.
        case auto
    }

    public struct Parameters: ClosedObject {
        public var session: String
        /// Default: `auto`.
        public var mode: Mode
        /// Whether the answer waits for the outcome; default: no.
        public var wait: Bool
        /// How many seconds to wait at most; `nil`: as long as it takes.
        public var timeout: Double?

        public init(session: String, mode: Mode = .auto, wait: Bool = false, timeout: Double? = nil) {
            self.session = session
            self.mode = mode
            self.wait = wait
            self.timeout = timeout
        }

        public init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            self.session = try container.decode(String.self, forKey: .session)
            self.mode = try container.decodeIfPresent(Mode.self, forKey: .mode) ?? .auto
            wait = try container.decodeIfPresent(Bool.self, forKey: .wait) ?? false
            timeout = try container.decodeIfPresent(Double.self, forKey: .timeout)
        }
    }
}

/// `session.renewToken`: gives the session a credential that is used instead of the one that its file names. It is kept
/// in memory only, until the server rejects it, it expires, or the daemon ends.
public enum SessionRenewTokenMethod: ControlMethod {
    public static let name = "session.renewToken"
    public static let summary = "Sets a credential that is used instead of the one in the session's file"
    public static let role: Role? = .control
    public typealias Result = SessionStateResult

    public struct Parameters: ClosedObject {
        public var session: String
        public var token: String
        /// When the credential expires; `nil` if that is unknown.
        public var expires: Timestamp?

        public init(session: String, token: String, expires: Timestamp? = nil) {
            self.session = session
            self.token = token
            self.expires = expires
        }
    }
}

/// `session.simulate`: makes a session behave as if its connection had failed, to test how programs react. Only the
/// fault is simulated; what follows is real.
public enum SessionSimulateMethod: ControlMethod {
    public static let name = "session.simulate"
    public static let summary = "Makes a connected session behave as if its connection had failed"
    public static let role: Role? = .control
    public typealias Result = SessionStateResult

    /// The fault to simulate.
    public enum Fault: String, Codable, Sendable, CaseIterable {
        /// The connection breaks.
        case drop
        /// Nothing gets through on the current connection any more, but it stays open.
        case silence
        /// The connection breaks, and the server's copy of the session is discarded.
        case fullReconnect = "full-reconnect"
        /// There is no path to any endpoint, for a while.
        case pathLost = "path-lost"
    }

    public struct Parameters: ClosedObject {
        public var session: String
        public var fault: Fault
        /// How long the path is lost, in seconds, 1 to 3600; default 15.
        public var duration: Double?

        public init(session: String, fault: Fault, duration: Double? = nil) {
            self.session = session
            self.fault = fault
            self.duration = duration
        }
    }
}

/// `session.watch`: the answer is a snapshot; ``SessionEvent`` notifications follow.
public enum SessionWatchMethod: ControlMethod {
    public static let name = "session.watch"
    public static let summary = "Sends the events of one session or of all"
    public static let role: Role? = .observe

    public struct Parameters: ClosedObject {
        /// Only this session; `nil`: all of them.
        public var session: String?
        /// Replays the events after this sequence number, as far as the daemon still has them.
        public var since: Int64?
        /// The epoch that `since` belongs to, from the answer to an earlier watch; `nil`: the current one.
        public var epoch: String?

        public init(session: String? = nil, since: Int64? = nil, epoch: String? = nil) {
            self.session = session
            self.since = since
            self.epoch = epoch
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        public var watch: WatchID
        public var snapshot: SessionSnapshot
        /// The sequence number of the last event that the snapshot contains.
        public var sequence: Int64
        /// Identifies the numbering of events. Every start of the daemon begins a new one.
        public var epoch: String
        /// Whether `since` belongs to another epoch: what happened until that epoch ended is no longer known, and all
        /// events of the current one follow, from the first.
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

public enum SessionUnwatchMethod: ControlMethod {
    public static let name = "session.unwatch"
    public static let summary = "Ends a watch"
    public static let role: Role? = .observe

    public struct Parameters: ClosedObject {
        public var watch: WatchID

        public init(watch: WatchID) {
            self.watch = watch
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        public init() {}
    }
}

/// The id of a watch on one connection to the control socket, for example `w1`.
public struct WatchID: RawRepresentable, Codable, Hashable, Sendable {
    public var rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }
}
