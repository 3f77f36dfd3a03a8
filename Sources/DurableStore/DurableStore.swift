internal import MQTT
package import Session
public import Vocabulary

/// The state of the sessions that outlives the daemon: the outbox, the inbox, the exchanges in flight, and what the
/// server may remember of us. One SQLite file in the state directory.
///
/// The file is written in one transaction per ``commit(_:)``. Its cost is the disk's flush, so the caller collects
/// changes while a commit runs and hands them over together. Every call blocks the thread of the executor, so the store
/// should have a thread of its own.
public actor DurableStore {
    /// The name of the database in the state directory.
    public static let fileName = "holdfast.db"

    /// What was found when the store was opened.
    public nonisolated let openReport: OpenReport
    /// Changes whenever the numbers of messages in inboxes may start again.
    public var epoch: String { contents.epoch }

    var directory: StateDirectory
    var database: Database?
    var contents: Contents
    /// Whether the present commit must be on the disk when it is done, whatever the durability.
    var mustFlush = false
    /// Bytes of messages in the log that the kernel may not have started to write.
    private var unwritten: UInt64 = 0
    private var isClosed = false
    /// The files that the database was opened with, to notice when they are removed, replaced or cut short.
    private var files: DatabaseFiles
    /// The new database that is complete, while it could not be put into use yet.
    private var renewal: Renewal?
    /// Called when a new database was made while the daemon runs.
    private var replaced: (@Sendable (OpenReport.MovedAside) -> Void)?
    /// When a row was found that made no sense.
    var lastUnreadable: ContinuousClock.Instant?
    private let migrations: [String]
    var schemaVersion: Int { Schema.version(after: migrations) }
    private let durability: Durability
    var historyBounds: HistoryBounds
    private var commits = StoreStatistics.Commits()
    private nonisolated let executor: any SerialExecutor

    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Opens the store, on the caller's thread. If the directory does not exist, it is created (0700), but its parents
    /// are not.
    ///
    /// A damaged database is moved aside and replaced by a new one: see ``openReport``.
    ///
    /// - Throws: ``StoreError/locked(directory:holder:)`` when another daemon has the directory,
    ///   ``StoreError/unwritable(path:cause:)``, ``StoreError/newerSchema(path:found:known:)``, or the disk's failure.
    public init(directory: String, durability: Durability, executor: any SerialExecutor) throws(StoreError) {
        try self.init(
            directory: directory, durability: durability, executor: executor, migrations: Schema.migrations)
    }

    /// - Parameters:
    ///   - migrations: the schema, of a later version in tests.
    ///   - reserve: see ``StateDirectory/reserve``.
    init(
        directory path: String, durability: Durability, executor: any SerialExecutor, migrations: [String],
        reserve: UInt64 = 32 << 20, historyBounds: HistoryBounds = .init()
    ) throws(StoreError) {
        var directory = try StateDirectory(path: path, reserve: reserve)
        // The last write of the daemon before this one; commits go to the log.
        let lastAlive = ["", "-wal"].compactMap { directory.modified(Self.fileName + $0) }.max()
            .flatMap { written in directory.lastTouched.map { max(written, $0) } }
        Schema.removePart(in: directory)
        var renewal = try Renewal.resume(in: directory)
        var report = OpenReport(
            isNew: renewal != nil || !directory.contains(Self.fileName), lastAlive: lastAlive)
        let database: Database
        var lost = 0
        do {
            try Self.checkFiles(in: directory, &lost)
            database = try Self.open(in: directory, durability, migrations, &report)
        } catch .corrupt(_, let cause) {
            let new = try Self.renewDamaged(
                nil, lost: lost, in: &directory, because: cause, sessions: [:], durability, migrations)
            try new.rename(in: directory)
            report = OpenReport(isNew: true, lastAlive: lastAlive)
            database = try Self.open(in: directory, durability, migrations, &report)
            renewal = new
        } catch .full where directory.releaseSpare() {
            database = try Self.open(in: directory, durability, migrations, &report)
        }
        report.movedAside = try renewal?.end(in: directory)
        contents = try Contents(database)
        directory.makeSpare()
        files = DatabaseFiles(in: directory, logLimit: Self.logLimit(of: directory))
        self.migrations = migrations
        self.durability = durability
        self.historyBounds = historyBounds
        self.directory = directory
        self.database = database
        self.executor = executor
        openReport = report
    }

    /// What the names of the files of a database end with.
    static let fileSuffixes = ["", "-wal", "-shm", LogMark.suffix, Renewal.damagedLogSuffix]

    /// Makes a new database with what can be read of a damaged one.
    ///
    /// - Parameters:
    ///   - old: the damaged one, if it is open. It still has pages in memory, and knows which of the others are in a part
    ///     of the log that is gone.
    ///   - lost: the bytes of a log that is not there any more.
    private static func renewDamaged(
        _ old: Database?, lost: Int = 0, in directory: inout StateDirectory, because cause: String,
        sessions: [SessionName: Int64], _ durability: Durability, _ migrations: [String]
    ) throws(StoreError) -> Renewal {
        while true {
            do throws(StoreError) {
                try Renewal.discard(in: directory)
                let new = try openNew(in: directory, durability, migrations)
                var moved = OpenReport.MovedAside(cause: cause)
                var unreadable = lost
                var damaged = old
                if damaged == nil { damaged = try openDamaged(in: directory, &unreadable) }
                if let damaged {
                    if (try? restoreSchema(of: damaged, migrations)) != true { unreadable = max(unreadable, 1) }
                    let salvage = try Salvage(damaged, into: new, sessions: sessions, unreadable: unreadable)
                    (moved.messages, moved.isComplete) = (salvage.messages, salvage.isComplete)
                }
                try Renewal.complete(new)
                let renewal = Renewal(moved)
                try renewal.note(in: directory)
                return renewal
            } catch {
                // No row may be lost because there is no room for it now.
                try Renewal.discard(in: directory)
                guard case .full(let path, let lack) = error else { throw error }
                if directory.releaseSpare() { continue }
                throw .full(
                    path: path,
                    cause: "the database is damaged (\(cause)), and what can be recovered does not fit: \(lack)")
            }
        }
    }

    /// Opens the damaged database, with as much of its log as can be read.
    ///
    /// - Parameter unreadable: raised to the size of the log if a part of it is damaged.
    /// - Returns: `nil` if nothing of it can be read.
    private static func openDamaged(
        in directory: borrowing StateDirectory, _ unreadable: inout Int
    ) throws(StoreError) -> Database? {
        // Without a schema nothing can be read, and SQLite would remove the log.
        guard directory.size(of: fileName) > 0 else { return nil }
        let path = "\(directory.path)/\(fileName)"
        if let log = try WriteAheadLog(path: path + "-wal"), log.damage != nil {
            unreadable = max(unreadable, log.size)
            try directory.rename(fileName + "-wal", to: fileName + Renewal.damagedLogSuffix)
            try log.mend(
                from: path + Renewal.damagedLogSuffix, to: path + "-wal",
                keeping: (try? Salvage.pagesWithSessions(of: path)) ?? [])
        }
        guard let database = try? Database(path: path) else { return nil }
        try database.excludeOthers()
        database.keepLog()
        if (try? Renewal.isPart(database)) == true { unreadable = max(unreadable, 1) }
        return database
    }

    /// - Returns: whether all tables can be read.
    private static func restoreSchema(of damaged: Database, _ migrations: [String]) throws(StoreError) -> Bool {
        let version = Int(clamping: try damaged.integer("PRAGMA user_version") ?? 0)
        return try KnownSchema(version: version, migrations: migrations).restore(in: damaged)
    }

    private static func openNew(
        in directory: borrowing StateDirectory, _ durability: Durability, _ migrations: [String]
    ) throws(StoreError) -> Database {
        var report = OpenReport(isNew: true)
        let database = try open(Renewal.newName, in: directory, durability, migrations, &report, isMarked: false)
        try Renewal.begin(database)
        return database
    }

    /// - Parameters:
    ///   - isMarked: whether the file has a ``LogMark``.
    ///   - isTakenUp: see ``takeUp(_:)``.
    private static func open(
        _ name: String = fileName, in directory: borrowing StateDirectory, _ durability: Durability,
        _ migrations: [String], _ report: inout OpenReport, isMarked: Bool = true, isTakenUp: Bool = true
    ) throws(StoreError) -> Database {
        try directory.makePrivateFile(name)
        let database = try Database(path: "\(directory.path)/\(name)")
        try database.excludeOthers()
        // First, because nothing may be written into a file of a later version.
        let known = Schema.version(after: migrations)
        let found = try Schema.version(of: database, after: migrations)
        if found == 0 {
            // Free pages go back to the file system a few at a time; this can only be set before the first table.
            try database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        }
        guard try database.text("PRAGMA journal_mode = WAL") == "wal" else {
            throw .failed(path: database.path, cause: "the file system cannot hold a write-ahead log")
        }
        try database.execute(
            durability == .full ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL")
        try database.execute("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF")
        let check = try database.text("PRAGMA quick_check(1)") ?? "ok"
        guard check == "ok" else { throw .corrupt(path: database.path, cause: check) }
        guard try !Renewal.isPart(database) else {
            throw .corrupt(path: database.path, cause: "a daemon was ended while it recovered it")
        }
        if found > 0, let table = try KnownSchema(version: found, migrations: migrations).damagedTable(in: database) {
            throw .corrupt(path: database.path, cause: "the definition of its table \(table) is damaged")
        }
        do throws(StoreError) {
            report.backup = try Schema.migrate(
                database, to: migrations,
                backupName: { version in "\(fileName).version-\(version)-\(Timestamp.now.rawValue)" },
                directory: directory
            ).map { "\(directory.path)/\($0)" }
        } catch .inconsistent(let sentence) {
            throw .corrupt(path: database.path, cause: "its tables are not those of its version: \(sentence)")
        }
        // So that the tables are known without the log, should that be damaged.
        if found < known { try database.emptyLog() }
        // Deleted content is overwritten only where that costs nothing: deleting must need little room.
        try database.execute("PRAGMA secure_delete = FAST")
        let limit = logLimit(of: directory)
        try database.execute("PRAGMA journal_size_limit = \(limit)")
        database.limitLog(to: limit / 4096, markedBy: isMarked ? LogMark(ofDatabase: database.path) : nil)
        if isTakenUp { report.adopted = try takeUp(database) }
        return database
    }

    /// The log is limited to half of the reserve, so that it cannot take the room that its own contents need in the file.
    /// The larger it is, the more messages are delivered and deleted before they would be written to the file as well.
    private static func logLimit(of directory: borrowing StateDirectory) -> Int {
        max(Int(directory.reserve) / 2 / 4096, 8) * 4096
    }

    /// Finds what SQLite would pass over in silence. Must be called before it opens the file.
    ///
    /// - Parameter lost: set to the bytes of the log that are not there any more.
    private static func checkFiles(in directory: borrowing StateDirectory, _ lost: inout Int) throws(StoreError) {
        let path = "\(directory.path)/\(fileName)"
        let log = try WriteAheadLog(path: path + "-wal")
        let mark = LogMark.Content(ofDatabase: path)
        let missing = mark?.missing(from: log, ofDatabase: path)
        lost = missing?.bytes ?? 0
        if let damage = log?.damage { throw .corrupt(path: path, cause: damage.description) }
        if directory.size(of: fileName) == 0 {
            if let log, log.transactions > 0 {
                throw .corrupt(path: path, cause: "it is missing or empty, and its write-ahead log is not")
            }
            if mark != nil { throw .corrupt(path: path, cause: "it is missing or empty") }
        }
        if let missing { throw .corrupt(path: path, cause: missing.description) }
    }

    /// Prepares a file that may not have been closed properly, and may lack the last moments before this start: numbers
    /// continue after those that were reserved or are there, and packet identifiers that may have been used are suspect.
    ///
    /// - Returns: what belonged to no session any more.
    private static func takeUp(_ database: Database) throws(StoreError) -> OpenReport.Adopted {
        try checkNumbers(in: database)
        try checkNames(in: database)
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
                        FROM consumer WHERE consumer.session = session.id), 0)) AS next
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

    /// Calls `body` on the store's thread whenever a damaged file was replaced while the daemon runs.
    public func whenReplaced(_ body: @escaping @Sendable (OpenReport.MovedAside) -> Void) { replaced = body }

    /// Makes a new file because the present one is damaged or no longer in its directory. What can be recovered from
    /// the old one is copied.
    private func replace() throws(StoreError) -> Database {
        try directory.makeAgain()
        let old = database
        let renewal: Renewal
        if let begun = self.renewal, directory.contains(Renewal.noteName) {
            renewal = begun
        } else if let old, !old.isCorrupt {
            renewal = try renewRemoved(old)
        } else {
            renewal = try Self.renewDamaged(
                old, in: &directory, because: old?.damage ?? "it was found while the daemon ran",
                sessions: contents.sessionIDs, durability, migrations)
        }
        self.renewal = renewal
        try renewal.rename(in: directory)
        var report = OpenReport(isNew: true)
        let new = try Self.open(
            in: directory, durability, migrations, &report, isTakenUp: !renewal.isSeamless)
        let present = contents.present
        contents = try Contents(new)
        contents.present = present
        var moved = try renewal.end(in: directory)
        self.renewal = nil
        moved.adopted = report.adopted
        // SQLite does not touch the new files, which now have the old one's names.
        old?.close()
        files = DatabaseFiles(in: directory, logLimit: Self.logLimit(of: directory))
        database = new
        replaced?(moved)
        return new
    }

    /// Copies a database whose files are no longer in the directory, and which is still open and intact.
    private func renewRemoved(_ old: Database) throws(StoreError) -> Renewal {
        do throws(StoreError) {
            try Renewal.discard(in: directory)
            let new = try Self.openNew(in: directory, durability, migrations)
            let salvage = try Salvage(old, into: new, sessions: contents.sessionIDs)
            guard salvage.isComplete else {
                // The next call does what is done with any damaged database.
                old.damage = old.damage ?? "its files were removed, and what is still open cannot be read in full"
                throw .corrupt(path: new.path, cause: "what is still open cannot be read in full")
            }
            try new.run("UPDATE store SET epoch = ?", .text(epoch))
            try Renewal.complete(new)
            let renewal = Renewal(
                OpenReport.MovedAside(
                    cause: "its files were removed or replaced while the daemon ran", messages: salvage.messages,
                    isComplete: true, isSeamless: true))
            try renewal.note(in: directory)
            return renewal
        } catch {
            try Renewal.discard(in: directory)
            throw error
        }
    }

    /// Makes all the changes of all the sessions durable in one transaction, or none of them.
    ///
    /// An empty batch writes something, too: it shows whether the disk takes what is written. A change of a message that
    /// does not exist does nothing. When there is no room for a batch, there still is some
    /// for the same batch without its inserts: part of the disk is kept free for that.
    ///
    /// - Throws: ``StoreError/full(path:cause:)``, after which everything continues as soon as there is room;
    ///   ``StoreError/inconsistent(_:)`` for a sequence that is not above every one inserted before.
    package func commit(_ batch: [(session: SessionName, changes: [SessionChange])]) throws(StoreError) {
        let needed: UInt64
        do {
            needed = batch.reduce(0) { $1.changes.reduce($0) { $0 + UInt64($1.roomNeeded) } }
            try requireRoom(for: needed)
            do {
                try withRoom(orSpare: needed == 0) { () throws(StoreError) in try write(batch) }
            } catch .corrupt {
                try write(batch)
            }
        } catch {
            commits.failed += 1
            throw error
        }
        if durability == .full {
            mustFlush = false
        } else if mustFlush, directory.flush(Self.fileName + "-wal") {
            // If that fails, it does not concern the batch, which is committed: the next commit tries again.
            commits.flushes += 1
            mustFlush = false
        }
        beginWriting(needed)
        if !directory.hasSpare { makeSpareAgain() }
        commits.count += 1
    }

    /// Tries whether there is room for new messages of so many bytes, which it does not write.
    ///
    /// - Throws: what ``commit(_:)`` of such messages would.
    package func tryRoom(for bytes: UInt64) throws(StoreError) {
        try requireRoom(for: bytes)
        // A quota, for example, leaves less than the file system has.
        try directory.tryRoom(for: bytes)
        try commit([])
    }

    /// Makes the kernel start writing a log with large messages to the disk. Otherwise it would start when the log is
    /// written back into the file, and all commits would wait for all of it.
    private func beginWriting(_ bytes: UInt64) {
        unwritten += bytes
        guard durability != .full, unwritten >= 1 << 20 else { return }
        unwritten = 0
        directory.beginWriting(Self.fileName + "-wal")
    }

    /// The sessions that there are from now on. What the store has of others stays, until it needs the room for a name.
    package func setPresent(_ sessions: Set<SessionName>) { contents.present = sessions }

    /// Writes the log back into the file and closes it. Every later call throws ``StoreError/closed``. Another daemon
    /// may take the directory from then on.
    public func close() throws(StoreError) {
        guard !isClosed else { return }
        defer {
            isClosed = true
            database?.close()
            directory.unlock()
        }
        do throws(StoreError) {
            try complete()
        } catch .corrupt {
            // The next start could not know what is wrong now, so it is repaired first.
            try complete()
        }
    }

    private func complete() throws(StoreError) {
        let database = try opened()
        // The file is complete, so the next start need not skip the numbers that were reserved.
        try database.run(
            """
            UPDATE session SET reserved_sequence = next_sequence - 1,
                reserved_inbox_sequence = next_inbox_sequence - 1, window_first = 0, window_count = 0
            """)
        // Gives the room of a past backlog back to the disk, at most 4 MiB: stopping must not take long.
        try database.execute("PRAGMA incremental_vacuum(1024)")
        try database.emptyLog()
    }

    /// Sizes and counts for `daemon.status`.
    public func statistics() -> StoreStatistics {
        StoreStatistics(
            path: "\(directory.path)/\(Self.fileName)",
            schemaVersion: schemaVersion,
            fileBytes: directory.size(of: Self.fileName),
            logBytes: directory.size(of: Self.fileName + "-wal"),
            freeBytes: directory.space?.available,
            commits: commits,
            messages: contents.messages)
    }

    private func write(_ batch: [(session: SessionName, changes: [SessionChange])]) throws(StoreError) {
        let database = try opened()
        let before = contents
        do {
            try transaction(in: database, isFlushed: batch.mustBeFlushed) { () throws(StoreError) in
                for (session, changes) in batch where !changes.isEmpty {
                    try apply(changes, to: session, in: database)
                }
                // A transaction that writes nothing succeeds on a file system that takes nothing.
                if batch.isEmpty { try database.execute("PRAGMA user_version = \(schemaVersion)") }
            }
        } catch {
            contents = before
            throw error
        }
    }

    /// - Parameter isFlushed: whether the transaction waits for the disk with ``Durability/full``. One that does not is
    ///   flushed by the next one that does.
    func transaction(
        in database: Database, isFlushed: @autoclosure () -> Bool, _ body: () throws(StoreError) -> Void
    ) throws(StoreError) {
        guard durability == .full else { return try database.transaction(body) }
        guard !isFlushed() else {
            try database.transaction(body)
            commits.flushes += 1
            return
        }
        try database.execute("PRAGMA synchronous = NORMAL")
        // A pragma on an open connection does not fail, and if it did, the next commit would fail too.
        defer { try? database.execute("PRAGMA synchronous = FULL") }
        try database.transaction(body)
    }

    func opened() throws(StoreError) -> Database {
        guard !isClosed else { throw .closed }
        guard let database, !database.isCorrupt, renewal == nil else { return try replace() }
        // A size that cannot be read counts as cut short.
        switch files.look(in: directory, contents: { (try? database.contentBytes()) ?? .max }) {
        case .asTheyWere: break
        case .cutShort:
            database.damage = "it was cut short"
            return try replace()
        case .removed: return try replace()
        }
        return database
    }

    // MARK: Room

    /// Runs `body`, which writes to the log first. If there is no room, it is tried again after the log was emptied,
    /// and then, if it must always succeed, in the room that is reserved for that.
    func withRoom(orSpare mayUseSpare: Bool, _ body: () throws(StoreError) -> Void) throws(StoreError) {
        do {
            return try body()
        } catch .full {
            try? emptyLog(of: opened())
        }
        do {
            return try body()
        } catch .full where mayUseSpare {
            guard directory.releaseSpare() else { throw .full(path: "\(directory.path)", cause: "no room is left") }
        }
        try body()
        try? emptyLog(of: opened())
    }

    /// Writes the log back into the file, and gives its room to the file system.
    private func emptyLog(of database: Database) throws(StoreError) {
        defer { files.forgetSizes() }
        try database.emptyLog()
    }

    /// Makes the spare file again after it was needed. Room that deleted rows left in the file is given back first.
    private func makeSpareAgain() {
        while let space = directory.space, space.available < directory.reserve, (try? reclaim()) == true {}
        guard let space = directory.space, space.available >= directory.reserve / 2 else { return }
        directory.makeSpare()
    }

    /// Refuses messages while there is still room for everything else.
    ///
    /// - Parameter needed: bytes that will be written to the log, and then to the file.
    func requireRoom(for needed: UInt64) throws(StoreError) {
        guard needed > 0 else { return }
        while let space = directory.space, space.available < directory.reserve + 2 * needed {
            if try reclaim() { continue }
            throw .full(
                path: "\(directory.path)/\(Self.fileName)",
                cause:
                    "\(space.available) bytes are left on the file system, \(directory.reserve) of them are kept for "
                    + "acknowledgements")
        }
    }

    /// Gives the room that removed rows left in the file back to the file system, a part at a time, because moving
    /// pages is written to the log first.
    ///
    /// - Returns: whether there was any.
    private func reclaim() throws(StoreError) -> Bool {
        let database = try opened()
        let free = try database.integer("PRAGMA freelist_count") ?? 0
        // One page of the list holds the list itself.
        guard free > 1 else { return false }
        // A pragma takes no bound value; this is our own number.
        let pages = min(max(directory.reserve / 4 / 4096, 4), 256)
        try withRoom(orSpare: true) { () throws(StoreError) in
            try database.execute("PRAGMA incremental_vacuum(\(pages))")
        }
        try emptyLog(of: database)
        return try database.integer("PRAGMA freelist_count") ?? 0 < free
    }
}

extension [(session: SessionName, changes: [SessionChange])] {
    fileprivate var mustBeFlushed: Bool { contains { $0.changes.contains(where: \.mustBeFlushed) } }
}

extension SessionChange {
    /// Whether the commit waits for the disk with ``Durability/full``.
    fileprivate var mustBeFlushed: Bool {
        switch self {
        case .mqtt(.acknowledge), .mqtt(.concludeKey): false
        default: true
        }
    }

    /// An estimate of the bytes that it adds to the file; only messages and publications count.
    package var roomNeeded: Int {
        switch self {
        case .mqtt(.insert(let stored)): stored.message.size
        case .putPublication(let publication): publication.size
        case .mqtt(.collect(let message, let consumers, _)): message.size * consumers.count
        default: 0
        }
    }
}
