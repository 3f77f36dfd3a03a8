package import ControlAPI
package import MQTT
import NIOCore

// Messages between the control socket and MQTT.

extension QoS {
    package init(_ qos: MessageQoS) {
        self =
            switch qos {
            case .atMostOnce: .atMostOnce
            case .atLeastOnce: .atLeastOnce
            case .exactlyOnce: .exactlyOnce
            }
    }
}

extension MessageQoS {
    package init(_ qos: QoS) {
        self =
            switch qos {
            case .atMostOnce: .atMostOnce
            case .atLeastOnce: .atLeastOnce
            case .exactlyOnce: .exactlyOnce
            }
    }
}

extension MessageProperties {
    /// `nil` when the message has none.
    package init?(_ properties: Publish.Properties) {
        guard
            properties.contentType != nil || properties.responseTopic != nil || properties.correlationData != nil
                || !properties.userProperties.isEmpty
        else { return nil }
        self.init(
            contentType: properties.contentType, responseTopic: properties.responseTopic,
            correlationData: properties.correlationData.map { Array($0.readableBytesView) },
            user: properties.userProperties.isEmpty
                ? nil : properties.userProperties.map { UserProperty(name: $0.name, value: $0.value) })
    }
}
