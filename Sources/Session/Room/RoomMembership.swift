import ControlAPI
package import MQTT
import NIOCore
package import SessionCore

/// A session's being in a room: its own presence, and the others'.
package struct RoomMembership: Sendable {
    /// How far the room is restored on the present connection.
    package enum Step: Hashable, Sendable {
        /// Nothing has to be published, or it was.
        case done
        /// `online` is published when the subscriptions are restored.
        case mustAnnounce
        /// The server has to answer.
        case announcing
        /// The presence is cleared, for good.
        case leaving
    }

    package let room: Room
    package var presence: OwnPresence
    package var participants: Participants
    package var step = Step.done
    private var correction = Correction.none
    /// When the server did not take our presence on this connection, or it was not asked to because it had ended others.
    package private(set) var refusedAt: Instant?

    /// How far the correction of our own presence is, when somebody else has changed it.
    private enum Correction: Hashable, Sendable {
        /// Can transition to: underWay.
        case none
        /// The server has to answer. `again` if it was changed once more meanwhile. Can transition to: none, underWay.
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

    /// What tells the others that this session is there.
    package var online: Announcement {
        Announcement(topic: topic, payload: ByteBuffer(bytes: presence.message(.online).bytes))
    }
    /// What removes the presence.
    package var cleared: Announcement { Announcement(topic: topic) }
    /// What the server tells the others when this session is away for longer than the will delay.
    package var will: Will {
        Will(
            topic: topic, payload: ByteBuffer(bytes: presence.message(.offline).bytes), qos: .atLeastOnce, retain: true,
            properties: Will.Properties(willDelay: UInt32(clamping: presence.willDelay.components.seconds)))
    }

    /// What a presence message leads to.
    package enum Outcome: Hashable, Sendable {
        case changes([Participants.Change])
        /// Our own presence was removed or set to offline by a late will, and is not true.
        case mustCorrect
    }

    /// - Returns: `nil` when the message is no presence of this room.
    package mutating func received(_ message: MQTTClientMachine.InboundMessage) -> Outcome? {
        guard let identity = room.participant(ofPresence: message.topic) else { return nil }
        let content = PresenceMessage(message.payload.readableBytesView, of: identity)
        if let content, identity.user == presence.identity.user { presence.noteSeen(content) }
        let change = participants.received(content, of: identity, isRetained: message.retain)
        guard identity == presence.identity, !message.retain else { return .changes(change.map { [$0] } ?? []) }
        // Retained messages come before what is published after the subscription: our own message is their end.
        if presence.isOwn(content) { return .changes(participants.endSnapshot()) }
        guard content?.state != .online, step == .done else { return .changes([]) }
        switch correction {
        case .none:
            correction = .underWay(again: false)
            return .mustCorrect
        case .underWay:
            correction = .underWay(again: true)
            return .changes([])
        }
    }

    /// So long nothing is said about a presence that was refused.
    package static let patience: Duration = .seconds(610)

    /// Whether the server is to be told of our presence once more: what it refuses may change.
    package mutating func takeRefusal(at now: Instant) -> Bool {
        guard step == .done, let since = refusedAt, since.duration(to: now) >= Self.patience else { return false }
        refusedAt = nil
        return true
    }

    /// The server has answered our presence.
    ///
    /// - Returns: whether it has to be corrected once more.
    package mutating func presenceAnswered(isRefused: Bool, at now: Instant) -> Bool {
        refusedAt = isRefused ? now : nil
        let isStale = correction == .underWay(again: true)
        correction = isStale ? .underWay(again: false) : .none
        return isStale
    }

    package mutating func connectionClosed() {
        presence.connectionClosed()
        correction = .none
        refusedAt = nil
        step = .done
    }
}
