import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Testing

@testable import Session

/// What several of a session's values have to do with each other, one line per step.
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

    @Test func `a secret that comes too late is not used`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        #expect(session.take(.connect(Reason(.userConnect))) == ["fetch", "connecting"])
        let late = try role(session)
        #expect(session.take(.reconnect(nil)) == ["fetch"])
        #expect(session.take(.fetched(.login(late), me)) == [])
        #expect(session.take(.fetched(.login(try role(session)), me)) == ["dial a.example"])
    }

    @Test func `without a secret there is no attempt`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        #expect(session.take(.notFetched(.login(try role(session)), "no such file")) == [])
        #expect(session.session.machine.reason.message == "the password cannot be read: no such file")
        #expect(session.session.link == nil)
    }

    // MARK: Ends

    @Test func `what takes the link's place is dialed before the protocol hears of the end`() throws {
        var session = try SessionUnderTest().connected()
        let old = session.dialed
        session.session.take(.machine(.renew(Reason(.credentialRenewed))))
        let moment = session.session.moment
        _ = session.session.next(at: moment)
        var actions: [Session.Action] = []
        session.session.exchangeActions(&actions)
        let dials = actions.contains { if case .dial = $0 { true } else { false } }
        #expect(dials)
        #expect(session.session.mqtt.isConnected, "of the old connection")
        _ = session.goOn()
        #expect(!session.session.mqtt.isConnected)
        #expect(session.take(.connection(old, .closed(Reason(.reset)))) == [], "nobody looks at it")
    }

    @Test func `what the server said before it closed comes first`() throws {
        var session = try SessionUnderTest().connected()
        session.session.take(
            .connection(session.dialed, .received(bytes(.disconnect(Disconnect(reasonCode: .serverBusy))))))
        session.session.take(.connection(session.dialed, .closed(Reason(.serverClosed))))
        #expect(session.goOn() == ["close", "reconnecting"])
        #expect(session.session.machine.reason.code == .serverBusy)
    }

    @Test func `a disconnect waits for what was accepted`() throws {
        var session = try SessionUnderTest().connected()
        _ = try session.session.accept(
            OutboundMessage(topic: "t", payload: ByteBuffer(), qos: .atLeastOnce), at: Timestamp(rawValue: 0))
        session.session.goOnWithAccepted(at: Timestamp(rawValue: 0))
        #expect(session.goOn() == ["send PUBLISH t"])
        #expect(session.take(.disconnect(Reason(.userDisconnect))) == ["disconnecting"])
        #expect(
            session.receives(.puback(Acknowledgement(packetID: try id(1))))
                == ["send DISCONNECT", "close"])
        #expect(session.take(.closed(Reason(.userDisconnect))) == ["disconnected"])
        #expect(session.session.verdict?.state == "disconnected")
    }

    // MARK: Rooms

    @Test func `a session is restored when the room has its presence`() throws {
        var session = try SessionUnderTest(room: "plant")
        #expect(session.take(.connect(Reason(.userConnect))) == ["dial a.example", "connecting"])
        #expect(session.opens() == ["send CONNECT"])
        #expect(session.receives(.connack(Connack())) == ["send SUBSCRIBE"])
        #expect(
            session.receives(.suback(Suback(packetID: try id(1), reasonCodes: [.grantedQoS1])))
                == ["send PUBLISH \(Self.topic)"])
        #expect(session.receives(.puback(Acknowledgement(packetID: try id(2)))) == ["connected"])
    }

    @Test func `a session that leaves takes its presence away before it says goodbye`() throws {
        var session = try inRoom()
        #expect(
            session.take(.disconnect(Reason(.userDisconnect))) == ["disconnecting", "send PUBLISH \(Self.topic)"])
        #expect(session.receives(.puback(Acknowledgement(packetID: try id(3)))) == ["send DISCONNECT", "close"])
    }

    @Test func `a room that refuses is not entered, and the session stays`() throws {
        var session = try inRoom()
        #expect(session.take(.join(Room(prefix: "p", name: "hall"), CallID(rawValue: 1))) == ["send SUBSCRIBE"])
        let texts = session.receives(.suback(Suback(packetID: try id(3), reasonCodes: [.notAuthorized])))
        #expect(texts.first == "not joined")
        #expect(session.session.rooms.membership?.room.name == "plant")
    }

    // MARK: Credentials

    @Test func `a token is taken to the server at once, and nothing is fetched for it`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(.login(try role(session)), me))
        _ = session.opens()
        #expect(session.receives(.connack(Connack())) == ["connected"])
        #expect(session.take(.credentialGiven(me)) == [], "the server has it")
        #expect(session.take(.credentialGiven(other)) == ["abort", "dial a.example", "reconnecting"])
        #expect(session.opens() == ["send CONNECT other"])
    }

    @Test func `a rejected credential is fetched once more, and the same one ends the session`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(.login(try role(session)), me))
        _ = session.opens()
        #expect(session.receives(.connack(Connack(reasonCode: .badUserNameOrPassword))) == ["close", "fetch"])
        #expect(session.take(.fetched(.login(try role(session)), me)) == ["failed"])
        #expect(session.session.verdict?.reasonCode == "credential-rejected")
    }

    @Test func `a credential that has ended gives its name to the rejection`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        let ended = SessionCredential(secret: me.secret, end: .byBootClock(Instant(nanoseconds: 0)))
        _ = session.take(.fetched(.login(try role(session)), ended))
        _ = session.opens()
        _ = session.receives(.connack(Connack(reasonCode: .notAuthorized)))
        #expect(session.session.link?.attempt.rejection?.code == .credentialExpired)
    }

    // MARK: Knocks and successors

    @Test func `an attempt goes on with the connection of a knock`() throws {
        var session = try SessionUnderTest()
        _ = session.take(.connect(Reason(.userConnect)))
        var texts = session.take(.closed(Reason(.refused)))
        while !texts.contains("knock at a.example") {
            texts = session.wait(1)
            if texts == ["dial a.example"] || texts == ["dial b.example"] {
                texts = session.take(.closed(Reason(.refused)))
            }
        }
        texts = session.take(.reached)
        while texts.isEmpty { texts = session.wait(1) }
        #expect(texts.first?.hasSuffix("with the knock") == true)
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
            session.take(.connection(old, .received(bytes(.pingresp, .pingresp))))
                == ["send DISCONNECT", "close", "leave", "reconnecting", "send CONNECT"])
    }

    // MARK: Helpers

    private func id(_ number: UInt16) throws -> PacketID { try #require(PacketID(rawValue: number)) }

    private func bytes(_ packets: Packet...) -> ByteBuffer {
        var bytes = ByteBuffer()
        for packet in packets { packet.encode(into: &bytes, as: .five) }
        return bytes
    }

    /// A session that is connected, in the room `plant`.
    private func inRoom() throws -> SessionUnderTest {
        var session = try SessionUnderTest(room: "plant")
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        _ = session.receives(.suback(Suback(packetID: try id(1), reasonCodes: [.grantedQoS1])))
        #expect(session.receives(.puback(Acknowledgement(packetID: try id(2)))) == ["connected"])
        return session
    }
}
