public import MQTT

// The history of the sessions. Unlike everything else in the store, it is kept on a best-effort basis: it never
// takes a message's room, and never makes a commit wait for a flush.

extension DurableStore {
    /// The limits of the history.
    struct HistoryBounds {
        /// The most entries, of all sessions together.
        var entries: Int64 = 10_000
        /// How long entries are kept, in milliseconds: 30 days.
        var age: Int64 = 30 * 86_400_000
        /// How many new entries are recorded between two searches for old ones, each of which reads all entries.
        var agePrunedEvery = 256
        /// New entries since the last search. Above the limit at first, so that the first entry after a start searches.
        var recordedSinceAgePruning = Int.max / 2

        /// - Parameter count: new entries.
        /// - Returns: whether to search for old ones now.
        mutating func prunesByAge(after count: Int) -> Bool {
            recordedSinceAgePruning += count
            guard recordedSinceAgePruning >= agePrunedEvery else { return false }
            recordedSinceAgePruning = 0
            return true
        }
    }

    /// Appends entries, in this order. They survive the end of the daemon; a power loss may take the last of them.
    ///
    /// - Throws: the disk's failure, also ``StoreError/full(path:cause:)`` when the room that is left is reserved for
    ///   what was accepted. None of the entries is kept then.
    public func record(_ entries: [HistoryEntry]) throws(StoreError) {
        guard !entries.isEmpty else { return }
        let database = try opened()
        try requireRoom(for: UInt64(entries.count) * 1024)
        try transaction(in: database, isFlushed: false) { () throws(StoreError) in
            for entry in entries { try insert(entry, in: database) }
            try pruneHistory(after: entries.count, in: database)
        }
    }

    /// Returns the newest entries, of one session or of all, in the order in which they were recorded. A long history is
    /// read in pages, so that commits get their turn in between.
    ///
    /// - Parameters:
    ///   - since: only entries of this time and later.
    ///   - until: only entries before this time.
    ///   - before: ``HistoryPage/next`` of the page before; `nil` for the first one.
    ///   - limit: the most entries to return.
    public func history(
        session: SessionName? = nil, since: Timestamp? = nil, until: Timestamp? = nil, before: Int64? = nil,
        limit: Int
    ) throws(StoreError) -> HistoryPage {
        var entries: [HistoryEntry] = []
        var (count, last) = (0, Int64?.none)
        try opened().query(
            """
            SELECT time, session, from_state, to_state, phase, mode, reason_code, message, server_code, outage,
                failed_attempts, failure_code, failure, id
            FROM history
            WHERE (?1 IS NULL OR session = ?1) AND time >= ?2 AND time < ?3 AND id < ?5
            ORDER BY id DESC LIMIT ?4
            """,
            .optional(session?.description), .integer(since?.rawValue ?? .min), .integer(until?.rawValue ?? .max),
            .integer(max(limit, 0)), .integer(before ?? .max)
        ) { row throws(StoreError) in
            count += 1
            last = row.integer(13)
            if let entry = HistoryEntry(row) { entries.append(entry) }
            return true
        }
        return HistoryPage(entries: entries.reversed(), next: count < limit ? nil : last)
    }

    /// Returns the newest entry of every session that has one.
    public func newestHistory() throws(StoreError) -> [SessionName: HistoryEntry] {
        var newest: [SessionName: HistoryEntry] = [:]
        try opened().query(
            """
            SELECT time, session, from_state, to_state, phase, mode, reason_code, message, server_code, outage,
                failed_attempts, failure_code, failure
            FROM history WHERE id IN (SELECT max(id) FROM history GROUP BY session)
            """
        ) { row throws(StoreError) in
            if let entry = HistoryEntry(row) { newest[entry.session] = entry }
            return true
        }
        return newest
    }

    /// Notes on the disk, without waiting for it, that the daemon is alive: ``OpenReport/lastAlive`` of the next
    /// daemon. Also notices missing or damaged files, even while nothing is written to them.
    public func noteAlive() {
        do throws(StoreError) {
            _ = try opened()
        } catch .closed {
            return
        } catch {
            // The daemon is alive even if the store is not; the next commit tells why.
        }
        directory.touch()
    }

    private func insert(_ entry: HistoryEntry, in database: Database) throws(StoreError) {
        try database.run(
            """
            INSERT INTO history
                (time, session, from_state, to_state, phase, mode, reason_code, message, server_code, outage,
                    failed_attempts, failure_code, failure)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            .integer(entry.time.rawValue), .text(entry.session.description), .text(entry.from), .text(entry.to),
            .optional(entry.phase), .optional(entry.mode), .text(entry.reasonCode), .text(entry.message),
            .optional(entry.serverCode), .optional(entry.outage?.wholeMilliseconds),
            .optional(entry.failures.map { Int64($0.attempts) }), .optional(entry.failures?.reasonCode),
            .optional(entry.failures?.message))
    }

    /// Removes entries beyond the limits. Those that are too many are found by their key, which costs nothing; finding
    /// those that are too old reads every row.
    private func pruneHistory(after count: Int, in database: Database) throws(StoreError) {
        try database.run(
            "DELETE FROM history WHERE id <= (SELECT max(id) FROM history) - ?", .integer(historyBounds.entries))
        guard historyBounds.prunesByAge(after: count) else { return }
        try database.run("DELETE FROM history WHERE time < ?", .integer(Timestamp.now.rawValue - historyBounds.age))
    }
}

extension HistoryEntry {
    /// - Parameter row: the columns of `history` from `time` to `failure`.
    /// - Returns: `nil` if that is not the name of a session.
    fileprivate init?(_ row: Row) {
        guard let name = SessionName(listed: row.text(1)) else { return nil }
        self.init(
            time: row.time(0), session: name, from: row.text(2), to: row.text(3),
            phase: row.optionalText(4), mode: row.optionalText(5), reasonCode: row.text(6), message: row.text(7),
            serverCode: row.optionalInteger(8).flatMap { UInt8(exactly: $0) },
            outage: row.optionalInteger(9).map { _ in .milliseconds(row.count(9)) },
            failures: row.optionalInteger(10).map { _ in
                Failures(attempts: row.count(10), reasonCode: row.text(11), message: row.text(12))
            })
    }
}
