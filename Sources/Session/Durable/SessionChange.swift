package import MQTT

/// One change of a session's durable state, for the store to carry out: the protocol's own, or one of the values in
/// this module. All changes go through the commit queue, in the order in which they were decided.
///
/// Changing a row that does not exist does nothing and is not an error.
package enum SessionChange: Hashable, Sendable {
    /// A change of the protocol's rows: messages, identifiers, subscriptions, inboxes.
    case mqtt(DurableChange)
    /// The servers that have the session or may have an older copy of it, beginning with the one that has it.
    case setHomes([SessionHome])
    /// When the session joined its room, now and in its earlier presences. Stored before the presence is published.
    case setPresences(Set<Timestamp>)
    /// The topics on which a server may hold a presence of the session. Stored before the presence is published.
    case setPresenceTopics(Set<String>)
    /// A publication is new, or its content has changed. It needs room, like a new message.
    case putPublication(Publication)
    /// The session has no publication with this topic, or no longer has one. The topic is as the program gave it.
    case removePublication(String)
    /// The server may hold a retained message of the session on this topic from now on. Stored before the message is
    /// sent.
    case rememberRetained(String)
    /// The server holds no retained message of the session on this topic, or no longer holds one.
    case forgetRetained(String)
    /// What was decided about the session for the rest of this boot; `nil` when that no longer holds.
    case setVerdict(Verdict?)
    /// The room that the session was told to switch to; `nil` for the configured one.
    case setChosenRoom(ChosenRoom?)

    /// Whether the store may refuse the change when there is no room, with the others of its commit that need room. All
    /// others must become durable, however long that takes.
    package var needsRoom: Bool {
        switch self {
        case .mqtt(.insert), .mqtt(.collect), .mqtt(.dropCollected), .mqtt(.rememberKey), .putPublication: true
        default: false
        }
    }
}
