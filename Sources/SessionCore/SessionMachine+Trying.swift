// How a session tries: the steps from losing a connection to having one again.

extension SessionMachine {
    /// Begins to connect, with the table restarted and no delay.
    ///
    /// - Parameters:
    ///   - isResumed: whether an earlier machine of the session has tried before.
    ///   - isHastened: whether a network event is the cause, of which there may be too many.
    mutating func startTrying(
        because reason: Reason, in outage: Outage? = nil, isResumed: Bool = false, isHastened: Bool = false,
        at now: Instant, into actions: inout [Action]
    ) {
        self.reason = reason
        if case .disconnecting(let disconnecting) = state {
            actions.append(.abandon(disconnecting.attempt.generation))
        }
        // A session that only rested has learned nothing new, so it still leaves alone a server that asked for that.
        let floor = pacing.notBefore
        let onlyRested = reason.code == .demand || reason.code == .wake
        pacing.restart()
        if onlyRested { pacing.notBefore = floor } else { endpoints.restsUntil = [:] }
        refusals = [:]
        rivalry.startedOver()
        endpoints.startOver()
        demand.touched(at: now)
        var trying = newTrying(outage: outage, because: reason, at: now)
        trying.takesOver = !isResumed && isNewConnect(trying)
        let start = isHastened ? max(allowed(now), pacing.haste.next(at: now)) : allowed(now)
        if start > now, endpoints.hasPath {
            wait(trying, until: start, isHastened: isHastened, at: now)
        } else {
            if isHastened { pacing.haste.hastened(at: now) }
            attemptNow(trying, at: now, into: &actions)
        }
    }

    private func newTrying(outage: Outage?, because cause: Reason, at now: Instant) -> Trying {
        let isSudden = outage != nil && Rivalry.isSudden(cause)
        return Trying(
            activity: .waiting(until: now, isHastened: false), startedAt: outage?.countsFrom ?? now, cause: cause,
            outage: outage,
            rival: RivalSigns(followsSuddenClose: isSudden, closedBy: isSudden ? [outage?.endpoint] : []),
            lastEnding: outage == nil || cause.code.group == .local || cause.code.isOfOwnPath ? nil : cause)
    }

    /// Drops the connection, and begins to reconnect.
    mutating func abandon(
        _ connected: Connected, because reason: Reason, at now: Instant, into actions: inout [Action]
    ) {
        actions.append(.abandon(connected.attempt.generation))
        lose(connected, Ending(reason), at: now, into: &actions)
    }

    /// Begins to reconnect after a connection is gone: at once after a local cause, otherwise by the table.
    mutating func lose(_ connected: Connected, _ ending: Ending, at now: Instant, into actions: inout [Action]) {
        // A connection lasts for as long as something is heard on it.
        let last = ending.reason.code == .heartbeatTimeout ? connected.heartbeat.lastHeard : now
        let isStable = connected.since.duration(to: last) >= policy.stableAfter
        var ending = ending
        // A rival returns as soon as its own table allows, so it only ends connections that were short.
        let mayBeRival = connected.since.duration(to: now) <= (policy.delays.max() ?? .zero) * 2
        if ending.search.isAboutMessage {
            rivalry.explained()
        } else {
            ending.reason = rivalry.lost(because: ending.reason, isStable: isStable, mayBeRival: mayBeRival, at: now)
        }
        if connected.isSilenced, ending.reason.code.group == .liveness { ending.reason.message += " (simulated)" }
        noteStall(of: connected, in: &ending.reason, at: now)
        let reason = ending.reason
        if isStable { refusals = [:] }
        if isOnceTooOften(ending, at: connected.attempt.endpoint) {
            fail(because: .incompatible(reason))
            return
        }
        // What the session or a program has decided, such as a new credential, is an outage only if the first attempt
        // fails.
        let isPlanned = reason.code.group == .local
        if !isPlanned { counters.outages += 1 }
        escalate(because: reason.code, at: connected.attempt.endpoint)
        if isStable { pacing.backoff.restart() }
        pacing.backoff.outageBegan()
        noteStay(of: connected, isStable: isStable, ending)
        endpoints.cursor = endpoint(after: connected, ending)
        let outage = Outage(since: now, endpoint: connected.attempt.endpoint, isPlanned: isPlanned)
        let trying = newTrying(outage: outage, because: reason, at: now)
        actions.append(.report(.reconnectStarted(mode(at: endpoints.next(at: now) ?? endpoints.cursor))))
        if continueWithSuccessor(trying, after: connected, ending, at: now, into: &actions) { return }
        if ending.pace == .otherWay {
            attemptAgain(trying, connected.attempt, because: reason, at: now, into: &actions)
        } else {
            reconnect(trying, after: connected, ending, at: now, into: &actions)
        }
    }

