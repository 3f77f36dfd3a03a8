package import ControlAPI

/// Who is in a room, at one moment. Copying it costs nothing, so the event loop need not wait until a long list is put in
/// order.
package struct Roster: Sendable {
    let room: Room
    let participants: Participants
    let isComplete: Bool

    /// How long the list is as JSON, about.
    package var length: Int { participants.listLength }

    /// The list for programs. With thousands of participants this takes many milliseconds.
    package var result: RoomParticipantsMethod.Result {
        RoomParticipantsMethod.Result(
            room: room.name,
            participants: participants.list.map {
                RoomParticipant(
                    user: $0.identity.user, device: $0.identity.device, state: .online, since: $0.since,
                    quality: $0.quality)
            },
            complete: isComplete)
    }
}
