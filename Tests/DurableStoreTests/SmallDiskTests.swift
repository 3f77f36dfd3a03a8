import Glibc
import MQTT
import SessionCore
import Testing

@testable import DurableStore

/// A file system of a mebibyte. Only root can mount one; HOLDFAST_REQUIRE_ALL=1 makes it mandatory.
final class SmallDisk: Sendable {
    let path: String
    private let directory: TemporaryDirectory

    static let isPossible = geteuid() == 0 || getenv("HOLDFAST_REQUIRE_ALL").map { String(cString: $0) } == "1"

    init() throws {
        directory = try TemporaryDirectory()
        path = directory.path
        let result = mount("tmpfs", path, "tmpfs", 0, "size=1m")
        try #require(result == 0, "mount: \(systemText(errno))")
    }

    deinit {
        umount2(path, Int32(MNT_DETACH))
    }

    func makeReadOnly() throws {
        // A child that another test is starting holds our files open until it runs its program.
        let deadline = ContinuousClock.now + .seconds(180)
        while mount(nil, path, nil, UInt(MS_REMOUNT) | UInt(MS_RDONLY), nil) != 0 {
            try #require(errno == EBUSY && ContinuousClock.now < deadline, "remount: \(systemText(errno))")
            usleep(10_000)
        }
    }

    /// Uses up the room that is left.
    func fill(leaving room: Int = 0) throws {
        let descriptor = open("\(path)/ballast", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        try #require(descriptor >= 0)
        defer { close(descriptor) }
        let page = [UInt8](repeating: 1, count: 4096)
        while write(descriptor, page, page.count) > 0 {}
        try #require(ftruncate(descriptor, max(0, lseek(descriptor, 0, SEEK_END) - room)) == 0)
    }

    func free() {
        // A child that another test is starting may have it open, and so keep what is in it.
        truncate("\(path)/ballast", 0)
        unlink("\(path)/ballast")
    }
}

@Suite(.enabled(if: SmallDisk.isPossible, "only root can mount a small disk"))
struct `A disk` {
    let disk: SmallDisk
    let main: SessionName

    init() throws {
        disk = try SmallDisk()
        main = try session()
    }

    private func open(reserve: UInt64 = 8 << 20) throws(StoreError) -> DurableStore {
        try DurableStore(
            directory: disk.path, durability: .normal, executor: QueueExecutor(), migrations: Schema.migrations,
            reserve: reserve)
    }

    /// Inserts until it is refused.
    private func insertUntilFull(
        _ store: DurableStore, from first: Int64 = 1, bytes: Int = 10_000
    ) async throws -> Int64 {
        for number in first..<(first + 5000) {
            do throws(StoreError) {
                try await store.commit(main, .insert(message(number, bytes: bytes)))
            } catch {
                try #require(error.isFull, "\(error)")
                return number - first
            }
        }
        Issue.record("a mebibyte took 5000 messages of \(bytes) bytes")
        return 5000
    }

    @Test func `that is full refuses messages and accepts everything else`() async throws {
        let store = try open()
        let accepted = try await insertUntilFull(store)
        #expect(accepted > 10)
        #expect(try await store.queue(main) == (1...accepted).map { message($0, bytes: 10_000) })

        // Acknowledgements, one commit each, go on and make room.
        for number in 1...accepted {
            try await store.commit(main, .assign(sequence(number), try id(UInt16(number))))
            try await store.commit(main, .insertInbound(try id(UInt16(number))), .setEstablished(true))
            try await store.commit(main, .remove(sequence(number)))
        }
        #expect(try await store.mqtt(main).queuedCount == 0)
        #expect(await store.statistics().commits.failed == 1)
        // Nearly all the room is available again, and not only for one message.
        #expect(try await insertUntilFull(store, from: accepted + 1) > accepted * 9 / 10)
    }

    @Test func `that others fill refuses messages, and recovers on its own`() async throws {
        let store = try open()
        try await store.commit(main, .insert(message(1)))
        try disk.fill()
        await #expect {
            try await store.commit(main, .insert(message(2)))
        } throws: { ($0 as? StoreError)?.isFull == true }
        #expect(try await store.queue(main) == [message(1)])
        disk.free()
        try await store.commit(main, .insert(message(2)))
        #expect(try await store.queue(main) == [message(1), message(2)])
    }

    @Test func `that has no room for a new database keeps the one that was removed`() async throws {
        let store = try open(reserve: 0)
        try await store.commit([(main, (1...30).map { .insert(message($0, bytes: 3000)) })])
        for name in ["holdfast.db", "holdfast.db-wal", "holdfast.db-shm"] { unlink("\(disk.path)/\(name)") }
        try disk.fill()
        await #expect(throws: StoreError.self) { try await store.commit(main, .insert(message(31))) }
        disk.free()
        try await store.commit(main, .insert(message(31)))
        #expect(try await store.queue(main).map(\.sequence.rawValue) == Array(1...31))
        let reopened = try openStore(try copyElsewhere())
        #expect(reopened.openReport.movedAside == nil)
        #expect(try await reopened.queue(main).map(\.sequence.rawValue) == Array(1...31))
    }

