public import NIOCore

/// A message from a local program to the server, without anything that belongs to one connection.
public struct OutboundMessage: Hashable, Sendable {
    /// A topic name: 1...65,535 UTF-8 bytes without wildcards and U+0000 (4.7).
    public var topic: String
    /// Up to what the server takes as a packet, at most 256 MiB (2.1.4).
    public var payload: ByteBuffer
    /// Which guarantee it is delivered with (4.3).
    public var qos: QoS
    /// Whether the server keeps it for later subscribers (3.3.1.3).
    public var retain: Bool
    /// As given by the program. `topicAlias`, `messageExpiryInterval` and `subscriptionIDs` are set by the machine or
    /// the server, and are ignored here.
    public var properties: Publish.Properties
    /// When it expires; `nil` means never. Until then the remaining time is sent as Message Expiry Interval (3.3.2.3.3;
    /// not in MQTT 3.1.1); after that the message is not sent, unless it may have been sent before.
    public var expiresAt: Timestamp?
    /// When it was accepted, or when a person had it sent again. The machine sets it; the age of a message is measured
    /// from it.
    public var acceptedAt = Timestamp(rawValue: 0)

    public init(
        topic: String, payload: ByteBuffer = ByteBuffer(), qos: QoS = .atLeastOnce, retain: Bool = false,
        properties: Publish.Properties = Publish.Properties(), expiresAt: Timestamp? = nil
    ) {
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.expiresAt = expiresAt
    }

    /// Whether there is anything in its properties that MQTT 3.1.1 cannot express.
    var hasProperties: Bool {
        var given = properties
        given.topicAlias = nil
        given.messageExpiryInterval = nil
        given.subscriptionIDs = []
        if given.payloadFormat == .unspecified { given.payloadFormat = nil }
        return given != Publish.Properties()
    }

    /// What the message counts for against limits in bytes: topic, payload and properties. The same for the whole life
    /// of the message, so that the store can add it up.
    public var size: Int { topic.utf8.count + payload.readableBytes + properties.contentSize }
}

extension Publish {
    /// See ``OutboundMessage/size``.
    var contentSize: Int { topic.utf8.count + payload.readableBytes + properties.contentSize }
}

extension Publish.Properties {
    /// The size of what the publisher set.
    var contentSize: Int {
        var size = responseTopic?.utf8.count ?? 0
        size += correlationData?.readableBytes ?? 0
        size += contentType?.utf8.count ?? 0
        for property in userProperties { size += property.name.utf8.count + property.value.utf8.count }
        return size
    }
}
