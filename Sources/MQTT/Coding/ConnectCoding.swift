import NIOCore

/// The Connect Flags (3.1.2.3).
private enum ConnectFlags {
    static let reserved: UInt8 = 0x01
    static let cleanStart: UInt8 = 0x02
    static let will: UInt8 = 0x04
    static let willRetain: UInt8 = 0x20
    static let password: UInt8 = 0x40
    static let username: UInt8 = 0x80
    static let willQoSShift: UInt8 = 3
}

private let protocolName = "MQTT"

extension Connect {
    func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        sink.put(string: protocolName)
        sink.put(byte: version.rawValue)
        sink.put(byte: flags)
        sink.put(uint16: keepAlive)
        sink.put(properties, version)
        sink.put(string: clientID)
        if let will {
            sink.put(will.properties, version)
            sink.put(string: will.topic)
            sink.put(binary: will.payload)
        }
        if let username { sink.put(string: username) }
        if let password { sink.put(binary: password) }
    }

    /// The version that the body of a CONNECT names; `nil` if there is no such version.
    static func version(of body: ByteBuffer) -> ProtocolVersion? {
        let offset = 2 + protocolName.utf8.count
        return body.getInteger(at: body.readerIndex + offset, as: UInt8.self).flatMap(ProtocolVersion.init(rawValue:))
    }

    private var flags: UInt8 {
        var flags: UInt8 = 0
        if cleanStart { flags |= ConnectFlags.cleanStart }
        if username != nil { flags |= ConnectFlags.username }
        if password != nil { flags |= ConnectFlags.password }
        if let will {
            flags |= ConnectFlags.will | will.qos.rawValue << ConnectFlags.willQoSShift
            if will.retain { flags |= ConnectFlags.willRetain }
        }
        return flags
    }

    init(from reader: inout PacketReader) throws(MalformedPacket) {
        let nameField = Field("Protocol Name", "3.1.2.1")
        guard try reader.string(nameField).utf8.elementsEqual(protocolName.utf8) else {
            throw reader.error(nameField, "is not MQTT", .unsupportedProtocolVersion)
        }
        let versionField = Field("Protocol Version", "3.1.2.2")
        let version = try reader.byte(versionField)
        guard version == reader.version.rawValue else {
            throw reader.error(
                versionField, "is \(version), not \(reader.version.rawValue)", .unsupportedProtocolVersion)
        }
        let flagsField = Field("Connect Flags", "3.1.2.3")
        let flags = try reader.byte(flagsField)
        guard flags & ConnectFlags.reserved == 0 else { throw reader.error(flagsField, "has the reserved flag set") }
        guard reader.version == .five || flags & ConnectFlags.password == 0 || flags & ConnectFlags.username != 0 else {
            throw reader.error(flagsField, "has a password without a user name")
        }
        let willFlags = WillFlags(flags)
        guard let willFlags else { throw reader.error(flagsField, "has will flags that contradict each other") }
        let keepAlive = try reader.uint16(Field("Keep Alive", "3.1.2.10"))
        let properties = try reader.properties(Properties())
        guard properties.authenticationData == nil || properties.authenticationMethod != nil else {
            throw reader.error(
                Field("Authentication Data", "3.1.2.11.10"), "is there without a method", .protocolError)
        }
        self.init(
            clientID: try reader.string(Field("Client Identifier", "3.1.3.1")),
            cleanStart: flags & ConnectFlags.cleanStart != 0,
            keepAlive: keepAlive,
            properties: properties)
        guard reader.version == .five || cleanStart || !clientID.isEmpty else {
            throw reader.error(
                Field("Client Identifier", "3.1.3.1"), "is empty without Clean Session", .clientIdentifierNotValid)
        }
        if case .will(let qos, let retain) = willFlags { will = try Will(qos: qos, retain: retain, from: &reader) }
        if flags & ConnectFlags.username != 0 {
            username = try reader.string(Field("User Name", "3.1.3.5", older: "3.1.3.4"))
        }
        if flags & ConnectFlags.password != 0 {
            password = try reader.binary(Field("Password", "3.1.3.6", older: "3.1.3.5"))
        }
    }

    /// What the flags say about the will (3.1.2.5 to 3.1.2.7); `nil` if they contradict each other.
    private enum WillFlags {
        case none
        case will(QoS, retain: Bool)

        init?(_ flags: UInt8) {
            let bits = flags >> ConnectFlags.willQoSShift & 0b11
            let retain = flags & ConnectFlags.willRetain != 0
            if flags & ConnectFlags.will == 0 {
                guard bits == 0, !retain else { return nil }
                self = .none
            } else {
                guard let qos = QoS(rawValue: bits) else { return nil }
                self = .will(qos, retain: retain)
            }
        }
    }
}

