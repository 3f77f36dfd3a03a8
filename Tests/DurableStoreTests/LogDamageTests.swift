import Glibc
import MQTT
import Session
import SessionCore
import Testing

@testable import DurableStore

/// What is found at the start when bytes of the write-ahead log are wrong or gone.
@Suite struct `A damaged log` {
    private static let header = 32
    private static let frame = 24 + 4096
    private static let log = "holdfast.db-wal"

    let main: SessionName

    init() throws { main = try session() }

    /// The state of a daemon that was killed, with `count` messages in the log.
    private func killed(_ count: Int64 = 200, bytes: Int = 300) async throws -> TemporaryDirectory {
        let directory = try TemporaryDirectory()
        let store = try openStore(directory.path)
        try await store.commit(main, .setEstablished(true))
        for number in 1...count { try await store.commit(main, .insert(message(number, bytes: bytes))) }
        let copy = try directory.copyAsItIs()
        try await store.close()
        return copy
    }

    static let damages: [Damage] = [
        .init("a byte of a page") { $0[header + $0.count / frame / 2 * frame + 2000] ^= 4 },
        .init("a byte of the number of a page") { $0[header + $0.count / frame / 2 * frame + 3] ^= 1 },
        .init("a byte of a checksum") { $0[header + $0.count / frame / 2 * frame + 20] ^= 4 },
        .init("a byte of the numbers of this use of the log") { $0[header + $0.count / frame / 2 * frame + 10] ^= 4 },
        .init("a whole sector") { bytes in
            let start = bytes.count / 2 / 512 * 512
            bytes.replaceSubrange(start..<start + 512, with: repeatElement(0xA5, count: 512))
        },
        .init("a block that was never written") { bytes in
            let start = bytes.count / 2 / 4096 * 4096
            bytes.replaceSubrange(start..<start + 4096, with: repeatElement(0, count: 4096))
        },
        .init("the header") { $0[21] ^= 1 },
        .init("nothing but zeros for a header") {
            $0.replaceSubrange(0..<header, with: repeatElement(0, count: header))
        },
        .init("the first frame") { $0[header + 1000] ^= 1 },
    ]

