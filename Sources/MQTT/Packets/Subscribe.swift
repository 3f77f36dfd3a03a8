/// SUBSCRIBE (3.8).
public struct Subscribe: Hashable, Sendable {
    /// Free again after SUBACK (2.2.1).
    public var packetID: PacketID
    /// At least one [MQTT-3.8.3-2].
    public var subscriptions: [Subscription]
    /// MQTT 3.1.1 has none.
    public var properties: Properties

    public init(packetID: PacketID, subscriptions: [Subscription], properties: Properties = Properties()) {
        self.packetID = packetID
        self.subscriptions = subscriptions
        self.properties = properties
    }

    /// The properties of SUBSCRIBE (3.8.2.1). `nil` or empty means absent.
    public struct Properties: Hashable, Sendable {
        /// 1...268,435,455; comes back with each matching PUBLISH (3.8.2.1.2).
        public var subscriptionID: UInt32?
        /// In order; names may repeat.
        public var userProperties: [UserProperty]

        public init(subscriptionID: UInt32? = nil, userProperties: [UserProperty] = []) {
            self.subscriptionID = subscriptionID
            self.userProperties = userProperties
        }
    }
}

/// One topic filter with its options (3.8.3.1).
public struct Subscription: Hashable, Sendable {
    /// A valid topic filter; see `TopicFilter`.
    public var filter: String
    /// The highest QoS at which the server may send.
    public var qos: QoS
    /// Whether the server withholds what this client itself published. Not for shared subscriptions [MQTT-3.8.3-4].
    public var noLocal: Bool
    /// Whether forwarded messages keep the RETAIN flag that they were published with.
    public var retainAsPublished: Bool
    /// Which retained messages come with the answer.
    public var retainHandling: RetainHandling

    public init(
        filter: String, qos: QoS = .atMostOnce, noLocal: Bool = false, retainAsPublished: Bool = false,
        retainHandling: RetainHandling = .sendOnSubscribe
    ) {
        self.filter = filter
        self.qos = qos
        self.noLocal = noLocal
        self.retainAsPublished = retainAsPublished
        self.retainHandling = retainHandling
    }

    /// Whether a SUBSCRIBE makes the server send retained messages (3.8.3.1).
    public enum RetainHandling: UInt8, Hashable, Sendable, CaseIterable {
        case sendOnSubscribe = 0
        /// Only if the subscription did not exist before.
        case sendIfNew = 1
        case doNotSend = 2
    }
}

/// SUBACK (3.9).
public struct Suback: Hashable, Sendable {
    /// Those of every acknowledgement.
    public typealias Properties = Acknowledgement.Properties

    /// Free again after SUBACK (2.2.1).
    public var packetID: PacketID
    /// One for each subscription of the SUBSCRIBE, in its order [MQTT-3.8.4-6]: the granted QoS, or an error, which in
    /// MQTT 3.1.1 is always 0x80.
    public var reasonCodes: [ReasonCode]
    /// MQTT 3.1.1 has none.
    public var properties: Properties

    public init(packetID: PacketID, reasonCodes: [ReasonCode], properties: Properties = Properties()) {
        self.packetID = packetID
        self.reasonCodes = reasonCodes
        self.properties = properties
    }
}
