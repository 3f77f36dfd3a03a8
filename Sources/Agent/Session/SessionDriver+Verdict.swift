import Configuration
import ControlAPI
import Session

// The room that the session was told to switch to. It survives restarts of the daemon within a boot.

extension SessionDriver {
    /// Returns the chosen room if it still holds: a reboot ends it, and so does a file that now names another room.
    func takeUp(_ chosen: ChosenRoom?) -> ChosenRoom? {
        guard let chosen else { return nil }
        if chosen.bootID == surroundings.bootID, chosen.configured == configuration.room { return chosen }
        commit([.setChosenRoom(nil)])
        return nil
    }

    func rememberRoom(_ room: String) async throws(RPCError) {
        commit([
            .setChosenRoom(ChosenRoom(room: room, configured: configuration.room, bootID: surroundings.bootID))
        ])
        try await everythingRemembered("session \(name) is in the room \(room)")
    }
}
