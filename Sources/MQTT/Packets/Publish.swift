public import NIOCore

/// PUBLISH (3.3): an application message on its way.
public struct Publish: Hashable, Sendable {
    /// A topic name without wildcards; empty only together with a topic alias (3.3.2.1).
    public var topic: String
    /// The rest of the packet; decoded payloads are slices of the bytes that arrived.
    public var payload: ByteBuffer
    /// Which guarantee it is delivered with (4.3).
    public var qos: QoS
    /// From a client: the server should keep the message; from a server: it had kept it (3.3.1.3).
    public var retain: Bool
    /// DUP: this may have been sent before. Never with QoS 0 [MQTT-3.3.1-2].
    public var duplicate: Bool
    /// Present exactly when the QoS is 1 or 2 [MQTT-2.2.1-2]; encoding anything else is a programming error.
    public var packetID: PacketID?
    /// MQTT 3.1.1 has none.
    public var properties: Properties
    /// Why the content cannot be used; set by a ``PacketDecoder`` with `setsContentAside` that could frame the packet
    /// but not read it. Only QoS, flags and packet identifier can be relied on then, which is enough to acknowledge it.
    /// Never sent.
    public var flaw: MalformedPacket?

    public init(
        topic: String, payload: ByteBuffer = ByteBuffer(), qos: QoS = .atMostOnce, retain: Bool = false,
        duplicate: Bool = false, packetID: PacketID? = nil, properties: Properties = Properties()
    ) {
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.duplicate = duplicate
        self.packetID = packetID
        self.properties = properties
    }

    /// The same message, to be kept: what was read with it is not.
    func detached() -> Publish {
        var publish = self
        publish.payload = payload.detached()
        publish.properties.correlationData = properties.correlationData?.detached()
        return publish
    }

    /// The properties of PUBLISH (3.3.2.3). `nil` or empty means absent.
    public struct Properties: Hashable, Sendable {
        /// How often one property may be there; a message with more has unusable content. The standard has no limit,
        /// but a packet of 1 MiB has room for 200,000, and each costs as much as a packet.
        public static let maximumRepeats = 4096

        /// Whether the payload is text (3.3.2.3.2).
        public var payloadFormat: PayloadFormat?
        /// Seconds until it expires; absent means never (3.3.2.3.3).
        public var messageExpiryInterval: UInt32?
        /// Stands for the topic on this connection, not 0 (3.3.2.3.4).
        public var topicAlias: UInt16?
        /// Makes the message a request; a topic name without wildcards (3.3.2.3.5).
        public var responseTopic: String?
        /// At most 65,535 bytes (3.3.2.3.6).
        public var correlationData: ByteBuffer?
        /// In order; names may repeat (3.3.2.3.7). At most ``maximumRepeats``.
        public var userProperties: [UserProperty]
        /// The subscriptions that matched, 1...268,435,455 each; from the server only (3.3.2.3.8).
        public var subscriptionIDs: [UInt32]
        /// At most 65,535 UTF-8 bytes; publisher and reader agree on the meaning (3.3.2.3.9).
        public var contentType: String?

        public init(
            payloadFormat: PayloadFormat? = nil, messageExpiryInterval: UInt32? = nil, topicAlias: UInt16? = nil,
            responseTopic: String? = nil, correlationData: ByteBuffer? = nil, userProperties: [UserProperty] = [],
            subscriptionIDs: [UInt32] = [], contentType: String? = nil
        ) {
            self.payloadFormat = payloadFormat
            self.messageExpiryInterval = messageExpiryInterval
            self.topicAlias = topicAlias
            self.responseTopic = responseTopic
            self.correlationData = correlationData
            self.userProperties = userProperties
            self.subscriptionIDs = subscriptionIDs
            self.contentType = contentType
        }
    }
}

/// What the publisher says the payload is (3.3.2.3.2).
public enum PayloadFormat: UInt8, Hashable, Sendable, CaseIterable {
    /// Bytes of no stated form; the same as absent.
    case unspecified = 0
    /// UTF-8 text. The decoder does not check it.
    case utf8 = 1
}
