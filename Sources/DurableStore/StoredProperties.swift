internal import MQTT
internal import NIOCore

/// The properties of a message as one column: a version byte, then tag, length and value of each property.
///
/// This is not the encoding of the protocol, so that a change of the codec cannot make an old file unreadable. New tags
/// are added at the end, and their numbers never change. An unknown tag comes from a later version and is omitted, so
/// that a downgrade loses a property and not a message.
enum StoredProperties {
    private static let version: UInt8 = 1

    private enum Tag: UInt8 {
        case payloadFormat = 1
        case messageExpiryInterval = 2
        case topicAlias = 3
        case responseTopic = 4
        case correlationData = 5
        /// Two in a row make one property: the name and the value.
        case userPropertyName = 6
        case userPropertyValue = 7
        case subscriptionID = 8
        case contentType = 9
    }

    /// Returns `nil` if there is nothing to keep.
    static func encode(_ properties: Publish.Properties) -> ByteBuffer? {
        guard properties != Publish.Properties() else { return nil }
        var buffer = ByteBuffer()
        buffer.writeInteger(version)
        func write(_ tag: Tag, _ value: some FixedWidthInteger) {
            buffer.writeInteger(tag.rawValue)
            buffer.writeInteger(UInt32(MemoryLayout.size(ofValue: value)))
            buffer.writeInteger(value)
        }
        func write(_ tag: Tag, _ value: String) {
            buffer.writeInteger(tag.rawValue)
            buffer.writeInteger(UInt32(value.utf8.count))
            buffer.writeString(value)
        }
        if let value = properties.payloadFormat { write(.payloadFormat, value.rawValue) }
        if let value = properties.messageExpiryInterval { write(.messageExpiryInterval, value) }
        if let value = properties.topicAlias { write(.topicAlias, value) }
        if let value = properties.responseTopic { write(.responseTopic, value) }
        if let value = properties.correlationData {
            buffer.writeInteger(Tag.correlationData.rawValue)
            buffer.writeInteger(UInt32(value.readableBytes))
            buffer.writeImmutableBuffer(value)
        }
        for property in properties.userProperties {
            write(.userPropertyName, property.name)
            write(.userPropertyValue, property.value)
        }
        for value in properties.subscriptionIDs { write(.subscriptionID, value) }
        if let value = properties.contentType { write(.contentType, value) }
        return buffer
    }

    /// Returns `nil` if the bytes are not what ``encode(_:)`` writes, here or in a later version.
    static func decode(_ bytes: ByteBuffer) -> Publish.Properties? {
        var bytes = bytes
        var properties = Publish.Properties()
        guard bytes.readInteger(as: UInt8.self) == version else { return nil }
        var name: String?
        while let number = bytes.readInteger(as: UInt8.self) {
            let tag = Tag(rawValue: number)
            guard let length = bytes.readInteger(as: UInt32.self), var value = bytes.readSlice(length: Int(length)),
                (name != nil) == (tag == .userPropertyValue), number > 0
            else { return nil }
            guard let tag else { continue }
            switch tag {
            case .payloadFormat:
                guard let format = value.readInteger(as: UInt8.self).flatMap(PayloadFormat.init) else { return nil }
                properties.payloadFormat = format
            case .messageExpiryInterval:
                guard let seconds = value.readInteger(as: UInt32.self) else { return nil }
                properties.messageExpiryInterval = seconds
            case .topicAlias:
                guard let alias = value.readInteger(as: UInt16.self) else { return nil }
                properties.topicAlias = alias
            case .responseTopic:
                properties.responseTopic = String(buffer: value)
                continue
            case .correlationData:
                properties.correlationData = value
                continue
            case .userPropertyName:
                name = String(buffer: value)
                continue
            case .userPropertyValue:
                properties.userProperties.append(UserProperty(name: name ?? "", value: String(buffer: value)))
                name = nil
                continue
            case .subscriptionID:
                guard let id = value.readInteger(as: UInt32.self) else { return nil }
                properties.subscriptionIDs.append(id)
            case .contentType:
                properties.contentType = String(buffer: value)
                continue
            }
            guard value.readableBytes == 0 else { return nil }
        }
        return bytes.readableBytes == 0 && name == nil ? properties : nil
    }
}