    @Test func `that has no room to write the log back leaves the mark of the log`() async throws {
        do {
            let store = try open(reserve: 0)
            for number: Int64 in 1...30 { try await store.commit(main, .insert(message(number, bytes: 9000))) }
            try disk.fill()
            await #expect(throws: StoreError.self) { try await store.close() }
        }
        disk.free()
        truncate("\(disk.path)/holdfast.db-wal", 0)
        #expect(try open(reserve: 0).openReport.movedAside?.isComplete == false)
    }

    /// Without a reserve SQLite itself runs out of disk, at every step of a transaction in turn.
    @Test(arguments: [500, 3000, 10_000, 60_000])
    func `that fills up within a transaction loses nothing and applies nothing in part`(bytes: Int) async throws {
        let store = try open(reserve: 0)
        let accepted = try await insertUntilFull(store, bytes: bytes)
        #expect(accepted > 1)
        let before = try await store.mqtt(main)
        #expect(before.queuedCount == Int(accepted))
        await #expect {
            try await store.commit(
                main, .setEstablished(true), .remove(sequence(1)),
                .insert(message(accepted + 1, bytes: 700_000)), .insert(message(accepted + 2, bytes: 700_000)))
        } throws: { ($0 as? StoreError)?.isFull == true }
        #expect(try await store.mqtt(main) == before)
        #expect(try await store.queue(main) == (1...accepted).map { message($0, bytes: bytes) })

        try disk.fill()
        let reopened = try openStore(try copyElsewhere())
        #expect(reopened.openReport.movedAside == nil)
        #expect(try await reopened.queue(main) == (1...accepted).map { message($0, bytes: bytes) })
    }

    private func copyElsewhere() throws -> TemporaryDirectory {
        let copy = try TemporaryDirectory()
        for name in ["holdfast.db", "holdfast.db-wal"] {
            try writeFile("\(copy.path)/\(name)", readFile("\(disk.path)/\(name)"))
        }
        return copy
    }

    @Test func `that is full at the start is reported clearly`() throws {
        try disk.fill()
        #expect {
            _ = try open()
        } throws: { error in
            guard let error = error as? StoreError else { return false }
            return error.isFull || error.code == "store-unwritable"
        }
        disk.free()
        _ = try open()
    }

    @Test(arguments: [0, 60_000, 150_000])
    func `that has no room for what can be recovered from a damaged file keeps that file`(room: Int) async throws {
        let store = try open(reserve: 0)
        try await store.commit([(main, (1...500).map { .insert(message($0, bytes: 300)) })])
        try await store.close()
        var bytes = try readFile("\(disk.path)/holdfast.db")
        // A page in the middle of the messages.
        let page = bytes.count / 4096 / 2
        for index in (page * 4096)..<(page * 4096 + 4096) { bytes[index] = 0x5A }
        try writeFile("\(disk.path)/holdfast.db", bytes)
        let before = try names()
        try disk.fill(leaving: room)
        for _ in 1...2 {
            #expect {
                _ = try open(reserve: 0)
            } throws: { error in
                guard let error = error as? StoreError, error.isFull else { return false }
                // Without any room, not even the damage is found.
                return room == 0 || error.description.contains("is damaged")
            }
            #expect(try names() == (before + ["ballast"]).sorted())
        }
        disk.free()
        let recovered = try open(reserve: 0)
        let moved = try #require(recovered.openReport.movedAside)
        #expect((460..<500).contains(moved.messages), "all but those of the damaged page")
        #expect(try await recovered.queue(main).count == moved.messages)
    }

    @Test(arguments: [400, 10_000])
    func `that has no room for the copy before a migration is reported clearly, and gets no fuller`(bytes: Int)
        async throws
    {
        let store = try open(reserve: 0)
        let accepted = try await insertUntilFull(store, bytes: bytes)
        try await store.close()
        let before = try names()
        for _ in 1...2 {
            #expect {
                _ = try DurableStore(
                    directory: disk.path, durability: .normal, executor: QueueExecutor(),
                    migrations: Schema.migrations + ["ALTER TABLE session ADD COLUMN note TEXT;"])
            } throws: { ($0 as? StoreError)?.isFull == true }
            #expect(try names() == before)
        }
        #expect(try await open(reserve: 0).queue(main).count == Int(accepted))
    }

    private func names() throws -> [String] {
        let stream = try #require(opendir(disk.path))
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            names.append(
                withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) })
        }
        return names.filter { !$0.hasPrefix(".") && !$0.hasSuffix("-wal") && !$0.hasSuffix("-shm") }.sorted()
    }

    @Test func `that is read-only is reported clearly`() async throws {
        do {
            let store = try open()
            try await store.commit(main, .insert(message(1)))
            try await store.close()
        }
        try disk.makeReadOnly()
        #expect(throws: StoreError.unwritable(path: "\(disk.path)/lock", cause: "Read-only file system")) {
            _ = try open()
        }
    }
}
