package import ControlAPI
package import MQTT
import SessionCore

// Durable consumers: programs come and go, and are given messages until they acknowledge them.

extension Session {
    /// The attachment of a program to a consumer, until the server has answered for the filter.
    package struct Attaching: Sendable {
        let name: ConsumerName
        let subscription: SubscriptionID
        let filter: TopicFilter
        /// The consumer as it was before; `nil` for a new one.
        let before: DurableConsumers.Consumer?
        /// The subscription of the program that was attached before.
        package let takenOver: SubscriptionID?
        /// The server's answer, if it has granted the filter already: another SUBSCRIBE would make it send the retained
        /// messages again.
        package let granted: ReasonCode?
        /// Whether the consumer is new, or is to get something else than before. Then a refusal changes it back, and its
        /// program is not attached.
        package let isChanged: Bool
        /// The filter that this one replaces, as the program gave it.
        package let replaced: String?
    }

    /// Attaches a program to a consumer, and creates the consumer if it does not exist. ``answered(_:_:)`` follows.
    package mutating func attach(
        _ subscription: SubscriptionID, to name: ConsumerName, _ text: String, _ filter: TopicFilter, _ qos: QoS
    ) throws(RPCError) -> Attaching {
        let before = durableConsumers[name]
        guard before != nil || durableConsumers.consumers.count < DurableConsumers.maximum else {
            throw .tooManyConsumers(settings.name.description, DurableConsumers.maximum)
        }
        let isChanged = before?.text != text || before?.filter != filter || before?.qos != qos
        if isChanged {
            // It may be refused.
            let former = before.map { $0.former.union([$0.filter].compactMap(\.self)) } ?? []
            put(name, text, filter, qos, former: former)
        }
        let takenOver = durableConsumers.attach(subscription, to: name)
        // If the daemon is killed, it will not be known how much the program was given.
        take(.mqtt(.consumer(name, .give(through: .last))))
        var granted: ReasonCode?
        if !isChanged, case .granted(let qos)? = mqtt.subscriptionState(of: filter) {
            granted = ReasonCode(rawValue: qos.rawValue)
        }
        return Attaching(
            name: name, subscription: subscription, filter: filter, before: before, takenOver: takenOver,
            granted: granted, isChanged: isChanged, replaced: before?.text == text ? nil : before?.text)
    }

    /// Takes the answer for the filter of a consumer; `nil` while there is no answer yet, or no connection. If it was
    /// refused, the consumer is changed back to what it was before, or removed if it is new. A consumer that was not
    /// changed stays attached: what it has collected belongs to its program.
    package mutating func answered(_ attaching: Attaching, _ answer: ServerAnswer?) {
        if answer?.isRefusal == true {
            // Otherwise another program has taken the consumer over, and may have changed it.
            guard attaching.isChanged, holds(attaching) else { return }
            undo(attaching.name, attaching.before, refused: attaching.filter)
        } else if let old = attaching.before?.filter, old != attaching.filter {
            // Only now that the new filter is granted, so that there is no gap.
            dropFormer(old)
            unsubscribeIfUnwanted(old)
        }
    }

    /// Whether the program is still the one that is attached to the consumer.
    package func holds(_ attaching: Attaching) -> Bool {
        durableConsumers[attaching.name]?.attachment?.subscription == attaching.subscription
    }

    private mutating func put(
        _ name: ConsumerName, _ text: String, _ filter: TopicFilter?, _ qos: QoS, former: Set<TopicFilter>
    ) {
        durableConsumers.put(name, text, filter, qos, former: former)
        take(.mqtt(.consumer(name, .put(filter: text, qos, matching: filter, former: former))))
    }

    /// The server has granted a filter: consumers that have changed to it no longer get what matches their former ones.
    mutating func granted(_ filter: TopicFilter) {
        for name in durableConsumers.granted(filter) { take(.mqtt(.consumer(name, .matching(filter)))) }
    }

    /// A consumer no longer needs its former filter, although the server may not have granted the new one.
    mutating func dropFormer(_ filter: TopicFilter) {
        for name in durableConsumers.dropFormer(filter) {
            guard let consumer = durableConsumers[name], consumer.former.isEmpty else { continue }
            take(.mqtt(.consumer(name, .matching(consumer.filter))))
        }
    }

