import NIOCore
import Testing

@testable import MQTT

@Suite struct TimestampTests {
    @Test func `a time has an end in both directions`() {
        #expect(Timestamp(rawValue: 5).advanced(by: -7) == Timestamp(rawValue: -2))
        for step: Int64 in [1, .max] {
            #expect(Timestamp(rawValue: .max).advanced(by: step) == Timestamp(rawValue: .max))
            #expect(Timestamp(rawValue: .min).advanced(by: -step) == Timestamp(rawValue: .min))
        }
    }

    @Test(
        arguments: [
            (0, 0, 0), (0, 1, 1), (0, 999, 1), (0, 1000, 1), (0, 1001, 2), (1, 0, 0), (0, .max, .max),
            (.min, .max, .max), (.max, .min, 0), (-1, .max, .max), (1, .min, 0),
        ] as [(Int64, Int64, UInt32)])
    func `the seconds that are left are rounded up`(from: Int64, until: Int64, seconds: UInt32) {
        #expect(Timestamp(rawValue: from).secondsLeft(until: Timestamp(rawValue: until)) == seconds)
    }
}

/// The store in memory gives the machine what a store on disk would.
@Suite struct MemoryStoreTests {
    private static func sequence(_ number: Int64) -> MessageSequence { MessageSequence(rawValue: number) }

    /// Messages of ten bytes each, and their topic, accepted at 1, 2, … seconds.
    private static func store(_ count: Int64 = 4) -> MemoryStore {
        var store = MemoryStore()
        store.commit((1...count).map { .insert(stored($0)) })
        return store
    }

    private static func stored(_ number: Int64) -> StoredMessage {
        var message = OutboundMessage(topic: "t", payload: ByteBuffer(repeating: 0x61, count: 10))
        message.acceptedAt = Timestamp(rawValue: number * 1000)
        message.expiresAt = message.acceptedAt.advanced(by: 500)
        return StoredMessage(sequence: sequence(number), message: message)
    }

    private func loaded(
        _ store: MemoryStore, after number: Int64 = 0, messages: Int = 100, bytes: Int = 10_000
    ) -> [Int64] {
        store.load(after: Self.sequence(number), messages: messages, bytes: bytes).map(\.sequence.rawValue)
    }

    @Test func `queued messages are read in the order of their acceptance`() {
        var store = Self.store()
        #expect(loaded(store) == [1, 2, 3, 4])
        #expect(loaded(store, after: 2) == [3, 4])
        #expect(loaded(store, after: 4) == [])
        store.commit([
            .assign(Self.sequence(1), id(7)), .quarantine(Self.sequence(3), .notAuthorized, "no"),
        ])
        #expect(loaded(store) == [2, 4])
        #expect(store.outbox.map(\.sequence.rawValue) == [1, 2, 3, 4])
        store.commit([.unassign(Self.sequence(1))])
        #expect(loaded(store) == [1, 2, 4])
    }

    @Test func `a read has both limits, and is never empty because of them`() {
        let store = Self.store()
        let size = Self.stored(1).message.size
        #expect(loaded(store, messages: 2) == [1, 2])
        #expect(loaded(store, bytes: 2 * size) == [1, 2])
        #expect(loaded(store, bytes: 3 * size - 1) == [1, 2])
        #expect(loaded(store, messages: 0) == [1])
        #expect(loaded(store, bytes: 0) == [1])
    }

    @Test func `a message that the server owns keeps its identifier and loses its payload`() {
        var store = Self.store(2)
        store.commit([.assign(Self.sequence(1), id(7)), .release(Self.sequence(1)), .release(Self.sequence(2))])
        #expect(store.outbox.map(\.state) == [.released(id(7)), .queued], "the second one was not sent")
        #expect(store.outbox.map(\.message.payload.readableBytes) == [0, 10])
    }

    @Test func `a message that is finished is gone`() {
        var store = Self.store(3)
        store.commit([.remove(Self.sequence(1)), .acknowledge(Self.sequence(3))])
        #expect(store.outbox.map(\.sequence.rawValue) == [2])
    }

    @Test func `a message that is tried again is the last one, and is as old as the decision`() {
        var store = Self.store(2)
        let time = Timestamp(rawValue: 9000)
        store.commit([
            .quarantine(Self.sequence(1), .notAuthorized, "no"),
            .requeue(Self.sequence(1), as: Self.sequence(3), at: time),
            .requeue(Self.sequence(8), as: Self.sequence(9), at: time),
        ])
        #expect(loaded(store) == [2, 3])
        #expect(store.outbox.map(\.message.acceptedAt) == [Timestamp(rawValue: 2000), time])
    }

    @Test func `a clock that was set moves the times of the messages accepted before`() {
        var store = Self.store(3)
        let range = Timestamp(rawValue: 0)...Timestamp(rawValue: 2000)
        store.commit([.shiftTimes(by: 50, acceptedWithin: range)])
        #expect(store.outbox.map(\.message.acceptedAt.rawValue) == [1050, 2050, 3000])
        #expect(store.outbox.map(\.message.expiresAt?.rawValue) == [1550, 2550, 3500])
    }
}
