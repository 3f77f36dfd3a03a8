public enum MessagePublishMethod: ControlMethod {
    public static let name = "message.publish"
    public static let summary = "Publishes a message"
    public static let role: Role? = .message

    /// What the answer waits for.
    public enum Wait: String, Codable, Sendable, CaseIterable {
        /// The message is committed to disk.
        case accepted
        /// The server has acknowledged the message.
        case delivered
    }

    public struct Parameters: ClosedObject {
        public var session: String
        /// A topic name (MQTT 5, section 4.7), or `~/…`, which is relative to the session's room.
        public var topic: String
        public var payload: MessagePayload
        /// Default: at least once.
        public var qos: QoS
        /// Default: no.
        public var retain: Bool
        /// Seconds after which the message is no longer worth delivering; `nil`: never. Above 0.
        public var expiry: Double?
        public var properties: MessageProperties?
        /// 1 to 128 printable ASCII characters without the space. A repeated call with the same key while the message is
        /// in the outbox, or within 24 hours after that, is the same message, whatever its topic and payload, and gets
        /// the same answer.
        public var key: String?
        /// Default: accepted.
        public var wait: Wait
        /// How many seconds to wait for the delivery, above 0; `nil`: until it happens. When the time is over, the
        /// answer says that the message is accepted and not delivered. Only with ``Wait/delivered``.
        public var timeout: Double?

        public init(
            session: String, topic: String, payload: MessagePayload, qos: QoS = .atLeastOnce,
            retain: Bool = false, expiry: Double? = nil, properties: MessageProperties? = nil, key: String? = nil,
            wait: Wait = .accepted, timeout: Double? = nil
        ) {
            self.key = key
            self.session = session
            self.topic = topic
            self.payload = payload
            self.qos = qos
            self.retain = retain
            self.expiry = expiry
            self.properties = properties
            self.wait = wait
            self.timeout = timeout
        }

        enum CodingKeys: String, CodingKey {
            case session, topic, payload, payloadBase64, qos, retain, expiry, properties, key, wait, timeout
        }

        public init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            self.session = try container.decode(String.self, forKey: .session)
            self.topic = try container.decode(String.self, forKey: .topic)
            self.payload = try MessagePayload(from: container, text: .payload, base64: .payloadBase64)
            self.qos = try container.decodeIfPresent(QoS.self, forKey: .qos) ?? .atLeastOnce
            self.retain = try container.decodeIfPresent(Bool.self, forKey: .retain) ?? false
            self.expiry = try container.decodeIfPresent(Double.self, forKey: .expiry)
            if let expiry, expiry <= 0 { throw container.refusal(of: .expiry, "must be a number of seconds above 0") }
            self.properties = try container.decodeIfPresent(MessageProperties.self, forKey: .properties)
            self.key = try container.decodeIfPresent(String.self, forKey: .key)
            self.wait = try container.decodeIfPresent(Wait.self, forKey: .wait) ?? .accepted
            self.timeout = try container.decodeIfPresent(Double.self, forKey: .timeout)
            if let timeout, timeout <= 0 {
                throw container.refusal(of: .timeout, "must be a number of seconds above 0")
            }
            if timeout != nil, wait != .delivered {
                throw container.refusal(of: .timeout, "is only for wait \"delivered\"")
            }
        }

        public func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(session, forKey: .session)
            try container.encode(topic, forKey: .topic)
            try payload.encode(to: &container, text: .payload, base64: .payloadBase64)
            try container.encode(qos, forKey: .qos)
            try container.encode(retain, forKey: .retain)
            try container.encodeIfPresent(expiry, forKey: .expiry)
            try container.encodeIfPresent(properties, forKey: .properties)
            try container.encodeIfPresent(key, forKey: .key)
            try container.encode(wait, forKey: .wait)
            try container.encodeIfPresent(timeout, forKey: .timeout)
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        /// The message's number in the outbox of its session.
        public var id: Int64
        /// Whether the message is committed to disk.
        public var accepted: Bool
        /// Whether the server has acknowledged the message.
        public var delivered: Bool
        /// The reason code of the server's acknowledgement; `nil` until there is one.
        @OrNull public var reasonCode: Int?
        /// `true` if the message was published before with the same key, so that this call published nothing.
        public var repeated: Bool?

        public init(id: Int64, accepted: Bool, delivered: Bool, reasonCode: Int?, repeated: Bool? = nil) {
            self.repeated = repeated
            self.id = id
            self.accepted = accepted
            self.delivered = delivered
            self.reasonCode = reasonCode
        }
    }
}

/// `message.subscribe`: ``ReceivedMessage`` notifications follow the answer.
public enum MessageSubscribeMethod: ControlMethod {
    public static let name = "message.subscribe"
    public static let summary = "Subscribes to a topic filter"
    public static let role: Role? = .message

    public struct Parameters: ClosedObject {
        public var session: String
        /// A topic filter (MQTT 5, section 4.7), or `~/…`, which is relative to the session's room.
        public var filter: String
        /// The highest QoS wanted; default: at least once.
        public var qos: QoS
        /// The name of a durable consumer, which continues where it left off and gets each message until it is
        /// acknowledged; `nil`: a live subscription.
        public var consumer: String?

