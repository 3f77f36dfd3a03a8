import ControlAPI
import NIOCore
import SessionCore
import Testing

@testable import MQTT
@testable import Session

/// Which messages durable consumers are given, and which are read from the store.
@Suite struct DurableConsumersTests {
    @Test func `a program is given as many messages as its window has room for`() throws {
        let name = try #require(ConsumerName("c"))
        var consumers = DurableConsumers(
            DurableSession(
                established: false, consumers: [.init(name: name, filter: "a", qos: .atLeastOnce)],
                nextInboxSequence: .init(rawValue: Int64(4 * DurableConsumers.windowMessages))))
        let id = SubscriptionID(rawValue: "s1")
        _ = consumers.attach(id, to: name)
        #expect(consumers.beginLoad() == nil, "no load before the consumer is durable")
        consumers.ready(name, id)
        let next = consumers.beginLoad()
        let load = try #require(next)
        #expect(load.messages == DurableConsumers.windowMessages)
        #expect(consumers.beginLoad() == nil, "one load at a time")
        let messages = (1...load.messages).map { number in
            CollectedMessage(
                sequence: .init(rawValue: Int64(number)),
                message: .init(
                    topic: "a", payload: ByteBuffer(), qos: .atLeastOnce, retain: false, duplicate: false,
                    properties: .init()))
        }
        #expect(try given(messages, load, &consumers).count == load.messages)
        #expect(consumers.beginLoad() == nil, "the window is full")
        let quarter = DurableConsumers.windowMessages / 4
        let taken = consumers.acknowledge(.init(rawValue: Int64(quarter)), upTo: true, by: id)
        #expect(taken?.messages.map(\.sequence.rawValue) == Array(1...Int64(quarter)))
        #expect(consumers.beginLoad()?.messages == quarter)
        #expect(consumers.acknowledge(.init(rawValue: Int64(quarter)), upTo: true, by: id)?.messages.isEmpty == true)
        let behind = Int64(load.messages) + 1
        #expect(consumers.acknowledge(.init(rawValue: behind), upTo: false, by: id) == nil)
        let one = consumers.acknowledge(.init(rawValue: behind - 1), upTo: false, by: id)
        #expect(one?.messages.map(\.sequence.rawValue) == [behind - 1])
        #expect(consumers.acknowledge(.init(rawValue: behind - 1), upTo: false, by: id)?.messages.isEmpty == true)
    }

    /// Four of them fill the window.
    private func large(_ ids: ClosedRange<Int64>) -> [CollectedMessage] {
        collected(ids, for: [], size: DurableConsumers.windowBytes / 4 - 1).map(\.message)
    }

    @Test func `a program is given as many bytes as its window has room for`() throws {
        let name = try #require(ConsumerName("c"))
        let id = SubscriptionID(rawValue: "s1")
        var (consumers, load) = try attached(name)
        #expect(try given(large(1...4), load, &consumers) == [1, 2, 3, 4])
        #expect(consumers.beginLoad() == nil, "the window is full")
        #expect(consumers.acknowledge(.init(rawValue: 2), upTo: false, by: id)?.messages.count == 1)
        let begun = consumers.beginLoad()
        load = try #require(begun)
        #expect(try given(large(5...5), load, &consumers) == [5])
        #expect(consumers.beginLoad() == nil, "the window is full again")
        consumers.dropped(through: .init(rawValue: 1), of: name)
        #expect(consumers.beginLoad() != nil)
    }

    // MARK: What need not be read

    private func collected(_ ids: ClosedRange<Int64>, for names: [ConsumerName], size: Int = 0) -> [InboxMessage] {
        ids.map { id in
            InboxMessage(
                message: CollectedMessage(
                    sequence: .init(rawValue: id),
                    message: .init(
                        topic: "a", payload: ByteBuffer(repeating: 0x61, count: size), qos: .atLeastOnce,
                        retain: false, duplicate: false, properties: .init())),
                consumers: names)
        }
    }

