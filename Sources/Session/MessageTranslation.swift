package import ControlAPI
package import MQTT
import NIOCore

// Translation of messages between the control socket and MQTT. Each property appears in both directions, one below the
// other.

extension Publish.Properties {
    package init(_ properties: MessageProperties?) {
        self.init(
            responseTopic: properties?.responseTopic,
            correlationData: properties?.correlationData.map { ByteBuffer(bytes: $0) },
            userProperties: properties?.user?.map { UserProperty(name: $0.name, value: $0.value) } ?? [],
            contentType: properties?.contentType)
    }
}

extension MessageProperties {
    /// `nil` when the message has no properties that concern programs.
    package init?(_ properties: Publish.Properties) {
        self.init(
            contentType: properties.contentType, responseTopic: properties.responseTopic,
            correlationData: properties.correlationData.map { Array($0.readableBytesView) },
            user: properties.userProperties.isEmpty
                ? nil : properties.userProperties.map { UserProperty(name: $0.name, value: $0.value) })
        if self == MessageProperties() { return nil }
    }
}
