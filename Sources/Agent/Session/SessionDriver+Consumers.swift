import Configuration
import ControlAPI
import DurableStore
import Logging
import MQTT
import NIOCore
import Session
import SessionCore

// What durable consumers get: from the inbox, in order, until it is acknowledged.

extension SessionDriver {
    // MARK: Subscriptions, of everybody

    private func unsubscribeIfUnwanted(_ filter: TopicFilter?) {
        session.unsubscribeIfUnwanted(filter)
        run()
    }

    /// Asks the server, and waits for its answer while connected; `nil` without one.
    func askFor(_ filter: TopicFilter, _ qos: QoS) async -> ReasonCode? {
        await withCheckedContinuation { continuation in
            if session.machine.status.state == .connected {
                session.consumers.await(filter, programs.subscribing.add { continuation.resume(returning: $0) })
            } else {
                continuation.resume(returning: nil)
            }
            var actions: [MQTTClientMachine.Action] = []
            session.subscribe(
                to: filter, qos: session.wantedQoS(of: filter) ?? qos, at: timestamp, into: &actions)
            run(actions)
        }
    }

    // MARK: Coming and going

    /// What a program is told of its consumer.
    struct Attached: Sendable {
        var grantedQoS: QoS?
        /// How many messages were dropped since a program was told that last.
        var missed: Int
        /// Within which the ids of messages mean something.
        var epoch: String
    }

    /// Gives a consumer to a program, and makes it if there is none. Returns when it is durable.
    func attach(
        _ subscriber: Subscriber, as subscription: SubscriptionID, to consumer: ConsumerName, _ text: String,
        _ filter: TopicFilter, _ qos: QoS
    ) async throws(RPCError) -> Attached {
        try checkRunning()
        let before = session.durableConsumers[consumer]
        guard before != nil || session.durableConsumers.consumers.count < DurableConsumers.maximum else {
            throw .tooManyConsumers(name.description, DurableConsumers.maximum)
        }
        let isChanged = before?.text != text || before?.filter != filter || before?.qos != qos
        if isChanged {
            session.durableConsumers.put(consumer, text, filter, qos)
            run(.consumer(consumer, .put(filter: text, qos, matching: filter)))
        }
        takenOver(session.durableConsumers.attach(subscription, to: consumer))
        programs.subscribers[subscription] = subscriber
        // Should the daemon be killed, nobody knows how much the program was given.
        run(.consumer(consumer, .give(through: .last)))
        // A filter that the server has granted already is not asked for again: it would send what it retains again.
        var code = isChanged ? nil : grantedCode(of: filter)
        if code == nil { code = await askFor(filter, qos) }
        // Another program may have it by now, and has made of it what it wants.
        let isOurs = session.durableConsumers[consumer]?.attachment?.subscription == subscription
        if let code, code.isError {
            if isOurs { undo(consumer, before, refused: filter) }
            throw .subscriptionRefused(filter.string, code.description, reasonCode: Int(code.rawValue))
        }
        // Not before the new filter is granted, so that there is no gap.
        if let old = before?.filter, old != filter { unsubscribeIfUnwanted(old) }
        do throws(RPCError) {
            try await everythingDurable("the consumer")
        } catch {
            if session.durableConsumers[consumer]?.attachment?.subscription == subscription { detach(consumer) }
            throw error
        }
        let epoch = await surroundings.store.epoch
        session.durableConsumers.ready(consumer, subscription)
        loadConsumers()
        let missed = session.mqtt.missed(by: consumer)
        // Should the daemon be killed before it has answered, the next program is told.
        if missed > 0 { run(.consumer(consumer, .toldMissed(missed))) }
        return Attached(
            grantedQoS: code.flatMap { QoS(rawValue: $0.rawValue) }, missed: missed, epoch: epoch)
    }

    /// The server refuses what a program wants of its consumer: it is what it was before, and goes on collecting.
    private func undo(_ consumer: ConsumerName, _ before: DurableConsumers.Consumer?, refused filter: TopicFilter) {
        guard let before else { return end(consumer) }
        detach(consumer)
        guard let old = before.filter, old != filter || before.qos != session.durableConsumers[consumer]?.qos else {
            return
        }
        session.durableConsumers.put(consumer, before.text, old, before.qos)
        run(.consumer(consumer, .put(filter: before.text, before.qos, matching: old)))
        unsubscribeIfUnwanted(filter)
    }

    /// The program is gone; its consumer goes on collecting.
    func detach(_ subscription: SubscriptionID) {
        guard let consumer = session.durableConsumers.name(of: subscription) else { return }
        detach(consumer)
        if let given = session.durableConsumers[consumer]?.givenThrough {
            run(.consumer(consumer, .give(through: given)))
        }
    }

    private func detach(_ consumer: ConsumerName) {
        if let subscription = session.durableConsumers.detach(consumer) { programs.subscribers[subscription] = nil }
    }

