/// A message of the outbox without its contents: what a list of them shows.
public struct StoredMessageSummary: Hashable, Sendable {
    /// See ``StoredMessage/sequence``.
    public var sequence: MessageSequence
    /// See ``OutboundMessage/topic``.
    public var topic: String
    /// See ``OutboundMessage/qos``.
    public var qos: QoS
    /// See ``OutboundMessage/retain``.
    public var retain: Bool
    /// See ``OutboundMessage/size``.
    public var size: Int
    /// See ``OutboundMessage/acceptedAt``.
    public var acceptedAt: Timestamp
    /// See ``OutboundMessage/expiresAt``.
    public var expiresAt: Timestamp?
    /// See ``StoredMessage/state``.
    public var state: StoredMessage.State

    public init(
        sequence: MessageSequence, topic: String, qos: QoS, retain: Bool, size: Int, acceptedAt: Timestamp,
        expiresAt: Timestamp?, state: StoredMessage.State
    ) {
        self.sequence = sequence
        self.topic = topic
        self.qos = qos
        self.retain = retain
        self.size = size
        self.acceptedAt = acceptedAt
        self.expiresAt = expiresAt
        self.state = state
    }

    public init(_ stored: StoredMessage) {
        self.init(
            sequence: stored.sequence, topic: stored.message.topic, qos: stored.message.qos,
            retain: stored.message.retain, size: stored.message.size, acceptedAt: stored.message.acceptedAt,
            expiresAt: stored.message.expiresAt, state: stored.state)
    }
}
