import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Session

/// The connections of a session: what is read from them, which addresses are watched, and how one takes over from
/// another. One line per step.
struct SessionLinkTests {
    private static let first = EndpointIndex(0)
    private static let moved: Path = {
        var path = SessionUnderTest.path
        path.source = "198.51.100.2"
        return path
    }()

    @Test func `the status says how far an attempt is`() throws {
        var session = try SessionUnderTest(room: "plant")
        _ = session.take(.connect(Reason(.userConnect)))
        var phases = [session.session.machine.status.phase]
        for event in [DialEvent.dialing, .securing, .opened(SessionUnderTest.peer)] {
            _ = session.take(event)
            phases.append(session.session.machine.status.phase)
        }
        _ = session.receives(.connack(Connack()))
        phases.append(session.session.machine.status.phase)
        #expect(phases == [.resolving, .dialing, .securing, .authenticating, .restoring])
    }

    @Test func `the status says whether an attempt waits for its password`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        #expect(session.session.machine.awaitsCredential == true)
        #expect(session.session.machine.awaitsTurn == false)
        _ = session.take(.fetchQueued(try #require(session.fetched)))
        #expect(session.session.machine.awaitsTurn == true)
        _ = session.take(.fetchBegun(try #require(session.fetched)))
        #expect(session.session.machine.awaitsTurn == false)
        #expect(session.session.machine.awaitsCredential == true)
        let credential = SessionCredential(secret: Array("me".utf8))
        _ = session.take(.fetched(try #require(session.fetched), credential))
        #expect(session.session.machine.awaitsCredential == false)
        _ = session.take(.dialing)
        #expect(session.session.machine.awaitsCredential == nil)
    }

    // MARK: Reading

    /// What the server has not taken yet may be this much, while the session goes on reading.
    private static let limit = 256 << 10

    /// The session sends a SUBSCRIBE of this many bytes, which the kernel does not take.
    private func fill(_ session: inout SessionUnderTest, _ bytes: Int) throws -> [String] {
        // The fixed header has 4 bytes, the identifiers of packet and subscription 2 and 6, the filter's length 2 and its
        // options 1.
        let filter = try TopicFilter(String(repeating: "a", count: bytes - 15))
        let before = session.session.link?.flow.unflushed ?? 0
        let consumer = LiveConsumer(id: SubscriptionID(rawValue: "s"), filter: filter, qos: .atMostOnce)
        let texts = session.take(.consume(consumer, CallID(rawValue: 1)))
        #expect(session.session.link?.flow.unflushed == before + bytes)
        return texts
    }

    @Test func `a server that does not read is not read from, until it has taken half`() throws {
        var session = try SessionUnderTest().connected()
        _ = session.flushed(session.session.link?.flow.unflushed ?? 0, on: session.dialed)
        for _ in 0..<4 { #expect(try fill(&session, Self.limit / 4 - 1) == ["send SUBSCRIBE"]) }
        #expect(session.receives(.pingresp) == [])
        #expect(session.take(.mqtt(.ping)) == ["send PINGREQ"])
        #expect(session.take(.mqtt(.ping)) == ["send PINGREQ"], "that much may wait")
        #expect(session.take(.mqtt(.ping)) == ["send PINGREQ", "pause"])
        #expect(session.flushed(Self.limit / 2 + 1, on: session.dialed) == false)
        #expect(session.flushed(2, on: DialID(rawValue: 99)) == false, "that is another connection")
        #expect(session.flushed(1, on: session.dialed) == true)
        #expect(session.proceed() == ["read"])
    }

    @Test func `reading resumes when the server has taken enough, not when something last happened`() throws {
        var session = try SessionUnderTest().connected()
        _ = session.flushed(session.session.link?.flow.unflushed ?? 0, on: session.dialed)
        for _ in 0..<4 { _ = try fill(&session, Self.limit / 4) }
        #expect(session.take(.mqtt(.ping)) == ["send PINGREQ", "pause"])
        let paused = session.now
        _ = session.wait(3)
        #expect(session.flushed(Self.limit, on: session.dialed) == true)
        #expect(session.session.link?.flow.resumedAt == paused.advanced(by: .seconds(3)))
    }

    @Test func `the session's own messages on a slow link are no reason to stop reading`() throws {
        var session = try SessionUnderTest().connected()
        let message = OutboundMessage(topic: "t", payload: ByteBuffer(repeating: 1, count: 2 * Self.limit))
        _ = try session.session.accept(message, at: session.time)
        session.session.commitAccepted(at: session.time)
        #expect(session.proceed() == ["send PUBLISH t"])
    }

    @Test func `what the server sent before it closed is handled in turns, and then the end`() throws {
        var session = try SessionUnderTest().connected()
        session.session.mqtt.configuration.packetsPerInput = 2
        let flood = (1...5).map { Packet.publish(Publish(topic: "t", payload: ByteBuffer(string: "\($0)"))) }
        #expect(session.receives(flood) == ["read on later", "pause"])
        #expect(session.take(.closed(Reason(.serverClosed))) == [])
        let generation = try #require(session.session.link?.generation)
        #expect(session.take(.readOn(Generation(rawValue: 99))) == [], "that is another connection")
        #expect(session.take(.readOn(generation)) == ["read on later"])
        #expect(session.session.state == .connected)
        #expect(session.take(.readOn(generation)).contains("reconnecting"))
        #expect(session.session.counts.received == 5)
    }

    @Test func `what arrived before the host slept, and is read after that, does not answer the probe`() throws {
        var session = try SessionUnderTest().connected()
        session.session.mqtt.configuration.packetsPerInput = 2
        let flood = (1...5).map { Packet.publish(Publish(topic: "t", payload: ByteBuffer(string: "\($0)"))) }
        #expect(session.receives(flood) == ["read on later", "pause"])
        session.sleep(.seconds(120))
        let generation = try #require(session.session.link?.generation)
        for _ in 1...2 {
            _ = session.take(.readOn(generation))
            #expect(session.session.machine.status.doubt == .probing)
        }
        #expect(session.session.counts.received == 5)
        _ = session.receives(.pingresp)
        #expect(session.session.machine.status.doubt == nil)
    }

    // MARK: Addresses and paths

    private func address(_ text: String) throws -> SocketAddress { try SocketAddress(ipAddress: text, port: 0) }

    @Test func `the addresses of a name are watched until one of them is connected, and again after that`() throws {
        var session = try SessionUnderTest()
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.resolved([try address("192.0.2.8"), try address("192.0.2.9")]))
        #expect(session.toldOf("watch 0") == ["watch 0: 192.0.2.8 192.0.2.9"])
        _ = session.opens()
        #expect(session.toldOf("watch 0") == ["watch 0: 192.0.2.9"])
        #expect(session.receives(.connack(Connack())) == ["connected"])
        _ = session.take(.closed(Reason(.reset)))
        #expect(session.toldOf("watch 0") == ["watch 0: 192.0.2.8 192.0.2.9"])
    }

    @Test func `all addresses are watched again when this host gives the connection up`() throws {
        var session = try SessionUnderTest()
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.resolved([try address("192.0.2.8"), try address("192.0.2.9")]))
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        _ = session.take(.reconnect(nil))
        #expect(session.toldOf("watch 0") == ["watch 0: 192.0.2.8 192.0.2.9"])
    }

    @Test func `a path to newly watched addresses ends the wait for the network`() throws {
        var session = try SessionUnderTest()
        for endpoint in [0, 1] {
            _ = session.take(.pathChanged(EndpointIndex(endpoint), to: nil, .lost))
        }
        _ = session.take(.connect(Reason(.userConnect)))
        #expect(session.session.machine.status.phase == .waitingForNetwork)
        #expect(session.take(.pathFound(Self.first, nil, excluded: nil)) == [])
        #expect(session.take(.pathFound(Self.first, SessionUnderTest.path, excluded: nil)) == ["dial a.example"])
    }

    @Test func `a path to newly watched addresses is no event for a session that is connected`() throws {
        var session = try SessionUnderTest().connected()
        #expect(session.take(.pathFound(Self.first, Self.moved, excluded: nil)) == [])
        #expect(session.session.machine.path(to: Self.first) == Self.moved)
    }

    @Test(arguments: [true, false])
    func `a bound session that waits says which network it must not use`(isBound: Bool) throws {
        var session = try SessionUnderTest { $0.isBound = isBound }
        for endpoint in [0, 1] {
            _ = session.take(.pathChanged(EndpointIndex(endpoint), to: nil, .lost))
        }
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.pathFound(Self.first, nil, excluded: SessionUnderTest.path))
        #expect((session.session.machine.reason.code == .networkNotAllowed) == isBound)
    }

    // MARK: Knocks

    @Test func `an attempt continues on the connection of a knock, whose own events no longer count`() throws {
        var session = try SessionUnderTest()
        var texts = session.take(.connect(Reason(.userConnect)))
        for _ in 0..<600 where !texts.contains(where: { $0.hasPrefix("knock") }) {
            let isDialed = texts.contains { $0.hasPrefix("dial") }
            texts = isDialed ? session.take(.closed(Reason(.unreachable))) : session.wait(1)
        }
        try #require(texts.contains { $0.hasPrefix("knock") })
        let knock = session.dialed
        #expect(session.session.connections.role(of: knock) != nil)
        let dialed = try session.waitsForDial(after: session.take(.reached))
        #expect(dialed.hasSuffix("with the knock"))
        #expect(session.session.connections.role(of: knock) == nil)
        #expect(session.take(.connection(knock, .closed(Reason(.reset)))) == [])
    }

    @Test(arguments: [true, false])
    func `a knock from a connection asks the server behind the proxy`(isConnected: Bool) throws {
        var session = try SessionUnderTest { $0.proxy = .some(needsLogin: false, hasPassword: false) }
        if isConnected { session = session.connected() }
        let knocks: [Bool] = session.ask { session in
            session.knock(at: Self.first)
            var actions: [Session.Action] = []
            session.exchangeActions(&actions)
            return actions.compactMap { action in
                guard case .dial(_, let target) = action, case .knock(let isBehindProxy, _) = target.goal else {
                    return nil
                }
                return isBehindProxy
            }
        }
        #expect(knocks == [isConnected])
    }

    // MARK: Successors

    private func moves(_ session: inout SessionUnderTest) -> [String] {
        session.take(.pathChanged(Self.first, from: SessionUnderTest.path, to: Self.moved, .movedSourceKept))
    }

    @Test(
        arguments: [
            (DialEvent.closed(Reason(.refused)), []), (.received(ByteBuffer(string: "SSH-2.0")), ["abort"]),
        ] as [(DialEvent, [String])])
    func `a successor that fails leaves the connection in use as it is`(event: DialEvent, texts: [String]) throws {
        var session = try SessionUnderTest().connected()
        let old = session.dialed
        #expect(moves(&session) == ["dial a.example", "send PINGREQ"])
        #expect(session.take(event) == texts)
        #expect(session.toldOf("successor").count == 1)
        #expect(session.session.connections.successor == nil)
        #expect(session.take(.connection(old, .received(encoded(.pingresp)))) == [])
        #expect(session.session.link?.connection == old && session.session.state == .connected)
    }

    @Test func `a successor is dropped when the session disconnects`() throws {
        var session = try SessionUnderTest().connected()
        _ = moves(&session)
        let texts = session.take(.disconnect(Reason(.userDisconnect)))
        #expect(texts == ["disconnecting", "send DISCONNECT", "close", "abort"])
        #expect(session.session.connections.successor == nil)
    }

    @Test func `a successor has a credential of its own, and goes on if the old connection breaks meanwhile`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(try #require(session.fetched), SessionCredential(secret: Array("me".utf8))))
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        let old = session.dialed
        #expect(moves(&session) == ["fetch", "send PINGREQ"])
        let ends = SessionCredential(
            secret: Array("other".utf8), end: .byBootClock(Instant(nanoseconds: 100_000_000_000)))
        #expect(session.take(.fetched(try #require(session.fetched), ends)) == ["dial a.example"])
        #expect(session.take(.connection(old, .closed(Reason(.reset)))) == ["reconnecting"])
        #expect(session.opens() == ["send CONNECT other"])
        #expect(session.receives(.connack(Connack())) == ["connected"])
        #expect(session.session.credentialEnd == Timestamp(rawValue: 100_000))
    }

    @Test func `a successor whose credential cannot be read is given up`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(try #require(session.fetched), SessionCredential(secret: Array("me".utf8))))
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        _ = moves(&session)
        #expect(session.take(.notFetched(try #require(session.fetched), "no such file")) == [])
        #expect(session.toldOf("successor").count == 1)
        #expect(session.session.state == .connected)
    }

    @Test(arguments: [(ProtocolVersion.five, true), (.five, false), (.threeOneOne, true)])
    func `a connection that is left for another one keeps its will for the room, if the server can delay it`(
        version: ProtocolVersion, isInRoom: Bool
    ) throws {
        var session = try SessionUnderTest(room: isInRoom ? "plant" : nil, version: version)
        session.dials()
        _ = session.receives(.connack(Connack()))
        if isInRoom {
            _ = try session.grants(.grantedQoS1)
            #expect(try session.takes() == ["connected"])
        }
        let old = session.dialed
        _ = moves(&session)
        _ = session.opens()
        let goodbye = isInRoom && version == .five ? "send DISCONNECT with will" : "send DISCONNECT"
        #expect(
            session.take(.connection(old, .received(encoded(.pingresp, .pingresp)))) == [
                goodbye, "close", "leave", "reconnecting", "send CONNECT",
            ])
    }

    @Test func `a server cannot have been restarted during a hand-over, so nothing is published again`() throws {
        var session = try SessionUnderTest().connected()
        let publication = Publication(topic: "a", payload: ByteBuffer(string: "1"), since: Timestamp(rawValue: 0))
        _ = session.take(.stored([.putPublication(publication)], isComplete: true))
        _ = try session.takes()
        let old = session.dialed
        _ = moves(&session)
        _ = session.opens()
        _ = session.take(.connection(old, .received(encoded(.pingresp, .pingresp))))
        #expect(session.receives(.connack(Connack(sessionPresent: true))) == ["connected"])
        _ = try session.waitsForDial(after: session.take(.closed(Reason(.reset))))
        _ = session.opens()
        #expect(session.receives(.connack(Connack(sessionPresent: true))) == ["send PUBLISH a", "connected"])
    }

    // MARK: Knocks

    /// A session that is connected to its second endpoint, and is about to see whether the first one is back.
    private func knocking(_ proxy: SessionSettings.Proxy) throws -> SessionUnderTest {
        var session = try SessionUnderTest { $0.proxy = proxy }
        if case .some(_, hasPassword: true) = proxy {
            _ = session.take(.connect(Reason(.userConnect)))
            _ = session.take(.fetched(try #require(session.fetched), SessionCredential(secret: [1])))
        } else {
            _ = session.take(.connect(Reason(.userConnect)))
        }
        var texts = session.take(.closed(Reason(.serverBusy)))
        for _ in 0..<600 where session.session.state != .connected {
            if texts.last?.hasPrefix("fetch") == true {
                texts = session.take(.fetched(try #require(session.fetched), SessionCredential(secret: [1])))
            } else if texts.last == "dial b.example" {
                _ = session.opens()
                texts = session.receives(.connack(Connack()))
            } else if texts.last == "dial a.example" {
                texts = session.take(.closed(Reason(.serverBusy)))
            } else {
                texts = session.wait(1)
            }
        }
        #expect(session.session.state == .connected)
        return session
    }

    private func waits(_ session: inout SessionUnderTest, for prefix: String) -> String? {
        for _ in 0..<36_000 {
            let texts = session.wait(1)
            if texts.contains("send PINGREQ") { _ = session.receives(.pingresp) }
            if let text = texts.first(where: { $0.hasPrefix(prefix) }) { return text }
        }
        return nil
    }

    @Test func `a session knocks at its first endpoint, and returns to it when that answers`() throws {
        var session = try knocking(.none)
        #expect(waits(&session, for: "knock at") == "knock at a.example")
        #expect(session.goal == .knock(isBehindProxy: false, within: .seconds(1)))
        #expect(session.take(.reached) == ["abort", "dial a.example with the knock", "reconnecting"])
        #expect(session.session.machine.reason.code == .returning)
    }

    @Test func `a session behind a proxy knocks at the server behind it, with the proxy's password`() throws {
        var session = try knocking(.some(needsLogin: true, hasPassword: true))
        #expect(waits(&session, for: "fetch") == "fetch the proxy's password for a knock")
        let use = try #require(session.fetched)
        #expect(session.take(.fetched(use, SessionCredential(secret: [1]))) == ["knock at a.example"])
        #expect(session.take(.closed(Reason(.refused))) == [])
        #expect(session.session.state == .connected)
        #expect(session.take(.fetched(use, SessionCredential(secret: [1]))) == [], "it is no longer wanted")
    }

    @Test func `a knock whose password cannot be read counts as unanswered`() throws {
        var session = try knocking(.some(needsLogin: true, hasPassword: true))
        _ = waits(&session, for: "fetch")
        #expect(session.take(.notFetched(try #require(session.fetched), "no such file")) == [])
        #expect(session.session.state == .connected)
        #expect(waits(&session, for: "fetch") != nil)
    }

    @Test func `a session behind a proxy without a password knocks at the server behind it`() throws {
        var session = try knocking(.some(needsLogin: false, hasPassword: false))
        #expect(waits(&session, for: "knock at") == "knock at a.example")
        #expect(session.goal == .knock(isBehindProxy: true, within: .seconds(10)), "as long as an attempt")
    }

    // MARK: Ends

    /// A session that a server has sent to another one for good, where it dials.
    private func redirected() throws -> SessionUnderTest {
        var session = try SessionUnderTest(redirects: ["c.example"])
        session.dials()
        let moved = Connack(reasonCode: .serverMoved, properties: .init(serverReference: "c.example"))
        #expect(session.receives(.connack(moved)) == ["close", "dial c.example"])
        return session
    }

    @Test func `a new server that does not answer in time is passed over once for the endpoint's own address`() throws {
        var session = try redirected()
        for host in ["b", "a"] { #expect(try session.waitsForDial() == "dial \(host).example") }
    }

    @Test func `a server that was sent to long ago and is gone is followed by the endpoint's own address`() throws {
        var session = try redirected()
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        for host in ["c", "a"] {
            #expect(try session.waitsForDial(after: session.take(.closed(Reason(.reset)))) == "dial \(host).example")
        }
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        #expect(try session.waitsForDial(after: session.take(.closed(Reason(.reset)))) == "dial a.example")
    }

    @Test func `a server that was named for good is kept when a hand-over follows the old connection's end`()
        throws
    {
        var session = try redirected()
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        let old = session.dialed
        #expect(moves(&session).first == "dial c.example")
        #expect(session.take(.connection(old, .closed(Reason(.reset)))) == ["reconnecting"])
        _ = session.opens()
        #expect(session.receives(.connack(Connack())) == ["connected"])
        session.answersPings = true
        _ = session.wait(60)
        #expect(try session.waitsForDial(after: session.take(.closed(Reason(.reset)))) == "dial c.example")
    }

    @Test func `a return knocks at the endpoint itself if the server that it named is gone`() throws {
        var session = try redirected()
        session.answersPings = true
        #expect(try session.waitsForDial(after: session.take(.closed(Reason(.refused)))) == "dial b.example")
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        #expect(waits(&session, for: "knock at") == "knock at a.example")
        _ = session.take(.closed(Reason(.refused)))
        #expect(waits(&session, for: "knock at") == "knock at c.example")
    }

    @Test func `an attempt that this host gives up says nothing about the new server`() throws {
        var session = try redirected()
        #expect(session.take(.reconnect(nil)) == ["abort", "dial c.example"])
    }

    @Test func `the kernel is asked how far a PINGREQ has come before the connection is given up`() throws {
        var session = try SessionUnderTest().connected()
        #expect(session.wait(15) == ["send PINGREQ"])
        #expect(session.toldOf("measure") == ["measure"], "how much is ahead of it")
        #expect(session.wait(5).contains("reconnecting"))
        #expect(session.toldOf("measure").count > 0)
    }

    // MARK: Settings

    @Test(arguments: [nil, "plant"])
    func `a server that hears nothing for a minute and a half may take the session for gone`(room: String?) throws {
        var session = try SessionUnderTest(room: room)
        session.dials()
        #expect(session.lastConnect?.keepAlive == 60)
    }
}
