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
            switch change {
            case .joined(let who): report(.participantJoined, of: who)
            case .changed(let who, let quality): report(.participantChanged, of: who) { $0.quality = quality }
            case .left(let who, let cause): report(.participantLeft, of: who) { $0.cause = cause }
            }
        }
    }

    private func report(
        _ kind: SessionEvent.Kind, of participant: Participant.Identity,
        _ fill: (inout SessionEvent) -> Void = { _ in }
    ) {
        report(kind) { event in
            event.user = participant.user
            event.device = participant.device
            fill(&event)
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
