import NIOCore

/// The Subscription Options (3.8.3.1).
private enum SubscriptionOptions {
    static let qos: UInt8 = 0x03
    static let noLocal: UInt8 = 0x04
    static let retainAsPublished: UInt8 = 0x08
    static let retainHandlingShift: UInt8 = 4
    static let reserved: UInt8 = 0xC0
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

    init(from reader: inout PacketReader) throws(MalformedPacket) {
        self.init(
            packetID: try reader.packetID(Field("Packet Identifier", "3.8.2")),
            subscriptions: [],
            properties: try reader.properties(Properties()))
        while !reader.isAtEnd { subscriptions.append(try Subscription(from: &reader)) }
        guard !subscriptions.isEmpty else {
            throw reader.error(Field("Payload", "3.8.3"), "has no topic filter", .protocolError)
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

    fileprivate init(from reader: inout PacketReader) throws(MalformedPacket) {
        let filter = try reader.filter(Field("Topic Filter", "3.8.3"))
        let field = Field("Subscription Options", "3.8.3.1")
        let options = try reader.byte(field)
        let reserved = reader.version == .five ? SubscriptionOptions.reserved : ~SubscriptionOptions.qos
        guard options & reserved == 0 else { throw reader.error(field, "has reserved bits set") }
        guard let qos = QoS(rawValue: options & SubscriptionOptions.qos) else {
            throw reader.error(field, "has QoS 3")
        }
        guard let handling = RetainHandling(rawValue: options >> SubscriptionOptions.retainHandlingShift) else {
            throw reader.error(field, "has Retain Handling 3", .protocolError)
        }
        let noLocal = options & SubscriptionOptions.noLocal != 0
        guard !noLocal || !TopicFilter.isShared(filter) else {
            throw reader.error(field, "has No Local on a shared subscription", .protocolError)
        }
        self.init(
            filter: filter,
            qos: qos,
            noLocal: noLocal,
            retainAsPublished: options & SubscriptionOptions.retainAsPublished != 0,
            retainHandling: handling)
    }
}

extension Subscribe.Properties: PropertySet {
    static var section: StaticString { "3.8.2.1" }

    func put(into sink: inout some PacketSink) {
        sink.put(.subscriptionIdentifier, variable: subscriptionID)
        sink.put(userProperties)
    }

    mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader) throws(MalformedPacket) {
        switch id {
        case .subscriptionIdentifier: subscriptionID = try reader.subscriptionID(field)
        case .userProperty: userProperties.append(try reader.userProperty(field))
        default: throw reader.misplaced(field)
        }
    }
}

extension Suback {
    func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        sink.put(packetID)
        sink.put(properties, version)
        for reasonCode in reasonCodes {
            let isFailure = version == .threeOneOne && reasonCode.isError
            sink.put(byte: isFailure ? ReasonCode.unspecifiedError.rawValue : reasonCode.rawValue)
        }
    }

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
