/// The room that a session was told to switch to. It survives restarts of the daemon, but not a reboot.
package struct ChosenRoom: Hashable, Sendable {
    /// The name of the room.
    package var room: String
    /// The room that the session's file named at that time, empty for none. If the file names another room now, that
    /// one is used.
    package var configured: String
    /// The boot that the choice is valid for.
    package var bootID: String

    package init(room: String, configured: String, bootID: String) {
        self.room = room
        self.configured = configured
        self.bootID = bootID
    }
}
