public import MQTT
public import NIOCore
import Vocabulary

// The half of the codec that only a server needs, for the models of servers, the vectors and the fuzzers. What both sides
// send is encoded and decoded by the product's own code.

/// Turns the bytes of either side into packets: see `PacketDecoder`.
public struct PeerDecoder: Sendable {
    private var decoder: PacketDecoder
    private let adoptsVersion: Bool

    /// - Parameters:
    ///   - adoptsVersion: whether a CONNECT of another version is accepted and decides the version of the connection, for
    ///     servers that speak both. Otherwise it is refused with 0x84.
    package init(
        sender: Sender = .client, version: ProtocolVersion = .five, adoptsVersion: Bool = false,
        maximumPacketSize: Int = Packet.maximumLength
    ) {
        decoder = PacketDecoder(
            sender: sender, version: version, setsContentAside: false, maximumPacketSize: maximumPacketSize)
        self.adoptsVersion = adoptsVersion
    }

    public var version: ProtocolVersion { decoder.version }
    public var bufferedBytes: Int { decoder.bufferedBytes }

    public mutating func append(_ bytes: ByteBuffer) { decoder.append(bytes) }

    public mutating func next() throws(MalformedPacket) -> Packet? {
        var version = decoder.version
        defer { decoder.version = version }
        return try decoder.next { [adoptsVersion] flags, reader, setsContentAside throws(MalformedPacket) in
            switch reader.kind {
            case .connect:
                if adoptsVersion, let other = Connect.version(of: reader.bytes) {
                    (version, reader.version) = (other, other)
                }
                return .connect(try Connect(from: &reader))
            case .subscribe: return .subscribe(try Subscribe(from: &reader))
            case .unsubscribe: return .unsubscribe(try Unsubscribe(from: &reader))
            case .pingreq: return .pingreq
            default: return try Packet(flags: flags, from: &reader, setsContentAside: setsContentAside)
            }
        }
    }
}

/// The bytes of a packet that either side sends.
public func encoded(_ packet: Packet, in version: ProtocolVersion = .five) -> ByteBuffer {
    var body = ByteBuffer()
    switch packet {
    case .connack(let connack): connack.put(into: &body, version)
    case .suback(let suback): suback.put(into: &body, version)
    case .unsuback(let unsuback): unsuback.put(into: &body, version)
    default: return packet.encoded(as: version)
    }
    var bytes = ByteBuffer()
    bytes.put(byte: packet.kind.rawValue << 4)
    bytes.put(variable: body.readableBytes)
    bytes.put(rest: body)
    return bytes
}

// MARK: CONNECT

extension Connect {
    /// The version that the body of a CONNECT names; `nil` if there is no such version.
    fileprivate static func version(of body: ByteBuffer) -> ProtocolVersion? {
        let offset = 2 + Connect.protocolName.utf8.count
        return body.getInteger(at: body.readerIndex + offset, as: UInt8.self).flatMap(ProtocolVersion.init(rawValue:))
    }

