import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Session

/// How a session's parts work together, one line per step.
struct SessionStepsTests {
    private let me = SessionCredential(secret: Array("me".utf8))
    private let other = SessionCredential(secret: Array("other".utf8))
    private static let topic = "p/plant/presence/me/here"

    private func role(_ session: SessionUnderTest) throws -> DialRole {
        .attempt(try #require(session.session.link?.attempt))
    }

    // MARK: Preparation

    @Test func `an attempt has its secrets before it is dialed`() throws {
        var session = try SessionUnderTest {
            ($0.hasPassword, $0.proxy) = (true, .some(needsLogin: true, hasPassword: true))
        }
        #expect(session.take(.connect(Reason(.userConnect))) == ["fetch the proxy's password", "connecting"])
        #expect(session.take(.fetched(.proxy(try role(session)), other)) == ["fetch"])
        #expect(session.take(.fetched(.login(try role(session)), me)) == ["dial a.example"])
        #expect(session.take(.opened(SessionUnderTest.peer)) == ["send CONNECT me"])
        #expect(session.receives(.connack(Connack())) == ["connected"])
    }

    @Test func `a secret that arrives too late is not used`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        #expect(session.take(.connect(Reason(.userConnect))) == ["fetch", "connecting"])
        let late = try role(session)
        #expect(session.session.wants(.login(late)))
        #expect(session.take(.reconnect(nil)) == ["fetch"])
        #expect(!session.session.wants(.login(late)))
        #expect(session.take(.fetched(.login(late), me)) == [])
        let current = try role(session)
        #expect(session.session.wants(.login(current)))
        #expect(session.take(.fetched(.login(current), me)) == ["dial a.example"])
    }