    private func givenAhead(
        _ consumers: inout DurableConsumers, hasRoom: Bool = true
    ) throws -> [Int64] {
        let session = try #require(SessionName("main"))
        let given = consumers.giveAhead(
            session: session, at: Timestamp(rawValue: 0), maximumAge: nil, hasRoom: { _ in hasRoom })
        return given?.loaded.given.map(\.id) ?? []
    }

    /// A program that is up to date.
    private func caughtUp(_ name: ConsumerName) throws -> DurableConsumers {
        var (consumers, load) = try attached(name)
        #expect(try given(messages(1...8), load, &consumers) == Array(1...8))
        #expect(consumers.beginLoad() == nil)
        return consumers
    }

    @Test func `a program that is up to date is given new messages without reading the store`() throws {
        let name = try #require(ConsumerName("c"))
        let other = try #require(ConsumerName("d"))
        var consumers = try caughtUp(name)
        consumers.collected(collected(9...10, for: [name]) + collected(11...11, for: [other]))
        #expect(consumers.collectedThrough.rawValue == 11)
        #expect(try givenAhead(&consumers) == [9, 10])
        #expect(consumers.beginLoad() == nil, "the last message is for the other consumer")
        consumers.collected(collected(12...12, for: [name, other]))
        #expect(try givenAhead(&consumers, hasRoom: false) == [])
        consumers.collected(collected(13...13, for: [name]))
        #expect(try givenAhead(&consumers) == [12, 13])
        let taken = consumers.acknowledge(.init(rawValue: 13), upTo: true, by: .init(rawValue: "s1"))
        #expect(taken?.messages.map(\.sequence.rawValue) == Array(1...10) + [12, 13])
    }

    @Test func `messages that arrive before a program is up to date are read from the store in turn`() throws {
        let name = try #require(ConsumerName("c"))
        var (consumers, load) = try attached(name)
        consumers.collected(collected(9...9, for: [name]))
        #expect(try givenAhead(&consumers) == [])
        #expect(try given(messages(1...8), load, &consumers) == Array(1...8))
        consumers.collected(collected(10...10, for: [name]))
        #expect(try givenAhead(&consumers) == [])
        let begun = consumers.beginLoad()
        load = try #require(begun)
        #expect((load.after.rawValue, load.through.rawValue) == (8, 10))
        #expect(try given(messages(9...10), load, &consumers) == [9, 10])
        consumers.collected(collected(11...11, for: [name]))
        #expect(try givenAhead(&consumers) == [11])
    }

    @Test func `messages beyond the room in memory are read from the store`() throws {
        let name = try #require(ConsumerName("c"))
        var consumers = try caughtUp(name)
        // With their topics, four messages are larger than the memory.
        consumers.collected(collected(9...20, for: [name], size: consumers.memory / 4))
        #expect(try heldAhead(&consumers) == [9, 10, 11])
        let begun = consumers.beginLoad()
        #expect(begun?.after.rawValue == 11)
    }

