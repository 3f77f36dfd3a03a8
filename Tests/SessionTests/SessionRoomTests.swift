import ControlAPI
import MQTT
import NIOCore
import Testing

@testable import Session
@testable import SessionCore

/// A session in its room, and what it publishes there and elsewhere, one line per step.
struct SessionRoomTests {
    private let call = CallID(rawValue: 1)
    private let program = SubscriptionID(rawValue: "s")
    private static let topic = "p/plant/presence/me/here"
    private static let goodbye = ["send DISCONNECT", "close"]
    private let hall = Room(prefix: "p", name: "hall")

    /// A session that is connected, in the room `plant`.
    private func inRoom(_ publications: Publication...) throws -> SessionUnderTest {
        var session = try SessionUnderTest(room: "plant")
        for publication in publications { _ = session.take(.stored([.putPublication(publication)], isComplete: true)) }
        session.dials()
        _ = session.receives(.connack(Connack()))
        _ = try session.grants(.grantedQoS1)
        return session
    }

    private func publication(_ topic: String = "a", _ payload: String = "1") -> Publication {
        Publication(topic: topic, payload: ByteBuffer(string: payload), since: Timestamp(rawValue: 0))
    }

    // MARK: Presence

    @Test func `a refused presence is reported, and announced again after ten minutes`() throws {
        var session = try inRoom()
        #expect(try session.takes(.notAuthorized) == ["connected"])
        #expect(session.toldOf("presence") == ["presence refused 135"])
        var waited = 0
        var texts: [String] = []
        while !texts.contains("send PUBLISH \(Self.topic)"), waited < 1000 {
            texts = session.wait(1)
            waited += 1
            if texts.contains("send PINGREQ") { texts += session.receives(.pingresp) }
        }
        #expect((610...670).contains(waited))
    }

    @Test func `the others in the room are reported, and what they say is not given to programs as news`() throws {
        var session = try inRoom()
        #expect(try session.takes() == ["connected"])
        let other = PresenceMessage(
            identity: .init(user: "you", device: "there"), state: .online, since: Timestamp(rawValue: 0), session: "x")
        let packet = Publish(topic: "p/plant/presence/you/there", payload: ByteBuffer(bytes: other.bytes))
        _ = session.receives(own(session))
        _ = session.receives(.publish(packet))
        #expect(session.toldOf("participants") == ["participants 1"])
        #expect(session.session.rooms.membership?.participants.list.count == 2)
    }

    private func own(_ session: SessionUnderTest) -> Packet {
        .publish(Publish(topic: Self.topic, payload: session.published[Self.topic] ?? ByteBuffer()))
    }

    @Test func `a presence that somebody clears is announced again`() throws {
        var session = try inRoom()
        #expect(try session.takes() == ["connected"])
        _ = session.receives(own(session))
        #expect(session.receives(.publish(Publish(topic: Self.topic))) == ["send PUBLISH \(Self.topic)"])
    }

    @Test func `the room is told how good the connection is, while there is one`() throws {
        var session = try inRoom()
        #expect(try session.takes() == ["connected"])
        let generation = try #require(session.session.link?.generation)
        let poor = TCPMeasurement(roundTrip: .seconds(3), variation: .zero, retransmissions: 0)
        #expect(session.take(.measured(generation, poor)) == ["send PUBLISH \(Self.topic)"])
        #expect(session.toldOf("quality") == ["quality poor"])
    }

    @Test func `a session has been in its room since it was asked to connect, whatever outages there were`() throws {
        var session = try SessionUnderTest(room: "plant")
        _ = session.wait(10)
        session.dials()
        _ = session.receives(.connack(Connack()))
        _ = try session.grants(.grantedQoS1)
        #expect(session.session.rooms.membership?.presence.since == Timestamp(rawValue: 10_000))
        _ = try session.takes()
        var texts = session.take(.closed(Reason(.reset)))
        for _ in 0..<60 where !texts.contains("dial a.example") { texts = session.wait(1) }
        _ = session.opens()
        #expect(session.session.rooms.membership?.presence.since == Timestamp(rawValue: 10_000))
    }

    // MARK: Another room

