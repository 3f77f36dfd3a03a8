import NIOCore
import Testing

@testable import MQTT

/// The table "Reason codes": what each code means in each packet, and that the machine does what the table says.
struct ConsequenceTests {
    private typealias Place = Consequence.Place

    /// What Documentation/Reason-codes.md says, written a second time. Every other code calls for nothing.
    private static let described: [(codes: [UInt8], places: [Place], measures: Set<Consequence.Measure>)] = [
        ([0x80, 0x83, 0x97], [.connack, .disconnect], [.slow]),
        ([0x81, 0x82], [.connack], [.failIfRepeated]),
        ([0x81, 0x82], [.disconnect], [.failIfRepeated, .quarantine, .cleanStart]),
        ([0x88], [.connack, .disconnect], [.floor, .nextEndpoint]),
        ([0x89], [.connack, .disconnect], [.floor, .nextEndpoint, .blameNoPacket]),
        ([0x8B], [.connack, .disconnect], [.nextEndpoint, .blameNoPacket]),
        ([0x8D], [.connack, .disconnect], [.atOnce, .shortenKeepAlive, .blameNoPacket]),
        ([0x8E, 0x98, 0xA0], [.connack, .disconnect], [.blameNoPacket]),
        ([0x8F, 0x90, 0x95, 0x99, 0x9E, 0xA1, 0xA2], [.disconnect], [.quarantine]),
        ([0x91], [.acknowledgement, .subscription], [.retireIdentifier]),
        ([0x91, 0x92], [.connack, .disconnect], [.atOnce, .cleanStart]),
        ([0x93], [.disconnect], [.atOnce, .halveWindow]),
        ([0x94], [.disconnect], [.atOnce, .noAliases]),
        ([0x96], [.connack, .disconnect], [.floor, .halveWindow]),
        ([0x97], [.acknowledgement], [.unlessEnded]),
        ([0x9C], [.connack, .disconnect], [.follow, .blameNoPacket]),
        ([0x9D], [.connack, .disconnect], [.follow, .remember, .blameNoPacket]),
        ([0x9F], [.connack, .disconnect], [.doubledFloor, .blameNoPacket]),
    ]

    @Test(arguments: Place.allCases)
    func `each code calls for what is described`(place: Consequence.Place) {
        for code in UInt8.min...UInt8.max {
            let row = Self.described.first { $0.codes.contains(code) && $0.places.contains(place) }
            let measures = Consequence.measures(for: ReasonCode(rawValue: code), in: place)
            #expect(measures == row?.measures ?? [], "\(code) in \(place)")
        }
    }

    @Test func `every measure is used`() {
        #expect(Set(Consequence.rows.flatMap(\.measures)) == Set(Consequence.Measure.allCases))
    }

    // MARK: What the machine does

    private static func codes(with measure: Consequence.Measure, in place: Place) -> [ReasonCode] {
        Consequence.rows.filter { $0.places.contains(place) && $0.measures.contains(measure) }
            .flatMap(\.codes)
    }

    private static func goodbye(_ code: ReasonCode) -> Packet { .disconnect(Disconnect(reasonCode: code)) }

    private static let aboutSubscriptions: Set<ReasonCode> = [
        .topicFilterInvalid, .sharedSubscriptionsNotSupported, .subscriptionIdentifiersNotSupported,
        .wildcardSubscriptionsNotSupported,
    ]

