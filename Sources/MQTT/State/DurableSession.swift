/// The durable state of a session, as the store gives it back when the daemon starts.
public struct DurableSession: Hashable, Sendable {
    /// Whether we may claim a session at the server. Lost or unreadable state must be `false` (rule 2).
    public var established: Bool
    /// The client identifier that the server gave us, if it did.
    public var assignedClientID: String?
    /// The sequence of the next message: above every one that was ever inserted, including those removed since.
    public var nextSequence = MessageSequence(rawValue: 1)
    /// Every message that is `inFlight` or `released`, in order of sequence.
    public var inFlight: [StoredMessage] = []
    /// Inbound QoS 2 identifiers between PUBREC and PUBREL.
    public var inboundIDs: Set<PacketID> = []
    /// Identifiers of ours that the server may hold on to, although nothing is in flight with them.
    public var retiredIDs: Set<PacketID> = []
    /// Identifiers under which the server may hold a message of QoS 2 that is not known here: the host lost its power, or
    /// the daemon was killed, and how far an exchange had come was not on the disk yet.
    public var suspectIDs: Set<PacketID> = []
    /// Our subscriptions that the server may hold.
    public var rememberedSubscriptions: Set<TopicFilter> = []
    /// How many messages are `queued`.
    public var queuedCount = 0
    /// The sum of their ``OutboundMessage/size``.
    public var queuedBytes = 0
    /// How many messages are `quarantined`.
    public var quarantinedCount = 0
    /// The sum of their ``OutboundMessage/size``.
    public var quarantinedBytes = 0
    /// Its durable consumers, by name.
    public var consumers: [DurableConsumer] = []
    /// The sequence of the next message in the inbox: above every one that was ever there.
    public var nextInboxSequence = InboxSequence(rawValue: 1)
    /// The client identifier that the session at the server belongs to; `nil` if that was never written down.
    public var clientID: String?
    /// Whether a message was published with a key that is still remembered.
    public var hasKeys = false
}

extension DurableSession {
    /// The state of a new session.
    public init() { self.init(established: false) }
}
