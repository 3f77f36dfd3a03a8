import ControlAPI
import MQTT
import Session
import SessionCore

// Watches and subscriptions: how they begin and end, and what is delivered to them.

// MARK: Watches
extension ControlConnection {
    func watch(
        _ id: RequestID, _ parameters: SessionWatchMethod.Parameters, _ isLong: Bool
    ) async throws(RPCError) -> CallReply {
        let (result, missed) = try beginWatch(parameters)
        return CallReply(
            line: isLong ? await Self.longAnswer(id, result) : OutgoingLine.answer(id, result: result),
            feed: .watch(result.watch),
            missed: missed.isEmpty ? [] : await Self.lines(missed))
    }

    /// Begins a watch. Its notifications are held back from now on, until it is answered.
    private func beginWatch(
        _ parameters: SessionWatchMethod.Parameters
    ) throws(RPCError) -> (SessionWatchMethod.Result, missed: [SessionEvent]) {
        try reserveFeed(.watch)
        let watched = registry.assumeIsolated {
            $0.watch(parameters.session, since: parameters.since, epoch: parameters.epoch) { [weak self] event, line in
                self?.assumeIsolated { $0.deliver(event, line) }
            }
        }
        do throws(RPCError) {
            let (result, missed) = try watched.get()
            feeds.add(result.watch)
            return (result, missed)
        } catch {
            freeFeed(.watch)
            throw error
        }
    }

    /// Encodes events as JSON, off the event loop, because thousands take a while.
    @concurrent private static func lines(_ events: [SessionEvent]) async -> [UInt8] {
        events.reduce(into: []) { lines, event in lines += OutgoingLine.notification(event) ?? [] }
    }

    func unwatch(_ id: WatchID) throws(RPCError) {
        guard let bytes = feeds.remove(id) else { throw .unknownWatch(id) }
        freeFeed(.watch)
        release(bytes)
        registry.assumeIsolated { $0.removeWatch(id) }
    }
}

// MARK: Subscriptions
extension ControlConnection {
    func subscribe(
        _ request: RequestID, _ parameters: MessageSubscribeMethod.Parameters
    ) async throws(RPCError) -> CallReply {
        let durable = try parameters.consumer.map { text throws(RPCError) in try consumerName(text) }
        let driver = try await registry.driver(parameters.session)
        try demand(parameters.filter, to: .subscribe, for: MessageSubscribeMethod.name, in: driver)
        let filter = try filter(parameters.filter, of: driver)
        let id = await registry.nextSubscription()
        try reserveFeed(.subscription)
        feeds.add(id, ControlFeeds.Subscription(session: driver.name, filter: parameters.filter, consumer: durable))
        do throws(RPCError) {
            let result =
                if let durable {
                    try await attach(to: durable, as: id, parameters, filter, on: driver)
                } else {
                    try await subscribe(as: id, parameters, filter, on: driver)
                }
            return CallReply(line: OutgoingLine.answer(request, result: result), feed: .subscription(id))
        } catch {
            endSubscription(id)
            release(feeds.answered(.subscription(id)).bytes)
            throw error
        }
    }

    private func attach(
        to consumer: ConsumerName, as id: SubscriptionID, _ parameters: MessageSubscribeMethod.Parameters,
        _ filter: TopicFilter, on driver: SessionDriver
    ) async throws(RPCError) -> MessageSubscribeMethod.Result {
        let subscriber = Subscriber(
            deliver: { [weak self] message in self?.assumeIsolated { $0.deliverDurably(message, to: id) } },
            hasRoom: { [weak self] in self?.assumeIsolated { $0.hasRoomForConsumers() } ?? false },
            ended: { [weak self] event in self?.assumeIsolated { $0.ended(id, event) } },
            answered: { [weak self] event in self?.assumeIsolated { $0.answered(id, event) } })
        try demandFilter(of: consumer, for: MessageSubscribeMethod.name, in: driver)
        let attached = try await driver.attach(
            subscriber, as: id, to: consumer, parameters.filter, filter, parameters.qos)
        // The connection may have ended in the meantime.
        if isClosed { await registry.detach(id, from: driver.name) }
        guard feeds.subscriptions[id] != nil else { throw .consumerEnded(consumer.description) }
        return .init(subscription: id, grantedQoS: attached.grantedQoS, missed: attached.missed, epoch: attached.epoch)
    }

