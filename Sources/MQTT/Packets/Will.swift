public import NIOCore

/// The will message in CONNECT (3.1.2.5, 3.1.3.2 to 3.1.3.4).
public struct Will: Hashable, Sendable {
    /// A topic name: not empty, no wildcards.
    public var topic: String
    /// At most 65,535 bytes.
    public var payload: ByteBuffer
    /// Which guarantee it is delivered with (4.3).
    public var qos: QoS
    /// Whether the server keeps it for later subscribers.
    public var retain: Bool
    /// MQTT 3.1.1 has none.
    public var properties: Properties

    public init(
        topic: String, payload: ByteBuffer = ByteBuffer(), qos: QoS = .atMostOnce, retain: Bool = false,
        properties: Properties = Properties()
    ) {
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
    }

    /// The will properties (3.1.3.2). `nil` or empty means absent.
    public struct Properties: Hashable, Sendable {
        /// Seconds between losing the connection and publishing the will; absent means 0 (3.1.3.2.2).
        public var willDelay: UInt32?
        /// Whether the payload is text.
        public var payloadFormat: PayloadFormat?
        /// Seconds from its publication until the will message expires; absent means never (3.1.3.2.4).
        public var messageExpiryInterval: UInt32?
        /// At most 65,535 UTF-8 bytes; publisher and reader agree on the meaning.
        public var contentType: String?
        /// Makes the will a request; a topic name without wildcards (3.1.3.2.6).
        public var responseTopic: String?
        /// At most 65,535 bytes; publisher and reader agree on the meaning.
        public var correlationData: ByteBuffer?
        /// In order; names may repeat.
        public var userProperties: [UserProperty]

        public init(
            willDelay: UInt32? = nil, payloadFormat: PayloadFormat? = nil, messageExpiryInterval: UInt32? = nil,
            contentType: String? = nil, responseTopic: String? = nil, correlationData: ByteBuffer? = nil,
            userProperties: [UserProperty] = []
        ) {
            self.willDelay = willDelay
            self.payloadFormat = payloadFormat
            self.messageExpiryInterval = messageExpiryInterval
            self.contentType = contentType
            self.responseTopic = responseTopic
            self.correlationData = correlationData
            self.userProperties = userProperties
        }
    }
}