    @Test(arguments: damages)
    func `is told, kept, and read as far as possible`(damage: Damage) async throws {
        let copy = try await killed()
        var bytes = try readFile("\(copy.path)/\(Self.log)")
        damage.apply(&bytes)
        try writeFile("\(copy.path)/\(Self.log)", bytes)

        let store = try openStore(copy)
        let moved = try #require(store.openReport.movedAside)
        #expect(!moved.isComplete)
        #expect(moved.cause.contains("of the write-ahead log is wrong, with "), "\(moved.cause)")
        #expect(moved.cause.contains("transactions behind it"))
        #expect(try readFile(try #require(moved.path) + "-damaged-wal") == bytes)
        let kept = try await store.queue(main)
        #expect(kept.count == moved.messages)
        for stored in kept { #expect(stored == message(stored.sequence.rawValue, bytes: 300)) }
        #expect(Set(kept.map(\.sequence)).count == kept.count)
        // No number is used again, and nothing new is taken for something old.
        #expect(try await store.mqtt(main).nextSequence.rawValue > 200)
        #expect(try await !store.mqtt(main).established)
        // It is not found again.
        #expect(try openStore(try copy.copyAsItIs()).openReport.movedAside == nil)
    }

    @Test func `one byte of a page costs at most the messages on it`() async throws {
        let copy = try await killed()
        let whole = try readFile("\(copy.path)/\(Self.log)")
        let frames = whole.count / Self.frame
        // The last transaction has the last of all versions of the page with the session.
        for index in Array(stride(from: 0, to: frames, by: 13)) + [frames - 4, frames - 3, frames - 2] {
            let directory = try copy.copyAsItIs()
            var bytes = whole
            bytes[Self.header + index * Self.frame + 24 + (index * 61) % 4096] ^= 0x10
            try writeFile("\(directory.path)/\(Self.log)", bytes)
            let store = try openStore(directory)
            let kept = try await store.queue(main)
            for stored in kept { #expect(stored == message(stored.sequence.rawValue, bytes: 300)) }
            guard store.openReport.movedAside != nil else {
                #expect(index >= frames - 2, "frame \(index) of \(frames) was passed over")
                continue
            }
            #expect(kept.count >= 180, "\(kept.count) after frame \(index) of \(frames)")
        }
    }

    /// SQLite does not notice the wrong end of a large value.
    @Test func `no message arrives with a part of another, or without its end`() async throws {
        let copy = try await killed(20, bytes: 9000)
        let whole = try readFile("\(copy.path)/\(Self.log)")
        for index in 0..<(whole.count / Self.frame) {
            let directory = try copy.copyAsItIs()
            var bytes = whole
            bytes[Self.header + index * Self.frame + 24 + 50] ^= 0x10
            try writeFile("\(directory.path)/\(Self.log)", bytes)
            let store = try openStore(directory)
            for stored in try await store.queue(main) {
                #expect(stored == message(stored.sequence.rawValue, bytes: 9000), "frame \(index)")
            }
        }
    }

    static let ends: [Damage] = [
        .init("cut in a frame") { $0.removeLast(6000) },
        .init("a byte of the last frame") { $0[$0.count - 100] ^= 1 },
        .init("zeros behind it") { $0 += repeatElement(0, count: 20_000) },
        .init("zeros in its place") { bytes in
            bytes.replaceSubrange((bytes.count - 9000)..., with: repeatElement(0, count: 9000))
        },
        .init("garbage behind it") { $0 += (0..<20_000).map { UInt8(truncatingIfNeeded: $0 &* 73 &+ 41) } },
        .init("nothing but the header") { $0.removeLast($0.count - header) },
        .init("less than the header") { $0.removeLast($0.count - 20) },
    ]

    @Test(arguments: ends)
    func `is not what a kill or a loss of power leaves at the end`(end: Damage) async throws {
        let copy = try await killed()
        var bytes = try readFile("\(copy.path)/\(Self.log)")
        end.apply(&bytes)
        try writeFile("\(copy.path)/\(Self.log)", bytes)
        let store = try openStore(copy)
        #expect(store.openReport.movedAside == nil)
        let kept = try await store.queue(main)
        #expect(kept == kept.indices.map { message(Int64($0) + 1, bytes: 300) })
    }

    @Test func `is not what an earlier use of the file left behind the present end`() async throws {
        let directory = try TemporaryDirectory()
        let store = try openStore(directory.path)
        for number: Int64 in 1...50 { try await store.commit(main, .insert(message(number))) }
        try await store.execute("PRAGMA wal_checkpoint(RESTART)")
        try await store.commit(main, .insert(message(51)))
        let copy = try directory.copyAsItIs()
        #expect(try readFile("\(copy.path)/\(Self.log)").count > 50 * Self.frame)
        let next = try openStore(copy)
        #expect(next.openReport.movedAside == nil)
        #expect(try await next.queue(main).count == 51)
    }

    @Test(arguments: [true, false])
    func `is kept if its database is missing or empty`(isRemoved: Bool) async throws {
        let copy = try await killed()
        if isRemoved { unlink("\(copy.path)/holdfast.db") } else { truncate("\(copy.path)/holdfast.db", 0) }
        let log = try readFile("\(copy.path)/\(Self.log)")
        let store = try openStore(copy)
        let moved = try #require(store.openReport.movedAside)
        #expect(moved.cause == "it is missing or empty, and its write-ahead log is not")
        #expect(!moved.isComplete)
        #expect(try readFile(try #require(moved.path) + "-wal") == log)
        try await store.commit(main, .insert(message(1)))
    }
}

/// What somebody does to the files while they are in use.
@Suite struct `Files that are cut short under a running daemon` {
    static let cuts: [Removal] = [
        .init("all of the log") { truncate("\($0.path)/holdfast.db-wal", 0) },
        .init("half of the log") { directory in
            let size = (try? readFile("\(directory.path)/holdfast.db-wal").count) ?? 0
            truncate("\(directory.path)/holdfast.db-wal", size / 2)
        },
        .init("all of the database") { truncate("\($0.path)/holdfast.db", 0) },
        .init("the database and its log") { directory in
            for name in ["holdfast.db", "holdfast.db-wal"] { truncate("\(directory.path)/\(name)", 0) }
        },
    ]

    /// - Parameter bytes: of each message; the cache of pages has 2 MB.
    @Test(arguments: cuts, [300, 60_000])
    func `are noticed, and what is accepted afterwards is safe`(cut: Removal, bytes: Int) async throws {
        let main = try session()
        let directory = try TemporaryDirectory()
        let store = try openStore(directory)
        let told = AsyncStream.makeStream(of: OpenReport.MovedAside.self)
        await store.whenReplaced { told.continuation.yield($0) }
        for number: Int64 in 1...100 { try await store.commit(main, .insert(message(number, bytes: bytes))) }
        cut.apply(directory)
        for _ in 1...3 {
            // Like a session, which is started again with what was read.
            while true {
                do throws(StoreError) {
                    let next = try await store.mqtt(main).nextSequence.rawValue
                    try await store.commit(main, .insert(message(next, bytes: bytes)))
                    break
                } catch {
                    #expect(["store-corrupt", "store-inconsistent"].contains(error.code), "\(error)")
                }
            }
        }
        // Reads what is no longer in memory, which may not have been needed until now.
        let kept = try await store.queue(main)
        for stored in kept { #expect(stored == message(stored.sequence.rawValue, bytes: bytes)) }
        #expect(kept.count(where: { $0.sequence.rawValue > 100 }) == 3)
        // What kill -9 leaves now has the same messages, or the next start says what it lacks.
        let next = try openStore(try directory.copyAsItIs())
        told.continuation.finish()
        var moved: [OpenReport.MovedAside] = []
        for await one in told.stream { moved.append(one) }
        if next.openReport.movedAside == nil { #expect(try await next.queue(main) == kept) }
        if kept.count < 103 { #expect(moved.contains { !$0.isComplete }) }
        #expect(moved.count == 1)
    }

    @Test(arguments: cuts)
    func `are noticed by the sign of life when there is no commit`(cut: Removal) async throws {
        let main = try session()
        let directory = try TemporaryDirectory()
        let store = try openStore(directory.path)
        for number: Int64 in 1...100 { try await store.commit(main, .insert(message(number, bytes: 300))) }
        await store.noteAlive()
        cut.apply(directory)
        await store.noteAlive()
        let killed = try openStore(try directory.copyAsItIs())
        #expect(killed.openReport.movedAside == nil)
        #expect(try await killed.queue(main) == (1...100).map { message($0, bytes: 300) })
        try await store.close()
    }

    @Test func `are not those that SQLite shortens after a daemon was killed while it stopped`() async throws {
        let main = try session()
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/holdfast.db"
        let first = try openStore(directory.path)
        try await first.commit([(main, (1...100).map { .insert(message($0, bytes: 10_000)) })])
        try await first.close()
        let killed = try Database(path: path)
        try killed.excludeOthers()
        killed.keepLog()
        try killed.execute("DELETE FROM message; PRAGMA incremental_vacuum")
        killed.close()
        let size = try readFile(path).count
        let store = try DurableStore(
            directory: directory.path, durability: .normal, executor: QueueExecutor(), migrations: Schema.migrations,
            reserve: 1 << 20)
        await store.whenReplaced { Issue.record("\($0)") }
        for number: Int64 in 101...400 { try await store.commit(main, .insert(message(number))) }
        #expect(try readFile(path).count < size / 2)
        #expect(try await store.queue(main).count == 300)
        try await store.close()
    }

    @Test(arguments: cuts)
    func `are repaired before the daemon ends`(cut: Removal) async throws {
        let main = try session()
        let directory = try TemporaryDirectory()
        let store = try openStore(directory.path)
        for number: Int64 in 1...100 { try await store.commit(main, .insert(message(number, bytes: 300))) }
        cut.apply(directory)
        try await store.close()
        let next = try openStore(directory)
        #expect(next.openReport.movedAside == nil)
        #expect(try await next.queue(main) == (1...100).map { message($0, bytes: 300) })
    }
}
