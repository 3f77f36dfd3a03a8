import NIOCore
import Testing

@testable import MQTT

/// Rules 11 to 14 and invariant 3: a message for a durable consumer is stored before it is acknowledged.
@Suite struct `Messages for durable consumers` {
    private var harness: MQTTClientHarness
    private let name: ConsumerName

    init() throws {
        name = try #require(ConsumerName("billing"))
        harness = MQTTClientHarness {
            $0.inbox.messages = 2
            $0.inbox.whenFull = .withhold
        }
        harness.handle(.consumer(name, .put(filter: "in", .exactlyOnce, matching: try TopicFilter("in"))))
        harness.connect()
        harness.holdsCommits = true
        harness.changes = []
    }

    private func taken(_ sequences: Int64..., size: Int) -> [TakenMessage] {
        sequences.map { TakenMessage(sequence: .init(rawValue: $0), size: size) }
    }

    @Test mutating func `a QoS 1 message is acknowledged when it is committed, not before`() {
        #expect(harness.server(inbound("a", qos: .atLeastOnce, 1)) == ["received a", "commit"])
        #expect(harness.commitAll() == ["collected 1", "PUBACK 1"])
        #expect(harness.machine.inboxCounts.messages == 1)
    }

    @Test mutating func `an identifier whose message was acknowledged may come again with another one`() {
        for payload in ["a", "b"] {
            #expect(harness.server(inbound(payload, qos: .atLeastOnce, 1)) == ["received \(payload)", "commit"])
            #expect(harness.commitAll().last == "PUBACK 1")
        }
        #expect(harness.machine.inboxCounts.messages == 2)
    }

    @Test mutating func `a QoS 2 message is committed once, with its identifier`() {
        #expect(harness.server(inbound("a", qos: .exactlyOnce, 1)) == ["commit"])
        guard case .collect(let message, [name], id(1))? = harness.changes.first else {
            Issue.record("not collected: \(harness.changes)")
            return
        }
        #expect(message.sequence.rawValue == 1)
        #expect(harness.commitAll() == ["collected 1", "received a", "PUBREC 1"])
        harness.handle(.connectionClosed)
        harness.connect(resumed: true)
        harness.commitAll()
        #expect(harness.server(inbound("a", qos: .exactlyOnce, 1, duplicate: true)) == ["PUBREC 1"])
        #expect(harness.machine.inboxCounts.messages == 1)
    }

    /// Found by the fuzzer, with a full disk: a message was removed that was never stored.
    @Test mutating func `a QoS 2 message released before it was acknowledged is still committed`() {
        harness.server(inbound("a", qos: .exactlyOnce, 1))
        harness.changes = []
        #expect(harness.server(.pubrel(Acknowledgement(packetID: id(1)))).isEmpty, "PUBREL is answered in its turn")
        #expect(harness.changes.isEmpty)
        #expect(harness.commitAll() == ["collected 1", "received a", "PUBCOMP 1 92", "PUBREC 1"])
    }

    @Test mutating func `the time of a message being committed moves when the clock is set`() throws {
        harness.server(inbound("a", qos: .atLeastOnce, 1))
        let before = harness.now
        let first = try #require(harness.heldCommits.first)
        harness.handle(
            .clockStepped(by: 86_400_000, acceptedWithin: Timestamp(rawValue: 0)...before))
        harness.now = before.advanced(by: 86_400_000)
        var actions: [MQTTClientMachine.Action] = []
        harness.machine.handle(.committed(first), at: harness.now, into: &actions)
        guard case .event(.collected(let messages))? = actions.first else {
            Issue.record("not collected: \(actions)")
            return
        }
        #expect(messages.map(\.message.receivedAt) == [harness.now])
        #expect(messages.map(\.consumers) == [[name]])
    }

    @Test mutating func `a message that no durable consumer needs is acknowledged without a commit`() {
        harness.handle(.consumer(name, .matching(nil)))
        #expect(harness.server(inbound("a", qos: .atLeastOnce, 1)) == ["received a", "PUBACK 1"])
        #expect(harness.changes.isEmpty)
    }

