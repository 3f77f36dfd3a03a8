import Glibc
import MQTT
import Session
import SessionCore
import Testing

@testable import DurableStore

/// What somebody does to the files while no daemon runs, after one was killed or stopped.
@Suite struct `Files that are removed or cut short while no daemon runs` {
    private static let log = "holdfast.db-wal"
    let main: SessionName

    init() throws { main = try session() }

    /// - Parameter isStopped: whether the daemon was stopped, and not killed.
    private func left(_ count: Int64 = 50, isStopped: Bool = false) async throws -> TemporaryDirectory {
        let directory = try TemporaryDirectory()
        let store = try openStore(directory.path)
        for number in 1...count { try await store.commit(main, .insert(message(number, bytes: 300))) }
        if isStopped { try await store.close() }
        let copy = try directory.copyAsItIs(keepsTimes: true)
        if !isStopped { try await store.close() }
        return copy
    }

    static let losses: [Removal] = [
        .init("the log is removed") { unlink("\($0.path)/\(log)") },
        .init("the log is emptied") { truncate("\($0.path)/\(log)", 0) },
        .init("the log is cut to its header") { truncate("\($0.path)/\(log)", 32) },
        .init("the log is cut in the middle") { directory in
            let size = (try? readFile("\(directory.path)/\(log)").count) ?? 0
            truncate("\(directory.path)/\(log)", off_t(size / 2))
        },
        .init("the last byte of the log is cut off") { directory in
            let size = (try? readFile("\(directory.path)/\(log)").count) ?? 0
            truncate("\(directory.path)/\(log)", off_t(size - 1))
        },
        .init("the log is another one") { directory in
            guard let other = try? TemporaryDirectory(), let store = try? openStore(other.path) else { return }
            withExtendedLifetime(store) {
                try? writeFile("\(directory.path)/\(log)", readFile("\(other.path)/\(log)"))
            }
        },
    ]

    @Test(arguments: losses)
    func `after a kill are told, and what is left is kept`(loss: Removal) async throws {
        let killed = try await left()
        let epoch = try await openStore(try killed.copyAsItIs()).epoch
        loss.apply(killed)
        let store = try openStore(killed)
        let moved = try #require(store.openReport.movedAside)
        #expect(!moved.isComplete)
        #expect(moved.cause.contains("its write-ahead log w"))
        #expect(moved.cause.hasSuffix("while no daemon ran"))
        let kept = try await store.queue(main)
        #expect(kept == kept.indices.map { message(Int64($0) + 1, bytes: 300) })
        #expect(kept.count == moved.messages)
        // No number is used again, unless not even the session is known, and numbers mean something else.
        let next = try await store.mqtt(main).nextSequence.rawValue
        #expect(next > 50 || kept.isEmpty)
        #expect(await store.epoch != epoch)
        try await store.commit(main, .insert(message(next)))
        // It is not found again.
        let again = try openStore(try killed.copyAsItIs(keepsTimes: true))
        #expect(again.openReport.movedAside == nil)
        #expect(try await again.queue(main).count == kept.count + 1)
    }

    @Test(arguments: [true, false], [true, false])
    func `are told if they are the database`(isStopped: Bool, isRemoved: Bool) async throws {
        let copy = try await left(isStopped: isStopped)
        for name in ["holdfast.db", Self.log] {
            if isRemoved { unlink("\(copy.path)/\(name)") } else { truncate("\(copy.path)/\(name)", 0) }
        }
        let store = try openStore(copy)
        let moved = try #require(store.openReport.movedAside)
        #expect(moved.cause == "it is missing or empty")
        #expect(!moved.isComplete)
        #expect((moved.path == nil) == isRemoved)
        try await store.commit(main, .insert(message(1)))
        #expect(try openStore(try copy.copyAsItIs(keepsTimes: true)).openReport.movedAside == nil)
    }

    /// The larger of the two losses counts for the numbers that are not used again.
    @Test func `are told together with damage in what is left`() async throws {
        let directory = try TemporaryDirectory()
        let store = try openStore(directory.path)
        for number: Int64 in 1...2 { try await store.commit(main, .insert(message(number, bytes: 300))) }
        let size = try readFile("\(directory.path)/\(Self.log)").count
        try await store.commit([(main, (3...60_000).map { .insert(message($0, bytes: 1)) })])
        let copy = try directory.copyAsItIs(keepsTimes: true)
        try await store.close()
        try #require(size < 50_000)
        truncate("\(copy.path)/\(Self.log)", off_t(size))
        var bytes = try readFile("\(copy.path)/\(Self.log)")
        bytes[32 + 24 + 2000] ^= 4
        try writeFile("\(copy.path)/\(Self.log)", bytes)
        let next = try openStore(copy)
        #expect(next.openReport.movedAside?.cause.contains("of the write-ahead log is wrong") == true)
        #expect(try await next.mqtt(main).nextSequence.rawValue > 60_000)
    }

    @Test func `are a first start when all of them are removed`() async throws {
        let copy = try await left()
        for name in copy.names { unlink("\(copy.path)/\(name)") }
        #expect(try openStore(copy).openReport.movedAside == nil)
    }

    @Test(arguments: [true, false])
    func `are not missed when nothing was done to them`(isStopped: Bool) async throws {
        let copy = try await left(isStopped: isStopped)
        let store = try openStore(copy)
        #expect(store.openReport.movedAside == nil)
        #expect(try await store.queue(main).count == 50)
    }

    /// Another program with SQLite writes the log back into the database, and removes it.
    @Test func `are not a log that was written back by another program`() async throws {
        let killed = try await left()
        let other = try Database(path: "\(killed.path)/holdfast.db")
        #expect(try other.integer("SELECT count(*) FROM message") == 50)
        other.close()
        #expect(!killed.names.contains(Self.log))
        let store = try openStore(killed)
        #expect(store.openReport.movedAside == nil)
        #expect(try await store.queue(main).count == 50)
    }

    /// The log begins again from its start when it has been written back, many times.
    @Test func `are not a log that began again`() async throws {
        let directory = try TemporaryDirectory()
        let store = try DurableStore(
            directory: directory.path, durability: .normal, executor: QueueExecutor(), migrations: Schema.migrations,
            reserve: 1 << 20)
        for number: Int64 in 1...400 {
            try await store.commit(main, .insert(message(number, bytes: 5000)))
            guard number % 10 == 0 else { continue }
            let killed = try openStore(try directory.copyAsItIs(keepsTimes: true))
            #expect(killed.openReport.movedAside == nil)
            #expect(try await killed.queue(main).count == Int(number))
        }
        try await store.close()
    }

    @Test func `are not missed in another boot`() async throws {
        let killed = try await left()
        let path = "\(killed.path)/holdfast.db-mark"
        var mark = try readFile(path)
        let boot = try #require(mark.firstIndex(of: 32)) + 1
        mark[boot] = mark[boot] == 48 ? 49 : 48
        try writeFile(path, mark)
        unlink("\(killed.path)/\(Self.log)")
        #expect(try openStore(killed).openReport.movedAside == nil)
    }

    @Test(arguments: ["", "0\n", "9 9 9", "-1 a 1 1 1\n", "99999999999999999999 a 1 1 1\n"])
    func `are not missed with a mark that says nothing`(text: String) async throws {
        let killed = try await left()
        try writeFile("\(killed.path)/holdfast.db-mark", Array(text.utf8))
        unlink("\(killed.path)/\(Self.log)")
        #expect(try openStore(killed).openReport.movedAside == nil)
    }
}