    @Test func `relative filters and publications follow the session to another room`() throws {
        var session = try inRoom(publication("~/x"))
        #expect(try session.takes() == [], "the presence is answered")
        #expect(try session.takes() == ["connected"])
        let live = LiveConsumer(id: program, filter: try TopicFilter("p/plant/l"), qos: .atLeastOnce, relative: "~/l")
        _ = session.take(.consume(live, call))
        _ = try session.grants(.grantedQoS1)
        let name = try #require(ConsumerName("billing"))
        let filter = try TopicFilter("p/plant/d")
        _ = try session.session.attach(SubscriptionID(rawValue: "d"), to: name, "~/d", filter, .atLeastOnce)
        _ = session.take(.subscribe(filter, call))
        _ = try session.grants(.grantedQoS1)
        #expect(session.take(.join("hall", call)) == ["send SUBSCRIBE"])
        #expect(try session.grants(.grantedQoS1) == ["send PUBLISH p/hall/presence/me/here"])
        #expect(try session.takes() == ["abort", "dial a.example", "reconnecting"])
        #expect(session.opens() == ["send CONNECT"])
        let texts = session.receives(.connack(Connack(sessionPresent: true)))
        #expect(texts.filter { $0 == "in another room" || $0 == "joined" } == ["in another room", "joined"])
        #expect(texts.count { $0 == "send UNSUBSCRIBE" } == 3)
        #expect(texts.contains("send SUBSCRIBE"))
        #expect(texts.contains("send PUBLISH p/plant/presence/me/here, cleared"))
        #expect(session.session.publications["~/x"]?.topic == "p/hall/x")
        #expect(!session.session.publications.isSetUp, "the session is restored when it is published there")
        let wanted = Set(["p/hall/presence/+/+", "p/hall/l", "p/hall/d"])
        #expect(Set(session.session.wantedFilters.map(\.string)) == wanted)
        #expect(Set(session.session.mqtt.subscriptionStates.map(\.filter.string)) == wanted)
        #expect(session.session.machine.rivalry.canLook)
    }

    @Test func `live consumers follow the session to the room in which it starts again`() throws {
        var session = try SessionUnderTest(room: "plant") { $0.bootID = "boot" }
        let live = LiveConsumer(id: program, filter: try TopicFilter("p/plant/l"), qos: .atLeastOnce, relative: "~/l")
        _ = session.take(.consume(live, call))
        let chosen = ChosenRoom(room: "hall", configured: "plant", bootID: "boot")
        session.ask { $0.enterRoom(chosen, subscribedTo: []) }
        #expect(session.session.room == hall)
        #expect(session.session.consumers.filters == [try TopicFilter("p/hall/l")])
    }

    @Test func `what a look finds in the room is known from then on`() throws {
        var session = try inRoom()
        _ = try session.takes()
        #expect(session.session.state == .connected)
        let texts = session.take(.closed(Reason(.serverClosed)))
        _ = try session.waitsForDial(after: texts)
        #expect(session.session.looking != nil)
        #expect(session.opens() == ["send CONNECT c-look"])
        #expect(session.receives(.connack(Connack())) == ["send SUBSCRIBE"])
        let mark = ConnectionMark(clientID: "another", time: Timestamp(rawValue: 1), random: 1)
        let other = PresenceMessage(
            identity: .init(user: "me", device: "there"), state: .online, since: nil, session: "main", connection: mark)
        #expect(try session.grants(.success) == ["send PINGREQ"])
        _ = session.receives(
            .publish(
                Publish(
                    topic: "p/plant/presence/me/there", payload: ByteBuffer(bytes: other.bytes), qos: .atMostOnce,
                    retain: true)),
            .pingresp)
        var rival = other
        rival.connection = ConnectionMark(clientID: "c", time: Timestamp(rawValue: 1), random: 1)
        let presence = try #require(session.session.rooms.membership?.presence)
        #expect(presence.isRivalUnseen(rival))
        var own = presence
        own.willConnect(as: ConnectionMark(clientID: "another", time: Timestamp(rawValue: 2), random: 2))
        #expect(!own.isRivalUnseen(other), "it was there before")
    }

    @Test func `a session that was in no room can look for other devices once it is in one`() throws {
        var session = try SessionUnderTest().connected()
        #expect(!session.session.machine.rivalry.canLook)
        _ = session.take(.join("hall", call))
        _ = try session.grants(.grantedQoS1)
        _ = try session.takes()
        _ = session.opens()
        #expect(session.lastConnect?.will?.topic == "p/hall/presence/me/here")
        _ = session.receives(.connack(Connack(sessionPresent: true)))
        #expect(session.toldOf("left") == ["left no room"])
        #expect(session.remembered.contains(.setChosenRoom(ChosenRoom(room: "hall", configured: "", bootID: ""))))
        #expect(session.session.room == hall && session.session.machine.rivalry.canLook)
    }

