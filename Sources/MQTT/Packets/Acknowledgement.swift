/// PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7): all four have the same form.
public struct Acknowledgement: Hashable, Sendable {
    /// That of the PUBLISH (2.2.1).
    public var packetID: PacketID
    /// 0x80 and more are errors (2.4).
    public var reasonCode: ReasonCode
    /// Omitted on the wire if there are none.
    public var properties: Properties

    public init(packetID: PacketID, reasonCode: ReasonCode = .success, properties: Properties = Properties()) {
        self.packetID = packetID
        self.reasonCode = reasonCode
        self.properties = properties
    }

    /// The properties of every acknowledgement (3.4.2.2). `nil` or empty means absent.
    public struct Properties: Hashable, Sendable {
        /// For people, not to be parsed (3.4.2.2.2).
        public var reasonString: String?
        /// In order; names may repeat (3.4.2.2.3).
        public var userProperties: [UserProperty]

        public init(reasonString: String? = nil, userProperties: [UserProperty] = []) {
            self.reasonString = reasonString
            self.userProperties = userProperties
        }
    }
}
