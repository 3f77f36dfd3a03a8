import NIOCore
import Support
import Testing

@testable import MQTT

/// What happens at the limits of the outbox: messages, bytes and age.
@Suite struct OutboxLimitTests {
    typealias Behaviour = MQTTClientMachine.OverflowBehaviour

    private static func client(
        _ behaviour: Behaviour, messages: Int = 3, bytes: Int = 1000, durable: DurableSession = DurableSession()
    ) -> MQTTClientHarness {
        MQTTClientHarness(durable: durable) {
            $0.outbox.whenFull = behaviour
            $0.outbox.messages = messages
            $0.outbox.bytes = bytes
        }
    }

    @Test func `the oldest message is the first that waits, or is in flight`() throws {
        var client = MQTTClientHarness()
        #expect(client.machine.oldestAcceptance == nil)
        let first = client.now
        try client.publish("a")
        client.now = Timestamp(rawValue: first.rawValue + 1000)
        try client.publish("b")
        #expect(client.machine.oldestAcceptance == first)
        client.connect()
        #expect(client.machine.oldestAcceptance == first)
        client.server(.puback(answer(1)))
        #expect(client.machine.oldestAcceptance == client.now)
    }

    @Test(arguments: [
        (Behaviour.refuse, MQTTClientMachine.PublishError.outboxFull), (.dropNew, .dropped),
    ])
    func `a new message is refused without any change`(
        behaviour: Behaviour, error: MQTTClientMachine.PublishError
    ) throws {
        var client = Self.client(behaviour)
        for payload in ["a", "b", "c"] { try client.publish(payload) }
        #expect(!client.machine.hasRoom(for: 1))
        #expect(throws: error) { try client.publish("d") }
        #expect(client.machine.counts == .init(queued: 3, bytes: 6))
        var small = Self.client(behaviour, bytes: 10)
        try small.publish("12345678")
        #expect(throws: error) { try small.publish("12") }
    }

    @Test func `the oldest message is dropped when the new one is durable`() throws {
        var client = Self.client(.dropOldest)
        for payload in ["a", "b", "c"] { try client.publish(payload) }
        #expect(try client.publish("d") == ["accepted 4", "dropped 1"])
        #expect(client.changes.contains(.remove(MessageSequence(rawValue: 1))))
        #expect(client.machine.counts == .init(queued: 3, bytes: 6))
        client.connect()
        #expect(client.publishes.map { String(buffer: $0.payload) } == ["b", "c", "d"])
    }

