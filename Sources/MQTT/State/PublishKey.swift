/// A program's name for a message. A second publish with the same key means the same message: a program whose
/// connection breaks before the answer does not know whether the first one was received.
public struct PublishKey: Hashable, Sendable, CustomStringConvertible {
    /// How long a key is remembered, in milliseconds: 24 hours after its message has left the outbox.
    public static let lifetime: Int64 = 24 * 3600 * 1000

    /// 1 to 128 printable ASCII characters without the space.
    public let description: String

    public init?(_ text: String) {
        guard (1...128).contains(text.utf8.count), text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            return nil
        }
        description = text
    }
}

/// What became of a message that is no longer in the outbox.
public enum PublishOutcome: Hashable, Sendable {
    /// The server has it; its reason code.
    case delivered(ReasonCode)
    case dropped(MQTTClientMachine.DropReason)
}

/// What is remembered of a message that was published with a key.
public struct KeyedMessage: Hashable, Sendable {
    /// What has become of the message.
    public enum State: Hashable, Sendable {
        /// It is queued or in flight.
        case waiting
        case quarantined(ReasonCode?, String)
        case done(PublishOutcome)
        /// The store has lost it, and does not know how far it had come.
        case lost
    }

    public var sequence: MessageSequence
    public var state: State
    /// When it was published.
    public var at: Timestamp

    public init(sequence: MessageSequence, state: State, at: Timestamp) {
        self.sequence = sequence
        self.state = state
        self.at = at
    }
}
