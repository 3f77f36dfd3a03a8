import MQTT

// The numbers of messages and the packet identifiers in a file that was not closed properly: none may be used twice.

extension DurableStore {
    /// Prepares a file that may not have been closed properly, and may lack the last moments before this start: numbers
    /// continue after those that were reserved or are there, and packet identifiers that may have been used are suspect.
    ///
    /// - Returns: what belonged to no session any more.
    static func takeUp(_ database: Database) throws(StoreError) -> OpenReport.Adopted {
        try checkNumbers(in: database)
        try checkNames(in: database)
        try checkContents(in: database)
        return try database.transaction { () throws(StoreError) -> OpenReport.Adopted in
            let adopted = try adopt(in: database)
            try raiseNumbers(in: database)
            let windows = try database.rows(
                "SELECT id, window_first, window_count FROM session WHERE window_count > 0"
            ) { row in
                let first = UInt16(clamping: row.integer(1))
                return (row.integer(0), IdentifierWindow(first: first, count: Int(clamping: row.integer(2))))
            }
            for (session, window) in windows {
                let keys = MessageKey.range(of: session)
                for id in window.identifiers {
                    try database.run(
                        """
                        INSERT OR IGNORE INTO suspect (session, packet_id) SELECT ?1, ?2 WHERE NOT EXISTS (
                            SELECT 1 FROM in_flight WHERE packet_id = ?2 AND key BETWEEN ?3 AND ?4)
                        """,
                        .integer(session), .integer(id.rawValue), .integer(keys.lowerBound),
                        .integer(keys.upperBound))
                }
            }
            try database.run("UPDATE session SET window_first = 0, window_count = 0 WHERE window_count > 0")
            return adopted
        }
    }

    /// Makes the next numbers of all sessions ones that were never given out.
    static func raiseNumbers(in database: Database) throws(StoreError) {
        // Numbers that no session ever gets to are damaged.
        let last = Database.Value.integer(MessageKey.sequences.upperBound)
        try database.run(
            "UPDATE session SET reserved_sequence = 0 WHERE reserved_sequence NOT BETWEEN 0 AND ?", last)
        try database.run(
            "UPDATE session SET reserved_inbox_sequence = 0 WHERE reserved_inbox_sequence NOT BETWEEN 0 AND ?",
            last)
        // The first term of each maximum is for numbers that are damaged, too.
        try database.run(
            """
            WITH least AS (
                SELECT id, max(
                    1, reserved_sequence + 1, iif(next_sequence > ?, 1, next_sequence),
                    1 + coalesce((
                        SELECT max(key) & 0xFFFFFFFFFFFF FROM message
                        WHERE key BETWEEN session.id << 48 AND (session.id << 48) | 0xFFFFFFFFFFFF), 0)) AS next
                FROM session)
            UPDATE session SET next_sequence = least.next FROM least
            WHERE least.id = session.id AND least.next <> next_sequence
            """,
            last)
        try database.run(
            """
            WITH least AS (
                SELECT id, max(
                    1, reserved_inbox_sequence + 1, iif(next_inbox_sequence > ?, 1, next_inbox_sequence),
                    1 + coalesce((
                        SELECT max((
                            SELECT max(key) & 0xFFFFFFFFFFFF FROM inbox
                            WHERE key BETWEEN consumer.id << 48 AND (consumer.id << 48) | 0xFFFFFFFFFFFF))
                        FROM consumer WHERE consumer.session = session.id), 0),
                    1 + coalesce((
                        SELECT max(key) & 0xFFFFFFFFFFFF FROM content
                        WHERE key BETWEEN session.id << 48 AND (session.id << 48) | 0xFFFFFFFFFFFF), 0)) AS next
                FROM session)
            UPDATE session SET next_inbox_sequence = least.next FROM least
            WHERE least.id = session.id AND least.next <> next_inbox_sequence
            """,
            last)
    }

    /// Finds rows with numbers that none can have.
    private static func checkNumbers(in database: Database) throws(StoreError) {
        for (table, owner) in [("message", "session"), ("inbox", "consumer")] {
            var isWrong = false
            try database.query(
                text: """
                    SELECT EXISTS (SELECT 1 FROM \(owner) WHERE id NOT BETWEEN 1 AND 0x7FFF) OR EXISTS (
                        SELECT 1 FROM \(owner) CROSS JOIN \(table)
                        WHERE key BETWEEN (id << 48) + ? AND (id << 48) | 0xFFFFFFFFFFFF)
                    """,
                with: [.integer(MessageKey.sequences.upperBound + 1)]
            ) { row throws(StoreError) in
                isWrong = row.integer(0) != 0
                return false
            }
            if isWrong {
                throw .corrupt(path: database.path, cause: "a number in its table \(table) or \(owner) is impossible")
            }
        }
    }
}