    @Test func `as many of the oldest messages are dropped as the new one needs bytes`() throws {
        var client = Self.client(.dropOldest, messages: 100, bytes: 20)
        for payload in ["1234", "1234", "1234"] { try client.publish(payload) }
        #expect(try client.publish("1234567890") == ["accepted 4", "dropped 1", "dropped 2"])
        #expect(client.machine.counts.bytes == 16)
        #expect(throws: MQTTClientMachine.PublishError.largerThanOutbox(size: 21, limit: 20)) {
            try client.publish(String(repeating: "x", count: 20))
        }
        #expect(client.machine.counts.bytes == 16, "nothing was dropped in vain")
    }

    @Test(arguments: [QoS.atLeastOnce, .exactlyOnce])
    func `a message in flight, released or quarantined is never dropped`(qos: QoS) throws {
        var client = Self.client(.dropOldest)
        client.connect(Connack.Properties(receiveMaximum: 2))
        try client.publish("refused", qos: qos)
        let refusal = answer(1, .notAuthorized)
        client.server(qos == .atLeastOnce ? .puback(refusal) : .pubrec(refusal))
        try client.publish("a", qos: qos)
        if qos == .exactlyOnce { client.server(.pubrec(answer(2))) }
        try client.publish("b", qos: qos)
        #expect(throws: MQTTClientMachine.PublishError.outboxFull) { try client.publish("c", qos: qos) }
        client.handle(.connectionClosed)
        #expect(throws: MQTTClientMachine.PublishError.outboxFull, "not without a connection either") {
            try client.publish("c", qos: qos)
        }
        #expect(client.machine.counts.inFlight == 2 && client.machine.counts.quarantined == 1)
    }

    @Test func `a QoS 0 message on its way through the transport is not dropped`() throws {
        var client = Self.client(.dropOldest, messages: 2)
        client.connect()
        try client.publish("a", qos: .atMostOnce)
        try client.publish("b", qos: .atMostOnce)
        #expect(throws: MQTTClientMachine.PublishError.outboxFull) { try client.publish("c", qos: .atMostOnce) }
    }

    @Test func `a message not yet accepted is not dropped before it is durable`() throws {
        var client = Self.client(.dropOldest, messages: 2)
        client.holdsCommits = true
        for payload in ["a", "b", "c"] { #expect(try client.publish(payload) == ["commit"]) }
        #expect(client.machine.counts.queued == 3, "one message over the limit for the moment")
        #expect(client.commitAll() == ["accepted 1", "accepted 2", "accepted 3", "dropped 1", "commit"])
        #expect(client.machine.counts.queued == 2)
    }

    @Test func `nothing is dropped for a message that the disk has no room for`() throws {
        var client = Self.client(.dropOldest, messages: 2)
        for payload in ["a", "b"] { try client.publish(payload) }
        client.holdsCommits = true
        for payload in ["c", "d"] { #expect(try client.publish(payload) == ["commit"]) }
        #expect(client.handle(.committedWithoutInserts(client.heldCommits[0])) == ["not accepted 3"])
        #expect(client.handle(.committedWithoutInserts(client.heldCommits[1])) == ["not accepted 4"])
        #expect(client.machine.counts.queued == 2)
    }

    @Test(arguments: [Behaviour.dropOldest, .refuse])
    func `expired messages make room before a wanted one suffers, wherever they are`(_ whenFull: Behaviour) throws {
        var client = Self.client(whenFull, messages: 3)
        try client.publish("wanted")
        for payload in ["a", "b"] { try client.publish(payload, expiresIn: 1000) }
        client.now = client.now.advanced(by: 999)
        #expect(client.handle(.timePassed) == [])
        client.now = client.now.advanced(by: 1)
        var words = whenFull == .refuse ? client.handle(.timePassed) : []
        words += try client.publish("new")
        #expect(Set(words) == ["expired 2", "expired 3", "accepted 4"])
        #expect(client.connect().suffix(2) == ["PUBLISH wanted id 1", "PUBLISH new id 2"])
    }

    @Test func `a disk that hangs does not let the queue grow without limit`() throws {
        var client = MQTTClientHarness {
            $0.outbox.whenFull = .dropOldest
            $0.outbox.messages = 2
            $0.readAhead.messages = 3
        }
        client.holdsCommits = true
        for payload in ["a", "b", "c", "d", "e"] { try client.publish(payload) }
        #expect(throws: MQTTClientMachine.PublishError.outboxFull) { try client.publish("f") }
    }

    @Test func `the oldest messages are loaded from the store after a restart`() throws {
        let stored = (1...3).map { number in
            StoredMessage(
                sequence: MessageSequence(rawValue: number),
                message: OutboundMessage(topic: "t", payload: ByteBuffer(string: "\(number)")))
        }
        let durable = DurableSession(
            established: false, nextSequence: MessageSequence(rawValue: 4), queuedCount: 3, queuedBytes: 6)
        var client = Self.client(.dropOldest, durable: durable)
        #expect(try client.publish("4") == ["load after 0", "accepted 4"])
        #expect(client.handle(.loaded(stored)) == ["dropped 1"])
        #expect(client.machine.counts == .init(queued: 3, bytes: 6))
        #expect(client.machine.hasRoom(for: 0) == false)
    }

    @Test func `a message that is too old is not sent, unless it was sent before`() throws {
        var client = MQTTClientHarness { $0.outbox.maximumAge = 60_000 }
        client.connect()
        try client.publish("sent")
        client.handle(.connectionClosed)
        try client.publish("old")
        client.now = Timestamp(rawValue: client.now.rawValue + 59_999)
        try client.publish("young")
        client.now = Timestamp(rawValue: client.now.rawValue + 1)
        #expect(
            client.connect(resumed: true) == [
                "connected resumed", "restored", "too old 2", "PUBLISH sent id 1 DUP", "PUBLISH young id 2",
            ])
        #expect(
            client.publishes.allSatisfy { $0.properties.messageExpiryInterval == nil },
            "the maximum age is not sent to the server")
    }

    @Test func `a message that was sent before the server lost the session does not expire`() throws {
        var client = MQTTClientHarness { $0.outbox.maximumAge = 60_000 }
        client.connect()
        try client.publish("sent", expiresIn: 60_000)
        client.handle(.connectionClosed)
        try client.publish("old", expiresIn: 60_000)
        client.now = Timestamp(rawValue: client.now.rawValue + 60_000)
        #expect(client.connect() == ["connected session lost", "restored", "load after 0"])
        let stored = ["sent", "old"].enumerated().map { index, payload in
            StoredMessage(
                sequence: MessageSequence(rawValue: Int64(index + 1)),
                message: OutboundMessage(topic: "t", payload: ByteBuffer(string: payload), expiresAt: client.now))
        }
        #expect(client.handle(.loaded(stored)) == ["expired 2", "PUBLISH sent id 2"])
        #expect(client.publishes.last?.properties.messageExpiryInterval == 1)
        #expect(client.publishes.last?.duplicate == false, "it is new to the server")
        client.server(.puback(answer(2)))
        #expect(client.machine.counts == .init())
    }

    @Test func `messages expire without a connection, and the head of the queue is dropped for its age`() throws {
        var client = MQTTClientHarness { $0.outbox.maximumAge = 60_000 }
        try client.publish("a")
        try client.publish("b", expiresIn: 5000)
        try client.publish("c", expiresIn: 5000)
        client.now = Timestamp(rawValue: client.now.rawValue + 10_000)
        #expect(client.handle(.timePassed) == ["expired 2", "expired 3"])
        client.now = Timestamp(rawValue: client.now.rawValue + 50_000)
        #expect(client.handle(.timePassed) == ["too old 1"])
        #expect(client.machine.counts == .init())
        #expect(client.machine.oldestAcceptance == nil)
    }

    // MARK: Large messages

    /// A client whose message is too large to be held in memory without a connection.
    private static func clientWithLargeMessage() throws -> (MQTTClientHarness, StoredMessage) {
        var client = MQTTClientHarness {
            $0.readAhead.bytes = 100
            $0.outbox.maximumAge = 60_000
        }
        let payload = String(repeating: "x", count: 101)
        var message = OutboundMessage(topic: "t", payload: ByteBuffer(string: payload))
        message.acceptedAt = client.now
        try client.publish(payload)
        try client.publish("y")
        return (client, StoredMessage(sequence: MessageSequence(rawValue: 1), message: message))
    }

    @Test func `a large message is not held in memory while there is no connection`() throws {
        var (client, message) = try Self.clientWithLargeMessage()
        #expect(client.machine.outbox.readAhead.messages.isEmpty)
        #expect(client.machine.oldestAcceptance == client.now)
        client.now = client.now.advanced(by: 30_000)
        #expect(client.handle(.timePassed) == [], "its times are known")
        #expect(client.connect() == ["connected", "restored", "load after 0"])
        #expect(client.handle(.loaded([message])).contains { $0.hasPrefix("PUBLISH xxx") })
    }

    @Test func `a large message that was read for its times is not kept`() throws {
        var (client, message) = try Self.clientWithLargeMessage()
        client.handle(.clockStepped(by: 1000, acceptedWithin: Timestamp(rawValue: 0)...client.now))
        message.message.acceptedAt = message.message.acceptedAt.advanced(by: 1000)
        #expect(client.machine.oldestAcceptance == nil)
        #expect(client.handle(.timePassed) == ["load after 0"])
        #expect(client.handle(.loaded([message])) == [])
        #expect(client.machine.outbox.readAhead.messages.isEmpty)
        #expect(client.machine.oldestAcceptance == message.message.acceptedAt)
        #expect(client.handle(.timePassed) == [])
    }

    @Test func `a large message that is too old is read, and dropped`() throws {
        var (client, message) = try Self.clientWithLargeMessage()
        client.now = client.now.advanced(by: 60_000)
        #expect(client.handle(.timePassed) == ["load after 0"])
        #expect(client.handle(.loaded([message])) == ["too old 1", "load after 1"])
    }

    @Test func `a large message is not kept when its connection ends`() throws {
        var client = MQTTClientHarness { $0.readAhead.bytes = 100 }
        client.connect(Connack.Properties(receiveMaximum: 1))
        try client.publish("sent")
        try client.publish(String(repeating: "x", count: 101))
        #expect(client.machine.outbox.readAhead.messages.count == 1)
        client.handle(.connectionClosed)
        #expect(client.machine.outbox.readAhead.messages.isEmpty)
        #expect(client.connect(resumed: true).contains("load after 1"))
    }

    @Test func `what is known of a large message goes with it`() throws {
        var client = MQTTClientHarness { $0.readAhead.bytes = 100 }
        client.holdsCommits = true
        try client.publish(String(repeating: "x", count: 101))
        #expect(client.machine.oldestAcceptance == client.now)
        #expect(client.handle(.committedWithoutInserts(client.heldCommits[0])) == ["not accepted 1"])
        #expect(client.machine.oldestAcceptance == nil)
    }

    // MARK: Age

    @Test func `the age is measured from the acceptance, even after a restart`() {
        var message = OutboundMessage(topic: "t", payload: ByteBuffer(string: "x"))
        message.acceptedAt = Timestamp(rawValue: 1_000_000)
        let durable = DurableSession(
            established: false, nextSequence: MessageSequence(rawValue: 2), queuedCount: 1, queuedBytes: message.size)
        var client = MQTTClientHarness(durable: durable) { $0.outbox.maximumAge = 60_000 }
        client.now = Timestamp(rawValue: 1_060_000)
        #expect(client.handle(.timePassed) == ["load after 0"])
        #expect(
            client.handle(.loaded([StoredMessage(sequence: MessageSequence(rawValue: 1), message: message)]))
                == ["too old 1"])
    }

    @Test(arguments: [Int64(40 * 365 * 86_400_000), -3_600_000])
    func `a clock that is set does not change the age of messages`(step: Int64) throws {
        var client = MQTTClientHarness { $0.outbox.maximumAge = 60_000 }
        try client.publish("old")
        try client.publish("expires", expiresIn: 60_000)
        let before = client.now
        client.now = Timestamp(rawValue: client.now.rawValue + step)
        let range = Timestamp(rawValue: 0)...before
        #expect(client.handle(.clockStepped(by: step, acceptedWithin: range)) == [])
        #expect(client.changes.last == .shiftTimes(by: step, acceptedWithin: range))
        client.now = Timestamp(rawValue: client.now.rawValue + 59_999)
        #expect(client.handle(.timePassed) == [])
        client.now = Timestamp(rawValue: client.now.rawValue + 1)
        #expect(client.handle(.timePassed) == ["too old 1", "expired 2"])
    }

    @Test func `a message in flight is sent again without waiting for what is read from the store behind it`() throws {
        var client = MQTTClientHarness { $0.readAhead.messages = 1 }
        client.connect(Connack.Properties(receiveMaximum: 1))
        for payload in ["a", "b", "c"] { try client.publish(payload) }
        #expect(client.server(.puback(answer(1))).contains("load after 2"))
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true, .init(receiveMaximum: 1)).contains("PUBLISH b id 2 DUP"))
    }

    /// What was given to the transport, or refused for lack of room, may be queued again.
    @Test(arguments: [QoS.atMostOnce, .atLeastOnce])
    func `a clock that is set does not change the age of a message on its way`(qos: QoS) throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: qos, expiresIn: 60_000)
        if qos == .atLeastOnce { client.server(.puback(answer(1, .quotaExceeded))) }
        let step: Int64 = 86_400_000
        let range = Timestamp(rawValue: 0)...client.now
        client.now = client.now.advanced(by: step)
        client.handle(.clockStepped(by: step, acceptedWithin: range))
        client.handle(.connectionClosed)
        client.now = client.now.advanced(by: 59_999)
        #expect(client.handle(.timePassed) == [])
        client.now = client.now.advanced(by: 1)
        #expect(client.handle(.timePassed) == ["expired 1"])
    }

    @Test func `a clock that is set moves the times of keys even without messages`() throws {
        var client = MQTTClientHarness(durable: DurableSession(established: false, hasKeys: true))
        let range = Timestamp(rawValue: 0)...client.now
        client.handle(.clockStepped(by: 86_400_000, acceptedWithin: range))
        #expect(client.changes == [.shiftTimes(by: 86_400_000, acceptedWithin: range)])
    }

    @Test func `the oldest is the first that is queued or in flight`() throws {
        var client = MQTTClientHarness()
        let start = client.now
        client.connect(Connack.Properties(receiveMaximum: 1))
        for payload in ["a", "b"] {
            try client.publish(payload)
            client.now = Timestamp(rawValue: client.now.rawValue + 1000)
        }
        #expect(client.machine.oldestAcceptance == start)
        client.server(.puback(answer(1)))
        #expect(client.machine.oldestAcceptance == Timestamp(rawValue: start.rawValue + 1000))
        client.server(.puback(answer(2, .notAuthorized)))
        #expect(client.machine.oldestAcceptance == nil, "a quarantined message waits for an operator")
    }

    @Test func `a quarantined message that has expired cannot be retried, and stays until it is dropped`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", expiresIn: 60_000)
        client.server(.puback(answer(1, .notAuthorized)))
        var message = OutboundMessage(topic: "t", payload: ByteBuffer(string: "a"))
        message.expiresAt = Timestamp(rawValue: client.now.rawValue + 60_000)
        let stored = StoredMessage(
            sequence: MessageSequence(rawValue: 1), message: message, state: .quarantined(.notAuthorized, "no"))
        client.now = Timestamp(rawValue: client.now.rawValue + 60_000)
        client.changes = []
        var actions: [MQTTClientMachine.Action] = []
        #expect(throws: MQTTClientMachine.PublishError.expired) {
            try client.machine.retry(stored, at: client.now, into: &actions)
        }
        #expect(actions.isEmpty)
        #expect(client.machine.counts.quarantined == 1)
    }

    @Test func `without a connection the queue is read only to drop messages from it`() {
        let durable = DurableSession(
            established: true, nextSequence: MessageSequence(rawValue: 4), queuedCount: 3, queuedBytes: 6)
        var client = Self.client(.dropOldest, durable: durable)
        #expect(client.handle(.resumeCollecting) == [])
        #expect(client.handle(.timePassed) == ["load after 0"], "some may be too old")
        client = Self.client(.dropOldest, messages: 2, durable: durable)
        #expect(client.handle(.resumeCollecting) == ["load after 0"], "there is one too many")
        client = Self.client(.refuse, messages: 2, durable: durable)
        #expect(client.handle(.resumeCollecting) == [])
    }

    @Test func `the queue is read ahead as far as there is room in memory`() throws {
        func message(_ number: Int64) -> StoredMessage {
            StoredMessage(
                sequence: MessageSequence(rawValue: number),
                message: OutboundMessage(topic: "t", payload: ByteBuffer(string: "abc"), qos: .atLeastOnce))
        }
        var readAhead = ReadAhead(loadedThrough: .zero)
        func room() throws -> [Int] {
            let load = readAhead.nextLoad(through: MessageSequence(rawValue: 9), maxMessages: 4, maxBytes: 100)
            guard case .load(_, let messages, let bytes)? = load else { return [] }
            return [messages, bytes]
        }
        #expect(try room() == [4, 100])
        readAhead.loaded([message(1), message(2)])
        #expect(try room() == [2, 92])
        readAhead.loaded([message(3)])
        #expect(try room() == [], "less than half of it is free")
    }
}