    /// A server ends the connection of a client from which it hears nothing, and a silence that was not listened to is
    /// none: neither is the server's fault.
    private func noteStall(of connected: Connected, in reason: inout Reason, at now: Instant) {
        var heartbeat = connected.heartbeat
        let isLoss = reason.code.group == .server || reason.code.group == .liveness || reason.code == .reset
        guard isLoss, let length = heartbeat.stalled(at: now) else { return }
        reason.message +=
            ", after the daemon, or the whole host, had been stopped for \(length.components.seconds) s or more"
    }

    private mutating func reconnect(
        _ trying: Trying, after connected: Connected, _ ending: Ending, at now: Instant, into actions: inout [Action]
    ) {
        var trying = trying
        let reason = ending.reason
        switch reason.code {
        case .returning:
            trying.returnsFrom = connected.attempt.endpoint
            self.reason = reason
            attemptNow(trying, at: now, into: &actions)
        case .userReconnect, .credentialRenewed, .switchRoom, .inboxRoom:
            tryNow(trying, because: reason, at: now, into: &actions)
        case .pathMoved:
            wait(trying, after: ending, at: now)
            if case .trying(let trying) = state { hasten(trying, because: reason, at: now, into: &actions) }
        case _ where ending.isAtOnce:
            trying.credential.hasRenewed = reason.code.group == .auth
            trying.credential.rejection = ending.mayHaveNewCredential ? reason : nil
            if pacing.backoff.isAtStart, ending.retryAfter == nil {
                self.reason = reason
                pacing.backoff.advance()
                attemptNow(trying, at: now, into: &actions)
            } else {
                wait(trying, after: ending, at: now)
            }
        default:
            wait(trying, after: ending, at: now)
        }
    }

    /// Makes outages begin elsewhere than at an endpoint that accepts the session and then closes the connection, or says
    /// nothing any more, and returns to such a first endpoint rarer.
    private mutating func noteStay(of connected: Connected, isStable: Bool, _ ending: Ending) {
        let endpoint = connected.attempt.endpoint
        if isStable {
            endpoints.stays.forget()
            if endpoint == Endpoints.first { endpoints.returns.reset() }
        } else if ending.isServersDoing || ending.reason.code == .heartbeatTimeout {
            if endpoint == Endpoints.first { endpoints.returns.failed() }
            // What the server objects to may be a packet, and the search for that one goes on where it began.
            if ending.search == .none {
                endpoints.stays.ended(at: endpoint, limit: limit(of: connected, ending))
            }
        }
        if ending.leavesEndpoint { endpoints.stays.avoid(endpoint) }
    }

    private func limit(of connected: Connected, _ ending: Ending) -> Int {
        if rivalry.mayBeSeen(after: ending.reason) { return ShortStays.limitForRival }
        if connected.returnedFrom != nil { return 1 }
        return ending.reason.code == .heartbeatTimeout ? ShortStays.limitForSilence : ShortStays.limit
    }

    /// Returns the endpoint at which an outage begins. This is the first one, unless its server said that it cannot
    /// serve now, or has ended one short connection too many. If the server only has to be told something, or state
    /// agreed with it, the same endpoint is used.
    private func endpoint(after connected: Connected, _ ending: Ending) -> EndpointIndex {
        let present = connected.attempt.endpoint
        switch ending.reason.code {
        case .credentialRenewed, .switchRoom, .inboxRoom: return present
        case .userReconnect where discards.sessions.contains(present): return present
        case .userReconnect, .returning: return Endpoints.first
        case _ where ending.pace == .otherWay: return present
        case _ where endpoints.stays.avoids(present):
            return connected.returnedFrom ?? endpoints.beginning(after: present)
        case _ where ending.isAtOnce: return present
        default: return endpoints.beginning(after: present)
        }
    }

