public import SessionCore

/// The room that a session was told to switch to, which outlives the daemon, though not the boot.
public struct ChosenRoom: Hashable, Sendable {
    /// The name of the room.
    public var room: String
    /// The room that the session's file named at that time, empty for none; another one there wins.
    public var configured: String
    /// The boot within which it holds; the caller compares.
    public var bootID: String

    public init(room: String, configured: String, bootID: String) {
        self.room = room
        self.configured = configured
        self.bootID = bootID
    }
}

extension DurableStore {
    /// The room that a session was told to switch to, in whatever boot.
    public func chosenRoom(_ session: SessionName) throws(StoreError) -> ChosenRoom? {
        let database = try opened()
        guard let id = sessionIDs[session] else { return nil }
        var chosen: ChosenRoom?
        try database.query("SELECT room, configured, boot_id FROM chosen_room WHERE session = ?", .integer(id)) {
            row throws(StoreError) in
            chosen = ChosenRoom(room: row.text(0), configured: row.text(1), bootID: row.text(2))
            return false
        }
        return chosen
    }

    /// Keeps the room that a session was told to switch to, or forgets it, durably.
    public func setChosenRoom(_ session: SessionName, _ chosen: ChosenRoom?) throws(StoreError) {
        let database = try opened()
        let sessionIDsBefore = sessionIDs
        do {
            try database.transaction { () throws(StoreError) in
                guard let chosen else {
                    guard let id = sessionIDs[session] else { return }
                    return try database.run("DELETE FROM chosen_room WHERE session = ?", .integer(id))
                }
                try database.run(
                    "INSERT OR REPLACE INTO chosen_room (session, room, configured, boot_id) VALUES (?, ?, ?, ?)",
                    .integer(makeSession(session, in: database)), .text(chosen.room), .text(chosen.configured),
                    .text(chosen.bootID))
            }
        } catch {
            sessionIDs = sessionIDsBefore
            throw error
        }
    }
}
