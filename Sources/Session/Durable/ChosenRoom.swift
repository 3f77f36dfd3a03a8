/// The room that a session was told to switch to, which outlives the daemon, though not the boot.
package struct ChosenRoom: Hashable, Sendable {
    /// The name of the room.
    package var room: String
    /// The room that the session's file named at that time, empty for none; another one there wins.
    package var configured: String
    /// The boot within which it holds; the caller compares.
    package var bootID: String

    package init(room: String, configured: String, bootID: String) {
        self.room = room
        self.configured = configured
        self.bootID = bootID
    }
}
