internal import MQTT
internal import Vocabulary

extension DurableStore {
    /// What is kept in memory of the contents of the database. A commit that fails puts the copy from before it back.
    struct Contents {
        /// The row of each session that has one.
        private(set) var sessionIDs: [SessionName: Int64] = [:]
        /// The rows of consumers that were looked up, for each row of a session.
        private var consumerIDs: [Int64: [ConsumerName: Int64]] = [:]
        /// The packet identifiers that are reserved for QoS 2 messages, for each row of a session.
        private var windows: [Int64: IdentifierWindow] = [:]
        var messages = 0
        /// The sessions that there are, with their servers, if these are known; `nil` before that is known. The row of
        /// another one is used again if it owns nothing.
        var present: [SessionName: [Endpoint]]?
        private(set) var epoch = ""
        /// What was last found of sessions other than `present`, until a commit changes one of those.
        var absentStates: (present: Set<SessionName>, found: [AbsentState])?

        init(_ database: Database) throws(StoreError) {
            // From the table itself, as everything else that is read of a session.
            try database.query("SELECT id, name FROM session NOT INDEXED") { row throws(StoreError) in
                guard let name = SessionName(row.text(1)) else { return true }
                sessionIDs[name] = row.integer(0)
                return true
            }
            messages = Int(try database.integer("SELECT count(*) FROM message") ?? 0)
            try database.query("SELECT id, window_first, window_count FROM session") { row throws(StoreError) in
                windows[row.integer(0)] = IdentifierWindow(
                    first: UInt16(clamping: row.integer(1)), count: Int(clamping: row.integer(2)))
                return true
            }
            epoch = try database.text("SELECT epoch FROM store") ?? ""
        }

        /// Returns the row of the session, which is created if necessary.
        mutating func makeSession(_ session: SessionName, in database: Database) throws(StoreError) -> Int64 {
            if let id = sessionIDs[session] { return id }
            let next = try DurableStore.nextSession(in: database)
            guard let id = MessageKey.sessions.contains(next) ? next : try emptyRow(in: database) else {
                throw .inconsistent("there is no room for another session than the 32767 that there are")
            }
            try database.run(
                "INSERT INTO session (id, name, servers) VALUES (?, ?, ?)", .integer(id), .text(session.description),
                .text((present?[session] ?? []).text))
            sessionIDs[session] = id
            return id
        }

        /// Deletes a session that does not exist any more and has no messages, consumers, publications or keys. One that
        /// may have a session at a server comes last.
        ///
        /// - Returns: the row that is free now.
        private mutating func emptyRow(in database: Database) throws(StoreError) -> Int64? {
            guard let present else { return nil }
            var found: (id: Int64, name: SessionName?)?
            try database.query(
                text: """
                    SELECT id, name FROM session WHERE NOT EXISTS (
                        SELECT 1 FROM message WHERE key BETWEEN id << 48 AND id << 48 | 0xFFFFFFFFFFFF) AND NOT EXISTS (
                        SELECT 1 FROM content WHERE key BETWEEN id << 48 AND id << 48 | 0xFFFFFFFFFFFF) AND NOT EXISTS (
                        SELECT 1 FROM consumer WHERE session = session.id) AND NOT EXISTS (
                        SELECT 1 FROM publication WHERE session = session.id) AND NOT EXISTS (
                        SELECT 1 FROM retained WHERE session = session.id) AND NOT EXISTS (
                        SELECT 1 FROM publish_key WHERE session = session.id AND time > unixepoch() * 1000 - ?)
                    ORDER BY established, id
                    """,
                with: [.integer(PublishKey.lifetime)]
            ) { row in
                let name = SessionName(row.text(1))
                if let name, present[name] != nil { return true }
                found = (row.integer(0), name)
                return false
            }
            guard let found else { return nil }
            try remove(found.id, found.name, from: database)
            return found.id
        }

        private mutating func remove(_ id: Int64, _ name: SessionName?, from database: Database) throws(StoreError) {
            for table in try DurableStore.sessionTables(in: database) {
                try database.run(text: "DELETE FROM \(table) WHERE session = ?", with: [.integer(id)])
            }
            try database.run("DELETE FROM session WHERE id = ?", .integer(id))
            if let name { sessionIDs[name] = nil }
            consumerIDs[id] = nil
            windows[id] = nil
        }

        /// The sessions that have the client identifier of one. Each of thousands of sessions asks when it connects.
        static let othersAtServer: StaticString = """
            SELECT session.id, session.name, home.address FROM session
                LEFT JOIN home ON home.session = session.id AND home.position = 0
            WHERE established AND session.id <> ?1
                AND client_id = (SELECT client_id FROM session WHERE id = ?1)
            """

        /// The session has what a server knows under its client identifier. An earlier session, which is not configured
        /// any more and had the same identifier there, must not find that one in its place: its messages that are in
        /// flight would be released where they are not known, and count as delivered. They are sent again instead.
        /// Sessions that are configured use one identifier at different servers only.
        func takeSessionAtServer(_ session: Int64, in database: Database) throws(StoreError) {
            let others = try database.rows(Self.othersAtServer, .integer(session)) {
                ($0.integer(0), SessionName($0.text(1)), $0.optionalText(2))
            }
            guard !others.isEmpty else { return }
            let configured = present?.first { sessionIDs[$0.key] == session }?.value ?? []
            // Also those that it was redirected to.
            let visited = try database.rows("SELECT address FROM home WHERE session = ?", .integer(session)) {
                try? Endpoint($0.text(0))
            }
            let servers = configured + visited.compactMap(\.self)
            for (id, name, home) in others {
                if let name, present?[name] != nil { continue }
                // What another server knows is still there.
                if !configured.isEmpty, let home = home.flatMap({ try? Endpoint($0) }),
                    !servers.contains(where: { $0.isSameServer(as: home) })
                {
                    continue
                }
                try database.run("UPDATE session SET established = 0 WHERE id = ?", .integer(id))
            }
        }

        mutating func consumerID(
            _ name: ConsumerName, of session: Int64, in database: Database
        ) throws(StoreError) -> Int64? {
            if let id = consumerIDs[session]?[name] { return id }
            let id = try database.integer(
                "SELECT id FROM consumer WHERE session = ? AND name = ?", .integer(session), .text(name.description))
            if let id { consumerIDs[session, default: [:]][name] = id }
            return id
        }

        mutating func forgetConsumer(_ name: ConsumerName, of session: Int64) { consumerIDs[session]?[name] = nil }

        /// Makes room for a packet identifier in the session's window.
        ///
        /// - Returns: the window, if it has changed.
        mutating func reserve(_ id: PacketID, of session: Int64) -> IdentifierWindow? {
            // Otherwise the windows of all sessions would be copied with each message of QoS 2: see `write`.
            guard windows[session]?.contains(id) != true else { return nil }
            return windows[session, default: IdentifierWindow()].reserve(id) ? windows[session] : nil
        }
    }
}