    /// Handles an attempt that failed for a reason that is not terminal. The next one goes to the next endpoint if the
    /// server or the way to it was at fault, unless the budget is spent.
    mutating func failed(_ attempt: Attempt, of trying: Trying, _ ending: Ending, at now: Instant) {
        var trying = trying
        countOutage(&trying, because: ending.reason)
        trying.lastFailure = ending.reason
        trying.lastEnding = ending.reason.code.isOfOwnPath ? nil : ending.reason
        // It is no better there.
        if !endpoints.stays.avoids(attempt.endpoint) { endpoints.stays.forget() }
        var longest: Duration?
        if case .attempting(_, _, _, let established) = trying.activity {
            if established == nil, isPerhapsOfAnother(ending, at: attempt.endpoint) {
                longest = endpoints.watch.slowestPace
            }
            let isSudden = Rivalry.isSudden(ending.reason)
            trying.rival.followsSuddenClose = established != nil && isSudden
            if trying.rival.followsSuddenClose { trying.rival.closedBy.insert(attempt.endpoint) }
            // If the server accepted this attempt, it has already displaced the other device. The room, or that of
            // another server, may still show that device as online, but if this session yielded to it, neither would be
            // connected.
            let wasAccepted = established != nil || ending.reason.code == .stateMismatch
            trying.takesOver = wasAccepted && !isSudden && !trying.isReconnect && attempt.look == nil
        }
        let isMismatch = ending.reason.code == .stateMismatch && trying.mismatchedAt != attempt.endpoint
        if isMismatch || ending.pace == .soon {
            // Its session is discarded, and the next attempt begins a new one there. Another endpoint would have
            // another old session, and the attempt after that would find this one again.
            trying.mismatchedAt = attempt.endpoint
            endpoints.cursor = attempt.endpoint
        } else {
            trying.mismatchedAt = nil
            if ending.hasOtherAddress {
                endpoints.cursor = attempt.endpoint
            } else if ending.reason.code != .credentialUnreadable {
                endpoints.cursor = endpoints.after(attempt.endpoint)
            }
        }
        if ending.reason.code == .refused {
            trying.refusedBy.insert(attempt.endpoint)
            let isExplained = trying.rival.closedBy.remove(attempt.endpoint) != nil
            if isExplained, attempt.endpoint == trying.outage?.endpoint { rivalry.serverWasDown() }
        }
        endpoints.watch.failed(
            attempt.endpoint, because: ending.isElsewhere ? .serverMoved : ending.reason.code, at: now)
        // A connection that only discards the server's session has done its work.
        let isCounted = !trying.isSearch(ending) && ending.pace != .soon
        if let path = endpoints[attempt.endpoint], !path.isToNeighbours, isCounted { trying.failures += 1 }
        if let budget = policy.giveUpAttempts, trying.failures >= budget {
            let times = budget == 1 ? "1 attempt" : "\(budget) attempts"
            var reason = Reason(
                .retryTimeout,
                "the session could not be connected within \(times), as give-up-attempts says; the last one failed: "
                    + ending.reason.message)
            reason.lastFailure = .init(ending.reason)
            fail(because: reason)
            return
        }
        wait(trying, after: ending, within: longest, at: now)
    }

    /// Whether something else on the network may have answered in the server's place, and goes away without a sign: the
    /// sign-in page of a public network, or a firewall. A server that is only overloaded speaks no other protocol, and the
    /// path to it is the one on which it accepted the session before.
    private func isPerhapsOfAnother(_ ending: Ending, at endpoint: EndpointIndex) -> Bool {
        guard ending.pace == .byReason, ending.retryAfter == nil, !ending.isElsewhere else { return false }
        switch ending.reason.code {
        case .wrongProtocol:
            return true
        case .tlsFailed where ending.reason.detail == .otherInItsPlace:
            return true
        case .reset, .tlsFailed, .tlsTimeout, .serverClosed, .authenticateTimeout, .webSocketFailed:
            guard let accepted = endpoints.proven[endpoint], let path = endpoints[endpoint] else { return false }
            return accepted?.leadsLike(path) == false
        default:
            return false
        }
    }