    /// The consumer is durable, so its program may be given messages from now on.
    ///
    /// - Returns: how many messages were dropped since a program was last told.
    package mutating func ready(_ name: ConsumerName, _ subscription: SubscriptionID) -> Int {
        durableConsumers.ready(name, subscription)
        let missed = mqtt.missed(by: name)
        // If the daemon is killed before it has answered, the next program is told.
        take(.mqtt(.consumer(name, .toldMissed(missed))))
        return missed
    }

    private mutating func undo(_ name: ConsumerName, _ before: DurableConsumers.Consumer?, refused filter: TopicFilter)
    {
        guard let before else { return end(name) }
        durableConsumers.detach(name)
        let present = durableConsumers[name]
        let isAsBefore =
            present?.text == before.text && present?.filter == before.filter && present?.qos == before.qos
        guard !isAsBefore else { return }
        put(name, before.text, before.filter, before.qos, former: before.former)
        if let old = before.filter, case .granted? = mqtt.subscriptionState(of: old) { granted(old) }
        unsubscribeIfUnwanted(filter)
    }

    mutating func detach(_ subscription: SubscriptionID) {
        guard let name = durableConsumers.name(of: subscription) else { return }
        durableConsumers.detach(name)
        if let given = durableConsumers[name]?.givenThrough {
            take(.mqtt(.consumer(name, .give(through: given))))
        }
    }

    /// Removes a durable consumer for good, with all messages that wait for it.
    ///
    /// - Returns: the subscription of the program that was attached.
    package mutating func removeConsumer(_ name: ConsumerName) throws(RPCError) -> SubscriptionID? {
        guard let consumer = durableConsumers[name] else {
            throw .unknownConsumer(
                name.description, of: settings.name.description,
                among: durableConsumers.consumers.keys.lazy.map(\.description))
        }
        end(name)
        return consumer.attachment?.subscription
    }

    private mutating func end(_ name: ConsumerName) {
        let filter = durableConsumers[name]?.filter
        durableConsumers.remove(name)
        take(.mqtt(.consumer(name, .remove)))
        unsubscribeIfUnwanted(filter)
    }

    /// - Returns: what is newly acknowledged.
    package mutating func acknowledge(
        _ id: InboxSequence, upTo: Bool, by subscription: SubscriptionID
    ) throws(RPCError) -> DurableConsumers.Taken {
        guard durableConsumers.name(of: subscription) != nil else { throw .unknownSubscription(subscription) }
        guard let taken = durableConsumers.acknowledge(id, upTo: upTo, by: subscription) else {
            throw .invalidParameters(
                "\(id) was not given to subscription \(subscription.rawValue)", hint: "acknowledge the id of a message")
        }
        noteTaken(taken.messages, by: taken.name)
        return taken
    }

    /// Returns the held messages to give to the next program that has room for some; `nil` if none has. One program at
    /// a time: what it is given counts before the next one is asked.
    ///
    /// - Parameter hasRoom: whether a program has read enough to be given more.
    package mutating func giveAhead(hasRoom: (SubscriptionID) -> Bool) -> [ReceivedMessage]? {
        guard
            let (name, loaded) = durableConsumers.giveAhead(
                session: settings.name, at: wallClock, maximumAge: settings.maximumInboxAge, hasRoom: hasRoom)
        else { return nil }
        noteTaken(loaded.overdue, by: name)
        return loaded.given
    }

    /// Returns which messages to read next from the store, and for which program.
    package mutating func beginLoad(hasRoom: (SubscriptionID) -> Bool) -> DurableConsumers.Load? {
        durableConsumers.beginLoad(hasRoom: hasRoom)
    }

    /// Returns the messages to give to a program, out of those that were read for it.
    package mutating func loaded(
        _ messages: [CollectedMessage], for load: DurableConsumers.Load
    ) -> [ReceivedMessage] {
        let loaded = durableConsumers.loaded(
            messages, for: load, session: settings.name, at: wallClock, maximumAge: settings.maximumInboxAge)
        noteTaken(loaded.overdue, by: load.name)
        return loaded.given
    }

    private mutating func noteTaken(_ messages: [TakenMessage], by name: ConsumerName) {
        if !messages.isEmpty { take(.mqtt(.consumer(name, .taken(messages)))) }
    }
}
