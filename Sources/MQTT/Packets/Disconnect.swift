/// DISCONNECT (3.14): the last packet on a connection, from either side.
public struct Disconnect: Hashable, Sendable {
    /// 0x00 withdraws the will (3.14.2.1).
    public var reasonCode: ReasonCode
    /// Omitted on the wire if there are none.
    public var properties: Properties

    public init(reasonCode: ReasonCode = .normalDisconnection, properties: Properties = Properties()) {
        self.reasonCode = reasonCode
        self.properties = properties
    }

    /// The properties of DISCONNECT (3.14.2.2). `nil` or empty means absent.
    public struct Properties: Hashable, Sendable {
        /// Seconds; replaces what CONNECT asked for. From the client only [MQTT-3.14.2-2].
        public var sessionExpiryInterval: UInt32?
        /// For people, not to be parsed (3.14.2.2.3).
        public var reasonString: String?
        /// In order; names may repeat.
        public var userProperties: [UserProperty]
        /// Another server to use, with 0x9C and 0x9D (3.14.2.2.5).
        public var serverReference: String?

        public init(
            sessionExpiryInterval: UInt32? = nil, reasonString: String? = nil, userProperties: [UserProperty] = [],
            serverReference: String? = nil
        ) {
            self.sessionExpiryInterval = sessionExpiryInterval
            self.reasonString = reasonString
            self.userProperties = userProperties
            self.serverReference = serverReference
        }
    }
}
