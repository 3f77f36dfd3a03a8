import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Testing

@testable import Session

/// What the session says to servers and makes of what they say, one line per step.
struct SessionProtocolTests {
    private let call = CallID(rawValue: 1)
    private let program = SubscriptionID(rawValue: "s")

    @discardableResult
    private func accept(
        _ session: inout SessionUnderTest, qos: QoS = .atLeastOnce, expiresAt: Timestamp? = nil
    ) throws -> MessageSequence {
        let message = OutboundMessage(topic: "t", payload: ByteBuffer(), qos: qos, expiresAt: expiresAt)
        let sequence = try session.session.accept(message, at: session.time)
        session.session.commitAccepted(at: session.time)
        return sequence
    }

    // MARK: Expiry

    /// Offline costs nothing: a message does not wake a session that waits for the network.
    @Test func `a message that expires without a network is reported at the next safety attempt`() throws {
        var session = try SessionUnderTest()
        for endpoint in [0, 1] { _ = session.take(.pathChanged(EndpointIndex(endpoint), to: nil, .lost)) }
        _ = session.take(.connect(Reason(.userConnect)))
        let sequence = try accept(&session, expiresAt: Timestamp(rawValue: 10_000))
        _ = session.proceed()
        #expect(session.session.nextDeadline == session.now.advanced(by: .seconds(300)))
        _ = session.wait(299)
        #expect(session.toldOf("dropped") == [])
        #expect(session.session.mqtt.counts.queued == 1)
        _ = session.wait(1)
        #expect(session.toldOf("dropped") == ["dropped \(sequence)"])
        #expect(session.session.mqtt.counts.queued == 0)
    }

    @Test func `a message that expires in a disconnected session is reported when that connects, and is not sent`()
        throws
    {
        var session = try SessionUnderTest()
        let sequence = try accept(&session, expiresAt: Timestamp(rawValue: 10_000))
        _ = session.proceed()
        #expect(session.session.nextDeadline == nil)
        _ = session.wait(10)
        session.dials()
        #expect(session.receives(.connack(Connack())) == ["connected"])
        #expect(session.toldOf("dropped") == ["dropped \(sequence)"])
    }

    // MARK: CONNECT

    @Test(arguments: [true, false])
    func `the will and the keep-alive are those of the room, if the session is in one`(isInRoom: Bool) throws {
        var session = try SessionUnderTest(room: isInRoom ? "plant" : nil) { $0.keepAlive = (20, 50) }
        session.dials()
        let connect = try #require(session.lastConnect)
        #expect(connect.keepAlive == (isInRoom ? 20 : 50))
        #expect(connect.will?.topic == (isInRoom ? "p/plant/presence/me/here" : nil))
    }

    @Test(arguments: [(nil, nil), ("name", nil), (nil, "token"), ("name", "token")] as [(String?, String?)])
    func `a token is sent with the session's user, unless a user name is configured`(
        username: String?, token: String?
    ) throws {
        var session = try SessionUnderTest(
            credential: token.map { SessionCredential(secret: Array($0.utf8)) }
        ) { $0.username = username }
        session.dials()
        #expect(session.lastConnect?.username == username ?? token.map { _ in "me" })
        #expect(session.lastConnect?.password.map { String(buffer: $0) } == token)
    }

    @Test func `a server with an older copy of the session continues that, and sets up everything else again`() throws {
        let (a, b) = (SessionHome("mqtts://a.example:8883"), SessionHome("mqtts://b.example:8883"))
        func present(_ home: SessionHome) -> SessionHome { SessionHome(home.address, keepAlive: 60) }
        var session = try SessionUnderTest().connected()
        #expect(session.session.servers.homes.stored == [present(a)])
        #expect(session.remembered.first == .setHomes([present(a)]))
        var dialed = try session.waitsForDial(
            after: session.receives(.disconnect(Disconnect(reasonCode: .serverShuttingDown))))
        #expect(dialed == "dial b.example")
        _ = session.opens()
        #expect(session.lastConnect?.cleanStart == false)
        _ = session.receives(.connack(Connack()))
        #expect(session.remembered.first == .setHomes([present(b), a]))
        dialed = try session.waitsForDial(
            after: session.receives(.disconnect(Disconnect(reasonCode: .serverShuttingDown))))
        #expect(dialed == "dial a.example")
        _ = session.opens()
        #expect(session.lastConnect?.cleanStart == false)
        #expect(session.toldOf("older") == [])
        _ = session.receives(.connack(Connack(sessionPresent: true)))
        #expect(session.toldOf("older") == ["older copy"])
        #expect(session.remembered.first == .setHomes([present(a), b]))
        #expect(session.session.machine.status.resumed == false, "everything is set up again")
    }

