import MQTT
import NIOCore
import SessionCore
import Testing

@testable import DurableStore

@Suite struct `The inbox` {
    let directory: TemporaryDirectory
    let main: SessionName
    let billing: ConsumerName
    let audit: ConsumerName

    init() throws {
        directory = try TemporaryDirectory()
        main = try session()
        billing = try #require(ConsumerName("billing"))
        audit = try #require(ConsumerName("audit"))
    }

    private func message(_ sequence: Int64, _ payload: String = "x") -> CollectedMessage {
        CollectedMessage(
            sequence: .init(rawValue: sequence),
            message: .init(
                topic: "t/\(sequence)", payload: ByteBuffer(string: payload), qos: .exactlyOnce, retain: true,
                duplicate: sequence % 2 == 0, properties: .init(contentType: "text/plain")))
    }

    private func all(_ store: DurableStore, _ name: ConsumerName, after: Int64 = 0) async throws -> [CollectedMessage] {
        try await store.collected(main, for: name, after: .init(rawValue: after), maxCount: 100, maxBytes: 1 << 20)
    }

    @Test func `keeps each message until every consumer has taken it`() async throws {
        let store = try openStore(directory)
        try await store.commit(
            main, .putConsumer(billing, filter: "t/#", .exactlyOnce), .putConsumer(audit, filter: "~/x", .atMostOnce),
            .collect(message(1), for: [audit, billing], PacketID(rawValue: 7)),
            .collect(message(2), for: [billing], nil), .collect(message(5), for: [billing], nil))
        try await store.commit(main, .removeCollected(.init(rawValue: 2), billing), .setGiven(billing, through: .last))
        let kept = try openStore(try directory.copyAsItIs())
        #expect(try await all(kept, billing) == [message(1), message(5)])
        #expect(try await all(kept, billing, after: 1) == [message(5)])
        #expect(try await all(kept, audit) == [message(1)])
        let session = try await kept.mqtt(main)
        #expect(session.inboundIDs == [PacketID(rawValue: 7)].compactMap { $0 }.reduce(into: []) { $0.insert($1) })
        #expect(session.nextInboxSequence.rawValue >= 6)
        #expect(
            session.consumers == [
                DurableConsumer(
                    name: audit, filter: "~/x", qos: .atMostOnce,
                    runs: [InboxRun(through: .init(rawValue: 1), messages: 1, bytes: message(1).size)]),
                DurableConsumer(
                    name: billing, filter: "t/#", qos: .exactlyOnce, givenThrough: .last,
                    runs: [1, 5].map {
                        InboxRun(through: .init(rawValue: $0), messages: 1, bytes: message($0).size)
                    }),
            ])
    }

    @Test func `never uses a sequence again, even after its message is gone`() async throws {
        let store = try openStore(directory)
        try await store.commit(
            main, .putConsumer(billing, filter: "#", .atLeastOnce), .collect(message(9), for: [billing], nil),
            .removeCollected(.init(rawValue: 9), billing))
        #expect(try await store.mqtt(main).nextInboxSequence.rawValue == 10)
    }

    @Test func `keeps waiting messages when the filter changes, not when the consumer ends`() async throws {
        let store = try openStore(directory)
        try await store.commit(
            main, .putConsumer(billing, filter: "a", .atLeastOnce), .collect(message(1), for: [billing], nil),
            .putConsumer(billing, filter: "b", .exactlyOnce))
        #expect(try await all(store, billing).count == 1)
        #expect(try await store.mqtt(main).consumers.first?.filter == "b")
        try await store.commit(main, .removeConsumer(billing), .collect(message(2), for: [billing], nil))
        #expect(try await store.mqtt(main).consumers.isEmpty)
        try await store.commit(main, .putConsumer(audit, filter: "a", .atLeastOnce))
        #expect(try await all(store, audit).isEmpty)
    }

    @Test func `reads up to the limits, but always one message`() async throws {
        let store = try openStore(directory)
        try await store.commit(main, .putConsumer(billing, filter: "a", .atLeastOnce))
        for number in 1...5 {
            try await store.commit(main, .collect(message(Int64(number), "0123456789"), for: [billing], nil))
        }
        let size = message(1, "0123456789").size
        func count(_ maxCount: Int, _ maxBytes: Int) async throws -> Int {
            try await store.collected(main, for: billing, after: .zero, maxCount: maxCount, maxBytes: maxBytes).count
        }
        #expect(try await count(3, 1 << 20) == 3)
        #expect(try await count(100, 2 * size) == 2)
        #expect(try await count(100, 1) == 1)
    }

    @Test func `uses the numbers of removed consumers again`() async throws {
        let store = try openStore(directory)
        for number in 0..<40_000 where number % 400 == 0 {
            let names = (0..<3).compactMap { ConsumerName("c\(number + $0)") }
            try await store.commit([(main, names.map { .putConsumer($0, filter: "a", .atLeastOnce) })])
            try await store.commit([(main, names.dropFirst().map { .removeConsumer($0) })])
            try await store.commit([(main, names.map { .removeConsumer($0) })])
        }
        #expect(try await store.mqtt(main).consumers.isEmpty)
        try await store.commit(main, .putConsumer(billing, filter: "a", .atLeastOnce))
        #expect(await store.highestConsumer() == 1)
    }
}

extension DurableStore {
    /// The highest number that a consumer has.
    fileprivate func highestConsumer() -> Int64? {
        do { return try database?.integer("SELECT max(id) FROM consumer") } catch { return nil }
    }
}
