import Configuration
import ControlAPI
import DurableStore
import MQTT
import NIOCore
import Session
import SessionCore

// What durable consumers are given: messages from the inbox, in order, until they are acknowledged.

extension SessionDriver {
    // MARK: Coming and going

    /// What a program is told about its consumer when it attaches.
    struct Attached: Sendable {
        var grantedQoS: QoS?
        /// How many messages were dropped since a program was last told.
        var missed: Int
        /// The ids of messages are valid only within one epoch.
        var epoch: String
    }

    /// - Parameter granted: what the server has granted for the filter already; otherwise it is asked.
    private func answer(for filter: TopicFilter, granted: ReasonCode?) async -> ServerAnswer? {
        guard let granted else { return await subscribing { .subscribe(filter, $0) } }
        return .said(granted)
    }

    /// Attaches a program to a consumer, and creates the consumer if it does not exist. Returns when that is durable.
    func attach(
        _ subscriber: Subscriber, as subscription: SubscriptionID, to consumer: ConsumerName, _ text: String,
        _ filter: TopicFilter, _ qos: QoS
    ) async throws(RPCError) -> Attached {
        try checkRunning()
        try requireStore(for: "the consumer")
        let attaching = try ask { session throws(RPCError) in
            try session.attach(subscription, to: consumer, text, filter, qos)
        }
        takenOver(attaching.takenOver, consumer)
        programs.subscribers[subscription] = subscriber
        run()
        beginAsking(for: filter)
        let answer = await answer(for: filter, granted: attaching.granted)
        let error = answer.flatMap { $0.isRefusal ? refusal(of: filter, $0) : nil }
        if answer == nil || error != nil { programs.subscribers[subscription]?.untold = .answer }
        ask { $0.answered(attaching, answer) }
        run()
        endAsking(for: filter)
        if let error, attaching.isChanged {
            programs.subscribers[subscription] = nil
            throw error
        }
        do throws(RPCError) {
            try await everythingDurable("the consumer")
        } catch {
            detach(subscription)
            throw error
        }
        if let replaced = attaching.replaced { log.filterReplaced(of: consumer, replaced, by: text, at: now) }
        let epoch = await surroundings.store.epoch
        // If the session was restarted meanwhile, the call is repeated at its next driver.
        try checkRunning()
        guard session.holds(attaching) else { throw .consumerEnded(consumer.description) }
        let missed = ask { $0.ready(consumer, subscription) }
        loadConsumers()
        if error != nil { tellAnswer(to: subscription) }
        return Attached(
            grantedQoS: answer?.code.flatMap { QoS(rawValue: $0.rawValue) }, missed: missed, epoch: epoch)
    }

    /// The program is gone; its consumer keeps collecting.
    func detach(_ subscription: SubscriptionID) {
        programs.subscribers[subscription] = nil
        run(.detach(subscription))
    }

    /// Tells a program that it has lost its consumer: another program took it over, or it was removed.
    private func takenOver(_ subscription: SubscriptionID?, _ consumer: ConsumerName) {
        guard let subscription, let subscriber = programs.subscribers.removeValue(forKey: subscription) else { return }
        var event = self.event(.consumerEnded)
        event.consumer = consumer.description
        subscriber.ended(event)
    }

    /// Removes a consumer for good, with all messages that wait for it.
    func endConsumer(_ consumer: ConsumerName) async throws(RPCError) {
        try checkRunning()
        try requireStore(for: "the end of the consumer")
        takenOver(try ask { session throws(RPCError) in try session.removeConsumer(consumer) }, consumer)
        run()
        try await everythingDurable("the end of the consumer")
    }

    // MARK: Messages

    /// Acknowledges messages, and answers when that is durable, so that they are never given again. The consequences of all
    /// acknowledgements in one turn of the loop are handled together, at its end.
    func acknowledge(
        _ id: InboxSequence, upTo: Bool, by subscription: SubscriptionID,
        answer: @escaping @Sendable (Result<MessageAckMethod.Result, RPCError>) -> Void
    ) {
        let taken: DurableConsumers.Taken
        do throws(RPCError) {
            try checkRunning()
            taken = try ask { session throws(RPCError) in
                try session.acknowledge(id, upTo: upTo, by: subscription)
            }
        } catch {
            return answer(.failure(error))
        }
        let acknowledged = taken.messages.count
        // Also if they were acknowledged before: that may not be on disk yet.
        let completion = { @Sendable (failure: StoreError?) in
            guard let failure else { return answer(.success(.init(acknowledged: acknowledged))) }
            answer(.failure(.notDurableYet("the acknowledgement", because: failure.description)))
        }
        programs.acknowledging.append((subscription, completion))
        guard programs.acknowledging.count == 1 else { return }
        eventLoop.execute { self.assumeIsolated { $0.endAcknowledging() } }
    }

    private func endAcknowledging() {
        let waiting = programs.acknowledging
        programs.acknowledging = []
        run()
        loadConsumers()
        for (subscription, _) in waiting { tellHeldRefusal(to: subscription) }
        whenCommitted(isPatient: false) { failure in
            for (_, completion) in waiting { completion(failure) }
        }
    }

    /// Does the same, and returns the answer.
    func acknowledge(
        _ id: InboxSequence, upTo: Bool, by subscription: SubscriptionID
    ) async throws(RPCError) -> MessageAckMethod.Result {
        try await withCheckedContinuation { continuation in
            acknowledge(id, upTo: upTo, by: subscription) { continuation.resume(returning: $0) }
        }.get()
    }

    /// Gives programs what is held for them, and reads more from the store.
    func loadConsumers() {
        guard !isStopping else { return }
        let hasRoom = { (subscription: SubscriptionID) in self.programs.subscribers[subscription]?.hasRoom() ?? false }
        while let messages = ask({ $0.giveAhead(hasRoom: hasRoom) }) {
            for message in messages { deliver(message, to: [message.subscription]) }
        }
        if let load = ask({ $0.beginLoad(hasRoom: hasRoom) }) { Task { await readInbox(load) } }
        if ask({ $0.hasWork }) { run() }
    }

    private func readInbox(_ load: DurableConsumers.Load) async {
        let messages = await untilRead("the inbox") { _ throws(StoreError) in
            try await self.withPresentTimes { store throws(StoreError) in
                try await store.collected(
                    self.name, for: load.name, after: load.after, maxCount: load.messages,
                    maxBytes: DurableConsumers.portionBytes)
            }
        }
        // The consumers belong to another driver now.
        guard !isStopping else { return }
        let given = ask { $0.loaded(messages ?? [], for: load) }
        for message in given { deliver(message, to: [message.subscription]) }
        loadConsumers()
    }

    // MARK: At the limit

    func inboxFull(_ isFull: Bool) {
        log.inboxFull(isFull, at: now)
        report(.inboxFull) { $0.full = isFull }
    }

    func inboxStatus(of session: inout Session) -> SessionStatus.Inbox {
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
