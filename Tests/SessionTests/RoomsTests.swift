import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Testing

@testable import Session

/// A session's ways into a room, out of it, and from one to another, in virtual time.
@Suite struct RoomsTests {
    private static let plant = Room(prefix: "p", name: "plant")
    private static let hall = Room(prefix: "p", name: "hall")
    private static let topic = "p/plant/presence/me/here"
    private static let hallTopic = "p/hall/presence/me/here"
    private static let call = CallID(rawValue: 1)

    private var rooms = Rooms(
        identity: .init(user: "me", device: "here"), session: "main", willDelay: .seconds(90))

    private static func at(_ seconds: Int64) -> Instant { Instant(nanoseconds: seconds * 1_000_000_000) }
    private static func time(_ seconds: Int64) -> Timestamp { Timestamp(rawValue: seconds * 1000) }
    private static func mark(_ number: Int64) -> ConnectionMark {
        ConnectionMark(clientID: "c", time: time(number), random: 0)
    }

    private func online(_ topic: String) -> Rooms.Action? {
        rooms.membership.map { .announce(Announcement(topic: topic, payload: $0.online.payload)) }
    }

    /// From CONNACK to the server's answer to our presence.
    private mutating func connect(resumed: Bool = false, to server: String = "a", at second: Int64) -> [Rooms.Action] {
        rooms.willConnect(as: Self.mark(second), isFirst: second == 0, at: Self.time(second))
        var actions = rooms.connected(
            to: server, resumed: resumed, isWillDelayed: true, at: Self.at(second), time: Self.time(second))
        actions += rooms.subscriptionsRestored()
        guard rooms.isAnnouncing, let online = rooms.membership?.online else { return actions }
        return actions + rooms.announced(online, .success, by: server, at: Self.at(second))
    }

    /// A first connection, until our presence is on its way.
    private mutating func announce() {
        rooms.begin(in: Self.plant, subscribedTo: [], at: Self.time(0))
        rooms.willConnect(as: Self.mark(0), isFirst: true, at: Self.time(0))
        _ = rooms.connected(to: "a", resumed: false, isWillDelayed: true, at: Self.at(0), time: Self.time(0))
        _ = rooms.subscriptionsRestored()
    }

    private mutating func enter() {
        rooms.begin(in: Self.plant, subscribedTo: [], at: Self.time(0))
        _ = connect(at: 0)
        _ = rooms.membership.map { rooms.received(.init($0.online)) }
    }

    @Test mutating func `presence is announced after the subscriptions, and then the session is restored`() {
        rooms.begin(in: Self.plant, subscribedTo: [], at: Self.time(0))
        rooms.willConnect(as: Self.mark(0), isFirst: true, at: Self.time(0))
        let actions = rooms.connected(
            to: "a", resumed: false, isWillDelayed: true, at: Self.at(0), time: Self.time(0))
        #expect(actions == [.remember([Self.time(0)]), .rememberTopics([Self.topic])], "before it is published")
        #expect(rooms.subscriptionsRestored() == [online(Self.topic)])
        #expect(rooms.isAnnouncing)
        let answered = rooms.membership.map {
            rooms.announced($0.online, .success, by: "a", at: Self.at(1))
        }
        #expect(answered == [.restored])
        #expect(!rooms.isAnnouncing)
    }

    @Test(arguments: [true, false])
    mutating func `a subscription to the room that is refused first and granted later gives the list of participants`(
        wasKnown: Bool
    ) throws {
        if wasKnown { enter() } else { rooms.begin(in: Self.plant, subscribedTo: [], at: Self.time(0)) }
        _ = rooms.connectionClosed()
        let filter = try #require(rooms.membership?.filter)
        #expect(rooms.subscribed(filter, .notAuthorized) == [])
        _ = connect(resumed: wasKnown, at: 10)
        #expect(rooms.membership?.participants.isKnown == false, "what changes is not heard")
        #expect(rooms.subscribed(filter, .grantedQoS1) == [online(Self.topic)])
        #expect(rooms.subscribed(filter, .grantedQoS1) == [], "once is enough")
        _ = rooms.membership.map { rooms.received(.init($0.online)) }
        #expect(rooms.membership?.participants.isKnown == true)
    }

    @Test mutating func `a refused presence is reported, and the session is still restored`() {
        announce()
        let answered = rooms.membership.map {
            rooms.announced($0.online, .notAuthorized, by: "a", at: Self.at(1))
        }
        #expect(answered == [.presenceRefused(.notAuthorized), .tell([]), .rememberTopics([]), .restored])
        #expect(rooms.membership?.refusal == "not authorized (0x87)")
        #expect(rooms.leave() == [], "there is nothing to clear")
        #expect(!rooms.isLeaving)
    }

