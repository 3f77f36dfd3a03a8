extension Auth {
    /// A success without properties is empty (3.15.2.1); everything else is written in full.
    func put(into sink: inout some PacketSink) {
        guard reasonCode != .success || !properties.isEmpty else { return }
        sink.put(byte: reasonCode.rawValue)
        sink.put(properties, .five)
    }

    init(from reader: inout PacketReader) throws(MalformedPacket) {
        self.init()
        guard !reader.isAtEnd else { return }
        reasonCode = try reader.reasonCode(Field("Authenticate Reason Code", "3.15.2.1"))
        properties = try reader.properties(Properties())
        guard properties.authenticationMethod != nil || (reasonCode == .success && properties.isEmpty) else {
            throw reader.error(Field("Authentication Method", "3.15.2.2.2"), "is missing", .protocolError)
        }
    }
}

extension Auth.Properties: WritableProperties, ReadableProperties {
    package static var section: StaticString { "3.15.2.2" }

    fileprivate var isEmpty: Bool { self == Self() }

    package func put(into sink: inout some PacketSink) {
        sink.put(.authenticationMethod, string: authenticationMethod)
        sink.put(.authenticationData, binary: authenticationData)
        sink.put(.reasonString, string: reasonString)
        sink.put(userProperties)
    }

    package mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader)
        throws(MalformedPacket)
    {
        switch id {
        case .authenticationMethod: authenticationMethod = try reader.string(field)
        case .authenticationData: authenticationData = try reader.binary(field)
        case .reasonString: reasonString = try reader.string(field)
        case .userProperty: userProperties.append(try reader.userProperty(field))
        default: throw reader.misplaced(field)
        }
    }
}
