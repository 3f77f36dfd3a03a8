/// A message of the outbox without its contents: what a list of them shows.
public struct StoredMessageSummary: Hashable, Sendable {
    public var sequence: MessageSequence
    public var topic: String
    public var qos: QoS
    public var retain: Bool
    /// See ``OutboundMessage/size``.
    public var size: Int
    public var acceptedAt: Timestamp
    public var expiresAt: Timestamp?
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
