// How a session tries: the steps between losing a connection and having one again.

extension SessionMachine {
    /// Begins to connect, with a fresh table and no delay.
    mutating func startTrying(because reason: Reason, at now: Instant, into actions: inout [Action]) {
        self.reason = reason
        backoff.restart()
        notBefore = nil
        rivalry.startedAnew()
        cursor = EndpointIndex(0)
        attemptNow(newTrying(outage: nil, because: reason, at: now), at: now, into: &actions)
    }

    private func newTrying(outage: Outage?, because cause: Reason, at now: Instant) -> Trying {
        Trying(activity: .waiting(until: now, isKick: false), startedAt: now, cause: cause, outage: outage)
    }

    /// The connection is gone: begins to reconnect, at once after a local cause, else by the table.
    mutating func lose(_ connected: Connected, because reason: Reason, at now: Instant, into actions: inout [Action]) {
        lose(connected, Ending(reason), at: now, into: &actions)
    }

    mutating func lose(_ connected: Connected, _ ending: Ending, at now: Instant, into actions: inout [Action]) {
        let isStable = connected.since.duration(to: now) >= policy.stableAfter
        var ending = ending
        ending.reason = rivalry.lost(because: ending.reason, isStable: isStable)
        let reason = ending.reason
        counters.outages += 1
        escalate(because: reason.code)
        if isStable { backoff.restart() }
        // The server that was left has the session, so it is asked first, unless it said that it cannot serve now.
        let isServerUnfit = reason.code == .serverShutdown || reason.code == .serverBusy
        cursor = isServerUnfit ? endpoint(after: connected.attempt.endpoint) : connected.attempt.endpoint
        var trying = newTrying(outage: Outage(since: now), because: reason, at: now)
        actions.append(.report(.reconnectStarted(mode)))
        switch reason.code {
        case .userReconnect, .credentialRenewed, .switchRoom:
            tryNow(trying, because: reason, at: now, into: &actions)
        case .pathMoved:
            wait(trying, after: ending, at: now)
            if case .trying(let trying) = state { kick(trying, because: reason, at: now, into: &actions) }
        case .stateMismatch, .sessionLost, .serverKeepAliveTimeout, .credentialRejected, .credentialExpired,
            .notAuthorized:
            trying.hasRenewedCredential = reason.code.group == .auth
            // There is something to change, so the first try is made at once; what comes again goes by the table.
            if backoff.isAtStart, ending.retryAfter == nil {
                self.reason = reason
                backoff.advance()
                attemptNow(trying, at: now, into: &actions)
            } else {
                wait(trying, after: ending, at: now)
            }
        default:
            wait(trying, after: ending, at: now)
        }
    }

    mutating func fail(because reason: Reason) {
        self.reason = reason
        state = .failed
    }

    var mode: ReconnectMode { escalation == .none ? .quick : .full }

    /// - Returns: whether more has to be set up than before.
    @discardableResult
    mutating func escalate(because code: ReasonCode) -> Bool {
        let needed: Escalation =
            switch code {
            case .stateMismatch: .discard
            case .sessionLost: .full
            default: .none
            }
        guard needed > escalation else { return false }
        escalation = needed
        return true
    }

    /// Waits for the next delay of the table, or for the network when there is no path to any endpoint.
    mutating func wait(_ trying: Trying, after ending: Ending, at now: Instant) {
        var trying = trying
        let cause = Backoff.Cause(ending.reason)
        notBefore = ending.retryAfter.map { now.advanced(by: $0) }
        var until = notBefore ?? now
        // Without a path nothing is taken from the table, but a server that answered is left alone all the same.
        if hasPath || cause == .busy {
            until = max(until, now.advanced(by: backoff.nextDelay(after: cause, policy: policy)))
        }
        if cause == .busy { notBefore = until }
        guard hasPath else {
            waitForNetwork(trying, because: ending.reason, at: now)
            return
        }
        reason = ending.reason
        trying.kick = nil
        trying.activity = .waiting(until: until, isKick: false)
        state = .trying(trying)
    }

    mutating func waitForNetwork(_ trying: Trying, because reason: Reason, at now: Instant) {
        var trying = trying
        self.reason = reason
        trying.kick = nil
        var safetyAttempt = now.advanced(by: policy.safetyInterval)
        // Whatever is asked or heard meanwhile, the safety attempt is not put off.
        if case .waitingForNetwork(let due) = trying.activity { safetyAttempt = min(safetyAttempt, due) }
        trying.activity = .waitingForNetwork(safetyAttempt: max(safetyAttempt, notBefore ?? now))
        state = .trying(trying)
    }

