import MQTT
import SessionCore
import Testing
import Vocabulary

@testable import DurableStore

struct `The history` {
    let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    private func entry(
        _ number: Int64, of name: String = "main", at time: Int64? = nil, to state: String = "connected"
    ) throws -> HistoryEntry {
        HistoryEntry(
            time: Timestamp(rawValue: time ?? Timestamp.now.rawValue + number), session: try session(name),
            from: "connecting", to: state, reasonCode: "autoconnect", message: "entry \(number)")
    }

    private func entries(_ numbers: ClosedRange<Int64>) throws -> [HistoryEntry] { try numbers.map { try entry($0) } }

    private func open(_ bounds: DurableStore.HistoryBounds) throws -> DurableStore {
        try DurableStore(
            directory: directory.path, durability: .normal, executor: QueueExecutor(),
            migrations: Schema.migrations, historyBounds: bounds)
    }

    @Test(arguments: Durability.allCases)
    func `keeps every member, in the order of recording, across restarts`(
        _ durability: Durability
    ) async throws {
        var full = try entry(1)
        full.phase = "waiting-for-network"
        full.mode = "quick"
        full.serverCode = 0x8B
        full.outage = .milliseconds(41_250)
        full.failures = .init(attempts: 14, reasonCode: "dial-timeout", message: "no answer")
        // The clock was set back in between; the order of recording stays.
        let later = try entry(2, at: full.time.rawValue - 3_600_000)
        do {
            let store = try openStore(directory, durability)
            try await store.record([full])
            try await store.record([later])
            #expect(try await store.history(limit: 10).entries == [full, later])
        }
        let copy = try directory.copyAsItIs()
        #expect(try await openStore(copy, durability).history(limit: 10).entries == [full, later])
    }

    @Test func `is queried by session, by time and by number`() async throws {
        let store = try openStore(directory)
        let now = Timestamp.now.rawValue
        let all = try (0..<10).map { number in
            try entry(number, of: number % 2 == 0 ? "main" : "edge", at: now + number)
        }
        try await store.record(all)
        #expect(try await store.newestHistory() == [session(): all[8], session("edge"): all[9]])
        #expect(try await store.history(limit: 3).entries == Array(all.suffix(3)))
        #expect(try await store.history(session: try session(), limit: 2).entries == [all[6], all[8]])
        #expect(try await store.history(session: try session("nobody"), limit: 2).entries == [])
        #expect(try await store.history(since: all[7].time, limit: 10).entries == Array(all[7...]))
        #expect(try await store.history(until: all[3].time, limit: 2).entries == Array(all[1...2]))
        #expect(try await store.history(since: all[2].time, until: all[4].time, limit: 10).entries == Array(all[2...3]))
        for limit in [0, -1] {
            let page = try await store.history(limit: limit)
            #expect(page.entries == [] && page.next == nil)
        }
    }

    @Test func `keeps the newest entries of all sessions together`() async throws {
        let store = try open(.init(entries: 5))
        try await store.record(entries(1...4))
        try await store.record(entries(5...9))
        #expect(try await store.history(limit: 100).entries.map(\.message) == (5...9).map { "entry \($0)" })
        try await store.record(entries(10...10))
        #expect(try await store.history(limit: 100).entries.map(\.message) == (6...10).map { "entry \($0)" })
    }

    @Test func `forgets old entries at the start, and then every few entries`() async throws {
        let now = Timestamp.now.rawValue
        let store = try open(.init(age: 1_000_000, agePrunedEvery: 3))
        // The first record after the start prunes all of them.
        try await store.record([try entry(1, at: now - 2_000_000)])
        #expect(try await store.history(limit: 9).entries == [])
        try await store.record([try entry(2, at: now - 2_000_000)])
        try await store.record([try entry(3, at: now)])
        #expect(try await store.history(limit: 9).entries.count == 2)
        try await store.record([try entry(4, at: now)])
        #expect(try await store.history(limit: 9).entries.map(\.message) == ["entry 3", "entry 4"])
    }

    @Test func `does not change the durability of commits`() async throws {
        let store = try openStore(directory, .full)
        try await store.record(entries(1...1))
        #expect(await store.synchronous() == 2)
        try await store.close()
        await #expect(throws: StoreError.closed) { try await store.record([entry(2)]) }
    }

    @Test func `knows the last sign of life of the previous daemon`() async throws {
        let before = Timestamp.now.rawValue
        do {
            let first = try openStore(directory)
            #expect(first.openReport.lastAlive == nil)
            try await first.commit(session(), .insert(message(1)))
            await first.noteAlive()
        }
        let copy = try directory.copyAsItIs()
        // The copy has no lock, so it was never held.
        #expect(try openStore(copy).openReport.lastAlive == nil)
        let alive = try #require(try openStore(directory).openReport.lastAlive)
        #expect((before - 10...Timestamp.now.rawValue).contains(alive.rawValue))
    }
}

@Suite(.enabled(if: SmallDisk.isPossible, "only root can mount a small disk"))
struct `The history on a disk that is full` {
    @Test func `is dropped, and recorded again when there is room`() async throws {
        let disk = try SmallDisk()
        let store = try openStore(disk.path)
        let entry = HistoryEntry(
            time: Timestamp.now, session: try session(), from: "connected", to: "reconnecting",
            reasonCode: "reset", message: "lost")
        try await store.record([entry])
        try disk.fill()
        let error = await #expect(throws: StoreError.self) { try await store.record([entry]) }
        #expect(error?.isFull == true)
        disk.free()
        try await store.record([entry])
        #expect(try await store.history(limit: 9).entries.count == 2)
    }
}

extension DurableStore {
    /// What SQLite does at a commit: 1 is normal, 2 is full.
    fileprivate func synchronous() -> Int64? {
        do { return try database?.integer("PRAGMA synchronous") } catch { return nil }
    }
}
