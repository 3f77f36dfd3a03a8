extension SessionStatus {
    /// A filter that the session wants to subscribe to: for a program, for a durable consumer, or for its room.
    public struct Subscription: Codable, Hashable, Sendable {
        public var filter: String
        /// The QoS that the session asks for.
        public var qos: QoS
        public var state: State
        /// While granted: the QoS that the server granted, which may be lower.
        @OrNull public var grantedQoS: QoS?
        /// While refused: the server's reason code, if it gave one.
        @OrNull public var reasonCode: Int?
        /// While refused: what the server said, or why the session does not ask it.
        @OrNull public var message: String?
        /// While refused: since when.
        @OrNull public var since: Timestamp?
        /// While refused: when the server is asked again. Every reconnect asks as well, unless the server had ended
        /// connections because of this filter.
        @OrNull public var retryAt: Timestamp?

        public init(
            filter: String, qos: QoS, state: State, grantedQoS: QoS? = nil, reasonCode: Int? = nil,
            message: String? = nil, since: Timestamp? = nil, retryAt: Timestamp? = nil
        ) {
            self.filter = filter
            self.qos = qos
            self.state = state
            self.grantedQoS = grantedQoS
            self.reasonCode = reasonCode
            self.message = message
            self.since = since
            self.retryAt = retryAt
        }

        /// How the server has answered the request for the filter.
        public enum State: String, Codable, Sendable, CaseIterable {
            /// The server has not been asked yet, or has not answered.
            case pending
            case granted
            case refused
        }
    }

    /// What the server has granted on the current connection, with the standard's defaults where it said nothing.
    public struct Granted: Codable, Hashable, Sendable {
        /// How many seconds the server keeps the session after the connection ends; `nil`: forever.
        @OrNull public var sessionExpiry: Double?
        /// Seconds within which the server wants a sign of life; `nil`: it wants none.
        @OrNull public var keepAlive: Double?
        /// The highest QoS that may be published.
        public var maximumQoS: QoS
        /// Whether the server retains messages.
        public var retain: Bool
        /// How many unacknowledged messages the server takes at once.
        public var receiveMaximum: Int
        /// The size in bytes of the largest packet that the server takes.
        public var maximumPacketSize: Int64
        /// Whether filters may contain `+` and `#`.
        public var wildcardSubscriptions: Bool
        /// Whether filters may begin with `$share/`.
        public var sharedSubscriptions: Bool

        public init(
            sessionExpiry: Double?, keepAlive: Double?, maximumQoS: QoS, retain: Bool, receiveMaximum: Int,
            maximumPacketSize: Int64, wildcardSubscriptions: Bool, sharedSubscriptions: Bool
        ) {
            self.sessionExpiry = sessionExpiry
            self.keepAlive = keepAlive
            self.maximumQoS = maximumQoS
            self.retain = retain
            self.receiveMaximum = receiveMaximum
            self.maximumPacketSize = maximumPacketSize
            self.wildcardSubscriptions = wildcardSubscriptions
            self.sharedSubscriptions = sharedSubscriptions
        }
    }
}
