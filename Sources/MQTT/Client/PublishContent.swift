package import NIOCore

// What is wrong with a message although it could be decoded. Servers relay what other publishers send, and most of them
// do not check it. Such a message must not end our connection: the server would send it again on the next one, and
// nothing behind it would ever arrive.

extension Publish {
    /// Why this message from the server must not be delivered; `nil` if nothing is wrong with it.
    func contentFlaw(in version: ProtocolVersion) -> MalformedPacket? {
        if let flaw { return flaw }
        let reader = PacketReader(ByteBuffer(), kind: .publish, sender: .server, version: version)
        if let problem = Self.problem(topic) { return reader.error(.topicName, problem) }
        if let responseTopic = properties.responseTopic {
            let field = Field("Response Topic", "3.3.2.3.5")
            guard !responseTopic.isEmpty else { return reader.error(field, "is empty", .protocolError) }
            if let problem = Self.problem(responseTopic) { return reader.error(field, problem) }
        }
        for property in properties.userProperties {
            if let problem = Self.problem(property.name) ?? Self.problem(property.value) {
                return reader.error(Field("User Property", "3.3.2.3.7"), problem)
            }
        }
        if let type = properties.contentType, let problem = Self.problem(type) {
            return reader.error(Field("Content Type", "3.3.2.3.9"), problem)
        }
        guard isPayloadAsSaid else {
            return reader.error(
                Field("Payload", "3.3.2.3.2"), "is not the UTF-8 text that its Payload Format Indicator says",
                .payloadFormatInvalid)
        }
        return nil
    }

    private static func problem(_ string: String) -> String? {
        string.discouragedCharacter.map { "contains \($0.codePoint)" }
    }

    private var isPayloadAsSaid: Bool { properties.payloadFormat != .utf8 || payload.isUTF8 }
}

extension ByteBuffer {
    /// Whether the readable bytes are well-formed UTF-8 (1.5.4).
    var isUTF8: Bool { withUnsafeReadableBytes { String(validating: $0, as: UTF8.self) != nil } }

    /// The readable bytes, to be kept: a copy if they are a small part of a buffer, all of which would stay in memory.
    package func detached() -> ByteBuffer {
        storageCapacity > 4 * readableBytes + 512 ? ByteBuffer(bytes: readableBytesView) : self
    }
}
