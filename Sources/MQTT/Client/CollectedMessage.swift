import NIOCore

/// The place of a message in the order in which one session collected messages for its durable consumers; never reused,
/// even across restarts. It is the message's id in the control protocol.
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

/// A message that some durable consumers have not taken yet. The store's inbox has one row for each of them.
public struct CollectedMessage: Hashable, Sendable {
    /// Its place in the inbox, and its key.
    public var sequence: InboxSequence
    /// `duplicate` says whether the session may have collected it before.
    public var message: MQTTClientMachine.InboundMessage
    /// When it arrived.
    public var receivedAt: Timestamp

    public init(
        sequence: InboxSequence, message: MQTTClientMachine.InboundMessage,
        receivedAt: Timestamp = Timestamp(rawValue: 0)
    ) {
        self.sequence = sequence
        self.message = message
        self.receivedAt = receivedAt
    }

    /// When it expires, as set by its publisher (3.3.2.3.3); `nil` means never.
    public var expiresAt: Timestamp? {
        message.properties.messageExpiryInterval.map { receivedAt.advanced(by: Int64($0) * 1000) }
    }

    /// Its size as counted against limits in bytes.
    public var size: Int { message.size }
}

extension MQTTClientMachine.InboundMessage {
    /// Its size as counted against limits in bytes.
    public var size: Int { topic.utf8.count + payload.readableBytes + properties.contentSize }
}

/// A message that has come into the inbox, and the consumers that it is for.
public struct InboxMessage: Hashable, Sendable {
    public var message: CollectedMessage
    public var consumers: [ConsumerName]
}

/// A message that a consumer no longer has, and its size.
public struct TakenMessage: Hashable, Sendable {
    public var sequence: InboxSequence
    /// See ``CollectedMessage/size``.
    public var size: Int

    public init(sequence: InboxSequence, size: Int) {
        self.sequence = sequence
        self.size = size
    }
}

/// Consecutive messages in the inbox of one consumer.
public struct InboxRun: Hashable, Sendable {
    /// The last of them, or a place between it and the next run.
    public var through: InboxSequence
    /// How many there are.
    public var messages: Int
    /// The sum of their ``CollectedMessage/size``.
    public var bytes: Int

    public init(through: InboxSequence, messages: Int, bytes: Int) {
        self.through = through
        self.messages = messages
        self.bytes = bytes
    }
}

/// A durable consumer as the store has it.
public struct DurableConsumer: Hashable, Sendable {
    /// Unique within its session.
    public var name: ConsumerName
    /// The topic filter as given: it may be relative to the session's room.
    public var filter: String
    /// The QoS it subscribes with.
    public var qos: QoS
    /// Messages up to this one may have been given to a program.
    public var givenThrough: InboxSequence
    /// What waits for it, oldest first.
    public var runs: [InboxRun]
    /// How many messages it has lost because it was full, without a program having been told.
    public var missed: Int

    public init(
        name: ConsumerName, filter: String, qos: QoS, givenThrough: InboxSequence = .zero, runs: [InboxRun] = [],
        missed: Int = 0
    ) {
        self.name = name
        self.filter = filter
        self.qos = qos
        self.givenThrough = givenThrough
        self.runs = runs
        self.missed = missed
    }
}
