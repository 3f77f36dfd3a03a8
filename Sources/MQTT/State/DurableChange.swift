/// One change of a session's durable state, for the store to carry out.
///
/// The changes of one `commit` action are atomic and in order; commits complete in the order of their numbers. A change
/// of a row that is not there does nothing, and is not an error (its insert may have been refused for lack of space).
public enum DurableChange: Hashable, Sendable {
    /// A new message, `queued` or already `inFlight`.
    case insert(StoredMessage)
    /// queued → inFlight: before the PUBLISH is sent.
    case assign(MessageSequence, PacketID)
    /// inFlight → queued: the server lost the session, or has no room; the message goes out as a new one.
    case unassign(MessageSequence)
    /// inFlight → released: before the PUBREL is sent. The payload is no longer needed.
    case release(MessageSequence)
    /// The message is done: dropped, or sent with QoS 0.
    case remove(MessageSequence)
    /// The message is done: the server has acknowledged it. Removed as by `remove`, but the commit need not wait for the
    /// disk: if power loss takes the change back, the message is published or released once more, as QoS 1 and 2 allow.
    case acknowledge(MessageSequence)
    /// The message was published with this key, in the same commit. It needs room, like an insert.
    case rememberKey(PublishKey, MessageSequence, at: Timestamp)
    /// What became of a message that was published with a key; does nothing for a message without one. It is in the
    /// commit that removes the message. The key is remembered from then on.
    case concludeKey(MessageSequence, PublishOutcome, at: Timestamp)
    /// Any state → quarantined, with the server's reason code, if it gave one, and a sentence.
    case quarantine(MessageSequence, ReasonCode?, String)
    /// quarantined → queued under a new sequence, the last one, with the payload it has, and accepted now. Needs no room,
    /// so it is not an insert.
    case requeue(MessageSequence, as: MessageSequence, at: Timestamp)
    /// The wall clock was set forward by this many milliseconds: the times of all messages accepted within the range,
    /// by the clock as it was, move along, and with them the age of their keys.
    case shiftTimes(by: Int64, acceptedWithin: ClosedRange<Timestamp>)
    /// An inbound QoS 2 identifier is in use: before the PUBREC is sent. No error if it is there already.
    case insertInbound(PacketID)
    /// An inbound QoS 2 identifier is free: before the PUBCOMP is sent.
    case removeInbound(PacketID)
    case removeAllInbound
    /// The server may hold on to an identifier of ours with which nothing is in flight: it is not used in this session
    /// again.
    case retireIdentifier(PacketID)
    /// The server may hold something under an identifier of ours with which nothing is in flight: it is asked to release
    /// it.
    case suspectIdentifier(PacketID)
    /// The server has said that it holds nothing under an identifier that it might have held something under.
    case clearSuspect(PacketID)
    /// The server's session is a new one, and no identifier is retired or suspect.
    case freeRetiredIdentifiers
    /// The server may from now on hold this subscription: before the SUBSCRIBE is sent. No error if it is there already.
    case rememberSubscription(TopicFilter)
    /// The server does not hold this subscription, or no longer does.
    case forgetSubscription(TopicFilter)
    case forgetAllSubscriptions
    /// A message for durable consumers, before it is acknowledged; with QoS 2 also its identifier, both or neither. It
    /// needs room, like an insert. Consumers that do not exist are ignored.
    case collect(CollectedMessage, for: [ConsumerName], PacketID?)
    /// The consumer has taken the message.
    case removeCollected(InboxSequence, ConsumerName)
    /// The oldest messages of the consumer, up to this one, are dropped without having been taken, for a message that is
    /// collected in the same commit. It needs room, like that: without the new message, nothing is dropped.
    case dropCollected(ConsumerName, through: InboxSequence, count: Int)
    /// A program was told about this many missed messages; they are not reported again.
    case toldMissed(ConsumerName, Int)
    /// A durable consumer is new, or has another filter (as it was given) or QoS.
    case putConsumer(ConsumerName, filter: String, QoS)
    /// The durable consumer is gone, with everything that waits for it.
    case removeConsumer(ConsumerName)
    /// Messages up to this one may have been given to a program of the consumer.
    case setGiven(ConsumerName, through: InboxSequence)
    /// The client identifier that the server gave us; used from now on.
    case setAssignedClientID(String)
    /// The client identifier that the session at the server belongs to.
    case setClientID(String)
    /// Whether we may claim a session at the server: Clean Start is 0 if so.
    case setEstablished(Bool)
}
