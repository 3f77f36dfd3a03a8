// Importing this module also imports the vocabulary that all modules share.
@_exported public import Vocabulary

/// Everything that is currently known about a session: the answer to `session.status`.
///
/// Times are RFC 3339, durations are seconds, and what is absent is written as `null`.
public struct SessionStatus: Codable, Hashable, Sendable {
    /// The session's name.
    public var session: String
    public var state: SessionState
    /// When the state was entered.
    public var since: Timestamp
    /// What the session is doing while connecting and reconnecting; otherwise `nil`.
    @OrNull public var phase: Phase?
    /// While the phase is `resolving`: whether the attempt waits for its password, or the proxy's, from a program or
    /// file. Otherwise `nil`.
    @OrNull public var awaitsCredential: Bool?
    /// While the phase is `resolving`: whether the helper command that has the password waits until it may run, because
    /// enough others do. Otherwise `nil`.
    @OrNull public var awaitsTurn: Bool?
    /// How it reconnects while reconnecting; otherwise `nil`.
    @OrNull public var mode: ReconnectMode?
    /// While connected: whether the server still had the session. Otherwise `nil`.
    @OrNull public var resumed: Bool?
    /// The number of the attempt, from 1, since the last time the session was stable; 0 when none is needed.
    public var attempt = 0
    /// Seconds until the next attempt while the phase is `waiting`; otherwise `nil`.
    @OrNull public var retryIn: Double?
    /// Whether the outage has lasted longer than `lost-after`.
    public var lost = false
    /// Set while it is in doubt whether the session is still connected: its path is gone, or a probe awaits its answer.
    @OrNull public var doubt: Doubt?
    /// Why the state was entered.
    @OrNull public var reason: Reason?
    /// The endpoint that is used or tried, as a URL.
    @OrNull public var endpoint: String?
    /// The proxy that is used to reach the endpoint, as a URL; `nil` without a proxy.
    @OrNull public var proxy: String?
    /// The address and port that TCP is connected to: the server's or the proxy's.
    @OrNull public var peer: String?
    /// The version of TLS, for example `TLSv1.3`; `nil` without TLS.
    @OrNull public var tls: String?
    /// The version of MQTT, `5` or `3.1.1`, while connected; otherwise `nil`.
    @OrNull public var `protocol`: String?
    @OrNull public var path: Path?
    /// Which networks the session may use; `nil` when it may use all of them alike.
    @OrNull public var network: Network?
    @OrNull public var user: String?
    @OrNull public var device: String?
    @OrNull public var room: String?
    /// While the session is not announced in its room, so that the others there do not see it, because the server refuses
    /// that or its limits rule it out: why. Otherwise `nil`.
    @OrNull public var presenceRefused: String?
    @OrNull public var clientID: String?
    /// How good the connection is, while connected.
    @OrNull public var quality: Quality?
    /// Smoothed round-trip time in seconds.
    @OrNull public var rtt: Double?
    /// The variation of the round-trip time in seconds.
    @OrNull public var jitter: Double?
    /// Seconds since the server was last heard: a whole packet, or 16 KiB of a larger one.
    @OrNull public var lastHeard: Double?
    /// While connected with MQTT 5: what the server has granted. Otherwise `nil`.
    @OrNull public var granted: Granted?
    /// Every filter that a program, a durable consumer or the room wants, in order.
    public var subscriptions: [Subscription] = []
    public var outbox = Outbox()
    public var inbox = Inbox()
    public var counters = Counters()
    /// While the session's file has errors, and the session keeps its previous configuration: the first error, and how
    /// many more there are. Otherwise `nil`.
    @OrNull public var configurationError: String?
    /// Why published messages cannot be stored now, so that they wait or are refused; `nil` while they can be.
    @OrNull public var storeFailure: String?
    /// Why the TLS files cannot be used as they are, while those from before are in use; otherwise `nil`.
    @OrNull public var tlsFilesError: String?
    /// Why messages that are on disk cannot be read now, so that they wait; `nil` while they can be.
    @OrNull public var readFailure: String?

    /// Creates a status with the fixed members; the others are set afterwards.
    public init(session: String, state: SessionState, since: Timestamp, reason: Reason? = nil) {
        self.session = session
        self.state = state
        self.since = since
        self.reason = reason
    }

    /// Why a state was entered.
    public struct Reason: Codable, Hashable, Sendable {
        /// Stable and kebab-case, for example `heartbeat-timeout`.
        public var code: String
        /// `local`, `network`, `liveness`, `auth`, `session`, `server`, `displaced`, `removed`, `config` or `unknown`; in an
        /// event about one message `outbox` or `inbox`.
        public var group: String
        /// Whether the session stays down until a person, a new configuration or a new credential changes something.
        public var terminal: Bool
        /// The reason code of the wire protocol, if the server gave one.
        @OrNull public var serverCode: Int?
        /// What happened, in one sentence.
        public var message: String
        /// What to do about it.
        @OrNull public var hint: String?
        /// The last failure before the session gave up with `retry-timeout`; `nil` if there was none, for every other
        /// reason, and in the status after a restart of the daemon.
        @OrNull public var lastFailure: Failure?

        /// A failure after which the session went on.
        public struct Failure: Codable, Hashable, Sendable {
            /// The stable code of the reason.
            public var code: String
            /// The group of the code.
            public var group: String
            /// What happened, in one sentence.
            public var message: String

            public init(code: String, group: String, message: String) {
                self.code = code
                self.group = group
                self.message = message
            }
        }