    @Test(arguments: [true, false])
    func `a publication that was removed at another server is deleted on the return, whatever became of the session`(
        isPresent: Bool
    ) throws {
        var session = try SessionUnderTest().connected()
        let publication = Publication(topic: "a", payload: ByteBuffer(string: "1"), since: Timestamp(rawValue: 0))
        _ = session.take(.stored([.putPublication(publication)], isComplete: true))
        _ = try session.takes()
        _ = try session.waitsForDial(after: session.receives(.disconnect(Disconnect(reasonCode: .serverShuttingDown))))
        _ = session.opens()
        #expect(session.receives(.connack(Connack())) == ["send PUBLISH a"])
        _ = try session.takes()
        #expect(session.take(.stored([.removePublication("a")], isComplete: true)) == ["send PUBLISH a, cleared"])
        _ = try session.takes()
        #expect(session.session.publications.retained.isEmpty)
        var left = session.ask { $0.leftBehind() }
        #expect(left == "a server that it has left may keep 1 retained message of the session")
        let dialed = try session.waitsForDial(
            after: session.receives(.disconnect(Disconnect(reasonCode: .serverShuttingDown))))
        #expect(dialed == "dial a.example")
        _ = session.opens()
        #expect(session.receives(.connack(Connack(sessionPresent: isPresent))).contains("send PUBLISH a, cleared"))
        #expect(session.remembered.contains(.rememberRetained("a")), "the daemon may be killed before it is deleted")
        #expect(session.published["a"]?.readableBytes == 0)
        _ = try session.takes()
        #expect(session.session.publications.retained.isEmpty)
        left = session.ask { $0.leftBehind() }
        #expect(left == nil)
    }

    @Test(arguments: [true, false])
    func `an unusable copy of the session is discarded on the next return, and a session in use is not`(
        isShared: Bool
    ) throws {
        var session = try SessionUnderTest().connected()
        session.answersPings = true
        func returns(_ session: inout SessionUnderTest) throws {
            var texts: [String] = []
            for _ in 0..<600 where !texts.contains("knock at a.example") { texts = session.wait(1) }
            #expect(session.take(.reached).contains("dial a.example with the knock"))
            _ = session.opens()
        }
        var dialed = try session.waitsForDial(
            after: session.receives(.disconnect(Disconnect(reasonCode: .serverShuttingDown))))
        #expect(dialed == "dial b.example")
        _ = session.opens()
        _ = session.receives(.connack(Connack(sessionPresent: isShared)))
        try returns(&session)
        #expect(session.lastConnect?.cleanStart == false)
        _ = session.receives(.connack(Connack(sessionPresent: true)))
        dialed = try session.waitsForDial(
            after: session.receives(.disconnect(Disconnect(reasonCode: .packetIdentifierNotFound))))
        #expect(dialed == "dial b.example")
        _ = session.opens()
        #expect(session.lastConnect?.cleanStart == false)
        _ = session.receives(.connack(Connack(sessionPresent: true)))
        try returns(&session)
        #expect(session.lastConnect?.cleanStart == !isShared)
    }

    @Test func `a publication is sent again after each end, and waited for where the session may be another one`()
        throws
    {
        var session = try SessionUnderTest().connected()
        let publication = Publication(
            topic: "a", payload: ByteBuffer(string: "1"), since: Timestamp(rawValue: 0))
        _ = session.take(.stored([.putPublication(publication)], isComplete: true))
        _ = try session.takes()
        _ = try session.waitsForDial(after: session.take(.closed(Reason(.reset))))
        _ = session.opens()
        #expect(session.receives(.connack(Connack(sessionPresent: true))) == ["send PUBLISH a", "connected"])
        _ = try session.takes()
        let dialed = try session.waitsForDial(
            after: session.receives(.disconnect(Disconnect(reasonCode: .serverShuttingDown))))
        #expect(dialed == "dial b.example")
        _ = session.opens()
        #expect(session.receives(.connack(Connack(sessionPresent: true))) == ["send PUBLISH a"])
        #expect(try session.takes() == ["connected"])
    }

