import Glibc
import MQTT
import Session
import SessionCore
import Testing

@testable import DurableStore

/// A daemon that ends while it puts a new database in the place of a damaged one.
@Suite struct `A crash while a database is renewed` {
    let main: SessionName

    init() throws { main = try session() }

    /// - Returns: the state of a daemon that was killed, with a wrong byte in the middle of its log.
    private func damaged(_ count: Int64 = 200) async throws -> TemporaryDirectory {
        let directory = try TemporaryDirectory()
        let store = try openStore(directory.path)
        try await store.commit(main, .setEstablished(true))
        for number in 1...count { try await store.commit(main, .insert(message(number, bytes: 300))) }
        let copy = try directory.copyAsItIs()
        try await store.close()
        let log = "\(copy.path)/holdfast.db-wal"
        var bytes = try readFile(log)
        bytes[32 + bytes.count / 4120 / 2 * 4120 + 2000] ^= 4
        try writeFile(log, bytes)
        return copy
    }

    /// The new database when it is complete.
    private func renewed(_ old: TemporaryDirectory) async throws -> [UInt8] {
        let copy = try old.copyAsItIs()
        try await openStore(copy.path).close()
        return try readFile("\(copy.path)/holdfast.db")
    }

    /// - Returns: the messages that can be recovered.
    private func recoverable(_ old: TemporaryDirectory) async throws -> [StoredMessage] {
        let messages = try await openStore(try old.copyAsItIs()).queue(main)
        #expect(messages.count > 150)
        return messages
    }

    /// What a kill leaves before the new database is complete.
    static let beginnings: [Removal] = [
        .init("an empty new database") { try? writeFile("\($0.path)/holdfast.db.new", []) },
        .init("a part of the new database, and of its log") { directory in
            guard let other = try? TemporaryDirectory(), let main = SessionName("main"),
                let new = try? Database(path: "\(other.path)/holdfast.db")
            else { return }
            try? new.execute("PRAGMA journal_mode = WAL; \(Schema.migrations.joined())")
            try? new.run("INSERT INTO session (id, name) VALUES (1, ?)", .text("\(main)"))
            try? writeFile("\(directory.path)/holdfast.db.new", readFile("\(other.path)/holdfast.db"))
            try? writeFile("\(directory.path)/holdfast.db.new-wal", readFile("\(other.path)/holdfast.db-wal"))
        },
        .init("a part of the log that can be read") { directory in
            let log = "\(directory.path)/holdfast.db-wal"
            guard let bytes = try? readFile(log) else { return }
            rename(log, "\(directory.path)/holdfast.db-damaged-wal")
            try? writeFile(log, Array(bytes.prefix(32 + 5 * 4120)))
        },
        .init("a log of which nothing is written yet") { directory in
            rename("\(directory.path)/holdfast.db-wal", "\(directory.path)/holdfast.db-damaged-wal")
        },
        .init("a part of the note") { try? writeFile("\($0.path)/holdfast.db.renewal.part", [65]) },
    ]

    @Test(arguments: beginnings)
    func `before the new one is complete is made good by beginning again`(beginning: Removal) async throws {
        let directory = try await damaged()
        let log = try readFile("\(directory.path)/holdfast.db-wal")
        let expected = try await recoverable(directory)
        beginning.apply(directory)
        let store = try openStore(directory)
        let moved = try #require(store.openReport.movedAside)
        #expect(moved.cause.contains("of the write-ahead log is wrong"))
        #expect(!moved.isComplete)
        #expect(try readFile(try #require(moved.path) + "-damaged-wal") == log)
        #expect(try await store.queue(main) == expected)
        #expect(try await !store.mqtt(main).established)
        #expect(try openStore(try directory.copyAsItIs()).openReport.movedAside == nil)
        #expect(!directory.names.contains { $0.hasPrefix("holdfast.db.new") || $0 == "holdfast.db-damaged-wal" })
    }

