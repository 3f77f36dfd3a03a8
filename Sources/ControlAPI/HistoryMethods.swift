/// `session.history`: the state changes of sessions, including those from before the daemon was started.
public enum SessionHistoryMethod: ControlMethod {
    public static let name = "session.history"
    public static let summary = "Returns the newest changes of state, in the order in which they happened"
    public static let role: Role? = .observe

    public struct Parameters: ClosedObject {
        /// The range of ``limit``.
        public static let limits = 1...10_000

        /// Only this session, even if it is no longer configured; `nil`: all of them.
        public var session: String?
        /// Only entries of this time and later.
        public var since: Timestamp?
        /// Only entries before this time.
        public var until: Timestamp?
        /// How many entries at most: the newest ones. Default: 100.
        public var limit: Int

        public init(session: String? = nil, since: Timestamp? = nil, until: Timestamp? = nil, limit: Int = 100) {
            self.session = session
            self.since = since
            self.until = until
            self.limit = limit
        }

        public init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            self.session = try container.decodeIfPresent(String.self, forKey: .session)
            self.since = try container.decodeIfPresent(Timestamp.self, forKey: .since)
            self.until = try container.decodeIfPresent(Timestamp.self, forKey: .until)
            self.limit = try container.decodeIfPresent(Int.self, forKey: .limit) ?? 100
            guard Self.limits.contains(limit) else {
                throw container.refusal(of: .limit, "must be a number from 1 to 10000")
            }
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        /// In the order in which they happened.
        public var entries: [SessionHistoryEntry]

        public init(entries: [SessionHistoryEntry]) {
            self.entries = entries
        }
    }
}

/// One change of a session's state.
///
/// For each session, every run of the daemon begins with an entry from `disconnected` and ends with one to
/// `disconnected`, with the reason `shutdown`. If the daemon was killed, the next one adds that last entry, with the
/// time of the last sign of life.
public struct SessionHistoryEntry: Codable, Hashable, Sendable {
    /// The time by the daemon's clock at that moment. If the clock was set back, an entry may look older than the one
    /// before it.
    public var time: Timestamp
    public var session: String
    public var from: SessionState
    /// The same as ``from`` when only the network was lost or came back while the session was trying.
    public var to: SessionState
    /// `waiting-for-network` while there is no network to try with; otherwise `nil`.
    @OrNull public var phase: Phase?
    /// Why the state was entered.
    public var reason: SessionStatus.Reason
    /// How the session reconnects, or has reconnected; otherwise `nil`.
    @OrNull public var mode: ReconnectMode?
    /// When an outage ended: its length in seconds.
    @OrNull public var outage: Double?
    /// When the session stopped trying: the attempts that had failed since it began; otherwise, or if none failed, `nil`.
    @OrNull public var failures: Failures?

    /// Attempts that failed, one after the other.
    public struct Failures: Codable, Hashable, Sendable {
        public var attempts: Int
        /// Why the last one failed: the stable code of the reason.
        public var code: String
        /// Why the last one failed, in one sentence.
        public var message: String

        public init(attempts: Int, code: String, message: String) {
            self.attempts = attempts
            self.code = code
            self.message = message
        }
    }

    public init(
        time: Timestamp, session: String, from: SessionState, to: SessionState,
        phase: Phase? = nil, reason: SessionStatus.Reason, mode: ReconnectMode? = nil,
        outage: Double? = nil, failures: Failures? = nil
    ) {
        self.time = time
        self.session = session
        self.from = from
        self.to = to
        self.phase = phase
        self.reason = reason
        self.mode = mode
        self.outage = outage
        self.failures = failures
    }
}
