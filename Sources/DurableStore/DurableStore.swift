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
    var files: DatabaseFiles
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
}
