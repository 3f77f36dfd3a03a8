import NIOCore
import Testing

@testable import MQTT

/// A server that refuses messages with 0x97, and goes on or does not.
struct QuotaTests {
    private static let window = Connack.Properties(receiveMaximum: 8)

    private static func refusal(_ id: UInt16, _ qos: QoS) -> Packet {
        qos == .atLeastOnce ? .puback(answer(id, .quotaExceeded)) : .pubrec(answer(id, .quotaExceeded))
    }

    @Test(arguments: [QoS.atLeastOnce, .exactlyOnce])
    func `a refused message is quarantined once the server has shown that the connection goes on`(
        qos: QoS
    ) throws {
        var client = MQTTClientHarness().connected(Connack.Properties(receiveMaximum: 1))
        try client.publish("a", qos: qos)
        try client.publish("b", qos: qos)
        #expect(client.server(Self.refusal(1, qos)) == ["PINGREQ"], "no message is sent meanwhile")
        #expect(client.machine.counts == .init(queued: 2, bytes: 4))
        #expect(client.server(.pingresp) == ["rejected 1 97", "PUBLISH b id 2"])
        #expect(client.machine.counts == .init(inFlight: 1, quarantined: 1, bytes: 4))
        #expect(client.machine.reasonIfEnded == nil)
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true) == ["connected resumed", "restored", "PUBLISH b id 2 DUP"])
    }

    @Test(arguments: [QoS.atLeastOnce, .exactlyOnce])
    func `a server that has taken a message on a connection is not one that takes nothing`(qos: QoS) throws {
        var client = MQTTClientHarness()
        for round in 0..<6 {
            client.connect(resumed: round > 0, Self.window)
            try client.publish("a", qos: qos)
            let first = try #require(client.publishes.last?.packetID)
            let taken = Acknowledgement(packetID: first)
            client.server(qos == .atLeastOnce ? .puback(taken) : .pubrec(taken))
            try client.publish("b", qos: qos)
            let second = try #require(client.publishes.last?.packetID)
            let refused = Acknowledgement(packetID: second, reasonCode: .quotaExceeded)
            client.server(qos == .atLeastOnce ? .puback(refused) : .pubrec(refused))
            #expect(client.machine.reasonIfEnded?.remedies.contains(.cleanStart) == false)
            client.server(.pingresp)
            client.handle(.connectionClosed)
        }
    }

    @Test func `a server that refuses and never proves that the connection goes on is given up`() throws {
        var client = MQTTClientHarness().connected(Self.window)
        try client.publish("a")
        client.handle(.flushed(try #require(client.lastFlush)))
        #expect(client.server(Self.refusal(1, .atLeastOnce)) == ["PINGREQ"])
        let due = try #require(client.machine.nextDeadline)
        #expect(due.rawValue == client.now.rawValue + 60_000)
        client.now = Timestamp(rawValue: due.rawValue - 1)
        #expect(client.server(inbound("alive", qos: .atMostOnce)) == ["received alive"])
        #expect(client.handle(.timePassed) == [])
        client.now = due
        let words = client.handle(.timePassed)
        #expect(words == ["unanswered: the server does not answer a PINGREQ", "DISCONNECT 00", "close"])
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true) == ["connected resumed", "restored", "PUBLISH a id 2"])
    }

    @Test func `a PINGREQ does not become overdue when the clock is set`() throws {
        var client = MQTTClientHarness().connected(Self.window)
        try client.publish("a")
        client.server(Self.refusal(1, .atLeastOnce))
        let (before, hour) = (client.now, Int64(3_600_000))
        client.handle(.clockStepped(by: hour, acceptedWithin: before...before))
        client.now = Timestamp(rawValue: before.rawValue + hour)
        #expect(client.machine.nextDeadline?.rawValue == client.now.rawValue + 60_000)
        #expect(client.handle(.timePassed) == [])
    }

    @Test func `the answer to an earlier PINGREQ proves nothing`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a")
        client.handle(.ping)
        #expect(client.server(Self.refusal(1, .atLeastOnce)) == ["PINGREQ"])
        #expect(client.server(.pingresp) == ["ping answered"])
        #expect(client.server(.pingresp) == ["rejected 1 97"])
    }

    @Test(arguments: [QoS.atLeastOnce, .exactlyOnce])
    func `a message refused with the connection is sent as a new one, in its place, in a smaller window`(
        qos: QoS
    ) throws {
        var client = MQTTClientHarness().connected(Self.window)
        for payload in ["a", "b", "c", "d", "e", "f"] { try client.publish(payload, qos: qos) }
        client.server(Self.refusal(1, qos), Self.refusal(2, qos))
        #expect(client.machine.reasonIfEnded?.remedies == [.window(4)])
        #expect(client.handle(.connectionClosed).isEmpty)
        #expect(client.machine.counts == .init(queued: 2, inFlight: 4, bytes: 12))
        // The identifiers are free, and the exchanges with them are over: no DUP.
        #expect(
            client.connect(resumed: true, Self.window) == [
                "connected resumed", "restored", "PUBLISH a id 7", "PUBLISH b id 8", "PUBLISH c id 3 DUP",
                "PUBLISH d id 4 DUP",
            ])
    }

    @Test func `a refused QoS 2 message is durably a new one before the connection ends`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: .exactlyOnce)
        client.server(Self.refusal(1, .exactlyOnce))
        #expect(client.changes.last == .unassign(MessageSequence(rawValue: 1)))
    }

    @Test func `a refused message keeps its place among messages of QoS 0`() throws {
        var client = MQTTClientHarness().connected(Self.window)
        try client.publish("a")
        try client.publish("b", qos: .atMostOnce)
        client.server(Self.refusal(1, .atLeastOnce))
        try client.publish("c", qos: .atMostOnce)
        client.handle(.connectionClosed)
        #expect(
            client.connect(resumed: true) == [
                "connected resumed", "restored", "PUBLISH a id 2", "PUBLISH b", "PUBLISH c",
            ])
    }

    /// What is in the store: "a" and "b".
    private static let queue = (1...2).map { number in
        StoredMessage(
            sequence: MessageSequence(rawValue: number),
            message: OutboundMessage(
                topic: "t", payload: ByteBuffer(string: number == 1 ? "a" : "b"), qos: .exactlyOnce))
    }

    /// Refuses the first message of each connection and closes, until the session is discarded.
    private func stuck(_ client: inout MQTTClientHarness, connections: Int) -> [[Remedy]] {
        var remedies: [[Remedy]] = []
        for _ in 0..<connections {
            client.publishes = []
            let begins = remedies.last == [.cleanStart]
            client.open(force: begins)
            client.server(.connack(Connack(sessionPresent: !begins, properties: Self.window)))
            if begins { client.handle(.loaded(Self.queue)) }
            if let id = client.publishes.first?.packetID { client.server(Self.refusal(id.rawValue, .exactlyOnce)) }
            remedies.append(client.machine.reasonIfEnded?.remedies ?? [])
            client.handle(.connectionClosed)
        }
        return remedies
    }

    @Test func `a session is discarded after three resumed connections that took nothing`() throws {
        var client = MQTTClientHarness().connected(Self.window)
        client.handle(.connectionClosed)
        for payload in ["a", "b"] { try client.publish(payload, qos: .exactlyOnce) }
        #expect(stuck(&client, connections: 3) == [[.window(4)], [.window(2)], [.cleanStart]])
        client.open(force: true)
        client.server(.connack(Connack(properties: Self.window)))
        #expect(client.handle(.loaded(Self.queue)) == ["PUBLISH a id 5", "PUBLISH b id 6"])
        client.server(.pubrec(answer(5)), .pubrec(answer(6)))
        client.server(.pubcomp(answer(5)), .pubcomp(answer(6)))
        #expect(client.machine.counts == .init(), "nothing was quarantined")
    }

    @Test func `a server that takes some messages gets a smaller window and keeps the session`() throws {
        var client = MQTTClientHarness().connected(Self.window)
        for payload in 1...40 { try client.publish("\(payload)") }
        var windows: [[Remedy]] = []
        while client.machine.counts.inFlight > 0 || client.machine.counts.queued > 0, windows.count < 40 {
            // The server has room for two at a time.
            let waiting = client.publishes.compactMap(\.packetID)
            client.publishes = []
            client.server(.puback(Acknowledgement(packetID: waiting[0])))
            if waiting.count > 1 { client.server(.puback(Acknowledgement(packetID: waiting[1]))) }
            guard waiting.count > 2 else { continue }
            client.server(.puback(Acknowledgement(packetID: waiting[2], reasonCode: .quotaExceeded)))
            windows.append(client.machine.reasonIfEnded?.remedies ?? [])
            client.handle(.connectionClosed)
            client.publishes = []
            client.connect(resumed: true, Self.window)
        }
        #expect(windows == [[.window(4)], [.window(2)]])
        #expect(client.machine.counts == .init())
    }

    @Test func `a window that was too large is tried again after a connection ended for another reason`() throws {
        var client = MQTTClientHarness().connected(Self.window)
        for payload in 1...9 { try client.publish("\(payload)") }
        client.server(Self.refusal(1, .atLeastOnce))
        for expected in [4, 8] {
            client.handle(.connectionClosed)
            client.publishes = []
            client.connect(resumed: true, Self.window)
            #expect(client.publishes.count == expected)
        }
    }

    @Test func `a server that also refuses in a new session has one message quarantined`() throws {
        var client = MQTTClientHarness().connected(Self.window)
        client.handle(.connectionClosed)
        for payload in ["a", "b"] { try client.publish(payload, qos: .exactlyOnce) }
        let remedies = stuck(&client, connections: 6)
        #expect(remedies == [[.window(4)], [.window(2)], [.cleanStart], [.window(4)], [.window(2)], []])
        #expect(client.machine.counts == .init(inFlight: 1, quarantined: 1, bytes: 4))
    }

    @Test func `an announcement is refused only if the server goes on`() {
        var client = MQTTClientHarness().connected(Self.window)
        func announce() -> [String] {
            var actions: [MQTTClientMachine.Action] = []
            client.machine.announce(
                Announcement(topic: "p", payload: ByteBuffer(string: "x")), at: client.now, into: &actions)
            return client.describe(actions)
        }
        _ = announce()
        #expect(client.server(Self.refusal(1, .atLeastOnce)) == ["PINGREQ"])
        #expect(client.machine.isAnnouncing)
        #expect(client.machine.reasonIfEnded?.remedies == [.window(4)])
        #expect(client.handle(.connectionClosed).isEmpty)
        client.connect(resumed: true, Self.window)
        let word = announce()
        #expect(word == ["PUBLISH x id 2"])
        #expect(client.server(Self.refusal(2, .atLeastOnce)) == ["PINGREQ"])
        #expect(client.server(.pingresp) == ["announced p 97"])
    }

    @Test func `a DISCONNECT after the refusal shrinks the window, and its reason says so`() throws {
        var client = MQTTClientHarness().connected(Self.window)
        try client.publish("a")
        client.server(Self.refusal(1, .atLeastOnce))
        #expect(
            client.server(.disconnect(Disconnect(reasonCode: .quotaExceeded))) == [
                "disconnected by server 97: from now on 4 messages are sent at a time", "close",
            ])
        client.handle(.connectionClosed)
        client.publishes = []
        for payload in 1...5 { try client.publish("\(payload)") }
        client.connect(resumed: true, Self.window)
        #expect(client.publishes.count == 4)
    }

    @Test func `each message that a new session does not help gets three connections, too`() throws {
        var client = MQTTClientHarness().connected(Self.window)
        client.handle(.connectionClosed)
        for payload in ["a", "b"] { try client.publish(payload, qos: .exactlyOnce) }
        let remedies = stuck(&client, connections: 9)
        #expect(remedies.suffix(6) == [[.window(4)], [.window(2)], [], [.window(4)], [.window(2)], []])
        #expect(client.machine.counts.quarantined == 2)
    }
}