    /// - Parameter moved: how many of the old files have got their new name.
    @Test(arguments: 0...4)
    func `before all files are renamed is made good by going on`(moved: Int) async throws {
        let directory = try await damaged()
        let expected = try await recoverable(directory)
        try writeFile("\(directory.path)/holdfast.db.new", try await renewed(directory))
        let note = [
            "holdfast.db.corrupt-7", "incomplete", "\(expected.count)", "it is the cause,\nin two lines",
        ]
        try writeFile("\(directory.path)/holdfast.db.renewal", Array(note.joined(separator: "\n").utf8))
        for suffix in ["", "-wal", "-mark"].prefix(moved) {
            let file = "\(directory.path)/holdfast.db"
            try #require(rename(file + suffix, "\(directory.path)/holdfast.db.corrupt-7\(suffix)") == 0)
        }
        if moved == 4 {
            try #require(rename("\(directory.path)/holdfast.db.new", "\(directory.path)/holdfast.db") == 0)
        }
        let store = try openStore(directory)
        #expect(
            store.openReport.movedAside
                == OpenReport.MovedAside(
                    path: "\(directory.path)/holdfast.db.corrupt-7", cause: "it is the cause,\nin two lines",
                    messages: expected.count))
        #expect(try await store.queue(main) == expected)
        // The old files stay together.
        for suffix in ["", "-wal", "-mark"] { #expect(directory.names.contains("holdfast.db.corrupt-7\(suffix)")) }
        #expect(try openStore(try directory.copyAsItIs()).openReport.movedAside == nil)
    }

    /// The process is killed at the moment when a file is seen, or some time later: at the latest when all is done.
    @Test(arguments: ["holdfast.db.new", "holdfast.db.renewal", "holdfast.db.corrupt-"])
    func `at any moment loses nothing`(file: String) async throws {
        let directory = try await damaged(3000)
        let expected = try await recoverable(directory)
        let path = directory.path
        await #expect(processExitsWith: .signal(SIGKILL)) { [path = path as String, file = file as String] in
            let (looks, looksNow) = AsyncStream.makeStream(of: Void.self)
            Task.detached {
                looksNow.yield()
                while true {
                    guard let directory = opendir(path) else { continue }
                    while let entry = readdir(directory) {
                        let isIt = withUnsafePointer(to: &entry.pointee.d_name) { name in
                            strncmp(UnsafeRawPointer(name).assumingMemoryBound(to: CChar.self), file, file.utf8.count)
                        }
                        if isIt == 0 { kill(getpid(), SIGKILL) }
                    }
                    closedir(directory)
                }
            }
            for await _ in looks { break }
            let store = try openStore(path)
            withExtendedLifetime(store) { _ = kill(getpid(), SIGKILL) }
        }
        let store = try openStore(directory)
        #expect(try await store.queue(main) == expected)
        #expect(try await !store.mqtt(main).established)
    }

    /// Then the new database is all that there is.
    @Test func `whose files were removed is told, and what was copied is kept`() async throws {
        let directory = try TemporaryDirectory()
        let new = try openStore(directory.path)
        for number: Int64 in 1...20 { try await new.commit(main, .insert(message(number))) }
        try await new.commit(main, .setEstablished(true))
        try await new.execute("PRAGMA application_id = 0x486F6C64")
        let copy = try directory.copyAsItIs()
        unlink("\(copy.path)/holdfast.db-mark")
        for suffix in ["", "-wal"] {
            let path = "\(copy.path)/holdfast.db"
            try #require(rename(path + suffix, "\(path).new\(suffix)") == 0)
        }
        let store = try openStore(copy)
        let moved = try #require(store.openReport.movedAside)
        #expect(!moved.isComplete)
        #expect(moved.cause == "a daemon was ended while it recovered it")
        #expect(try await store.queue(main).count == 20)
        #expect(try await !store.mqtt(main).established)
        #expect(try await store.mqtt(main).nextSequence.rawValue > 21)
        #expect(try openStore(try copy.copyAsItIs()).openReport.movedAside == nil)
    }
}
