internal import Vocabulary

// What is left of sessions and consumers whose own rows are lost or damaged. It must not become another session's, and a
// person has to find it.

extension DurableStore {
    /// Gives everything whose session is not known, and each session whose name is not valid, a name of its own.
    static func adopt(in database: Database) throws(StoreError) -> OpenReport.Adopted {
        var names: Set<String> = []
        var wrong: [Int64] = []
        try database.query("SELECT id, name FROM session") { row in
            names.insert(row.text(1))
            if SessionName(row.text(1)) == nil { wrong.append(row.integer(0)) }
            return true
        }
        var adopted = OpenReport.Adopted()
        func name(_ id: Int64) -> String {
            var name = "recovered-\(id)"
            while !names.insert(name).inserted { name += "-\(id)" }
            adopted.sessions.append(name)
            return name
        }
        for id in wrong {
            try database.run("UPDATE session SET name = ? WHERE id = ?", .text(name(id)), .integer(id))
        }
        for id in try owners(in: database) {
            try database.run("INSERT INTO session (id, name) VALUES (?, ?)", .integer(id), .text(name(id)))
        }
        let consumers = try keyOwners("inbox", "consumer", in: database)
        let next = try nextSession(in: database)
        if !consumers.isEmpty, MessageKey.sessions.contains(next) {
            let name = name(next)
            try database.run("INSERT INTO session (id, name) VALUES (?, ?)", .integer(next), .text(name))
            adopted.receiver = name
        }
        for consumer in consumers {
            let range = MessageKey.range(of: consumer)
            adopted.received += Int(
                try database.integer(
                    "SELECT count(*) FROM inbox WHERE key BETWEEN ? AND ?", .integer(range.lowerBound),
                    .integer(range.upperBound)) ?? 0)
            guard adopted.receiver != nil else { continue }
            // Its filter is lost as well.
            try database.run(
                "INSERT INTO consumer (id, session, name, filter, qos) VALUES (?1, ?2, ?3, ?3, 1)",
                .integer(consumer), .integer(next), .text(adoptedName(of: consumer)))
        }
        if let receiver = adopted.receiver { adopted.sessions.removeAll { $0 == receiver } }
        return adopted
    }

    /// The name of a consumer that was adopted; see ``hasItsContent``.
    static func adoptedName(of consumer: Int64) -> String { "recovered-\(consumer)" }

    /// The number after those of all sessions, also of one that is lost and whose contents adopted consumers have.
    static func nextSession(in database: Database) throws(StoreError) -> Int64 {
        let last = try database.integer(
            """
            SELECT max(coalesce((SELECT max(id) FROM session), 0), coalesce((SELECT max(key) >> 48 FROM content), 0))
            """)
        return 1 + (last ?? 0)
    }

    /// The sessions that some row names, and that have no row.
    private static func owners(in database: Database) throws(StoreError) -> [Int64] {
        var found = Set(try keyOwners("message", "session", in: database))
        for table in try sessionTables(in: database) {
            found.formUnion(
                try database.rows(
                    text: "SELECT DISTINCT session FROM \(table) WHERE session NOT IN (SELECT id FROM session)",
                    with: []
                ) { $0.integer(0) })
        }
        return found.filter { MessageKey.sessions.contains($0) }.sorted()
    }

    /// The upper halves of a table's keys that its owners do not have. It skips from one to the next: a table may have
    /// millions of rows.
    private static func keyOwners(
        _ table: String, _ owner: String, in database: Database
    ) throws(StoreError) -> [Int64] {
        try database.rows(
            text: """
                WITH RECURSIVE owner (id) AS (
                    SELECT min(key) >> 48 FROM \(table) WHERE key > 0 UNION ALL
                    SELECT (SELECT min(key) >> 48 FROM \(table) WHERE key > (owner.id << 48) | 0xFFFFFFFFFFFF)
                    FROM owner WHERE owner.id BETWEEN 0 AND 0x7FFE)
                SELECT id FROM owner WHERE id BETWEEN 1 AND 0x7FFF AND id NOT IN (SELECT id FROM \(owner))
                """,
            with: []
        ) { $0.integer(0) }
    }

    /// The tables whose rows name a session by its number. The history has names, and outlives sessions.
    static func sessionTables(in database: Database) throws(StoreError) -> [String] {
        try database.rows(
            """
            SELECT tables.name FROM sqlite_schema AS tables JOIN pragma_table_info(tables.name) AS columns
            WHERE tables.type = 'table' AND columns.name = 'session' AND tables.name <> 'history'
            """
        ) { $0.text(0) }
    }

    /// Finds a session whose name is another one in the index, which SQLite does not compare when it checks a file.
    static func checkNames(in database: Database) throws(StoreError) {
        do throws(StoreError) {
            let different = try database.integer(
                """
                SELECT count(*) FROM session NOT INDEXED WHERE NOT EXISTS (
                    SELECT 1 FROM session AS other INDEXED BY sqlite_autoindex_session_1
                    WHERE other.name = session.name AND other.id = session.id)
                """)
            if different == 0 { return }
        } catch .inconsistent {
            // There is no such index.
        }
        throw .corrupt(path: database.path, cause: "the name of a session is not that in its index")
    }
}
