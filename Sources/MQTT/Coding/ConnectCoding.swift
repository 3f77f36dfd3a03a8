/// The Connect Flags (3.1.2.3).
package enum ConnectFlags {
    package static let cleanStart: UInt8 = 0x02
    package static let will: UInt8 = 0x04
    package static let willRetain: UInt8 = 0x20
    package static let password: UInt8 = 0x40
    package static let username: UInt8 = 0x80
    package static let willQoSShift: UInt8 = 3
}

extension Connect {
    package static let protocolName = "MQTT"

    func put(into sink: inout some PacketSink, _ version: ProtocolVersion) {
        sink.put(string: Self.protocolName)
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
}

extension Connect.Properties: WritableProperties {
    package func put(into sink: inout some PacketSink) {
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
}

extension Will.Properties: WritableProperties {
    package func put(into sink: inout some PacketSink) {
        sink.put(.willDelayInterval, uint32: willDelay)
        sink.put(.payloadFormatIndicator, byte: payloadFormat?.rawValue)
        sink.put(.messageExpiryInterval, uint32: messageExpiryInterval)
        sink.put(.contentType, string: contentType)
        sink.put(.responseTopic, string: responseTopic)
        sink.put(.correlationData, binary: correlationData)
        sink.put(userProperties)
    }
}
