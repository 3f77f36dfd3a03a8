package import MQTT
import NIOCore
package import SessionCore

/// A session's membership of a room: its own presence, and that of the others.
package struct RoomMembership: Sendable {
    /// How far the room is restored on the current connection.
    package enum Step: Hashable, Sendable {
        /// Nothing has to be published, or the server has answered.
        case done
        /// `online` is published once the subscriptions are restored.
        case mustAnnounce
        /// The server's answer to `online` is awaited.
        case announcing
        /// The presence is being cleared, because the session leaves.
        case leaving
    }

    package let room: Room
    package var presence: OwnPresence
    package var participants: Participants
    package var step = Step.done
    private var correction = Correction.none
    /// How many presences of displaced devices were cleared on this connection.
    private var clearings = 0
    /// More than the devices that share a client identifier. Anyone who may publish in the room could invent more.
    static let mostClearings = 8
    /// When the server refused our presence on this connection, or when it was not sent because of the server's limits, or
    /// because the server had ended earlier connections for it.
    package private(set) var refusedAt: Instant?

    /// Why our presence is refused, in words; `nil` while it is not.
    package private(set) var refusal: String?
    /// Whether the server cannot have our presence: it has been told of none, or has refused it by its own word.
    var isUntold = false
    /// Whether our presence could not be cleared when the session left: the server refused that, or takes no retained
    /// messages.
    var isKept = false

    /// Whether the server refused the subscription to the room when it last answered it.
    private var isRefused = false

    /// How far the correction of our own presence is, after someone else has changed it.
    private enum Correction: Hashable, Sendable {
        /// Can transition to: underWay.
        case none
        /// The server's answer is awaited. `again` if the presence was changed once more in the meantime. Can
        /// transition to: none, underWay.
        case underWay(again: Bool)
    }

    package init(_ room: Room, presence: OwnPresence) {
        self.room = room
        self.presence = presence
        participants = Participants(own: presence.identity)
    }

    package var topic: String { room.presenceTopic(of: presence.identity) }

    package var filter: TopicFilter {
        guard let filter = try? TopicFilter(room.presenceFilter) else {
            preconditionFailure("a room's name was checked when the configuration was read")
        }
        return filter
    }

    /// `nil` if the others do not see the session, or will not when its connection ends.
    package var standing: StandingPresence? {
        presence.lastHeard.map {
            StandingPresence(room: room, identity: presence.identity, since: presence.since, lastHeard: $0)
        }
    }

    /// Tells the others that this session is present.
    package var online: Announcement {
        Announcement(topic: topic, payload: ByteBuffer(bytes: presence.message(.online).bytes))
    }
    /// Removes the presence.
    package var cleared: Announcement { Announcement(topic: topic) }
    /// What the server tells the others when this session is away for longer than the will delay.
    package var will: Will {
        Will(
            topic: topic, payload: ByteBuffer(bytes: presence.message(.offline).bytes), qos: .atLeastOnce, retain: true,
            properties: Will.Properties(willDelay: UInt32(clamping: presence.willDelay.components.seconds)))
    }

    /// The result of a presence message.
    package enum Outcome: Hashable, Sendable {
        case changes([Participants.Change])
        /// Our own presence was removed, or set to offline by a late will, although the session is present.
        case mustCorrect
        /// The same as `changes`, and a displaced device has left its presence behind under this topic.
        case mustClear(String, [Participants.Change])
    }

    /// - Returns: `nil` when the message is not a presence of this room.
    package mutating func received(_ message: MQTTClientMachine.InboundMessage) -> Outcome? {
        guard let identity = room.participant(ofPresence: message.topic) else { return nil }
        let content = PresenceMessage(message.payload.readableBytesView, of: identity)
        if let content, identity.isOfSameUser(as: presence.identity) { presence.noteSeen(content, isConnected: true) }
        let change = participants.received(content, of: identity, isRetained: message.retain)
        guard identity == presence.identity, !message.retain else {
            let changes = change.map { [$0] } ?? []
            return leavesBehind(content, message) ? .mustClear(message.topic, changes) : .changes(changes)
        }
        // Retained messages come before anything that was published after the subscription: our own message marks their
        // end.
        if presence.isOwn(content) { return .changes(participants.endSnapshot()) }
        // What the server has refused is announced again later: see `takeRefusal`.
        guard content?.state != .online, step == .done, refusedAt == nil else { return .changes([]) }
        switch correction {
        case .none:
            correction = .underWay(again: false)
            return .mustCorrect
        case .underWay:
            correction = .underWay(again: true)
            return .changes([])
        }
    }

    /// Whether the message is the presence of a device that could not remove it when this session displaced it.
    private mutating func leavesBehind(
        _ content: PresenceMessage?, _ message: MQTTClientMachine.InboundMessage
    ) -> Bool {
        guard message.retain, let content, content.identity.isOfSameUser(as: presence.identity),
            presence.hasDisplaced(content), clearings < Self.mostClearings
        else { return false }
        clearings += 1
        return true
    }

    /// Takes the server's answer to the subscription to the room.
    ///
    /// - Returns: whether to announce our presence again: after an earlier refusal, no message of ours has marked the end of
    ///   the retained ones.
    package mutating func subscribed(isRefused: Bool) -> Bool {
        defer { self.isRefused = isRefused }
        // What changes from now on is not heard.
        if isRefused, participants.isKnown { participants.beginSnapshot() }
        guard self.isRefused, !isRefused, !participants.isKnown else { return false }
        return step == .done || step == .announcing
    }

    /// How long a presence that was refused is not announced again.
    package static let patience: Duration = .seconds(610)

    /// Returns whether to announce our presence again: what the server refuses may change.
    package mutating func takeRefusal(at now: Instant) -> Bool {
        guard step == .done, let since = refusedAt, since.duration(to: now) >= Self.patience else { return false }
        refusedAt = nil
        return true
    }

    /// Takes the server's answer to our presence.
    ///
    /// - Returns: whether it has to be corrected once more.
    package mutating func presenceAnswered(_ answer: ServerAnswer, at now: Instant) -> Bool {
        let isRefused = answer.isRefusal
        refusedAt = isRefused ? now : nil
        refusal = isRefused ? answer.words : nil
        if !isRefused { isUntold = false }
        let isStale = !isRefused && correction == .underWay(again: true)
        correction = isStale ? .underWay(again: false) : .none
        return isStale
    }

    package mutating func connectionClosed() {
        presence.connectionClosed()
        correction = .none
        clearings = 0
        (refusedAt, refusal) = (nil, nil)
        // What is unanswered may have arrived.
        isUntold = false
        step = .done
    }
}