    @Test func `a room whose name only looks like that of the present one is refused`() throws {
        var session = try SessionUnderTest(room: "caf\u{E9}").connected()
        _ = try session.grants(.grantedQoS1)
        #expect(try session.takes() == ["connected"])
        #expect(session.take(.join("cafe\u{301}", call)) == ["not joined"])
        #expect(session.take(.join("caf\u{E9}", call)) == ["joined"], "it is there already")
    }

    @Test func `the subscription to a room that refuses the session is not reported as one to be requested again`()
        throws
    {
        var session = try SessionUnderTest().connected()
        _ = session.take(.join("hall", call))
        #expect(try session.grants(.notAuthorized) == ["not joined"])
        #expect(session.toldOf("subscription changed") == [])
    }

    @Test func `a session is restored even if its presence waits for a message that is not answered`() throws {
        var session = try inRoom()
        session.answersPings = true
        _ = try session.session.accept(
            OutboundMessage(topic: "t", payload: ByteBuffer(), qos: .atLeastOnce), at: session.time)
        session.session.commitAccepted(at: session.time)
        _ = session.proceed()
        // The server answers neither, so the presence comes under suspicion: from then on, it goes out alone.
        var texts: [String] = []
        for _ in 1...3 { texts = try session.reconnects(after: texts) }
        #expect(session.session.state == .connected)
        #expect(!texts.contains { $0.hasPrefix("send PUBLISH p/") })
        #expect(session.wait(30).isEmpty, "the message has longer than restoring")
        #expect(session.session.state == .connected)
    }

    // MARK: Publications

    @Test func `a session is restored even if publications wait for messages sent one by one`() throws {
        var session = try SessionUnderTest().connected()
        for _ in 1...2 {
            let message = OutboundMessage(topic: "t", payload: ByteBuffer(), qos: .atLeastOnce)
            _ = try session.session.accept(message, at: session.time)
            session.session.commitAccepted(at: session.time)
        }
        #expect(session.proceed().count { $0 == "send PUBLISH t" } == 2)
        _ = session.receives(.disconnect(Disconnect(reasonCode: .packetTooLarge)))
        _ = session.take(.stored([.putPublication(publication())], isComplete: true))
        _ = try session.waitsForDial()
        _ = session.opens()
        let texts = session.receives(.connack(Connack(sessionPresent: true)))
        #expect(texts.contains("connected"))
        #expect(texts.filter { $0.hasPrefix("send PUBLISH") } == ["send PUBLISH t"])
        #expect(try session.takes().contains("send PUBLISH t"))
        #expect(try session.takes().contains("send PUBLISH a"))
    }

    @Test func `a session is restored even if a message that fills the server's window delays its presence`() throws {
        var session = try SessionUnderTest(room: "plant")
        let message = OutboundMessage(topic: "t", payload: ByteBuffer(), qos: .atLeastOnce)
        _ = try session.session.accept(message, at: session.time)
        session.session.commitAccepted(at: session.time)
        session.dials()
        let texts = session.receives(.connack(Connack(properties: .init(receiveMaximum: 1))))
        #expect(texts.contains("send PUBLISH t"))
        #expect(try session.grants(.grantedQoS1) == ["connected"])
        #expect(try session.takes() == ["send PUBLISH \(Self.topic)"])
    }

    @Test func `a session is restored when its publications are answered, too`() throws {
        var session = try inRoom(publication())
        #expect(session.session.publications.retained == ["a"])
        #expect(try session.takes() == [], "the presence is answered")
        #expect(session.session.state == .connecting)
        #expect(try session.takes() == ["connected"])
        #expect(session.toldOf("publication") == ["publication a published"])
    }

