import Configuration
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
}
