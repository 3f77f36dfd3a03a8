package import MQTT

/// One change of what is durable of a session, for the store to carry out: the protocol's own, and those of the values in
/// this module. All of them go the same way, in the order in which they were decided, through the commit queue.
///
/// A change of a row that is not there does nothing and is no error.
package enum SessionChange: Hashable, Sendable {
    /// Of the protocol: messages, identifiers, subscriptions, inboxes.
    case mqtt(DurableChange)
    /// The servers that have the session, or may have an old copy of it, as their addresses: first the one that it is at.
    case setHomes([String])
    /// Since when the session is in its room, now and as it said before: when the presence is about to be published.
    case setPresences(Set<Timestamp>)
    /// A publication of the session is new, or its content is. It needs room, like a new message.
    case putPublication(Publication)
    /// The session has no publication with this topic (any more); the topic as it was given.
    case removePublication(String)
    /// The server may from now on hold a retained message of the session on this topic: before it is sent.
    case rememberRetained(String)
    /// The server holds no retained message of the session on this topic (any more).
    case forgetRetained(String)
    /// What was decided about the session, to hold within this boot; `nil` when that is over.
    case setVerdict(Verdict?)
    /// The room that the session was told to switch to; `nil` for the configured one.
    case setChosenRoom(ChosenRoom?)

    /// Whether it is refused when there is no room. Everything else must become durable, however long that takes.
    package var needsRoom: Bool {
        switch self {
        case .mqtt(.insert), .mqtt(.collect), .mqtt(.rememberKey), .putPublication: true
        default: false
        }
    }
}