    @Test func `a topic that only looks like that of a publication is refused`() throws {
        var session = try SessionUnderTest()
        func put(_ topic: String) throws -> Publication {
            try session.session.publication(
                .init(session: "main", topic: topic, payload: MessagePayload(bytes: [1])))
        }
        let publication = try put("caf\u{E9}")
        session.session.arrive(publication)
        #expect(throws: RPCError.self, "it is on its way to the disk") { try put("cafe\u{301}") }
        _ = session.take(.stored([.putPublication(publication)], isComplete: true))
        #expect(throws: Never.self) { try put("caf\u{E9}") }
        #expect(throws: RPCError.self) { try put("cafe\u{301}") }
        // The server may still have it.
        _ = session.take(.stored([.rememberRetained("caf\u{E9}")], isComplete: true))
        _ = session.take(.stored([.removePublication("caf\u{E9}")], isComplete: true))
        #expect(throws: RPCError.self) { try put("cafe\u{301}") }
    }

    @Test(arguments: [true, false])
    func `a publication is there once the disk has it`(isComplete: Bool) throws {
        var session = try SessionUnderTest().connected()
        session.session.arrive(publication())
        let texts = session.take(.stored([.putPublication(publication())], isComplete: isComplete))
        #expect(texts == (isComplete ? ["send PUBLISH a"] : []))
        #expect((session.session.publications["a"] != nil) == isComplete)
    }

    @Test func `a publication that is removed is cleared at the server, and then forgotten`() throws {
        var session = try SessionUnderTest().connected()
        _ = session.take(.stored([.putPublication(publication())], isComplete: true))
        _ = try session.takes()
        #expect(session.take(.stored([.removePublication("a")], isComplete: true)) == ["send PUBLISH a, cleared"])
        _ = try session.takes()
        #expect(session.remembered == [.forgetRetained("a")])
        #expect(session.toldOf("publication") == ["publication a removed"])
    }

    @Test func `a publication that the server refuses is reported, and nothing of it has to be cleared`() throws {
        var session = try SessionUnderTest().connected()
        _ = session.take(.stored([.putPublication(publication())], isComplete: true))
        _ = try session.takes(.notAuthorized)
        #expect(session.toldOf("publication") == ["publication a is refused", "publication a refused"])
        #expect(session.remembered == [.forgetRetained("a")])
    }

