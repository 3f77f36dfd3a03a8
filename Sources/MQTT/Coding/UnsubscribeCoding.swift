extension Unsubscribe {
    func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        sink.put(packetID)
        sink.put(properties, version)
        for filter in filters { sink.put(string: filter) }
    }
}

extension Unsubscribe.Properties: WritableProperties {
    package func put(into sink: inout some PacketSink) {
        sink.put(userProperties)
    }
}

extension Unsuback {
    init(from reader: inout PacketReader) throws(MalformedPacket) {
        self.init(
            packetID: try reader.packetID(Field("Packet Identifier", "3.11.2")),
            reasonCodes: [],
            properties: try reader.properties(Properties()))
        guard reader.version == .five else { return }
        reasonCodes = try reader.reasonCodes(Field("Payload", "3.11.3"))
    }
}