    @Test func `programs share the memory for messages that are held`() throws {
        let names = try ["c", "d"].map { try #require(ConsumerName($0)) }
        var consumers = try caughtUp(names[0])
        consumers.put(names[1], "b", try TopicFilter("b"), .atLeastOnce)
        consumers.collected(collected(9...20, for: [names[0]], size: consumers.memory / 4))
        #expect(try heldAhead(&consumers) == [9])
    }

    @Test func `a message that is larger than the room in memory is read from the store`() throws {
        let name = try #require(ConsumerName("c"))
        var consumers = try caughtUp(name)
        consumers.collected(collected(9...9, for: [name], size: consumers.memory))
        #expect(try heldAhead(&consumers) == [])
        #expect(consumers.beginLoad()?.after.rawValue == 8)
    }

    @Test func `held messages are given in portions, until the window is full`() throws {
        let name = try #require(ConsumerName("c"))
        var consumers = try caughtUp(name)
        consumers.memory = 16 << 20
        let id = SubscriptionID(rawValue: "s1")
        #expect(consumers.acknowledge(.init(rawValue: 8), upTo: true, by: id)?.messages.count == 8)
        let size = DurableConsumers.portionBytes / 2 - 1
        consumers.collected(collected(9...60, for: [name], size: size))
        #expect(try givenAhead(&consumers) == [9, 10])
        #expect(try givenAhead(&consumers) == [11, 12])
        let window = Int64(DurableConsumers.windowBytes / (size + 1))
        #expect(try heldAhead(&consumers) == Array(13..<(9 + window)))
        #expect(consumers.acknowledge(.init(rawValue: 9), upTo: true, by: id)?.messages.count == 1)
        #expect(try givenAhead(&consumers) == [9 + window])
    }

    private func heldAhead(_ consumers: inout DurableConsumers) throws -> [Int64] {
        var all: [Int64] = []
        while case let given = try givenAhead(&consumers), !given.isEmpty { all += given }
        return all
    }

    @Test func `messages held in memory are read again after their times change`() throws {
        let name = try #require(ConsumerName("c"))
        var consumers = try caughtUp(name)
        consumers.collected(collected(9...10, for: [name]))
        #expect(try givenAhead(&consumers, hasRoom: false) == [])
        consumers.forgetAhead()
        #expect(try givenAhead(&consumers) == [])
        #expect(consumers.beginLoad()?.after.rawValue == 8)
    }

    private func given(
        _ messages: [CollectedMessage], _ load: DurableConsumers.Load, _ consumers: inout DurableConsumers,
        at now: Int64 = 0, maximumAge: Int64? = nil
    ) throws -> [Int64] {
        let session = try #require(SessionName("main"))
        return consumers.loaded(
            messages, for: load, session: session, at: Timestamp(rawValue: now), maximumAge: maximumAge
        ).given.map(\.id)
    }

    private func attached(_ name: ConsumerName) throws -> (DurableConsumers, DurableConsumers.Load) {
        var consumers = DurableConsumers(
            DurableSession(
                established: false, consumers: [.init(name: name, filter: "a", qos: .atLeastOnce)],
                nextInboxSequence: .init(rawValue: 9)))
        let id = SubscriptionID(rawValue: "s1")
        _ = consumers.attach(id, to: name)
        consumers.ready(name, id)
        let begun = consumers.beginLoad()
        let load = try #require(begun)
        return (consumers, load)
    }

    private func messages(_ ids: ClosedRange<Int64>, expiry: UInt32? = nil) -> [CollectedMessage] {
        ids.map { id in
            CollectedMessage(
                sequence: .init(rawValue: id),
                message: .init(
                    topic: "a", payload: ByteBuffer(), qos: .atLeastOnce, retain: false, duplicate: false,
                    properties: .init(messageExpiryInterval: expiry)),
                receivedAt: Timestamp(rawValue: id * 1000))
        }
    }

    @Test func `messages a program may have had, and those the server marked, are given as duplicates`() throws {
        let name = try #require(ConsumerName("c"))
        var consumers = DurableConsumers(
            DurableSession(
                established: false,
                consumers: [
                    .init(name: name, filter: "a", qos: .atLeastOnce, givenThrough: InboxSequence(rawValue: 2))
                ], nextInboxSequence: .init(rawValue: 9)))
        let id = SubscriptionID(rawValue: "s1")
        _ = consumers.attach(id, to: name)
        consumers.ready(name, id)
        let begun = consumers.beginLoad()
        var messages = messages(1...4)
        messages[3].message.duplicate = true
        let loaded = consumers.loaded(
            messages, for: try #require(begun), session: try #require(SessionName("main")),
            at: Timestamp(rawValue: 0), maximumAge: nil)
        #expect(loaded.given.map(\.duplicate) == [true, true, false, true])
    }

    @Test func `a consumer that is put again takes the new filter and keeps its program`() throws {
        let name = try #require(ConsumerName("c"))
        let id = SubscriptionID(rawValue: "s1")
        var consumers = DurableConsumers(DurableSession())
        for (text, qos) in [("a", QoS.atMostOnce), ("b", .exactlyOnce)] {
            let filter = try TopicFilter(text)
            consumers.put(name, text, filter, qos)
            #expect(consumers[name]?.text == text)
            #expect(consumers.names(for: filter) == [name])
            #expect(consumers.qos(of: filter) == qos)
            if text == "a" { _ = consumers.attach(id, to: name) }
        }
        #expect(consumers.name(of: id) == name)
    }

    @Test func `a message that has expired in the inbox is not given to a program`() throws {
        let name = try #require(ConsumerName("c"))
        var (consumers, load) = try attached(name)
        #expect(try given(messages(1...4, expiry: 2), load, &consumers, at: 4000) == [3, 4])
        (consumers, load) = try attached(name)
        #expect(try given(messages(1...4), load, &consumers, at: 4000, maximumAge: 2000) == [3, 4])
        (consumers, load) = try attached(name)
        let session = try #require(SessionName("main"))
        let loaded = consumers.loaded(
            messages(1...4, expiry: 2), for: load, session: session, at: Timestamp(rawValue: 4000), maximumAge: nil)
        #expect(loaded.overdue.map(\.sequence.rawValue) == [1, 2])
    }

    @Test func `messages dropped while being read are not given, and their acknowledgement is not awaited`()
        throws
    {
        let name = try #require(ConsumerName("c"))
        var (consumers, load) = try attached(name)
        consumers.dropped(through: .init(rawValue: 2), of: name)
        #expect(try given(messages(1...4), load, &consumers) == [3, 4])
        consumers.dropped(through: .init(rawValue: 3), of: name)
        let taken = consumers.acknowledge(.init(rawValue: 4), upTo: true, by: .init(rawValue: "s1"))
        #expect(taken?.messages.map(\.sequence.rawValue) == [4])
    }

    @Test func `a read that was under way when the session restarts is repeated`() throws {
        let name = try #require(ConsumerName("c"))
        let durable = DurableSession(
            established: false, consumers: [.init(name: name, filter: "a", qos: .atLeastOnce)],
            nextInboxSequence: .init(rawValue: 11))
        var consumers = DurableConsumers(durable)
        let id = SubscriptionID(rawValue: "s1")
        _ = consumers.attach(id, to: name)
        consumers.ready(name, id)
        #expect(consumers.beginLoad() != nil)
        var again = DurableConsumers(durable, attached: consumers.attached)
        #expect(again.beginLoad() != nil)
    }

    @Test func `a program that is not ready to read is passed over for the next`() throws {
        let names = try ["a", "b"].map { try #require(ConsumerName($0)) }
        var consumers = DurableConsumers(
            DurableSession(
                established: false, consumers: names.map { .init(name: $0, filter: "t", qos: .atLeastOnce) },
                nextInboxSequence: .init(rawValue: 9)))
        for name in names {
            let id = SubscriptionID(rawValue: name.description)
            #expect(consumers.attach(id, to: name) == nil)
            consumers.ready(name, id)
        }
        #expect(consumers.beginLoad { $0.rawValue == "b" }?.name == names[1])
        #expect(consumers.attach(SubscriptionID(rawValue: "c"), to: names[0]) == SubscriptionID(rawValue: "a"))
        consumers.remove(names[1])
        #expect(consumers.names(for: try TopicFilter("t")) == [])
    }

    @Test func `consumers take turns, and begin again with the first`() throws {
        var consumers = DurableConsumers(DurableSession(established: false, nextInboxSequence: .init(rawValue: 9)))
        #expect(consumers.beginLoad() == nil)
        for text in ["a", "b"] {
            let name = try #require(ConsumerName(text))
            consumers.put(name, "t", try TopicFilter("t"), .atLeastOnce)
            _ = consumers.attach(SubscriptionID(rawValue: text), to: name)
            consumers.ready(name, SubscriptionID(rawValue: text))
        }
        var turns: [String] = []
        for number: Int64 in 1...4 {
            let begun = consumers.beginLoad()
            let load = try #require(begun)
            turns.append(load.name.description)
            _ = try given(messages(number...number), load, &consumers)
        }
        #expect(turns == ["a", "b", "a", "b"])
    }

    @Test func `a read that finds nothing is not repeated`() throws {
        var (consumers, load) = try attached(try #require(ConsumerName("c")))
        #expect(try given([], load, &consumers) == [])
        #expect(consumers.beginLoad() == nil, "what was there has been dropped or taken")
    }
}