    @Test(arguments: codes(with: .quarantine, in: .disconnect).filter { !aboutSubscriptions.contains($0) })
    func `the only message unanswered after a resume is quarantined and blocks nothing`(
        code: ReasonCode
    ) throws {
        var client = MQTTClientHarness().connected()
        try client.publish("bad")
        client.handle(.connectionClosed)
        try client.publish("good")
        client.machine.configuration.inFlight.messages = 1
        #expect(client.connect(resumed: true).last == "PUBLISH bad id 1 DUP")
        let hex = MQTTClientHarness.hex(code)
        let isUncertain = Consequence.measures(for: code, in: .disconnect).contains(.failIfRepeated)
        let remedies = [Remedy.quarantine] + (isUncertain ? [.cleanStart] : [])
        #expect(
            client.server(Self.goodbye(code)) == [
                "rejected 1 \(hex)",
                "disconnected by server \(hex): \(remedies.map(\.description).joined(separator: ", "))", "close",
            ])
        #expect(client.machine.counts == .init(queued: 1, quarantined: 1, bytes: 9))
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true).last == "PUBLISH good id 2")
    }

    @Test(arguments: codes(with: .cleanStart, in: .disconnect).filter { $0.rawValue <= 0x82 })
    func `0x81 and 0x82 in the middle of a connection blame no message yet`(code: ReasonCode) throws {
        var client = MQTTClientHarness().connected(resumed: false)
        try client.publish("a")
        let hex = MQTTClientHarness.hex(code)
        #expect(
            client.server(Self.goodbye(code)) == ["disconnected by server \(hex): \(Remedy.isolation)", "close"])
        client.handle(.connectionClosed)
        client.connect(resumed: true)
        #expect(
            client.server(Self.goodbye(code)).first == "rejected 1 \(hex)",
            "the message was alone, right after the resume")
    }

    @Test func `no message is blamed while one of QoS 0 may be the reason`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("bad", qos: .atMostOnce)
        client.handle(.flushed(try #require(client.lastFlush)))
        try client.publish("good")
        #expect(
            client.server(Self.goodbye(.topicNameInvalid)) == [
                "disconnected by server 90: \(Remedy.isolation)", "close",
            ])
        client.handle(.connectionClosed)
        try client.publish("next", qos: .atMostOnce)
        #expect(client.connect(resumed: true).last == "PUBLISH good id 1 DUP", "no other message beside it")
        #expect(client.server(.puback(answer(1))) == ["delivered 2 00", "PUBLISH next"])
    }

    @Test func `an answered message clears those of QoS 0 before it`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("fine", qos: .atMostOnce)
        client.handle(.flushed(try #require(client.lastFlush)))
        try client.publish("good")
        client.server(.puback(answer(1)))
        try client.publish("bad")
        #expect(client.server(Self.goodbye(.topicNameInvalid)).first == "rejected 3 90")
    }

    @Test func `messages of QoS 0 do not block those that go out one by one`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("1")
        try client.publish("2", qos: .atMostOnce)
        try client.publish("3")
        #expect(client.server(Self.goodbye(.topicNameInvalid)).last == "close")
        client.handle(.connectionClosed)
        #expect(client.connect().last == "load after 0")
        let stored = zip(1..., [QoS.atLeastOnce, .atMostOnce, .atLeastOnce]).map { number, qos in
            StoredMessage(
                sequence: MessageSequence(rawValue: number),
                message: OutboundMessage(topic: "t", payload: ByteBuffer(string: "\(number)"), qos: qos))
        }
        #expect(client.handle(.loaded(stored)) == ["PUBLISH 1 id 3"])
        let next = client.server(.puback(answer(3)))
        #expect(next.contains("PUBLISH 2"))
        let rest = next + client.handle(.flushed(try #require(client.lastFlush)))
        #expect(rest.contains("PUBLISH 3 id 4"))
    }

    @Test(arguments: [ReasonCode.malformedPacket, .protocolError])
    func `a session ended right after its resume, before any message, is discarded`(code: ReasonCode) {
        var client = MQTTClientHarness(durable: MQTTClientHarness.established()).connected(resumed: true)
        let hex = MQTTClientHarness.hex(code)
        #expect(
            client.server(Self.goodbye(code)) == ["disconnected by server \(hex): \(Remedy.cleanStart)", "close"])
        client.handle(.connectionClosed)
        #expect(client.open(force: true) == ["CONNECT clean"])
    }

    @Test func `a resume is not blamed once something was answered`() throws {
        var client = MQTTClientHarness(durable: MQTTClientHarness.established([.inFlight(id(1))], qos: .atLeastOnce))
            .connected(resumed: true)
        client.server(.puback(answer(1)))
        #expect(client.server(Self.goodbye(.protocolError)) == ["disconnected by server 82", "close"])
    }

    @Test(arguments: codes(with: .quarantine, in: .disconnect).filter(aboutSubscriptions.contains))
    func `a filter that the server ends the connection for is found, reported as refused, and not asked again`(
        code: ReasonCode
    ) throws {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        for filter in ["a", "b", "c"] { try client.subscribe(filter) }
        client.holdsCommits = false
        client.commitAll()
        let hex = MQTTClientHarness.hex(code)
        #expect(
            client.server(Self.goodbye(code)) == ["disconnected by server \(hex): \(Remedy.isolation)", "close"])
        client.handle(.connectionClosed)
        #expect(client.connectAndProve(resumed: true).last == "SUBSCRIBE a")
        let suback = Suback(packetID: id(4), reasonCodes: [.grantedQoS1])
        #expect(client.server(.suback(suback)) == ["subscribed a 01", "SUBSCRIBE b"])
        #expect(
            client.server(Self.goodbye(code)) == [
                "subscribed b \(hex)", "disconnected by server \(hex): \(Remedy.quarantine)", "close",
            ])
        client.handle(.connectionClosed)
        #expect(client.connectAndProve(resumed: true) == ["connected resumed", "subscribed b \(hex)", "SUBSCRIBE c"])
        client.server(.suback(Suback(packetID: id(6), reasonCodes: [.grantedQoS1])))
        client.now = client.now.advanced(by: 600_000)
        #expect(try client.subscribe("b").last == "SUBSCRIBE b", "a program asks again")
    }

    @Test(arguments: codes(with: .halveWindow, in: .disconnect))
    func `the window is halved each time, down to one`(code: ReasonCode) throws {
        var client = MQTTClientHarness { $0.inFlight.messages = 4 }
        for payload in ["a", "b", "c", "d"] { try client.publish(payload) }
        for (round, expected) in [4, 2, 1, 1].enumerated() {
            // After the third end, unanswered messages are sent one by one, once the connection has proven to work.
            let words = client.connect(resumed: round > 0) + (round == 3 ? client.server(.pingresp) : [])
            #expect(words.count { $0.hasPrefix("PUBLISH") } == expected)
            client.server(Self.goodbye(code))
            client.handle(.connectionClosed)
        }
    }

    @Test func `0x94 turns topic aliases off`() throws {
        var client = MQTTClientHarness().connected(Connack.Properties(topicAliasMaximum: 2))
        try client.publish("a", topic: "long/topic")
        #expect(client.publishes.last?.properties.topicAlias == 1)
        #expect(
            client.server(Self.goodbye(.topicAliasInvalid)).first
                == "disconnected by server 94: \(Remedy.noAliases)")
        client.handle(.connectionClosed)
        client.connect(resumed: true, Connack.Properties(topicAliasMaximum: 2))
        #expect(client.publishes.last?.properties.topicAlias == nil)
        #expect(client.publishes.last?.topic == "long/topic")
    }

    @Test func `0x8D shortens the keep-alive if it repeats`() {
        var client = MQTTClientHarness { $0.keepAlive = 16 }
        var told: [[String]] = []
        for _ in 0..<4 {
            client.connect()
            told.append(client.server(Self.goodbye(.keepAliveTimeout)))
            client.handle(.connectionClosed)
        }
        #expect(
            told.map(\.first) == [
                "disconnected by server 8D", "disconnected by server 8D: \(Remedy.keepAlive(8))",
                "disconnected by server 8D: \(Remedy.keepAlive(5))",
                "disconnected by server 8D: \(Remedy.keepAlive(5))",
            ])
        #expect(client.machine.lessons.capped(60) == 5)
    }

    private static let day: Int64 = 86_400_000

    /// A client that has learned to send less ahead, to use no aliases and to speak more often.
    private func taught() -> MQTTClientHarness {
        var client = MQTTClientHarness { ($0.inFlight.messages, $0.keepAlive) = (4, 16) }
        for code in [ReasonCode.keepAliveTimeout, .keepAliveTimeout, .receiveMaximumExceeded, .topicAliasInvalid] {
            client.connect()
            client.server(Self.goodbye(code))
            client.handle(.connectionClosed)
        }
        return client
    }

    /// What holds on the next connection, with the keep-alive of its CONNECT.
    private func learned(
        _ client: inout MQTTClientHarness, expecting expected: MQTTClientMachine.ExpectedSession
    ) -> (window: Int, usesAliases: Bool, keepAlive: UInt16?) {
        client.connect(expecting: expected)
        client.handle(.connectionClosed)
        let connects = client.sent.compactMap { if case .connect(let connect) = $0 { connect.keepAlive } else { nil } }
        let lessons = client.machine.lessons
        return (min(4, lessons.windowCap), lessons.usesAliases, connects.last)
    }

    @Test func `what a server objected to is tried again a day later, step by step`() {
        var client = taught()
        #expect(learned(&client, expecting: .init()) == (2, false, 8))
        client.now = client.now.advanced(by: Self.day - 1)
        #expect(learned(&client, expecting: .init()) == (2, false, 8))
        client.now = client.now.advanced(by: 1)
        #expect(learned(&client, expecting: .init()) == (4, true, 16))
        client.connect()
        #expect(
            client.server(Self.goodbye(.keepAliveTimeout)).first
                == "disconnected by server 8D: \(Remedy.keepAlive(8))", "at the first time")
    }

    @Test func `a clock that is set says nothing about what a server objected to`() {
        var client = taught()
        client.handle(.clockStepped(by: Self.day, acceptedWithin: client.now...client.now))
        client.now = client.now.advanced(by: Self.day)
        #expect(learned(&client, expecting: .init()) == (2, false, 8))
    }

    @Test func `what one server objected to says nothing about another one that accepts the session`() {
        var client = taught()
        client.open(expecting: .init(isPresent: false))
        client.handle(.connectionClosed)
        #expect(learned(&client, expecting: .init()) == (2, false, 8), "the other one has not accepted it")
        client.open(expecting: .init(isPresent: false))
        client.server(.connack(Connack()))
        #expect(client.machine.keepAlive == 8, "as CONNECT said")
        client.handle(.connectionClosed)
        #expect(learned(&client, expecting: .init()) == (4, true, 16))
    }

    @Test(arguments: [QoS.atLeastOnce, .exactlyOnce])
    func `an identifier answered with 0x91 is not used again, a second one is a state mismatch`(qos: QoS) throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: qos)
        try client.publish("b", qos: qos)
        func refusal(_ value: UInt16) -> Packet {
            qos == .atLeastOnce
                ? .puback(answer(value, .packetIdentifierInUse)) : .pubrec(answer(value, .packetIdentifierInUse))
        }
        #expect(client.server(refusal(1)) == ["rejected 1 91"])
        #expect(client.server(refusal(2)) == ["rejected 2 91", "state mismatch", "DISCONNECT 00", "close"])
    }

    /// Otherwise the others would never be told if the session does not come back.
    @Test(arguments: [ProtocolVersion.five, .threeOneOne])
    func `a session that is about to return leaves its will, but not to speak MQTT 5`(version: ProtocolVersion) throws {
        func words(_ act: (inout MQTTClientHarness) throws -> [String]) rethrows -> ArraySlice<String> {
            var client = MQTTClientHarness {
                $0.version = version
                $0.will = Will(topic: "w")
            }
            return try act(&client).drop { $0 != "state mismatch" && $0 != "version insufficient" }.dropFirst()
        }
        let goodbye: ArraySlice = version == .five ? ["DISCONNECT 04", "close"] : ["close"]
        #expect(words { $0.connect(resumed: true) } == goodbye, "the server has a session that is not known here")
        if version == .five {
            let mismatch = try words { client in
                client.connect()
                for (value, text) in [(1, "a"), (2, "b")] as [(UInt16, String)] {
                    try client.publish(text)
                    let words = client.server(.puback(answer(value, .packetIdentifierInUse)))
                    if value == 2 { return words }
                }
                return []
            }
            #expect(mismatch == goodbye)
        } else {
            let other = try words { client in
                client.machine.configuration.isVersionTentative = true
                client.connect()
                var actions: [MQTTClientMachine.Action] = []
                _ = try client.machine.publish(
                    OutboundMessage(topic: "t", properties: .init(contentType: "x")), at: client.now, into: &actions)
                return client.describe(actions)
            }
            #expect(other == ["DISCONNECT 00", "close"], "it is back in a moment, and MQTT 3.1.1 has no will delay")
        }
    }

    @Test func `a SUBSCRIBE whose identifier is in use is sent again with another one`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("a")
        let again = client.server(.suback(Suback(packetID: id(1), reasonCodes: [.packetIdentifierInUse])))
        #expect(again == ["SUBSCRIBE a"])
        #expect(
            client.server(.suback(Suback(packetID: id(2), reasonCodes: [.packetIdentifierInUse])))
                == ["state mismatch", "DISCONNECT 00", "close"])
    }

    @Test(arguments: Consequence.rows.indices)
    func `an acknowledgement with any code of a row ends the message and keeps the connection`(index: Int) throws {
        for code in Consequence.rows[index].codes {
            var client = MQTTClientHarness().connected()
            try client.publish("a")
            try client.publish("b")
            let hex = MQTTClientHarness.hex(code)
            var words = client.server(.puback(answer(1, code)))
            if Consequence.measures(for: code, in: .acknowledgement).contains(.unlessEnded) {
                words = client.server(.pingresp)
            }
            #expect(words == ["rejected 1 \(hex)"])
            #expect(client.server(.puback(answer(2))) == ["delivered 2 00"])
        }
    }
}
