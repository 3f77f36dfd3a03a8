import ControlAPI
import MQTT
import NIOCore
import Session
import Testing

/// The properties of a message between the control socket and MQTT.
@Suite struct MessageTranslationTests {
    @Test(arguments: [
        MessageProperties(contentType: "t"), MessageProperties(responseTopic: "r"),
        MessageProperties(correlationData: [0, 255]),
        MessageProperties(user: [.init(name: "n", value: "v"), .init(name: "n", value: "w")]),
    ])
    func `each property comes back as it was given`(_ properties: MessageProperties) {
        #expect(MessageProperties(Publish.Properties(properties)) == properties)
    }

    @Test func `properties of the protocol alone are not passed to programs`() {
        let properties = Publish.Properties(payloadFormat: .utf8, messageExpiryInterval: 1, subscriptionIDs: [7])
        #expect(MessageProperties(properties) == nil)
    }
}
