import NIOCore

extension MQTTClientMachine {
    /// Asks for this subscription, with these options, on this connection and every later one. `subscribed` follows
    /// with the answer each time the server was asked.
    ///
    /// In MQTT 3.1.1 the QoS is the only option: the server sends retained messages with every answer, and also what
    /// this client itself publishes.
    ///
    /// - Parameter isLive: whether a live subscriber asks. Durable consumers that have had the retained messages do not
    ///   get them again, if the server tells them apart.
    /// - Throws: what is wrong with the topic filter (4.7, 4.8.2); nothing has changed then.
    public mutating func subscribe(
        _ subscription: Subscription, isLive: Bool = false, at now: Timestamp, into actions: inout [Action]
    ) throws(InvalidTopic) {
        let filter = try TopicFilter(subscription.filter)
        var subscription = subscription
        // A protocol error on a shared subscription [MQTT-3.8.3-4].
        if filter.isShared { subscription.noLocal = false }
        step(at: now, into: &actions) { machine, step in
            let isNew = machine.subscriptions.wanted[filter] == nil
            machine.subscriptions.want(subscription, for: filter)
            if let refusal = machine.subscriptions.refusalInForce(for: filter, at: step.now) {
                // Without a connection, the next one says so.
                if machine.isConnected { step.emit(.subscribed(filter, refusal.answer)) }
                if isNew { step.emit(.subscriptionChanged(filter)) }
                return
            }
            machine.subscriptions.takeFromAside(filter)
            machine.subscriptions.confirmed.remove(filter)
            // Without a connection, a live subscriber makes no difference to what is asked for on the next one.
            if machine.isConnected || !isLive { machine.subscriptions.noteRepeat(of: filter, isLive: isLive) }
            guard case .connected(let session) = machine.connection else { return }
            machine.subscriptions.needs.append(.subscribe(filter, again: false))
            machine.issueRequests(session.limits, &step)
        }
    }

    /// Stops asking for a filter. Without a connection `unsubscribed` comes at once, and the server is told on the next
    /// one.
    mutating func unsubscribe(_ filter: TopicFilter, _ step: inout Step) {
        subscriptions.unwant(filter)
        subscriptions.confirmed.remove(filter)
        subscriptions.answered(filter)
        if case .connected(let session) = connection {
            // If the connection ends, this filter is known to be the reason.
            if subscriptions.isSetAside(filter) { subscriptions.isolate(because: .end) }
            subscriptions.needs.append(.unsubscribe(filter))
            issueRequests(session.limits, &step)
        } else {
            step.emit(.unsubscribed(filter, .success))
        }
        reportRestored(&step)
    }

    mutating func restoreSubscriptions(
        resumed: Bool, isCertain: Bool, isProbable: Bool, _ limits: ServerLimits, _ step: inout Step
    ) {
        subscriptions.restore(resumed: resumed, isCertain: isCertain, isProbable: isProbable)
        for refusal in subscriptions.setAside { step.emit(.subscribed(refusal.filter, refusal.answer)) }
        issueRequests(limits, &step)
        reportRestored(&step)
    }

    private mutating func reportRestored(_ step: inout Step) {
        if subscriptions.takeRestored() { step.emit(.restored) }
        if isConnected { subscriptions.endSearch() }
    }

    // MARK: Asking

    /// Asks for as much as may wait for answers at once.
    private mutating func issueRequests(_ limits: ServerLimits, _ step: inout Step) {
        link.holdsRequests = link.awaitsClearing || !isWorthTrying(&step)
        while !link.holdsRequests,
            subscriptions.requests.count
                < (subscriptions.isolates ? 1 : max(1, configuration.maximumSubscribeRequests)),
            let need = subscriptions.needs.first
        {
            guard let id = identifiers.allocator.allocate() else { return }
            let isIssued =
                switch need {
                case .subscribe: issueSubscribe(id, limits, &step)
                case .unsubscribe: issueUnsubscribe(id, limits, &step)
                }
            if isIssued {
                enqueue(.request(id), step)
            } else {
                identifiers.allocator.free(id)
            }
        }
    }

    /// Whether an end of the connection, or a silence, would say something about what is asked for. A server that ends
    /// each connection for reasons of its own would otherwise have every filter refused.
    private mutating func isWorthTrying(_ step: inout Step) -> Bool {
        guard subscriptions.isolates, !subscriptions.needs.isEmpty, !link.isProven else { return true }
        if !link.isAwaiting(.trial) { ping(.trial, &step) }
        return false
    }

    /// Asks for what waited until the server had released identifiers, or the connection had proven to work.
    mutating func issueHeldRequests(_ step: inout Step) {
        guard case .connected(let session) = connection, link.holdsRequests, !link.awaitsClearing else { return }
        issueRequests(session.limits, &step)
    }

