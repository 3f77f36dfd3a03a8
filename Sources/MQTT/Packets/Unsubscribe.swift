/// UNSUBSCRIBE (3.10).
public struct Unsubscribe: Hashable, Sendable {
    /// Free again after UNSUBACK (2.2.1).
    public var packetID: PacketID
    /// At least one [MQTT-3.10.3-2].
    public var filters: [String]
    /// MQTT 3.1.1 has none.
    public var properties: Properties

    public init(packetID: PacketID, filters: [String], properties: Properties = Properties()) {
        self.packetID = packetID
        self.filters = filters
        self.properties = properties
    }

    /// The properties of UNSUBSCRIBE (3.10.2.1). Empty means absent.
    public struct Properties: Hashable, Sendable {
        /// In order; names may repeat.
        public var userProperties: [UserProperty]

        public init(userProperties: [UserProperty] = []) {
            self.userProperties = userProperties
        }
    }
}

/// UNSUBACK (3.11).
public struct Unsuback: Hashable, Sendable {
    /// Those of every acknowledgement.
    public typealias Properties = Acknowledgement.Properties

    /// Free again after UNSUBACK (2.2.1).
    public var packetID: PacketID
    /// One for each filter of the UNSUBSCRIBE, in its order; none at all in MQTT 3.1.1.
    public var reasonCodes: [ReasonCode]
    /// MQTT 3.1.1 has none.
    public var properties: Properties

    public init(packetID: PacketID, reasonCodes: [ReasonCode], properties: Properties = Properties()) {
        self.packetID = packetID
        self.reasonCodes = reasonCodes
        self.properties = properties
    }
}