    /// Counts a planned reconnect as an outage, because it did not succeed at once.
    ///
    /// - Parameter failure: why the attempt failed; `nil` if it still may succeed.
    mutating func countOutage(_ trying: inout Trying, because failure: Reason? = nil) {
        // The session stays in its room, so the next connection does not come about to change that.
        if let failure, trying.cause.code == .switchRoom { trying.cause = failure }
        guard trying.outage?.isPlanned == true else { return }
        trying.outage?.isPlanned = false
        counters.outages += 1
    }

    /// Counts the endings that must not be repeated.
    /// - Returns: whether this is one too many without a stable connection in between, and no endpoint with a path is left
    ///   that may be well.
    mutating func isOnceTooOften(_ ending: Ending, at endpoint: EndpointIndex) -> Bool {
        guard ending.failsIfRepeated else { return false }
        refusals[endpoint, default: 0] += 1
        let isRepeated = refusals.values.reduce(0, +) > 1
        return isRepeated
            && endpoints.paths.indices.allSatisfy {
                endpoints.paths[$0] == nil || refusals[EndpointIndex($0)] != nil
            }
    }

    mutating func fail(because reason: Reason) {
        self.reason = reason
        state = .failed
    }

    /// How an attempt at this endpoint reconnects.
    func mode(at endpoint: EndpointIndex) -> ReconnectMode {
        escalation == .none && !discards.sessions.contains(endpoint) ? .quick : .full
    }

    /// - Returns: whether more has to be set up than before.
    @discardableResult
    mutating func escalate(because code: Reason.Code, at endpoint: EndpointIndex) -> Bool {
        switch code {
        case .stateMismatch:
            // What was set up since is discarded as well, but not at once.
            return discards.sessions.insert(endpoint).inserted && escalation < .discard
        case .sessionLost:
            defer { escalation = max(escalation, .full) }
            return escalation < .full
        default:
            return false
        }
    }

    /// Waits for the next delay of the table, or for the network when no endpoint has a path.
    ///
    /// - Parameter longest: the most that the delay may be; `nil`: the table decides.
    mutating func wait(_ trying: Trying, after ending: Ending, within longest: Duration? = nil, at now: Instant) {
        var trying = trying
        // Another device may have taken over from a connection that was lost, but not from an attempt that failed.
        let patience = trying.attempts == 0 ? rivalry.patience(after: ending.reason) : .zero
        let next = pacing.next(
            after: ending, patience: patience, within: longest, hasPath: endpoints.hasPath, at: now)
        guard endpoints.hasPath else {
            waitForNetwork(trying, because: endpoints.explainedByNoPath(ending.reason), at: now)
            return
        }
        reason = endpoints.explainedByCarrier(ending.reason)
        trying.hasteReason = nil
        wait(trying, until: endpoints.allowed(next), at: now)
    }

    /// Begins to wait, or changes how long the wait lasts. Nothing else does, so that no wait is without the watch.
    mutating func wait(_ trying: Trying, until: Instant, isHastened: Bool = false, at now: Instant) {
        var trying = trying
        trying.activity = .waiting(until: until, isHastened: isHastened)
        endpoints.watch.waits(until: until, at: now)
        state = .trying(trying)
    }

    /// Returns the time, or a later one if the servers asked to be left alone for longer.
    func allowed(_ time: Instant) -> Instant { endpoints.allowed(pacing.allowed(time)) }

    mutating func waitForNetwork(_ trying: Trying, because reason: Reason, at now: Instant) {
        var trying = trying
        self.reason = endpoints.explained(reason)
        countOutage(&trying, because: self.reason)
        trying.lastFailure = self.reason
        trying.hasteReason = nil
        trying.takesOver = false
        endpoints.watch.waitEnded()
        var safetyAttempt = now.advanced(by: policy.safetyInterval)
        // Requests and events in the meantime do not postpone the safety attempt.
        if case .waitingForNetwork(let due) = trying.activity { safetyAttempt = min(safetyAttempt, due) }
        trying.activity = .waitingForNetwork(safetyAttempt: allowed(max(safetyAttempt, now)))
        state = .trying(trying)
    }

