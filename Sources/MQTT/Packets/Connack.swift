public import NIOCore

/// CONNACK (3.2): the server's answer to CONNECT.
public struct Connack: Hashable, Sendable {
    /// Whether the server still had the session (3.2.2.1.1).
    public var sessionPresent: Bool
    /// 0x00, or why the server refuses the connection (3.2.2.2).
    public var reasonCode: ReasonCode
    /// What the server says about itself (3.2.2.3).
    public var properties: Properties

    public init(
        sessionPresent: Bool = false, reasonCode: ReasonCode = .success, properties: Properties = Properties()
    ) {
        self.sessionPresent = sessionPresent
        self.reasonCode = reasonCode
        self.properties = properties
    }

    /// The properties of CONNACK (3.2.2.3). `nil` or empty means absent.
    public struct Properties: Hashable, Sendable {
        /// Seconds; overrides what CONNECT asked for (3.2.2.3.2).
        public var sessionExpiryInterval: UInt32?
        /// Unacknowledged QoS 1 and 2 publications that the server takes, not 0; absent means 65,535 (3.2.2.3.3).
        public var receiveMaximum: UInt16?
        /// 0 or 1; absent means 2, and 2 itself is never on the wire: it is encoded as absent (3.2.2.3.4).
        public var maximumQoS: QoS?
        /// Absent means yes (3.2.2.3.5).
        public var retainAvailable: Bool?
        /// The largest packet that the server takes, in bytes with its fixed header, not 0 (3.2.2.3.6).
        public var maximumPacketSize: UInt32?
        /// The client identifier that the server assigned, if CONNECT had none (3.2.2.3.7).
        public var assignedClientID: String?
        /// The highest topic alias that we may use; absent means 0 (3.2.2.3.8).
        public var topicAliasMaximum: UInt16?
        /// For people, not to be parsed (3.2.2.3.9).
        public var reasonString: String?
        /// In order; names may repeat.
        public var userProperties: [UserProperty]
        /// Absent means yes (3.2.2.3.11).
        public var wildcardSubscriptionAvailable: Bool?
        /// Absent means yes (3.2.2.3.12).
        public var subscriptionIDsAvailable: Bool?
        /// Absent means yes (3.2.2.3.13).
        public var sharedSubscriptionAvailable: Bool?
        /// Seconds; overrides the keep-alive of CONNECT (3.2.2.3.14).
        public var serverKeepAlive: UInt16?
        /// What response topics begin with (3.2.2.3.15).
        public var responseInformation: String?
        /// Another server to use, with 0x9C and 0x9D (3.2.2.3.16).
        public var serverReference: String?
        /// The same as in CONNECT (3.2.2.3.17).
        public var authenticationMethod: String?
        /// At most 65,535 bytes; the method defines their meaning.
        public var authenticationData: ByteBuffer?

        public init(
            sessionExpiryInterval: UInt32? = nil, receiveMaximum: UInt16? = nil, maximumQoS: QoS? = nil,
            retainAvailable: Bool? = nil, maximumPacketSize: UInt32? = nil, assignedClientID: String? = nil,
            topicAliasMaximum: UInt16? = nil, reasonString: String? = nil, userProperties: [UserProperty] = [],
            wildcardSubscriptionAvailable: Bool? = nil, subscriptionIDsAvailable: Bool? = nil,
            sharedSubscriptionAvailable: Bool? = nil, serverKeepAlive: UInt16? = nil,
            responseInformation: String? = nil, serverReference: String? = nil, authenticationMethod: String? = nil,
            authenticationData: ByteBuffer? = nil
        ) {
            self.sessionExpiryInterval = sessionExpiryInterval
            self.receiveMaximum = receiveMaximum
            self.maximumQoS = maximumQoS
            self.retainAvailable = retainAvailable
            self.maximumPacketSize = maximumPacketSize
            self.assignedClientID = assignedClientID
            self.topicAliasMaximum = topicAliasMaximum
            self.reasonString = reasonString
            self.userProperties = userProperties
            self.wildcardSubscriptionAvailable = wildcardSubscriptionAvailable
            self.subscriptionIDsAvailable = subscriptionIDsAvailable
            self.sharedSubscriptionAvailable = sharedSubscriptionAvailable
            self.serverKeepAlive = serverKeepAlive
            self.responseInformation = responseInformation
            self.serverReference = serverReference
            self.authenticationMethod = authenticationMethod
            self.authenticationData = authenticationData
        }
    }
}
