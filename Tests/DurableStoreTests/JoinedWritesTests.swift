import Glibc
import NIOCore
import Support
import Testing

@testable import DurableStore

@Suite struct `The log` {
    /// The calls of this thread that have written to a file.
    private func writes() throws -> Int {
        let file = try #require(fopen("/proc/thread-self/io", "r"))
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 128)
        while fgets(&line, Int32(line.count), file) != nil {
            let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            if text.hasPrefix("syscw: ") { return try #require(Int(text.dropFirst(7).dropLast())) }
        }
        throw StoreError.inconsistent("/proc/thread-self/io has no number of writes")
    }

    private func makeDatabase(in directory: TemporaryDirectory) throws -> Database {
        let database = try Database(path: "\(directory.path)/test.db")
        #expect(try database.text("PRAGMA journal_mode = WAL") == "wal")
        try database.execute(
            "PRAGMA synchronous = NORMAL; CREATE TABLE message (key INTEGER PRIMARY KEY, payload BLOB)")
        return database
    }

    @Test func `takes a large message in a few writes`() throws {
        let directory = try TemporaryDirectory(in: Support.TemporaryDirectory.diskParent)
        let database = try makeDatabase(in: directory)
        let before = try writes()
        try database.run(
            "INSERT INTO message (key, payload) VALUES (1, ?)", .blob(ByteBuffer(repeating: 0x61, count: 1_000_000)))
        // One for each 64 KiB, instead of two for each page of 4 KiB.
        #expect(try writes() - before <= 20)
    }

    /// The cache of pages has 2 MB.
    @Test(arguments: [1, 30_000, 70_000, 1_000_000, 4_000_000])
    func `has all of a transaction when the commit returns`(bytes: Int) throws {
        let directory = try TemporaryDirectory(in: Support.TemporaryDirectory.diskParent)
        let database = try makeDatabase(in: directory)
        for key in 1...3 {
            let payload = ByteBuffer(repeating: UInt8(key), count: bytes)
            try database.transaction { () throws(StoreError) in
                try database.run(
                    "INSERT INTO message (key, payload) VALUES (?, ?)", .integer(2 * key), .blob(payload))
                try database.run(
                    "INSERT INTO message (key, payload) VALUES (?, ?)", .integer(2 * key + 1), .blob(payload))
                if key > 1 { try database.run("DELETE FROM message WHERE key = ?", .integer(2 * key - 2)) }
            }
            for reader in [try Database(path: database.path), try killed(directory)] {
                var found: [Int64: ByteBuffer] = [:]
                try reader.query("SELECT key, payload FROM message") { row in
                    found[row.integer(0)] = row.blob(1)
                    return true
                }
                #expect(found.count == key + 1)
                #expect(found[Int64(2 * key)] == payload && found[Int64(2 * key + 1)] == payload)
                #expect(try reader.text("PRAGMA integrity_check") == "ok")
            }
        }
    }

    /// What kill -9 would leave.
    private func killed(_ directory: TemporaryDirectory) throws -> Database {
        let copy = try directory.copyAsItIs()
        unlink("\(copy.path)/test.db-shm")
        let database = try Database(path: "\(copy.path)/test.db")
        // Opens the log, which stays open when the directory is removed.
        _ = try database.integer("SELECT count(*) FROM message")
        return database
    }

    @Test func `keeps nothing of a transaction that was taken back`() throws {
        let directory = try TemporaryDirectory(in: Support.TemporaryDirectory.diskParent)
        let database = try makeDatabase(in: directory)
        #expect(throws: StoreError.self) {
            try database.transaction { () throws(StoreError) in
                try database.run(
                    "INSERT INTO message (key, payload) VALUES (1, ?)",
                    .blob(ByteBuffer(repeating: 0x61, count: 5_000_000)))
                throw .inconsistent("taken back")
            }
        }
        // Another connection writes where the transaction would have been.
        let other = try Database(path: database.path)
        try other.run(
            "INSERT INTO message (key, payload) VALUES (2, ?)", .blob(ByteBuffer(repeating: 0x62, count: 9000)))
        try database.run("INSERT INTO message (key, payload) VALUES (3, x'63')")
        #expect(try killed(directory).integer("SELECT sum(key) FROM message") == 5)
        #expect(try database.text("PRAGMA integrity_check") == "ok")
    }

    @Test(arguments: [false, true])
    func `takes a transaction that is too large for the memory in parts`(isTakenBack: Bool) throws {
        let directory = try TemporaryDirectory(in: Support.TemporaryDirectory.diskParent)
        let path = "\(directory.path)/test.db"
        do {
            let database = try makeDatabase(in: directory)
            try database.run("INSERT INTO message (key, payload) VALUES (1, x'61')")
        }
        let database = try Database(path: path)
        try database.excludeOthers(spillingAbove: 512)
        let payload = ByteBuffer(repeating: 0x62, count: 1_000_000)
        try database.execute("BEGIN")
        for key: Int64 in 2...8 {
            try database.run("INSERT INTO message (key, payload) VALUES (?, ?)", .integer(key), .blob(payload))
        }
        // Pages that were written come back, and are changed.
        try database.run("UPDATE message SET payload = x'63' WHERE key = 2")
        var status = stat()
        #expect(stat("\(path)-wal", &status) == 0 && status.st_size > 2_000_000)
        #expect(try killed(directory).integer("SELECT sum(key) FROM message") == 1)
        try database.execute(isTakenBack ? "ROLLBACK" : "COMMIT")
        let sum: Int64 = isTakenBack ? 1 : 36
        #expect(try killed(directory).integer("SELECT sum(key) FROM message") == sum)
        try database.run("INSERT INTO message (key, payload) VALUES (100, x'64')")
        #expect(try database.text("PRAGMA integrity_check") == "ok")
        let copy = try killed(directory)
        #expect(try copy.integer("SELECT sum(key) FROM message") == sum + 100)
        #expect(try copy.text("PRAGMA integrity_check") == "ok")
    }
}
