package import MQTT
package import NIOCore

/// Retained state that a session owns: the server keeps the message for as long as the session has the publication.
package struct Publication: Hashable, Sendable {
    /// A topic name (4.7), or one that is relative to the session's room.
    package var topic: String
    /// Not empty: an empty retained message would remove the existing one (3.3.1.3).
    package var payload: ByteBuffer
    /// QoS 0 or 1. QoS 2 has no meaning for state: receiving it twice changes nothing.
    package var qos: QoS
    /// The properties of a PUBLISH (3.3.2.3).
    package var properties: Publish.Properties
    /// When the program set it.
    package var since: Timestamp

    package init(
        topic: String, payload: ByteBuffer, qos: QoS = .atLeastOnce,
        properties: Publish.Properties = Publish.Properties(), since: Timestamp
    ) {
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.properties = properties
        self.since = since
    }

    /// What it counts for in limits on bytes.
    package var size: Int { OutboundMessage(topic: topic, payload: payload, properties: properties).size }
}