    private func subscribe(
        as id: SubscriptionID, _ parameters: MessageSubscribeMethod.Parameters, _ filter: TopicFilter,
        on driver: SessionDriver
    ) async throws(RPCError) -> MessageSubscribeMethod.Result {
        let relative = Room.isRelative(parameters.filter) ? parameters.filter : nil
        let consumer = LiveConsumer(id: id, filter: filter, qos: parameters.qos, relative: relative)
        let subscriber = Subscriber(
            deliver: { [weak self] message in self?.assumeIsolated { $0.deliver(message, to: id) } },
            ended: { [weak self] event in self?.assumeIsolated { $0.ended(id, event) } },
            answered: { [weak self] event in self?.assumeIsolated { $0.answered(id, event) } })
        return .init(subscription: id, grantedQoS: try await driver.subscribe(consumer, subscriber))
    }

    /// Returns a program's filter as the server has it.
    private func filter(_ text: String, of driver: SessionDriver) throws(RPCError) -> TopicFilter {
        let resolved = driver.assumeIsolated { driver in
            Result { () throws(RPCError) in try driver.session.resolve(text) }
        }
        let name = try resolved.get()
        do throws(InvalidTopic) {
            return try TopicFilter(name)
        } catch {
            throw .invalidTopic(text, error.description, as: "topic filter")
        }
    }

    private func consumerName(_ text: String) throws(RPCError) -> ConsumerName {
        guard let name = ConsumerName(text) else {
            throw .invalidParameters(
                "a consumer's name has 1 to 64 letters, digits, hyphens, underscores and full stops")
        }
        return name
    }

    /// Checks that the peer may have the messages that wait for an existing consumer.
    private func demandFilter(
        of consumer: ConsumerName, for method: String, in driver: SessionDriver
    ) throws(RPCError) {
        guard let text = driver.assumeIsolated({ $0.session.durableConsumers[consumer]?.text }) else { return }
        try demand(text, to: .subscribe, for: method, in: driver)
    }

    /// Ends a subscription or a durable consumer. The consumer is removed for good, unless the program asks to keep it:
    /// then it is only detached.
    func unsubscribe(_ parameters: MessageUnsubscribeMethod.Parameters) async throws(RPCError) {
        switch parameters.what {
        case .consumer(let text, let session):
            let name = try consumerName(text)
            let driver = try await registry.driver(session)
            try demandFilter(of: name, for: MessageUnsubscribeMethod.name, in: driver)
            try await driver.endConsumer(name)
        case .subscription(let id, let keep):
            // Before the subscription ends, so that the program can repeat the call.
            if !keep, let held = feeds.subscriptions[id], held.consumer != nil,
                let driver = try? await registry.driver(held.session.description)
            {
                try await driver.requireStore(for: "the end of the consumer")
            }
            guard let subscription = endSubscription(id) else { throw .unknownSubscription(id) }
            guard let consumer = subscription.consumer else {
                await registry.unsubscribe(id, from: subscription.session)
                return
            }
            await registry.detach(id, from: subscription.session)
            if !keep { try await registry.driver(subscription.session.description).endConsumer(consumer) }
        }
    }

    func acknowledge(_ parameters: MessageAckMethod.Parameters) async throws(RPCError) -> MessageAckMethod.Result {
        guard let subscription = feeds.subscriptions[parameters.subscription], subscription.consumer != nil else {
            throw .unknownSubscription(parameters.subscription)
        }
        return try await registry.driver(subscription.session.description).acknowledge(
            InboxSequence(rawValue: parameters.id), upTo: parameters.upTo, by: parameters.subscription)
    }

