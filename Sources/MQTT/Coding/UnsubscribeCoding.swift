extension Unsubscribe {
    func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        sink.put(packetID)
        sink.put(properties, version)
        for filter in filters { sink.put(string: filter) }
    }

    init(from reader: inout PacketReader) throws(MalformedPacket) {
        self.init(
            packetID: try reader.packetID(Field("Packet Identifier", "3.10.2")),
            filters: [],
            properties: try reader.properties(Properties()))
        while !reader.isAtEnd { filters.append(try reader.filter(Field("Topic Filter", "3.10.3"))) }
        guard !filters.isEmpty else {
            throw reader.error(Field("Payload", "3.10.3"), "has no topic filter", .protocolError)
        }
    }
}

extension Unsubscribe.Properties: PropertySet {
    static var section: StaticString { "3.10.2.1" }

    func put(into sink: inout some PacketSink) {
        sink.put(userProperties)
    }

    mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader) throws(MalformedPacket) {
        guard id == .userProperty else { throw reader.misplaced(field) }
        userProperties.append(try reader.userProperty(field))
    }
}

extension Unsuback {
    func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        sink.put(packetID)
        sink.put(properties, version)
        guard version == .five else { return }
        for reasonCode in reasonCodes { sink.put(byte: reasonCode.rawValue) }
    }

    init(from reader: inout PacketReader) throws(MalformedPacket) {
        self.init(
            packetID: try reader.packetID(Field("Packet Identifier", "3.11.2")),
            reasonCodes: [],
            properties: try reader.properties(Properties()))
        guard reader.version == .five else { return }
        reasonCodes = try reader.reasonCodes(Field("Payload", "3.11.3"))
    }
}
