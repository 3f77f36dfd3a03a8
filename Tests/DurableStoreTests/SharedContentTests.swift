import MQTT
import NIOCore
import Session
import SessionCore
import Testing

@testable import DurableStore

/// A large message for several durable consumers is on the disk once.
@Suite struct `The content of a message for several consumers` {
    let directory: TemporaryDirectory
    let main: SessionName
    let names: [ConsumerName]

    init() throws {
        directory = try TemporaryDirectory()
        main = try session()
        names = try (0..<40).map { try #require(ConsumerName("c\($0)")) }
    }

    private func message(_ sequence: Int64, bytes: Int = 2000) -> CollectedMessage {
        CollectedMessage(
            sequence: .init(rawValue: sequence),
            message: .init(
                topic: "t/\(sequence)",
                payload: ByteBuffer(repeating: UInt8(truncatingIfNeeded: sequence), count: bytes), qos: .exactlyOnce,
                retain: true, duplicate: false, properties: .init(contentType: "text/plain")))
    }

    /// A store with so many consumers, each of which has these messages.
    private func store(
        _ consumers: Int, _ sequences: ClosedRange<Int64> = 1...3, bytes: Int = 2000
    ) async throws -> DurableStore {
        let store = try openStore(directory)
        let names = names.prefix(consumers)
        for name in names { try await store.commit(main, .putConsumer(name, filter: "t/#", .exactlyOnce)) }
        for sequence in sequences {
            try await store.commit(main, .collect(message(sequence, bytes: bytes), for: Array(names), nil))
        }
        return store
    }

    private func sequences(_ store: DurableStore, _ place: Int) async throws -> [Int64] {
        let found = try await store.collected(
            main, for: names[place], after: .zero, maxCount: 100, maxBytes: 1 << 24)
        // None of them is ever given with less than it came with.
        for one in found {
            #expect(one.message.payload.readableBytes >= 2000)
            #expect(one.message.topic == "t/\(one.sequence)")
        }
        return found.map(\.sequence.rawValue)
    }

    /// The store as it is when a daemon ended and another program changed its file.
    private func reopened(_ store: DurableStore, after statement: String) async throws -> DurableStore {
        try await store.close()
        do {
            let database = try Database(path: "\(directory.path)/holdfast.db")
            try database.execute(statement)
            database.close()
        }
        return try openStore(directory)
    }

    @Test func `is written once, and each of them gets it whole`() async throws {
        let store = try await store(40, 1...2, bytes: 300_000)
        for place in names.indices {
            let found = try await store.collected(
                main, for: names[place], after: .zero, maxCount: 9, maxBytes: 1 << 24)
            #expect(found == [message(1, bytes: 300_000), message(2, bytes: 300_000)])
        }
        let statistics = await store.statistics()
        #expect(Int(statistics.fileBytes) + Int(statistics.logBytes) < 2_000_000)
        // Each consumer's limit counts what it gets.
        let runs = try await store.mqtt(main).consumers.map { $0.runs.reduce(0) { $0 + $1.bytes } }
        #expect(runs == names.map { _ in 2 * message(1, bytes: 300_000).size })
    }

    @Test func `is in the row of the message if it is small or for one consumer`() async throws {
        let store = try await store(1)
        try await store.commit(
            main, .putConsumer(names[1], filter: "t/#", .exactlyOnce),
            .collect(message(4, bytes: 100), for: [names[0], names[1]], nil),
            // One of them was removed before.
            .collect(message(5), for: [names[0], names[2]], nil))
        #expect(try await store.contents() == 0)
        #expect(try await store.collected(main, for: names[1], after: .zero, maxCount: 9, maxBytes: 999).count == 1)
    }

    /// How a consumer loses messages 1 and 2 of 3.
    static let roads: [@Sendable (ConsumerName) -> [DurableChange]] = [
        { name in (1...2).map { .removeCollected(.init(rawValue: $0), name) } },
        { [.removeCollected(.init(rawValue: 2), $0), .removeCollected(.init(rawValue: 1), $0)] },
        { [.dropCollected($0, through: .init(rawValue: 2), count: 2)] },
        { [.removeConsumer($0), .putConsumer($0, filter: "a", .atMostOnce)] },
    ]

    @Test(arguments: roads.indices)
    func `goes with the last row that refers to it`(road: Int) async throws {
        let store = try await store(3)
        for place in 0..<3 {
            try await store.commit([(session: main, changes: Self.roads[road](names[place]))])
            // Also if the daemon is killed between two of them.
            let copy = try openStore(try directory.copyAsItIs())
            for store in [store, copy] {
                let isLast = place == 2
                #expect(try await store.contents() == (isLast ? (road == 3 ? 0 : 1) : 3))
                #expect(try await sequences(store, place) == (road == 3 ? [] : [3]))
                if !isLast { #expect(try await sequences(store, 2) == [1, 2, 3]) }
                #expect(try await store.mqtt(main).consumers.count == 3)
            }
            #expect(copy.openReport.movedAside == nil)
        }
    }

    static let faults: [(String, [Int64])] = [
        ("DELETE FROM content WHERE key & 0xFFFF = 2", [1, 3]),
        ("UPDATE content SET key = key + 1000 WHERE key & 0xFFFF = 2", [1, 3]),
        ("UPDATE content SET properties = x'ff' WHERE key & 0xFFFF = 2", [1, 3]),
        ("UPDATE inbox SET content_key = NULL WHERE key & 0xFFFF = 2", [1, 3]),
        ("UPDATE inbox SET content_key = content_key + 1 WHERE key & 0xFFFF = 2", [1, 3]),
        ("UPDATE inbox SET content_key = content_key + 100 WHERE key & 0xFFFF = 2", [1, 3]),
        ("UPDATE inbox SET size = size + 1 WHERE key & 0xFFFF = 2", [1, 2, 3]),
        ("UPDATE inbox SET size = 0 WHERE key & 0xFFFF = 2", [1, 2, 3]),
    ]

    @Test(arguments: faults)
    func `that is damaged or missing is reported, and what is behind it is given`(
        fault: String, left: [Int64]
    ) async throws {
        let store = try await store(2)
        let told = AsyncStream.makeStream(of: OpenReport.MovedAside.self)
        await store.whenReplaced { told.continuation.yield($0) }
        try await store.execute(fault)
        for place in 0..<2 { #expect(try await sequences(store, place) == left) }
        told.continuation.finish()
        var moved: [OpenReport.MovedAside] = []
        for await one in told.stream { moved.append(one) }
        #expect(moved.map(\.isComplete) == [left.count == 3])
        let runs = try await store.mqtt(main).consumers.map { $0.runs.reduce(0) { $0 + $1.bytes } }
        #expect(runs == [1, 2].map { _ in left.count * message(1).size })
        // It goes on as before.
        let next = try await store.mqtt(main).nextInboxSequence.rawValue
        try await store.commit(main, .collect(message(next), for: [names[0], names[1]], nil))
        #expect(try await sequences(store, 1) == left + [next])
    }

    @Test(arguments: [
        "DELETE FROM content WHERE key & 0xFFFF = 2",
        "UPDATE inbox SET content_key = content_key + 1 WHERE key & 1 = 0",
        "UPDATE inbox SET content_key = content_key + (1 << 48) WHERE key & 1 = 0",
    ])
    func `that is missing is found at the start`(fault: String) async throws {
        let next = try await reopened(store(2), after: fault)
        #expect(next.openReport.movedAside?.isComplete == false)
        for place in 0..<2 { #expect(try await sequences(next, place) == [1, 3]) }
        #expect(try await next.contents() == 2)
    }

    @Test func `that no row refers to does no harm, and is left behind when a damaged file is replaced`() async throws {
        let forgetting = "DROP TRIGGER inbox_row_deleted; DELETE FROM inbox WHERE key & 0xFFFF <> 3"
        let store = try await store(2)
        let trigger = try #require(try await store.definition(of: "inbox_row_deleted"))
        let next = try await reopened(store, after: "\(forgetting); \(trigger)")
        #expect(next.openReport.movedAside == nil)
        #expect(try await next.contents() == 3)
        #expect(try await sequences(next, 1) == [3])
        try await next.commit(main, .collect(message(4), for: [names[0], names[1]], nil))
        let last = try await reopened(next, after: "DROP TRIGGER inbox_row_deleted")
        #expect(last.openReport.movedAside?.isComplete == true)
        #expect(try await last.contents() == 2)
        #expect(try await sequences(last, 1) == [3, 4])
    }

    /// What is removed and what comes in while the index stays as it was with the first message.
    static let unindexed: [(removed: [Int64], collected: ClosedRange<Int64>, left: [Int64])] = [
        ([], 2...3, [1, 2, 3]),
        // It has as many rows as its table.
        ([1], 2...2, [2]),
    ]

    @Test(arguments: unindexed.indices)
    func `is kept when the index of the rows that refer to it is an older one`(fault: Int) async throws {
        let (removed, collected, left) = Self.unindexed[fault]
        let store = try await store(2, 1...1)
        let page = try #require(try await store.page(of: "inbox_content_key"))
        let place = (page - 1) * 4096..<page * 4096
        try await store.close()
        let path = "\(directory.path)/holdfast.db"
        let index = try readFile(path)[place]
        let next = try openStore(directory)
        for number in removed {
            let sequence = InboxSequence(rawValue: number)
            try await next.commit(main, .removeCollected(sequence, names[0]), .removeCollected(sequence, names[1]))
        }
        for number in collected {
            try await next.commit(main, .collect(message(number), for: [names[0], names[1]], nil))
        }
        try await next.close()
        var bytes = try readFile(path)
        bytes.replaceSubrange(place, with: index)
        try writeFile(path, bytes)
        let last = try openStore(directory)
        #expect(last.openReport.movedAside?.isComplete == true)
        #expect(last.openReport.movedAside?.cause.contains("the index of the contents") == true)
        for place in 0..<2 { #expect(try await sequences(last, place) == left) }
        #expect(try await last.contents() == Int64(left.count))
    }

    /// Makes a row of the first consumer refer to the content of the same number of another session.
    private static let mixUp = """
        UPDATE inbox SET content_key = content_key + (1 << 48) WHERE key & 0xFFFF = 2 AND key >> 48 = (
            SELECT min(id) FROM consumer)
        """

    @Test(arguments: [true, false])
    func `of another session is not given to a consumer`(isRunning: Bool) async throws {
        var store = try await store(2)
        let other = try session("other")
        try await store.commit(
            other, .putConsumer(names[0], filter: "t/#", .exactlyOnce),
            .putConsumer(names[1], filter: "t/#", .exactlyOnce))
        for number in 1...3 as ClosedRange<Int64> {
            try await store.commit(other, .collect(message(number), for: [names[0], names[1]], nil))
        }
        let told = AsyncStream.makeStream(of: OpenReport.MovedAside.self)
        if isRunning {
            await store.whenReplaced { told.continuation.yield($0) }
            try await store.execute(Self.mixUp)
        } else {
            store = try await reopened(store, after: Self.mixUp)
            #expect(store.openReport.movedAside?.isComplete == false)
        }
        #expect(try await sequences(store, 0) == [1, 3])
        #expect(try await sequences(store, 1) == [1, 2, 3])
        for name in names.prefix(2) {
            let found = try await store.collected(other, for: name, after: .zero, maxCount: 9, maxBytes: 1 << 20)
            #expect(found.map(\.sequence.rawValue) == [1, 2, 3])
        }
        told.continuation.finish()
        var moved: [OpenReport.MovedAside] = []
        for await one in told.stream { moved.append(one) }
        #expect(moved.map(\.isComplete) == (isRunning ? [false] : []))
    }

    @Test func `of another session and size is not given to a consumer whose own row was lost`() async throws {
        let store = try await store(2)
        let other = try session("other")
        try await store.commit(
            other, .putConsumer(names[0], filter: "t/#", .exactlyOnce),
            .putConsumer(names[1], filter: "t/#", .exactlyOnce))
        for number in 1...3 as ClosedRange<Int64> {
            try await store.commit(
                other, .collect(message(number, bytes: 3000), for: [names[0], names[1]], nil))
        }
        let lost = "DELETE FROM consumer WHERE session = (SELECT min(id) FROM session)"
        let next = try await reopened(store, after: "\(Self.mixUp); \(lost)")
        #expect(next.openReport.movedAside?.isComplete == false)
        let receiver = try session(try #require(next.openReport.adopted.receiver))
        let recovered = try await next.mqtt(receiver).consumers.map(\.name)
        var found: [[CollectedMessage]] = []
        for name in recovered {
            found.append(try await next.collected(receiver, for: name, after: .zero, maxCount: 9, maxBytes: 1 << 20))
        }
        #expect(found == [[message(1), message(3)], (1...3).map { message($0) }])
        // It is whole from now on.
        let last = try await reopened(next, after: "SELECT 1")
        #expect(last.openReport.movedAside == nil)
    }

    @Test func `whose page cannot be read costs nothing else`() async throws {
        let store = try await store(2)
        try await store.commit(
            main, .insert(DurableStoreTests.message(1)),
            .collect(message(4, bytes: 100), for: [names[0], names[1]], nil))
        let page = try #require(try await store.page(of: "content"))
        try await store.close()
        var bytes = try readFile("\(directory.path)/holdfast.db")
        for place in (page - 1) * 4096..<page * 4096 { bytes[place] = 0xA5 }
        try writeFile("\(directory.path)/holdfast.db", bytes)
        let next = try openStore(directory)
        #expect(next.openReport.movedAside?.isComplete == false)
        #expect(try await next.queue(main).count == 1)
        for name in names.prefix(2) {
            let found = try await next.collected(main, for: name, after: .zero, maxCount: 9, maxBytes: 1 << 20)
            #expect(found == [message(4, bytes: 100)])
        }
    }

    static let older = [
        (
            """
            DROP TRIGGER inbox_row_deleted; DROP INDEX inbox_content_key; DROP TABLE content;
            ALTER TABLE inbox DROP COLUMN content_key
            """, "table inbox"
        ),
        ("DROP TRIGGER inbox_row_deleted", "trigger inbox_row_deleted"),
        ("DROP INDEX inbox_content_key", "index inbox_content_key"),
    ]

    @Test(arguments: older)
    func `has its place again in a file that lacks it`(change: String, named: String) async throws {
        let store = try await store(1)
        try await store.commit(main, .putConsumer(names[1], filter: "t/#", .exactlyOnce))
        let next = try await reopened(store, after: change)
        #expect(next.openReport.movedAside?.cause == "the definition of its \(named) is damaged")
        // A table that is not there may have had rows.
        #expect(next.openReport.movedAside?.isComplete == !change.contains("DROP TABLE"))
        #expect(try await sequences(next, 0) == [1, 2, 3])
        try await next.commit(main, .collect(message(4), for: [names[0], names[1]], nil))
        #expect(try await next.contents() == 1)
        try await next.commit(main, .removeConsumer(names[0]), .removeConsumer(names[1]))
        #expect(try await next.contents() == 0)
    }

    @Test(arguments: ["DELETE FROM consumer", "DELETE FROM consumer; DELETE FROM session"])
    func `is kept for what is left of consumers whose own rows are lost`(loss: String) async throws {
        let next = try await reopened(store(2), after: loss)
        let receiver = try session(try #require(next.openReport.adopted.receiver))
        let recovered = try await next.mqtt(receiver).consumers.map(\.name)
        #expect(recovered.count == 2)
        // Whatever has its number again is not mistaken for it.
        let number = try await next.mqtt(main).nextInboxSequence.rawValue
        try await next.commit(
            main, .putConsumer(names[0], filter: "t/#", .exactlyOnce),
            .putConsumer(names[1], filter: "t/#", .exactlyOnce),
            .collect(message(number), for: [names[0], names[1]], nil))
        #expect(try await sequences(next, 1) == [number])
        for name in recovered {
            let found = try await next.collected(receiver, for: name, after: .zero, maxCount: 9, maxBytes: 1 << 20)
            #expect(found == (1...3).map { message($0) })
        }
        for name in recovered { try await next.commit(receiver, .removeConsumer(name)) }
        #expect(try await next.contents() == 1)
    }

    @Test func `of a session that is lost does not stand in the way of a new one's`() async throws {
        let store = try await store(2)
        let sessions = [main] + (try ["other", "third"].map { try session($0) })
        for session in sessions.dropFirst() {
            try await store.commit(
                session, .putConsumer(names[0], filter: "t/#", .exactlyOnce),
                .putConsumer(names[1], filter: "t/#", .exactlyOnce),
                .collect(message(1), for: [names[0], names[1]], nil))
        }
        let next = try await reopened(store, after: "DELETE FROM consumer; DELETE FROM session")
        for session in sessions.reversed() {
            try await next.commit(session, .setEstablished(true))
            let number = try await next.mqtt(session).nextInboxSequence.rawValue
            try await next.commit(
                session, .putConsumer(names[0], filter: "t/#", .exactlyOnce),
                .putConsumer(names[1], filter: "t/#", .exactlyOnce),
                .collect(message(number), for: [names[0], names[1]], nil))
        }
        #expect(try await next.contents() == 8)
    }
}

extension DurableStore {
    /// The number of contents that several consumers have in common.
    fileprivate func contents() throws(StoreError) -> Int64? {
        try opened().integer("SELECT count(*) FROM content")
    }

    fileprivate func definition(of name: String) throws(StoreError) -> String? {
        try opened().rows("SELECT sql FROM sqlite_schema WHERE name = ?", .text(name)) { $0.text(0) }.first
    }

    fileprivate func page(of table: String) throws(StoreError) -> Int? {
        try opened().rows("SELECT rootpage FROM sqlite_schema WHERE name = ?", .text(table)) { Int($0.integer(0)) }
            .first
    }
}
