internal import MQTT

/// Copies what can still be read from a damaged database into a new one, row by row, and leaves out rows that make no
/// sense.
///
/// A page that cannot be read loses its rows, and no others: a range of keys that fails is read from its other end as well.
/// What is between two such pages is halved and tried again, larger ranges first, until this many ranges of a table were
/// tried.
struct Salvage {
    private static let maximumTries = 4096
    /// Rows of one transaction. The log of a larger one would need as much room as the rows themselves.
    private static let rowsOfTransaction = 100

    private(set) var isComplete = true
    private(set) var messages = 0
    private let damaged: Database
    private let new: Database
    private let unreadable: Int

    /// Copies into a database that has its tables, but no rows.
    ///
    /// - Parameters:
    ///   - sessions: the sessions that are known, with their rows, which may be lost in the old database.
    ///   - unreadable: the bytes of a log in which there may be newer rows.
    /// - Throws: the error of the new database. What it has by then is useless.
    init(
        _ damaged: Database, into new: Database, sessions: [SessionName: Int64], unreadable: Int = 0
    ) throws(StoreError) {
        (self.damaged, self.new, self.unreadable) = (damaged, new, unreadable)
        isComplete = unreadable == 0
        let tables = try new.rows(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'store'"
        ) { $0.text(0) }
        for table in tables {
            try new.transaction { () throws(StoreError) in try copy(table) }
        }
        try new.transaction { () throws(StoreError) in try mend(sessions) }
        messages = Int(
            try new.integer("SELECT (SELECT count(*) FROM message) + (SELECT count(*) FROM inbox)") ?? 0)
    }

    /// The roots of the tables without whose rows no others mean anything, and whose older rows ``mend(_:)`` can repair.
    ///
    /// - Parameter path: a database without its log.
    static func pagesWithSessions(of path: String) throws(StoreError) -> Set<UInt32> {
        let database = try Database(path: path)
        try database.excludeOthers()
        let pages = try database.rows("SELECT rootpage FROM sqlite_schema WHERE name IN ('session', 'consumer')") {
            UInt32(clamping: $0.integer(0))
        }
        return Set(pages)
    }

    private func columns(of table: String, in database: Database) throws(StoreError) -> [String] {
        try database.rows("SELECT name FROM pragma_table_info(?)", .text(table)) { $0.text(0) }
    }

    private mutating func copy(_ table: String) throws(StoreError) {
        let old: [String]
        do throws(StoreError) {
            old = try columns(of: table, in: damaged)
        } catch {
            isComplete = false
            return
        }
        // An older version of the file does not have all of them, or lacks the table.
        let known = try columns(of: table, in: new).filter { old.contains($0) }
        guard !known.isEmpty else { return }
        let key =
            try new.integer(
                "SELECT count(*) FROM pragma_table_list(?) WHERE wr = 0", .text(table)) ?? 0
        let sense = RowSense(table: table, columns: known)
        let insert =
            "INSERT OR IGNORE INTO \(table) (\(known.joined(separator: ", "))) VALUES "
            + "(\(known.map { _ in "?" }.joined(separator: ", ")))"
        let select = "SELECT \(known.joined(separator: ", "))"
        if key > 0 {
            try copyByKey(table, select, insert, sense)
        } else {
            let order = known.joined(separator: ", ")
            let orderBackwards = known.map { "\($0) DESC" }.joined(separator: ", ")
            for direction in [order, orderBackwards] {
                if try copyRows("\(select) FROM \(table) ORDER BY \(direction)", [], insert, sense).isWhole {
                    break
                }
                isComplete = false
            }
        }
    }