    @Test(
        arguments: [
            (Reason.Code.userDisconnect, nil, true), (.shutdown, .leavingRoom, false), (.shutdown, .forGood, true),
        ] as [(Reason.Code, Session.Parting?, Bool)])
    func `a session clears its publications when it leaves, and not when the daemon ends`(
        code: Reason.Code, parting: Session.Parting?, isCleared: Bool
    ) throws {
        var session = try SessionUnderTest().connected()
        _ = session.take(.stored([.putPublication(publication())], isComplete: true))
        _ = try session.takes()
        let texts =
            parting.map { session.take(.stop(Reason(code), $0)) } ?? session.take(.disconnect(Reason(code)))
        #expect(texts == ["disconnecting"] + (isCleared ? ["send PUBLISH a, cleared"] : Self.goodbye))
        if isCleared { #expect(try session.takes() == Self.goodbye) }
    }

    @Test func `a publication that a server ends connections for is found, and is refused`() throws {
        var session = try SessionUnderTest().connected()
        _ = session.take(.stored([.putPublication(publication())], isComplete: true))
        _ = session.receives(.disconnect(Disconnect(reasonCode: .payloadFormatInvalid)))
        #expect(session.toldOf("publication") == ["publication a is refused"])
    }

    @Test func `publications wait while the message that a server ends connections for is searched`() throws {
        var session = try SessionUnderTest().connected()
        for number in 1...2 {
            let message = OutboundMessage(topic: "m\(number)", payload: ByteBuffer())
            _ = try session.session.accept(message, at: session.time)
            session.session.commitAccepted(at: session.time)
        }
        #expect(session.proceed() == ["send PUBLISH m1", "send PUBLISH m2"])
        var texts = session.receives(.disconnect(Disconnect(reasonCode: .payloadFormatInvalid)))
        for _ in 0..<60 where !texts.contains(where: { $0.hasPrefix("dial") }) { texts = session.wait(1) }
        _ = session.opens()
        #expect(session.receives(.connack(Connack(sessionPresent: true))) == ["send PUBLISH m1", "connected"])
        #expect(session.take(.stored([.putPublication(publication())], isComplete: true)) == [])
        #expect(try session.takes() == ["send PUBLISH m2"])
        #expect(try session.takes() == ["send PUBLISH a"])
    }

    // MARK: Use

    @Test func `a publication is a use of a session on demand`() throws {
        var session = try SessionUnderTest(idleTimeout: .seconds(1))
        let texts = session.take(.stored([.putPublication(publication())], isComplete: true))
        #expect(texts == ["dial a.example", "connecting"])
    }

    @Test func `a durable consumer is a use of a session on demand while a program is attached`() throws {
        var session = try SessionUnderTest(idleTimeout: .seconds(1))
        let (name, filter) = (try #require(ConsumerName("billing")), try TopicFilter("a"))
        _ = try session.session.attach(program, to: name, "a", filter, .atLeastOnce)
        #expect(session.proceed() == ["dial a.example", "connecting"])
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        _ = session.take(.subscribe(filter, call))
        _ = try session.grants(.grantedQoS1)
        #expect(session.session.state == .connected)
        #expect(session.wait(2) == [])
        _ = session.take(.detach(program))
        #expect(session.wait(2) == ["disconnecting"] + Self.goodbye)
    }

    // MARK: The verdict

    @Test func `an outage is remembered from the loss until the session is connected or rests`() throws {
        var session = try SessionUnderTest(idleTimeout: .seconds(3600)) { $0.bootID = "boot" }.connected()
        #expect(session.session.verdict?.state == "connected")
        session.answersPings = true
        _ = session.wait(100)
        _ = session.take(.closed(Reason(.refused)))
        let lost = try #require(session.session.verdict)
        #expect(lost.state == "lost" && lost.reasonCode == "refused" && lost.since == session.time)
        #expect(session.remembered == [.setVerdict(lost)])
        _ = try session.waitsForDial()
        _ = session.take(.closed(Reason(.refused)))
        #expect(session.session.verdict == lost && session.remembered == [], "it is the same outage")
        _ = session.take(.stop(Reason(.shutdown), .leavingRoom))
        #expect(session.session.verdict == lost, "it goes on while the daemon does not run")
        session = try SessionUnderTest(idleTimeout: .seconds(60), verdict: lost) { $0.bootID = "boot" }
        _ = session.wait(150)
        _ = session.ask {
            $0.start(StoredSession(mqtt: .init(), verdict: lost), wasUp: false, under: "")
        }
        #expect(session.proceed().contains("reconnecting"))
        #expect(session.session.machine.reason.code == .refused)
        #expect(session.session.machine.counters.outages == 1)
        #expect(session.session.machine.outage?.since.nanoseconds == lost.since.rawValue * 1_000_000)
        #expect(session.session.machine.outage?.countsFrom == session.session.now, "against giveUpAfter")
        _ = session.take(.closed(Reason(.refused)))
        _ = session.wait(100)
        #expect(session.session.machine.reason.code == .idle)
        #expect(session.session.verdict?.state == "connected", "one that rests is in no outage")
    }

    @Test func `a planned reconnect is an outage once it fails, and only in the same boot`() throws {
        var session = try SessionUnderTest { $0.bootID = "boot" }.connected()
        _ = session.take(.reconnect(nil))
        #expect(session.session.state == .reconnecting && session.session.verdict?.isLost == false)
        let began = session.time
        _ = session.wait(1)
        _ = session.take(.closed(Reason(.refused)))
        let lost = try #require(session.session.verdict)
        #expect(lost.state == "lost-after-start" && lost.since == began)
        var next = try SessionUnderTest(verdict: lost) { ($0.bootID, $0.autoconnects) = ("another", true) }
        _ = next.session.start(StoredSession(mqtt: .init(), verdict: lost), wasUp: false, under: "")
        #expect(next.proceed().contains("connecting"))
        #expect(next.session.verdict == nil && next.session.machine.counters.outages == 0)
    }

    // MARK: Another driver

    @Test(arguments: [(ProtocolVersion.five, true, true), (.five, false, false), (.threeOneOne, true, false)])
    func `a session that another driver continues stays in its room if the server can delay the will`(
        version: ProtocolVersion, keepsSession: Bool, isUnseen: Bool
    ) throws {
        var session = try SessionUnderTest(room: "plant", version: version)
        session.dials()
        _ = session.receives(.connack(Connack(properties: .init(sessionExpiryInterval: keepsSession ? nil : 0))))
        _ = try session.grants(.grantedQoS1)
        _ = try session.takes()
        #expect(session.session.state == .connected)
        let since = try #require(session.session.rooms.membership?.presence.since)
        let texts = session.take(.stop(Reason(.configurationChanged), .stayingInRoom))
        if isUnseen {
            #expect(texts == ["disconnecting", "send DISCONNECT with will", "close"])
        } else {
            #expect(texts.first == "disconnecting" && texts.contains { $0.contains("cleared") }, "\(texts)")
            #expect(try session.takes() == Self.goodbye)
        }
        _ = session.take(.closed(Reason(.configurationChanged)))
        let standing = session.session.rooms.membership?.standing
        #expect((standing != nil) == isUnseen)
        var next = try SessionUnderTest(room: "plant", version: version)
        _ = next.wait(5)
        _ = next.ask {
            $0.start(StoredSession(mqtt: .init()), wasUp: true, standing: standing, under: "")
        }
        _ = next.proceed()
        _ = next.opens()
        let now = next.session.rooms.membership?.presence.since
        #expect((now == since) == isUnseen, "since when it is in the room")
    }

    @Test func `a session that is already leaving its room leaves it, although another driver continues`() throws {
        var session = try inRoom()
        _ = try session.takes()
        _ = session.take(.disconnect(Reason(.userDisconnect)))
        _ = session.take(.stop(Reason(.configurationChanged), .stayingInRoom))
        #expect(try session.takes() == Self.goodbye)
    }

    @Test func `a presence of another room, or one that the others have seen leave, is not continued`() throws {
        var session = try inRoom()
        _ = try session.takes()
        _ = session.take(.stop(Reason(.configurationChanged), .stayingInRoom))
        _ = session.take(.closed(Reason(.configurationChanged)))
        let standing = try #require(session.session.rooms.membership?.standing)
        for (room, seconds) in [("other", 5), ("plant", 200)] as [(String, Int64)] {
            var next = try SessionUnderTest(room: room)
            _ = next.wait(10)
            _ = next.ask {
                $0.start(StoredSession(mqtt: .init()), wasUp: true, standing: standing, under: "")
            }
            _ = next.proceed()
            next.sleep(.seconds(seconds))
            while next.session.link == nil { _ = next.wait(1) }
            _ = next.opens()
            _ = next.receives(.connack(Connack()))
            #expect(next.session.rooms.membership?.presence.since != standing.since)
        }
    }

    // MARK: Remembered decisions

    @Test func `a failure is remembered until somebody asks to connect`() throws {
        var session = try SessionUnderTest {
            $0.bootID = "boot"
            $0.autoconnects = true
        }
        session.dials()
        _ = session.receives(.connack(Connack(reasonCode: .banned)))
        let verdict = try #require(session.session.verdict)
        #expect(session.remembered == [.setVerdict(verdict)])
        #expect(verdict.isFailure && verdict.reasonCode == "banned" && verdict.serverCode == 0x8A)
        var next = try SessionUnderTest { $0.bootID = "boot" }
        #expect(next.ask { $0.takeUp(verdict) })
        #expect(next.session.state == .failed && next.session.machine.reason.code == .banned)
        #expect(next.session.machine.reason.serverCode == 0x8A)
        next = try SessionUnderTest { $0.bootID = "another" }
        #expect(!next.ask { $0.takeUp(verdict) } && next.session.state == .disconnected)
        _ = session.take(.connect(Reason(.userConnect)))
        #expect(session.remembered == [.setVerdict(nil)])
    }

    @Test func `a disconnect is remembered from the moment of the request`() throws {
        var session = try SessionUnderTest { $0.autoconnects = true }.connected()
        _ = session.take(.stop(Reason(.shutdown), .leavingRoom))
        #expect(session.session.verdict?.state == "connected", "nobody asked for it")
        session = try SessionUnderTest().connected()
        _ = session.take(.disconnect(Reason(.userDisconnect)))
        #expect(session.session.verdict?.state == "disconnected")
        #expect(session.session.verdict?.isFailure == false)
        _ = session.take(.closed(Reason(.userDisconnect)))
        #expect(session.remembered == [], "nothing has changed")
    }

    @Test(arguments: [("boot", "old", true), ("another", "old", false), ("boot", "new", false), ("boot", nil, false)])
    func `a failure is over under another configuration`(bootID: String, configuration: String?, isOver: Bool) throws {
        let session = try SessionUnderTest { $0.bootID = "boot" }.session
        var verdict = Verdict(
            state: "failed", reasonCode: "banned", message: "", bootID: bootID, since: Timestamp(rawValue: 0),
            configuration: configuration)
        #expect(session.isOver(verdict, under: "new") == isOver)
        verdict.state = "disconnected"
        #expect(!session.isOver(verdict, under: "new"), "a disconnect outlives a configuration")
    }

    @Test func `a session that was up before its configuration changed is not started by that`() throws {
        var session = try SessionUnderTest { $0.bootID = "boot" }
        _ = session.session.start(StoredSession(mqtt: .init()), wasUp: true, under: "")
        #expect(session.proceed().contains("connecting"))
        #expect(session.session.machine.reason.code == .configurationChanged)
        #expect(session.session.verdict == nil && session.remembered == [], "nobody asked for it")
        // A restart of the daemon does not connect it.
        var next = try SessionUnderTest { $0.bootID = "boot" }
        _ = next.session.start(StoredSession(mqtt: .init()), wasUp: false, under: "")
        #expect(next.proceed() == [])
        #expect(next.session.machine.reason.code == .notStarted)
    }

    @Test func `a start on command outlives that the session connects on its own for a while`() throws {
        var verdict: Verdict?
        for autoconnects in [false, true, false] {
            var session = try SessionUnderTest(verdict: verdict) {
                $0.bootID = "boot"
                $0.autoconnects = autoconnects
            }
            let wasUp = verdict != nil
            _ = session.session.start(StoredSession(mqtt: .init(), verdict: verdict), wasUp: wasUp, under: "")
            if wasUp {
                #expect(session.proceed().contains("connecting"))
            } else {
                #expect(session.take(.connect(Reason(.userConnect))).contains("connecting"))
            }
            verdict = session.session.verdict
            #expect(verdict?.state == "connecting")
        }
        // The daemon is started again.
        var next = try SessionUnderTest(verdict: verdict) { $0.bootID = "boot" }
        _ = next.session.start(StoredSession(mqtt: .init(), verdict: verdict), wasUp: false, under: "")
        #expect(next.proceed().contains("connecting"))
    }

    @Test(arguments: [true, false])
    func `a session that had failed is as it was before when its configuration changes`(wasStarted: Bool) throws {
        let failure = Verdict(
            state: wasStarted ? "failed-after-start" : "failed", reasonCode: "banned", message: "", bootID: "boot",
            since: Timestamp(rawValue: 0),
            configuration: "old")
        var session = try SessionUnderTest(verdict: failure) { $0.bootID = "boot" }
        _ = session.session.start(StoredSession(mqtt: .init(), verdict: failure), wasUp: false, under: "new")
        #expect(session.proceed().contains("connecting"))
        let verdict = session.session.verdict
        #expect(verdict?.state == (wasStarted ? "connected-after-start" : "connected"))
        #expect(session.remembered == [.setVerdict(verdict)], "the failure would come back with the next start")
    }

    @Test func `a publication must not take the place of a presence in the room`() throws {
        let session = try SessionUnderTest(room: "plant")
        func put(_ topic: String) throws {
            _ = try session.session.publication(
                .init(session: "main", topic: topic, payload: MessagePayload(bytes: [1])))
        }
        for topic in ["~/presence/you/there", "p/plant/presence/you/there"] {
            #expect(throws: RPCError.self) { try put(topic) }
        }
        #expect(throws: Never.self) { try put("p/hall/presence/you/there") }
    }

    @Test func `durable consumers follow the session to the room in which it starts again`() throws {
        var session = try SessionUnderTest(room: "plant") { $0.bootID = "boot" }
        let name = try #require(ConsumerName("billing"))
        _ = try session.session.attach(program, to: name, "~/d", try TopicFilter("p/plant/d"), .atLeastOnce)
        let chosen = ChosenRoom(room: "hall", configured: "plant", bootID: "boot")
        session.ask { $0.enterRoom(chosen, subscribedTo: []) }
        _ = session.proceed()
        let filter = try TopicFilter("p/hall/d")
        #expect(session.session.durableConsumers[name]?.filter == filter)
        #expect(session.session.mqtt.subscriptionState(of: filter) == .pending)
    }
}

extension SessionUnderTest {
    /// Waits until the session dials; then the server resumes its session and grants what it asks for.
    fileprivate mutating func reconnects(after texts: [String]) throws -> [String] {
        _ = try waitsForDial(after: texts)
        return opens() + receives(.connack(Connack(sessionPresent: true))) + (try grants(.grantedQoS1))
    }
}