    @Test mutating func `a message that no durable consumer needs is acknowledged in its turn`() throws {
        harness.server(inbound("a", qos: .atLeastOnce, 1))
        harness.handle(.consumer(name, .matching(try TopicFilter("other"))))
        #expect(harness.server(inbound("b", qos: .atLeastOnce, 2)) == ["received b"])
        #expect(harness.commitAll() == ["collected 1", "PUBACK 1", "PUBACK 2"])
    }

    @Test mutating func `a QoS 0 message finds no room in a full inbox, unless others wait before it`() {
        harness.server(inbound("a", qos: .atLeastOnce, 1), inbound("b", qos: .atLeastOnce, 2))
        harness.commitAll()
        #expect(harness.server(inbound("c", qos: .atMostOnce)) == ["received c", "dropped in"])
        harness.server(inbound("d", qos: .atLeastOnce, 3))
        #expect(harness.server(inbound("e", qos: .atMostOnce)) == ["received e"], "it waits behind the other")
        harness.handle(.consumer(name, .taken(taken(1, 2, size: 3))))
        while !harness.heldCommits.isEmpty { harness.commitAll() }
        #expect(harness.machine.inboxCounts.messages == 2)
    }

    @Test mutating func `what only waited for its turn is acknowledged, although the disk has no room for the next`()
        throws
    {
        harness.server(inbound("a", qos: .atLeastOnce, 1))
        harness.handle(.consumer(name, .matching(try TopicFilter("other"))))
        harness.server(inbound("b", qos: .atLeastOnce, 2))
        harness.handle(.consumer(name, .matching(try TopicFilter("in"))))
        harness.server(inbound("c", qos: .atLeastOnce, 3))
        #expect(harness.commitAll() == ["collected 1", "commit", "PUBACK 1"])
        let last = try #require(harness.heldCommits.last)
        #expect(harness.handle(.committedWithoutInserts(last)) == ["collecting paused", "PUBACK 2"])
    }

    @Test mutating func `a large commit is split, so that other sessions need not wait`() {
        harness.machine.configuration.inbox.messages = 100
        harness.server(inbound("a", qos: .atLeastOnce, 1))
        let large = String(repeating: "x", count: 1 << 20)
        for number: UInt16 in 2...4 { harness.server(inbound(large, qos: .atLeastOnce, number)) }
        harness.changes = []
        harness.commitAll()
        let collected = harness.changes.count { if case .collect = $0 { true } else { false } }
        #expect(collected == 1, "the rest follows with the next commits")
        while !harness.heldCommits.isEmpty { harness.commitAll() }
        #expect(harness.machine.inboxCounts.messages == 4)
        #expect(harness.machine.inboxCounts.withheld == 0)
    }

    @Test mutating func `many messages that no durable consumer needs do not fill the inbox`() throws {
        harness = MQTTClientHarness { $0.receiveMaximum = 2000 }
        harness.handle(.consumer(name, .put(filter: "in", .exactlyOnce, matching: try TopicFilter("in"))))
        harness.connect()
        harness.holdsCommits = true
        harness.server(inbound("a", qos: .atLeastOnce, 1))
        for number: UInt16 in 2...1200 {
            let other = Publish(topic: "other", qos: .atLeastOnce, packetID: id(number))
            #expect(harness.server(.publish(other)) == ["received "])
        }
        let answers = harness.commitAll()
        #expect(answers.first == "collected 1")
        #expect(answers.dropFirst() == (1...1200).map { "PUBACK \($0)" }[...])
    }