    @Test mutating func `a presence that the session does not send is not there`() throws {
        announce()
        let answer = ServerAnswer.notAsked("the session does not send it, because the server does not retain messages")
        let online = try #require(rooms.membership?.online)
        let answered = rooms.announced(online, answer, by: "a", at: Self.at(1))
        #expect(answered == [.presenceRefused(answer), .tell([]), .rememberTopics([]), .restored])
        #expect(rooms.membership?.refusal == answer.words)
        #expect(rooms.leave() == [], "there is nothing to clear")
    }

    @Test mutating func `a presence that is accepted after an earlier one was refused is cleared by a leave`() throws {
        announce()
        // Both are on their way when the first answer comes.
        let online = try #require(rooms.membership?.online)
        _ = rooms.announced(online, .notAuthorized, by: "a", at: Self.at(1))
        #expect(rooms.announced(online, .success, by: "a", at: Self.at(1)) == [.rememberTopics([Self.topic])])
        #expect(rooms.leave() == [.announce(Announcement(topic: Self.topic))])
    }

    @Test mutating func `a presence that was refused is cleared once the server may have it`() throws {
        announce()
        let online = try #require(rooms.membership?.online)
        _ = rooms.announced(online, .notAuthorized, by: "a", at: Self.at(1))
        #expect(rooms.qualityChanged(.poor, isConnected: true) == [], "it is announced again later")
        #expect(rooms.announceRefused(at: Self.at(2)) == [])
        #expect(rooms.announceRefused(at: Self.at(700)).first == .rememberTopics([Self.topic]))
        _ = rooms.connectionClosed()
        #expect(rooms.leave() == [.announce(Announcement(topic: Self.topic))], "the answer was not seen")
    }

    @Test mutating func `presence in a room from before a crash is cleared`() throws {
        rooms.begin(
            in: Self.plant,
            subscribedTo: [try TopicFilter(Self.plant.presenceFilter), try TopicFilter(Self.hall.presenceFilter)],
            at: Self.time(0))
        let clearing = Announcement(topic: Self.hallTopic)
        #expect(connect(at: 0).first == .announce(clearing))
        _ = rooms.announced(clearing, .success, by: "a", at: Self.at(1))
        _ = rooms.connectionClosed()
        #expect(connect(at: 2).contains(.announce(clearing)) == false, "the room is cleared once")
    }

    @Test mutating func `presence in a room that was left at another server is cleared on the return`() {
        enter()
        _ = rooms.connectionClosed()
        rooms.returned(to: [Self.topic, Self.hallTopic])
        let clearing = Announcement(topic: Self.hallTopic)
        let actions = connect(resumed: true, at: 2)
        #expect(actions.first == .announce(clearing))
        #expect(actions.contains(.rememberTopics([Self.topic, Self.hallTopic])))
        #expect(rooms.announced(clearing, .success, by: "a", at: Self.at(3)) == [.rememberTopics([Self.topic])])
    }

    /// What the rooms of a later daemon, with another configuration, do when they connect.
    private static func restarted(
        _ user: String, _ device: String, in room: Room?, topics: Set<String>
    ) -> (rooms: Rooms, actions: [Rooms.Action]) {
        var rooms = Rooms(
            identity: .init(user: user, device: device), session: "main", willDelay: .seconds(90),
            remembered: [time(0)], topics: topics)
        rooms.begin(in: room, subscribedTo: [], at: time(9))
        rooms.willConnect(as: mark(9), isFirst: true, at: time(9))
        let actions = rooms.connected(to: "a", resumed: true, isWillDelayed: true, at: at(9), time: time(9))
        return (rooms, actions)
    }

