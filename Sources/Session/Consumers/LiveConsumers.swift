package import ControlAPI
package import MQTT
import NIOCore

/// A program that takes messages as they arrive, for as long as its connection to the control socket lasts.
package struct LiveConsumer: Hashable, Sendable {
    package let id: SubscriptionID
    package fileprivate(set) var filter: TopicFilter
    package let qos: QoS
    /// The filter as the program gave it, if it is relative to the session's room.
    package let relative: String?

    package init(id: SubscriptionID, filter: TopicFilter, qos: QoS, relative: String? = nil) {
        self.id = id
        self.filter = filter
        self.qos = qos
        self.relative = relative
    }
}

/// The live consumers of one session. They outlive connections, and reloads of the session's configuration.
package struct LiveConsumers: Hashable, Sendable {
    /// A consumer by its turn among all of them.
    private struct Place: Hashable {
        let number: Int
        let id: SubscriptionID
    }

    private var consumers: [LiveConsumer] = []
    /// The same by filter: the server says which filters a message was sent for, and there may be hundreds of others.
    private var places: [TopicFilter: [Place]] = [:]
    private var added = 0
    /// The calls that wait for the server's answer to a subscription.
    private var calls: [TopicFilter: [CallID]] = [:]

    package init() {}

    package var filters: Set<TopicFilter> { Set(consumers.map(\.filter)) }

    /// The highest QoS with which the filter is wanted.
    package func qos(of filter: TopicFilter) -> QoS? { consumers.filter { $0.filter == filter }.map(\.qos).max() }

    package func subscriptions(to filter: TopicFilter) -> [SubscriptionID] {
        consumers.filter { $0.filter == filter }.map(\.id)
    }

    package func filter(of id: SubscriptionID) -> TopicFilter? { consumers.first { $0.id == id }?.filter }

    package var isEmpty: Bool { consumers.isEmpty }

    /// What handling an incoming message costs, counted in packets: it may have to go to all consumers.
    package var messageWeight: Int { 1 + consumers.count / 4 }

    /// Resolves the relative filters in another room.
    ///
    /// - Returns: the new filters to subscribe to, and the old ones that may no longer be wanted.
    package mutating func follow(to room: Room) -> [(old: TopicFilter?, new: TopicFilter?)] {
        var moves: [(old: TopicFilter?, new: TopicFilter?)] = []
        for index in consumers.indices {
            let old = consumers[index].filter
            guard let relative = consumers[index].relative, let text = try? Room.resolve(relative, in: room),
                let new = try? TopicFilter(text), new != old
            else { continue }
            consumers[index].filter = new
            if let place = removePlace(of: consumers[index].id, from: old) { places[new, default: []].append(place) }
            moves.append((old, new))
        }
        return moves
    }

    package mutating func add(_ consumer: LiveConsumer) {
        consumers.append(consumer)
        added += 1
        places[consumer.filter, default: []].append(Place(number: added, id: consumer.id))
    }

    /// - Returns: the consumer's filter.
    package mutating func remove(_ id: SubscriptionID) -> TopicFilter? {
        guard let index = consumers.firstIndex(where: { $0.id == id }) else { return nil }
        let filter = consumers.remove(at: index).filter
        _ = removePlace(of: id, from: filter)
        return filter
    }

    private mutating func removePlace(of id: SubscriptionID, from filter: TopicFilter) -> Place? {
        guard let index = places[filter]?.firstIndex(where: { $0.id == id }) else { return nil }
        let place = places[filter]?.remove(at: index)
        if places[filter]?.isEmpty == true { places[filter] = nil }
        return place
    }

    /// Makes a call wait for the server's answer to a subscription, or for the end of the connection.
    package mutating func await(_ filter: TopicFilter, _ call: CallID) {
        calls[filter, default: []].append(call)
    }

    /// The server has answered, or will not because nothing wants the subscription any more.
    ///
    /// - Returns: the calls that are answered now.
    package mutating func answered(_ filter: TopicFilter) -> [CallID] { calls.removeValue(forKey: filter) ?? [] }

    /// - Returns: the calls that the server will no longer answer.
    package mutating func connectionEnded() -> [CallID] {
        defer { calls = [:] }
        return calls.values.joined().sorted()
    }

    /// Returns the message and the programs that want it; `nil` if none does.
    ///
    /// - Parameter number: the position of the message among all that the session has received.
    package func received(
        _ message: MQTTClientMachine.InboundMessage, number: Int64, session: SessionName
    ) -> (message: ReceivedMessage, wanting: [SubscriptionID])? {
        let wanting = wanting(message)
        guard let first = wanting.first else { return nil }
        let received = ReceivedMessage(
            subscription: first, session: session.description, id: number, topic: message.topic,
            payload: MessagePayload(bytes: Array(message.payload.readableBytesView)),
            qos: message.qos, retain: message.retain, duplicate: message.duplicate,
            properties: MessageProperties(message.properties))
        return (received, wanting)
    }

    private func wanting(_ message: MQTTClientMachine.InboundMessage) -> [SubscriptionID] {
        var found: [Place] = []
        func look<Filters: Sequence<TopicFilter>>(among filters: Filters) {
            for filter in filters where filter.matches(topic: message.topic) { found += places[filter] ?? [] }
        }
        if let filters = message.filters { look(among: filters) } else { look(among: places.keys) }
        return found.sorted { $0.number < $1.number }.map(\.id)
    }
}
