import SessionCore

/// The presence of a session while one driver of it has stopped and the next one has not connected yet: the others in the
/// room still see it.
package struct StandingPresence: Hashable, Sendable {
    let room: Room
    let identity: Participant.Identity
    /// When the session joined the room.
    let since: Timestamp
    let lastHeard: Instant
}
