import Vocabulary

// How the file is opened, and how a damaged one is replaced.

extension DurableStore {
    /// What the names of the files of a database end with.
    static let fileSuffixes = ["", "-wal", "-shm", LogMark.suffix, Renewal.damagedLogSuffix]

    /// Makes a new database with what can be read of a damaged one.
    ///
    /// - Parameters:
    ///   - old: the damaged one, if it is open. It still has pages in memory, and knows which of the others are in a part
    ///     of the log that is gone.
    ///   - lost: the bytes of a log that is not there any more.
    static func renewDamaged(
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

    static func openNew(
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
    static func open(
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
        if found > 0,
            let damaged = try KnownSchema(version: found, migrations: migrations).damagedDefinition(in: database)
        {
            throw .corrupt(path: database.path, cause: "the definition of its \(damaged) is damaged")
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
    static func logLimit(of directory: borrowing StateDirectory) -> Int {
        max(Int(directory.reserve) / 2 / 4096, 8) * 4096
    }

    /// Finds what SQLite would pass over in silence. Must be called before it opens the file.
    ///
    /// - Parameter lost: set to the bytes of the log that are not there any more.
    static func checkFiles(in directory: borrowing StateDirectory, _ lost: inout Int) throws(StoreError) {
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
}
