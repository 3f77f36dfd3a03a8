import Glibc
import MQTT
import Session
import SessionCore
import Support
import Testing

@testable import DurableStore

@Suite struct `Opening the store` {
    let directory: TemporaryDirectory
    let main: SessionName

    init() throws {
        directory = try TemporaryDirectory()
        main = try session()
    }

    @Test func `makes the directory accessible to the daemon only`() async throws {
        let path = "\(directory.path)/state"
        let store = try openStore(path)
        #expect(store.openReport == OpenReport(isNew: true))
        var status = stat()
        try #require(stat(path, &status) == 0)
        #expect(status.st_mode & 0o777 == 0o700)
        try await store.commit(main, .insert(message(1)))
        for name in ["holdfast.db", "holdfast.db-wal", "lock"] {
            try #require(stat("\(path)/\(name)", &status) == 0)
            #expect(status.st_mode & 0o077 == 0, "\(name)")
        }
        try await store.close()
        for name in ["holdfast.db", "lock"] { unlink("\(path)/\(name)") }
        rmdir(path)
    }

    @Test func `takes the room on a file system without a size as unknown`() throws {
        var status = statvfs()
        status.f_frsize = 4096
        #expect(StateDirectory.space(of: status) == nil)
        (status.f_blocks, status.f_bavail) = (10, 0)
        let space = try #require(StateDirectory.space(of: status))
        #expect(space == (available: 0, total: 40_960))
    }

    @Test func `a second time finds what was stored`() async throws {
        try await openStore(directory).commit(main, .insert(message(1)))
        let store = try openStore(try directory.copyAsItIs())
        #expect(store.openReport == OpenReport(isNew: false))
        #expect(await store.statistics().messages == 1)
    }

