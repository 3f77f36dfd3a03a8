import NIOCore

/// The Subscription Options (3.8.3.1).
package enum SubscriptionOptions {
    package static let qos: UInt8 = 0x03
    package static let noLocal: UInt8 = 0x04
    package static let retainAsPublished: UInt8 = 0x08
    package static let retainHandlingShift: UInt8 = 4
}

extension Subscribe {
    func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        sink.put(packetID)
        sink.put(properties, version)
        for subscription in subscriptions {
            sink.put(string: subscription.filter)
            sink.put(byte: version == .five ? subscription.options : subscription.qos.rawValue)
        }
    }
}

extension Subscription {
    fileprivate var options: UInt8 {
        var options = qos.rawValue | retainHandling.rawValue << SubscriptionOptions.retainHandlingShift
        if noLocal { options |= SubscriptionOptions.noLocal }
        if retainAsPublished { options |= SubscriptionOptions.retainAsPublished }
        return options
    }
}

extension Subscribe.Properties: WritableProperties {
    package func put(into sink: inout some PacketSink) {
        sink.put(.subscriptionIdentifier, variable: subscriptionID)
        sink.put(userProperties)
    }
}

extension Suback {
    init(from reader: inout PacketReader) throws(MalformedPacket) {
        self.init(
            packetID: try reader.packetID(Field("Packet Identifier", "3.9.2")),
            reasonCodes: [],
            properties: try reader.properties(Properties()))
        let field = Field("Payload", "3.9.3")
        reasonCodes = try reader.reasonCodes(field)
        guard reader.version == .threeOneOne else { return }
        for code in reasonCodes where !code.isReturnCodeOfSuback {
            throw reader.error(field, "has the return code \(code.rawValue), which is reserved", .protocolError)
        }
    }
}

extension PacketReader {
    /// The reason codes that are the payload of SUBACK and UNSUBACK: at least one, as there was at least one filter.
    mutating func reasonCodes(_ field: Field) throws(MalformedPacket) -> [ReasonCode] {
        let payload = rest()
        guard payload.readableBytes > 0 else { throw error(field, "has no reason code", .protocolError) }
        return payload.readableBytesView.map(ReasonCode.init(rawValue:))
    }
}

extension ReasonCode {
    /// Whether SUBACK may have it in MQTT 3.1.1 (3.1.1, 3.9.3).
    package var isReturnCodeOfSuback: Bool { rawValue <= QoS.exactlyOnce.rawValue || self == .unspecifiedError }
}