    /// Another program has the consumer now, or nobody.
    private func takenOver(_ subscription: SubscriptionID?) {
        if let subscription { programs.subscribers.removeValue(forKey: subscription)?.takenOver() }
    }

    func deliver(_ message: ReceivedMessage) { programs.subscribers[message.subscription]?.deliver(message) }

    /// Ends a consumer for good, with all that waits for it.
    func endConsumer(_ consumer: ConsumerName) async throws(RPCError) {
        try checkRunning()
        guard session.durableConsumers[consumer] != nil else {
            throw .unknownConsumer(
                consumer.description, of: name.description,
                among: session.durableConsumers.consumers.keys.map(\.description))
        }
        takenOver(session.durableConsumers[consumer]?.attachment?.subscription)
        end(consumer)
        try await everythingDurable("the end of the consumer")
    }

    private func end(_ consumer: ConsumerName) {
        let filter = session.durableConsumers[consumer]?.filter
        if let subscription = session.durableConsumers.remove(consumer) { programs.subscribers[subscription] = nil }
        run(.consumer(consumer, .remove))
        unsubscribeIfUnwanted(filter)
    }

    // MARK: Messages

    /// Acknowledges messages; returns when that is durable, so that they are never given again.
    func acknowledge(
        _ id: InboxSequence, upTo: Bool, by subscription: SubscriptionID
    ) async throws(RPCError) -> MessageAckMethod.Result {
        try checkRunning()
        guard session.durableConsumers.name(of: subscription) != nil else { throw .unknownSubscription(subscription) }
        guard let taken = session.durableConsumers.acknowledge(id, upTo: upTo, by: subscription) else {
            throw .invalidParameters(
                "\(id) was not given to subscription \(subscription.rawValue)", hint: "acknowledge the id of a message")
        }
        if !taken.messages.isEmpty {
            run(.consumer(taken.name, .taken(taken.messages)))
            loadConsumers()
        }
        // Also when it was asked before: that may not have come to the disk.
        try await everythingDurable("the acknowledgement")
        return .init(acknowledged: taken.messages.count)
    }

    /// Gives programs what is at hand for them, and reads what is not.
    func loadConsumers() {
        guard !isStopping else { return }
        let atHand = session.durableConsumers.giveAhead(
            session: name, at: timestamp, maximumAge: maximumInboxAge,
            hasRoom: { programs.subscribers[$0]?.hasRoom() ?? false })
        for (consumer, loaded) in atHand { give(loaded, of: consumer) }
        guard let load = session.durableConsumers.beginLoad(hasRoom: { programs.subscribers[$0]?.hasRoom() ?? false })
        else {
            return
        }
        Task {
            let messages = await untilRead("the inbox") { store throws(StoreError) in
                try await store.collected(
                    self.name, for: load.name, after: load.after, maxCount: load.messages, maxBytes: load.bytes)
            }
            // Another driver has the consumers then.
            guard !isStopping else { return }
            let loaded = session.durableConsumers.loaded(
                messages ?? [], for: load, session: name, at: timestamp, maximumAge: maximumInboxAge)
            give(loaded, of: load.name)
            loadConsumers()
        }
    }

    private func give(_ loaded: DurableConsumers.Loaded, of consumer: ConsumerName) {
        if !loaded.overdue.isEmpty { run(.consumer(consumer, .taken(loaded.overdue))) }
        for message in loaded.given { deliver(message) }
    }

    /// In milliseconds.
    private var maximumInboxAge: Int64? { configuration.inbox.maxAge.map { $0.nanoseconds / 1_000_000 } }

    // MARK: At the limit

    func inboxFull(_ isFull: Bool) {
        log.inboxFull(isFull)
        var event = self.event(.inboxFull)
        event.full = isFull
        report(event)
    }

    /// Messages that were dropped on their way to a consumer.
    func tellDropped(_ count: Int) {
        var event = self.event(.messageDropped)
        event.count = count
        report(event)
    }

    var inboxStatus: SessionStatus.Inbox {
        let counts = session.mqtt.inboxCounts
        return .init(
            messages: counts.messages, bytes: Int64(counts.bytes), withheld: counts.withheld,
            dropped: session.losses.dropped,
            consumers: session.durableConsumers.consumers.sorted { $0.key < $1.key }.map { name, consumer in
                let backlog = session.mqtt.backlog(of: name)
                let subscription = consumer.filter.flatMap { filter in
                    session.mqtt.subscriptionState(of: filter).map {
                        SessionStatus.Subscription(filter, consumer.qos, $0)
                    }
                }
                return .init(
                    name: name.description, filter: consumer.text, qos: consumer.qos,
                    attached: consumer.attachment != nil, messages: backlog.messages, bytes: Int64(backlog.bytes),
                    refused: subscription?.state == .refused ? subscription?.message : nil,
                    missed: session.mqtt.missed(by: name))
            })
    }
}
