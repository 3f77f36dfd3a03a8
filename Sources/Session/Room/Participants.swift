package import ControlAPI
package import Vocabulary

/// Somebody in a room.
package struct Participant: Hashable, Sendable {
    package struct Identity: Hashable, Sendable, Comparable {
        package var user: String
        package var device: String

        package init(user: String, device: String) {
            self.user = user
            self.device = device
        }

        package static func < (left: Identity, right: Identity) -> Bool {
            (left.user, left.device) < (right.user, right.device)
        }
    }

    package var identity: Identity
    /// Since when the participant is there, by the participant's own clock.
    package var since: RFC3339?
    /// Of the participant's own connection, as it says itself.
    package var quality: Quality?
}

/// Who is in a room, as the retained presence messages tell it.
///
/// A participant is there while the retained message says `online`. Nothing changes during a short outage: the server
/// keeps the message until the participant's will sets `offline` after the presence timeout, or the participant clears it.
///
/// The server sends the retained messages once when the room is subscribed to: the snapshot. It changes the list without
/// being news the first time; later, what differs from the list happened while we were away, and is told.
package struct Participants: Hashable, Sendable {
    package enum Change: Hashable, Sendable {
        case joined(Participant.Identity)
        case changed(Participant.Identity, Quality)
        case left(Participant.Identity, RoomParticipant.Departure)
    }

    private enum Phase: Hashable, Sendable {
        /// Nothing is known. Can transition to: filling.
        case unknown
        /// The snapshot arrives; these were there before, and were not confirmed yet. Can transition to: known.
        case filling(missing: Set<Participant.Identity>, isFirst: Bool)
        /// Can transition to: filling.
        case known
    }

    private var present: [Participant.Identity: Participant] = [:]
    private var phase = Phase.unknown
    private let own: Participant.Identity
    /// How many are kept, and told of.
    package static let maximumCount = 10_000
    /// Whether all that were heard of are in the list.
    package private(set) var isComplete = true

    /// - Parameter own: whose joining and leaving is no news.
    package init(own: Participant.Identity) {
        self.own = own
    }

    /// Ordered by user and device.
    package var list: [Participant] { present.values.sorted { $0.identity < $1.identity } }

    /// Whether all of the list was confirmed since the last connection.
    package var isKnown: Bool { phase == .known }

    /// Whether there is a list at all; after a reconnect it is the one from before until the server has told it again.
    package var hasList: Bool {
        switch phase {
        case .unknown, .filling(_, isFirst: true): false
        case .filling(_, isFirst: false), .known: true
        }
    }

    /// The retained messages are about to be sent.
    package mutating func beginSnapshot() {
        let isFirst =
            switch phase {
            case .unknown: true
            case .filling(_, let isFirst): isFirst
            case .known: false
            }
        phase = .filling(missing: Set(present.keys), isFirst: isFirst)
        isComplete = true
    }

    /// All retained messages were sent: who was not among them is not there any more.
    package mutating func endSnapshot() -> [Change] {
        guard case .filling(let missing, _) = phase else { return [] }
        phase = .known
        for identity in missing { present[identity] = nil }
        return missing.filter { $0 != own }.sorted().map { .left($0, .left) }
    }

    /// - Parameters:
    ///   - message: `nil` when the presence was cleared.
    ///   - isRetained: whether the server had kept it: part of the snapshot.
    package mutating func received(
        _ message: PresenceMessage?, of identity: Participant.Identity, isRetained: Bool
    ) -> Change? {
        var isSilent = identity == own
        if case .filling(var missing, let isFirst) = phase {
            missing.remove(identity)
            phase = .filling(missing: missing, isFirst: isFirst)
            isSilent = isSilent || (isFirst && isRetained)
        }
        if let message, message.state == .online {
            // Whoever may publish in the room could invent as many as memory holds.
            guard present.count < Self.maximumCount || present[identity] != nil else {
                isComplete = false
                return nil
            }
            let before = present.updateValue(
                Participant(identity: identity, since: message.since, quality: message.quality), forKey: identity)
            guard !isSilent else { return nil }
            guard let before else { return .joined(identity) }
            return message.quality.flatMap { $0 == before.quality ? nil : .changed(identity, $0) }
        }
        let wasPresent = present.removeValue(forKey: identity) != nil
        return wasPresent && identity != own ? .left(identity, message == nil ? .left : .lost) : nil
    }
}