    fileprivate init(from reader: inout PacketReader) throws(MalformedPacket) {
        let nameField = Field("Protocol Name", "3.1.2.1")
        guard try reader.string(nameField).utf8.elementsEqual(Connect.protocolName.utf8) else {
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
        guard flags & 1 == 0 else { throw reader.error(flagsField, "has the reserved flag set") }
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

extension Connect.Properties: ReadableProperties {
    package static var section: StaticString { "3.1.2.11" }

    package mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader)
        throws(MalformedPacket)
    {
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

extension Will.Properties: ReadableProperties {
    package static var section: StaticString { "3.1.3.2" }

    package mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader)
        throws(MalformedPacket)
    {
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

// MARK: SUBSCRIBE and UNSUBSCRIBE

extension Subscribe {
    fileprivate init(from reader: inout PacketReader) throws(MalformedPacket) {
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

extension SubscriptionOptions {
    fileprivate static let reserved: UInt8 = 0xC0
}

extension Subscription {
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

extension Subscribe.Properties: ReadableProperties {
    package static var section: StaticString { "3.8.2.1" }

    package mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader)
        throws(MalformedPacket)
    {
        switch id {
        case .subscriptionIdentifier: subscriptionID = try reader.subscriptionID(field)
        case .userProperty: userProperties.append(try reader.userProperty(field))
        default: throw reader.misplaced(field)
        }
    }
}

extension Unsubscribe {
    fileprivate init(from reader: inout PacketReader) throws(MalformedPacket) {
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

extension Unsubscribe.Properties: ReadableProperties {
    package static var section: StaticString { "3.10.2.1" }

    package mutating func take(_ id: PropertyID, _ field: Field, from reader: inout PacketReader)
        throws(MalformedPacket)
    {
        guard id == .userProperty else { throw reader.misplaced(field) }
        userProperties.append(try reader.userProperty(field))
    }
}

extension PacketReader {
    fileprivate mutating func filter(_ field: Field) throws(MalformedPacket) -> String {
        let filter = try string(field)
        do {
            try TopicFilter.validate(filter)
        } catch {
            throw self.error(field, "is invalid: \(error)", .protocolError)
        }
        return filter
    }
}

// MARK: CONNACK, SUBACK and UNSUBACK

extension Connack {
    fileprivate func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        sink.put(byte: sessionPresent ? 1 : 0)
        sink.put(byte: version == .five ? reasonCode.rawValue : ReturnCode(reasonCode).rawValue)
        sink.put(properties, version)
    }
}

extension ReturnCode {
    /// The one with the same meaning; `serverUnavailable` for an error that MQTT 3.1.1 does not know.
    package init(_ reasonCode: ReasonCode) {
        self =
            Self.allCases.first { $0.reasonCode == reasonCode } ?? (reasonCode.isError ? .serverUnavailable : .accepted)
    }
}

extension Connack.Properties: WritableProperties {
    package func put(into sink: inout some PacketSink) {
        sink.put(.sessionExpiryInterval, uint32: sessionExpiryInterval)
        sink.put(.receiveMaximum, uint16: receiveMaximum)
        if maximumQoS != .exactlyOnce { sink.put(.maximumQoS, byte: maximumQoS?.rawValue) }
        sink.put(.retainAvailable, flag: retainAvailable)
        sink.put(.maximumPacketSize, uint32: maximumPacketSize)
        sink.put(.assignedClientIdentifier, string: assignedClientID)
        sink.put(.topicAliasMaximum, uint16: topicAliasMaximum)
        sink.put(.reasonString, string: reasonString)
        sink.put(userProperties)
        sink.put(.wildcardSubscriptionAvailable, flag: wildcardSubscriptionAvailable)
        sink.put(.subscriptionIdentifierAvailable, flag: subscriptionIDsAvailable)
        sink.put(.sharedSubscriptionAvailable, flag: sharedSubscriptionAvailable)
        sink.put(.serverKeepAlive, uint16: serverKeepAlive)
        sink.put(.responseInformation, string: responseInformation)
        sink.put(.serverReference, string: serverReference)
        sink.put(.authenticationMethod, string: authenticationMethod)
        sink.put(.authenticationData, binary: authenticationData)
    }
}

extension Suback {
    fileprivate func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        sink.put(packetID)
        sink.put(properties, version)
        for reasonCode in reasonCodes {
            let isFailure = version == .threeOneOne && reasonCode.isError
            sink.put(byte: isFailure ? ReasonCode.unspecifiedError.rawValue : reasonCode.rawValue)
        }
    }
}

extension Unsuback {
    fileprivate func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        sink.put(packetID)
        sink.put(properties, version)
        guard version == .five else { return }
        for reasonCode in reasonCodes { sink.put(byte: reasonCode.rawValue) }
    }
}
