/// `session.event`: something happened to a session that is watched.
///
/// Which members follow the first five depends on the event; the others are omitted.
public struct SessionEvent: ControlNotification {
    public static let name = "session.event"

    public var watch: WatchID
    /// Increases by one with every event of the daemon, so a watch of a single session sees gaps.
    public var sequence: Int64
    public var time: Timestamp
    /// `nil` only for `dropped`, and for `message-dropped` of a live subscription.
    public var session: String?
    public var event: Kind
    /// In every event of a session that is in a room: that room; in room-changed, the new one.
    public var room: String?

    // state-changed, and phase-changed, when the state stays the same: the state before, and these members of the
    // status.
    public var from: SessionState?
    /// state-changed: how many seconds the previous state lasted.
    public var lasted: Double?
    public var state: SessionState?
    public var phase: Phase?
    /// Also in reconnect-started and reconnect-completed.
    public var mode: ReconnectMode?
    public var resumed: Bool?
    public var attempt: Int?
    /// Seconds until the next attempt, in the phase `waiting`.
    public var retryIn: Double?
    public var lost: Bool?
    /// Also in reconnect-started, reconnect-completed, connection-lost, displaced, message-dropped and message-refused.
    public var reason: SessionStatus.Reason?
    public var endpoint: String?
    /// Also in path-changed.
    public var path: SessionStatus.Path?

    /// connection-lost, reconnect-completed: the length of the outage so far in seconds. It is omitted if the reconnect
    /// was asked for, or made for a new credential and the like, since that is not an outage.
    public var outage: Double?
    /// quality-changed; in participant-changed, what the participant reports about its own connection.
    public var quality: Quality?
    /// quality-changed, in seconds.
    public var rtt: Double?
    /// quality-changed, in seconds.
    public var jitter: Double?
    /// path-changed: the class of the change, for example `moved-source-gone`.
    public var change: String?
    /// credential-expiring: when the credential ends.
    public var expires: Timestamp?
    /// participant-joined, participant-changed, participant-left.
    public var user: String?
    public var device: String?
    /// participant-left: `left` if the participant said goodbye, `lost` if the server published its will.
    public var cause: RoomParticipant.Departure?
    /// room-changed: the previous room.
    public var previousRoom: String?
    /// publication-changed, together with `topic`.
    public var publication: PublicationState?
    /// message-rejected, message-dropped: the id that `message.publish` returned; `nil` for a message that was dropped
    /// before it had one.
    public var id: Int64?
    public var topic: String?
    /// message-rejected, publication-changed: the server's reason code, if it gave one. message-refused: MQTT's code for what is wrong.
    public var reasonCode: Int?
    /// publication-changed, with `refused`: why, in words.
    public var message: String?
    /// consumer-ended: the name of the durable consumer whose subscription ended; `watch` is the id of that
    /// subscription.
    public var consumer: String?
    /// subscription-changed: how the server answered for the filter. In the one that tells a program about its own
    /// subscription, `watch` is the id of that.
    public var subscription: SessionStatus.Subscription?
    /// inbox-full: whether acknowledgements are withheld, or no longer are.
    public var full: Bool?
    /// dropped: how many events are missing, because too much was unread or they are too old; `nil` if they are of one
    /// session, and too old. message-dropped of a live subscription: how many
    /// messages were, for that reason; of a session: how many messages were dropped because a durable consumer or the
    /// inbox was full. message-repeated: how many messages of QoS 2 are sent again and may arrive twice.
    public var count: Int?

    /// Creates an event with the fixed members; those of its kind are set afterwards. `watch` and `sequence` are set when
    /// it is delivered.
    public init(
        watch: WatchID = WatchID(rawValue: ""), sequence: Int64 = 0, time: Timestamp, session: String?, event: Kind
    ) {
        self.watch = watch
        self.sequence = sequence
        self.time = time
        self.session = session
        self.event = event
    }

    /// What happened. More kinds may be added; readers must ignore those that they do not know.
    public struct Kind: RawRepresentable, Codable, Hashable, Sendable {
        public var rawValue: String

        public init(rawValue: String) {
            self.rawValue = rawValue
        }

        public static let stateChanged = Kind(rawValue: "state-changed")
        public static let phaseChanged = Kind(rawValue: "phase-changed")
        public static let roomChanged = Kind(rawValue: "room-changed")
        public static let publicationChanged = Kind(rawValue: "publication-changed")
        public static let participantChanged = Kind(rawValue: "participant-changed")
        public static let connectionLost = Kind(rawValue: "connection-lost")
        public static let reconnectStarted = Kind(rawValue: "reconnect-started")
        public static let reconnectCompleted = Kind(rawValue: "reconnect-completed")
        public static let displaced = Kind(rawValue: "displaced")
        public static let credentialExpiring = Kind(rawValue: "credential-expiring")
        public static let qualityChanged = Kind(rawValue: "quality-changed")
        public static let pathChanged = Kind(rawValue: "path-changed")
        public static let participantJoined = Kind(rawValue: "participant-joined")
        public static let participantLeft = Kind(rawValue: "participant-left")
        public static let messageRejected = Kind(rawValue: "message-rejected")
        public static let messageDropped = Kind(rawValue: "message-dropped")
        public static let sessionDiscarded = Kind(rawValue: "session-discarded")
        public static let messageRepeated = Kind(rawValue: "message-repeated")
        public static let messageRefused = Kind(rawValue: "message-refused")
        public static let subscriptionChanged = Kind(rawValue: "subscription-changed")
        public static let inboxFull = Kind(rawValue: "inbox-full")
        /// Also sent for each subscription to the session's messages, with its id as `watch`: it has ended.
        public static let sessionRemoved = Kind(rawValue: "session-removed")
        public static let consumerEnded = Kind(rawValue: "consumer-ended")
        public static let dropped = Kind(rawValue: "dropped")
    }
}