    /// Restarts the table and makes the attempt now, whatever was planned: a person asked, or the server must be told
    /// something.
    mutating func tryNow(_ trying: Trying, because reason: Reason, at now: Instant, into actions: inout [Action]) {
        var trying = trying
        if case .attempting(let attempt, _, _, _) = trying.activity { actions.append(.abandon(attempt.generation)) }
        self.reason = reason
        trying.hasteReason = reason
        trying.failures = 0
        trying.rival.wasAccepted = false
        if !trying.isReconnect { trying.rival.closedBy = [] }
        trying.takesOver =
            reason.code == .userConnect || (reason.code == .userReconnect && !trying.isReconnect)
        // The credential is tried again, whatever the server said about it.
        trying.credential.rejection = nil
        pacing.restart()
        switch reason.code {
        case .credentialRenewed, .switchRoom, .inboxRoom: break
        default: endpoints.restsUntil = [:]
        }
        attemptNow(trying, isAskedFor: reason.code == .userReconnect, at: now, into: &actions)
    }

    /// Restarts the table and makes the attempt now, because of a network event. While the server has asked to be left
    /// alone, or when such events come too often, the attempt is only brought forward as far as is allowed, and the
    /// table stays as it is.
    /// - Parameter reason: `nil` for an event that might not matter: it makes an attempt, but does not restart the
    ///   table.
    mutating func hasten(_ trying: Trying, because reason: Reason?, at now: Instant, into actions: inout [Action]) {
        var trying = trying
        if case .attempting(let attempt, let phase, _, _) = trying.activity {
            actions.append(.abandon(attempt.generation))
            if phase == .resolving || phase == .dialing { endpoints.watch.abandoned(attempt.endpoint, at: now) }
        }
        guard endpoints.hasPath else {
            waitForNetwork(trying, because: reason ?? self.reason, at: now)
            return
        }
        let rest = allowed(now)
        let allowed = max(rest, pacing.haste.next(at: now))
        var planned = now
        if case .waiting(let until, _) = trying.activity {
            // It never comes later than it would have without the event.
            guard allowed <= now || allowed < until else { return }
            planned = until
        } else if allowed > now {
            planned = max(rest, now.advanced(by: pacing.delay(after: .unanswered)))
        }
        // A lost path sends an attempt elsewhere; it is not the reason why the session has a connection in the end.
        if let reason, reason.code != .pathLost { trying.hasteReason = reason }
        guard allowed <= now else {
            self.reason = reasonToWait(trying, after: reason)
            wait(trying, until: min(planned, allowed), isHastened: allowed < planned, at: now)
            return
        }
        self.reason = reason ?? self.reason
        if reason != nil { pacing.backoff.restart() }
        pacing.haste.hastened(at: now)
        attemptNow(trying, at: now, into: &actions)
    }

    /// Returns the reason that is shown for a wait that goes on in spite of a network event: what it waits for is not the
    /// network any more.
    func reasonToWait(_ trying: Trying, after event: Reason?) -> Reason {
        switch trying.activity {
        case .waiting: reason
        case .waitingForNetwork: trying.lastEnding ?? event ?? reason
        case .attempting: event ?? reason
        }
    }

    /// Tries the same endpoint again at once, because what it objected to has changed.
    mutating func attemptAgain(
        _ trying: Trying, _ attempt: Attempt, because reason: Reason, at now: Instant, into actions: inout [Action]
    ) {
        var trying = trying
        trying.takesOver = !trying.isReconnect && attempt.look == nil
        self.reason = reason
        endpoints.cursor = attempt.endpoint
        attemptNow(trying, at: now, into: &actions)
    }