    @Test func `after a loss a publication is sent again each time, as another server may have the address`() throws {
        let a = SessionHome("mqtts://a.example:8883")
        var session = try SessionUnderTest().connected()
        _ = session.take(SessionMachine.Input.pathChanged(EndpointIndex(1), to: nil, .lost))
        let publication = Publication(
            topic: "a", payload: ByteBuffer(string: "1"), since: Timestamp(rawValue: 0))
        _ = session.take(.stored([.putPublication(publication)], isComplete: true))
        _ = try session.takes()
        let changes: [(isPresent: Bool, remembered: [SessionChange])] = [
            (false, [.setHomes([SessionHome(a.address, keepAlive: 60), a])]), (true, []), (true, []),
        ]
        for (isPresent, remembered) in changes {
            _ = try session.waitsForDial(after: session.take(.closed(Reason(.reset))))
            _ = session.opens()
            #expect(session.receives(.connack(Connack(sessionPresent: isPresent))) == ["send PUBLISH a"])
            // It is durable, so a restarted daemon knows it.
            #expect(session.remembered == remembered)
            #expect(try session.takes() == ["connected"])
        }
    }

    @Test func `what was deleted at a server that lost the session once is not deleted there again`() throws {
        var session = try SessionUnderTest().connected()
        _ = session.take(SessionMachine.Input.pathChanged(EndpointIndex(1), to: nil, .lost))
        let publication = Publication(topic: "a", payload: ByteBuffer(string: "1"), since: Timestamp(rawValue: 0))
        _ = session.take(.stored([.putPublication(publication)], isComplete: true))
        _ = try session.takes()
        _ = try session.waitsForDial(after: session.take(.closed(Reason(.reset))))
        _ = session.opens()
        #expect(session.receives(.connack(Connack())) == ["send PUBLISH a"])
        _ = try session.takes()
        #expect(session.take(.stored([.removePublication("a")], isComplete: true)) == ["send PUBLISH a, cleared"])
        _ = try session.takes()
        _ = try session.waitsForDial(after: session.take(.closed(Reason(.reset))))
        _ = session.opens()
        #expect(
            session.receives(.connack(Connack(sessionPresent: true))) == ["connected"], "it may be another client's")
    }

    @Test func `a session in a room does not discard the older copy of a server to which it has to return`() throws {
        var session = try SessionUnderTest(room: "plant")
        session.dials()
        _ = session.receives(.connack(Connack()))
        _ = try session.grants(.grantedQoS1)
        #expect(try session.takes() == ["connected"])
        var dialed = try session.waitsForDial(
            after: session.receives(.disconnect(Disconnect(reasonCode: .serverShuttingDown))))
        #expect(dialed == "dial b.example")
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        _ = try session.grants(.grantedQoS1)
        #expect(try session.takes() == ["connected"])
        _ = session.take(.reconnect(.full))
        _ = session.opens()
        #expect(session.lastConnect?.cleanStart == true)
        dialed = try session.waitsForDial(after: session.take(.closed(Reason(.reset))))
        #expect(dialed == "dial a.example")
        #expect(session.opens() == ["send CONNECT"], "the attempt was closed before the server had accepted it")
        #expect(session.lastConnect?.cleanStart == false)
    }

    // MARK: Heartbeats

    @Test func `the kernel's measurement is asked for with CONNECT, when connected, and with each heartbeat`() throws {
        var session = try SessionUnderTest()
        session.dials()
        #expect(session.toldOf("measure") == ["measure"], "how long the answer to CONNECT may take")
        _ = session.receives(.connack(Connack()))
        #expect(session.toldOf("measure") == ["measure"])
        _ = session.take(.mqtt(.ping))
        #expect(session.toldOf("measure") == [])
        _ = session.receives(.pingresp)
        #expect(session.toldOf("measure") == ["measure"])
    }

    @Test(arguments: [(nil, 15), (0, 15), (9, 9), (600, 15), (65_535, 15)] as [(UInt16?, Int64)])
    func `a server's keep-alive counts if it is shorter than ours`(keepAlive: UInt16?, interval: Int64) throws {
        var session = try SessionUnderTest()
        session.dials()
        _ = session.receives(.connack(Connack(properties: .init(serverKeepAlive: keepAlive))))
        #expect(session.wait(interval - 1) == [])
        #expect(session.wait(1) == ["send PINGREQ"])
        #expect(session.toldOf("measure") == ["measure"], "how much is ahead of it")
    }

    /// The others must hear of the session within the presence timeout.
    @Test func `in a room, a session asks as often as its presence needs`() throws {
        var session = try SessionUnderTest(room: "r") { $0.keepAlive.inRoom = 5 }
        session.dials()
        _ = session.receives(.connack(Connack(properties: .init(serverKeepAlive: 600))))
        var waited = 0
        while !session.wait(1).contains("send PINGREQ"), waited < 20 { waited += 1 }
        #expect(waited == 4)
    }

    @Test func `any packet of the server is a sign of life, and what is sent to it is not`() throws {
        var session = try SessionUnderTest().connected()
        var waited = 0
        while session.session.state == .connected, waited < 600 {
            _ = session.wait(1)
            waited += 1
            if waited < 120 { _ = session.receives(.publish(Publish(topic: "x"))) }
            if waited % 5 == 0 { try accept(&session, qos: .atMostOnce) }
        }
        #expect((121...240).contains(waited))
        #expect(session.session.machine.reason.code == .heartbeatTimeout)
    }

    // MARK: What servers say

    @Test func `a server that speaks another protocol is named with its address`() throws {
        var session = try SessionUnderTest()
        session.dials()
        #expect(session.take(.received(ByteBuffer(string: "HTTP/1.1 400 Bad Request\r\n"))) == ["close"])
        let reason = session.session.machine.reason
        #expect(reason.code == .wrongProtocol && reason.message.contains("at 192.0.2.9:8883"))
    }

    @Test func `a server that answers all but one request is left, and that is named as the reason`() throws {
        var session = try SessionUnderTest().connected()
        session.answersPings = true
        let consumer = LiveConsumer(id: program, filter: try TopicFilter("a"), qos: .atMostOnce)
        #expect(session.take(.consume(consumer, call)) == ["send SUBSCRIBE"])
        for _ in 1...120 where session.session.state == .connected { _ = session.wait(1) }
        #expect(session.session.machine.reason.code == .unanswered)
    }

    @Test func `a close while messages are unanswered says so`() throws {
        var session = try SessionUnderTest().connected()
        try accept(&session)
        #expect(session.proceed() == ["send PUBLISH t"])
        _ = session.take(.closed(Reason(.reset)))
        #expect(session.session.machine.reason.message.hasSuffix(", while packets were unanswered"))
    }

    @Test func `in MQTT 3.1.1 a mismatched session is discarded on one connection and begun on the next`() throws {
        var session = try SessionUnderTest(version: .threeOneOne)
        session.dials()
        var dialed = try session.waitsForDial(after: session.receives(.connack(Connack(sessionPresent: true))))
        #expect(dialed == "dial a.example")
        _ = session.opens()
        #expect(session.lastConnect?.cleanStart == true)
        dialed = try session.waitsForDial(after: session.receives(.connack(Connack())))
        #expect(dialed == "dial a.example")
        #expect(session.session.machine.reason.message.contains("the server's session is discarded"))
        _ = session.opens()
        #expect(session.lastConnect?.cleanStart == false)
        #expect(session.receives(.connack(Connack())) == ["connected"])
    }

    @Test func `where a server forgets a discarded session late, the next one waits, but not long`() throws {
        var session = try SessionUnderTest(version: .threeOneOne)
        session.dials()
        var waits: [Duration] = []
        // Each pair of connections discards the session, and finds it again: another device has begun it again.
        for number in 0..<20 {
            let isDiscarded = number % 2 == 1
            #expect(session.lastConnect?.cleanStart == isDiscarded)
            let before = session.now
            _ = try session.waitsForDial(after: session.receives(.connack(Connack(sessionPresent: !isDiscarded))))
            if isDiscarded { waits.append(before.duration(to: session.now)) }
            _ = session.opens()
        }
        #expect(waits.first == .zero)
        #expect(waits.dropFirst().allSatisfy { $0 > .zero && $0 <= .seconds(5) }, "\(waits)")
    }

    @Test func `an input that comes before all others is handled at its own time`() throws {
        var session = try SessionUnderTest()
        let sequence = try accept(&session, expiresAt: Timestamp(rawValue: 10_000))
        _ = session.proceed()
        session.session.handleFirst(.timePassed, at: .init(now: session.now, wallClock: Timestamp(rawValue: 10_000)))
        _ = session.proceed()
        #expect(session.toldOf("dropped") == ["dropped \(sequence)"])
    }

    @Test func `what the server said counts, and not the close that follows`() throws {
        var session = try SessionUnderTest().connected()
        let id = session.dialed
        _ = session.receives(.disconnect(Disconnect(reasonCode: .serverShuttingDown)))
        _ = session.take(.connection(id, .closed(Reason(.serverClosed))))
        #expect(session.session.machine.reason.code == .serverShutdown)
    }

    @Test func `a message of QoS 2 that may arrive twice is reported`() throws {
        var session = try SessionUnderTest().connected()
        try accept(&session, qos: .exactlyOnce)
        #expect(session.proceed() == ["send PUBLISH t"])
        _ = try session.waitsForDial(after: session.take(.closed(Reason(.reset))))
        _ = session.opens()
        _ = session.receives(.connack(Connack(sessionPresent: false)))
        #expect(session.toldOf("repeated") == ["repeated 1"])
    }

    // MARK: Messages

    /// A session that is connected, with a durable consumer whose program is attached.
    private func consuming() throws -> (SessionUnderTest, ConsumerName) {
        var session = try SessionUnderTest().connected()
        let (name, filter) = (try #require(ConsumerName("billing")), try TopicFilter("a/#"))
        _ = try session.session.attach(program, to: name, "a/#", filter, .atLeastOnce)
        _ = session.take(.subscribe(filter, call))
        _ = try session.grants(.grantedQoS1)
        _ = session.ask { $0.ready(name, program) }
        return (session, name)
    }

    private func message(_ number: UInt16) -> Packet {
        .publish(
            Publish(
                topic: "a/b", payload: ByteBuffer(string: "\(number)"), qos: .atLeastOnce,
                packetID: PacketID(rawValue: number)))
    }

    @Test func `a message for which the disk has no room is acknowledged once there is room`() throws {
        var (session, name) = try consuming()
        session.diskIsFull = true
        #expect(session.receives(message(1)) == [])
        #expect(session.wait(1) == [])
        session.diskIsFull = false
        #expect(session.wait(1) == ["send PUBACK"])
        #expect(session.session.mqtt.backlog(of: name).messages == 1)
    }

    @Test func `a full inbox is reported, and its room`() throws {
        var (session, _) = try consuming()
        (session.session.mqtt.configuration.inbox.messages, session.session.mqtt.configuration.inbox.whenFull) =
            (1, .withhold)
        #expect(session.receives(message(1)) == ["send PUBACK"])
        #expect(session.receives(message(2)) == [])
        #expect(session.toldOf("the inbox") == ["the inbox is full"])
        let given = session.ask { $0.giveAhead { _ in true } }
        let first = InboxSequence(rawValue: try #require(given?.first).id)
        _ = try session.session.acknowledge(first, upTo: true, by: program)
        #expect(session.proceed() == ["send PUBACK"])
    }

    @Test func `what is held for a program is read again when the host's clock was set`() throws {
        var (session, name) = try consuming()
        _ = session.receives(message(1))
        let range = Timestamp(rawValue: 0)...Timestamp(rawValue: 1)
        _ = session.take(.mqtt(.clockStepped(by: 1000, acceptedWithin: range)))
        #expect(session.ask { $0.giveAhead { _ in true } } == nil)
        let load = try #require(session.ask { $0.beginLoad { _ in true } })
        #expect(load.name == name && load.after == .zero)
    }

    // MARK: Reports

    @Test func `a report says where the session is`() throws {
        var session = try SessionUnderTest(room: "plant", redirects: ["c.example"])
        session.dials()
        let elsewhere = Connack(reasonCode: .useAnotherServer, properties: .init(serverReference: "c.example"))
        #expect(session.receives(.connack(elsewhere)) == ["close", "dial c.example"])
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        _ = try session.grants(.grantedQoS1)
        #expect(try session.takes() == ["connected"])
        let report = try #require(session.report)
        #expect(report.address?.host == "c.example" && report.room == "plant")
        #expect(report.status.state == .connected && report.time == session.time && report.instant == session.now)
        _ = session.take(.pathChanged(EndpointIndex(1), to: nil, .lost))
        #expect(session.report?.eventAddress?.host == "b.example")
    }

    @Test func `a session that ends drops its connections`() throws {
        var session = try SessionUnderTest().connected()
        session.ask { $0.end() }
        #expect(session.proceed() == ["abort"])
        #expect(!session.session.mqtt.isConnected)
    }
}
