import ControlAPI
import NIOEmbedded
import Testing

@testable import Agent

struct MessageLineTests {
    @Test func `each subscription gets its own line, which is never shorter than was said`() {
        let many = (0..<100).map { UserProperty(name: "name \($0)", value: "value") }
        for properties in [nil, MessageProperties(contentType: "text/plain", user: many)] {
            var message = ReceivedMessage(
                subscription: SubscriptionID(rawValue: "s1"), session: "main", id: 1, topic: "t",
                payload: MessagePayload(text: "x"), qos: .atLeastOnce, retain: false, duplicate: false,
                properties: properties)
            let line = MessageLine(message, on: EmbeddedEventLoop())
            // A peer that has no room for these is written nothing.
            #expect(line.leastLength >= (properties == nil ? 1 : 1000))
            for id in ["s1", "s22", "s333"] {
                message.subscription = SubscriptionID(rawValue: id)
                let least = line.leastLength
                let text = line.text(for: message.subscription)
                #expect(text == OutgoingLine.notification(message))
                #expect(text.count > least)
            }
        }
    }
}