    @Test mutating func `a message that waits keeps only its own bytes in memory`() throws {
        harness.server(inbound("a", qos: .atLeastOnce, 1))
        var bytes = ByteBuffer(repeating: 0x61, count: 100_000)
        let slice = bytes.readSlice(length: 10)
        let payload = try #require(slice)
        harness.server(
            .publish(
                Publish(
                    topic: "in", payload: payload, qos: .atLeastOnce, packetID: id(2),
                    properties: .init(correlationData: payload))))
        let waiting = try #require(harness.machine.intake.waiting.first?.publish)
        #expect(waiting.payload == payload && waiting.properties.correlationData == payload)
        #expect(waiting.payload.storageCapacity < 100)
        #expect(waiting.properties.correlationData?.storageCapacity ?? .max < 100)
    }

    @Test mutating func `a message goes to the consumers whose subscription the server names`() throws {
        let other = try #require(ConsumerName("other"))
        let wide = try TopicFilter("#")
        harness.handle(.consumer(other, .put(filter: "#", .exactlyOnce, matching: wide)))
        harness.holdsCommits = false
        try harness.subscribe("in", qos: .exactlyOnce)
        try harness.subscribe("#", qos: .exactlyOnce)
        func collected(_ identifiers: [UInt32]) -> [[ConsumerName]] {
            harness.changes = []
            var publish = Publish(topic: "in", payload: ByteBuffer(string: "x"), qos: .atMostOnce)
            publish.properties.subscriptionIDs = identifiers
            harness.server(.publish(publish))
            return harness.changes.compactMap { if case .collect(_, let names, _) = $0 { names } else { nil } }
        }
        let narrow = try TopicFilter("in")
        harness.machine.configuration.inbox.messages = 100
        #expect(collected([narrow.subscriptionID]) == [[name]])
        #expect(collected([wide.subscriptionID]) == [[other]])
        #expect(collected([narrow.subscriptionID, wide.subscriptionID]) == [[name, other]])
        #expect(collected([]) == [[name, other]], "the server does not say")
        #expect(collected([7]) == [[name, other]], "of a subscription without a consumer")
    }

    /// The server sends a retained message for a filter with this identifier. Returns whether it was collected.
    private mutating func collectsRetained(_ identifier: UInt32?, retain: Bool = true) -> Bool {
        harness.changes = []
        var publish = Publish(topic: "in", payload: ByteBuffer(string: "x"), qos: .atMostOnce, retain: retain)
        publish.properties.subscriptionIDs = [identifier].compactMap(\.self)
        harness.server(.publish(publish))
        return harness.changes.contains { if case .collect = $0 { true } else { false } }
    }

    /// Returns the identifier that goes with the SUBSCRIBE.
    private mutating func subscribe(isLive: Bool, answer: ReasonCode? = .grantedQoS2) throws -> UInt32? {
        var actions: [MQTTClientMachine.Action] = []
        let subscription = Subscription(filter: "in", qos: .exactlyOnce)
        try harness.machine.subscribe(subscription, isLive: isLive, at: harness.now, into: &actions)
        _ = harness.describe(actions)
        let subscribe = try #require(harness.subscribes.last)
        if let answer { harness.server(.suback(Suback(packetID: subscribe.packetID, reasonCodes: [answer]))) }
        return subscribe.properties.subscriptionID
    }

    @Test mutating func `a live subscription does not put retained messages into the inbox again`() throws {
        harness.holdsCommits = false
        harness.machine.configuration.inbox.messages = 100
        let own = try subscribe(isLive: false)
        #expect(collectsRetained(own))
        let live = try subscribe(isLive: true)
        #expect(live != own)
        #expect(!collectsRetained(live))
        #expect(collectsRetained(live, retain: false), "what is published now is for everybody")
        #expect(collectsRetained(own), "the answer to the consumer's own may come late")
        #expect(collectsRetained(nil), "the server does not say what it is for")
        #expect(try subscribe(isLive: true) == live)
        #expect(try subscribe(isLive: false) == own, "a new consumer needs them")
        harness.handle(.connectionClosed)
        harness.connect(resumed: true)
        #expect(!collectsRetained(live), "on its way since before")
        harness.handle(.connectionClosed)
        var actions: [MQTTClientMachine.Action] = []
        let subscription = Subscription(filter: "in", qos: .exactlyOnce)
        try harness.machine.subscribe(subscription, isLive: true, at: harness.now, into: &actions)
        harness.connect(resumed: true)
        #expect(harness.subscribes.last?.properties.subscriptionID == own, "the server may have begun a new session")
    }

