package import ControlAPI
package import MQTT
import SessionCore

// What programs ask of the session. A request that is answered at once is a method; its consequences wait in the queue,
// like inputs.

extension Session {
    // MARK: Messages

    /// Takes a message into the outbox. ``commitAccepted(at:)`` handles the consequences.
    package mutating func accept(
        _ message: OutboundMessage, key: PublishKey? = nil, at time: Timestamp
    ) throws(MQTTClientMachine.PublishError) -> MessageSequence {
        do throws(MQTTClientMachine.PublishError) {
            let sequence = try mqtt.accept(message, key: key, at: time)
            if let key { calls.keys.published(key, as: sequence) }
            // The use is reported whatever happens to the message, and however soon.
            if settings.notesUses, !machine.isUsed(for: .messages) { tellMachine(.useBegan(.messages)) }
            return sequence
        } catch {
            if error == .dropped { counts.dropped += 1 }
            throw error
        }
    }

    /// - Returns: `nil` if a message with the key is already on its way to the disk; `awaitKey` answers when it no
    ///   longer is.
    package mutating func takeTurn(with key: PublishKey) -> KeysUnderWay.Turn? { calls.keys.take(key) }

    /// Takes a message out of the quarantine and accepts it as a new one.
    package mutating func retry(_ stored: StoredMessage) throws(MQTTClientMachine.PublishError) -> MessageSequence {
        var answers: [MQTTClientMachine.Action] = []
        let sequence = try mqtt.retry(stored, at: wallClock, into: &answers)
        answered(answers)
        return sequence
    }

    /// Drops a message, and returns what happened to it.
    package mutating func discard(_ stored: StoredMessageSummary) -> MQTTClientMachine.Discarded {
        var answers: [MQTTClientMachine.Action] = []
        let discarded = mqtt.discard(stored, at: wallClock, into: &answers)
        answered(answers)
        return discarded
    }

    /// Carries out the protocol machine's actions at once, because commits must keep its order.
    private mutating func answered(_ actions: [MQTTClientMachine.Action]) {
        for action in actions { perform(action) }
        checkFlushed()
    }

    // MARK: Publications

    /// Notes a publication that is on its way to the disk; `stored` follows.
    package mutating func arrive(_ publication: Publication) { publications.arrive(publication) }

    // MARK: Subscriptions

    /// - Parameter isLive: whether the call is not for a durable consumer.
    mutating func subscribe(to filter: TopicFilter, _ qos: QoS, isLive: Bool = false, for call: CallID) {
        if state == .connected {
            consumers.await(filter, call)
        } else {
            act(.answer([call], .subscription(nil)))
        }
        subscribe(to: filter, qos: wantedQoS(of: filter) ?? qos, isLive: isLive)
    }

    // MARK: Durable consumers

    /// Attaches a program to a consumer, and creates the consumer if it does not exist.
    ///
    /// - Returns: whether the consumer has changed, and the subscription of the program that was attached before.
    package mutating func attach(
        _ subscription: SubscriptionID, to name: ConsumerName, _ text: String, _ filter: TopicFilter, _ qos: QoS
    ) -> (isChanged: Bool, takenOver: SubscriptionID?) {
        let before = durableConsumers[name]
        let isChanged = before?.text != text || before?.filter != filter || before?.qos != qos
        if isChanged {
            // It may be refused.
            let former = before.map { $0.former.union([$0.filter].compactMap(\.self)) } ?? []
            put(name, text, filter, qos, former: former)
        }
        let takenOver = durableConsumers.attach(subscription, to: name)
        // If the daemon is killed, it will not be known how much the program was given.
        take(.mqtt(.consumer(name, .give(through: .last))))
        return (isChanged, takenOver)
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

    mutating func undo(_ name: ConsumerName, _ before: DurableConsumers.Consumer?, refused filter: TopicFilter) {
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

    mutating func end(_ name: ConsumerName) {
        let filter = durableConsumers[name]?.filter
        durableConsumers.remove(name)
        take(.mqtt(.consumer(name, .remove)))
        unsubscribeIfUnwanted(filter)
    }

    /// - Returns: what is newly acknowledged; `nil` for a message that the program was not given.
    package mutating func acknowledge(
        _ id: InboxSequence, upTo: Bool, by subscription: SubscriptionID
    ) -> DurableConsumers.Taken? {
        guard let taken = durableConsumers.acknowledge(id, upTo: upTo, by: subscription) else { return nil }
        noteTaken(taken.messages, by: taken.name)
        return taken
    }

    /// Returns the held messages to give to programs now, as far as there is room.
    ///
    /// - Parameters:
    ///   - maximumAge: milliseconds after which a message is too old; `nil`: never.
    ///   - hasRoom: whether a program has read enough to be given more.
    package mutating func giveAhead(maximumAge: Int64?, hasRoom: (SubscriptionID) -> Bool) -> [ReceivedMessage] {
        let all = durableConsumers.giveAhead(
            session: settings.name, at: wallClock, maximumAge: maximumAge, hasRoom: hasRoom)
        for (name, loaded) in all { noteTaken(loaded.overdue, by: name) }
        return all.flatMap(\.loaded.given)
    }

    /// Returns which messages to read next from the store, and for which program.
    package mutating func beginLoad(hasRoom: (SubscriptionID) -> Bool) -> DurableConsumers.Load? {
        durableConsumers.beginLoad(hasRoom: hasRoom)
    }

    /// Returns the messages to give to a program, out of those that were read for it.
    package mutating func loaded(
        _ messages: [CollectedMessage], for load: DurableConsumers.Load, maximumAge: Int64?
    ) -> [ReceivedMessage] {
        let loaded = durableConsumers.loaded(
            messages, for: load, session: settings.name, at: wallClock, maximumAge: maximumAge)
        noteTaken(loaded.overdue, by: load.name)
        return loaded.given
    }

    private mutating func noteTaken(_ messages: [TakenMessage], by name: ConsumerName) {
        if !messages.isEmpty { take(.mqtt(.consumer(name, .taken(messages)))) }
    }

    // MARK: The end

    /// Disconnects from the server, unless the session is already doing so for another reason than to rest.
    mutating func stop(because reason: Reason, forGood: Bool) {
        publications.endWithSession = forGood
        switch state {
        case .connected, .connecting, .reconnecting: tellMachine(.disconnect(reason))
        case .disconnecting where machine.isResting: tellMachine(.disconnect(reason))
        case .disconnecting, .disconnected, .failed: break
        }
    }
}
