import NIOCore

/// The flags in the fixed header of PUBLISH (3.3.1).
private enum PublishFlags {
    static let retain: UInt8 = 0x01
    static let duplicate: UInt8 = 0x08
    static let qosShift: UInt8 = 1
}

extension Publish {
    var flags: UInt8 {
        var flags = qos.rawValue << PublishFlags.qosShift
        if retain { flags |= PublishFlags.retain }
        if duplicate { flags |= PublishFlags.duplicate }
        return flags
    }

    func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        putHead(into: &sink, version)
        sink.put(rest: payload)
    }

    /// Everything before the payload.
    func putHead(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        sink.put(string: topic)
        if let packetID { sink.put(packetID) }
        sink.put(properties, version)
    }

    /// - Parameter setsContentAside: whether content that cannot be used becomes a ``flaw`` instead of an error.
    init(
        flags: UInt8, from reader: inout PacketReader, setsContentAside: Bool = false
    ) throws(MalformedPacket) {
        let frame = try Frame(flags: flags, from: &reader)
        let properties = try reader.propertyBytes(of: Properties.self)
        self = frame.publish
        payload = reader.rest()
        do throws(MalformedPacket) {
            topic = try reader.topic(frame.topic, Field.topicName)
            if let properties { self.properties = try reader.properties(Properties(), from: properties) }
            guard !topic.isEmpty || self.properties.topicAlias != nil else {
                let problem = reader.version == .five ? "is empty and there is no Topic Alias" : "is empty"
                throw reader.error(.topicName, problem, .protocolError)
            }
        } catch {
            // A wrong topic alias is the server's own error; everything else it only passes on.
            guard setsContentAside, error.reasonCode != .topicAliasInvalid else { throw error }
            topic = frame.topicForPeople
            flaw = error
        }
    }

    /// What comes before the properties: the least that is needed to acknowledge a message.
    struct Frame {
        /// Without topic, payload and properties.
        let publish: Publish
        let topic: ByteBuffer

        /// The topic, with invalid UTF-8 replaced.
        var topicForPeople: String { String(decoding: topic.readableBytesView, as: UTF8.self) }

        init(flags: UInt8, from reader: inout PacketReader) throws(MalformedPacket) {
            guard let qos = QoS(rawValue: flags >> PublishFlags.qosShift & 0b11) else {
                throw reader.error(Field("QoS", "3.3.1.2"), "is 3")
            }
            let duplicate = flags & PublishFlags.duplicate != 0
            guard !duplicate || qos != .atMostOnce else {
                throw reader.error(Field("DUP", "3.3.1.1"), "is set with QoS 0")
            }
            topic = try reader.binary(.topicName)
            let packetID = qos == .atMostOnce ? nil : try reader.packetID(Field("Packet Identifier", "3.3.2.2"))
            publish = Publish(
                topic: "", qos: qos, retain: flags & PublishFlags.retain != 0, duplicate: duplicate,
                packetID: packetID)
        }
    }
}

extension Field {
    static let topicName = Field("Topic Name", "3.3.2.1")
}

extension Publish.Properties: WritableProperties, ReadableProperties {
    package static var section: StaticString { "3.3.2.3" }

    package func put(into sink: inout some PacketSink) {
        sink.put(.payloadFormatIndicator, byte: payloadFormat?.rawValue)
        sink.put(.messageExpiryInterval, uint32: messageExpiryInterval)
        sink.put(.topicAlias, uint16: topicAlias)
        sink.put(.responseTopic, string: responseTopic)
        sink.put(.correlationData, binary: correlationData)
        sink.put(userProperties)
        for subscriptionID in subscriptionIDs { sink.put(.subscriptionIdentifier, variable: subscriptionID) }
        sink.put(.contentType, string: contentType)
    }

    package mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader)
        throws(MalformedPacket)
    {
        switch id {
        case .payloadFormatIndicator: payloadFormat = try reader.payloadFormat(field)
        case .messageExpiryInterval: messageExpiryInterval = try reader.uint32(field)
        case .topicAlias: topicAlias = try reader.nonZeroUInt16(field, .topicAliasInvalid)
        case .responseTopic: responseTopic = try reader.topic(field)
        case .correlationData: correlationData = try reader.binary(field)
        case .userProperty:
            guard userProperties.count < Self.maximumRepeats else { throw reader.error(field, Self.tooOften) }
            userProperties.append(try reader.userProperty(field))
        case .subscriptionIdentifier:
            guard reader.sender == .server else {
                throw reader.error(field, "is not sent by a client", .protocolError)
            }
            guard subscriptionIDs.count < Self.maximumRepeats else { throw reader.error(field, Self.tooOften) }
            subscriptionIDs.append(try reader.subscriptionID(field))
        case .contentType: contentType = try reader.string(field)
        default: throw reader.misplaced(field)
        }
    }

    private static var tooOften: String { "occurs more than \(maximumRepeats) times" }
}
