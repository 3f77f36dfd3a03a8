import MQTT
import Testing

/// A connection that is about to be left finishes what it has begun, and begins nothing new.
@Suite struct SettlingTests {
    @Test func `a quiet connection is settled when the server has answered a ping`() {
        var client = MQTTClientHarness().connected()
        #expect(client.handle(.settle) == ["PINGREQ"])
        #expect(client.machine.isSettling)
        #expect(client.server(.pingresp) == ["settled"])
        #expect(client.handle(.settle).isEmpty)
        #expect(client.handle(.disconnect(.normalDisconnection)) == ["DISCONNECT 00", "close"])
    }

    @Test func `messages in flight are finished first, and new ones wait for the next connection`() throws {
        var client = MQTTClientHarness().connected()
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

    @Test func `a message that waits for the disk is still sent`() throws {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        try client.publish("a")
        #expect(client.handle(.settle).isEmpty, "the ping has to follow the message")
        #expect(client.commitAll() == ["accepted 1", "PUBLISH a id 1", "PINGREQ"])
    }

    @Test func `acknowledgements that wait for the disk are sent before the ping`() {
        var client = MQTTClientHarness().connected()
        client.holdsCommits = true
        client.server(inbound("x", qos: .exactlyOnce, 7), inbound("y", qos: .atLeastOnce, 8))
        #expect(client.handle(.settle).isEmpty)
        #expect(client.commitAll() == ["PUBREC 7", "PUBACK 8", "PINGREQ"])
    }

    @Test func `a connection is not read while it has withheld many bytes`() {
        var client = MQTTClientHarness { $0.inbox.waitingBytes = 10 }
        client.connect()
        client.handle(.settle)
        for number in 1...20 {
            // The same message again takes no more room.
            client.server(inbound("x", qos: .atLeastOnce, 1))
            #expect(client.machine.wantsToRead, "after \(number)")
        }
        for number in 2...12 { client.server(inbound("x", qos: .atLeastOnce, UInt16(number))) }
        #expect(!client.machine.wantsToRead)
        client.handle(.stopSettling)
        #expect(client.machine.wantsToRead)
    }

    @Test func `the answer to an earlier ping proves nothing`() {
        var client = MQTTClientHarness().connected()
        client.handle(.ping)
        client.handle(.settle)
        #expect(client.server(.pingresp) == ["ping answered"])
        #expect(client.server(.pingresp) == ["settled"])
    }

    @Test func `messages that arrive while settling are taken once, on the next connection`() {
        var client = MQTTClientHarness().connected()
        client.server(inbound("before", qos: .exactlyOnce, 6))
        client.handle(.settle)
        #expect(client.server(inbound("x", qos: .atLeastOnce, 7), inbound("y", qos: .exactlyOnce, 8)).isEmpty)
        #expect(client.server(.pubrel(answer(6))) == ["PUBCOMP 6"], "a started exchange is finished")
        #expect(
            client.server(inbound("z", qos: .atMostOnce)) == ["received z"], "a QoS 0 message would not be sent again")
        client.server(.pingresp)
        client.handle(.disconnect(.normalDisconnection))
        client.handle(.connectionClosed)
        client.connect(resumed: true)
        #expect(client.server(inbound("x", qos: .atLeastOnce, 7, duplicate: true)) == ["received x", "PUBACK 7"])
        #expect(client.server(inbound("y", qos: .exactlyOnce, 8, duplicate: true)) == ["received y", "PUBREC 8"])
    }

    @Test func `a connection that is kept after all goes on with everything, in order`() throws {
        var client = MQTTClientHarness().connected()
        client.handle(.settle)
        client.server(inbound("x", qos: .atLeastOnce, 7), inbound("y", qos: .exactlyOnce, 8))
        client.server(inbound("x", qos: .atLeastOnce, 7, duplicate: true))
        try client.publish("a")
        #expect(
            client.handle(.stopSettling) == ["received x", "received y", "PUBACK 7", "PUBREC 8", "PUBLISH a id 1"])
        #expect(!client.machine.isSettling)
        client.handle(.settle)
        #expect(client.server(.pingresp) == [], "this answers the first ping")
    }

    @Test func `a server that exceeds our Receive Maximum while settling is told so`() {
        var client = MQTTClientHarness { $0.receiveMaximum = 2 }
        client.connect()
        client.handle(.settle)
        client.server(inbound("x", qos: .atLeastOnce, 7), inbound("y", qos: .atLeastOnce, 8))
        #expect(client.server(inbound("z", qos: .atLeastOnce, 9)) == ["violation 93", "DISCONNECT 93", "close"])
    }

    @Test func `a message that must be sent again is still sent while settling`() {
        var client = MQTTClientHarness(durable: MQTTClientHarness.established([.inFlight(id(1)), .inFlight(id(2))]))
        client.open()
        var properties = Connack.Properties()
        properties.receiveMaximum = 1
        client.server(.connack(Connack(sessionPresent: true, properties: properties)))
        client.handle(.settle)
        client.server(.pubrec(answer(1)))
        #expect(client.server(.pubcomp(answer(1))).contains { $0.hasPrefix("PUBLISH") })
    }

    @Test func `settling without a connection does nothing`() {
        var client = MQTTClientHarness()
        #expect(client.handle(.settle).isEmpty)
        #expect(!client.machine.isSettling)
        client.open()
        #expect(client.handle(.settle).isEmpty)
        #expect(client.handle(.stopSettling).isEmpty)
    }
}
