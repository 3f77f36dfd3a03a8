/// `session.history`: the changes of sessions' states, also of the time before the daemon was started.
public enum SessionHistoryMethod: ControlMethod {
    public static let name = "session.history"
    public static let role: Role? = .observe

    public struct Parameters: ClosedObject {
        /// What ``limit`` may be.
        public static let limits = 1...10_000

        /// Only this session, which need not be configured any more; `nil`: all of them.
        public var session: String?
        /// Only entries of this time and later.
        public var since: RFC3339?
        /// Only entries before this time.
        public var until: RFC3339?
        /// How many entries at most: the newest ones. Default: 100.
        public var limit: Int

        public init(session: String? = nil, since: RFC3339? = nil, until: RFC3339? = nil, limit: Int = 100) {
            self.session = session
            self.since = since
            self.until = until
            self.limit = limit
        }

        public init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            self.session = try container.decodeIfPresent(String.self, forKey: .session)
            self.since = try container.decodeIfPresent(RFC3339.self, forKey: .since)
            self.until = try container.decodeIfPresent(RFC3339.self, forKey: .until)
            self.limit = try container.decodeIfPresent(Int.self, forKey: .limit) ?? 100
            guard Self.limits.contains(limit) else {
                throw DecodingError.dataCorruptedError(
                    forKey: .limit, in: container, debugDescription: "must be a number from 1 to 10000")
            }
        }

        enum CodingKeys: String, CodingKey, CaseIterable {
            case session, since, until, limit
        }
        public static var members: [String] { CodingKeys.allCases.map(\.stringValue) }
    }

    public struct Result: Codable, Hashable, Sendable {
        /// In the order in which it happened.
        public var entries: [SessionHistoryEntry]

        public init(entries: [SessionHistoryEntry]) {
            self.entries = entries
        }
    }
}

/// One change of a session's state.
///
/// The first entry of every life of the daemon comes from `disconnected`, and the last one leads there, with the reason
/// `shutdown`; for a daemon that was killed the next one adds it, with the time of the last sign of life.
public struct SessionHistoryEntry: Codable, Hashable, Sendable {
    /// By the daemon's clock then. A clock that was set back makes an entry look older than the one before it.
    public var time: RFC3339
    public var session: String
    public var from: SessionStatus.State
    /// The same as ``from`` when only the network went or came while the session tries.
    public var to: SessionStatus.State
    /// `waiting-for-network` while there is no network to try with; otherwise `nil`.
    public var phase: SessionStatus.Phase?
    /// Why the state was entered.
    public var reason: SessionStatus.Reason
    /// How the session reconnects, or has reconnected; otherwise `nil`.
    public var mode: SessionStatus.Mode?
    /// When an outage ended: its length in seconds.
    public var outage: Double?

    public init(
        time: RFC3339, session: String, from: SessionStatus.State, to: SessionStatus.State,
        phase: SessionStatus.Phase? = nil, reason: SessionStatus.Reason, mode: SessionStatus.Mode? = nil,
        outage: Double? = nil
    ) {
        self.time = time
        self.session = session
        self.from = from
        self.to = to
        self.phase = phase
        self.reason = reason
        self.mode = mode
        self.outage = outage
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(time, forKey: .time)
        try container.encode(session, forKey: .session)
        try container.encode(from, forKey: .from)
        try container.encode(to, forKey: .to)
        try container.encode(phase, forKey: .phase)
        try container.encode(reason, forKey: .reason)
        try container.encode(mode, forKey: .mode)
        try container.encode(outage, forKey: .outage)
    }
}
