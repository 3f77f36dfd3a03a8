/// PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7): all four have the same form.
public struct Acknowledgement: Hashable, Sendable {
    public var packetID: PacketID
    public var reasonCode: ReasonCode
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
        public var userProperties: [UserProperty]

        public init(reasonString: String? = nil, userProperties: [UserProperty] = []) {
            self.reasonString = reasonString
            self.userProperties = userProperties
        }
    }
}
