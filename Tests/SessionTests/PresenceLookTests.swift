import ControlAPI
import MQTT
import NIOCore
import Support
import Testing

@testable import Session
@testable import SessionCore

/// Two devices of one user: what a look finds, and what the session does then.
@Suite struct PresenceLookTests {
    private static let ownTopic = "holdfast/rooms/plant/presence/edge-42/device"

    static func mark(_ client: String, _ number: Int64) -> ConnectionMark {
        ConnectionMark(clientID: client, time: Timestamp(rawValue: number), random: 0)
    }

    /// Connected as connection 1 of the client identifier `twin`; connection 2 was seen.
    static let own = {
        var own = OwnPresence(
            identity: .init(user: "twin", device: "m"), session: "main", willDelay: .seconds(90),
            since: Timestamp(rawValue: 1000))
        own.willConnect(as: mark("twin", 1))
        own.noteSeen(message("a", 500, connection: mark("twin", 2)))
        return own
    }()

    private static func message(
        _ device: String, _ since: Int64?, _ state: PresenceMessage.State = .online, session: String = "main",
        connection: ConnectionMark? = nil
    ) -> PresenceMessage {
        PresenceMessage(
            identity: .init(user: "twin", device: device), state: state,
            since: since.map { Timestamp(rawValue: $0) }, session: session, connection: connection)
    }

    @Test(
        arguments: [
            // (device, since, state, mark, displaced, yielded)
            // A connection that was not seen before, whatever the clock of its host says.
            ("a", 1001, .online, mark("twin", 3), true, true), ("a", 1, .online, mark("twin", 3), true, true),
            ("a", nil, .online, mark("twin", 3), true, true),
            // A connection that was seen before.
            ("a", 1001, .online, mark("twin", 2), false, true),
            // A device that went offline.
            ("a", 1001, .offline, mark("twin", 3), false, false),
            // Another client identifier does not displace this one, nor does a presence without a mark.
            ("a", 1001, .online, mark("other", 3), false, true), ("a", 1001, .online, nil, false, true),
            // What we published ourselves, on this connection and another.
            ("m", 1000, .online, mark("twin", 1), false, false), ("m", 1000, .online, mark("twin", 9), false, false),
            // The same device, in its past or a second time: it is no other device to yield to, but may have taken over.
            ("m", 999, .online, mark("twin", 3), true, false), ("m", nil, .online, mark("twin", 3), true, false),
            ("m", 999, .online, mark("other", 3), false, true), ("m", 999, .online, nil, false, true),
        ] as [(String, Int64?, PresenceMessage.State, ConnectionMark?, Bool, Bool)])
    func `another device decides`(
        device: String, since: Int64?, state: PresenceMessage.State, mark: ConnectionMark?, isDisplaced: Bool,
        isYielded: Bool
    ) {
        let seen = [Self.message("m", 1000), Self.message(device, since, state, connection: mark)]
        let displaced = PresenceLook.verdict(.forNewer, seen: seen, own: Self.own)
        #expect(displaced?.code == (isDisplaced ? .displaced : nil))
        let yielded = PresenceLook.verdict(.forAny, seen: seen, own: Self.own)
        #expect(yielded?.code == (isYielded ? .yielded : nil))
    }

    @Test func `a session does not yield to a connection that it has displaced`() {
        var own = Self.own
        func yields(_ connection: ConnectionMark?) -> Bool {
            let seen = [Self.message("a", 999, connection: connection)]
            return PresenceLook.verdict(.forAny, seen: seen, own: own) != nil
        }
        let (before, other, later) = (Self.mark("twin", 3), Self.mark("other", 3), Self.mark("twin", 4))
        for mark in [before, other] { own.noteSeen(Self.message("a", 999, connection: mark)) }
        #expect(yields(before), "a look found it")
        for mark in [before, other] { own.noteSeen(Self.message("a", 999, connection: mark), isConnected: true) }
        #expect(!yields(before))
        #expect(yields(other), "two client identifiers may be connected at once")
        #expect(yields(later) && yields(nil))
    }

    @Test func `only a limited number of seen connections is remembered`() {
        var own = Self.own
        for number in 10...200 { own.noteSeen(Self.message("a", 1, connection: Self.mark("twin", Int64(number)))) }
        #expect(own.isRivalUnseen(Self.message("a", 1, connection: Self.mark("twin", 10))))
        #expect(!own.isRivalUnseen(Self.message("a", 1, connection: Self.mark("twin", 200))))
    }

