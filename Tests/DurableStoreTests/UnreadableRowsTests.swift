import Glibc
import MQTT
import NIOCore
import Session
import SessionCore
import Support
import Testing

@testable import DurableStore

/// One wrong bit, in a row that SQLite can read.
@Suite struct `A row that makes no sense` {
    let directory: TemporaryDirectory
    let main: SessionName

    init() throws {
        directory = try TemporaryDirectory()
        main = try session()
    }

    private func published(_ count: Int64) async throws -> DurableStore {
        let store = try openStore(directory)
        try await store.commit([(main, [.setEstablished(true)] + (1...count).map { .insert(message($0)) })])
        return store
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

    static let faults: [(String, [Int64])] = [
        ("qos = 7", [1, 2, 4, 5]), ("properties = x'ff'", [1, 2, 4, 5]), ("size = size + 1", [1, 2, 3, 4, 5]),
        ("size = 9223372036854775807", [1, 2, 3, 4, 5]), ("size = -9223372036854775808", [1, 2, 3, 4, 5]),
    ]

    @Test(arguments: faults)
    func `is set aside with the file, and the outbox goes on behind it`(fault: String, left: [Int64]) async throws {
        let store = try await published(5)
        let told = AsyncStream.makeStream(of: OpenReport.MovedAside.self)
        await store.whenReplaced { told.continuation.yield($0) }
        try await store.execute("UPDATE message SET \(fault) WHERE key & 0xFFFF = 3")
        #expect(try await store.queue(main).map(\.sequence.rawValue) == left)
        told.continuation.finish()
        var moved: [OpenReport.MovedAside] = []
        for await one in told.stream { moved.append(one) }
        #expect(moved.map(\.messages) == [left.count])
        #expect(moved.map(\.isComplete) == [left.count == 5])
        #expect(moved.first?.cause.contains("message") == true || moved.first?.cause.contains("QoS") == true)
        let session = try await store.mqtt(main)
        #expect(session.queuedCount == left.count)
        #expect(session.queuedBytes == left.count * message(1).message.size)
    }

    @Test(arguments: [
        "qos = 7", "properties = x'ff'", "size = -9223372036854775808", "received_at = 9223372036854775807",
    ])
    func `is set aside with the file, and a consumer gets what is behind it`(fault: String) async throws {
        let store = try openStore(directory)
        let billing = try #require(ConsumerName("billing"))
        try await store.commit(main, .putConsumer(billing, filter: "a", .atLeastOnce))
        for number in 1...3 {
            let collected = CollectedMessage(
                sequence: .init(rawValue: Int64(number)),
                message: .init(
                    topic: "a", payload: .init(string: "x"), qos: .atLeastOnce, retain: false, duplicate: false,
                    properties: .init()),
                receivedAt: .init(rawValue: 1000))
            try await store.commit(main, .collect(collected, for: [billing], nil))
        }
        try await store.execute("UPDATE inbox SET \(fault) WHERE key & 0xFFFF = 2")
        _ = try await store.mqtt(main)
        let found = try await store.collected(main, for: billing, after: .zero, maxCount: 10, maxBytes: 1000)
        #expect(found.map(\.sequence.rawValue).contains(3))
        for one in found { #expect(one.receivedAt.rawValue < 1 << 48) }
    }

    @Test func `is found again in an hour only, should a new file have it as well`() async throws {
        let store = try await published(5)
        for number in [2, 3] {
            try await store.execute("UPDATE message SET qos = 7 WHERE key & 0xFFFF = \(number)")
            guard number == 2 else {
                await #expect { try await store.queue(main) } throws: { ($0 as? StoreError)?.code == "store-damaged" }
                continue
            }
            #expect(try await store.queue(main).count == 4)
        }
        let asides = directory.names.filter { $0.hasPrefix("holdfast.db.corrupt-") }
        #expect(Set(asides.map { $0.split(separator: "-").prefix(2) }).count == 1)
    }

    @Test func `with a number that was not given out yet does not stop the outbox`() async throws {
        let store = try await reopened(
            published(5), after: "UPDATE message SET key = key + 33554432 WHERE key & 0xFFFF = 3")
        let next = try await store.mqtt(main).nextSequence.rawValue
        #expect(next == 33_554_436)
        try await store.commit(main, .insert(message(next)))
        #expect(try await store.queue(main).count == 6)
    }

    @Test func `with a key that is out of order is no complete recovery`() async throws {
        let store = try await published(10)
        try await store.close()
        var bytes = try readFile("\(directory.path)/holdfast.db")
        // The key of message 5 of the first session, as SQLite writes it.
        let key: [UInt8] = [0xC0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x05]
        let place = try #require(bytes.indices.dropLast(key.count).first { Array(bytes[$0..<$0 + key.count]) == key })
        bytes[place + 3] = 0x90
        try writeFile("\(directory.path)/holdfast.db", bytes)
        let next = try openStore(directory)
        #expect(next.openReport.movedAside?.isComplete == false)
        let queue = try await next.queue(main)
        #expect(queue.count == 10)
        let session = try await next.mqtt(main)
        #expect(!session.established)
        #expect(session.nextSequence > (queue.map(\.sequence).max() ?? .zero))
    }

    static let extremes = [
        "session SET next_sequence", "session SET next_inbox_sequence", "session SET reserved_sequence",
        "session SET reserved_inbox_sequence", "session SET window_first", "session SET window_count",
        "message SET size", "message SET accepted_at", "message SET expires_at", "message SET retain",
        "consumer SET given_through", "consumer SET missed", "inbox SET size", "inbox SET received_at",
        "publish_key SET sequence", "publish_key SET time", "publish_key SET outcome", "publication SET since",
        "home SET ends_at", "home SET expiry", "presence SET since", "history SET time", "history SET outage",
        "inbound SET packet_id", "in_flight SET packet_id", "quarantine SET reason_code", "message SET key",
        "session SET id", "content SET key", "content SET size", "inbox SET content_key",
    ]

    @Test(arguments: extremes, [Int64.min, .max])
    func `whatever number is in it does not keep the daemon from running`(column: String, number: Int64) async throws {
        let store = try await published(3)
        let billing = try #require(ConsumerName("billing"))
        let key = try #require(PublishKey("k"))
        let collected = CollectedMessage(
            sequence: .init(rawValue: 1),
            message: .init(
                topic: "a", payload: .init(string: "x"), qos: .atLeastOnce, retain: false, duplicate: false,
                properties: .init()),
            receivedAt: .init(rawValue: 1000))
        try await store.commit(
            main, .putConsumer(billing, filter: "a", .atLeastOnce), .collect(collected, for: [billing], nil),
            .rememberKey(key, sequence(1), at: .now), .insertInbound(id(5)), .assign(sequence(1), id(7)),
            .quarantine(sequence(2), .notAuthorized, "no"))
        let audit = try #require(ConsumerName("audit"))
        var shared = collected
        shared.sequence = .init(rawValue: 2)
        shared.message.payload = ByteBuffer(repeating: 0x78, count: 1000)
        try await store.commit(
            main, .putConsumer(audit, filter: "a", .atLeastOnce), .collect(shared, for: [audit, billing], nil))
        try await store.commit(
            main,
            .putPublication(
                Publication(
                    topic: "t", payload: .init(string: "x"), qos: .atLeastOnce, properties: .init(), since: .now)),
            .setHomes([SessionHome("mqtt://a", expiry: 5, endsAt: .now)]), .setPresences([.now]))
        try await store.record([
            HistoryEntry(
                time: .now, session: main, from: "a", to: "b", phase: nil, mode: nil, reasonCode: "c", message: "d",
                serverCode: nil, outage: .seconds(1))
        ])
        let next = try await reopened(store, after: "UPDATE OR REPLACE \(column) = \(number)")
        let session = try await next.session(main)
        #expect(min(session.mqtt.queuedCount, session.mqtt.queuedBytes, session.mqtt.quarantinedBytes) >= 0)
        _ = try await next.queue(main)
        _ = try await next.summaries(main, limit: 10)
        _ = try await next.collected(main, for: billing, after: .zero, maxCount: 10, maxBytes: 1000)
        _ = try await next.keyed(main, key, now: .now)
        _ = try await next.history(limit: 10)
        #expect(session.mqtt.nextSequence.rawValue >= 1)
        try await next.commit(main, .insert(message(next.mqtt(main).nextSequence.rawValue)))
        try await next.close()
    }

    @Test func `without its session keeps its messages apart from those of other sessions`() async throws {
        let store = try await reopened(published(3), after: "DELETE FROM session")
        let other = try session("other")
        try await store.commit(other, .insert(message(1)))
        #expect(try await store.queue(other).count == 1)
        #expect(try await store.queue(session("recovered-1")).count == 3)
        #expect(store.openReport.adopted.sessions == ["recovered-1"])
    }

    @Test func `without its session keeps whatever it had apart from other sessions`() async throws {
        let store = try openStore(directory)
        let (other, billing) = (try session("other"), try #require(ConsumerName("billing")))
        let key = try #require(PublishKey("k"))
        try await store.commit(main, .insert(message(1)), .remove(sequence(1)))
        try await store.commit(
            session("second"), .putConsumer(billing, filter: "a", .atLeastOnce),
            .rememberKey(key, sequence(1), at: .now))
        try await store.commit(session("third"), .putPublication(Self.publication))
        // A name that was free is not, by chance or because it was so before.
        try await store.commit(session("recovered-2"), .insert(message(1)))
        let next = try await reopened(store, after: "DELETE FROM session WHERE id < 4")
        try await next.commit([(other, [.insert(message(1))]), (main, [.insert(message(1))])])
        #expect(try await next.session(other).publications.isEmpty)
        #expect(try await next.session(main).mqtt.consumers.isEmpty)
        #expect(try await next.keyed(other, key, now: .now) == nil)
        #expect(try await next.mqtt(session("recovered-2")).queuedCount == 1)
        #expect(next.openReport.adopted.sessions == ["recovered-2-2", "recovered-3"])
        #expect(try await next.mqtt(session("recovered-2-2")).consumers.map(\.name) == [billing])
        #expect(try await next.keyed(session("recovered-2-2"), key, now: .now) != nil)
        #expect(try await next.session(session("recovered-3")).publications.count == 1)
    }

    private static let publication = Publication(
        topic: "t", payload: .init(string: "x"), qos: .atLeastOnce, properties: .init(), since: .now)

    @Test func `without its consumer does not become another consumer's`() async throws {
        let store = try openStore(directory)
        let (secret, new) = (try #require(ConsumerName("secret")), try #require(ConsumerName("new")))
        let collected = CollectedMessage(
            sequence: .init(rawValue: 1),
            message: .init(
                topic: "a", payload: .init(string: "x"), qos: .atLeastOnce, retain: false, duplicate: false,
                properties: .init()),
            receivedAt: .now)
        try await store.commit(
            main, .putConsumer(secret, filter: "a", .atLeastOnce), .collect(collected, for: [secret], nil))
        let next = try await reopened(store, after: "DELETE FROM consumer")
        #expect(next.openReport.adopted == .init(sessions: [], received: 1, receiver: "recovered-2"))
        #expect(next.openReport.adopted.sentences.count == 1)
        let lost = try await next.absentStates(besides: [main])
        #expect(lost == [AbsentState(session: try session("recovered-2"), consumers: 1, received: 1)])
        let other = try session("other")
        try await next.commit(
            other, .putConsumer(new, filter: "b", .atLeastOnce), .collect(collected, for: [new], nil))
        let found = try await next.collected(other, for: new, after: .zero, maxCount: 9, maxBytes: 999)
        #expect(found.count == 1)
        #expect(try await next.mqtt(other).consumers.first?.runs.map(\.messages) == [1])
        // It can be read, and removed.
        let recovered = try session("recovered-2")
        let consumer = try #require(try await next.mqtt(recovered).consumers.first?.name)
        #expect(try await next.collected(recovered, for: consumer, after: .zero, maxCount: 9, maxBytes: 999).count == 1)
        try await next.commit(recovered, .removeConsumer(consumer))
        #expect(try await next.absentStates(besides: [main, other]) == [])
        let last = try await reopened(next, after: "SELECT 1")
        #expect(last.openReport.adopted == .init())
    }

    static let strangers = [
        ("consumer SET qos = 7", "billing"), ("consumer SET name = 'b c'", "b c"),
        ("publication SET qos = 2", "publication on t"), ("publication SET properties = x'ff'", "publication on t"),
        ("subscription SET filter = 'a#'", "a#"),
    ]

    @Test(arguments: strangers)
    func `does not keep its session from running, and is named`(change: String, named: String) async throws {
        let store = try await published(3)
        let billing = try #require(ConsumerName("billing"))
        let collected = CollectedMessage(
            sequence: .init(rawValue: 1),
            message: .init(
                topic: "a", payload: .init(string: "x"), qos: .atLeastOnce, retain: false, duplicate: false,
                properties: .init()),
            receivedAt: .now)
        try await store.commit(
            main, .putConsumer(billing, filter: "a", .atLeastOnce), .collect(collected, for: [billing], nil),
            .rememberSubscription(try TopicFilter("s")))
        try await store.commit(main, .putPublication(Self.publication))
        let next = try await reopened(store, after: "UPDATE \(change)")
        let told = AsyncStream.makeStream(of: OpenReport.MovedAside.self)
        await next.whenReplaced { told.continuation.yield($0) }
        let found = try await next.session(main)
        #expect(found.mqtt.queuedCount == 3)
        #expect(
            found.mqtt.consumers.count + found.publications.count + found.mqtt.rememberedSubscriptions.count == 2)
        told.continuation.finish()
        var moved: [OpenReport.MovedAside] = []
        for await one in told.stream { moved.append(one) }
        #expect(moved.count == 1 && moved.first?.sentence.contains(named) == true, "\(moved)")
        // What the consumer had is not lost with it.
        #expect(moved.first?.adopted.received == (change.hasPrefix("consumer") ? 1 : 0))
    }

    @Test func `with a name that no session can have is kept under another`() async throws {
        let store = try await reopened(published(3), after: "UPDATE session SET name = 'Main'")
        #expect(store.openReport.adopted.sessions == ["recovered-1"])
        #expect(try await store.mqtt(session("recovered-1")).queuedCount == 3)
        #expect(try await store.mqtt(main).queuedCount == 0)
    }

    @Test(arguments: [0, 1])
    func `with one wrong bit in its name or in the index of names is found`(place: Int) async throws {
        let name = try session("zz-plant-zz")
        let store = try openStore(directory)
        try await store.commit(name, .insert(message(1)))
        try await store.close()
        var bytes = try readFile("\(directory.path)/holdfast.db")
        let text = Array("zz-plant-zz".utf8)
        let places = bytes.indices.dropLast(text.count).filter { bytes[$0..<$0 + text.count].elementsEqual(text) }
        try #require(places.count == 2)
        bytes[places[place] + 3] ^= 0x20
        try writeFile("\(directory.path)/holdfast.db", bytes)
        let next = try openStore(directory)
        #expect(next.openReport.movedAside != nil)
        let recovered = try session("recovered-1")
        #expect(try await next.mqtt(name).queuedCount + next.mqtt(recovered).queuedCount == 1)
        #expect(next.openReport.adopted.sessions.isEmpty == (try await next.mqtt(name).queuedCount == 1))
    }
}

/// One wrong letter in the definition of a table makes all of them unreadable for SQLite.
@Suite struct `A damaged schema` {
    let directory: TemporaryDirectory
    let main: SessionName

    init() throws {
        directory = try TemporaryDirectory()
        main = try session()
    }

    static let texts = [
        "CREATE TABLE history", "CREATE TABLE message", "CREATE TABLE session", "CREATE VIEW outbox",
        "CREATE INDEX publish_key_sequence", "CREATE TABLE content", "CREATE TRIGGER inbox_row_deleted",
        "WHERE content_key = OLD", "accepted_at INTEGER NOT", "next_sequence INTEGER",
        "reason_code INTEGER",
    ]

    @Test(arguments: texts)
    func `costs no message`(text: String) async throws {
        let store = try openStore(directory)
        try await store.commit([(main, (1...300).map { .insert(message($0)) })])
        try await store.close()
        for letter in [0, text.utf8.count / 2, text.utf8.count - 1] {
            let copy = try directory.copyAsItIs()
            var bytes = try readFile("\(copy.path)/holdfast.db")
            let wanted = Array(text.utf8)
            let place = try #require(
                bytes.indices.dropLast(wanted.count).first { bytes[$0..<$0 + wanted.count].elementsEqual(wanted) })
            bytes[place + letter] ^= 4
            try writeFile("\(copy.path)/holdfast.db", bytes)
            let next = try openStore(copy)
            #expect(try await next.queue(main).map(\.sequence.rawValue) == Array(1...300), "letter \(letter)")
            let number = try await next.mqtt(main).nextSequence.rawValue
            try await next.commit(main, .insert(message(number)))
        }
    }

    @Test func `is restored for reading only`() async throws {
        let store = try openStore(directory)
        try await store.commit([(main, (1...3).map { .insert(message($0)) })])
        try await store.close()
        var bytes = try readFile("\(directory.path)/holdfast.db")
        let wanted = Array("CREATE TABLE message".utf8)
        let place = try #require(
            bytes.indices.dropLast(wanted.count).first { bytes[$0..<$0 + wanted.count].elementsEqual(wanted) })
        bytes[place] = 0x20
        try writeFile("\(directory.path)/holdfast.db", bytes)
        let moved = try #require(openStore(directory).openReport.movedAside)
        #expect(moved.messages == 3)
        #expect(try readFile(#require(moved.path)) == bytes)
    }
}