    private var filtersPerPacket: Int { subscriptions.isolates ? 1 : max(1, configuration.filtersPerPacket) }

    /// Bytes of a SUBSCRIBE or UNSUBSCRIBE without filters, at most.
    private static var requestOverhead: Int { 16 }

    /// One SUBSCRIBE for as many of the next needs as fit. Returns whether there is anything to ask for.
    private mutating func issueSubscribe(_ id: PacketID, _ limits: ServerLimits, _ step: inout Step) -> Bool {
        var asked: [Subscription] = []
        var wanted: [(filter: TopicFilter, subscription: Subscription)] = []
        var filters: Set<TopicFilter> = []
        var new: Set<TopicFilter> = []
        var length = Self.requestOverhead
        // A packet has one identifier for all of its filters.
        let count = limits.subscriptionIDs ? 1 : filtersPerPacket
        while asked.count < count,
            case .subscribe(let filter, let again)? = subscriptions.needs.first, !filters.contains(filter)
        {
            guard var subscription = subscriptions.wanted[filter] else {
                subscriptions.needs.removeFirst()
                continue
            }
            let size = 3 + filter.string.utf8.count
            if let why = refusal(of: filter, size, limits) {
                subscriptions.needs.removeFirst()
                answered(filter, .notAsked("the session does not ask for it, because \(why)"), &step)
                continue
            }
            guard length + size <= limits.maximumPacketSize else { break }
            subscriptions.needs.removeFirst()
            length += size
            filters.insert(filter)
            wanted.append((filter, subscription))
            if again, subscription.retainHandling == .sendOnSubscribe { subscription.retainHandling = .sendIfNew }
            asked.append(subscription)
            subscriptions.latest[filter] = id
            if subscriptions.remembered.insert(filter).inserted {
                new.insert(filter)
                step.changes.append(.rememberSubscription(filter))
            }
        }
        guard !asked.isEmpty else { return false }
        subscriptions.requests[id] = .subscribe(asked, wanted: wanted, new: new)
        return true
    }

    private mutating func issueUnsubscribe(_ id: PacketID, _ limits: ServerLimits, _ step: inout Step) -> Bool {
        var filters: [TopicFilter] = []
        var length = Self.requestOverhead
        while filters.count < filtersPerPacket,
            case .unsubscribe(let filter)? = subscriptions.needs.first
        {
            // The filter is wanted again, and a SUBSCRIBE for it follows. The UNSUBSCRIBE would only lose messages in
            // between.
            let isWanted = subscriptions.wanted[filter] != nil
            let size = 2 + filter.string.utf8.count
            let isAskable = Self.requestOverhead + size <= limits.maximumPacketSize
            let isLeft = subscriptions.left[filter] != nil
            if isWanted || isLeft || !subscriptions.remembered.contains(filter) || !isAskable {
                subscriptions.needs.removeFirst()
                step.emit(.unsubscribed(filter, isWanted ? .success : .noSubscriptionExisted))
                continue
            }
            guard length + size <= limits.maximumPacketSize else { break }
            subscriptions.needs.removeFirst()
            length += size
            filters.append(filter)
            subscriptions.confirmed.remove(filter)
            subscriptions.latest[filter] = id
        }
        guard !filters.isEmpty else { return false }
        subscriptions.requests[id] = .unsubscribe(filters)
        return true
    }

    /// Why the server cannot be asked for this (rule 19).
    private func refusal(of filter: TopicFilter, _ size: Int, _ limits: ServerLimits) -> String? {
        if filter.isShared, !limits.sharedSubscriptions {
            return "\(version == .five ? "the server" : "MQTT \(version)") has no shared subscriptions"
        }
        if filter.hasWildcard, !limits.wildcardSubscriptions { return "the server has no subscriptions with wildcards" }
        let length = Self.requestOverhead + size
        return length > limits.maximumPacketSize
            ? "its packet may have \(length) bytes, and the server's limit is \(limits.maximumPacketSize)" : nil
    }

    mutating func sendRequest(_ id: PacketID, _ step: inout Step) {
        subscriptions.sent.insert(id)
        patience.requests.sent(id, at: step.now)
        switch subscriptions.requests[id] {
        case .subscribe(let asked, let wanted, _)?:
            var properties = Subscribe.Properties()
            if case .connected(let session) = connection, session.limits.subscriptionIDs {
                properties.subscriptionID = wanted.first.map { identifier(of: $0.filter) }
            }
            step.write(.subscribe(Subscribe(packetID: id, subscriptions: asked, properties: properties)))
        case .unsubscribe(let filters)?:
            step.write(.unsubscribe(Unsubscribe(packetID: id, filters: filters.map(\.string))))
        case nil: return
        }
    }

    private func identifier(of filter: TopicFilter) -> UInt32 {
        subscriptions.repeated.contains(filter) ? filter.repeatedSubscriptionID : filter.subscriptionID
    }

