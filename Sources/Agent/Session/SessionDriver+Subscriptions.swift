import Configuration
import ControlAPI
import MQTT
import Session

// Subscriptions of live and durable consumers, the messages that their programs are given, and what the server grants: of
// these, and in CONNACK.

extension SessionDriver {
    /// Adds a consumer. While connected, returns when the server has answered; otherwise at once, with no granted QoS.
    func subscribe(_ consumer: LiveConsumer, _ subscriber: Subscriber) async throws(RPCError) -> QoS? {
        try checkRunning()
        let (id, filter) = (consumer.id, consumer.filter)
        programs.subscribers[id] = subscriber
        beginAsking(for: filter)
        defer { endAsking(for: filter) }
        let answer = await subscribing { .consume(consumer, $0) }
        guard let answer else {
            programs.subscribers[id]?.untold = .answer
            return nil
        }
        if answer.isRefusal {
            let error = refusal(of: filter, answer)
            unsubscribe(id)
            throw error
        }
        return answer.code.flatMap { QoS(rawValue: $0.rawValue) }
    }

    func unsubscribe(_ id: SubscriptionID) {
        programs.subscribers[id] = nil
        run(.unsubscribe(id))
    }

    /// Gives a message to programs, of live and of durable consumers.
    func deliver(_ message: ReceivedMessage, to subscriptions: [SubscriptionID]) {
        let line = MessageLine(message, on: eventLoop)
        for subscription in subscriptions { programs.subscribers[subscription]?.deliver(line) }
    }

    /// The error of a call that subscribes to a filter.
    func refusal(of filter: TopicFilter, _ answer: ServerAnswer) -> RPCError {
        .subscriptionRefused(filter.string, answer.words, reasonCode: answer.code.map { Int($0.rawValue) })
    }

    /// Gives the session an input that leads to a subscription, and returns the server's answer. Returns `nil` if the
    /// session is not connected, or the server does not answer.
    func subscribing(_ input: (CallID) -> Session.Input) async -> ServerAnswer? {
        await withCheckedContinuation { continuation in
            run(input(programs.subscribing.add { continuation.resume(returning: $0) }))
        }
    }

    /// The server has answered for a filter. Programs whose calls were answered before that are told.
    func subscriptionAnswered(_ filter: TopicFilter) {
        let subscriptions = ask { session in
            session.consumers.subscriptions(to: filter)
                + session.durableConsumers.names(for: filter).compactMap {
                    session.durableConsumers[$0]?.attachment?.subscription
                }
        }
        for id in subscriptions where programs.subscribers[id]?.untold != nil { tellAnswer(to: id) }
    }

    func tellAnswer(to id: SubscriptionID) {
        guard let filter = filter(of: id), let subscription = subscriptionStatus(of: filter),
            subscription.state != .pending
        else { return }
        let isRefused = subscription.state == .refused
        let hasBacklog = ask { session in
            session.durableConsumers.name(of: id).map { session.mqtt.backlog(of: $0).messages > 0 } ?? false
        }
        guard !isRefused || !hasBacklog else {
            programs.subscribers[id]?.untold = .refusal
            return
        }
        programs.subscribers[id]?.untold = nil
        var event = event(.subscriptionChanged)
        event.subscription = subscription
        programs.subscribers[id]?.answered(event)
    }

    /// A program has acknowledged messages of its durable consumer.
    func tellHeldRefusal(to id: SubscriptionID) {
        if programs.subscribers[id]?.untold == .refusal { tellAnswer(to: id) }
    }

    /// A program's filter as the server has it.
    private func filter(of id: SubscriptionID) -> TopicFilter? {
        ask { session in
            if let filter = session.consumers.filter(of: id) { return filter }
            guard let name = session.durableConsumers.name(of: id) else { return nil }
            return session.durableConsumers[name]?.filter
        }
    }

    /// Reports that the server's answer to a subscription has changed.
    func subscriptionChanged(_ filter: TopicFilter) {
        guard let subscription = subscriptionStatus(of: filter) else { return }
        programs.asking[filter]?.refusal = nil
        if subscription.state == .refused, programs.asking[filter] != nil {
            programs.asking[filter]?.refusal = subscription
        } else {
            tell(subscription, of: filter)
        }
    }

    /// A call asks for a subscription. A refusal is told when the last such call has ended: it gives up the subscription,
    /// unless something else wants it.
    func beginAsking(for filter: TopicFilter) { programs.asking[filter, default: Asking()].calls += 1 }

    func endAsking(for filter: TopicFilter) {
        programs.asking[filter]?.calls -= 1
        guard let asking = programs.asking[filter], asking.calls == 0 else { return }
        programs.asking[filter] = nil
        guard var refusal = asking.refusal else { return }
        if subscriptionStatus(of: filter) == nil { refusal.retryAt = nil }
        tell(refusal, of: filter)
    }

