import Testing

@testable import MQTT

/// The packets that wait for an answer on one connection.
@Suite struct AnswerWatchTests {
    private static func watch() -> AnswerWatch {
        var watch = AnswerWatch()
        for number in 1...3 { watch.sent(id(UInt16(number)), at: Timestamp(rawValue: Int64(number))) }
        return watch
    }

    @Test func `the oldest unanswered packet is known, in whatever order the answers come`() {
        var watch = Self.watch()
        #expect(watch.oldest?.id == id(1))
        watch.answered(id(2))
        #expect(watch.oldest?.id == id(1))
        watch.answered(id(1))
        #expect(watch.oldest?.id == id(3))
        #expect(watch.oldest?.sentAt == Timestamp(rawValue: 3))
        watch.answered(id(3))
        #expect(watch.oldest == nil)
    }

    @Test func `only the last packet with an identifier counts`() {
        var watch = Self.watch()
        watch.sent(id(1), at: Timestamp(rawValue: 4))
        #expect(watch.oldest?.id == id(2))
        #expect(watch.lastNumber == 4)
    }

    @Test func `what is answered while one packet stays unanswered is not kept`() {
        var watch = Self.watch()
        watch.answered(id(2))
        for number in 4...10_000 {
            watch.sent(id(3), at: Timestamp(rawValue: Int64(number)))
            if number == 9000 { watch.arrived(Timestamp(rawValue: 3), at: Timestamp(rawValue: 9000)) }
            if number < 10_000 { watch.answered(id(3)) }
        }
        #expect(watch.keptCount < 100)
        #expect(watch.oldest?.arrivedAt == Timestamp(rawValue: 9000))
        watch.answered(id(1))
        #expect(watch.oldest?.sentAt == Timestamp(rawValue: 10_000))
        #expect(watch.oldest?.arrivedAt == nil)
    }

    @Test func `nothing is awaited after the connection is closed`() {
        var watch = Self.watch()
        watch.connectionClosed()
        #expect(watch.oldest == nil)
        watch.sent(id(2), at: Timestamp(rawValue: 9))
        #expect(watch.oldest?.sentAt == Timestamp(rawValue: 9))
    }

