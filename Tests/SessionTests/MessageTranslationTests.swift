import ControlAPI
import MQTT
import NIOCore
import Session
import Support
import Testing

/// The properties of a message between the control socket and MQTT.
@Suite struct MessageTranslationTests {
    @Test func `every property comes back as it was given`() {
        let properties = MessageProperties(
            contentType: "t", responseTopic: "r", correlationData: [0, 255],
            user: [.init(name: "n", value: "v"), .init(name: "n", value: "w")])
        #expect(unsetMembers(of: properties).isEmpty)
        #expect(MessageProperties(Publish.Properties(properties)) == properties)
    }

    @Test func `properties of the protocol alone are not passed to programs`() {
        let properties = Publish.Properties(payloadFormat: .utf8, messageExpiryInterval: 1, subscriptionIDs: [7])
        #expect(MessageProperties(properties) == nil)
    }

    @Test(arguments: [(1.5, 11_500), (0.001, 10_001), (60, 70_000)] as [(Double, Int64)])
    func `a message expires so many seconds after it was accepted`(seconds: Double, expiresAt: Int64) {
        let parameters = MessagePublishMethod.Parameters(
            session: "main", topic: "t", payload: MessagePayload(bytes: []), expiry: seconds)
        let message = OutboundMessage(parameters, at: Timestamp(rawValue: 10_000))
        #expect(message.expiresAt == Timestamp(rawValue: expiresAt))
    }
}
