/// `message.received`: a message for a subscription.
public struct ReceivedMessage: ControlNotification {
    public static let name = "message.received"

    public var subscription: SubscriptionID
    public var session: String
    /// Increases with every message. For a durable consumer it is the id to acknowledge with `message.ack`: it is never
    /// reused, and stays the same if the message is delivered again.
    public var id: Int64
    /// The full topic name, even if the filter is relative to a room.
    public var topic: String
    /// Written as `payload` or `payloadBase64`; see ``MessagePayload``.
    public var payload: MessagePayload
    /// The QoS with which the server sent it.
    public var qos: QoS
    /// Whether the server had retained it from before the subscription.
    public var retain: Bool
    /// Whether the message may have been delivered before.
    public var duplicate: Bool
    /// `nil` if it has none.
    public var properties: MessageProperties?

    public init(
        subscription: SubscriptionID, session: String, id: Int64, topic: String, payload: MessagePayload,
        qos: QoS, retain: Bool, duplicate: Bool, properties: MessageProperties? = nil
    ) {
        self.subscription = subscription
        self.session = session
        self.id = id
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.duplicate = duplicate
        self.properties = properties
    }

    /// The bytes that the publisher chose, without the topic. The line of the message is longer.
    public var contentLength: Int {
        let user = properties?.user ?? []
        let texts = [properties?.contentType, properties?.responseTopic, properties?.correlationDataBase64]
        return payload.bytes.count + texts.reduce(0) { $0 + ($1?.utf8.count ?? 0) }
            + user.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count }
    }

    enum CodingKeys: String, CodingKey, CaseIterable {
        case subscription, session, id, topic, payload, payloadBase64, qos, retain, duplicate, properties
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        self.subscription = try container.decode(SubscriptionID.self, forKey: .subscription)
        self.session = try container.decode(String.self, forKey: .session)
        self.id = try container.decode(Int64.self, forKey: .id)
        self.topic = try container.decode(String.self, forKey: .topic)
        self.payload = try MessagePayload(from: container, text: .payload, base64: .payloadBase64)
        self.qos = try container.decode(QoS.self, forKey: .qos)
        self.retain = try container.decode(Bool.self, forKey: .retain)
        self.duplicate = try container.decode(Bool.self, forKey: .duplicate)
        self.properties = try container.decodeIfPresent(MessageProperties.self, forKey: .properties)
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(subscription, forKey: .subscription)
        try container.encode(session, forKey: .session)
        try container.encode(id, forKey: .id)
        try container.encode(topic, forKey: .topic)
        try payload.encode(to: &container, text: .payload, base64: .payloadBase64)
        try container.encode(qos, forKey: .qos)
        try container.encode(retain, forKey: .retain)
        try container.encode(duplicate, forKey: .duplicate)
        try container.encode(properties, forKey: .properties)
    }
}
