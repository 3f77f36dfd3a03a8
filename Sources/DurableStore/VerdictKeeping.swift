internal import MQTT
public import SessionCore

extension DurableStore {
    /// The verdict about a session, of whatever boot.
    public func verdict(_ session: SessionName) throws(StoreError) -> Verdict? {
        let database = try opened()
        guard let id = sessionIDs[session] else { return nil }
        var verdict: Verdict?
        try database.query(
            """
            SELECT state, reason_code, message, server_code, boot_id, since, configuration, credential
            FROM verdict WHERE session = ?
            """,
            .integer(id)
        ) { row throws(StoreError) in
            verdict = Verdict(
                state: row.text(0), reasonCode: row.text(1), message: row.text(2),
                serverCode: row.optionalInteger(3).flatMap { UInt8(exactly: $0) }, bootID: row.text(4),
                since: .init(rawValue: row.integer(5)), configuration: row.optionalText(6),
                credential: row.optionalText(7))
            return false
        }
        return verdict
    }

    /// Keeps the verdict about a session, or forgets it, durably.
    public func setVerdict(_ session: SessionName, _ verdict: Verdict?) throws(StoreError) {
        let database = try opened()
        let sessionIDsBefore = sessionIDs
        do {
            try database.transaction { () throws(StoreError) in
                guard let verdict else {
                    guard let id = sessionIDs[session] else { return }
                    return try database.run("DELETE FROM verdict WHERE session = ?", .integer(id))
                }
                try database.run(
                    """
                    INSERT OR REPLACE INTO verdict
                        (session, state, reason_code, message, server_code, boot_id, since, configuration, credential)
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
                    """,
                    .integer(makeSession(session, in: database)), .text(verdict.state), .text(verdict.reasonCode),
                    .text(verdict.message), .optional(verdict.serverCode), .text(verdict.bootID),
                    .integer(verdict.since.rawValue), .optional(verdict.configuration), .optional(verdict.credential))
            }
        } catch {
            sessionIDs = sessionIDsBefore
            throw error
        }
    }
}
