public import NIOCore

/// AUTH (3.15): a step of enhanced authentication.
public struct Auth: Hashable, Sendable {
    /// 0x00 (server), 0x18 (both sides) or 0x19 (client).
    public var reasonCode: ReasonCode
    /// The method is required, unless all properties are omitted (3.15.2.2).
    public var properties: Properties

    public init(reasonCode: ReasonCode = .success, properties: Properties = Properties()) {
        self.reasonCode = reasonCode
        self.properties = properties
    }

    /// The properties of AUTH (3.15.2.2). `nil` or empty means absent.
    public struct Properties: Hashable, Sendable {
        /// Required, except in the short form: success without properties (3.15.2.2.2).
        public var authenticationMethod: String?
        /// At most 65,535 bytes; the method defines their meaning.
        public var authenticationData: ByteBuffer?
        /// For people, not to be parsed (3.15.2.2.4).
        public var reasonString: String?
        /// In order; names may repeat.
        public var userProperties: [UserProperty]

        public init(
            authenticationMethod: String? = nil, authenticationData: ByteBuffer? = nil, reasonString: String? = nil,
            userProperties: [UserProperty] = []
        ) {
            self.authenticationMethod = authenticationMethod
            self.authenticationData = authenticationData
            self.reasonString = reasonString
            self.userProperties = userProperties
        }
    }
}
