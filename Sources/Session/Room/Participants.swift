package import ControlAPI

/// A member of a room.
package struct Participant: Hashable, Sendable {
    /// Compared byte by byte, as topics are: two names that look the same are different participants.
    package struct Identity: Sendable {
        package var user: String
        package var device: String

        package init(user: String, device: String) {
            self.user = user
            self.device = device
        }

        fileprivate var bytes: Int { user.utf8.count + device.utf8.count }

        func isOfSameUser(as other: Identity) -> Bool { user.utf8.elementsEqual(other.user.utf8) }
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
    /// How many bytes the names of all participants have.
    private var bytes = 0
    private var phase = Phase.unknown
    private let own: Participant.Identity
    /// Whether the server has not sent our own presence in this snapshot, which it had before: it has lost its retained
    /// messages, or is another one, and so does not say who has left.
    private var isForgotten = false
    /// How many participants are listed and reported, and how many bytes their names may have. Anyone who may publish
    /// in the room could invent enough participants to fill the memory.
    package static let maximumCount = 10_000
    static let maximumBytes = 1 << 20
    /// Whether everyone is in the list. What is left out of it stays out until the next snapshot.
    package private(set) var isComplete = true

    /// - Parameter own: the session's own identity, whose joining and leaving is not reported.
    package init(own: Participant.Identity) {
        self.own = own
    }

    /// Ordered by user and device.
    package var list: [Participant] { present.values.sorted { $0.identity < $1.identity } }

    /// How long the list is as JSON, about.
    package var listLength: Int { present.count * 110 + bytes }

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
        isForgotten = present[own] != nil
        isComplete = true
    }

    /// All retained messages have arrived: a participant without one is gone.
    package mutating func endSnapshot() -> [Change] {
        guard case .filling(let missing, _) = phase else { return [] }
        phase = .known
        for identity in missing { _ = remove(identity) }
        return missing.filter { $0 != own }.sorted().map { .left($0, isForgotten ? .lost : .left) }
    }

    /// - Parameters:
    ///   - message: `nil` when the presence was cleared.
    ///   - isRetained: whether the server had retained it, so that it is part of the snapshot.
    package mutating func received(
        _ message: PresenceMessage?, of identity: Participant.Identity, isRetained: Bool
    ) -> Change? {
        var isSilent = identity == own
        if isSilent, isRetained { isForgotten = false }
        if case .filling(var missing, let isFirst) = phase {
            missing.remove(identity)
            phase = .filling(missing: missing, isFirst: isFirst)
            isSilent = isSilent || (isFirst && isRetained)
        }
        if let message, message.state == .online {
            let before = present[identity]
            guard before != nil || admit(identity) else {
                isComplete = false
                return nil
            }
            present[identity] = Participant(identity: identity, since: message.since, quality: message.quality)
            guard !isSilent else { return nil }
            guard let before else { return .joined(identity) }
            return message.quality.flatMap { $0 == before.quality ? nil : .changed(identity, $0) }
        }
        let wasPresent = remove(identity)
        return wasPresent && identity != own ? .left(identity, message == nil ? .left : .lost) : nil
    }

    /// - Returns: whether there is room for one more participant.
    private mutating func admit(_ identity: Participant.Identity) -> Bool {
        guard present.count < Self.maximumCount, bytes + identity.bytes <= Self.maximumBytes else { return false }
        bytes += identity.bytes
        return true
    }

    /// - Returns: whether the participant was in the list.
    private mutating func remove(_ identity: Participant.Identity) -> Bool {
        guard present.removeValue(forKey: identity) != nil else { return false }
        bytes -= identity.bytes
        return true
    }
}

extension Participant.Identity: Hashable, Comparable {
    package static func == (left: Self, right: Self) -> Bool {
        left.isOfSameUser(as: right) && left.device.utf8.elementsEqual(right.device.utf8)
    }

    package func hash(into hasher: inout Hasher) {
        for var text in [user, device] {
            text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
            // Where one ends and the other begins makes a difference.
            hasher.combine(UInt8.max)
        }
    }

    package static func < (left: Self, right: Self) -> Bool {
        guard left.isOfSameUser(as: right) else {
            return left.user.utf8.lexicographicallyPrecedes(right.user.utf8)
        }
        return left.device.utf8.lexicographicallyPrecedes(right.device.utf8)
    }
}
