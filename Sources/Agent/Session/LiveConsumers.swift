import ControlAPI
import MQTT
import NIOCore
import Session
import SessionCore

/// A program that takes messages as they arrive, for as long as its connection to the control socket lasts.
struct LiveConsumer: Sendable {
    var id: SubscriptionID
    var filter: TopicFilter
    var qos: QoS
    /// The filter as the program gave it, when it is relative to the session's room.
    var relative: String?
    /// Gives a message to the program.
    var deliver: @Sendable (ReceivedMessage) -> Void
}

/// The live consumers of one session. They outlive connections, and reloads of the session's configuration.
struct LiveConsumers: Sendable {
    private var consumers: [LiveConsumer] = []
    private var waiters: [TopicFilter: [@Sendable (MQTT.ReasonCode?) -> Void]] = [:]

    var filters: Set<TopicFilter> { Set(consumers.map(\.filter)) }

    /// The highest QoS with which it is wanted.
    func qos(of filter: TopicFilter) -> QoS? { consumers.filter { $0.filter == filter }.map(\.qos).max() }

    var isEmpty: Bool { consumers.isEmpty }

    /// Takes what is relative to the session's room along to another room.
    ///
    /// - Returns: what has to be subscribed to, and what nobody may want any more.
    mutating func follow(to room: Room) -> [(old: TopicFilter?, new: TopicFilter?)] {
        var moves: [(old: TopicFilter?, new: TopicFilter?)] = []
        for index in consumers.indices {
            let old = consumers[index].filter
            guard let relative = consumers[index].relative, let text = try? Room.resolve(relative, in: room),
                let new = try? TopicFilter(text), new != old
            else { continue }
            consumers[index].filter = new
            moves.append((old, new))
        }
        return moves
    }

    mutating func add(_ consumer: LiveConsumer) {
        consumers.append(consumer)
    }

    /// - Returns: the consumer's filter.
    mutating func remove(_ id: SubscriptionID) -> TopicFilter? {
        guard let index = consumers.firstIndex(where: { $0.id == id }) else { return nil }
        return consumers.remove(at: index).filter
    }

    /// Calls `answer` with the server's answer to the subscription, or with `nil` when the connection ended before.
    mutating func await(_ filter: TopicFilter, _ answer: @escaping @Sendable (MQTT.ReasonCode?) -> Void) {
        waiters[filter, default: []].append(answer)
    }

    mutating func subscribed(_ filter: TopicFilter, _ code: MQTT.ReasonCode) {
        for answer in waiters.removeValue(forKey: filter) ?? [] { answer(code) }
    }

    /// Nobody wants it any more, so its answer does not come.
    mutating func givenUp(_ filter: TopicFilter) {
        for answer in waiters.removeValue(forKey: filter) ?? [] { answer(nil) }
    }

    mutating func connectionEnded() {
        let waiters = waiters
        self.waiters = [:]
        for answer in waiters.values.joined() { answer(nil) }
    }

    func deliver(_ message: MQTTClientMachine.InboundMessage, number: Int64, session: SessionName) {
        for consumer in consumers where message.isFor(consumer.filter) {
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
