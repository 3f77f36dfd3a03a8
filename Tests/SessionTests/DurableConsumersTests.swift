import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Testing

@testable import Session

/// What durable consumers are given, and what is read for them.
@Suite struct DurableConsumersTests {
    @Test func `no more is given than the window holds, and then as much as is free`() throws {
        let name = try #require(ConsumerName("c"))
        var consumers = DurableConsumers(
            DurableSession(
                consumers: [.init(name: name, filter: "a", qos: .atLeastOnce)],
                nextInboxSequence: .init(rawValue: 1001)))
        let id = SubscriptionID(rawValue: "s1")
        _ = consumers.attach(id, to: name)
        #expect(consumers.beginLoad() == nil, "nothing before the consumer is durable")
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
        let taken = consumers.acknowledge(.init(rawValue: 64), upTo: true, by: id)
        #expect(taken?.messages.count == 64)
        #expect(consumers.beginLoad()?.messages == 64)
        #expect(consumers.acknowledge(.init(rawValue: 64), upTo: true, by: id)?.messages.isEmpty == true)
        #expect(consumers.acknowledge(.init(rawValue: 900), upTo: false, by: id) == nil)
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
                consumers: [.init(name: name, filter: "a", qos: .atLeastOnce)], nextInboxSequence: .init(rawValue: 9)))
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

    @Test func `what was dropped while it was read is not given, and what a program has of it is not waited for`()
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

    @Test func `what was being read when the session is started anew is read again`() throws {
        let name = try #require(ConsumerName("c"))
        let durable = DurableSession(
            consumers: [.init(name: name, filter: "a", qos: .atLeastOnce)], nextInboxSequence: .init(rawValue: 11))
        var consumers = DurableConsumers(durable)
        let id = SubscriptionID(rawValue: "s1")
        _ = consumers.attach(id, to: name)
        consumers.ready(name, id)
        #expect(consumers.beginLoad() != nil)
        var anew = DurableConsumers(durable, attached: consumers.attached)
        #expect(anew.beginLoad() != nil)
    }

    @Test func `a program that has not read enough is passed over, and the next has its turn`() throws {
        let names = try ["a", "b"].map { try #require(ConsumerName($0)) }
        var consumers = DurableConsumers(
            DurableSession(
                consumers: names.map { .init(name: $0, filter: "t", qos: .atLeastOnce) },
                nextInboxSequence: .init(rawValue: 9)))
        for name in names {
            let id = SubscriptionID(rawValue: name.description)
            #expect(consumers.attach(id, to: name) == nil)
            consumers.ready(name, id)
        }
        #expect(consumers.beginLoad { $0.rawValue == "b" }?.name == names[1])
        #expect(consumers.attach(SubscriptionID(rawValue: "c"), to: names[0]) == SubscriptionID(rawValue: "a"))
        #expect(consumers.remove(names[1]) == SubscriptionID(rawValue: "b"))
        #expect(consumers.names(for: try TopicFilter("t")) == [])
    }
}