        public init(
            code: String, group: String, terminal: Bool, serverCode: Int? = nil, message: String, hint: String? = nil,
            lastFailure: Failure? = nil
        ) {
            self.code = code
            self.group = group
            self.terminal = terminal
            self.serverCode = serverCode
            self.message = message
            self.hint = hint
            self.lastFailure = lastFailure
        }
    }

    /// What the kernel uses to reach the endpoint.
    public struct Path: Codable, Hashable, Sendable {
        /// The name of the outgoing interface, for example `wlan0`.
        public var interface: String
        /// `ethernet`, `wifi`, `cellular`, `vpn`, `loopback` or `other`.
        public var type: String
        /// The source address.
        public var source: String
        /// The address of the next hop; `nil` when the endpoint is on the link.
        @OrNull public var gateway: String?

        public init(interface: String, type: String, source: String, gateway: String?) {
            self.interface = interface
            self.type = type
            self.source = source
            self.gateway = gateway
        }
    }

    /// Which networks a session may use.
    public struct Network: Codable, Hashable, Sendable {
        /// The names of the interfaces, as they are listed in the session's file; empty for all.
        public var interfaces: [String]
        /// The types of network, as they are listed there; empty for all.
        public var types: [String]
        /// `allow`, or `avoid`, which uses metered networks only while there is no other path.
        public var metered: String

        public init(interfaces: [String], types: [String], metered: String) {
            self.interfaces = interfaces
            self.types = types
            self.metered = metered
        }
    }

    /// Messages accepted and not yet acknowledged by the server.
    public struct Outbox: Codable, Hashable, Sendable {
        /// Not sent yet.
        public var queued: Int
        /// Sent and not acknowledged.
        public var inFlight: Int
        /// Set aside after the server rejected them.
        public var quarantined: Int
        /// Topics, payloads and properties of all of them.
        public var bytes: Int64
        /// When the oldest of those that are queued or in flight was accepted.
        @OrNull public var oldest: Timestamp?
        /// Why these numbers, which then are 0, are not known; `nil` when they are.
        @OrNull public var unknown: String?

        public init(
            queued: Int = 0, inFlight: Int = 0, quarantined: Int = 0, bytes: Int64 = 0, oldest: Timestamp? = nil,
            unknown: String? = nil
        ) {
            self.unknown = unknown
            self.queued = queued
            self.inFlight = inFlight
            self.quarantined = quarantined
            self.bytes = bytes
            self.oldest = oldest
        }
    }

    /// Messages waiting for durable consumers.
    public struct Inbox: Codable, Hashable, Sendable {
        /// Counted once for each consumer.
        public var messages: Int
        /// Topics, payloads and properties, counted once for each consumer.
        public var bytes: Int64
        /// Messages that are not acknowledged to the server, because there is no room for them.
        public var withheld: Int
        /// Messages that were dropped since the session was started: the oldest ones of a full consumer, and those of
        /// QoS 0 that found no room.
        public var dropped: Int64
        public var consumers: [Consumer]

        public init(
            messages: Int = 0, bytes: Int64 = 0, withheld: Int = 0, dropped: Int64 = 0, consumers: [Consumer] = []
        ) {
            self.messages = messages
            self.bytes = bytes
            self.withheld = withheld
            self.dropped = dropped
            self.consumers = consumers
        }

        /// A durable consumer.
        public struct Consumer: Codable, Hashable, Sendable {
            public var name: String
            /// The filter as the program gave it.
            public var filter: String
            public var qos: QoS
            /// Whether a program is attached at the moment.
            public var attached: Bool
            /// How many messages the consumer has not acknowledged.
            public var messages: Int
            /// Topics, payloads and properties of these messages.
            public var bytes: Int64
            /// While the filter is refused, so that the consumer gets nothing new: what the server said, or why the session
            /// does not ask it. Otherwise `nil`.
            @OrNull public var refused: String?
            /// How many messages were dropped, because the consumer was full, since a program was last told.
            @OrNull public var missed: Int?

            public init(
                name: String, filter: String, qos: QoS, attached: Bool, messages: Int = 0, bytes: Int64 = 0,
                refused: String? = nil, missed: Int = 0
            ) {
                self.refused = refused
                self.missed = missed
                self.name = name
                self.filter = filter
                self.qos = qos
                self.attached = attached
                self.messages = messages
                self.bytes = bytes
            }
        }
    }

    /// Counters since the daemon started the session.
    public struct Counters: Codable, Hashable, Sendable {
        /// Attempts to connect, failed ones included.
        public var attempts: Int64 = 0
        /// How often the session became connected.
        public var connects: Int64 = 0
        /// How often it became connected by resuming the server's session (`mode` is `quick`).
        public var resumes: Int64 = 0
        /// How often the connection was lost. A reconnect that was asked for, or that the session made on its own, for
        /// example with a new credential, counts only if its first attempt failed.
        public var outages: Int64 = 0
        /// Seconds; `nil` before the first outage.
        @OrNull public var longestOutage: Double? = nil
        /// Messages accepted from programs and committed to disk.
        public var published: Int64 = 0
        /// Messages from the server, including those that no program is subscribed to.
        public var received: Int64 = 0
        /// Messages that were not sent: expired, too old, without room, or dropped by a person.
        public var dropped: Int64 = 0
        /// Messages from the server that no program got, because their content cannot be used.
        public var refused: Int64 = 0

        public init() {}
    }
}
