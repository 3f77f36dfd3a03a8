import NIOCore
import Testing

@testable import MQTT

/// What the session publishes itself: outside the outbox, within the window.
@Suite struct AnnouncementTests {
    @Test func `an announcement is sent at once, and its answer is reported`() {
        var client = MQTTClientHarness().connected()
        client.changes = []
        #expect(client.announce("here") == ["PUBLISH here id 1"])
        #expect(client.machine.isAnnouncing)
        #expect(client.server(.puback(answer(1))) == ["announced presence 00"])
        #expect(!client.machine.isAnnouncing)
        #expect(client.changes.isEmpty, "an announcement is not stored")
        #expect(client.publishes.map(\.retain) == [true])
        #expect(client.machine.counts == .init())
    }

    @Test func `a refused announcement is reported and quarantines nothing`() {
        var client = MQTTClientHarness().connected()
        client.announce("here")
        #expect(client.server(.puback(answer(1, .notAuthorized))) == ["announced presence 87"])
        #expect(client.machine.counts == .init())
    }

    @Test func `an identifier that the server calls in use is not used again, a second one is a state mismatch`() throws
    {
        var client = MQTTClientHarness().connected()
        client.announce("here")
        #expect(client.server(.puback(answer(1, .packetIdentifierInUse))) == ["announced presence 91"])
        #expect(client.changes.contains(.retireIdentifier(try #require(PacketID(rawValue: 1)))))
        client.announce("here")
        #expect(
            client.server(.puback(answer(2, .packetIdentifierInUse)))
                == ["announced presence 91", "state mismatch", "DISCONNECT 00", "close"])
    }

    /// [MQTT-3.3.4-7]
    @Test func `an announcement takes room in the window, and goes ahead of waiting messages`() throws {
        var client = MQTTClientHarness().connected(Connack.Properties(receiveMaximum: 1))
        #expect(try client.publish("a") == ["accepted 1", "PUBLISH a id 1"])
        #expect(try client.publish("b") == ["accepted 2"])
        #expect(client.announce("here").isEmpty)
        #expect(client.server(.puback(answer(1))) == ["delivered 1 00", "PUBLISH here id 2"])
        #expect(client.server(.puback(answer(2))) == ["announced presence 00", "PUBLISH b id 3"])
    }

    @Test func `an announcement waits for messages that fill the window, not for another announcement`() throws {
        var client = MQTTClientHarness().connected(Connack.Properties(receiveMaximum: 1))
        try client.publish("a")
        client.announce("1")
        client.announce("2")
        #expect(client.machine.announcementsAwaitMessages)
        client.server(.puback(answer(1)))
        #expect(client.publishes.count == 2)
        #expect(!client.machine.announcementsAwaitMessages)
    }

    @Test func `an announcement is dropped with its connection`() {
        var client = MQTTClientHarness().connected()
        client.announce("here")
        client.handle(.connectionClosed)
        #expect(!client.machine.isAnnouncing)
        #expect(client.connect(resumed: true) == ["connected resumed", "restored"])
        #expect(client.server(.puback(answer(1))).isEmpty, "the answer to a dropped announcement is ignored")
    }

    @Test func `an announcement without a connection does nothing`() {
        var client = MQTTClientHarness()
        #expect(client.announce("here").isEmpty)
        #expect(!client.machine.isAnnouncing)
        #expect(client.connect() == ["connected", "restored"])
    }

    /// [MQTT-3.2.2-11] [MQTT-3.2.2-14]
    @Test func `an announcement that the server cannot take is not sent`() {
        var client = MQTTClientHarness().connected(Connack.Properties(retainAvailable: false))
        let cannot = "announced presence: the session does not send it, because the server"
        #expect(client.announce("here") == ["\(cannot) does not retain messages"])
        client = MQTTClientHarness()
        client.connect(Connack.Properties(maximumQoS: .atMostOnce))
        #expect(client.announce("here") == ["\(cannot) accepts QoS 0 at most"])
    }

    @Test func `an announcement of QoS 0 needs no answer, and properties are sent along`() {
        var client = MQTTClientHarness().connected()
        #expect(client.announce("here", qos: .atMostOnce) == ["announced presence 00", "PUBLISH here"])
        #expect(!client.machine.isAnnouncing)
        client.announce("there", properties: Publish.Properties(contentType: "text/plain"))
        #expect(client.publishes.map(\.properties.contentType) == [nil, "text/plain"])
        #expect(client.publishes.map(\.retain) == [true, true])
    }

    @Test func `an announcement of QoS 0 does not overtake the one before it`() {
        var client = MQTTClientHarness().connected(Connack.Properties(receiveMaximum: 1))
        client.announce("1")
        #expect(client.announce("2").isEmpty)
        #expect(client.announce("3", qos: .atMostOnce).isEmpty)
        #expect(
            client.server(.puback(answer(1)))
                == ["announced presence 00", "announced presence 00", "PUBLISH 2 id 2", "PUBLISH 3"])
    }

    @Test func `an announcement larger than the server takes is not sent`() {
        var client = MQTTClientHarness().connected(Connack.Properties(maximumPacketSize: 100))
        let words = "the session does not send it, because its packet has 115 bytes, and the server's limit is 100"
        #expect(client.announce(String(repeating: "x", count: 100)) == ["announced presence: \(words)"])
    }

    @Test func `a message in flight is not blamed for an announcement`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("innocent")
        client.announce("here")
        #expect(
            client.server(.disconnect(Disconnect(reasonCode: .topicNameInvalid)))
                == ["disconnected by server 90: \(Remedy.isolation)", "close"])
        #expect(client.machine.isIsolating)
        #expect(client.machine.counts.quarantined == 0)
    }

    @Test func `a message does not wait for the answer to an announcement`() throws {
        var client = MQTTClientHarness().connected()
        client.announce("here")
        #expect(try client.publish("a") == ["accepted 1", "PUBLISH a id 2"])
    }
}

extension MQTTClientHarness {
    @discardableResult
    mutating func announce(
        _ payload: String, qos: QoS = .atLeastOnce, properties: Publish.Properties = .init()
    ) -> [String] {
        var actions: [MQTTClientMachine.Action] = []
        machine.announce(
            Announcement(topic: "presence", payload: ByteBuffer(string: payload), qos: qos, properties: properties),
            at: now, into: &actions)
        return describe(actions)
    }
}
