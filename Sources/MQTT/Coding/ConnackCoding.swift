extension Connack {
    init(from reader: inout PacketReader) throws(MalformedPacket) {
        let flagsField = Field("Connect Acknowledge Flags", "3.2.2.1")
        let flags = try reader.byte(flagsField)
        guard flags & 0xFE == 0 else { throw reader.error(flagsField, "has reserved flags set") }
        guard reader.version == .five else {
            let field = Field("Connect Return code", "3.2.2.3")
            let code = try reader.byte(field)
            guard let known = ReturnCode(rawValue: code) else {
                throw reader.error(field, "is \(code), which is reserved", .protocolError)
            }
            self.init(sessionPresent: flags == 1, reasonCode: known.reasonCode)
            return
        }
        if flags == 0, reader.isOneByte(ReturnCode.unacceptableVersion.rawValue) {
            // A server that does not know MQTT 5 answers in its own way [MQTT-3.1.2-2 of 3.1.1].
            _ = reader.rest()
            self.init(reasonCode: .unsupportedProtocolVersion)
            return
        }
        self.init(
            sessionPresent: flags == 1,
            reasonCode: try reader.reasonCode(Field("Reason Code", "3.2.2.2")),
            properties: try reader.properties(Properties()))
    }
}

/// The return codes that CONNACK has in MQTT 3.1.1 (3.1.1, 3.2.2.3).
package enum ReturnCode: UInt8, CaseIterable {
    case accepted = 0
    case unacceptableVersion = 1
    case identifierRejected = 2
    case serverUnavailable = 3
    case badUserNameOrPassword = 4
    case notAuthorized = 5

    package var reasonCode: ReasonCode {
        switch self {
        case .accepted: .success
        case .unacceptableVersion: .unsupportedProtocolVersion
        case .identifierRejected: .clientIdentifierNotValid
        case .serverUnavailable: .serverUnavailable
        case .badUserNameOrPassword: .badUserNameOrPassword
        case .notAuthorized: .notAuthorized
        }
    }
}

extension Connack.Properties: ReadableProperties {
    package static var section: StaticString { "3.2.2.3" }

    package mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader)
        throws(MalformedPacket)
    {
        switch id {
        case .sessionExpiryInterval: sessionExpiryInterval = try reader.uint32(field)
        case .receiveMaximum: receiveMaximum = try reader.nonZeroUInt16(field)
        case .maximumQoS: maximumQoS = try reader.flag(field) ? .atLeastOnce : .atMostOnce
        case .retainAvailable: retainAvailable = try reader.flag(field)
        case .maximumPacketSize: maximumPacketSize = try reader.nonZeroUInt32(field)
        case .assignedClientIdentifier: assignedClientID = try reader.string(field)
        case .topicAliasMaximum: topicAliasMaximum = try reader.uint16(field)
        case .reasonString: reasonString = try reader.string(field)
        case .userProperty: userProperties.append(try reader.userProperty(field))
        case .wildcardSubscriptionAvailable: wildcardSubscriptionAvailable = try reader.flag(field)
        case .subscriptionIdentifierAvailable: subscriptionIDsAvailable = try reader.flag(field)
        case .sharedSubscriptionAvailable: sharedSubscriptionAvailable = try reader.flag(field)
        case .serverKeepAlive: serverKeepAlive = try reader.uint16(field)
        case .responseInformation: responseInformation = try reader.string(field)
        case .serverReference: serverReference = try reader.string(field)
        case .authenticationMethod: authenticationMethod = try reader.string(field)
        case .authenticationData: authenticationData = try reader.binary(field)
        default: throw reader.misplaced(field)
        }
    }
}
