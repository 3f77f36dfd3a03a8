/// The place of a message in the order in which one session collected them for its durable consumers: never reused, also
/// across restarts. It is the message's id in the control protocol.
public struct InboxSequence: RawRepresentable, Hashable, Comparable, Sendable, CustomStringConvertible {
    /// 1 or more for a message; 0 is before every message.
    public let rawValue: Int64

    public init(rawValue: Int64) {
        self.rawValue = rawValue
    }

    /// Before every message.
    public static let zero = InboxSequence(rawValue: 0)
    /// After every message.
    public static let last = InboxSequence(rawValue: .max)

    /// The next place.
    public var next: InboxSequence { InboxSequence(rawValue: rawValue + 1) }

    public static func < (left: InboxSequence, right: InboxSequence) -> Bool { left.rawValue < right.rawValue }

    public var description: String { "\(rawValue)" }
}

/// A message that durable consumers have not taken yet. One row of the store's inbox for each of them.
public struct CollectedMessage: Hashable, Sendable {
    /// Its place in the inbox, and its key.
    public var sequence: InboxSequence
    /// `duplicate` says whether the session may have collected it before.
    public var message: MQTTClientMachine.InboundMessage

    public init(sequence: InboxSequence, message: MQTTClientMachine.InboundMessage) {
        self.sequence = sequence
        self.message = message
    }

    /// What it counts for against limits in bytes.
    public var size: Int { message.size }
}

extension MQTTClientMachine.InboundMessage {
    /// What it counts for against limits in bytes.
    public var size: Int { OutboundMessage(topic: topic, payload: payload, properties: properties).size }
}

/// A durable consumer as the store has it.
public struct DurableConsumer: Hashable, Sendable {
    /// One of its session.
    public var name: ConsumerName
    /// The topic filter as it was given: it may be relative to the session's room.
    public var filter: String
    /// As which it subscribes.
    public var qos: QoS
    /// Messages up to this one may have been given to a program.
    public var givenThrough: InboxSequence
    /// How many messages wait for it, and the sum of their `size`.
    public var messages: Int
    /// The sum of their `size`.
    public var bytes: Int

    public init(
        name: ConsumerName, filter: String, qos: QoS, givenThrough: InboxSequence = .zero, messages: Int = 0,
        bytes: Int = 0
    ) {
        self.name = name
        self.filter = filter
        self.qos = qos
        self.givenThrough = givenThrough
        self.messages = messages
        self.bytes = bytes
    }
}
