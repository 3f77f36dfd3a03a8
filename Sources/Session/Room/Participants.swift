package import ControlAPI

/// A member of a room.
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
    /// When the participant joined, by the participant's own clock.
    package var since: Timestamp?
    /// The quality of the participant's own connection, as it reports it.
    package var quality: Quality?
}

/// Who is in a room, according to the retained presence messages.
///
/// A participant is present while the retained message says `online`. Nothing changes during a short outage: the server
/// keeps the message until the participant's will sets `offline` after the presence timeout, or the participant clears
/// it.
///
/// The server sends the retained messages once when the session subscribes to the room: the snapshot. The first
/// snapshot fills the list without being reported. In later ones, what differs from the list happened while the session
/// was away, and is reported.
package struct Participants: Hashable, Sendable {
    package enum Change: Hashable, Sendable {
        case joined(Participant.Identity)
        case changed(Participant.Identity, Quality)
        case left(Participant.Identity, RoomParticipant.Departure)
    }

    private enum Phase: Hashable, Sendable {
        /// Nothing is known yet. Can transition to: filling.
        case unknown
        /// The snapshot is arriving; `missing` were present before, and are not confirmed yet. Can transition to:
        /// known.
        case filling(missing: Set<Participant.Identity>, isFirst: Bool)
        /// Can transition to: filling.
        case known
    }

    private var present: [Participant.Identity: Participant] = [:]
    private var phase = Phase.unknown
    private let own: Participant.Identity
    /// How many participants are kept and reported.
    package static let maximumCount = 10_000
    /// Whether all participants that were heard of are in the list.
    package private(set) var isComplete = true

    /// - Parameter own: the session's own identity, whose joining and leaving is not reported.
    package init(own: Participant.Identity) {
        self.own = own
    }

    /// Ordered by user and device.
    package var list: [Participant] { present.values.sorted { $0.identity < $1.identity } }

    /// Whether the whole list is confirmed: the last snapshot is complete.
    package var isKnown: Bool { phase == .known }

    /// Whether there is a list at all. After a reconnect it is the old list, until the server has sent it all again.
    package var hasList: Bool {
        switch phase {
        case .unknown, .filling(_, isFirst: true): false
        case .filling(_, isFirst: false), .known: true
        }
    }

    /// The server is about to send the retained messages.
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

    /// All retained messages have arrived: a participant without one is gone.
    package mutating func endSnapshot() -> [Change] {
        guard case .filling(let missing, _) = phase else { return [] }
        phase = .known
        for identity in missing { present[identity] = nil }
        return missing.filter { $0 != own }.sorted().map { .left($0, .left) }
    }

    /// - Parameters:
    ///   - message: `nil` when the presence was cleared.
    ///   - isRetained: whether the server had retained it, so that it is part of the snapshot.
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
            // Anyone who may publish in the room could invent enough participants to fill the memory.
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
