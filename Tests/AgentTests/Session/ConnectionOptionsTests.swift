import Configuration
import MQTT
import Session
import Testing
import Transport
import Vocabulary

@testable import Agent

struct ConnectionOptionsTests {
    @Test func `another server's certificate must have that server's name`() throws {
        let listed = try Endpoint("mqtts://a.example")
        var session = SessionConfiguration()
        session.endpoints = [listed]
        session.tls.serverName = "name.example"
        #expect(Connection.Options(session, for: listed, proxyPassword: nil).tls.serverName == "name.example")
        #expect(
            Connection.Options(session, for: try Endpoint("mqtts://b.example"), proxyPassword: nil).tls.serverName
                == nil)
    }

    @Test(
        arguments: [
            (.zero, 0), (.milliseconds(500), 1), (.seconds(60), 60), (.milliseconds(60_001), 61),
            (.seconds(4_294_967_294), .max - 1), (nil, .max),
        ] as [(Duration?, UInt32)])
    func `a server is asked to keep the session for no less than the file says`(expiry: Duration?, seconds: UInt32) {
        var session = SessionConfiguration()
        session.mqtt.sessionExpiry = expiry
        #expect(MQTTClientMachine.Configuration(session, MessageMemory(sessions: 1)).sessionExpiry == seconds)
    }
}