    @Test func `presence published before the clock was set back is recognized as our own`() {
        var own = OwnPresence(
            identity: .init(user: "twin", device: "m"), session: "main", willDelay: .seconds(90),
            since: Timestamp(rawValue: 5000))
        own.willConnect(as: Self.mark("twin", 1))
        func tell(_ milliseconds: Int64) {
            own.begin(at: Timestamp(rawValue: milliseconds))
            _ = own.connected(resumed: false, at: .init(nanoseconds: 0), time: Timestamp(rawValue: milliseconds))
        }
        _ = own.connected(resumed: false, at: .init(nanoseconds: 0), time: Timestamp(rawValue: 5000))
        tell(4000)
        // Later than both, and then the clock is set back behind all of them.
        tell(6000)
        tell(1000)
        func reasons(_ since: Int64, session: String = "main") -> [Reason?] {
            [Look.forNewer, .forAny].map {
                PresenceLook.verdict(
                    $0, seen: [Self.message("m", since, session: session, connection: Self.mark("twin", 2))], own: own)
            }
        }
        for since in [6000, 5000, 4000, 1000] as [Int64] { #expect(reasons(since) == [nil, nil], "\(since)") }
        // As far as it knows, this session never published that.
        #expect(reasons(4500).map { $0?.code } == [.displaced, nil])
        #expect(reasons(4000, session: "other").map { $0?.code } == [.displaced, nil])
    }

    @Test func `an empty room is no reason to stay away`() {
        #expect(PresenceLook.verdict(.forNewer, seen: [], own: Self.own) == nil)
        #expect(PresenceLook.verdict(.forAny, seen: [Self.message("m", 1000)], own: Self.own) == nil)
    }

    // MARK: What follows

    private static let now = Instant(nanoseconds: 1_000_000_000)

    private static func attempt(afterSuddenClose followsSuddenClose: Bool = false) -> Attempt {
        Attempt(
            generation: Generation(rawValue: 1), endpoint: EndpointIndex(0), number: 1, discardsSession: false,
            followsSuddenClose: followsSuddenClose)
    }

    private func look(_ purpose: PresenceLook.Purpose) -> PresenceLook {
        PresenceLook(
            for: purpose, room: RoomTopicsTests.room, user: "twin", clientID: "twin", credentials: MQTTCredentials(),
            maximumPacketSize: 1 << 20)
    }

    @Test func `an attempt goes on when no other device is in the room`() {
        let (look, seen) = (look(.attempt(Self.attempt(), .forAny)), [Self.message("m", 1000)])
        let conclusion = look.conclusion(from: seen, own: Self.own)
        #expect(conclusion == .proceed(Self.attempt()))
        #expect(
            look.mustClear(seen, own: Self.own, after: conclusion) == [], "the session is about to publish it again")
    }