    /// Starts an attempt at the first endpoint from the cursor on that has a path, and whose server need not be left
    /// alone. Without any path the session waits for the network, except for the safety attempt, and what a person asks
    /// for: neither relies on what the kernel says.
    mutating func attemptNow(
        _ trying: Trying, isAskedFor: Bool = false, at now: Instant, into actions: inout [Action]
    ) {
        var trying = trying
        let needsPath = endpoints.hasPath || !(isAskedFor || trying.isSafetyAttemptDue(at: now))
        guard let endpoint = endpoints.next(at: now, needsPath: needsPath) else {
            guard !endpoints.hasPath else {
                wait(trying, until: allowed(now), at: now)
                return
            }
            waitForNetwork(trying, because: Reason(.noPath), at: now)
            return
        }
        endpoints.restsUntil[endpoint] = nil
        lastGeneration.rawValue += 1
        trying.attempts += 1
        trying.credential.wait = nil
        trying.lastSent = nil
        let look = look(for: trying)
        trying.takesOver = false
        counters.attempts += 1
        let attempt = Attempt(
            generation: lastGeneration, endpoint: endpoint, number: trying.attempts,
            discardsSession: escalation == .discard || discards.sessions.contains(endpoint),
            discardsOlderCopy: discards.olderCopies.contains(endpoint), look: look,
            followsSuddenClose: trying.rival.followsSuddenClose,
            continuesKnock: endpoints.watch.hasAnswer(endpoint) || trying.returnsFrom != nil,
            rejection: trying.credential.rejection)
        endpoints.watch.waitEnded()
        trying.activity = .attempting(
            attempt, phase: .resolving, deadline: now.advanced(by: timeouts.dial), established: nil)
        state = .trying(trying)
        actions.append(.open(attempt))
    }

    private func look(for trying: Trying) -> Look? {
        trying.takesOver ? nil : rivalry.look(mayHaveRival: !trying.rival.closedBy.isEmpty)
    }

    /// Whether a server has accepted the session since somebody asked to connect.
    public var wasAccepted: Bool {
        switch state {
        case .trying(let trying): trying.rival.wasAccepted || trying.isReconnect
        case .connected, .disconnecting: true
        case .disconnected, .failed: false
        }
    }

    /// Whether somebody asked to connect, or the session connects for the first time. One that comes back after a rest, after
    /// a start of the daemon, or because what it failed with has changed, does not.
    package var isNewConnect: Bool {
        guard case .trying(let trying) = state else { return false }
        return isNewConnect(trying)
    }

    private func isNewConnect(_ trying: Trying) -> Bool {
        switch trying.cause.code {
        case .userConnect, .userReconnect: true
        default: counters.connects == 0 && !isContinued
        }
    }
}

extension SessionMachine.Trying {
    fileprivate var isReconnect: Bool { outage != nil }

    /// How many endings in a row may belong to a search. After three of them the search suspects something, and the
    /// second ending after that finds it. The first suspects may be innocent: a message, an announcement and a filter may
    /// all have been left unanswered. Anything that goes on for longer is not a search.
    private static var searchLimit: Int { 3 * 4 }

    /// Notes the end of an attempt, and returns whether it belongs to a search that will end: a session must not give
    /// up because of one message or filter that it is about to set aside.
    fileprivate mutating func isSearch(_ ending: SessionMachine.Ending) -> Bool {
        switch ending.search {
        case .none: return false
        case .suspected, .continued:
            searches += 1
            return searches <= Self.searchLimit
        case .found:
            searches = 0
            return true
        }
    }

    /// The phase of the attempt under way.
    var unfinished: Phase? {
        if case .attempting(_, let phase, _, _) = activity { phase } else { nil }
    }

    fileprivate func isSafetyAttemptDue(at now: Instant) -> Bool {
        guard case .waitingForNetwork(let due) = activity else { return false }
        return now >= due
    }
}

extension SessionMachine.Trying {
    /// Returns the ending as the session has to treat it. An invalid certificate is terminal only when every endpoint
    /// has shown one, and none of them a valid one before: the sign-in page of a public network answers in place of
    /// every server, with a certificate of its own, and goes away. Otherwise it counts as any other TLS failure, and the
    /// next endpoint is tried.
    ///
    /// - Parameter isProven: whether the endpoint's server has accepted the session.
    mutating func whileOthersAreLeft(
        _ ending: SessionMachine.Ending, of endpoint: EndpointIndex, among count: Int, isProven: Bool
    ) -> SessionMachine.Ending {
        guard ending.reason.code == .certificateInvalid else {
            unproven.remove(endpoint)
            return ending
        }
        var ending = ending
        if isProven {
            ending.reason.message +=
                ", but it was valid before: something on this network may answer in the server's place"
            ending.reason.detail = .otherInItsPlace
        } else {
            unproven.insert(endpoint)
            guard unproven.count < count else { return ending }
        }
        ending.reason.code = .tlsFailed
        return ending
    }
}
