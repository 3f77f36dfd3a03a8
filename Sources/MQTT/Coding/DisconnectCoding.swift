extension Disconnect {
    /// A normal disconnection without properties is empty, any other reason without properties is one byte (3.14.2). In
    /// MQTT 3.1.1 it is always empty.
    func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        guard version == .five, reasonCode != .normalDisconnection || !properties.isEmpty else { return }
        sink.put(byte: reasonCode.rawValue)
        guard !properties.isEmpty else { return }
        sink.put(properties, version)
    }

    init(from reader: inout PacketReader) throws(MalformedPacket) {
        self.init()
        guard reader.version == .five, !reader.isAtEnd else { return }
        reasonCode = try reader.reasonCode(Field("Disconnect Reason Code", "3.14.2.1"))
        guard !reader.isAtEnd else { return }
        properties = try reader.properties(Properties())
    }
}

extension Disconnect.Properties: WritableProperties, ReadableProperties {
    package static var section: StaticString { "3.14.2.2" }

    fileprivate var isEmpty: Bool {
        sessionExpiryInterval == nil && reasonString == nil && userProperties.isEmpty && serverReference == nil
    }

    package func put(into sink: inout some PacketSink) {
        sink.put(.sessionExpiryInterval, uint32: sessionExpiryInterval)
        sink.put(.reasonString, string: reasonString)
        sink.put(userProperties)
        sink.put(.serverReference, string: serverReference)
    }

    package mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader)
        throws(MalformedPacket)
    {
        switch id {
        case .sessionExpiryInterval:
            guard reader.sender == .client else {
                throw reader.error(field, "is not sent by a server", .protocolError)
            }
            sessionExpiryInterval = try reader.uint32(field)
        case .reasonString: reasonString = try reader.string(field)
        case .userProperty: userProperties.append(try reader.userProperty(field))
        case .serverReference: serverReference = try reader.string(field)
        default: throw reader.misplaced(field)
        }
    }
}
