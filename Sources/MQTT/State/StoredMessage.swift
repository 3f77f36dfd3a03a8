/// A message that was accepted, and how far it has come. One row of the store's outbox.
public struct StoredMessage: Hashable, Sendable {
    /// Its place in the order of acceptance, and its key.
    public var sequence: MessageSequence
    /// What is sent.
    public var message: OutboundMessage
    /// How far it has come.
    public var state: State

    public init(sequence: MessageSequence, message: OutboundMessage, state: State = .queued) {
        self.sequence = sequence
        self.message = message
        self.state = state
    }

    /// How far a message has come.
    public enum State: Hashable, Sendable {
        /// Not sent, or QoS 0 and not known to be sent. Can transition to: inFlight, quarantined, removed.
        case queued
        /// Has its packet identifier, may have been sent. Can transition to: queued (the server lost the session, or
        /// has no room), released (QoS 2), quarantined, removed.
        case inFlight(PacketID)
        /// QoS 2 and PUBREC was received: the server owns the message, and only PUBREL is ever sent again. Can transition
        /// to: removed.
        case released(PacketID)
        /// The server refuses it for this reason, or has not said why. It stays until a person retries or discards it.
        case quarantined(ReasonCode?, String)
    }
}
