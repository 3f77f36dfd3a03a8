extension Acknowledgement {
    /// A success without properties ends after the packet identifier, any other reason without properties after the
    /// reason code (3.4.2.1, 3.4.2.2.1). In MQTT 3.1.1 the packet identifier is all there is.
    func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        sink.put(packetID)
        guard version == .five, reasonCode != .success || !properties.isEmpty else { return }
        sink.put(byte: reasonCode.rawValue)
        guard !properties.isEmpty else { return }
        sink.put(properties, version)
    }

    init(from reader: inout PacketReader) throws(MalformedPacket) {
        self.init(packetID: try reader.packetID(Field("Packet Identifier", "3.4.2")))
        guard reader.version == .five, !reader.isAtEnd else { return }
        reasonCode = try reader.reasonCode(Field("Reason Code", "3.4.2.1"))
        guard !reader.isAtEnd else { return }
        properties = try reader.properties(Properties())
    }
}

extension Acknowledgement.Properties: WritableProperties, ReadableProperties {
    package static var section: StaticString { "3.4.2.2" }

    fileprivate var isEmpty: Bool { reasonString == nil && userProperties.isEmpty }

    package func put(into sink: inout some PacketSink) {
        sink.put(.reasonString, string: reasonString)
        sink.put(userProperties)
    }

    package mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader)
        throws(MalformedPacket)
    {
        switch id {
        case .reasonString: reasonString = try reader.string(field)
        case .userProperty: userProperties.append(try reader.userProperty(field))
        default: throw reader.misplaced(field)
        }
    }
}
