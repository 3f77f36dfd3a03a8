public import NIOCore

/// CONNECT (3.1): the client's request for a connection. The protocol name `MQTT` is implied, and the version is the
/// one that the packet is encoded for.
public struct Connect: Hashable, Sendable {
    /// Empty asks the server to assign one (3.1.3.1); in MQTT 3.1.1 only together with `cleanStart` [MQTT-3.1.3-7].
    public var clientID: String
    /// Whether the server has to forget an existing session first (3.1.2.4). In MQTT 3.1.1 this is Clean Session: the
    /// new session then also ends with the connection.
    public var cleanStart: Bool
    /// Seconds; 0 turns keep-alive off (3.1.2.10).
    public var keepAlive: UInt16
    /// The user name, if one is sent (3.1.3.5).
    public var username: String?
    /// At most 65,535 bytes; may be sent without a user name (3.1.3.6), but not in MQTT 3.1.1 [MQTT-3.1.2-22].
    public var password: ByteBuffer?
    /// What the server publishes when the client leaves without saying goodbye (3.1.2.5).
    public var will: Will?
    /// What the client asks for (3.1.2.11).
    public var properties: Properties

    public init(
        clientID: String, cleanStart: Bool = false, keepAlive: UInt16 = 0, username: String? = nil,
        password: ByteBuffer? = nil, will: Will? = nil, properties: Properties = Properties()
    ) {
        self.clientID = clientID
        self.cleanStart = cleanStart
        self.keepAlive = keepAlive
        self.username = username
        self.password = password
        self.will = will
        self.properties = properties
    }

    /// The properties of CONNECT (3.1.2.11). `nil` or empty means absent.
    public struct Properties: Hashable, Sendable {
        /// Seconds that the session outlives the connection; absent means 0, 0xFFFFFFFF means without end (3.1.2.11.2).
        public var sessionExpiryInterval: UInt32?
        /// Unacknowledged QoS 1 and 2 publications that we take at once, not 0; absent means 65,535 (3.1.2.11.3).
        public var receiveMaximum: UInt16?
        /// The largest packet that we take, in bytes with its fixed header, not 0; absent means no limit (3.1.2.11.4).
        public var maximumPacketSize: UInt32?
        /// The highest topic alias that the server may use; absent means 0 (3.1.2.11.5).
        public var topicAliasMaximum: UInt16?
        /// Whether we want Response Information; absent means no (3.1.2.11.6).
        public var requestResponseInformation: Bool?
        /// Whether reason strings may be sent on any packet; absent means yes (3.1.2.11.7).
        public var requestProblemInformation: Bool?
        /// The method of enhanced authentication (3.1.2.11.9).
        public var authenticationMethod: String?
        /// The data of that method, only together with a method (3.1.2.11.10).
        public var authenticationData: ByteBuffer?
        /// In order; names may repeat.
        public var userProperties: [UserProperty]

        public init(
            sessionExpiryInterval: UInt32? = nil, receiveMaximum: UInt16? = nil, maximumPacketSize: UInt32? = nil,
            topicAliasMaximum: UInt16? = nil, requestResponseInformation: Bool? = nil,
            requestProblemInformation: Bool? = nil, authenticationMethod: String? = nil,
            authenticationData: ByteBuffer? = nil, userProperties: [UserProperty] = []
        ) {
            self.sessionExpiryInterval = sessionExpiryInterval
            self.receiveMaximum = receiveMaximum
            self.maximumPacketSize = maximumPacketSize
            self.topicAliasMaximum = topicAliasMaximum
            self.requestResponseInformation = requestResponseInformation
            self.requestProblemInformation = requestProblemInformation
            self.authenticationMethod = authenticationMethod
            self.authenticationData = authenticationData
            self.userProperties = userProperties
        }
    }
}

extension Connect {
    /// What a client makes another connection for, beside the one that it has or is about to have.
    package enum Purpose: String, CaseIterable, Sendable {
        /// To look who is in a room.
        case look
        /// To check whether the server accepts the client.
        case check
    }

    /// The identifier for another connection of the client with this one. Empty, so that the server assigns one, if a
    /// longer identifier is not possible [MQTT-3.1.3-4].
    package static func clientID(_ clientID: String, to purpose: Purpose) -> String {
        let name = "\(clientID)-\(purpose)"
        return name.utf8.count <= Packet.maximumStringLength ? name : ""
    }
}