        public init(session: String, filter: String, qos: QoS = .atLeastOnce, consumer: String? = nil) {
            self.session = session
            self.filter = filter
            self.qos = qos
            self.consumer = consumer
        }

        public init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            self.session = try container.decode(String.self, forKey: .session)
            self.filter = try container.decode(String.self, forKey: .filter)
            self.qos = try container.decodeIfPresent(QoS.self, forKey: .qos) ?? .atLeastOnce
            self.consumer = try container.decodeIfPresent(String.self, forKey: .consumer)
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        /// The id in ``ReceivedMessage/subscription`` and in later calls.
        public var subscription: SubscriptionID
        /// The QoS that the server granted; `nil` while the session is not connected, or there is no subscription to the
        /// filter of a durable consumer that had it before: the server is asked later.
        @OrNull public var grantedQoS: QoS?
        /// For a durable consumer: how many of its messages were dropped since a program was last told.
        @OrNull public var missed: Int?
        /// For a durable consumer: the epoch in which the ids of its messages are valid. It changes when the daemon's
        /// store is replaced.
        @OrNull public var epoch: String?

        public init(
            subscription: SubscriptionID, grantedQoS: QoS?, missed: Int? = nil, epoch: String? = nil
        ) {
            self.subscription = subscription
            self.grantedQoS = grantedQoS
            self.missed = missed
            self.epoch = epoch
        }
    }
}

public enum MessageUnsubscribeMethod: ControlMethod {
    public static let name = "message.unsubscribe"
    public static let summary = "Ends a subscription of this connection, or the durable consumer of a session"
    public static let role: Role? = .message

    public struct Parameters: ClosedObject {
        /// What to end.
        public enum What: Hashable, Sendable {
            /// A subscription of this connection. If it is durable, its consumer ends too, unless `keep` is set.
            case subscription(SubscriptionID, keep: Bool)
            /// A durable consumer of a session, no matter which program has it.
            case consumer(String, session: String)
        }

        public var what: What

        public init(subscription: SubscriptionID, keep: Bool = false) {
            what = .subscription(subscription, keep: keep)
        }

        public init(session: String, consumer: String) {
            what = .consumer(consumer, session: session)
        }

        enum CodingKeys: String, CodingKey {
            case subscription, keep, session, consumer
        }

        public init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            let isOwn = container.contains(.subscription)
            let keep = try container.decodeIfPresent(Bool.self, forKey: .keep) ?? false
            if isOwn {
                for key in [CodingKeys.session, .consumer] where container.contains(key) {
                    throw container.refusal(of: key, "cannot be combined with subscription")
                }
                what = .subscription(try container.decode(SubscriptionID.self, forKey: .subscription), keep: keep)
            } else if container.contains(.consumer) {
                if keep {
                    throw container.refusal(
                        of: .keep, "cannot be combined with consumer: one that is given by its name ends for good")
                }
                what = .consumer(
                    try container.decode(String.self, forKey: .consumer),
                    session: try container.decode(String.self, forKey: .session))
            } else {
                what = .subscription(try container.decode(SubscriptionID.self, forKey: .subscription), keep: false)
            }
        }

        public func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: CodingKeys.self)
            switch what {
            case .subscription(let id, let keep):
                try container.encode(id, forKey: .subscription)
                if keep { try container.encode(keep, forKey: .keep) }
            case .consumer(let consumer, let session):
                try container.encode(session, forKey: .session)
                try container.encode(consumer, forKey: .consumer)
            }
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        public init() {}
    }
}

/// `message.ack`: acknowledges messages of a durable consumer, which are not delivered again.
public enum MessageAckMethod: ControlMethod {
    public static let name = "message.ack"
    public static let summary = "Acknowledges a message of a durable consumer, so that it is not given again"
    public static let role: Role? = .message

    public struct Parameters: ClosedObject {
        public var subscription: SubscriptionID
        /// The id of a ``ReceivedMessage`` of the subscription.
        public var id: Int64
        /// Whether to acknowledge all messages delivered before it as well; default: no.
        public var upTo: Bool

        public init(subscription: SubscriptionID, id: Int64, upTo: Bool = false) {
            self.subscription = subscription
            self.id = id
            self.upTo = upTo
        }

        public init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            subscription = try container.decode(SubscriptionID.self, forKey: .subscription)
            id = try container.decode(Int64.self, forKey: .id)
            upTo = try container.decodeIfPresent(Bool.self, forKey: .upTo) ?? false
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        /// How many messages are now acknowledged that were not before; this is committed to disk.
        public var acknowledged: Int

        public init(acknowledged: Int) {
            self.acknowledged = acknowledged
        }
    }
}

/// The id of a subscription on one connection to the control socket, for example `s1`.
public struct SubscriptionID: RawRepresentable, Codable, Hashable, Sendable {
    public var rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }
}
