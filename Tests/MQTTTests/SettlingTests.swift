import MQTT
import Testing

/// A connection that is about to be left finishes what it has begun, and begins nothing new.
@Suite struct SettlingTests {
    @Test func `a quiet connection is settled when the server has answered a ping`() {
        var client = MQTTClientHarness()
        client.connect()
        #expect(client.handle(.settle) == ["PINGREQ"])
        #expect(client.machine.isSettling)
        #expect(client.server(.pingresp) == ["settled"])
        #expect(client.handle(.settle).isEmpty)
        #expect(client.handle(.disconnect(.normalDisconnection)) == ["DISCONNECT 00", "close"])
    }

    @Test func `what is in flight is finished first, and what comes waits for the next connection`() throws {
        var client = MQTTClientHarness()
        client.connect()
        try client.publish("a")
        try client.publish("b", qos: .exactlyOnce)
        #expect(client.handle(.settle) == ["PINGREQ"])
        #expect(try client.publish("c") == ["accepted 3"])
        #expect(try client.publish("d", qos: .atMostOnce) == ["accepted 4"])
        #expect(client.server(.puback(answer(1)), .pubrec(answer(2))) == ["delivered 1 00", "PUBREL 2"])
        #expect(client.server(.pingresp) == [])
        #expect(client.server(.pubcomp(answer(2))) == ["delivered 2 00", "settled"])
        client.handle(.disconnect(.normalDisconnection))
        client.handle(.connectionClosed)
        #expect(!client.machine.isSettling)
        client.open()
        #expect(
            client.server(.connack(Connack(sessionPresent: true))) == [
                "connected resumed", "restored", "PUBLISH c id 3", "PUBLISH d",
            ])
    }

    @Test func `what is let through and waits for the disk is still sent`() throws {
        var client = MQTTClientHarness()
        client.connect()
        client.holdsCommits = true
        try client.publish("a")
        #expect(client.handle(.settle).isEmpty, "the ping proves what is before it")
        #expect(client.commitAll() == ["accepted 1", "PUBLISH a id 1", "PINGREQ"])
    }

    @Test func `acknowledgements that wait for the disk go before the ping`() {
        var client = MQTTClientHarness()
        client.connect()
        client.holdsCommits = true
        client.server(inbound("x", qos: .exactlyOnce, 7), inbound("y", qos: .atLeastOnce, 8))
        #expect(client.handle(.settle).isEmpty)
        #expect(client.commitAll() == ["PUBREC 7", "PUBACK 8", "PINGREQ"])
    }

    @Test func `the answer to a ping that was sent before proves nothing`() {
        var client = MQTTClientHarness()
        client.connect()
        client.handle(.ping)
        client.handle(.settle)
        #expect(client.server(.pingresp) == ["ping answered"])
        #expect(client.server(.pingresp) == ["settled"])
    }

    @Test func `messages of the server that come meanwhile are taken on the next connection, once`() {
        var client = MQTTClientHarness()
        client.connect()
        client.server(inbound("before", qos: .exactlyOnce, 6))
        client.handle(.settle)
        #expect(client.server(inbound("x", qos: .atLeastOnce, 7), inbound("y", qos: .exactlyOnce, 8)).isEmpty)
        #expect(client.server(.pubrel(answer(6))) == ["PUBCOMP 6"], "what was begun is finished")
        #expect(client.server(inbound("z", qos: .atMostOnce)) == ["received z"], "this would not come again")
        client.server(.pingresp)
        client.handle(.disconnect(.normalDisconnection))
        client.handle(.connectionClosed)
        client.connect(resumed: true)
        #expect(client.server(inbound("x", qos: .atLeastOnce, 7, duplicate: true)) == ["received x", "PUBACK 7"])
        #expect(client.server(inbound("y", qos: .exactlyOnce, 8, duplicate: true)) == ["received y", "PUBREC 8"])
    }

    @Test func `a connection that is not left after all goes on with everything, in order`() throws {
        var client = MQTTClientHarness()
        client.connect()
        client.handle(.settle)
        client.server(inbound("x", qos: .atLeastOnce, 7), inbound("y", qos: .exactlyOnce, 8))
        client.server(inbound("x", qos: .atLeastOnce, 7, duplicate: true))
        try client.publish("a")
        #expect(
            client.handle(.goOn) == ["received x", "received y", "PUBACK 7", "PUBREC 8", "PUBLISH a id 1"])
        #expect(!client.machine.isSettling)
        client.handle(.settle)
        #expect(client.server(.pingresp) == [], "that answers the first one")
    }

    @Test func `a server that sends more than it may meanwhile is told so`() {
        var client = MQTTClientHarness { $0.receiveMaximum = 2 }
        client.connect()
        client.handle(.settle)
        client.server(inbound("x", qos: .atLeastOnce, 7), inbound("y", qos: .atLeastOnce, 8))
        #expect(client.server(inbound("z", qos: .atLeastOnce, 9)) == ["violation 93", "DISCONNECT 93", "close"])
    }

    @Test func `what has to be sent again is sent, for it was begun`() {
        var client = MQTTClientHarness(durable: MQTTClientHarness.established([.inFlight(id(1)), .inFlight(id(2))]))
        client.open()
        var properties = Connack.Properties()
        properties.receiveMaximum = 1
        client.server(.connack(Connack(sessionPresent: true, properties: properties)))
        client.handle(.settle)
        client.server(.pubrec(answer(1)))
        #expect(client.server(.pubcomp(answer(1))).contains { $0.hasPrefix("PUBLISH") })
    }

    @Test func `without a connection nothing is settled`() {
        var client = MQTTClientHarness()
        #expect(client.handle(.settle).isEmpty)
        #expect(!client.machine.isSettling)
        client.open()
        #expect(client.handle(.settle).isEmpty)
        #expect(client.handle(.goOn).isEmpty)
    }
}
