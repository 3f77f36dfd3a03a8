// Bare TCP connects to endpoints: those that a waiting session cannot reach, and the first one when the session is
// connected to a later one. Both use the same action.

extension SessionMachine {
    /// The steps of a return to the first endpoint.
    enum Returning: Hashable, Sendable {
        case waiting(until: Instant)
        /// It is time, but messages are in flight; they have a little while to be acknowledged.
        case awaitingQuiet(until: Instant)
        /// The deadline guards against a knock whose answer never comes.
        case knocking(until: Instant)

        var deadline: Instant {
            switch self {
            case .waiting(let until), .awaitingQuiet(let until), .knocking(let until): until
            }
        }
    }

    /// How long a return is postponed for messages in flight.
    static let quietTimeout: Duration = .seconds(10)
    /// How late the answer to a knock may come.
    static let knockTimeout: Duration = .seconds(30)

    /// Whether the connection of a knock is still needed: its answer is awaited, or the next attempt continues on it.
    public func wantsKnock(at endpoint: EndpointIndex) -> Bool {
        switch state {
        case .trying(let trying):
            if case .waiting = trying.activity { endpoints.watch.wants(endpoint) } else { false }
        case .connected(let connected):
            if endpoint == Endpoints.first, case .knocking = connected.returning { true } else { false }
        case .disconnected, .disconnecting, .failed:
            false
        }
    }

    mutating func knocked(
        at endpoint: EndpointIndex, _ answer: KnockAnswer, at now: Instant, into actions: inout [Action]
    ) {
        switch state {
        case .trying(let trying):
            knocked(at: endpoint, answer, during: trying, at: now, into: &actions)
        case .connected(var connected):
            guard endpoint == Endpoints.first, case .knocking = connected.returning else { return }
            if answer == .answered {
                abandon(connected, because: Reason(.returning), at: now, into: &actions)
            } else {
                connected.returning = .waiting(until: now.advanced(by: endpoints.returns.next()))
                state = .connected(connected)
            }
        case .disconnected, .disconnecting, .failed:
            return
        }
    }

    // MARK: While waiting

    private mutating func knocked(
        at endpoint: EndpointIndex, _ answer: KnockAnswer, during trying: Trying, at now: Instant,
        into actions: inout [Action]
    ) {
        guard case .waiting(let until, let isHastened) = trying.activity,
            let before = endpoints.watch.knocked(endpoint, answer)
        else { return }
        var trying = trying
        trying.hasteReason = Reason(.answered)
        endpoints.cursor = endpoint
        // A path that healed is news for this host only. A server that is back is news for all its clients, so they
        // spread out.
        let planned = before == .refused ? now.advanced(by: pacing.backoff.random(upTo: policy.spread)) : now
        let earliest = allowed(planned)
        guard earliest <= now else {
            // If the server asked to be left alone, that is still why the session waits.
            if earliest == planned { reason = Reason(.answered) }
            wait(trying, until: min(until, earliest), isHastened: isHastened || earliest < until, at: now)
            return
        }
        reason = Reason(.answered)
        // The answer is not ignored, however often one came before; but it leaves fewer attempts to other events.
        pacing.haste.hastened(at: now)
        attemptNow(trying, at: now, into: &actions)
    }

    mutating func knockIfDue(_ trying: Trying, at now: Instant, into actions: inout [Action]) {
        guard case .waiting = trying.activity else { return }
        for endpoint in endpoints.knocksDue(at: now) { actions.append(.knock(endpoint)) }
    }

    func knockDeadline(of trying: Trying) -> Instant? {
        guard case .waiting = trying.activity else { return nil }
        return endpoints.knockDeadline
    }

    // MARK: While connected to a later endpoint

    mutating func returnIfDue(at now: Instant, into actions: inout [Action]) {
        guard case .connected(let connected) = state, let returning = connected.returning, now >= returning.deadline
        else { return }
        switch returning {
        case .waiting where endpoints[Endpoints.first] != nil && demand.uses.contains(.messages):
            setReturning(.awaitingQuiet(until: now.advanced(by: Self.quietTimeout)))
        case .waiting, .awaitingQuiet:
            knockAtFirst(at: now, into: &actions)
        case .knocking:
            setReturning(.waiting(until: now.advanced(by: endpoints.returns.next())))
        }
    }

    /// Continues a return that waited for messages in flight, because there are none any more.
    mutating func quietCame(at now: Instant, into actions: inout [Action]) {
        guard case .connected(let connected) = state, case .awaitingQuiet = connected.returning else { return }
        knockAtFirst(at: now, into: &actions)
    }

    private mutating func knockAtFirst(at now: Instant, into actions: inout [Action]) {
        guard endpoints[Endpoints.first] != nil, !endpoints.mustRest(Endpoints.first, at: now) else {
            setReturning(.waiting(until: now.advanced(by: endpoints.returns.next())))
            return
        }
        setReturning(.knocking(until: now.advanced(by: Self.knockTimeout)))
        actions.append(.knock(Endpoints.first))
    }

    private mutating func setReturning(_ returning: Returning) {
        guard case .connected(var connected) = state else { return }
        connected.returning = returning
        state = .connected(connected)
    }

    /// Goes straight back to the endpoint that served before, because the return failed.
    ///
    /// - Returns: `false` if the attempt was not a return, or if its end concerns the session at every endpoint.
    mutating func goBack(
        _ trying: Trying, _ attempt: Attempt, _ ending: Ending, at now: Instant, into actions: inout [Action]
    ) -> Bool {
        let reason = ending.reason
        guard let later = trying.returnsFrom, ![.displaced, .removed].contains(reason.code.group) else { return false }
        var trying = trying
        trying.returnsFrom = nil
        trying.hasteReason = Reason(
            .returning, "the first endpoint answered, but could not be returned to: \(reason.message)",
            serverCode: reason.serverCode)
        endpoints.returns.failed()
        // The session is well where it goes back to.
        if reason.code == .stateMismatch { discards.olderCopies.insert(attempt.endpoint) }
        self.reason = reason
        endpoints.cursor = later
        attemptNow(trying, at: now, into: &actions)
        return true
    }
}
