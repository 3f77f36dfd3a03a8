/// `session.event`: something happened to a session that is watched.
///
/// Which members stand beside the first five depends on the event; those that do not are left out.
public struct SessionEvent: ControlNotification {
    public static let name = "session.event"

    public var watch: WatchID
    /// Grows by one with every event of the daemon, so a watch of one session sees gaps.
    public var sequence: Int64
    public var time: RFC3339
    /// `nil` only for `dropped`.
    public var session: String?
    public var event: Kind
    /// The room that the session is in; of every event of a session that is in one. Of room-changed the new one.
    public var room: String?

    // state-changed, and phase-changed, where the state stays as it is: the members of the status that changed, and where it came from.
    public var from: SessionStatus.State?
    /// state-changed: how many seconds the state before lasted.
    public var lasted: Double?
    public var state: SessionStatus.State?
    public var phase: SessionStatus.Phase?
    /// Also of reconnect-started and reconnect-completed.
    public var mode: SessionStatus.Mode?
    public var resumed: Bool?
    public var attempt: Int?
    /// Seconds.
    public var retryIn: Double?
    public var lost: Bool?
    /// Also of reconnect-started, reconnect-completed, connection-lost, displaced and message-dropped.
    public var reason: SessionStatus.Reason?
    public var endpoint: String?
    /// Also of path-changed.
    public var path: SessionStatus.Path?

    /// connection-lost, reconnect-completed: the outage's length in seconds so far; omitted where somebody had asked
    /// for the reconnect, which is no outage.
    public var outage: Double?
    /// quality-changed; and participant-changed: what the participant says of its own connection.
    public var quality: SessionStatus.Quality?
    /// quality-changed, in seconds.
    public var rtt: Double?
    /// quality-changed, in seconds.
    public var jitter: Double?
    /// path-changed: the class of the change, for example `moved-source-gone`.
    public var change: String?
    /// credential-expiring: when it ends.
    public var expires: RFC3339?
    /// participant-joined, participant-changed, participant-left.
    public var user: String?
    public var device: String?
    /// participant-left: `left` when the participant said so, `lost` when the server announced its end.
    public var cause: RoomParticipant.Departure?
    /// room-changed: the room before.
    public var previousRoom: String?
    /// publication-changed, together with `topic`.
    public var publication: PublicationState?
    /// message-rejected, message-dropped: the number that `message.publish` answered; `nil` for a message that was dropped
    /// before it had one.
    public var id: Int64?
    public var topic: String?
    /// message-rejected: the server's reason code. message-refused: the code of MQTT for what is wrong.
    public var reasonCode: Int?
    /// consumer-ended: the name of the durable consumer whose subscription, in `watch`, ended.
    public var consumer: String?
    /// subscription-changed: what the server has made of the filter.
    public var subscription: SessionStatus.Subscription?
    /// inbox-full: whether acknowledgements are withheld, or no longer are.
    public var full: Bool?
    /// dropped: how many events this reader was too slow for. message-dropped of a session: how many QoS 0 messages found
    /// no room in the inbox. message-repeated: how many messages of QoS 2 are sent again and may arrive twice.
    public var count: Int?

    /// The fixed members; the ones of the event are set afterwards.
    public init(watch: WatchID, sequence: Int64, time: RFC3339, session: String?, event: Kind) {
        self.watch = watch
        self.sequence = sequence
        self.time = time
        self.session = session
        self.event = event
    }

    /// What happened. A reader meets kinds that it does not know, and ignores them.
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
        public static let messageRepeated = Kind(rawValue: "message-repeated")
        public static let messageRefused = Kind(rawValue: "message-refused")
        public static let subscriptionChanged = Kind(rawValue: "subscription-changed")
        public static let inboxFull = Kind(rawValue: "inbox-full")
        public static let consumerEnded = Kind(rawValue: "consumer-ended")
        public static let dropped = Kind(rawValue: "dropped")
    }
}