    @Test mutating func `a retained message is collected while the consumer has not had it for certain`() throws {
        harness.holdsCommits = false
        harness.machine.configuration.inbox.messages = 100
        let own = try subscribe(isLive: false, answer: nil)
        #expect(try subscribe(isLive: true) == own, "the consumer's own is unanswered")
        #expect(try subscribe(isLive: true, answer: .notAuthorized) != own)
        #expect(try subscribe(isLive: true) == own, "there was a gap")
        #expect(try subscribe(isLive: true) != own)
        harness.handle(.connectionClosed)
        harness.connect()
        #expect(harness.subscribes.last?.properties.subscriptionID == own, "the server has lost the session")
        #expect(collectsRetained(own))
    }

    @Test mutating func `a consumer keeps its former filter until the server has granted the new one`() throws {
        harness.holdsCommits = false
        let new = try TopicFilter("other")
        let former: Set = [try TopicFilter("in")]
        harness.handle(.consumer(name, .put(filter: "other", .exactlyOnce, matching: new, former: former)))
        #expect(collectsRetained(nil, retain: false))
        harness.handle(.consumer(name, .matching(new)))
        #expect(!collectsRetained(nil, retain: false))
    }

    @Test mutating func `a consumer that was removed and created again does not keep its messages`() throws {
        harness.server(inbound("a", qos: .atLeastOnce, 1))
        let commit = try #require(harness.heldCommits.last)
        harness.handle(.consumer(name, .remove))
        harness.handle(.consumer(name, .put(filter: "in", .exactlyOnce, matching: try TopicFilter("in"))))
        harness.handle(.committedWithoutInserts(commit))
        #expect(harness.machine.inboxCounts.messages == 0)
        #expect(harness.machine.backlog(of: name) == (0, 0))
    }

    @Test mutating func `messages that arrive during a commit go together with the next one`() {
        harness.machine.configuration.inbox.messages = 100
        harness.server(inbound("a", qos: .atLeastOnce, 1))
        #expect(harness.server(inbound("b", qos: .atLeastOnce, 2)) == ["received b"])
        #expect(harness.server(inbound("c", qos: .exactlyOnce, 3)) == [])
        #expect(harness.commitAll() == ["collected 1", "commit", "PUBACK 1"])
        #expect(harness.commitAll() == ["collected 3", "received c", "PUBACK 2", "PUBREC 3"])
    }