    @Test func `an attempt whose secret cannot be read is not dialed`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        #expect(session.take(.notFetched(.login(try role(session)), "no such file")) == [])
        #expect(session.session.machine.reason.message == "the password cannot be read: no such file")
        #expect(session.session.link == nil)
    }

    // MARK: Ends

    @Test func `a server's request to wait half a minute is honoured`() throws {
        var session = try SessionUnderTest()
        _ = session.take(SessionMachine.Input.pathChanged(EndpointIndex(1), to: nil, .lost))
        _ = session.take(.connect(Reason(.userConnect)))
        var texts = session.take(.closed(Reason(.serverBusy), retryAfter: .seconds(30)))
        var waited = 0
        while !texts.contains(where: { $0.hasPrefix("dial") }), waited < 100 {
            texts = session.wait(1)
            waited += 1
        }
        #expect((30...40).contains(waited))
    }

    @Test func `a replacement is dialed before the protocol hears of the old connection's end`() throws {
        var session = try SessionUnderTest().connected()
        let old = session.dialed
        session.session.take(.machine(.renew(Reason(.credentialRenewed))))
        #expect(session.proceedOnce().contains("dial a.example"))
        #expect(session.session.mqtt.isConnected, "the old connection is still up")
        _ = session.proceed()
        #expect(!session.session.mqtt.isConnected)
        #expect(session.take(.connection(old, .closed(Reason(.reset)))) == [], "its events are ignored")
    }

    @Test func `the server's DISCONNECT before a close is handled first`() throws {
        var session = try SessionUnderTest().connected()
        session.session.take(
            .connection(session.dialed, .received(encoded(.disconnect(Disconnect(reasonCode: .serverBusy))))))
        session.session.take(.connection(session.dialed, .closed(Reason(.serverClosed))))
        #expect(session.proceed() == ["close", "reconnecting"])
        #expect(session.session.machine.reason.code == .serverBusy)
    }

    @Test func `a connect right after a goodbye is not hindered by what the server still sent`() throws {
        var session = try SessionUnderTest().connected()
        session.session.mqtt.configuration.packetsPerInput = 2
        let flood = (1...5).map { Packet.publish(Publish(topic: "t", payload: ByteBuffer(string: "\($0)"))) }
        #expect(session.receives(flood) == ["read on later", "pause"])
        #expect(session.take(.disconnect(Reason(.userDisconnect))) == ["disconnecting", "send DISCONNECT", "close"])
        #expect(session.take(.closed(Reason(.userDisconnect))) == ["disconnected"])
        #expect(session.take(.connect(Reason(.userConnect))) == ["dial a.example", "connecting"])
        #expect(session.opens() == ["send CONNECT"])
    }

    @Test(
        arguments: [
            (0x84, .failed, "unsupported-version"), (0x85, .failed, "client-identifier-rejected"),
            (0x86, .failed, "credential-rejected"), (0x87, .failed, "not-authorized"), (0x8A, .failed, "banned"),
            (0x88, .connecting, "server-busy"), (0x97, .connecting, "server-busy"), (0x80, .connecting, "server-error"),
            (0x9C, .connecting, "moved"), (0x9F, .connecting, "rate-limited"),
        ] as [(UInt8, SessionState, String)])
    func `a refusal is reported with the server's reason`(code: UInt8, state: SessionState, reason: String) throws {
        var session = try SessionUnderTest()
        session.dials()
        _ = session.receives(.connack(Connack(reasonCode: ReasonCode(rawValue: code))))
        let machine = session.session.machine
        #expect(machine.status.state == state && machine.reason.code.rawValue == reason)
        #expect(machine.reason.serverCode == code && machine.reason.isTerminal == (state == .failed))
    }

    @Test(arguments: [true, false])
    func `a server that sends garbage is tried again, and the reason has no server code`(isConnected: Bool) throws {
        var session = try SessionUnderTest()
        session.dials()
        if isConnected { _ = session.receives(.connack(Connack())) }
        let texts = session.take(.received(ByteBuffer(bytes: [0xFF, 0xFF, 0xFF, 0xFF, 0xFF])))
        #expect(texts.contains("close"))
        #expect(session.session.machine.reason.serverCode == nil)
        try waitForDial(&session, after: texts)
        #expect(session.opens() == ["send CONNECT"])
    }

    @Test func `a disconnect while the session is restored is announced to the server`() throws {
        var session = try SessionUnderTest(room: "plant")
        session.dials()
        #expect(session.receives(.connack(Connack())) == ["send SUBSCRIBE"])
        #expect(
            session.take(.disconnect(Reason(.userDisconnect)))
                == ["disconnecting", "send PUBLISH \(Self.topic), cleared"])
        #expect(session.receives(try suback(.grantedQoS1)) == [], "the presence is no longer published")
        #expect(
            session.receives(.puback(Acknowledgement(packetID: try id(2)))) == ["send DISCONNECT", "close"])
        #expect(session.take(.closed(Reason(.userDisconnect))) == ["disconnected"])
    }

    @Test(arguments: [(nil, "for up to 188 s"), (600, "for up to 998 s"), (0, "until the server notices")])
    func `how long others see a session without a goodbye depends on the server's keep-alive`(
        keepAlive: UInt16?, expected: String
    ) throws {
        var session = try SessionUnderTest(room: "plant")
        session.dials()
        _ = session.receives(.connack(Connack(properties: .init(serverKeepAlive: keepAlive))))
        _ = session.receives(try suback(.grantedQoS1))
        _ = session.receives(.puback(Acknowledgement(packetID: try id(2))))
        _ = session.take(.closed(Reason(.reset)))
        _ = session.take(.disconnect(Reason(.userDisconnect)))
        let reason = session.session.machine.reason
        #expect(reason.code == .goodbyeUnheard)
        // 1.5 times the keep-alive, 8 s, and the will delay.
        #expect(reason.message.contains(expected), "\(reason.message)")
    }

    @Test(arguments: [false, true])
    func `a session that is removed says what the server may keep, unless that was told`(isTold: Bool) throws {
        var session = try SessionUnderTest(room: "plant")
        session.dials()
        _ = session.receives(.connack(Connack()))
        _ = session.receives(try suback(.grantedQoS1))
        _ = session.receives(.puback(Acknowledgement(packetID: try id(2))))
        _ = session.take(.stop(Reason(.configurationChanged), .forGood))
        if isTold {
            _ = session.receives(try suback(.grantedQoS1))
            _ = session.receives(.puback(Acknowledgement(packetID: try id(3))))
        }
        _ = session.take(.closed(Reason(.reset)))
        #expect(session.session.state == .disconnected)
        #expect(session.session.machine.reason.code == .configurationChanged)
        let left = session.ask { $0.leftBehind() }
        #expect(isTold ? left == nil : left?.contains("others in the room may see the session") == true)
    }

    @Test func `a session that is removed before it has done anything says what the server may keep`() throws {
        var session = try SessionUnderTest(retained: ["a", "b"])
        _ = session.take(.stop(Reason(.configurationChanged), .forGood))
        let left = session.ask { $0.leftBehind() }
        #expect(left?.hasPrefix("the server may keep 2 publications of the session") == true)
    }

    @Test func `a disconnect waits for accepted messages`() throws {
        var session = try SessionUnderTest().connected()
        try accept(&session)
        #expect(session.proceed() == ["send PUBLISH t"])
        #expect(session.take(.disconnect(Reason(.userDisconnect))) == ["disconnecting"])
        #expect(
            session.receives(.puback(Acknowledgement(packetID: try id(1))))
                == ["send DISCONNECT", "close"])
        #expect(session.take(.closed(Reason(.userDisconnect))) == ["disconnected"])
        #expect(session.session.verdict?.state == "disconnected")
    }

    // MARK: Other servers, other versions

    @Test(arguments: [(ReasonCode.useAnotherServer, "a.example"), (.serverMoved, "c.example")])
    func `a session follows a redirect in CONNACK, for one connection or for good`(code: ReasonCode, next: String)
        throws
    {
        var session = try SessionUnderTest(redirects: ["c.example"])
        session.dials()
        #expect(session.receives(redirection(code, "c.example")) == ["close", "dial c.example"])
        #expect(session.opens() == ["send CONNECT"])
        #expect(session.receives(.connack(Connack())) == ["connected"])
        #expect(session.session.address(of: EndpointIndex(0)).host == "c.example")
        #expect(try waitForDial(&session, after: session.take(.closed(Reason(.reset)))) == "dial \(next)")
    }

    @Test func `a session follows a redirect in DISCONNECT`() throws {
        var session = try SessionUnderTest(redirects: ["c.example"]).connected()
        let end = Disconnect(
            reasonCode: .useAnotherServer, properties: .init(serverReference: "c.example"))
        #expect(session.receives(.disconnect(end)) == ["close", "dial c.example", "reconnecting"])
        #expect(session.session.machine.reason.code == .serverMoved)
    }

    @Test func `a redirect that is not allowed fails the session and names the setting`() throws {
        var session = try SessionUnderTest()
        session.dials()
        #expect(session.receives(redirection(.useAnotherServer, "c.example")) == ["close", "failed"])
        let reason = session.session.machine.reason
        #expect(reason.code == .redirectRefused && reason.serverCode == 0x9C)
        #expect(
            reason.message
                == "the server sends the session to c.example:8883, which redirects of [mqtt] does not allow")
    }

    @Test func `servers that redirect in a circle are left alone for a while`() throws {
        var session = try SessionUnderTest(redirects: ["c.example", "d.example"])
        _ = session.take(.connect(Reason(.userConnect)))
        for next in ["c.example", "d.example", "c.example"] {
            _ = session.opens()
            #expect(session.receives(redirection(.useAnotherServer, next)) == ["close", "dial \(next)"])
        }
        _ = session.opens()
        #expect(session.receives(redirection(.useAnotherServer, "d.example")) == ["close"])
        #expect(session.session.machine.reason.code == .serverMoved)
        #expect(session.wait(4) == [])
    }

    @Test(arguments: [(Int64(59), false), (60, true)])
    func `a redirect after a stable connection begins a new chain`(seconds: Int64, isFollowed: Bool) throws {
        var session = try SessionUnderTest(redirects: ["c.example", "d.example"])
        session.answersPings = true
        _ = session.take(.connect(Reason(.userConnect)))
        for next in ["c.example", "d.example", "c.example"] {
            _ = session.opens()
            #expect(session.receives(redirection(.useAnotherServer, next)) == ["close", "dial \(next)"])
        }
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        _ = session.wait(seconds)
        let end = Disconnect(reasonCode: .useAnotherServer, properties: .init(serverReference: "d.example"))
        #expect(session.receives(.disconnect(end)).contains("dial d.example") == isFollowed)
    }

    @Test(arguments: [(false, false), (true, false), (false, true)])
    func `a token that a program gave does not follow a redirect to where it would go unencrypted`(
        hasToken: Bool, hadToken: Bool
    ) throws {
        var session = try SessionUnderTest(
            scheme: "mqtt", redirects: ["c.example"], credential: hadToken ? me : nil)
        if hasToken { _ = session.take(.credentialGiven(me)) }
        session.dials()
        let texts = session.receives(redirection(.useAnotherServer, "c.example"))
        #expect(texts == ["close", hasToken || hadToken ? "failed" : "dial c.example"])
    }

    @Test func `a redirect is still followed after an attempt that had no credential`() throws {
        var session = try SessionUnderTest(redirects: ["c.example"]) { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(try #require(session.fetched), me))
        _ = session.opens()
        #expect(session.receives(redirection(.useAnotherServer, "c.example")) == ["close", "fetch"])
        var texts = session.take(.notFetched(try #require(session.fetched), "no such file"))
        for _ in 0..<60 where !texts.contains("fetch") { texts = session.wait(1) }
        #expect(session.take(.fetched(try #require(session.fetched), me)) == ["dial c.example"])
    }

    @Test func `a session tries every address that a server sends it to`() throws {
        var session = try SessionUnderTest(redirects: ["c.example", "d.example"])
        session.dials()
        #expect(
            session.receives(redirection(.useAnotherServer, "c.example d.example")) == ["close", "dial c.example"])
        let words = session.take(.closed(Reason(.refused, "c.example refused")))
        #expect(session.session.machine.reason.message == "c.example refused; a redirect led to c.example:8883")
        var dials = [try waitForDial(&session, after: words)]
        for _ in 0..<2 { dials.append(try waitForDial(&session, after: session.take(.closed(Reason(.refused))))) }
        // The list belongs to the first endpoint.
        #expect(dials == ["dial b.example", "dial d.example", "dial b.example"])
    }

    @Test func `a certificate that is wrong where a redirect leads does not end the session`() throws {
        var session = try SessionUnderTest(redirects: ["c.example", "d.example"])
        session.dials()
        #expect(
            session.receives(redirection(.useAnotherServer, "c.example d.example")) == ["close", "dial c.example"])
        let words = session.take(.closed(Reason(.certificateInvalid, "the certificate is not for c.example")))
        let reason = session.session.machine.reason
        #expect(reason.message == "the certificate is not for c.example; a redirect led to c.example:8883")
        #expect(reason.code == .tlsFailed && session.session.state == .connecting)
        var dials = [try waitForDial(&session, after: words)]
        dials.append(try waitForDial(&session, after: session.take(.closed(Reason(.refused)))))
        #expect(dials == ["dial b.example", "dial d.example"])
        // At the endpoint itself it does.
        dials = [try waitForDial(&session, after: session.take(.closed(Reason(.refused))))]
        dials.append(try waitForDial(&session, after: session.take(.closed(Reason(.refused)))))
        #expect(dials == ["dial b.example", "dial a.example"])
        _ = try waitForDial(&session, after: session.take(.closed(Reason(.certificateInvalid))))
        #expect(session.take(.closed(Reason(.certificateInvalid))) == ["failed"])
    }

    @Test(arguments: ["", " "])
    func `a server that redirects and names no address is said to have done so`(reference: String) throws {
        var session = try SessionUnderTest(redirects: ["c.example"])
        session.dials()
        #expect(session.receives(redirection(.useAnotherServer, reference)) == ["close"])
        #expect(
            session.session.machine.reason.message
                == "the server said: use another server (0x9C), but named no address")
    }

    private func redirection(_ code: ReasonCode, _ reference: String) -> Packet {
        .connack(Connack(reasonCode: code, properties: .init(serverReference: reference)))
    }

    @Test func `auto tries the other version at once, and remembers it`() throws {
        var session = try SessionUnderTest(version: nil)
        session.dials()
        #expect(
            session.receives(.connack(Connack(reasonCode: .unsupportedProtocolVersion)))
                == ["close", "dial a.example"])
        #expect(session.opens() == ["send CONNECT"])
        #expect(session.session.mqtt.version == .threeOneOne)
        #expect(session.receives(.connack(Connack())) == ["connected"])
        try waitForDial(&session, after: session.take(.closed(Reason(.reset))))
        _ = session.opens()
        #expect(session.session.mqtt.version == .threeOneOne)
    }

    @Test func `auto tries the other version at once when the server closes without a reason`() throws {
        var session = try SessionUnderTest(version: nil)
        session.dials()
        #expect(session.take(.closed(Reason(.serverClosed))) == ["dial a.example"])
        _ = session.opens()
        #expect(session.session.mqtt.version == .threeOneOne)
        #expect(session.session.mqtt.configuration.isVersionTentative)
        _ = session.receives(.connack(Connack()))
        _ = session.take(.closed(Reason(.reset)))
        #expect(!session.session.mqtt.configuration.isVersionTentative, "it was the connection's")
    }

    @Test func `auto tries version 5 once more before a message that needs it is set aside`() throws {
        var session = try SessionUnderTest(version: nil)
        var actions: [MQTTClientMachine.Action] = []
        let message = OutboundMessage(topic: "t", properties: .init(responseTopic: "r"))
        _ = try session.session.mqtt.publish(message, at: Timestamp(rawValue: 0), into: &actions)
        for case .commit(_, let number) in actions { _ = session.take(.mqtt(.committed(number))) }
        session.dials()
        #expect(session.take(.closed(Reason(.serverClosed))) == ["dial a.example"])
        _ = session.opens()
        #expect(session.session.mqtt.version == .threeOneOne)
        #expect(session.receives(.connack(Connack())).contains("dial a.example"))
        _ = session.opens()
        #expect(session.session.mqtt.version == .five)
        #expect(session.receives(.connack(Connack(sessionPresent: true))).contains("send PUBLISH t"))
        #expect(session.session.mqtt.counts.quarantined == 0)
    }

    @Test func `a message that needs version 5 is accepted until a server is known not to speak it`() throws {
        var session = try SessionUnderTest(version: nil)
        _ = session.take(SessionMachine.Input.pathChanged(EndpointIndex(1), to: nil, .lost))
        let request = OutboundMessage(topic: "t", properties: .init(responseTopic: "r"))
        func isAccepted(_ session: inout SessionUnderTest) -> Bool {
            session.ask { session in
                (try? session.mqtt.checkContent(of: request)) != nil
                    && (try? session.accept(request, at: Timestamp(rawValue: 0))) != nil
            }
        }
        session.dials()
        #expect(session.take(.closed(Reason(.serverClosed))) == ["dial a.example"])
        _ = session.opens()
        #expect(session.session.mqtt.version == .threeOneOne)
        #expect(isAccepted(&session))
        _ = session.take(.closed(Reason(.serverClosed)))
        #expect(isAccepted(&session), "while the session waits")
        #expect(session.session.mqtt.counts.queued == 2)

        var older = try SessionUnderTest(version: nil)
        older.dials()
        _ = older.receives(.connack(Connack(reasonCode: .unsupportedProtocolVersion)))
        _ = older.opens()
        _ = older.receives(.connack(Connack()))
        #expect(!isAccepted(&older))
        _ = older.take(.closed(Reason(.serverClosed)))
        #expect(!isAccepted(&older))
    }

    @Test func `leaving for version 5 is the session's own doing, and no sign of another device`() throws {
        var session = try SessionUnderTest(room: "plant", version: nil)
        session.dials()
        #expect(session.take(.closed(Reason(.serverClosed))) == ["dial a.example"])
        _ = session.opens()
        #expect(session.receives(.connack(Connack())).contains("dial a.example"), "what was there is discarded")
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        _ = try session.grants(.grantedQoS1)
        #expect(try session.takes() == ["connected"])
        let request = OutboundMessage(topic: "t", properties: .init(responseTopic: "r"))
        _ = try session.session.accept(request, at: session.time)
        session.session.commitAccepted(at: session.time)
        #expect(session.proceed().contains("dial a.example"))
        #expect(session.session.machine.reason.code == .otherVersion && session.session.looking == nil)
        #expect(session.opens() == ["send CONNECT"])
        #expect(session.session.mqtt.version == .five)
    }

    @Test(arguments: [ProtocolVersion.five, .threeOneOne, nil])
    func `a session fails when the server speaks none of its versions`(_ version: ProtocolVersion?) throws {
        var session = try SessionUnderTest(version: version)
        _ = session.take(.connect(Reason(.userConnect)))
        var texts: [String]
        repeat {
            _ = session.opens()
            texts = session.receives(.connack(Connack(reasonCode: .unsupportedProtocolVersion)))
        } while texts == ["close", "dial a.example"]
        #expect(texts == ["close", "failed"])
        #expect(session.session.machine.reason.code == .unsupportedVersion)
    }

    // MARK: On demand

    @Test func `a subscription connects a session on demand, and its end disconnects it`() throws {
        var session = try SessionUnderTest(idleTimeout: .seconds(1))
        #expect(session.wait(100) == [])
        let consumer = LiveConsumer(
            id: SubscriptionID(rawValue: "s"), filter: try TopicFilter("a/#"), qos: .atLeastOnce)
        #expect(session.take(.consume(consumer, CallID(rawValue: 1))) == ["dial a.example", "connecting"])
        #expect(session.session.machine.reason.code == .demand)
        _ = session.opens()
        #expect(session.receives(.connack(Connack())) == ["send SUBSCRIBE"])
        #expect(session.receives(try suback(.grantedQoS1)) == ["connected"])
        #expect(session.take(.unsubscribe(consumer.id)) == ["send UNSUBSCRIBE"])
        #expect(session.wait(2) == ["disconnecting", "send DISCONNECT", "close"])
        #expect(session.session.machine.reason.code == .idle)
    }

    @Test func `an explicit disconnect of an idle session is not ended by a use`() throws {
        var session = try SessionUnderTest(idleTimeout: .seconds(1))
        #expect(session.take(.disconnect(Reason(.userDisconnect))) == [])
        #expect(session.session.verdict?.reasonCode == "user-disconnect")
        try accept(&session)
        #expect(session.proceed() == [])
        #expect(session.take(.connect(Reason(.userConnect))) == ["dial a.example", "connecting"])
    }

    private func accept(_ session: inout SessionUnderTest) throws {
        let time = Timestamp(rawValue: 0)
        let message = OutboundMessage(topic: "t", payload: ByteBuffer(), qos: .atLeastOnce)
        _ = try session.session.accept(message, at: time)
        session.session.commitAccepted(at: time)
    }

    // MARK: Rooms

    @Test func `a session is restored once the room has its presence`() throws {
        var session = try SessionUnderTest(room: "plant")
        #expect(session.take(.connect(Reason(.userConnect))) == ["dial a.example", "connecting"])
        #expect(session.opens() == ["send CONNECT"])
        #expect(session.receives(.connack(Connack())) == ["send SUBSCRIBE"])
        #expect(
            session.receives(.suback(Suback(packetID: try id(1), reasonCodes: [.grantedQoS1])))
                == ["send PUBLISH \(Self.topic)"])
        #expect(session.receives(.puback(Acknowledgement(packetID: try id(2)))) == ["connected"])
    }

    @Test(arguments: [(ReasonCode.success, "DISCONNECT"), (.notAuthorized, "DISCONNECT with will")])
    func `rule 21: clears its presence before it says goodbye, or leaves with its will`(
        code: ReasonCode, goodbye: String
    ) throws {
        var session = try inRoom()
        #expect(
            session.take(.disconnect(Reason(.userDisconnect)))
                == ["disconnecting", "send PUBLISH \(Self.topic), cleared"])
        let answer = Packet.puback(Acknowledgement(packetID: try id(3), reasonCode: code))
        #expect(session.receives(answer) == ["send \(goodbye)", "close"])
        _ = session.take(.closed(Reason(.serverClosed)))
        #expect(session.session.state == .disconnected)
        #expect(session.session.machine.reason.code == .userDisconnect, "the server has heard it")
        #expect(session.session.machine.reason.message.contains("cleared by hand") == code.isError)
    }

    @Test(arguments: [ProtocolVersion.five, .threeOneOne])
    func `the will for a room that was left is discarded before it can be published`(version: ProtocolVersion) throws {
        var session = try inRoom(version)
        _ = session.take(.join("hall", CallID(rawValue: 1)))
        _ = session.receives(.suback(Suback(packetID: try id(3), reasonCodes: [.grantedQoS1])))
        let texts = session.receives(.puback(Acknowledgement(packetID: try id(4))))
        // Only MQTT 5 has a will delay, within which the session is back.
        let end = version == .five ? ["abort"] : ["send DISCONNECT", "close", "leave"]
        #expect(texts == end + ["dial a.example", "reconnecting"])
    }

    @Test(arguments: [ProtocolVersion.five, .threeOneOne])
    func `a session whose will in another room is refused goes back to its room`(version: ProtocolVersion) throws {
        var session = try inRoom(version)
        _ = session.take(.join("hall", CallID(rawValue: 1)))
        _ = session.receives(.suback(Suback(packetID: try id(3), reasonCodes: [.grantedQoS1])))
        _ = session.receives(.puback(Acknowledgement(packetID: try id(4))))
        _ = session.opens()
        #expect(session.lastConnect?.will?.topic == "p/hall/presence/me/here")
        #expect(session.session.room?.name == "plant")
        var texts = session.receives(.connack(Connack(reasonCode: .notAuthorized)))
        #expect(texts.contains("not joined"))
        _ = try session.waitsForDial(after: texts)
        _ = session.opens()
        #expect(session.lastConnect?.will?.topic == Self.topic)
        texts = session.receives(.connack(Connack(sessionPresent: true)))
        #expect(texts.contains("send PUBLISH p/hall/presence/me/here, cleared"))
        #expect(!texts.contains("send PUBLISH \(Self.topic), cleared"))
        #expect(session.session.room?.name == "plant")
        #expect(session.session.machine.reason.message.contains("room hall"))
    }

    @Test func `a disconnect while the session changes rooms says that its presence stays in the new one`() throws {
        var session = try inRoom()
        _ = session.take(.join("hall", CallID(rawValue: 1)))
        _ = session.receives(.suback(Suback(packetID: try id(3), reasonCodes: [.grantedQoS1])))
        _ = session.receives(.puback(Acknowledgement(packetID: try id(4))))
        _ = session.take(.disconnect(Reason(.userDisconnect)))
        #expect(session.session.machine.reason.code == .goodbyeUnheard)
        #expect(session.session.machine.reason.message.contains("until that is cleared"))
    }

    @Test(arguments: [
        (ReasonCode.unspecifiedError, true), (.implementationSpecificError, true), (.quotaExceeded, true),
        (.serverBusy, false), (.serverShuttingDown, false),
    ])
    func `a session whose will is refused goes back at once, unless the server is not ready`(
        code: ReasonCode, isAtOnce: Bool
    ) throws {
        var session = try inRoom()
        _ = session.take(.join("hall", CallID(rawValue: 1)))
        _ = session.receives(.suback(Suback(packetID: try id(3), reasonCodes: [.grantedQoS1])))
        _ = session.receives(.puback(Acknowledgement(packetID: try id(4))))
        _ = session.opens()
        let texts = session.receives(.connack(Connack(reasonCode: code)))
        #expect(texts.contains("not joined"))
        #expect(texts.contains("dial a.example") == isAtOnce)
    }

    @Test func `a change of rooms ends with the attempt that was to complete it`() throws {
        var session = try inRoom()
        _ = session.take(.join("hall", CallID(rawValue: 1)))
        _ = session.receives(.suback(Suback(packetID: try id(3), reasonCodes: [.grantedQoS1])))
        _ = session.receives(.puback(Acknowledgement(packetID: try id(4))))
        #expect(session.take(.closed(Reason(.refused))) == ["not joined"])
        #expect(session.session.state == .reconnecting)
        _ = try session.waitsForDial()
        _ = session.opens()
        #expect(session.lastConnect?.will?.topic == Self.topic)
    }

    @Test(arguments: [("boot", "plant", "hall"), ("earlier", "plant", "plant"), ("boot", "yard", "plant")])
    func `a chosen room holds until a reboot, or until the file names another room`(
        boot: String, configured: String, room: String
    ) throws {
        var session = try SessionUnderTest(room: "plant") { $0.bootID = "boot" }
        session.session.enterRoom(
            ChosenRoom(room: "hall", configured: configured, bootID: boot), subscribedTo: [])
        #expect(session.session.room?.name == room)
    }

    @Test(arguments: [
        ("boot", "old", true, SessionState.failed), ("boot", "new", false, .connecting),
        ("earlier", "old", true, .connecting), ("earlier", "new", false, .disconnected),
    ])
    func `a failure holds for its boot and its configuration`(
        boot: String, digest: String, autoconnects: Bool, state: SessionState
    ) throws {
        var session = try SessionUnderTest {
            $0.bootID = "boot"
            $0.autoconnects = autoconnects
        }
        let verdict = Verdict(
            state: "failed", reasonCode: "banned", message: "", bootID: boot, since: Timestamp(rawValue: 0),
            configuration: "old")
        let held = session.session.start(StoredSession(mqtt: .init(), verdict: verdict), wasUp: false, under: digest)
        #expect((held != nil) == (state == .failed))
        _ = session.proceed()
        #expect(session.session.state == state)
    }

    @Test func `a room is not joined while the session is not connected`() throws {
        var session = try SessionUnderTest(room: "plant")
        #expect(session.take(.join("hall", CallID(rawValue: 1))) == ["not joined"])
        #expect(session.session.room?.name == "plant")
    }

    @Test func `a room that refuses is not entered, and the session stays`() throws {
        var session = try inRoom()
        #expect(session.take(.join("hall", CallID(rawValue: 1))) == ["send SUBSCRIBE"])
        let texts = session.receives(.suback(Suback(packetID: try id(3), reasonCodes: [.notAuthorized])))
        #expect(texts.first == "not joined")
        #expect(session.session.room?.name == "plant")
    }

    // MARK: Durable consumers

    @Test func `a consumer whose change is refused is as it was before, also in how its filter was given`() throws {
        var session = try inRoom()
        let (name, filter) = (try #require(ConsumerName("billing")), try TopicFilter("p/plant/x"))
        _ = try session.session.attach(SubscriptionID(rawValue: "1"), to: name, filter.string, filter, .atLeastOnce)
        let attaching = try session.session.attach(
            SubscriptionID(rawValue: "2"), to: name, "~/x", filter, .atLeastOnce)
        session.session.answered(attaching, .notAuthorized)
        #expect(session.session.durableConsumers[name]?.text == filter.string)
    }

    @Test func `a refusal does not change a consumer that another program has taken over`() throws {
        var session = try inRoom()
        let (name, filter) = (try #require(ConsumerName("billing")), try TopicFilter("x"))
        let attaching = try session.session.attach(
            SubscriptionID(rawValue: "1"), to: name, "x", filter, .atLeastOnce)
        _ = try session.session.attach(SubscriptionID(rawValue: "2"), to: name, "x", filter, .atLeastOnce)
        #expect(!session.session.holds(attaching))
        session.session.answered(attaching, .notAuthorized)
        #expect(session.session.durableConsumers[name]?.attachment?.subscription == SubscriptionID(rawValue: "2"))
    }

    @Test func `a consumer whose filter stood for nothing does not keep one that is refused`() throws {
        var session = try SessionUnderTest().connected()
        let (name, filter) = (try #require(ConsumerName("billing")), try TopicFilter("x"))
        session.session.durableConsumers.put(name, "~/x", nil, .atLeastOnce)
        let attaching = try session.session.attach(
            SubscriptionID(rawValue: "1"), to: name, "x", filter, .atLeastOnce)
        session.session.answered(attaching, .notAuthorized)
        #expect(session.session.durableConsumers[name]?.text == "~/x")
        #expect(session.session.durableConsumers[name]?.filter == nil)
    }

    // MARK: Looks

    @Test func `a newer device after a close without a reason displaces the session, which clears its presence`() throws
    {
        var session = try looking { $0.take(.closed(Reason(.serverClosed))) }
        let texts = try sees(&session, own(session), other(isNewer: true))
        #expect(texts == ["send PUBLISH \(Self.topic), cleared", "send DISCONNECT", "leave", "displaced", "failed"])
    }

    @Test func `a close without a reason and without another device is an ordinary outage`() throws {
        var session = try looking { $0.take(.closed(Reason(.serverClosed))) }
        var texts = try sees(&session, own(session))
        #expect(texts == ["send DISCONNECT", "leave"])
        // The second look is for a device that has not announced itself yet.
        try look(&session, after: [])
        texts = try sees(&session, own(session))
        #expect(texts == ["send DISCONNECT", "leave", "dial a.example"])
        #expect(session.opens() == ["send CONNECT"])
    }

    @Test func `a server that refuses the look is connected to`() throws {
        var session = try looking { $0.take(.closed(Reason(.serverClosed))) }
        #expect(session.receives(try suback(.notAuthorized)) == ["abort", "dial a.example"])
        #expect(session.opens() == ["send CONNECT"])
    }

    @Test func `a look that is not answered within five seconds is given up, and the session connects`() throws {
        var session = try looking { $0.take(.closed(Reason(.serverClosed))) }
        #expect(session.wait(4) == [])
        #expect(session.wait(1) == ["abort", "dial a.example"])
        #expect(session.toldOf("cannot look") == ["cannot look: no answer"])
        #expect(session.opens() == ["send CONNECT"])
    }

    @Test func `a look whose connection is closed before it was open ends the attempt`() throws {
        var session = try inRoom()
        _ = try waitForDial(&session, after: session.take(.closed(Reason(.serverClosed))))
        let texts = session.take(.closed(Reason(.refused)))
        #expect(!texts.contains("dial a.example"))
        #expect(session.session.machine.reason.code == .refused)
    }

    @Test func `a look at a server that another one named ends no session for good`() throws {
        var session = try SessionUnderTest(room: "plant", redirects: ["c.example"])
        session.dials()
        #expect(session.receives(redirection(.serverMoved, "c.example")) == ["close", "dial c.example"])
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        _ = try session.grants(.grantedQoS1)
        #expect(try session.takes() == ["connected"])
        #expect(try waitForDial(&session, after: session.take(.closed(Reason(.serverClosed)))) == "dial c.example")
        #expect(session.session.looking != nil)
        let texts = session.take(.closed(Reason(.certificateInvalid, "the certificate is not for c.example")))
        let reason = session.session.machine.reason
        #expect(reason.code == .tlsFailed && session.session.state == .reconnecting)
        #expect(reason.message == "the certificate is not for c.example; a redirect led to c.example:8883")
        #expect(try waitForDial(&session, after: texts) == "dial a.example")
    }

    @Test func `a server that asks to be left alone is not looked at either`() throws {
        var session = try inRoom()
        _ = session.take(SessionMachine.Input.pathChanged(EndpointIndex(1), to: nil, .lost))
        _ = try waitForDial(&session, after: session.take(.closed(Reason(.serverClosed))))
        #expect(session.session.looking != nil)
        _ = session.take(.closed(Reason(.webSocketFailed), retryAfter: .seconds(3600)))
        #expect(!session.wait(3599).contains { $0.hasPrefix("dial") })
        #expect(session.wait(1).contains("dial a.example"))
    }

    @Test func `a look whose connection is closed later is given up, and the session connects`() throws {
        var session = try looking { $0.take(.closed(Reason(.serverClosed))) }
        #expect(session.take(.closed(Reason(.reset))) == ["abort", "dial a.example"])
        #expect(session.toldOf("cannot look") == ["cannot look: the connection was closed"])
    }

    @Test func `a session with yield stops for an older device too`() throws {
        var session = try looking(.yield) { $0.receives(.disconnect(Disconnect(reasonCode: .serverShuttingDown))) }
        #expect(try sees(&session, other()).contains("failed"))
        #expect(session.session.machine.reason.code == .yielded)
    }

    @Test func `a session with yield finds a device that announces itself late`() throws {
        var session = try looking(.yield) { $0.take(.closed(Reason(.serverClosed))) }
        let texts = try sees(&session)
        #expect(texts == ["send DISCONNECT", "leave"])
        try look(&session, after: [])
        #expect(try sees(&session, other()).contains("failed"))
        #expect(session.session.machine.reason.code == .yielded)
    }

    @Test func `a session with yield looks only once when the server gave a reason`() throws {
        var session = try looking(.yield) { $0.receives(.disconnect(Disconnect(reasonCode: .serverShuttingDown))) }
        let texts = try sees(&session)
        #expect(texts == ["send DISCONNECT", "leave", "dial b.example"])
        #expect(session.opens() == ["send CONNECT"])
    }

    @Test(arguments: [true, false])
    func `a session that the server reports as taken over clears only its own presence`(isOwn: Bool) throws {
        var session = try looking { $0.receives(.disconnect(Disconnect(reasonCode: .sessionTakenOver))) }
        #expect(session.session.machine.reason.code == .displaced)
        let texts = try sees(&session, isOwn ? own(session) : other(device: "here"))
        #expect(texts == (isOwn ? ["send PUBLISH \(Self.topic), cleared"] : []) + ["send DISCONNECT", "leave"])
    }

    /// A session in the room whose connection has ended, and which has asked who is there.
    private func looking(
        _ strategy: KickStrategy = .takeOver, after end: (inout SessionUnderTest) -> [String]
    ) throws -> SessionUnderTest {
        var session = try inRoom()
        session.session.machine.rivalry.strategy = strategy
        try look(&session, after: end(&session))
        return session
    }

    private func look(_ session: inout SessionUnderTest, after texts: [String]) throws {
        try waitForDial(&session, after: texts)
        #expect(session.opens() == ["send CONNECT c-look"])
        #expect(session.receives(.connack(Connack())) == ["send SUBSCRIBE"])
    }

    /// The look finds these presences.
    private func sees(_ session: inout SessionUnderTest, _ found: Packet...) throws -> [String] {
        let texts = session.receives(found + [try suback(), .pingresp])
        #expect(texts.first == "send PINGREQ")
        return Array(texts.dropFirst())
    }

    private func own(_ session: SessionUnderTest) -> Packet {
        .publish(Publish(topic: Self.topic, payload: session.published[Self.topic] ?? ByteBuffer(), retain: true))
    }

    private func other(device: String = "other", isNewer: Bool = false) -> Packet {
        let time = Timestamp(rawValue: 0)
        let message = PresenceMessage(
            identity: .init(user: "me", device: device), state: .online, since: time, session: "other",
            connection: isNewer ? ConnectionMark(clientID: "c", time: time, random: 7) : nil)
        return .publish(
            Publish(topic: "p/plant/presence/me/\(device)", payload: ByteBuffer(bytes: message.bytes), retain: true))
    }

    // MARK: Credentials

    @Test func `a new token reconnects at once, without fetching anything`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(.login(try role(session)), me))
        _ = session.opens()
        #expect(session.receives(.connack(Connack())) == ["connected"])
        #expect(session.take(.credentialGiven(me)) == [], "the server has it")
        #expect(session.take(.credentialGiven(other)) == ["abort", "dial a.example", "reconnecting"])
        #expect(session.opens() == ["send CONNECT other"])
    }

    @Test func `a token that the server rejects is told, and the configured credential is used`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(.login(try role(session)), me))
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        _ = session.take(.credentialGiven(other))
        _ = session.opens()
        #expect(session.receives(.connack(Connack(reasonCode: .notAuthorized))) == ["close", "fetch"])
        #expect(session.told.contains { $0.hasPrefix("credential not renewed: the server rejected the token") })
        _ = session.take(.fetched(.login(try role(session)), me))
        _ = session.opens()
        _ = session.receives(.connack(Connack(sessionPresent: true)))
        #expect(session.session.state == .connected)
        #expect(session.session.machine.reason.code == .credentialRenewed)
    }

    // MARK: Restarts of the daemon

    @Test(arguments: [("boot", true), ("another", false)])
    func `a session that does not connect on its own does so if it was started in the same boot`(
        bootID: String, isStarted: Bool
    ) throws {
        var session = try SessionUnderTest { $0.bootID = "boot" }
        #expect(session.session.machine.reason.code == .notStarted)
        _ = session.take(.connect(Reason(.userConnect)))
        let verdict = try #require(session.session.verdict)
        #expect(session.remembered == [.setVerdict(verdict)])
        _ = session.take(.closed(Reason(.refused)))
        #expect(session.remembered == [])
        var next = try SessionUnderTest { $0.bootID = bootID }
        #expect(next.session.start(StoredSession(mqtt: .init(), verdict: verdict), wasUp: false, under: "") == nil)
        #expect(next.proceed().contains("connecting") == isStarted)
        #expect(next.session.machine.reason.code == (isStarted ? .userConnect : .notStarted))
        // In another boot, it can be started again.
        _ = next.take(.connect(Reason(.userConnect)))
        #expect(next.session.verdict?.bootID == bootID)
        // What a person says last holds.
        _ = next.take(.disconnect(Reason(.userDisconnect)))
        #expect(next.session.verdict?.state == "disconnected")
    }

    @Test func `a start outlives a failure, a new configuration and a restart`() throws {
        var session = try SessionUnderTest { $0.bootID = "boot" }
        session.dials()
        _ = session.receives(.connack(Connack(reasonCode: .banned)))
        let failed = try #require(session.session.verdict)
        #expect(failed.isFailure && failed.isStarted)
        #expect(failed.withoutFailure.state == "connected-after-start")
        var next = try SessionUnderTest(verdict: failed) { $0.bootID = "boot" }
        var stored = StoredSession(mqtt: .init(), verdict: failed)
        stored.verdict?.configuration = "old"
        #expect(next.session.start(stored, wasUp: false, under: "new") == nil)
        #expect(next.proceed().contains("connecting"))
        let started = try #require(next.session.verdict)
        #expect(started.state == "connected-after-start")
        next = try SessionUnderTest(verdict: started) { $0.bootID = "boot" }
        #expect(next.session.start(StoredSession(mqtt: .init(), verdict: started), wasUp: false, under: "new") == nil)
        #expect(next.proceed().contains("connecting"))
    }

    /// A reload, or a start of the daemon with the changed file, begins the session again. Then the daemon is killed.
    @Test(arguments: [true, false], [true, false])
    func `a session that had yielded looks again after a change of its file, also if the daemon is killed`(
        isReload: Bool, wasStarted: Bool
    ) throws {
        let failure = Verdict(
            state: Verdict.state(.failed, isStarted: wasStarted), reasonCode: "yielded", message: "", bootID: "boot",
            since: Timestamp(rawValue: 0), configuration: "old")
        var verdict: Verdict? = isReload ? failure.withoutFailure : failure
        for isFirst in [true, false] {
            var session = try SessionUnderTest(room: "plant", verdict: verdict) {
                ($0.bootID, $0.autoconnects) = ("boot", !wasStarted)
            }
            session.session.machine.rivalry.strategy = .yield
            let stored = StoredSession(mqtt: .init(), verdict: verdict)
            #expect(session.session.start(stored, wasUp: isFirst && isReload, under: "new") == nil)
            _ = try session.waitsForDial(after: session.proceed())
            #expect(session.session.looking != nil)
            verdict = session.session.verdict
        }
        // Somebody who asks for it takes the session over.
        var session = try SessionUnderTest(room: "plant", verdict: failure) { $0.bootID = "boot" }
        session.session.machine.rivalry.strategy = .yield
        let stored = StoredSession(mqtt: .init(), verdict: failure)
        #expect(session.session.start(stored, wasUp: false, under: "old") != nil)
        _ = session.take(.connect(Reason(.userConnect)))
        #expect(session.session.looking == nil && session.session.verdict?.state == "connecting")
    }

    /// As after the package of a later version was replaced by an earlier one.
    @Test(arguments: ["resting", "resting-after-start"])
    func `a verdict for which this version has no word keeps no session down`(state: String) throws {
        let verdict = Verdict(
            state: state, reasonCode: "something", message: "", bootID: "boot", since: Timestamp(rawValue: 0))
        var session = try SessionUnderTest(verdict: verdict) {
            ($0.bootID, $0.autoconnects) = ("boot", state == "resting")
        }
        let stored = StoredSession(mqtt: .init(), verdict: verdict)
        #expect(session.session.start(stored, wasUp: false, under: "") == nil)
        #expect(session.proceed().contains("connecting"))
    }

    @Test func `only a command starts a session for good: not an earlier configuration, nor an outage`() throws {
        var session = try SessionUnderTest { $0.bootID = "boot" }
        #expect(session.session.start(StoredSession(mqtt: .init()), wasUp: true, under: "") == nil)
        #expect(session.proceed().contains("connecting"))
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        _ = session.take(.closed(Reason(.reset)))
        #expect(session.session.state == .reconnecting && session.session.verdict?.state == "lost")
        _ = session.take(.connect(Reason(.userConnect)))
        #expect(session.session.verdict?.state == "lost-after-start", "although it was up already")
    }

    @Test func `a full reconnect that was asked for is not forgotten over a restart`() throws {
        var session = try SessionUnderTest().connected()
        _ = session.take(.machine(.reconnect(.full)))
        #expect(!session.session.mqtt.hasSession, "nothing claims it")
    }

    /// The same configuration and the same second: nothing but a goodbye that was not heard is left of the earlier run.
    @Test(arguments: [(UInt16?.none, "188 s"), (600, "998 s"), (0, "notices that the connection is gone")])
    func `how long others may see an earlier run depends on the keep-alive that the server had set`(
        keepAlive: UInt16?, expected: String
    ) throws {
        var earlier = try SessionUnderTest(room: "plant")
        earlier.dials()
        _ = earlier.receives(.connack(Connack(properties: .init(serverKeepAlive: keepAlive))))
        var stored = StoredSession(mqtt: .init())
        for case .setHomes(let homes) in earlier.remembered { stored.homes = homes }
        stored.presenceTopics = [Self.topic]
        var session = try SessionUnderTest(room: "plant", homes: stored.homes)
        _ = session.session.start(stored, wasUp: false, under: "")
        _ = session.take(.disconnect(Reason(.userDisconnect)))
        #expect(session.session.machine.reason.code == .goodbyeUnheard)
        #expect(session.session.machine.reason.message.contains(expected), "\(session.session.machine.reason)")
    }

    /// The daemon is killed before the server has taken the clearing of the presence.
    @Test(arguments: [0, 3_600_000] as [Int64])
    func `a disconnect during which the daemon is killed was not heard, also if the clock is set`(step: Int64) throws {
        var session = try inRoom { $0.bootID = "boot" }
        _ = session.wait(10)
        #expect(session.take(.disconnect(Reason(.userDisconnect))).first == "disconnecting")
        let verdict = try #require(session.session.verdict)
        #expect(verdict.reasonCode == "goodbye-unheard" && verdict.state == "disconnected")
        if step != 0 {
            let range = Timestamp(rawValue: 0)...session.time
            session.clockOffset = step
            _ = session.take(.mqtt(.clockStepped(by: step, acceptedWithin: range)))
        }
        let shifted = try #require(session.session.verdict)
        #expect(shifted.since.rawValue == verdict.since.rawValue + step)
        #expect(session.remembered.last { if case .setVerdict = $0 { true } else { false } } == .setVerdict(shifted))
        var stored = StoredSession(mqtt: .init())
        stored.verdict = shifted
        stored.presenceTopics = [Self.topic]
        var next = try SessionUnderTest(room: "plant") { $0.bootID = "boot" }
        next.clockOffset = step
        _ = next.wait(20)
        _ = next.ask { $0.start(stored, wasUp: false, under: "") }
        // 1.5 times 60 s, 8 s and the will delay of 90 s, after the 5 s that the flush and the goodbye may take.
        for _ in 0..<2 {
            #expect(next.session.machine.reason.code == .goodbyeUnheard)
            #expect(next.session.machine.reason.message.hasSuffix("for up to 193 s from then on"))
            _ = next.take(.disconnect(Reason(.userDisconnect)))
        }
        #expect(next.session.verdict?.since == nil || next.session.verdict?.since == shifted.since)
        // Of which 10 s are over.
        #expect(next.ask { $0.leftBehind() }?.contains("for up to 183 s from") == true)
    }

    @Test func `a disconnect that the server has heard is remembered as that`() throws {
        var session = try inRoom()
        _ = session.take(.disconnect(Reason(.userDisconnect)))
        // The first one is that of the presence, which is answered already.
        _ = try session.takes()
        #expect(try session.takes() == ["send DISCONNECT", "close"])
        _ = session.take(.closed(Reason(.userDisconnect)))
        #expect(session.session.verdict?.reasonCode == "user-disconnect")
    }

    @Test(arguments: [nil, "goodbye-unheard", "user-disconnect", "displaced"])
    func `a disconnect after a restart says how long others may see what the earlier run announced`(
        code: String?
    ) throws {
        var session = try SessionUnderTest(room: "plant") { $0.bootID = "boot" }
        var stored = StoredSession(mqtt: .init())
        stored.presenceTopics = [Self.topic]
        stored.verdict = code.map {
            Verdict(
                state: $0 == "displaced" ? "failed" : "disconnected", reasonCode: $0, message: "", bootID: "boot",
                since: Timestamp(rawValue: -100_000))
        }
        _ = session.session.start(stored, wasUp: false, under: "")
        _ = session.proceed()
        _ = session.take(.disconnect(Reason(.userDisconnect)))
        let reason = session.session.machine.reason
        // 1.5 times 60 s, 8 s and the will delay of 90 s; after a verdict, 100 s of them are over. A disconnect may have taken
        // 5 s more, and what was said of the first one still holds.
        let left = session.ask { $0.leftBehind() }
        switch code {
        case "user-disconnect": #expect(reason.code == .userDisconnect)
        case nil: #expect(reason.message.hasSuffix("for up to 188 s from then on"))
        case "goodbye-unheard": #expect(reason.message.isEmpty && left?.contains("for up to 93 s from") == true)
        default: #expect(reason.message.hasSuffix("for up to 88 s from then on"))
        }
        #expect((reason.code == .goodbyeUnheard) == (code != "user-disconnect"))
        _ = session.wait(200)
        _ = session.take(.disconnect(Reason(.userDisconnect)))
        #expect(session.session.machine.reason.code == .userDisconnect, "it is over")
    }

    @Test func `a rejected credential is fetched once more, and a different one is sent once`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(.login(try role(session)), me))
        _ = session.opens()
        #expect(session.receives(.connack(Connack(reasonCode: .notAuthorized))) == ["close", "fetch"])
        #expect(session.take(.fetched(.login(try role(session)), other)) == ["dial a.example"])
        #expect(session.opens() == ["send CONNECT other"])
        #expect(session.receives(.connack(Connack(reasonCode: .notAuthorized))) == ["close", "failed"])
    }

    @Test func `a rejected credential is fetched once more, and the same one fails the session`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(.login(try role(session)), me))
        _ = session.opens()
        #expect(session.receives(.connack(Connack(reasonCode: .badUserNameOrPassword))) == ["close", "fetch"])
        #expect(session.take(.fetched(.login(try role(session)), me)) == ["failed"])
        #expect(session.session.verdict?.reasonCode == "credential-rejected")
    }

    @Test func `an expired credential that is rejected is reported as expired`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        let ended = SessionCredential(secret: me.secret, end: .byBootClock(Instant(nanoseconds: 0)))
        _ = session.take(.fetched(.login(try role(session)), ended))
        _ = session.opens()
        _ = session.receives(.connack(Connack(reasonCode: .notAuthorized)))
        #expect(session.session.link?.attempt.rejection?.code == .credentialExpired)
    }

    // MARK: Knocks and successors

    @Test func `an attempt goes on with the connection of an answered knock`() throws {
        var session = try SessionUnderTest()
        _ = session.take(.connect(Reason(.userConnect)))
        var texts = session.take(.closed(Reason(.refused)))
        while !texts.contains("knock at a.example") {
            texts = session.wait(1)
            if texts == ["dial a.example"] || texts == ["dial b.example"] {
                texts = session.take(.closed(Reason(.refused)))
            }
        }
        #expect(try waitForDial(&session, after: session.take(.reached)).hasSuffix("with the knock"))
        #expect(session.opens() == ["send CONNECT"])
    }

    @Test func `a connection that takes over is dialed beside the one in use`() throws {
        var session = try SessionUnderTest().connected()
        let old = session.dialed
        var moved = SessionUnderTest.path
        moved.source = "198.51.100.2"
        let first = EndpointIndex(0)
        let change = SessionMachine.Input.pathChanged(
            first, from: SessionUnderTest.path, to: moved, .movedSourceKept)
        #expect(session.take(.machine(change)) == ["dial a.example", "send PINGREQ"])
        #expect(session.session.link?.connection == old)
        #expect(session.take(.opened(SessionUnderTest.peer)) == ["send PINGREQ"], "behind what was sent on the old one")
        #expect(
            session.take(.connection(old, .received(encoded(.pingresp, .pingresp))))
                == ["send DISCONNECT", "close", "leave", "reconnecting", "send CONNECT"])
    }

    // MARK: Helpers

    private func suback(_ code: ReasonCode = .success) throws -> Packet {
        .suback(Suback(packetID: try id(1), reasonCodes: [code]))
    }

    /// - Returns: what is dialed.
    @discardableResult
    private func waitForDial(_ session: inout SessionUnderTest, after texts: [String]) throws -> String {
        var texts = texts
        let isDial = { (text: String) in text.hasPrefix("dial") }
        for _ in 0..<60 where !texts.contains(where: isDial) { texts = session.wait(1) }
        return try #require(texts.first(where: isDial))
    }

    private func id(_ number: UInt16) throws -> PacketID { try #require(PacketID(rawValue: number)) }

    /// A session that is connected, in the room `plant`.
    private func inRoom(
        _ version: ProtocolVersion = .five, _ change: (inout SessionSettings) -> Void = { _ in }
    ) throws -> SessionUnderTest {
        var session = try SessionUnderTest(room: "plant", version: version, change)
        session.dials()
        _ = session.receives(.connack(Connack()))
        _ = session.receives(.suback(Suback(packetID: try id(1), reasonCodes: [.grantedQoS1])))
        #expect(session.receives(.puback(Acknowledgement(packetID: try id(2)))) == ["connected"])
        return session
    }

    // MARK: More ends

    @Test func `a disconnect of a session that is about to rest is remembered`() throws {
        var session = try SessionUnderTest(idleTimeout: .seconds(1)).connected()
        #expect(session.wait(2) == ["disconnecting", "send DISCONNECT", "close"])
        #expect(session.session.verdict?.state == "connected")
        _ = session.take(.disconnect(Reason(.userDisconnect)))
        #expect(session.session.verdict?.reasonCode == "user-disconnect")
    }

    @Test func `nothing is held of a look that could not be made`() throws {
        var session = try inRoom()
        _ = try session.waitsForDial(after: session.take(.closed(Reason(.serverClosed))))
        #expect(session.session.looking != nil)
        #expect(session.take(.closed(Reason(.refused))).contains("abort"))
        #expect(session.session.looking == nil)
    }
}