    /// Acknowledges a message without a task, as many programs do with each one.
    ///
    /// - Returns: whether it did. Otherwise something has to be waited for first, or the call is wrong.
    func acknowledgeNow(_ call: RunningCall, _ waiting: WaitingCall) -> Bool {
        let decoded = Result { () throws(RPCError) in
            try ParameterDecoder.decode(MessageAckMethod.Parameters.self, from: waiting.complete.parameters)
        }
        guard calls.tasksAhead == 0, let parameters = try? decoded.get(),
            let subscription = feeds.subscriptions[parameters.subscription], subscription.consumer != nil,
            let driver = try? driverNow(subscription.session.description)
        else { return false }
        do throws(RPCError) {
            _ = try take(MessageAckMethod.self, nil, decoded)
        } catch {
            fail(call, error)
            return true
        }
        let (id, upTo) = (InboxSequence(rawValue: parameters.id), parameters.upTo)
        driver.assumeIsolated { driver in
            driver.acknowledge(id, upTo: upTo, by: parameters.subscription) { [weak self] result in
                self?.assumeIsolated { connection in
                    switch result {
                    case .success(let result):
                        connection.answered(call) { OutgoingLine.write($0, result, into: &$1) }
                    case .failure(let error): connection.fail(call, error)
                    }
                }
            }
        }
        return true
    }

    /// A subscription has ended: its durable consumer was taken over by another program, or that or the session was removed.
    private func ended(_ id: SubscriptionID, _ event: SessionEvent) {
        let isAnswered = !feeds.isHeld(.subscription(id))
        guard endSubscription(id) != nil else { return }
        var event = event
        event.watch = ControlFeedID.subscription(id).watch
        if let line = OutgoingLine.notification(event) {
            if isAnswered {
                write(line)
            } else {
                feeds.holdLast(line, for: .subscription(id))
                holdBack(line.count)
            }
        }
        closeWhenDone()
    }

    @discardableResult
    private func endSubscription(_ id: SubscriptionID) -> ControlFeeds.Subscription? {
        guard let (subscription, held) = feeds.remove(id) else { return nil }
        freeFeed(.subscription)
        release(held)
        return subscription
    }
}

// MARK: Both
extension ControlConnection {
    /// Checks that the peer may have one more watch or subscription, and is still connected.
    private func reserveFeed(_ kind: Admission.Kind) throws(RPCError) {
        guard !isClosed else { throw .shuttingDown }
        guard !feeds.isFull else {
            throw .tooManyRequests(
                "you have \(ControlFeeds.maximum) watches and subscriptions on this connection",
                hint: "end some of them, or use another connection")
        }
        if case .tooManyOfUser(let count)? = schedule({ [id] scheduler, _ in scheduler.addFeed(kind, of: id) }) {
            throw .tooManyRequests(
                "your programs have \(count) \(kind == .watch ? "watches" : "subscriptions") together, and may have no more",
                hint: "end some of them; sudo holdfastctl clients shows which programs have them")
        }
    }

    private func freeFeed(_ kind: Admission.Kind) {
        schedule { [id] scheduler, _ in scheduler.removeFeed(kind, of: id) }
    }

    /// Writes what was held back for a watch or subscription, now that the answer that begins it is written.
    func release(_ feed: ControlFeedID) {
        let (lines, bytes) = feeds.answered(feed)
        release(bytes)
        for line in lines { write(line, isNotification: true) }
    }

    private func deliver(_ event: SessionEvent, _ line: EventLine) {
        guard feeds.watches.contains(event.watch) else { return }
        notify(.watch(event.watch), sequence: event.sequence, atLeast: 200) { line.text(for: event.watch) }
    }