    @Test mutating func `acknowledgements are withheld without room, and sent in order when there is`() {
        harness.server(inbound("a", qos: .atLeastOnce, 1), inbound("b", qos: .atLeastOnce, 2))
        harness.commitAll()
        #expect(harness.server(inbound("c", qos: .atLeastOnce, 3)) == ["received c", "inbox full"])
        #expect(harness.server(inbound("d", qos: .exactlyOnce, 4)) == [])
        #expect(harness.machine.inboxCounts.withheld == 2)
        // All messages have the same size.
        let size = harness.machine.inboxCounts.bytes / 2
        #expect(
            harness.handle(.consumer(name, .taken(taken(1, 2, size: size))))
                == ["commit"])
        #expect(harness.commitAll() == ["collected 4", "received d", "PUBACK 3", "PUBREC 4"])
        // Not reported before a quarter is free.
        #expect(
            harness.handle(.consumer(name, .taken(taken(3, size: size)))) == ["inbox has room", "commit"])
    }

    @Test mutating func `a waiting message goes to the consumers that matched when it arrived`() throws {
        let other = try #require(ConsumerName("other"))
        let wanted = try TopicFilter("in")
        harness.handle(.consumer(other, .put(filter: "else", .exactlyOnce, matching: try TopicFilter("else"))))
        harness.commitAll()
        harness.server(inbound("a", qos: .atLeastOnce, 1), inbound("b", qos: .atLeastOnce, 2))
        harness.commitAll()
        harness.server(inbound("c", qos: .atLeastOnce, 3))
        // As when the session goes to another room.
        harness.handle(.consumer(name, .matching(try TopicFilter("elsewhere"))))
        harness.handle(.consumer(other, .matching(wanted)))
        harness.changes = []
        let size = harness.machine.inboxCounts.bytes / 2
        harness.handle(.consumer(name, .taken(taken(1, size: size))))
        let collected = harness.changes.compactMap { if case .collect(_, let names, _) = $0 { names } else { nil } }
        #expect(collected == [[name]])
        #expect(harness.commitAll().contains("PUBACK 3"))
    }

    @Test mutating func `a waiting message whose consumer is removed is acknowledged`() throws {
        harness.server(inbound("a", qos: .atLeastOnce, 1), inbound("b", qos: .atLeastOnce, 2))
        harness.commitAll()
        harness.server(inbound("c", qos: .atLeastOnce, 3))
        harness.handle(.consumer(name, .remove))
        harness.handle(.consumer(name, .put(filter: "in", .exactlyOnce, matching: try TopicFilter("in"))))
        #expect(harness.commitAll().contains("PUBACK 3"))
        #expect(harness.machine.inboxCounts.messages == 0, "it was sent for the removed consumer of the same name")
    }

    @Test mutating func `reading pauses while a commit runs and enough waits for the next`() {
        harness.machine.configuration.inbox.messages = 100
        harness.machine.configuration.inbox.waitingBytes = 5
        harness.server(inbound("aaa", qos: .atLeastOnce, 1))
        harness.server(inbound("bbb", qos: .atLeastOnce, 2))
        #expect(harness.machine.wantsToRead, "the limit is not exceeded yet")
        harness.server(inbound("ccc", qos: .atLeastOnce, 3))
        #expect(!harness.machine.wantsToRead)
        harness.commitAll()
        #expect(harness.machine.wantsToRead)
        #expect(harness.commitAll().contains("PUBACK 3"))
    }

    /// A full inbox may stay full for days, and the connection must be read meanwhile.
    @Test mutating func `a message without room to wait is left for another connection`() {
        harness.machine.configuration.inbox.waitingBytes = 5
        harness.server(inbound("a", qos: .atLeastOnce, 1), inbound("b", qos: .atLeastOnce, 2))
        harness.commitAll()
        #expect(harness.server(inbound("ccc", qos: .atLeastOnce, 3)) == ["received ccc", "inbox full"])
        #expect(harness.server(inbound("z", qos: .atMostOnce)) == ["received z", "dropped in"])
        #expect(harness.server(inbound("d", qos: .atLeastOnce, 4)) == [])
        #expect(harness.server(inbound("e", qos: .exactlyOnce, 5)) == [])
        #expect(harness.machine.wantsToRead)
        #expect(harness.machine.inboxCounts.withheld == 3)
        let size = harness.machine.inboxCounts.bytes / 2
        harness.handle(.consumer(name, .taken(taken(1, 2, size: size))))
        #expect(!harness.machine.hasRoomForLeftOut)
        let words = harness.commitAll()
        #expect(words.contains("PUBACK 3"))
        #expect(!words.contains("PUBACK 4"))
        #expect(words.last == "PINGREQ", "what it has read of our acknowledgements")
        #expect(!harness.machine.hasRoomForLeftOut)
        #expect(harness.server(.pingresp) == [])
        #expect(harness.machine.hasRoomForLeftOut)
        harness.handle(.connectionClosed)
        harness.commitAll()
        #expect(!harness.machine.hasRoomForLeftOut)
        harness.connect(resumed: true)
        harness.commitAll()
        #expect(harness.server(inbound("d", qos: .atLeastOnce, 4, duplicate: true)) == ["received d", "commit"])
    }

    @Test mutating func `reading pauses while a commit hangs and thousands of answers wait for it`() {
        harness.server(inbound("a", qos: .atLeastOnce, 1))
        for _ in 0..<16_384 { harness.server(.pubrel(answer(9))) }
        #expect(!harness.machine.wantsToRead)
        harness.commitAll()
        #expect(harness.machine.wantsToRead)
    }

    @Test mutating func `a withheld acknowledgement is dropped with its connection`() {
        harness.server(inbound("a", qos: .atLeastOnce, 1), inbound("b", qos: .atLeastOnce, 2))
        harness.commitAll()
        harness.server(inbound("c", qos: .atLeastOnce, 3))
        harness.handle(.connectionClosed)
        harness.connect(resumed: true)
        #expect(!harness.handle(.consumer(name, .remove)).contains("PUBACK 3"))
        #expect(!harness.commitAll().contains("PUBACK 3"))
    }

    @Test mutating func `a message committed after its connection closed is not acknowledged on the next`() {
        harness.server(inbound("a", qos: .atLeastOnce, 1))
        let held = harness.heldCommits
        harness.handle(.connectionClosed)
        #expect(harness.handle(.committed(held[0])) == ["collected 1"])
        #expect(!harness.connect(resumed: true).contains("PUBACK 1"))
    }

    @Test(arguments: [QoS.atLeastOnce, .exactlyOnce])
    mutating func `a full disk withholds the acknowledgement until there is room`(qos: QoS) throws {
        harness.server(inbound("a", qos: qos, 1))
        let last = harness.heldCommits.popLast()
        let number = try #require(last)
        #expect(harness.handle(.committedWithoutInserts(number)) == ["collecting paused"])
        #expect(harness.machine.inboxCounts.messages == 0)
        #expect(harness.handle(.ping) == ["PINGREQ"])
        #expect(harness.handle(.resumeCollecting) == ["commit"])
        #expect(
            harness.commitAll()
                == (qos == .atLeastOnce
                    ? ["collected 2", "PUBACK 1"] : ["collected 2", "received a", "PUBREC 1"]))
    }

    @Test mutating func `a QoS 0 message without room is dropped, and reported`() {
        #expect(harness.server(inbound("a", qos: .atMostOnce)) == ["received a", "commit"])
        harness.commitAll()
        harness.server(inbound("b", qos: .atMostOnce))
        harness.commitAll()
        #expect(harness.server(inbound("c", qos: .atMostOnce)) == ["received c", "dropped in"])
    }

    @Test mutating func `one message of any size has room in an empty inbox`() {
        harness.machine.configuration.inbox.bytes = 1
        #expect(harness.server(inbound("aaaaaaaaaa", qos: .atLeastOnce, 1)).contains("commit"))
    }

    @Test mutating func `a message that the server repeats while it waits is collected once`() {
        harness.server(inbound("a", qos: .atLeastOnce, 1), inbound("b", qos: .atLeastOnce, 2))
        harness.commitAll()
        for _ in 0..<5 { harness.server(inbound("c", qos: .atLeastOnce, 3)) }
        #expect(harness.machine.inboxCounts.withheld == 1)
    }

    @Test func `what a server sends again beyond our Receive Maximum is taken on the next connection`() {
        var harness = MQTTClientHarness { $0.receiveMaximum = 2 }
        harness.connect()
        harness.holdsCommits = true
        harness.server(inbound("a", qos: .exactlyOnce, 1), inbound("b", qos: .exactlyOnce, 2))
        #expect(harness.server(inbound("c", qos: .exactlyOnce, 3)) == ["violation 93", "DISCONNECT 93", "close"])
        harness.handle(.connectionClosed)
        harness.commitAll()
        harness.connect(resumed: true)
        let resent = (1...5).map { inbound("x", qos: .exactlyOnce, $0, duplicate: $0 < 4) }
        for packet in resent { #expect(!harness.server(packet).contains("violation 93")) }
    }

    @Test(arguments: ["", "a b", "ä", "a/b", String(repeating: "a", count: 65)])
    func `a consumer name that is empty, long or not plain is refused`(text: String) {
        #expect(ConsumerName(text) == nil)
    }

    @Test mutating func `what is left out on one connection after another is fetched each time`() {
        harness.machine.configuration.inbox.waitingBytes = 5
        harness.server(inbound("a", qos: .atLeastOnce, 1), inbound("b", qos: .atLeastOnce, 2))
        harness.commitAll()
        let size = harness.machine.inboxCounts.bytes / 2
        harness.server(inbound("c", qos: .atLeastOnce, 3))
        #expect(harness.server(inbound("d", qos: .atLeastOnce, 4)) == [])
        harness.handle(.consumer(name, .taken(taken(1, 2, size: size))))
        #expect(harness.commitAll().last == "PINGREQ")
        // The connection ends before the server has answered.
        harness.handle(.connectionClosed)
        harness.connect(resumed: true)
        harness.server(inbound("d", qos: .atLeastOnce, 4, duplicate: true))
        harness.commitAll()
        harness.server(inbound("e", qos: .atLeastOnce, 5))
        #expect(harness.server(inbound("f", qos: .atLeastOnce, 6)) == [])
        harness.handle(.consumer(name, .taken(taken(3, 4, size: size))))
        #expect(harness.commitAll().last == "PINGREQ")
    }

    @Test mutating func `what is left out is fetched although messages of QoS 0 never stop`() {
        harness.machine.configuration.inbox.waitingBytes = 5
        harness.server(inbound("a", qos: .atLeastOnce, 1), inbound("b", qos: .atLeastOnce, 2))
        harness.commitAll()
        let size = harness.machine.inboxCounts.bytes / 2
        harness.server(inbound("c", qos: .atLeastOnce, 3))
        #expect(harness.server(inbound("d", qos: .atLeastOnce, 4)) == [])
        harness.handle(.consumer(name, .taken(taken(1, 2, size: size))))
        harness.server(inbound("e", qos: .atMostOnce))
        // The next one is on its way to the disk when this one is there.
        let actions = harness.commitAll()
        #expect(actions.contains("PUBACK 3") && actions.contains("commit") && actions.contains("PINGREQ"))
        #expect(!harness.machine.hasRoomForLeftOut)
        harness.server(inbound("f", qos: .atMostOnce))
        harness.server(.pingresp)
        #expect(harness.machine.hasRoomForLeftOut)
    }

    @Test(arguments: [(messages: 8, bytes: 1000), (1000, 24)])
    mutating func `a full inbox has room when a quarter of its messages and of its bytes is free`(
        messages: Int, bytes: Int
    ) {
        (harness.machine.configuration.inbox.messages, harness.machine.configuration.inbox.bytes) = (messages, bytes)
        harness.holdsCommits = false
        // Each has 3 bytes.
        for number: UInt16 in 1...8 { harness.server(inbound("x", qos: .atLeastOnce, number)) }
        #expect(harness.server(inbound("x", qos: .atLeastOnce, 9)).contains("inbox full"))
        func takes(_ sequence: Int64) -> [String] { harness.handle(.consumer(name, .taken(taken(sequence, size: 3)))) }
        #expect(takes(1).last == "PUBACK 9")
        #expect(takes(2) == [])
        #expect(takes(3) == ["inbox has room"])
    }

    @Test func `an identifier of a lost session is not kept for a message that the disk had no room for`() throws {
        var harness = MQTTClientHarness(durable: DurableSession(established: true, inboundIDs: [id(1)]))
        harness.handle(.consumer(name, .put(filter: "in", .exactlyOnce, matching: try TopicFilter("in"))))
        harness.connect(resumed: true)
        harness.holdsCommits = true
        #expect(harness.server(inbound("a", qos: .exactlyOnce, 1)) == ["commit"], "it is new, since it has no DUP")
        let number = try #require(harness.heldCommits.last)
        harness.changes = []
        harness.handle(.committedWithoutInserts(number))
        #expect(harness.changes == [.removeInbound(id(1))], "or it would be taken for a duplicate after a restart")
    }
}