    @Test func `a session that must not connect clears its own presence`() {
        let look = look(.attempt(Self.attempt(), .forAny))
        let seen = [Self.message("m", 1000), Self.message("a", 1)]
        let conclusion = look.conclusion(from: seen, own: Self.own)
        guard case .stayAway(Self.attempt(), let reason) = conclusion else {
            Issue.record("\(conclusion)")
            return
        }
        #expect(reason.code == .yielded)
        #expect(look.mustClear(seen, own: Self.own, after: conclusion) == [Self.own.identity])
        #expect(
            look.mustClear([Self.message("a", 1)], own: Self.own, after: conclusion) == [],
            "another device's presence stays"
        )
    }

    @Test func `a look after a sudden close is repeated, and a taken identity displaces instead of yielding`() {
        let attempt = Self.attempt(afterSuddenClose: true)
        let first = look(.attempt(attempt, .forAny))
        #expect(first.conclusion(from: [], own: Self.own) == .lookAgain)
        var second = first.again(at: Self.now)
        #expect(second.deadline == Self.now.advanced(by: .seconds(1)))
        #expect(second.timeReached(at: Self.now) == nil)
        #expect(second.timeReached(at: Self.now.advanced(by: .seconds(1))) == .dial)
        #expect(second.conclusion(from: [], own: Self.own) == .proceed(attempt))
        let taken = [Self.message("a", 1, connection: Self.mark("twin", 3))]
        guard case .stayAway(_, let reason) = first.conclusion(from: taken, own: Self.own) else {
            Issue.record("the session must not connect")
            return
        }
        #expect(reason.code == .displaced)
    }

    @Test func `a farewell clears only the session's own presence`() {
        let look = look(.farewell)
        #expect(look.conclusion(from: [], own: Self.own) == .done)
        #expect(look.mustClear([Self.message("m", 1000)], own: Self.own, after: .done) == [Self.own.identity])
        #expect(look.mustClear([Self.message("a", 1)], own: Self.own, after: .done) == [])
    }

    @Test func `a server that does not answer is waited for until the deadline only`() {
        var look = look(.farewell)
        look.connection = DialID(rawValue: 1)
        #expect(look.timeReached(at: Self.now) == nil)
        _ = look.opened(answeredWithin: .seconds(5), at: Self.now)
        #expect(look.isOpen && look.deadline == Self.now.advanced(by: .seconds(5)))
        #expect(look.timeReached(at: Self.now.advanced(by: .seconds(5))) == .end)
        #expect(look.deadline == nil)
    }

    // MARK: The exchange

    private func look(_ version: ProtocolVersion = .five) -> PresenceLook {
        PresenceLook(
            for: .farewell, room: RoomTopicsTests.room, user: "twin", clientID: "twin", credentials: MQTTCredentials(),
            maximumPacketSize: 1 << 20, version: version)
    }

    private var suback: Packet { .suback(Suback(packetID: id(1), reasonCodes: [.success])) }

    private func id(_ value: UInt16) -> PacketID {
        guard let id = PacketID(rawValue: value) else { preconditionFailure("a test uses identifier 0") }
        return id
    }

    private func presence(_ topic: String) -> Packet {
        .publish(Publish(topic: topic, payload: ByteBuffer(bytes: Self.message("a", 1).bytes), retain: true))
    }

    @Test func `a server without wildcards is not sent a filter with one`() {
        var look = look()
        var output = ByteBuffer()
        var connack = Connack()
        connack.properties.wildcardSubscriptionAvailable = false
        #expect(
            look.received(encoded(.connack(connack)), into: &output)
                == .impossible("the server does not support wildcard subscriptions"))
        #expect(output.readableBytes == 0)
    }

    @Test func `a server with endless presences is not read to their end`() {
        var look = look()
        var output = ByteBuffer()
        #expect(look.received(encoded(.connack(Connack()), suback), into: &output) == .unfinished)
        var outcome = PresenceLook.Outcome.unfinished
        var count = 0
        while outcome == .unfinished, count < 100_000 {
            count += 1
            let message = presence("holdfast/rooms/plant/north/presence/twin/d\(count)")
            outcome = look.received(encoded(message), into: &output)
        }
        #expect(outcome == .impossible("the user has more than 1000 presences in the room"))
        #expect(count == 1001)
    }

    @Test func `a presence is kept without texts that no session writes`() {
        let name = String(repeating: "s", count: 10_000)
        let message = Self.message("a", 1, session: name)
        #expect(PresenceMessage(message.bytes, of: message.identity)?.session == "")
    }

    /// [MQTT-3.2.2-4]
    @Test func `a server that claims a session after Clean Start makes the look impossible`() {
        var look = look()
        var output = ByteBuffer()
        #expect(
            look.received(encoded(.connack(Connack(sessionPresent: true))), into: &output)
                == .impossible("the server claims a session after Clean Start"))
        #expect(output.readableBytes == 0)
    }

    /// [MQTT-3.2.2-15]
    @Test(arguments: UInt32(2)...60)
    func `no packet is larger than the server takes`(limit: UInt32) throws {
        var look = look()
        var output = ByteBuffer()
        let connack = Connack(properties: Connack.Properties(maximumPacketSize: limit))
        _ = look.received(encoded(.connack(connack), suback), into: &output)
        var farewell = look.farewell(clearing: [Self.ownTopic])
        output.writeBuffer(&farewell)
        var decoder = PeerDecoder(maximumPacketSize: Int(limit))
        decoder.append(output)
        var kinds: [Packet.Kind] = []
        while let packet = try decoder.next() { kinds.append(packet.kind) }
        #expect(kinds.last == .disconnect)
    }

    /// [MQTT-2.2.1-6] [MQTT-4.5.0-2]
    @Test func `an unexpected packet ends the look before it would have to be answered`() {
        for packet: Packet in [
            .publish(Publish(topic: "a", qos: .atLeastOnce, packetID: id(1))),
            .suback(Suback(packetID: id(2), reasonCodes: [.success])), .connack(Connack()),
        ] {
            var look = look()
            var output = ByteBuffer()
            #expect(look.received(encoded(.connack(Connack())), into: &output) == .unfinished)
            #expect(
                look.received(encoded(packet), into: &output)
                    == .impossible("the server sent \(packet.kind) out of turn")
            )
        }
    }

    /// [MQTT-3.1.3-4]
    @Test(arguments: [(65_530, true), (65_531, false), (65_535, false)])
    func `a look's client identifier extends the session's if the length allows`(length: Int, hasRoom: Bool) throws {
        let name = String(repeating: "n", count: length)
        var look = PresenceLook(
            for: .farewell, room: RoomTopicsTests.room, user: "twin", clientID: name, credentials: MQTTCredentials(),
            maximumPacketSize: 1 << 20)
        var decoder = PeerDecoder()
        decoder.append(look.opened(answeredWithin: .seconds(5), at: Self.now))
        guard case .connect(let connect)? = try decoder.next() else {
            Issue.record("no CONNECT")
            return
        }
        #expect(connect.clientID == (hasRoom ? "\(name)-look" : ""))
        #expect(connect.cleanStart)
    }

    @Test(arguments: ProtocolVersion.allCases)
    func `a look reads the presence of this user only`(_ version: ProtocolVersion) {
        var look = look(version)
        var output = ByteBuffer()
        #expect(look.received(encoded(.connack(Connack()), in: version), into: &output) == .unfinished)
        let base = RoomTopicsTests.room.base
        let outcome = look.received(
            encoded(
                suback, presence("\(base)presence/twin/a"), presence("\(base)presence/other/a"),
                presence("\(base)chat"), in: version),
            into: &output)
        #expect(outcome == .unfinished)
        #expect(look.received(encoded(.pingresp, in: version), into: &output) == .seen([Self.message("a", 1)]))
        var decoder = PeerDecoder(version: version)
        decoder.append(output)
        guard case .subscribe(let subscribe)? = try? decoder.next(), case .pingreq? = try? decoder.next() else {
            Issue.record("the exchange is SUBSCRIBE, PINGREQ")
            return
        }
        #expect(subscribe.subscriptions.map(\.filter) == ["\(base)presence/twin/+"])
    }

    @Test(arguments: [nil, true, false])
    func `a look clears our presence if the server takes retained messages`(isAvailable: Bool?) {
        var look = look()
        var output = ByteBuffer()
        var connack = Connack()
        connack.properties.retainAvailable = isAvailable
        _ = look.received(encoded(.connack(connack), suback, .pingresp), into: &output)
        var decoder = PeerDecoder()
        decoder.append(look.farewell(clearing: [Self.ownTopic]))
        let clear = Packet.publish(Publish(topic: Self.ownTopic, retain: true))
        #expect((try? decoder.next()) == (isAvailable == false ? .disconnect(Disconnect()) : clear))
    }

    @Test func `a look connects as another client that leaves nothing behind`() {
        var decoder = PeerDecoder()
        var look = look()
        decoder.append(look.opened(answeredWithin: .seconds(1), at: Self.now))
        guard case .connect(let connect)? = try? decoder.next() else {
            Issue.record("no CONNECT")
            return
        }
        #expect(connect.clientID == "twin-look")
        #expect(connect.cleanStart && connect.will == nil && connect.properties.sessionExpiryInterval == nil)
    }

    @Test func `a look is impossible when the server refuses or sends nonsense`() {
        for packets in [
            encoded(.connack(Connack(reasonCode: .notAuthorized))), encoded(.pingresp),
            encoded(.connack(Connack()), .suback(Suback(packetID: id(1), reasonCodes: [.notAuthorized]))),
            encoded(.connack(Connack()), .disconnect(Disconnect(reasonCode: .serverBusy))), ByteBuffer(bytes: [0, 0]),
        ] {
            var look = look()
            var output = ByteBuffer()
            guard case .impossible = look.received(packets, into: &output) else {
                Issue.record("\(packets)")
                continue
            }
            #expect(look.received(encoded(.connack(Connack())), into: &output) == .unfinished, "the look is over")
        }
    }
}