    @Test func `a late answer ends the wait for the answer to a PINGREQ that asked about it`() throws {
        var client = try MQTTClientHarness.late()
        client.server(.puback(answer(1)))
        client.now = client.now.advanced(by: 60_000)
        #expect(client.handle(.timePassed) == [])
        #expect(client.machine.nextDeadline == nil)
        // The first PINGREQ may still be answered. That says nothing about the next message.
        try client.publish("b")
        client.handle(.flushed(try #require(client.lastFlush)))
        client.now = client.now.advanced(by: 60_000)
        #expect(client.handle(.timePassed) == ["PINGREQ"])
        #expect(client.server(.pingresp) == [])
        #expect(client.server(.pingresp).first?.hasPrefix("unanswered") == true)
    }

    /// Otherwise the others would never be told if the session does not come back.
    @Test func `a connection that is given up leaves its will`() throws {
        for (will, code) in [(Will(topic: "w"), "04"), (nil, "00")] {
            var client = try MQTTClientHarness.late()
            client.machine.configuration.will = will
            #expect(client.server(.pingresp).dropFirst() == ["DISCONNECT \(code)", "close"])
        }
    }

    @Test func `nothing is awaited on a connection because of what was sent on an earlier one`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("a")
        #expect(client.machine.nextDeadline == client.now.advanced(by: 30_000))
        client.handle(.connectionClosed)
        client.handle(.unsubscribe(try TopicFilter("a")))
        client.connect()
        #expect(client.machine.nextDeadline == nil)
    }

    @Test(arguments: [Int64(86_400_000), -86_400_000])
    func `a clock that is set makes the answer to a PINGREQ no earlier and no later`(step: Int64) throws {
        var client = try MQTTClientHarness.late()
        let range = Timestamp(rawValue: .min)...client.now
        client.now = client.now.advanced(by: step)
        client.handle(.clockStepped(by: step, acceptedWithin: range))
        #expect(client.machine.nextDeadline == client.now.advanced(by: 60_000))
    }

    /// What is left unanswered in a stream of messages that are all answered.
    enum LeftOut: CaseIterable, Sendable {
        case message, subscription
    }

    /// Something is always on its way, in the daemon's own queue, and unanswered.
    @Test(arguments: LeftOut.allCases, [Int64(0), 40_000, 200_000])
    func `an answer that does not come is missed in a stream of others`(_ leftOut: LeftOut, _ delay: Int64) throws {
        var client = MQTTClientHarness { $0.requestTimeout = 60_000 }
        client.connect()
        client.machine.measured(acknowledged: 0, pending: 0, at: client.now)
        let start = client.now
        switch leftOut {
        case .message: try client.publish("left out")
        case .subscription: try client.subscribe("left out")
        }
        var noticedAfter: Int64?
        var unanswered: [PacketID] = []
        while noticedAfter == nil, client.now.rawValue < start.rawValue + 400_000 {
            client.now = client.now.advanced(by: 100)
            try client.publish("x")
            if let id = client.publishes.last?.packetID { unanswered.append(id) }
            if unanswered.count > 3 { client.server(.puback(Acknowledgement(packetID: unanswered.removeFirst()))) }
            guard let due = client.machine.nextDeadline, due <= client.now else { continue }
            // 1000 bytes a second; at first nothing arrives.
            let passed = Int(client.now.rawValue - start.rawValue)
            let acknowledged = max(0, passed - Int(delay))
            client.machine.measured(acknowledged: acknowledged, pending: passed + 100 - acknowledged, at: client.now)
            if client.handle(.timePassed).contains("PINGREQ") { noticedAfter = client.now.rawValue - start.rawValue }
        }
        let noticed = try #require(noticedAfter)
        #expect(noticed >= 60_000 && noticed >= delay + 30_000)
        // The time limit, from when the server's host had it; while the queue is long, the next look is needed to see it.
        #expect(noticed <= 60_000 + 2 * delay + 100)
    }

    @Test func `a packet that took long to arrive leaves the server half of the time`() throws {
        var client = MQTTClientHarness().connected()
        client.machine.measured(acknowledged: 0, pending: 0, at: client.now)
        try client.publish("a")
        client.flush()
        func pass(_ milliseconds: Int64, pending: Int) -> [String] {
            client.now = client.now.advanced(by: milliseconds)
            client.machine.measured(acknowledged: 0, pending: pending, at: client.now)
            return client.handle(.timePassed)
        }
        #expect(pass(60_000, pending: 100) == [])
        #expect(pass(60_000, pending: 0) == [])
        #expect(client.machine.nextDeadline == client.now.advanced(by: 30_000))
        #expect(pass(30_000, pending: 0) == ["PINGREQ"])
    }

    @Test func `a missing answer is noticed in time if the transport cannot tell any more how far a packet has come`()
        throws
    {
        var client = MQTTClientHarness().connected()
        client.machine.measured(acknowledged: 0, pending: 0, at: client.now)
        try client.publish("a")
        client.flush()
        var packets: [String] = []
        for wait in [15_000, 45_000] as [Int64] {
            let due = try #require(client.machine.nextDeadline)
            #expect(due == client.now.advanced(by: wait), "it is not asked again at once")
            client.now = due
            packets += client.handle(.timePassed)
        }
        #expect(packets == ["PINGREQ"])
    }

    @Test func `a clock that is set does not change the age of a packet`() {
        var watch = Self.watch()
        watch.shiftTimes(by: 1000)
        #expect(watch.oldest?.sentAt == Timestamp(rawValue: 1001))
    }
}

extension MQTTClientHarness {
    /// A client that asks for a sign of life, because its message was not answered in time.
    static func late() throws -> MQTTClientHarness {
        var client = MQTTClientHarness().connected()
        try client.publish("a")
        client.handle(.flushed(try #require(client.lastFlush)))
        client.now = client.now.advanced(by: 60_000)
        #expect(client.handle(.timePassed) == ["PINGREQ"])
        return client
    }
}