    @Test(arguments: [
        ("me", "other", plant), ("you", "here", plant), ("you", "other", hall), ("me", "here", hall),
        ("me", "here", Room(prefix: "q", name: "plant")), ("you", "other", nil),
    ])
    func `presence under an earlier name is cleared, whatever the name was made of`(
        user: String, device: String, room: Room?
    ) {
        var (rooms, actions) = Self.restarted(user, device, in: room, topics: [Self.topic])
        let old = Announcement(topic: Self.topic)
        #expect(actions.first == .announce(old))
        let own = rooms.membership?.topic
        #expect(actions.contains(.rememberTopics(Set([Self.topic, own].compactMap(\.self)))) == (own != nil))
        // A server that refuses would refuse again, and is not asked again.
        #expect(
            rooms.announced(old, .notAuthorized, by: "a", at: Self.at(9)) == [
                .presenceKept(Self.topic, .notAuthorized),
                .rememberTopics(Set([own].compactMap(\.self))),
            ])
        _ = rooms.connectionClosed()
        let again = rooms.connected(
            to: "a", resumed: true, isWillDelayed: true, at: Self.at(10), time: Self.time(10))
        #expect(!again.contains(.announce(old)))
    }

    @Test func `presence that a server is not asked to clear is cleared at the next one that is asked`() {
        var (rooms, _) = Self.restarted("you", "here", in: Self.plant, topics: [Self.topic])
        let old = Announcement(topic: Self.topic)
        let answer = ServerAnswer.notAsked("the session does not send it, because the server does not retain messages")
        #expect(rooms.announced(old, answer, by: "b", at: Self.at(9)) == [.presenceKept(Self.topic, answer)])
        #expect(rooms.topics.contains(Self.topic))
        _ = rooms.connectionClosed()
        let again = rooms.connected(
            to: "a", resumed: true, isWillDelayed: true, at: Self.at(10), time: Self.time(10))
        #expect(again.first == .announce(old))
        _ = rooms.announced(old, .success, by: "a", at: Self.at(10))
        #expect(!rooms.topics.contains(Self.topic))
    }

    @Test func `presence under the same name is not cleared`() {
        let (rooms, actions) = Self.restarted("me", "here", in: Self.plant, topics: [Self.topic])
        #expect(!actions.contains(.announce(Announcement(topic: Self.topic))))
        #expect(rooms.membership?.presence.former == [])
    }

    @Test func `presence under an earlier name is no other device, and a session that stays away clears it`() {
        let (rooms, _) = Self.restarted("me", "other", in: Self.plant, topics: [Self.topic])
        let old = PresenceMessage(
            identity: .init(user: "me", device: "here"), state: .online, since: Self.time(0), session: "main",
            connection: Self.mark(3))
        let own = rooms.membership?.presence
        #expect(own?.wasOwn(old) == true)
        #expect(own?.isRivalUnseen(old) == false)
        #expect(own.flatMap { PresenceLook.verdict(.forAny, seen: [old], own: $0) } == nil)
        var twin = old
        twin.since = Self.time(4)
        #expect(own?.wasOwn(twin) == false)
    }

    @Test mutating func `a presence that was cleared by a leave is forgotten`() {
        enter()
        _ = rooms.leave()
        let cleared = Announcement(topic: Self.topic)
        #expect(
            rooms.announced(cleared, .notAuthorized, by: "a", at: Self.at(1))
                == [.presenceKept(Self.topic, .notAuthorized)], "others still see it")
        #expect(rooms.announced(cleared, .success, by: "a", at: Self.at(1)) == [.rememberTopics([])])
    }

    @Test mutating func `a short outage ends without waiting for the room at a server that knows the presence`() {
        enter()
        #expect(rooms.connectionClosed() == [])
        let actions = connect(resumed: true, at: 5)
        #expect(actions == [online(Self.topic)], "the participants are known, the mark is new")
        _ = rooms.connectionClosed()
        _ = connect(resumed: true, to: "b", at: 10)
        #expect(rooms.membership?.step == .done)
    }

    /// A presence of the same user that comes from a connection with this client identifier.
    private func presence(of device: String, clientID: String = "c", retain: Bool) -> MQTTClientMachine.InboundMessage {
        let message = PresenceMessage(
            identity: .init(user: "me", device: device), state: .online, since: Self.time(0), session: "main",
            connection: ConnectionMark(clientID: clientID, time: Self.time(9), random: 1))
        return .init(
            Announcement(topic: "p/plant/presence/me/\(device)", payload: ByteBuffer(bytes: message.bytes)),
            retain: retain)
    }

    @Test mutating func `what a displaced device has left in the room is cleared`() {
        enter()
        let clearing = Rooms.Action.announce(Announcement(topic: "p/plant/presence/me/there"))
        #expect(rooms.received(presence(of: "there", retain: true)).contains(clearing))
        #expect(!rooms.received(presence(of: "there", retain: false)).contains(clearing), "it came after this session")
        let other = presence(of: "there", clientID: "d", retain: true)
        #expect(!rooms.received(other).contains(clearing), "it may be connected")
        let own = Rooms.Action.announce(Announcement(topic: Self.topic))
        #expect(!rooms.received(presence(of: "here", retain: true)).contains(own), "it is announced again")
    }

    @Test mutating func `what a displaced device has left in the room that is being joined is cleared as well`() {
        enter()
        _ = rooms.join(Self.hall, for: Self.call, at: Self.time(9))
        let topic = Self.hall.presenceTopic(of: .init(user: "me", device: "there"))
        var message = presence(of: "there", retain: true)
        message.topic = topic
        #expect(rooms.received(message) == [.announce(Announcement(topic: topic))])
        message.topic = Self.hall.presenceTopic(of: .init(user: "you", device: "there"))
        #expect(rooms.received(message) == [])
    }

    @Test mutating func `the presences that a session clears on a connection are few`() {
        enter()
        let cleared = (1...20).filter { number in
            rooms.received(presence(of: "d\(number)", retain: true)).contains {
                if case .announce = $0 { true } else { false }
            }
        }
        #expect(cleared.count == RoomMembership.mostClearings)
    }

    @Test mutating func `the old room is left once the new one has accepted the presence`() throws {
        enter()
        let filter = try TopicFilter(Self.hall.presenceFilter)
        #expect(rooms.join(Self.hall, for: Self.call, at: Self.time(9)).last == .subscribe(filter))
        #expect(rooms.isChanging)
        #expect(rooms.wants(filter))
        guard case .announce(let joining)? = rooms.subscribed(filter, .success).last else {
            Issue.record("no presence in the new room")
            return
        }
        #expect(joining.topic == Self.hallTopic)
        let content = PresenceMessage(joining.payload.readableBytesView, of: .init(user: "me", device: "here"))
        #expect(content?.connection == Self.mark(0), "it is on the same connection")
        #expect(rooms.subscribed(filter, .success) == [], "once")
        #expect(rooms.nextWill?.topic == Self.topic)
        #expect(rooms.announced(joining, .success, by: "a", at: Self.at(10)) == [.renew])
        #expect(rooms.membership?.room == Self.plant, "the server has not seen the will for the new room yet")
        #expect(rooms.nextWill?.topic == Self.hallTopic)
        #expect(rooms.connectionClosed() == [])
        #expect(rooms.isChanging)
        let left = Announcement(topic: Self.topic)
        let actions = connect(resumed: true, at: 11)
        #expect(
            actions == [
                .unsubscribe(try TopicFilter(Self.plant.presenceFilter)), .entered(Self.hall, from: Self.plant),
                .answer(Self.call, nil), .announce(left), online(Self.hallTopic),
            ])
        #expect(rooms.membership?.room == Self.hall)
        #expect(rooms.membership?.participants.isKnown == true, "who is there was said before the answer")
        #expect(!rooms.isChanging)
        #expect(rooms.topics == [Self.topic, Self.hallTopic], "a crash now must not leave anything in the old room")
        #expect(rooms.announced(left, .success, by: "a", at: Self.at(12)) == [.rememberTopics([Self.hallTopic])])
    }

    /// Up to the attempt that gives the server the will for the room `hall`.
    private mutating func renew() throws {
        enter()
        let filter = try TopicFilter(Self.hall.presenceFilter)
        _ = rooms.join(Self.hall, for: Self.call, at: Self.time(9))
        guard case .announce(let joining)? = rooms.subscribed(filter, .success).last else { return }
        _ = rooms.announced(joining, .success, by: "a", at: Self.at(10))
        _ = rooms.connectionClosed()
        rooms.willConnect(as: Self.mark(11), isFirst: false, at: Self.time(11))
    }

    @Test(arguments: [ServerAnswer.notAuthorized, nil])
    mutating func `a room is not entered without its will, and what was published there is cleared`(
        refusal: ServerAnswer?
    ) throws {
        try renew()
        let actions = refusal.map { rooms.renewalRefused($0) } ?? rooms.renewalFailed()
        guard case .answer(Self.call, let error?)? = actions.last else {
            Issue.record("the call is not answered")
            return
        }
        #expect(error.data?.reasonCode == refusal?.code.map { Int($0.rawValue) })
        let words = error.message + " " + (error.data?.hint ?? "")
        #expect(words.contains("it stays in"))
        #expect(rooms.nextWill?.topic == Self.topic)
        _ = rooms.connectionClosed()
        let cleared = Announcement(topic: Self.hallTopic)
        #expect(connect(resumed: true, at: 12) == [.announce(cleared), online(Self.topic)])
        #expect(rooms.announced(cleared, .success, by: "a", at: Self.at(13)) == [.rememberTopics([Self.topic])])
        #expect(rooms.membership?.room == Self.plant && !rooms.isChanging)
    }

    @Test mutating func `a room that refuses is not entered`() throws {
        enter()
        let filter = try TopicFilter(Self.hall.presenceFilter)
        _ = rooms.join(Self.hall, for: Self.call, at: Self.time(9))
        let actions = rooms.subscribed(filter, .notAuthorized)
        #expect(actions.contains(.unsubscribe(filter)))
        guard case .answer(Self.call, let error?)? = actions.last else {
            Issue.record("the call is not answered")
            return
        }
        #expect(error.message.hasSuffix("it stays in plant"))
        #expect(rooms.membership?.room == Self.plant && !rooms.isChanging)
    }

    @Test mutating func `where a presence was refused, nothing has to be cleared, and another room can be entered`()
        throws
    {
        enter()
        let filter = try TopicFilter(Self.hall.presenceFilter)
        func join(_ answer: ServerAnswer) -> [Rooms.Action] {
            _ = rooms.join(Self.hall, for: Self.call, at: Self.time(9))
            guard case .announce(let joining)? = rooms.subscribed(filter, .success).last else { return [] }
            return rooms.announced(joining, answer, by: "a", at: Self.at(10))
        }
        let refused = join(.notAuthorized)
        #expect(refused.contains(.unsubscribe(filter)))
        #expect(!refused.contains(.announce(Announcement(topic: Self.hallTopic))))
        #expect(refused.last == .rememberTopics([Self.topic]))
        #expect(rooms.membership?.room == Self.plant && !rooms.isChanging)
        #expect(join(.success) == [.renew])
    }

    @Test mutating func `a second switch of rooms is refused until the first is finished`() {
        enter()
        _ = rooms.join(Self.hall, for: Self.call, at: Self.time(9))
        let second = CallID(rawValue: 99)
        guard case .answer(second, let error?)? = rooms.join(Self.plant, for: second, at: Self.time(9)).first else {
            Issue.record("the second call is not refused")
            return
        }
        #expect(error.code == RPCError.tooManyRequests("").code)
        #expect(rooms.isChanging)
    }

    @Test mutating func `a connection lost while joining a room clears the new room's presence`() throws {
        enter()
        let filter = try TopicFilter(Self.hall.presenceFilter)
        _ = rooms.join(Self.hall, for: Self.call, at: Self.time(9))
        _ = rooms.subscribed(filter, .success)
        let actions = rooms.connectionClosed()
        #expect(actions.contains(.announce(Announcement(topic: Self.hallTopic))))
        #expect(connect(resumed: true, at: 12).first == .announce(Announcement(topic: Self.hallTopic)))
    }

    @Test mutating func `a leave clears the presence`() {
        enter()
        #expect(rooms.leave() == [.announce(Announcement(topic: Self.topic))])
        #expect(rooms.isLeaving)
        _ = rooms.announced(Announcement(topic: Self.topic), .success, by: "a", at: Self.at(1))
        #expect(!rooms.isLeaving)
    }

    @Test mutating func `quality is announced when it is known, and when it changes`() {
        enter()
        #expect(rooms.qualityChanged(.excellent, isConnected: true) == [online(Self.topic)])
        #expect(rooms.qualityChanged(.excellent, isConnected: true) == [])
        #expect(rooms.qualityChanged(.poor, isConnected: true) == [online(Self.topic)])
        #expect(rooms.qualityChanged(.poor, isConnected: true) == [])
        #expect(rooms.qualityChanged(.lost, isConnected: true) == [])
        #expect(rooms.qualityChanged(.good, isConnected: false) == [])
    }

    @Test mutating func `the quality is not announced while the server refuses the presence`() throws {
        enter()
        let online = try #require(rooms.membership?.online)
        _ = rooms.announced(online, .notAuthorized, by: "a", at: Self.at(1))
        #expect(rooms.qualityChanged(.good, isConnected: true) == [])
    }
}

extension MQTTClientMachine.InboundMessage {
    /// The server sends our own presence back.
    fileprivate init(_ announcement: Announcement, retain: Bool = false) {
        self.init(
            topic: announcement.topic, payload: announcement.payload, qos: .atLeastOnce, retain: retain,
            duplicate: false, properties: announcement.properties)
    }
}
