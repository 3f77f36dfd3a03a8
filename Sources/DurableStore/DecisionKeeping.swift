internal import MQTT
internal import Session

/// The decisions about a session that outlive the daemon: the verdict, and the room that it was told to switch to.
extension DurableStore {
    func readDecisions(of session: Int64, into stored: inout StoredSession) throws(StoreError) {
        let database = try opened()
        stored.verdict = try database.rows(
            """
            SELECT state, reason_code, message, server_code, boot_id, since, configuration, credential
            FROM verdict WHERE session = ?
            """,
            .integer(session)
        ) { row in
            Verdict(
                state: row.text(0), reasonCode: row.text(1), message: row.text(2),
                serverCode: row.optionalInteger(3).flatMap { UInt8(exactly: $0) }, bootID: row.text(4),
                since: row.time(5), configuration: row.optionalText(6),
                rejectedFile: row.optionalText(7))
        }.first
        stored.chosenRoom = try database.rows(
            "SELECT room, configured, boot_id FROM chosen_room WHERE session = ?", .integer(session)
        ) { ChosenRoom(room: $0.text(0), configured: $0.text(1), bootID: $0.text(2)) }.first
    }

    func setVerdict(_ verdict: Verdict?, _ session: Int64, _ database: Database) throws(StoreError) {
        guard let verdict else {
            return try database.run("DELETE FROM verdict WHERE session = ?", .integer(session))
        }
        try database.run(
            """
            INSERT OR REPLACE INTO verdict
                (session, state, reason_code, message, server_code, boot_id, since, configuration, credential)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            .integer(session), .text(verdict.state), .text(verdict.reasonCode), .text(verdict.message),
            .optional(verdict.serverCode), .text(verdict.bootID), .integer(verdict.since.rawValue),
            .optional(verdict.configuration), .optional(verdict.rejectedFile))
    }

    func setChosenRoom(_ chosen: ChosenRoom?, _ session: Int64, _ database: Database) throws(StoreError) {
        guard let chosen else {
            return try database.run("DELETE FROM chosen_room WHERE session = ?", .integer(session))
        }
        try database.run(
            "INSERT OR REPLACE INTO chosen_room (session, room, configured, boot_id) VALUES (?, ?, ?, ?)",
            .integer(session), .text(chosen.room), .text(chosen.configured), .text(chosen.bootID))
    }
}