    private func tell(_ subscription: SessionStatus.Subscription, of filter: TopicFilter) {
        log.subscriptionChanged(subscription, ofConsumers: session.durableConsumers.names(for: filter), at: now)
        report(.subscriptionChanged) { $0.subscription = subscription }
    }

    /// All subscriptions that the session wants, with the server's answers.
    var subscriptionStatus: [SessionStatus.Subscription] {
        ask { $0.mqtt.subscriptionStates }.map { .init($0.filter, $0.qos, $0.state) }
    }

    private func subscriptionStatus(of filter: TopicFilter) -> SessionStatus.Subscription? {
        ask { session in
            guard let qos = session.mqtt.wantedQoS(of: filter), let state = session.mqtt.subscriptionState(of: filter)
            else { return nil }
            return .init(filter, qos, state)
        }
    }
}

/// The calls that ask for a subscription to one filter.
struct Asking {
    var calls = 0
    /// The server's, which has not been told yet.
    var refusal: SessionStatus.Subscription?
}

extension MQTTClientMachine.Connected {
    /// Lists what the server grants less of than was asked for, each as the end of a sentence. Its limits on what is sent to
    /// it are not among them: what we ask for is what we accept.
    ///
    /// - Parameter presence: what the others in the session's room were promised; `nil` if there are none.
    func shortfalls(
        from asked: MQTTClientMachine.Configuration, as version: ProtocolVersion,
        inRoom presence: (timeout: Duration, willDelay: Duration)? = nil
    ) -> [String] {
        // In MQTT 3.1.1 the server does not say any of this.
        guard version == .five else { return [] }
        var shortfalls: [String] = []
        if sessionExpiry < asked.sessionExpiry {
            shortfalls.append(
                sessionExpiry == 0
                    ? "it does not keep the session, so what is sent to it during an outage is lost"
                    : "it keeps the session for \(Self.text(sessionExpiry)), not \(Self.text(asked.sessionExpiry))")
        }
        if let wanted = serverKeepAlive, wanted > 0, asked.keepAlive > 0, wanted < asked.keepAlive {
            shortfalls.append("it wants a keep-alive of \(wanted) s, not \(asked.keepAlive) s")
        }
        if let presence, let late = lateness(for: presence, asked.keepAlive) { shortfalls.append(late) }
        if limits.maximumQoS < .exactlyOnce {
            shortfalls.append("it accepts QoS \(limits.maximumQoS.rawValue) at most")
        }
        if !limits.retainAvailable { shortfalls.append("it retains no messages") }
        return shortfalls
    }

    /// Returns that the others in the room may learn of a loss later than they were promised, because the server waits for
    /// longer than the session asked it to; `nil` if that is not so.
    private func lateness(
        for presence: (timeout: Duration, willDelay: Duration), _ asked: UInt16
    ) -> String? {
        guard let seconds = serverKeepAlive, seconds == 0 || asked > 0 && seconds > asked else { return nil }
        guard seconds > 0 else {
            return "it never notices silence (its keep-alive is 0), so the room may not learn that the session is gone"
        }
        let latest = PresenceTiming.latest(keepAlive: seconds, willDelay: presence.willDelay)
        guard latest > presence.timeout else { return nil }
        return "it wants a keep-alive of \(seconds) s, not \(asked) s, so the room may learn of a loss only "
            + "after \(latest.components.seconds) s, not \(presence.timeout.components.seconds) s"
    }

    /// Returns a duration in words for people.
    private static func text(_ seconds: UInt32) -> String {
        seconds == .max ? "ever" : SessionLog.text(.seconds(Int64(seconds)))
    }
}

extension SessionStatus.Subscription {
    init(_ filter: TopicFilter, _ qos: QoS, _ state: SubscriptionState) {
        self.init(filter: filter.string, qos: qos, state: .pending)
        switch state {
        case .pending: break
        case .granted(let granted):
            self.state = .granted
            grantedQoS = granted
        case .refused(let refusal):
            self.state = .refused
            reasonCode = refusal.answer.code.map { Int($0.rawValue) }
            message = refusal.answer.words
            since = refusal.since
            retryAt = refusal.asksAgainAt
        }
    }
}

extension SessionStatus.Granted {
    init(_ grant: MQTTClientMachine.Connected) {
        self.init(
            sessionExpiry: grant.sessionExpiry == .max ? nil : Double(grant.sessionExpiry),
            keepAlive: grant.keepAlive == 0 ? nil : Double(grant.keepAlive),
            maximumQoS: grant.limits.maximumQoS, retain: grant.limits.retainAvailable,
            receiveMaximum: grant.limits.receiveMaximum, maximumPacketSize: Int64(grant.limits.maximumPacketSize),
            wildcardSubscriptions: grant.limits.wildcardSubscriptions,
            sharedSubscriptions: grant.limits.sharedSubscriptions)
    }
}
