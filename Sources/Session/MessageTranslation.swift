package import ControlAPI
package import MQTT
import NIOCore

// Translation of messages, and of what is wrong with them, between the control socket and MQTT. Each property appears in
// both directions, one below the other.

extension Publish.Properties {
    package init(_ properties: MessageProperties?) {
        self.init(
            responseTopic: properties?.responseTopic,
            correlationData: properties?.correlationData.map { ByteBuffer(bytes: $0) },
            userProperties: properties?.user ?? [],
            contentType: properties?.contentType)
    }
}

extension MessageProperties {
    /// `nil` when the message has no properties that concern programs.
    package init?(_ properties: Publish.Properties) {
        self.init(
            contentType: properties.contentType, responseTopic: properties.responseTopic,
            correlationData: properties.correlationData.map { Array($0.readableBytesView) },
            user: properties.userProperties.isEmpty ? nil : properties.userProperties)
        if self == MessageProperties() { return nil }
    }
}

extension OutboundMessage {
    package init(_ parameters: MessagePublishMethod.Parameters, at now: Timestamp) {
        self.init(
            topic: parameters.topic, payload: ByteBuffer(bytes: parameters.payload.bytes), qos: parameters.qos,
            retain: parameters.retain, properties: Publish.Properties(parameters.properties),
            expiresAt: parameters.expiry.map { now.advanced(by: Int64(min($0 * 1000, 1e15))) })
    }
}

extension RPCError {
    package init(_ error: MQTTClientMachine.PublishError, session: SessionName, topic: String) {
        self =
            switch error {
            case .invalidTopic(let reason): .invalidTopic(topic, reason.description)
            case .invalidProperty(let sentence): .invalidParameters(sentence)
            case .outboxFull: .outboxFull(session.description)
            case .largerThanOutbox(let size, let limit):
                RPCError(
                    .outboxFull,
                    "the message counts \(size) bytes, and the outbox of session \(session) has room for \(limit)",
                    hint: "raise max-bytes of [outbox] in the session's file")
            case .dropped:
                .messageDropped(
                    "the outbox of session \(session) is full",
                    hint: "try again after messages have been delivered, or raise [outbox] in the session's file")
            case .tooLarge(let size, let limit):
                .notTaken("its packet would have \(size) bytes, and the server's limit is \(limit)")
            case .qosNotSupported(let maximum):
                .notTaken("the server accepts QoS \(maximum.rawValue) at most")
            case .expired: .messageDropped("it has expired", hint: "holdfastctl queue drop removes it")
            case .propertiesNotSupported:
                RPCError(
                    .messageRejected,
                    "session \(session) speaks MQTT 3.1.1, whose messages have no properties",
                    hint: "omit the properties")
            case .retainNotSupported:
                .notTaken("the server does not retain messages")
            }
    }

    /// The server would not take the message, as it has said about all messages: it is not asked about this one, so there
    /// is no reason code.
    private static func notTaken(_ why: String) -> RPCError {
        RPCError(.messageRejected, "the session does not take the message, because \(why)")
    }
}
