internal import MQTT
internal import SessionCore

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
        private(set) var epoch = ""

        init(_ database: Database) throws(StoreError) {
            try database.query("SELECT id, name FROM session") { row throws(StoreError) in
                if let name = SessionName(row.text(1)) { sessionIDs[name] = row.integer(0) }
                return true
            }
            messages = Int(try database.integer("SELECT count(*) FROM message") ?? 0)
            guard try Schema.reservesAhead(database) else { return }
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
            try database.run("INSERT INTO session (name) VALUES (?)", .text(session.description))
            guard
                let id = try database.integer("SELECT id FROM session WHERE name = ?", .text(session.description)),
                MessageKey.sessions.contains(id)
            else { throw .inconsistent("there is no room for another session than the 32767 that there were") }
            sessionIDs[session] = id
            return id
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
            windows[session, default: IdentifierWindow()].reserve(id) ? windows[session] : nil
        }
    }
}