    /// A person's word goes before everything: the table restarts and the attempt is made now.
    mutating func tryNow(_ trying: Trying, because reason: Reason, at now: Instant, into actions: inout [Action]) {
        var trying = trying
        if case .attempting(let attempt, _, _, _) = trying.activity { actions.append(.abandon(attempt.generation)) }
        self.reason = reason
        trying.kick = reason
        notBefore = nil
        backoff.restart()
        attemptNow(trying, at: now, into: &actions)
    }

    /// A network event: the table restarts and the attempt is made now. While the server asked for rest, or when such
    /// events come too often, the attempt is only brought forward as far as is allowed, and the table stays as it is.
    /// - Parameter reason: `nil` for an event that only may matter: it makes an attempt, but does not restart the table.
    mutating func kick(_ trying: Trying, because reason: Reason?, at now: Instant, into actions: inout [Action]) {
        var trying = trying
        if case .attempting(let attempt, _, _, _) = trying.activity { actions.append(.abandon(attempt.generation)) }
        guard hasPath else {
            waitForNetwork(trying, because: reason ?? self.reason, at: now)
            return
        }
        let rest = max(now, notBefore ?? now)
        let allowed = max(rest, kicks.nextKick(at: now))
        if allowed > now {
            let planned: Instant
            if case .waiting(let until, _) = trying.activity {
                // It never comes later than it would have without the event.
                guard allowed < until else { return }
                planned = until
            } else {
                planned = max(rest, now.advanced(by: backoff.nextDelay(after: .unanswered, policy: policy)))
            }
            trying.activity = .waiting(until: min(planned, allowed), isKick: allowed < planned)
        } else if reason != nil {
            backoff.restart()
        }
        self.reason = reason ?? self.reason
        trying.kick = reason ?? trying.kick
        guard allowed <= now else {
            state = .trying(trying)
            return
        }
        kicks.kicked(at: now)
        attemptNow(trying, at: now, into: &actions)
    }

    /// Tries the same endpoint again at once: what it objected to is changed.
    mutating func attemptAgain(
        _ trying: Trying, _ attempt: Attempt, because reason: Reason, at now: Instant, into actions: inout [Action]
    ) {
        self.reason = reason
        cursor = attempt.endpoint
        attemptNow(trying, at: now, into: &actions)
    }

    /// Starts an attempt at the first endpoint from the cursor on that has a path. Without any path the session waits for
    /// the network, but for the safety attempt, which does not believe that.
    mutating func attemptNow(_ trying: Trying, at now: Instant, into actions: inout [Action]) {
        var trying = trying
        guard let endpoint = nextEndpoint ?? (trying.isSafetyAttemptDue(at: now) ? cursor : nil) else {
            waitForNetwork(trying, because: Reason(.noPath), at: now)
            return
        }
        lastGeneration.rawValue += 1
        trying.attempts += 1
        trying.isAwaitingCredential = false
        counters.attempts += 1
        let attempt = Attempt(
            generation: lastGeneration, endpoint: endpoint, number: trying.attempts,
            discardsSession: escalation == .discard,
            look: trying.outage == nil ? nil : rivalry.look(cause: trying.cause.code, last: reason.code))
        trying.activity = .attempting(
            attempt, phase: .resolving, deadline: now.advanced(by: timeouts.dial), established: nil)
        state = .trying(trying)
        actions.append(.open(attempt))
    }

    var hasPath: Bool { paths.contains { $0 != nil } }

    func endpoint(after endpoint: EndpointIndex) -> EndpointIndex {
        EndpointIndex((endpoint.rawValue + 1) % paths.count)
    }

    private var nextEndpoint: EndpointIndex? {
        (0..<paths.count).lazy
            .map { EndpointIndex((cursor.rawValue + $0) % paths.count) }
            .first { paths[$0.rawValue] != nil }
    }
}

extension SessionMachine.Trying {
    fileprivate func isSafetyAttemptDue(at now: Instant) -> Bool {
        guard case .waitingForNetwork(let due) = activity else { return false }
        return now >= due
    }
}
