import ControlAPI
import MQTT
import NIOCore
import SessionCore

/// A program that takes messages as they arrive, for as long as its connection to the control socket lasts.
struct LiveConsumer: Sendable {
    var id: SubscriptionID
    var filter: TopicFilter
    var qos: QoS
    /// Gives a message to the program.
    var deliver: @Sendable (ReceivedMessage) -> Void
}

/// The live consumers of one session. They outlive connections, and reloads of the session's configuration.
struct LiveConsumers: Sendable {
    private var consumers: [LiveConsumer] = []
    private var waiters: [TopicFilter: [@Sendable (MQTT.ReasonCode?) -> Void]] = [:]

    /// What the server has to be subscribed to: each filter once, with the highest QoS that anybody wants.
    var filters: [(filter: TopicFilter, qos: QoS)] {
        Dictionary(consumers.map { ($0.filter, $0.qos) }, uniquingKeysWith: max)
            .map { (filter: $0.key, qos: $0.value) }
    }

    var isEmpty: Bool { consumers.isEmpty }

    /// - Returns: the QoS with which the filter is wanted now.
    mutating func add(_ consumer: LiveConsumer) -> QoS {
        consumers.append(consumer)
        return consumers.filter { $0.filter == consumer.filter }.map(\.qos).max() ?? consumer.qos
    }

    /// - Returns: the consumer's filter if nobody wants it any more.
    mutating func remove(_ id: SubscriptionID) -> TopicFilter? {
        guard let index = consumers.firstIndex(where: { $0.id == id }) else { return nil }
        let filter = consumers.remove(at: index).filter
        return consumers.contains { $0.filter == filter } ? nil : filter
    }

    /// Calls `answer` with the server's answer to the subscription, or with `nil` when the connection ended before.
    mutating func await(_ filter: TopicFilter, _ answer: @escaping @Sendable (MQTT.ReasonCode?) -> Void) {
        waiters[filter, default: []].append(answer)
    }

    mutating func subscribed(_ filter: TopicFilter, _ code: MQTT.ReasonCode) {
        for answer in waiters.removeValue(forKey: filter) ?? [] { answer(code) }
    }

    mutating func connectionEnded() {
        let waiters = waiters
        self.waiters = [:]
        for answer in waiters.values.joined() { answer(nil) }
    }

    func deliver(_ message: MQTTClientMachine.InboundMessage, number: Int64, session: SessionName) {
        for consumer in consumers where consumer.filter.matches(topic: message.topic) {
            consumer.deliver(
                ReceivedMessage(
                    subscription: consumer.id, session: session.description, id: number, topic: message.topic,
                    payload: MessagePayload(bytes: Array(message.payload.readableBytesView)),
                    qos: MessageQoS(message.qos), retain: message.retain, duplicate: message.duplicate,
                    properties: MessageProperties(message.properties)))
        }
    }
}

extension MessageProperties {
    /// `nil` when the message has none.
    init?(_ properties: Publish.Properties) {
        guard
            properties.contentType != nil || properties.responseTopic != nil || properties.correlationData != nil
                || !properties.userProperties.isEmpty
        else { return nil }
        self.init(
            contentType: properties.contentType, responseTopic: properties.responseTopic,
            correlationData: properties.correlationData.map { Array($0.readableBytesView) },
            user: properties.userProperties.isEmpty
                ? nil : properties.userProperties.map { UserProperty(name: $0.name, value: $0.value) })
    }
}