    private mutating func copyByKey(
        _ table: String, _ select: String, _ insert: String, _ sense: RowSense
    ) throws(StoreError) {
        let sql = "\(select), rowid FROM \(table) WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
        func copy(_ range: ClosedRange<Int64>, backwards: Bool) throws(StoreError) -> (last: Int64?, isWhole: Bool) {
            try copyRows(
                sql + (backwards ? " DESC" : ""), [.integer(range.lowerBound), .integer(range.upperBound)], insert,
                sense,
                order: backwards ? .backwards : .forwards)
        }
        // All keys are in this range. Messages have the row of their session, or of their consumer, in the upper bits.
        var ranges = [0...Int64.max]
        var tries = 0
        while tries < Self.maximumTries, tries < ranges.count {
            let range = ranges[tries]
            tries += 1
            let (last, isWhole) = try copy(range, backwards: false)
            guard !isWhole else { continue }
            isComplete = false
            let lower = last.map { $0 + 1 } ?? range.lowerBound
            guard lower <= range.upperBound else { continue }
            // Every range that begins in a page that cannot be read ends there, however small it is.
            let (first, isRest) = try copy(lower...range.upperBound, backwards: true)
            let upper = first.map { $0 - 1 } ?? range.upperBound
            guard !isRest, lower < upper else { continue }
            let middle = lower + (upper - lower) / 2
            ranges += [lower...middle, (middle + 1)...upper]
        }
    }

    private enum KeyOrder { case forwards, backwards }

    /// Copies the rows that the new table takes; any other makes the copy incomplete.
    ///
    /// - Returns: the key of the last row that was read, and whether all of them could be read.
    private mutating func copyRows(
        _ select: String, _ bounds: [Database.Value], _ insert: String, _ sense: RowSense, order: KeyOrder? = nil
    ) throws(StoreError) -> (last: Int64?, isWhole: Bool) {
        var last: Int64?
        var rows = 0
        var failure: StoreError?
        do throws(StoreError) {
            try damaged.query(text: select, with: bounds) { row throws(StoreError) in
                if let order {
                    let key = row.integer(Int32(sense.columns))
                    // Out of order, it is not the key that the row had.
                    if let last, order == .forwards ? key <= last : key >= last { isComplete = false }
                    last = key
                }
                guard let values = sense.row((0..<sense.columns).map { row.value(Int32($0)) }) else {
                    isComplete = false
                    return true
                }
                do throws(StoreError) {
                    try new.run(text: insert, with: values)
                    if new.changes == 0 { isComplete = false }
                    rows += 1
                    if rows % Self.rowsOfTransaction == 0 {
                        try new.run("COMMIT")
                        try new.run("BEGIN IMMEDIATE")
                    }
                } catch .inconsistent {
                    isComplete = false
                } catch {
                    failure = error
                    throw error
                }
                return true
            }
            return (last, true)
        } catch {
            if let failure { throw failure }
            return (last, false)
        }
    }

    /// Removes what contradicts other rows, and would make its session unreadable. A message that loses its identifier is
    /// sent again; one that has lost its content is lost.
    private static let contradictions = [
        "DELETE FROM in_flight WHERE key IN (SELECT key FROM quarantine)",
        "DELETE FROM in_flight WHERE key NOT IN (SELECT min(key) FROM in_flight GROUP BY key >> 48, packet_id)",
        "DELETE FROM inbox WHERE content_key IS NOT NULL AND NOT \(DurableStore.hasItsContent)",
    ]

    /// Repairs the consequences of missing rows: no number may be used twice, and no session at a server may be
    /// mistaken for the one that was known.
    private mutating func mend(_ sessions: [SessionName: Int64]) throws(StoreError) {
        for (name, id) in sessions {
            try new.run("INSERT OR IGNORE INTO session (id, name) VALUES (?, ?)", .integer(id), .text("\(name)"))
        }
        for contradiction in Self.contradictions {
            try new.run(text: contradiction, with: [])
            if new.changes > 0 { isComplete = false }
        }
        try new.run(
            """
            UPDATE inbox SET size = content.size FROM content
            WHERE content.key = content_key AND content_key IS NOT NULL AND inbox.size <> content.size
            """)
        try new.run("DELETE FROM content WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE content_key = content.key)")
        guard !isComplete else { return }
        try new.run("DELETE FROM in_flight WHERE key NOT IN (SELECT key FROM message)")
        try new.run("DELETE FROM quarantine WHERE key NOT IN (SELECT key FROM message)")
        try DurableStore.raiseNumbers(in: new)
        try new.run("UPDATE session SET established = 0, client_id = NULL")
        // Each message of an unreadable log took more than one byte of it.
        let skipped = ReservedSequence.block + Int64(unreadable)
        try new.run(
            "UPDATE session SET next_sequence = next_sequence + ?1, next_inbox_sequence = next_inbox_sequence + ?1",
            .integer(skipped))
    }
}