    @Test func `while it is open keeps other programs out of the database`() async throws {
        let store = try openStore(directory)
        try await store.commit(main, .insert(message(1)))
        // A file of shared memory could be cut short, which would end the process with SIGBUS.
        #expect(!directory.names.contains("holdfast.db-shm"))
        let other = try Database(path: "\(directory.path)/holdfast.db")
        other.waitForLocks(0)
        for statement in ["SELECT * FROM message", "BEGIN IMMEDIATE", "PRAGMA wal_checkpoint(TRUNCATE)"] {
            #expect {
                try other.execute(statement)
            } throws: { error in
                (error as? StoreError)?.code == "store-busy"
            }
        }
        try await store.commit(main, .insert(message(2)))
        try await store.close()
        #expect(try other.integer("SELECT count(*) FROM message") == 2)
    }

    @Test func `while it is open names the process that has it`() throws {
        let first = try openStore(directory)
        let expected = StoreError.locked(directory: directory.path, holder: getpid())
        #expect(throws: expected) { try openStore(directory) }
        #expect(expected.description.contains("process \(getpid())"))
        withExtendedLifetime(first) {}
    }

    @Test func `fails while the store is open, even if somebody removed the lock file`() async throws {
        let first = try openStore(directory)
        unlink("\(directory.path)/lock")
        #expect(throws: StoreError.locked(directory: directory.path, holder: nil)) { try openStore(directory) }
        // The file comes back, for those who want to know the process.
        await first.noteAlive()
        #expect(throws: StoreError.locked(directory: directory.path, holder: getpid())) { try openStore(directory) }
        try await first.close()
        _ = try openStore(directory)
    }

    @Test func `is possible again when the store is released`() throws {
        do { _ = try openStore(directory) }
        _ = try openStore(directory)
    }

    @Test func `ignores a lock file without a lock`() throws {
        try writeFile("\(directory.path)/lock", Array("4711 and much more than a process id\n".utf8))
        _ = try openStore(directory)
        #expect(try readFile("\(directory.path)/lock") == Array("\(getpid())\n".utf8))
    }

    @Test func `fails clearly where no directory can be made`() throws {
        try writeFile("\(directory.path)/file", [])
        #expect {
            try openStore("\(directory.path)/file")
        } throws: { error in
            guard case .unwritable(let path, let cause) = error as? StoreError else { return false }
            return path.hasSuffix("/file") && cause == "Not a directory"
        }
        #expect {
            try openStore("\(directory.path)/missing/state")
        } throws: { error in
            (error as? StoreError)?.code == "store-unwritable"
        }
    }

    @Test func `without a free descriptor, the limit is to blame and not the directory`() {
        #expect(
            StoreError.unusable("/d", EMFILE).description == "/d: Too many open files; raise LimitNOFILE of the service"
        )
        #expect(StoreError.unusable("/d", EACCES).code == "store-unwritable")
        #expect(StoreError.unusable("/d", ENOSPC).code == "store-full", "there may be no inode left")
    }

    @Test(
        arguments: [
            ("/srv/hf/lock", "Read-only file system", "ReadWritePaths="),
            ("/srv/hf/holdfast.db", "unable to open database file (Permission denied)", "chown -R holdfast: /srv/hf"),
            ("/srv/hf/lock", "Permission denied", "chown -R holdfast: /srv/hf"),
            ("/srv/hf", "Permission denied", "in a directory that belongs to the user of the daemon"),
            ("/srv/hf/lock", "Is a directory", "in a directory that belongs to the user of the daemon"),
        ])
    func `what to do about a file that cannot be written depends on why`(
        _ path: String, _ cause: String, _ remedy: String
    ) {
        let sentence = StoreError.unwritable(path: path, cause: cause).description
        #expect(sentence.hasPrefix("cannot write \(path): \(cause); ") && sentence.contains(remedy), "\(sentence)")
    }

    static let damages: [Damage] = [
        .init("a wrong header") { bytes in bytes.replaceSubrange(0..<16, with: Array("not a database!!".utf8)) },
        .init("no header at all") { bytes in bytes.replaceSubrange(0..<100, with: repeatElement(0xA5, count: 100)) },
        .init("nothing but noise") { bytes in bytes = bytes.indices.map { UInt8(truncatingIfNeeded: $0 &* 73 &+ 41) } },
        .init("the table of tables overwritten") { bytes in
            bytes.replaceSubrange(100..<4096, with: repeatElement(0xFF, count: 3996))
        },
        .init("a page in the middle overwritten") { bytes in
            let start = bytes.count / 4096 / 2 * 4096
            bytes.replaceSubrange(start..<start + 4096, with: repeatElement(0xFF, count: 4096))
        },
        .init("the second half lost") { bytes in bytes.removeLast(bytes.count / 2) },
        .init("cut within a page") { bytes in bytes.removeLast(bytes.count - 5000) },
    ]

    @Test(arguments: damages)
    func `moves a damaged file aside and goes on`(damage: Damage) async throws {
        let first = try openStore(directory)
        try await first.commit([(main, [.setEstablished(true)] + (1...200).map { .insert(message($0, bytes: 300)) })])
        try await first.close()
        let copy = try directory.copyAsItIs()
        var bytes = try readFile("\(copy.path)/holdfast.db")
        damage.apply(&bytes)
        try writeFile("\(copy.path)/holdfast.db", bytes)

        let store = try openStore(copy)
        let aside = try #require(store.openReport.movedAside)
        let path = try #require(aside.path)
        #expect(store.openReport.isNew)
        #expect(!aside.cause.isEmpty)
        #expect(path.hasPrefix("\(copy.path)/holdfast.db.corrupt-"))
        #expect(try readFile(path) == bytes)
        // All readable rows are there, and none is misread.
        let session = try await store.mqtt(main)
        #expect(session.established == aside.isComplete)
        let kept = try await store.queue(main)
        #expect(kept.count == aside.messages)
        #expect(Set(kept.map(\.sequence)).count == kept.count)
        for stored in kept { #expect(stored == message(stored.sequence.rawValue, bytes: 300)) }
        let next = session.nextSequence.rawValue
        #expect(next > kept.last?.sequence.rawValue ?? 0)
        try await store.commit(main, .insert(message(next)))
        #expect(try await store.queue(main) == kept + [message(next)])
    }

    /// Returns the numbers of the pages with a table's rows, in order. The table has two levels of pages
    /// (SQLite's file format, 1.6).
    private func leaves(of table: String, in bytes: [UInt8]) throws -> [Int] {
        let database = try Database(path: "\(directory.path)/holdfast.db")
        defer { database.close() }
        let root = try #require(
            try database.integer("SELECT rootpage FROM sqlite_schema WHERE name = ?", .text(table)))
        func number(_ offset: Int, _ width: Int) -> Int {
            bytes[offset..<offset + width].reduce(0) { $0 << 8 | Int($1) }
        }
        let start = (Int(root) - 1) * 4096
        try #require(bytes[start] == 5, "an interior page")
        let cells = (0..<number(start + 3, 2)).map { number(start + number(start + 12 + 2 * $0, 2), 4) }
        return cells + [number(start + 8, 4)]
    }

    @Test(arguments: [[0], [10], [-1], [9, 10, 11]])
    func `a damaged page costs its own rows`(damaged: [Int]) async throws {
        let first = try openStore(directory)
        try await first.commit([(main, [.setEstablished(true)] + (1...400).map { .insert(message($0, bytes: 300)) })])
        try await first.close()
        let file = "holdfast.db"
        var bytes = try readFile("\(directory.path)/\(file)")
        let pages = try leaves(of: "message", in: bytes)
        for index in damaged {
            let start = (pages[index < 0 ? pages.count + index : index] - 1) * 4096
            bytes.replaceSubrange(start..<start + 4096, with: repeatElement(0x5A, count: 4096))
        }

        let atStart = try directory.copyAsItIs()
        try writeFile("\(atStart.path)/\(file)", bytes)
        let store = try openStore(atStart)
        let moved = try #require(store.openReport.movedAside)
        #expect(!moved.isComplete)
        #expect((400 - 12 * damaged.count..<400).contains(moved.messages), "\(moved.messages)")
        #expect(try await store.queue(main).count == moved.messages)
    }

    @Test(arguments: [
        ("INSERT INTO quarantine (key, reason_code, message) SELECT min(key), 135, 'no' FROM in_flight", 2),
        ("UPDATE in_flight SET packet_id = 7", 1),
    ])
    func `rows about messages in flight that contradict each other are damage, and are not recovered`(
        statement: String, left: Int64
    ) async throws {
        let first = try openStore(directory)
        try await first.commit([(main, (1...400).map { .insert(message($0, bytes: 300)) })])
        try await first.commit(main, .assign(sequence(1), id(7)), .assign(sequence(2), id(8)))
        try await first.execute(statement)
        let before = try directory.copyAsItIs()
        #expect(try await first.mqtt(main).inFlight.map(\.sequence.rawValue) == [left], "a new file without them")
        try await first.close()
        try await openStore(before).close()
        // A page in the middle of the messages, so that the file is replaced.
        let copy = try before.copyAsItIs()
        var bytes = try readFile("\(before.path)/holdfast.db")
        let page = bytes.count / 4096 * 3 / 4
        for index in (page * 4096)..<(page * 4096 + 4096) { bytes[index] = 0x5A }
        try writeFile("\(copy.path)/holdfast.db", bytes)
        let store = try openStore(copy)
        #expect(store.openReport.movedAside?.isComplete == false)
        #expect(try await store.mqtt(main).inFlight.map(\.sequence.rawValue) == [left])
    }

    /// Rows that can be read and that no table takes, as damage within a page makes them.
    static let refusals = ["payload = NULL", "payload = 'a text'", "qos = 'no number'"]

    @Test(arguments: refusals)
    func `a row that makes no sense counts as lost`(refusal: String) async throws {
        let first = try openStore(directory)
        try await first.commit([(main, [.setEstablished(true)] + (1...10).map { .insert(message($0)) })])
        try await first.close()
        let copy = try directory.copyAsItIs()
        do {
            // With the checks of the table off, as the damage does not ask for them.
            let database = try Database(path: "\(copy.path)/holdfast.db")
            var sql = ""
            try database.query("SELECT sql FROM sqlite_schema WHERE name = 'message'") { row throws(StoreError) in
                sql = row.text(0)
                return false
            }
            func declare(_ sql: String) throws {
                try database.execute("PRAGMA writable_schema = ON")
                try database.run("UPDATE sqlite_schema SET sql = ? WHERE name = 'message'", .text(sql))
                try database.execute("PRAGMA writable_schema = RESET")
            }
            try declare(sql.replacing("NOT NULL", with: "").replacing("STRICT", with: ""))
            try database.execute("UPDATE message SET \(refusal) WHERE key & 0xFFFF = 5")
            try declare(sql)
            database.close()
        }
        let store = try openStore(copy)
        let moved = try #require(store.openReport.movedAside)
        #expect(!moved.isComplete)
        #expect(moved.messages == 9)
        #expect(try await store.queue(main).map(\.sequence.rawValue) == [1, 2, 3, 4, 6, 7, 8, 9, 10])
        #expect(try await !store.mqtt(main).established)
    }

    static let removals: [Removal] = [
        .init("everything is removed") { directory in
            for name in directory.names where name != "lock" { unlink("\(directory.path)/\(name)") }
        },
        .init("the database is removed") { unlink("\($0.path)/holdfast.db") },
        .init("the log is removed") { unlink("\($0.path)/holdfast.db-wal") },
        .init("the database is moved away") { rename("\($0.path)/holdfast.db", "\($0.path)/old.db") },
        .init("another file is put in its place") { directory in
            try? writeFile("\(directory.path)/new", Array("a backup".utf8))
            rename("\(directory.path)/new", "\(directory.path)/holdfast.db")
        },
    ]

    @Test(arguments: removals)
    func `files removed under a running daemon are restored in full`(removal: Removal) async throws {
        let store = try openStore(directory)
        let told = AsyncStream.makeStream(of: OpenReport.MovedAside.self)
        await store.whenReplaced { told.continuation.yield($0) }
        try await store.commit([(main, [.setEstablished(true)] + (1...200).map { .insert(message($0, bytes: 300)) })])
        let epoch = await store.epoch
        removal.apply(directory)
        try await store.commit(main, .insert(message(201)))
        told.continuation.finish()
        var moved: [OpenReport.MovedAside] = []
        for await one in told.stream { moved.append(one) }
        #expect(moved.map(\.isComplete) == [true])
        #expect(moved.map(\.isSeamless) == [true])
        #expect(await store.epoch == epoch)
        #expect(moved.first?.messages == 200)
        // A kill now loses nothing.
        let next = try openStore(try directory.copyAsItIs())
        #expect(next.openReport.movedAside == nil)
        #expect(try await next.queue(main).map(\.sequence.rawValue) == Array(1...201))
        // It does not happen again either.
        try await store.commit(main, .insert(message(202)))
        try await store.close()
        let last = try openStore(directory)
        #expect(last.openReport.movedAside == nil)
        #expect(try await last.queue(main).count == 202)
    }

    @Test func `missing files are noticed by the sign of life when there is no commit`() async throws {
        let store = try openStore(directory)
        try await store.commit([(main, (1...20).map { .insert(message($0)) })])
        for name in directory.names where name != "lock" { unlink("\(directory.path)/\(name)") }
        await store.noteAlive()
        #expect(try await openStore(try directory.copyAsItIs()).queue(main).count == 20)
    }

    @Test func `a directory that is moved away is made again`() async throws {
        let store = try openStore(directory)
        try await store.commit([(main, (1...20).map { .insert(message($0)) })])
        let away = directory.path + "-away"
        try #require(rename(directory.path, away) == 0)
        try await store.commit(main, .insert(message(21)))
        #expect(try await openStore(try directory.copyAsItIs()).queue(main).count == 21)
        #expect(throws: StoreError.locked(directory: directory.path, holder: getpid())) { try openStore(directory) }
        Support.TemporaryDirectory.remove(away)
    }

    @Test func `a directory that another daemon made in the meantime stays with that one`() async throws {
        let store = try openStore(directory)
        try await store.commit([(main, (1...20).map { .insert(message($0)) })])
        let away = directory.path + "-away"
        try #require(rename(directory.path, away) == 0)
        do {
            let other = try openStore(directory.path)
            try await other.commit(main, .insert(message(1)))
            await #expect(throws: StoreError.locked(directory: directory.path, holder: getpid())) {
                try await store.commit(main, .insert(message(21)))
            }
            #expect(try await other.queue(main).count == 1)
            try await other.close()
        }
        // Whose files are set aside now, as any others would be that were put in the place of the present ones.
        try await store.commit(main, .insert(message(21)))
        #expect(try await store.queue(main).count == 21)
        Support.TemporaryDirectory.remove(away)
    }

    @Test func `a directory that cannot be made again is an error, and nothing is lost when it is back`()
        async throws
    {
        let parent = try TemporaryDirectory()
        let path = parent.path + "/state"
        let store = try openStore(path)
        try await store.commit([(main, (1...20).map { .insert(message($0)) })])
        // A file in the place of its parent.
        try #require(rename(parent.path, parent.path + "-away") == 0)
        try writeFile(parent.path, [])
        await #expect(throws: StoreError.self) { try await store.commit(main, .insert(message(21))) }
        unlink(parent.path)
        try #require(rename(parent.path + "-away", parent.path) == 0)
        try await store.commit(main, .insert(message(21)))
        #expect(try await store.queue(main).count == 21)
        try await store.close()
        #expect(try await openStore(path).queue(main).count == 21)
    }

    @Test func `takes an empty file for a new database`() async throws {
        try writeFile("\(directory.path)/holdfast.db", [])
        let store = try openStore(directory)
        #expect(store.openReport.movedAside == nil)
        try await store.commit(main, .insert(message(1)))
    }

    @Test func `a torn log loses only its end`() async throws {
        let first = try openStore(directory)
        for number: Int64 in 1...20 { try await first.commit(main, .insert(message(number))) }
        let copy = try directory.copyAsItIs()
        var log = try readFile("\(copy.path)/holdfast.db-wal")
        log.removeLast(6000)
        try writeFile("\(copy.path)/holdfast.db-wal", log)
        let store = try openStore(copy)
        #expect(store.openReport.movedAside == nil)
        let kept = try await store.queue(main)
        #expect(kept == (1...Int64(kept.count)).map { message($0) })
        #expect((10..<20).contains(kept.count))
        #expect(try await store.mqtt(main).nextSequence.rawValue > 20, "no number is used twice")
    }

    private let version = Schema.version(after: Schema.migrations)
    private let nextVersion = "ALTER TABLE session ADD COLUMN note TEXT;"

    private func open(_ path: String, _ migrations: [String]) throws(StoreError) -> DurableStore {
        try DurableStore(
            directory: path, durability: .normal, executor: QueueExecutor(), migrations: migrations)
    }

    @Test func `migrates an older schema after making a copy`() async throws {
        let first = try openStore(directory)
        try await first.commit(main, .insert(message(1)))
        let copy = try directory.copyAsItIs()
        let store = try open(copy.path, Schema.migrations + [nextVersion])
        let backup = try #require(store.openReport.backup)
        #expect(backup.hasPrefix("\(copy.path)/holdfast.db.version-\(version)-"))
        var status = stat()
        try #require(stat(backup, &status) == 0)
        #expect(status.st_mode & 0o777 == 0o600)
        #expect(try await store.queue(main) == [message(1)])
        #expect(await store.statistics().schemaVersion == version + 1)

        let old = try TemporaryDirectory()
        try writeFile("\(old.path)/holdfast.db", readFile(backup))
        #expect(try await openStore(old).queue(main) == [message(1)])
    }

    @Test func `removes the copy that a daemon was making when it was killed`() async throws {
        try await openStore(directory).commit(main, .insert(message(1)))
        let copy = try directory.copyAsItIs()
        for name in ["holdfast.db.version.part", "holdfast.db.version.part-journal"] {
            try writeFile("\(copy.path)/\(name)", Array("part".utf8))
        }
        let store = try open(copy.path, Schema.migrations + [nextVersion])
        #expect(store.openReport.backup != nil)
        #expect(!copy.names.contains { $0.contains(".part") })
    }

    @Test func `takes up the store of the first release`() async throws {
        try Database(path: "\(directory.path)/holdfast.db").execute(
            try repositoryFile("Tests/EndToEndTests/Fixtures/store-0.1.0.sql"))
        let store = try openStore(directory)
        #expect(store.openReport.backup?.contains("version-8") == true)
        #expect(try await store.queue(main).map(\.sequence.rawValue) == [5, 6, 7, 8, 9])
        let session = try await store.session(main)
        #expect(session.publications.map(\.topic) == ["plant/7/state"])
        let billing = try #require(session.mqtt.consumers.first)
        #expect(billing.name.description == "billing")
        #expect(billing.runs.map(\.messages).reduce(0, +) == 3)
        #expect(try await store.history(limit: 9).entries.count == 3)
        // It has no file at the first start.
        try await store.setPresent([:])
        let elsewhere = try Endpoint("mqtt://elsewhere.example")
        let foreign = try await store.foreignStates(among: [main: [elsewhere]])[main]
        #expect(foreign?.servers == [try Endpoint("mqtt://localhost:1883")])
        #expect(foreign?.state.messages == 5)
    }

    @Test func `recovers everything whatever bit of its version is wrong`() async throws {
        let store = try openStore(directory)
        try await store.commit(main, .insert(message(1)))
        try await store.close()
        for bit in 0..<32 {
            let copy = try directory.copyAsItIs()
            do {
                let database = try Database(path: "\(copy.path)/holdfast.db")
                let number = Int32(truncatingIfNeeded: version) ^ Int32(bitPattern: 1 << UInt32(bit))
                try database.execute("PRAGMA user_version = \(number)")
                database.close()
            }
            let next = try openStore(copy)
            #expect(next.openReport.movedAside?.isComplete == true, "bit \(bit)")
            #expect(try await next.queue(main).count == 1, "bit \(bit)")
        }
    }

    @Test func `leaves a newer schema alone`() async throws {
        do { _ = try open(directory.path, Schema.migrations + [nextVersion]) }
        let before = try readFile("\(directory.path)/holdfast.db")
        #expect(
            throws: StoreError.newerSchema(
                path: "\(directory.path)/holdfast.db", found: version + 1, known: version)
        ) { try openStore(directory) }
        #expect(try readFile("\(directory.path)/holdfast.db") == before)
        #expect(directory.names == ["holdfast.db", "holdfast.db-mark", "holdfast.spare", "lock"])
    }

    @Test func `a migration that fails leaves the old version`() async throws {
        do {
            let first = try openStore(directory)
            try await first.commit(main, .insert(message(1)))
        }
        let copy = try directory.copyAsItIs()
        #expect(throws: StoreError.self) {
            try open(copy.path, Schema.migrations + ["DELETE FROM message; CREATE TABLE session (again);"])
        }
        #expect(try await openStore(copy).queue(main) == [message(1)])
    }

    /// The write fails within COMMIT.
    @Test func `a limit on the size of files counts as a full disk, and is named`() async throws {
        await #expect(processExitsWith: .success) {
            signal(SIGXFSZ, SIG_IGN)
            let directory = try TemporaryDirectory()
            let store = try openStore(directory.path)
            let main = try session()
            try await store.commit(main, .insert(message(1)))
            var limit = rlimit(rlim_cur: 100_000, rlim_max: 100_000)
            try #require(setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit) == 0)
            do throws(StoreError) {
                try await store.commit(main, .insert(message(2, bytes: 200_000)))
                exit(3)
            } catch {
                print(error)
                if !error.isFull || !error.description.contains("File too large: LimitFSIZE=") { exit(4) }
            }
        }
    }

    @Test func `every error has its own code and sentence`() {
        let errors: [StoreError] = [
            .locked(directory: "/d", holder: nil), .unwritable(path: "/d", cause: "c"),
            .newerSchema(path: "/d", found: 2, known: 1), .full(path: "/d", cause: "c"),
            .busy(path: "/d", cause: "c"), .corrupt(path: "/d", cause: "c"), .damaged(path: "/d", cause: "c"),
            .failed(path: "/d", cause: "c"),
            .inconsistent("s"), .closed,
        ]
        #expect(Set(errors.map(\.code)).count == errors.count)
        #expect(Set(errors.map(\.description)).count == errors.count)
    }
}

/// Something that happens to a file.
struct Damage: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let apply: @Sendable (inout [UInt8]) -> Void

    init(_ name: String, _ apply: @escaping @Sendable (inout [UInt8]) -> Void) {
        testDescription = name
        self.apply = apply
    }
}

/// What an operator does to the files of a running daemon.
struct Removal: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let apply: @Sendable (TemporaryDirectory) -> Void

    init(_ name: String, _ apply: @escaping @Sendable (TemporaryDirectory) -> Void) {
        testDescription = name
        self.apply = apply
    }
}
