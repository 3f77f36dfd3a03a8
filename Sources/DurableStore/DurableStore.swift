internal import Glibc
public import MQTT
public import SessionCore

/// What of the sessions outlives the daemon: the outbox, the exchanges in flight, and what the server may remember of
/// us. One SQLite file in the state directory.
///
/// The file is written by one transaction per ``commit(_:)``, which is where the time goes (the disk's flush): the
/// caller collects changes while a commit runs and hands them over together. Every call blocks the thread of the
/// executor, so that should be one of the store's own.
public actor DurableStore {
    /// What "accepted" promises.
    public enum Durability: String, Sendable, CaseIterable {
        /// A commit survives the end of the daemon, however it ends, and, but for the last moments, power loss.
        case normal
        /// A commit survives power loss: it is flushed to the disk before ``DurableStore/commit(_:)`` returns.
        case full
    }

    /// The name of the database in the state directory.
    public static let fileName = "holdfast.db"

    /// What was found when the store was opened.
    public nonisolated let openReport: OpenReport

    let directory: StateDirectory
    var database: Database?
    /// The row of each session that has one.
    var sessionIDs: [SessionName: Int64] = [:]
    var messages = 0
    let durability: Durability
    let historyBounds: HistoryBounds
    /// Above the limit at first, so that the first entry of every life looks.
    var recordedSinceAgePruning = Int.max / 2
    private let schemaVersion: Int
    private let reserve: UInt64
    private var commits: UInt64 = 0
    private var failedCommits: UInt64 = 0
    private var lastCommitDuration = Duration.zero
    private var longestCommitDuration = Duration.zero
    private nonisolated let executor: any SerialExecutor

    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Opens the store, on the caller's thread. A directory that is missing is made (0700), its parents are not.
    ///
    /// A damaged database is moved aside and replaced by an empty one: see ``openReport``.
    ///
    /// - Throws: ``StoreError/locked(directory:holder:)`` when another daemon has the directory,
    ///   ``StoreError/unwritable(path:cause:)``, ``StoreError/newerSchema(path:found:known:)``, or what the disk did.
    public init(directory: String, durability: Durability, executor: any SerialExecutor) throws(StoreError) {
        try self.init(
            directory: directory, durability: durability, executor: executor, migrations: Schema.migrations)
    }

    /// - Parameters:
    ///   - migrations: the schema, of a later version in tests.
    ///   - reserve: bytes of the file system that messages may not take, so that acknowledgements always have room.
    ///     Large enough for the write-ahead log to be written twice; never more than a sixteenth of the file system.
    init(
        directory path: String, durability: Durability, executor: any SerialExecutor, migrations: [String],
        reserve: UInt64 = 8 << 20, historyBounds: HistoryBounds = .init()
    ) throws(StoreError) {
        let directory = try StateDirectory(path: path)
        // Whatever the daemon before this one wrote last; commits go to the log.
        let lastAlive = ["", "-wal"].compactMap { directory.modified(Self.fileName + $0) }.max()
            .flatMap { written in directory.lastTouched.map { max(written, $0) } }
        var report = OpenReport(isNew: !directory.contains(Self.fileName), lastAlive: lastAlive)
        let reserve = min(reserve, (directory.space?.total ?? .max) / 16)
        let database: Database
        do {
            database = try Self.open(in: directory, durability, migrations, reserve, &report)
        } catch .corrupt(_, let cause) {
            let aside = "\(Self.fileName).corrupt-\(Self.now().rawValue)"
            for suffix in ["", "-wal", "-shm"] {
                try directory.rename(Self.fileName + suffix, to: aside + suffix)
            }
            report = OpenReport(
                isNew: true, movedAside: .init(path: "\(path)/\(aside)", cause: cause), lastAlive: lastAlive)
            database = try Self.open(in: directory, durability, migrations, reserve, &report)
        }
        var sessionIDs: [SessionName: Int64] = [:]
        try database.query("SELECT id, name FROM session") { row throws(StoreError) in
            if let name = SessionName(row.text(1)) { sessionIDs[name] = row.integer(0) }
            return true
        }
        self.sessionIDs = sessionIDs
        messages = Int(try database.integer("SELECT count(*) FROM message") ?? 0)
        // The log stays within half of what is kept free, so that it cannot take the room that its own contents need.
        let pages = min(max(reserve / 2 / 4096, 8), 1000)
        try database.execute("PRAGMA wal_autocheckpoint = \(pages); PRAGMA journal_size_limit = \(pages * 4096)")
        self.reserve = reserve
        self.durability = durability
        self.historyBounds = historyBounds
        self.directory = directory
        self.database = database
        self.executor = executor
        schemaVersion = migrations.count
        openReport = report
    }

    private static func open(
        in directory: borrowing StateDirectory, _ durability: Durability, _ migrations: [String],
        _ reserve: UInt64, _ report: inout OpenReport
    ) throws(StoreError) -> Database {
        try directory.makePrivateFile(fileName)
        let database = try Database(path: "\(directory.path)/\(fileName)")
        // Nothing is written into a file of a later version.
        if try Schema.version(of: database, known: migrations.count) == 0 {
            // Free pages go back to the file system a few at a time; can be set before the first table only.
            try database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        }
        var mode = ""
        try database.query("PRAGMA journal_mode = WAL") { row throws(StoreError) in
            mode = row.text(0)
            return false
        }
        guard mode == "wal" else {
            throw .failed(path: database.path, cause: "the file system cannot hold a write-ahead log")
        }
        try database.execute(
            durability == .full ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL")
        try database.execute("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF")
        var finding = "ok"
        try database.query("PRAGMA quick_check(1)") { row throws(StoreError) in
            finding = row.text(0)
            return false
        }
        guard finding == "ok" else { throw .corrupt(path: database.path, cause: finding) }
        report.backup = try Schema.migrate(
            database, to: migrations,
            backupName: { version in "\(fileName).version-\(version)-\(now().rawValue)" },
            directory: directory, reserve: reserve
        ).map { "\(directory.path)/\($0)" }
        return database
    }

    /// Makes all the changes of all the sessions durable in one transaction, or none of them.
    ///
    /// A change of a message that is not there does nothing. When there is no room, the same batch without its inserts
    /// still has some: a part of the disk is kept free for that.
    ///
    /// - Throws: ``StoreError/full(path:cause:)``, after which everything goes on as soon as there is room;
    ///   ``StoreError/inconsistent(_:)`` for a sequence that is not above every one inserted before.
    public func commit(_ batch: [(session: SessionName, changes: [DurableChange])]) throws(StoreError) {
        let database = try opened()
        let start = ContinuousClock.now
        let sessionIDsBefore = sessionIDs
        let messagesBefore = messages
        do {
            try requireRoom(for: batch)
            do {
                try write(batch, in: database)
            } catch .full {
                // The log may have room that only a checkpoint gives back.
                sessionIDs = sessionIDsBefore
                messages = messagesBefore
                try database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                try write(batch, in: database)
            }
        } catch {
            sessionIDs = sessionIDsBefore
            messages = messagesBefore
            failedCommits += 1
            throw error
        }
        commits += 1
        lastCommitDuration = start.duration(to: .now)
        longestCommitDuration = max(longestCommitDuration, lastCommitDuration)
    }

    /// Writes the log back into the file and closes it. Every later call throws ``StoreError/closed``. Another
    /// daemon may have the directory from then on.
    public func close() throws(StoreError) {
        guard let database else { return }
        self.database = nil
        defer { directory.unlock() }
        // What a backlog took from the disk goes back to it, 4 MiB at a time: stopping must not take long.
        try database.execute("PRAGMA incremental_vacuum(1024)")
        try database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
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
            failedCommits: failedCommits,
            lastCommitDuration: lastCommitDuration,
            longestCommitDuration: longestCommitDuration,
            messages: messages)
    }

    private func write(
        _ batch: [(session: SessionName, changes: [DurableChange])], in database: Database
    ) throws(StoreError) {
        try database.transaction { () throws(StoreError) in
            for (session, changes) in batch where !changes.isEmpty {
                try apply(changes, to: session, in: database)
            }
        }
    }

    func opened() throws(StoreError) -> Database {
        guard let database else { throw .closed }
        return database
    }

    /// The wall clock, in milliseconds since 1970.
    static func now() -> Timestamp {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        return Timestamp(rawValue: Int64(now.tv_sec) * 1000 + Int64(now.tv_nsec) / 1_000_000)
    }

    /// Refuses messages while there is still room for everything else. A message is written to the log, then to the file.
    private func requireRoom(for batch: [(session: SessionName, changes: [DurableChange])]) throws(StoreError) {
        var needed: UInt64 = 0
        for (_, changes) in batch {
            for change in changes {
                switch change {
                case .insert(let stored): needed += UInt64(stored.message.size)
                case .putPublication(let publication): needed += UInt64(publication.size)
                case .collect(let message, let consumers, _): needed += UInt64(message.size * consumers.count)
                default: break
                }
            }
        }
        try requireRoom(for: needed)
    }

    /// - Parameter needed: bytes that will be written to the log, and then to the file.
    func requireRoom(for needed: UInt64) throws(StoreError) {
        guard needed > 0 else { return }
        while let space = directory.space, space.available < reserve + 2 * needed {
            if try reclaim() { continue }
            throw .full(
                path: "\(directory.path)/\(Self.fileName)",
                cause:
                    "\(space.available) bytes are left on the file system, \(reserve) of them are kept for "
                    + "acknowledgements")
        }
    }

    /// Gives back to the file system what rows that were removed have left free in the file, a part of it at a time:
    /// moving pages is written to the log first.
    ///
    /// - Returns: whether there was something.
    private func reclaim() throws(StoreError) -> Bool {
        let database = try opened()
        let free = try database.integer("PRAGMA freelist_count") ?? 0
        // One page of the list is the list itself.
        guard free > 1 else { return false }
        // A pragma takes no bound value; this is a number of ours.
        try database.execute("PRAGMA incremental_vacuum(\(min(max(reserve / 4 / 4096, 4), 256)))")
        try database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return try database.integer("PRAGMA freelist_count") ?? 0 < free
    }
}