    private func deliver(_ message: MessageLine, to id: SubscriptionID) {
        guard feeds.subscriptions[id] != nil else { return }
        notify(.subscription(id), atLeast: message.leastLength) { message.text(for: id) }
    }

    /// Delivers a message of a durable consumer. It is never dropped: the number of messages is bounded by what is
    /// unacknowledged, and more are read from the store only when the peer has read.
    private func deliverDurably(_ message: MessageLine, to id: SubscriptionID) {
        guard feeds.subscriptions[id] != nil else { return }
        writeAnyway(message.text(for: id), to: id)
    }

    /// The server has answered for the filter of a subscription whose call was answered before that.
    private func answered(_ id: SubscriptionID, _ event: SessionEvent) {
        guard feeds.subscriptions[id] != nil else { return }
        var event = event
        event.watch = ControlFeedID.subscription(id).watch
        if let line = OutgoingLine.notification(event) { writeAnyway(line, to: id) }
    }

    /// Writes a notification that is not dropped.
    private func writeAnyway(_ line: [UInt8], to id: SubscriptionID) {
        if feeds.hold(line, for: .subscription(id)) { holdBack(line.count) } else { write(line, isNotification: true) }
    }

    /// Writes a notification, or drops and counts it if the peer has too much to read.
    ///
    /// - Parameter atLeast: the least length of the line, so that a line that would be dropped is not even made.
    private func notify(_ feed: ControlFeedID, sequence: Int64 = 0, atLeast: Int, _ line: () -> [UInt8]?) {
        func mayNotify(_ bytes: Int) -> Bool { schedule { [id] scheduler, _ in scheduler.mayNotify(bytes, to: id) } }
        if !feeds.isDropping(feed), mayNotify(atLeast) {
            guard let line = line() else { return }
            if mayNotify(line.count) {
                return feeds.hold(line, for: feed) ? holdBack(line.count) : write(line, isNotification: true)
            }
        }
        feeds.drop(feed, sequence: sequence)
        daemon.assumeIsolated { $0.calls.unread += 1 }
        // Otherwise it is reported when the peer has read.
        if output.lines.isEmpty, !output.isWriting { reportDropped() }
    }

    /// Tells the peer how much it missed, once it has read enough; it gets all that follows.
    func reportDropped() {
        guard feeds.hasDropped, hasRead() else { return }
        for event in feeds.takeDropped(at: .now) {
            OutgoingLine.notification(event).map { write($0, isNotification: true) }
        }
    }

    /// Whether the peer has read enough to be sent more.
    private func hasRead() -> Bool {
        schedule { [id] scheduler, _ in scheduler.hasRead(id) }
    }

    /// Whether messages of a durable consumer may be read from the store for this peer. If not, ``resumeConsumers()``
    /// continues later.
    private func hasRoomForConsumers() -> Bool {
        // More is given once the answers that the first messages wait for are written.
        let hasRoom =
            feeds.heldBytes <= DurableConsumers.portionBytes
            && schedule { [id] scheduler, _ in scheduler.mayGive(DurableConsumers.portionBytes, to: id) }
        if !hasRoom { feeds.areConsumersPaused = true }
        return hasRoom
    }

    func resumeConsumers() {
        guard feeds.areConsumersPaused, hasRead() else { return }
        feeds.areConsumersPaused = false
        for session in feeds.sessionsWithConsumers {
            registry.assumeIsolated { $0.loadConsumers(of: session) }
        }
    }

    /// Ends all watches and subscriptions: the peer is gone.
    func endFeeds() {
        let (registry, feeds) = (registry, feeds)
        self.feeds = ControlFeeds()
        registry.assumeIsolated { registry in
            for watch in feeds.watches { registry.removeWatch(watch) }
            for (id, subscription) in feeds.subscriptions {
                if subscription.consumer == nil {
                    registry.unsubscribe(id, from: subscription.session)
                } else {
                    registry.detach(id, from: subscription.session)
                }
            }
        }
    }
}
