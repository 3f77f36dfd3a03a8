public import MQTT

/// One change of a session's state, as the history keeps it.
public struct HistoryEntry: Hashable, Sendable {
    /// By the wall clock, which may have been wrong or been set meanwhile: the order of entries is that of the store.
    public var time: Timestamp
    public var session: SessionName
    /// The state before, as the control socket names it.
    public var from: String
    /// The state that was entered; the same as ``from`` if only the phase has changed.
    public var to: String
    /// The phase when the state was entered, if it distinguishes a state without a network from one with.
    public var phase: String?
    /// How the session reconnects or has reconnected.
    public var mode: String?
    /// The stable code of the reason.
    public var reasonCode: String
    /// What happened, in a sentence.
    public var message: String
    /// The reason code of the wire protocol, if the server gave one.
    public var serverCode: UInt8?
    /// The length of the outage that ended here, to the millisecond.
    public var outage: Duration?
    /// The attempts that failed before this entry ended the trying; `nil` if none did.
    public var failures: Failures?

    /// Attempts that failed, one after the other.
    public struct Failures: Hashable, Sendable {
        public var attempts: Int
        /// Why the last one failed: the stable code of the reason.
        public var reasonCode: String
        /// Why the last one failed, in a sentence.
        public var message: String

        public init(attempts: Int, reasonCode: String, message: String) {
            self.attempts = attempts
            self.reasonCode = reasonCode
            self.message = message
        }
    }

    public init(
        time: Timestamp, session: SessionName, from: String, to: String, phase: String? = nil, mode: String? = nil,
        reasonCode: String, message: String, serverCode: UInt8? = nil, outage: Duration? = nil,
        failures: Failures? = nil
    ) {
        self.time = time
        self.session = session
        self.from = from
        self.to = to
        self.phase = phase
        self.mode = mode
        self.reasonCode = reasonCode
        self.message = message
        self.serverCode = serverCode
        self.outage = outage
        self.failures = failures
    }
}

/// Some entries of the history, in the order in which they were recorded.
public struct HistoryPage: Hashable, Sendable {
    public var entries: [HistoryEntry]
    /// Where the page with earlier entries begins; `nil` if there are none.
    public var next: Int64?
}