extension Will {
    fileprivate init(qos: QoS, retain: Bool, from reader: inout PacketReader) throws(MalformedPacket) {
        let properties = try reader.properties(Properties())
        let topicField = Field("Will Topic", "3.1.3.3", older: "3.1.3.2")
        let topic = try reader.topic(topicField)
        guard !topic.isEmpty else { throw reader.error(topicField, "is empty", .protocolError) }
        self.init(
            topic: topic,
            payload: try reader.binary(Field("Will Payload", "3.1.3.4", older: "3.1.3.3")),
            qos: qos,
            retain: retain,
            properties: properties)
    }
}

extension Connect.Properties: PropertySet {
    static var section: StaticString { "3.1.2.11" }

    func put(into sink: inout some PacketSink) {
        sink.put(.sessionExpiryInterval, uint32: sessionExpiryInterval)
        sink.put(.receiveMaximum, uint16: receiveMaximum)
        sink.put(.maximumPacketSize, uint32: maximumPacketSize)
        sink.put(.topicAliasMaximum, uint16: topicAliasMaximum)
        sink.put(.requestResponseInformation, flag: requestResponseInformation)
        sink.put(.requestProblemInformation, flag: requestProblemInformation)
        sink.put(.authenticationMethod, string: authenticationMethod)
        sink.put(.authenticationData, binary: authenticationData)
        sink.put(userProperties)
    }

    mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader) throws(MalformedPacket) {
        switch id {
        case .sessionExpiryInterval: sessionExpiryInterval = try reader.uint32(field)
        case .receiveMaximum: receiveMaximum = try reader.nonZeroUInt16(field)
        case .maximumPacketSize: maximumPacketSize = try reader.nonZeroUInt32(field)
        case .topicAliasMaximum: topicAliasMaximum = try reader.uint16(field)
        case .requestResponseInformation: requestResponseInformation = try reader.flag(field)
        case .requestProblemInformation: requestProblemInformation = try reader.flag(field)
        case .authenticationMethod: authenticationMethod = try reader.string(field)
        case .authenticationData: authenticationData = try reader.binary(field)
        case .userProperty: userProperties.append(try reader.userProperty(field))
        default: throw reader.misplaced(field)
        }
    }
}

extension Will.Properties: PropertySet {
    static var section: StaticString { "3.1.3.2" }

    func put(into sink: inout some PacketSink) {
        sink.put(.willDelayInterval, uint32: willDelay)
        sink.put(.payloadFormatIndicator, byte: payloadFormat?.rawValue)
        sink.put(.messageExpiryInterval, uint32: messageExpiryInterval)
        sink.put(.contentType, string: contentType)
        sink.put(.responseTopic, string: responseTopic)
        sink.put(.correlationData, binary: correlationData)
        sink.put(userProperties)
    }

    mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader) throws(MalformedPacket) {
        switch id {
        case .willDelayInterval: willDelay = try reader.uint32(field)
        case .payloadFormatIndicator: payloadFormat = try reader.payloadFormat(field)
        case .messageExpiryInterval: messageExpiryInterval = try reader.uint32(field)
        case .contentType: contentType = try reader.string(field)
        case .responseTopic: responseTopic = try reader.topic(field)
        case .correlationData: correlationData = try reader.binary(field)
        case .userProperty: userProperties.append(try reader.userProperty(field))
        default: throw reader.misplaced(field)
        }
    }
}
