import Configuration
import ControlAPI
import MQTT
import Session
import SessionCore

// The session's room: what programs are told about it, and how they switch to another one.

extension SessionDriver {
    /// The configured device, or the one that is derived from the machine.
    var device: String { configuration.device.isEmpty ? surroundings.deviceID : configuration.device }

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

    /// Joins another room, then leaves the old one. If the server refuses, the session stays where it is.
    func switchRoom(to room: String) async throws(RPCError) -> SessionSwitchRoomMethod.Result {
        try checkRunning()
        let result: Result<Void, RPCError> = await withCheckedContinuation { continuation in
            let call = programs.switching.add { continuation.resume(returning: $0) }
            run(.join(room, call))
        }
        try result.get()
        try await everythingRemembered("session \(name) is in the room \(room)")
        return .init(room: room)
    }
}
