import MQTT
import NIOCore
import SessionCore
import Testing

@testable import DurableStore

@Suite struct `The key of a message` {
    let directory: TemporaryDirectory
    let main: SessionName
    let key: PublishKey

    init() throws {
        directory = try TemporaryDirectory()
        main = try session()
        key = try #require(PublishKey("order-1"))
    }

    private func find(_ store: DurableStore, at now: Int64 = 1000) async throws -> KeyedMessage? {
        try await store.keyed(main, key, now: Timestamp(rawValue: now))
    }

    private func publish(_ store: DurableStore, at time: Int64 = 1000) async throws {
        try await store.commit(main, .insert(message(1)), .rememberKey(key, sequence(1), at: .init(rawValue: time)))
    }

    private func conclude(_ store: DurableStore, at time: Int64 = 1000) async throws {
        try await store.commit(
            main, .remove(sequence(1)),
            .concludeKey(sequence(1), .delivered(.success), at: Timestamp(rawValue: time)))
    }

    @Test func `is stored with the state of its message`() async throws {
        let store = try openStore(directory)
        #expect(try await find(store) == nil)
        try await publish(store)
        #expect(try await find(openStore(try directory.copyAsItIs()))?.state == .waiting)
        #expect(try await store.mqtt(main).hasKeys)
        try await store.commit(main, .quarantine(sequence(1), .notAuthorized, "no"))
        #expect(try await find(store)?.state == .quarantined(.notAuthorized, "no"))
        try await store.commit(main, .requeue(sequence(1), as: sequence(2), at: .init(rawValue: 0)))
        #expect(try await find(store)?.sequence == sequence(2))
        try await store.commit(
            main, .remove(sequence(2)),
            .concludeKey(sequence(2), .delivered(.noMatchingSubscribers), at: .init(rawValue: 0)))
        #expect(try await find(store)?.state == .done(.delivered(.noMatchingSubscribers)))
    }

    @Test(arguments: [MQTTClientMachine.DropReason.expired, .tooOld, .outboxFull, .discarded])
    func `tells why its message was dropped`(reason: MQTTClientMachine.DropReason) async throws {
        let store = try openStore(directory)
        try await publish(store)
        try await store.commit(
            main, .remove(sequence(1)), .concludeKey(sequence(1), .dropped(reason), at: .init(rawValue: 0)))
        #expect(try await find(store)?.state == .done(.dropped(reason)))
    }

    @Test func `of a message that is lost says so`() async throws {
        let store = try openStore(directory)
        try await publish(store)
        try await store.execute("DELETE FROM message")
        #expect(try await find(store)?.state == .lost)
    }

    @Test func `is forgotten after a day`() async throws {
        let store = try openStore(directory)
        try await publish(store, at: 0)
        try await conclude(store, at: 0)
        #expect(try await find(store, at: PublishKey.lifetime - 1) != nil)
        #expect(try await find(store, at: PublishKey.lifetime) == nil)
        let other = try #require(PublishKey("order-2"))
        try await store.commit(
            main, .insert(message(2)),
            .rememberKey(other, sequence(2), at: .init(rawValue: PublishKey.lifetime)))
        #expect(try await find(store, at: 0) == nil, "its row is gone")
    }

    @Test func `is forgotten a day after its message has left the outbox, however long that took`() async throws {
        let store = try openStore(directory)
        let late = 2 * PublishKey.lifetime
        try await publish(store, at: 0)
        try await conclude(store, at: late)
        #expect(try await find(store, at: late)?.state == .done(.delivered(.success)))
        #expect(try await find(store, at: late + PublishKey.lifetime - 1) != nil)
        #expect(try await find(store, at: late + PublishKey.lifetime) == nil)
    }

    @Test func `is not forgotten while its message is in the outbox, and hides no other that has expired`() async throws
    {
        let store = try openStore(directory)
        let late = Timestamp(rawValue: 2 * PublishKey.lifetime)
        func key(_ number: Int64) throws -> PublishKey { try #require(PublishKey("key-\(number)")) }
        // 20 messages stay, one of them rejected; 20 are delivered.
        for number in 1...40 as ClosedRange<Int64> {
            try await store.commit(
                main, .insert(message(number)),
                .rememberKey(try key(number), sequence(number), at: .init(rawValue: 0)))
        }
        try await store.commit(main, .quarantine(sequence(1), .notAuthorized, "no"))
        for number in 21...40 as ClosedRange<Int64> {
            try await store.commit(
                main, .remove(sequence(number)),
                .concludeKey(sequence(number), .delivered(.success), at: .init(rawValue: 0)))
        }
        for number in 41...100 as ClosedRange<Int64> {
            try await store.commit(
                main, .insert(message(number)), .rememberKey(try key(number), sequence(number), at: late))
        }
        #expect(try await store.keyed(main, key(1), now: late)?.state == .quarantined(.notAuthorized, "no"))
        for number in 2...20 as ClosedRange<Int64> {
            #expect(try await store.keyed(main, key(number), now: late)?.state == .waiting)
        }
        for number in 21...40 as ClosedRange<Int64> {
            let found = try await store.keyed(main, key(number), now: .init(rawValue: 0))
            #expect(found == nil, "the row of key \(number) is gone")
        }
    }

    @Test func `is not forgotten because of the time of another session`() async throws {
        let store = try openStore(directory)
        try await publish(store, at: 0)
        let other = try session("other")
        try await store.commit(
            other, .insert(message(1)), .rememberKey(key, sequence(1), at: .init(rawValue: PublishKey.lifetime)))
        #expect(try await find(store, at: 0) != nil, "that session may not have heard that the clock was set")
    }

    @Test(arguments: [40 * 365, -2] as [Int64])
    func `does not age when the clock is set`(days: Int64) async throws {
        let step = days * 86_400_000
        let store = try openStore(directory)
        try await publish(store, at: 1000)
        try await conclude(store)
        try await store.commit(
            main, .shiftTimes(by: step, acceptedWithin: .init(rawValue: 0)...Timestamp(rawValue: 2000)))
        #expect(try await find(store, at: step + 1000 + PublishKey.lifetime - 1) != nil)
        #expect(try await find(store, at: step + 1000 + PublishKey.lifetime) == nil)
    }

    @Test(arguments: ["", "a b", "ä", "a\u{7}", String(repeating: "a", count: 129)])
    func `is refused if empty, long or not plain`(text: String) { #expect(PublishKey(text) == nil) }
}