    // MARK: Answers

    mutating func received(_ suback: Suback, _ step: inout Step) {
        let id = suback.packetID
        // What was not sent yet cannot have been answered.
        guard subscriptions.sent.contains(id),
            case .subscribe(let asked, let wanted, let new)? = subscriptions.requests[id]
        else { return }
        guard suback.reasonCodes.count == wanted.count else {
            return violate(
                .protocolError, "SUBACK answers a different number of filters than were requested", for: .filters, &step
            )
        }
        finishRequest(id)
        guard !isIdentifierTaken(id, suback.reasonCodes, &step) else { return }
        for (index, ((filter, subscription), code)) in zip(wanted, suback.reasonCodes).enumerated()
        where subscriptions.latest[filter] == id {
            subscriptions.latest[filter] = nil
            if code == .packetIdentifierInUse {
                subscriptions.needs.append(.subscribe(filter, again: false))
                continue
            }
            subscriptions.noteRetained(of: filter, asked[index], code)
            if code.isError {
                if new.contains(filter), subscriptions.remembered.remove(filter) != nil {
                    step.changes.append(.forgetSubscription(filter))
                }
            } else if subscriptions.wanted[filter] == subscription {
                subscriptions.confirmed.insert(filter)
            }
            answered(filter, .said(code, suback.properties.reasonString?.plain()), &step)
        }
        afterAnswer(&step)
    }

    mutating func received(_ unsuback: Unsuback, _ step: inout Step) {
        let id = unsuback.packetID
        guard subscriptions.sent.contains(id), case .unsubscribe(let filters)? = subscriptions.requests[id] else {
            return
        }
        // In MQTT 3.1.1, UNSUBACK has no codes: the filters are gone.
        let codes =
            version == .five ? unsuback.reasonCodes : [ReasonCode](repeating: .success, count: filters.count)
        guard codes.count == filters.count else {
            return violate(
                .protocolError, "UNSUBACK answers a different number of filters than were requested", for: .filters,
                &step)
        }
        finishRequest(id)
        guard !isIdentifierTaken(id, codes, &step) else { return }
        for (filter, code) in zip(filters, codes) where subscriptions.latest[filter] == id {
            subscriptions.latest[filter] = nil
            noteAnswer(to: filter)
            if code == .packetIdentifierInUse {
                subscriptions.needs.append(.unsubscribe(filter))
                continue
            }
            if !code.isError, subscriptions.remembered.remove(filter) != nil {
                step.changes.append(.forgetSubscription(filter))
            }
            step.emit(.unsubscribed(filter, code))
        }
        afterAnswer(&step)
    }

    /// Whether the connection ends because the server says again that an identifier is in use; otherwise what was
    /// refused for that reason is asked for again with another identifier.
    private mutating func isIdentifierTaken(_ id: PacketID, _ codes: [ReasonCode], _ step: inout Step) -> Bool {
        let isTaken = codes.contains {
            Consequence.measures(for: $0, in: .subscription).contains(.retireIdentifier)
        }
        return isTaken && !identifierIsTaken(id, &step)
    }

    private mutating func answered(_ filter: TopicFilter, _ answer: ServerAnswer, _ step: inout Step) {
        subscriptions.answered(filter)
        noteAnswer(to: filter)
        let isNews = subscriptions.note(answer, of: filter, at: step.now)
        step.emit(.subscribed(filter, answer))
        if isNews { step.emit(.subscriptionChanged(filter)) }
    }

    private mutating func noteAnswer(to filter: TopicFilter) {
        suspicions.answered(.filter(filter))
        patience.silences.answered(.filter(filter))
    }

    /// Asks again for what was refused long ago, and to remove what was left: what a server allows may change.
    mutating func askAgain(_ step: inout Step) {
        guard case .connected(let session) = connection, subscriptions.restoring == nil, link.settling == nil else {
            return
        }
        for filter in subscriptions.takeDue(at: step.now) {
            // If the connection ends again, this filter is known to be the reason.
            if subscriptions.isSetAside(filter) { subscriptions.isolate(because: .end) }
            subscriptions.needs.append(.subscribe(filter, again: subscriptions.remembered.contains(filter)))
        }
        for filter in subscriptions.takeLeft(at: step.now) where subscriptions.wanted[filter] == nil {
            subscriptions.isolate(because: .end)
            subscriptions.needs.append(.unsubscribe(filter))
        }
        issueRequests(session.limits, &step)
    }

    private mutating func finishRequest(_ id: PacketID) {
        subscriptions.requests[id] = nil
        subscriptions.sent.remove(id)
        patience.requests.answered(id)
        identifiers.allocator.free(id)
    }

    private mutating func afterAnswer(_ step: inout Step) {
        reportRestored(&step)
        if case .connected(let session) = connection { issueRequests(session.limits, &step) }
        reportRestored(&step)
    }
}
