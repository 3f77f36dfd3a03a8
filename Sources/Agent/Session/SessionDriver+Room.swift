import Configuration
import ControlAPI
import MQTT
import Session
import SessionCore

// The session's room: what programs ask about it, and what they are told.

extension SessionDriver {
    /// The configured device, or the one that is derived from the machine.
    var device: String { configuration.device.isEmpty ? surroundings.deviceID : configuration.device }

    /// Returns the chosen room if it still holds: a reboot ends it, and so does a file that now names another room.
    func takeUp(_ chosen: ChosenRoom?) -> ChosenRoom? {
        guard let chosen else { return nil }
        if chosen.bootID == surroundings.bootID, chosen.configured == configuration.room { return chosen }
        commit([.setChosenRoom(nil)])
        return nil
    }

    /// Enters the configured room, or the one that the session was told to switch to since. If the session was in
    /// another room when the daemon was killed, it leaves that one.
    func enterRoom(_ chosen: ChosenRoom?, remembered: Set<TopicFilter>) {
        let room = chosen.map { Room(prefix: configuration.roomPrefix, name: $0.room) } ?? configuration.configuredRoom
        ask { $0.begin(in: room, subscribedTo: remembered) }
        run()
    }

    /// Returns the topic or filter as the server has it.
    func resolve(_ text: String) throws(RPCError) -> String {
        guard Room.isRelative(text) else { return text }
        do throws(Room.Unresolved) {
            return try Room.resolve(text, in: session.room)
        } catch {
            switch error {
            case .noRoom:
                throw RPCError(
                    .invalidTopic, "\(text) is relative to a room, and session \(name) is in none",
                    hint: "set room in the session's file, or: holdfastctl switch-room \(name) ROOM")
            case .empty:
                throw .invalidTopic(text, "there is nothing after ~/")
            }
        }
    }

    func tell(_ changes: [Participants.Change]) {
        for change in changes {
            let identity: Participant.Identity
            var event = self.event(.participantJoined)
            switch change {
            case .joined(let who):
                identity = who
            case .changed(let who, let quality):
                identity = who
                event.event = .participantChanged
                event.quality = quality
            case .left(let who, let cause):
                identity = who
                event.event = .participantLeft
                event.cause = cause
            }
            event.user = identity.user
            event.device = identity.device
            report(event)
        }
    }

    /// Returns who is in the room.
    func participants() throws(RPCError) -> RoomParticipantsMethod.Result {
        guard let membership = session.rooms.membership else {
            throw .wrongState(
                name.description, is: "in no room",
                hint: "set room in the session's file, or: holdfastctl switch-room \(name) ROOM")
        }
        let state = session.state
        guard state == .connected || state == .reconnecting else { throw .notConnected(name.description) }
        guard membership.participants.hasList else {
            throw .wrongState(
                name.description, is: "not told who is in its room",
                hint: "it is told shortly after connecting, unless the server refuses "
                    + "\(membership.room.presenceFilter)")
        }
        return RoomParticipantsMethod.Result(
            room: membership.room.name,
            participants: membership.participants.list.map {
                RoomParticipant(
                    user: $0.identity.user, device: $0.identity.device, state: .online, since: $0.since,
                    quality: $0.quality)
            })
    }

    // MARK: Switching

    /// Joins another room, then leaves the old one. If the server refuses, the session stays where it is.
    func switchRoom(to room: String) async throws(RPCError) -> SessionSwitchRoomMethod.Result {
        try checkRunning()
        guard Room.isValid(room) else {
            throw .invalidParameters("a room is levels of a topic, none of them empty, without + and #")
        }
        let new = Room(prefix: configuration.roomPrefix, name: room)
        guard Room.isLevel(configuration.user), Room.isLevel(device) else {
            throw .badConfiguration("in a room, user and device are levels of a topic: without /, + and #")
        }
        guard session.state == .connected else {
            throw .notConnected(name.description, hint: "a session changes its room while it is connected")
        }
        guard !session.rooms.isChanging else {
            throw .tooManyRequests("session \(name) is changing its room")
        }
        guard new != session.room else {
            // The program may be asking again because the room could not be remembered.
            try await rememberRoom(room)
            return .init(room: room)
        }
        let result: Result<Void, RPCError> = await withCheckedContinuation { continuation in
            let call = programs.switching.add { continuation.resume(returning: $0) }
            run(.join(new, call))
        }
        try result.get()
        try await rememberRoom(room)
        return .init(room: room)
    }

    /// Makes the choice survive restarts of the daemon within a boot.
    private func rememberRoom(_ room: String) async throws(RPCError) {
        commit([
            .setChosenRoom(ChosenRoom(room: room, configured: configuration.room, bootID: surroundings.bootID))
        ])
        try await everythingRemembered("session \(name) is in the room \(room)")
    }
}
