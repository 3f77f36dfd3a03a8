// What each input does in each state.

extension SessionMachine {
    mutating func transition(on input: Input, at now: Instant, into actions: inout [Action]) {
        switch input {
        case .connect(let reason): connect(reason, at: now, into: &actions)
        case .resume(let outage, let reason): resume(outage, reason, at: now, into: &actions)
        case .disconnect(let reason): disconnect(reason, at: now, into: &actions)
        case .reconnect(let mode): reconnect(mode, at: now, into: &actions)
        case .renew(let reason): renew(because: reason, at: now, into: &actions)
        case .pathChanged(let endpoint, let from, let path, let pathClass):
            pathChanged(endpoint, from: from, to: path, pathClass, at: now, into: &actions)
        case .pathExcluded(let endpoint, let path): pathExcluded(endpoint, path)
        case .detour(let endpoint, let exists): detourChanged(endpoint, exists, at: now, into: &actions)
        case .useBegan(let use): useBegan(use, at: now, into: &actions)
        case .useEnded(let use): useEnded(use, at: now, into: &actions)
        case .hostWillSleep: hostWillSleep(at: now, into: &actions)
        case .hostWoke(let slept): hostWoke(slept: slept, at: now, into: &actions)
        case .knocked(let endpoint, let answer): knocked(at: endpoint, answer, at: now, into: &actions)
        case .progressed(let generation, let phase): progressed(generation, to: phase, at: now)
        case .prepared(let generation): prepared(generation, at: now, into: &actions)
        case .preparationFailed(let generation): preparationFailed(generation, at: now)
        case .settled(let generation): settled(generation, at: now, into: &actions)
        case .established(let generation, let resumed, let serverKeepAlive):
            established(generation, resumed: resumed, serverKeepAlive: serverKeepAlive, at: now)
        case .restored(let generation): restored(generation, at: now, into: &actions)
        case .ended(let generation, let ending): ended(generation, ending, at: now, into: &actions)
        case .heartbeatAnswered(let generation): heartbeatAnswered(generation, at: now)
        case .measured(let generation, let measurement):
            judgeDelivery(generation, measurement, at: now, into: &actions)
            measured(generation, measurement)
        case .credentialAwaited(let generation): credentialAwaited(generation, at: now)
        case .credentialQueued(let generation): credentialQueued(generation, at: now)
        case .credentialObtained(let generation, let expiresAt):
            credentialObtained(generation, expiresAt: expiresAt, at: now)
        case .credentialRenewed(let generation, let expiresAt):
            credentialRenewed(generation, expiresAt: expiresAt, at: now, into: &actions)
        case .credentialReplaced(let generation, let expiresAt):
            credentialReplaced(generation, expiresAt: expiresAt, at: now)
        case .credentialRenewalFailed(let generation): credentialRenewalFailed(generation, at: now)
        case .silenced(let generation): silenced(generation)
        case .credentialChanged: credentialChanged(at: now, into: &actions)
        case .flushed(let generation): flushed(generation, at: now, into: &actions)
        case .closed(let generation): closed(generation, at: now)
        case .timeReached: timeReached(at: now, into: &actions)
        }
    }

    // MARK: Commands

    private mutating func connect(_ reason: Reason, at now: Instant, into actions: inout [Action]) {
        // An on-demand session waits until something uses it.
        if reason.code == .autoconnect, demand.isOnDemand { return }
        demand.touched(at: now)
        switch state {
        case .connected:
            return
        case .trying(let trying):
            // Somebody who asks again does not want to wait; but an attempt under way is what they ask for.
            if case .attempting = trying.activity { return }
            tryNow(trying, because: reason, at: now, into: &actions)
        case .disconnecting, .disconnected, .failed:
            startTrying(because: reason, at: now, into: &actions)
        }
    }

    private mutating func resume(_ outage: Outage?, _ reason: Reason, at now: Instant, into actions: inout [Action]) {
        isContinued = true
        // The connection whose loss began the outage was an earlier machine's.
        if let outage { remains.connectionEnded = outage.since }
        // As in `connect`.
        if outage == nil, reason.code == .autoconnect, demand.isOnDemand { return }
        startTrying(because: reason, in: outage, isResumed: true, at: now, into: &actions)
    }

    private mutating func disconnect(_ reason: Reason, at now: Instant, into actions: inout [Action]) {
        switch state {
        case .disconnected where reason.code == .shutdown,
            .disconnecting where reason.code == .shutdown && !isResting:
            // A session that was ended before does not take the daemon's shutdown as its reason.
            return
        case .disconnected where self.reason.code == .goodbyeUnheard && leftBehind(at: now) != nil:
            // The time that the reason names began with the first disconnect.
            return
        default:
            goDown(because: reason, flush: timeouts.flush, at: now, into: &actions)
        }
    }

    mutating func goDown(because reason: Reason, flush: Duration, at now: Instant, into actions: inout [Action]) {
        self.reason = reason
        switch state {
        case .connected(let connected):
            goDown(connected.attempt, flush: flush, at: now, into: &actions)
        case .trying(let trying):
            if let outage {
                counters.longestOutage = max(counters.longestOutage, outage.since.duration(to: now))
            }
            if case .attempting(let attempt, _, _, let established) = trying.activity {
                // The server has the session, and others may see it already, so it is told.
                if established != nil { return goDown(attempt, flush: flush, at: now, into: &actions) }
                actions.append(.abandon(attempt.generation))
            }
            state = .disconnected
            noteUnheardGoodbye(since: remains.connectionEnded, at: now)
        case .disconnecting:
            return
        case .disconnected, .failed:
            state = .disconnected
            noteUnheardGoodbye(since: remains.connectionEnded, at: now)
        }
    }

    private mutating func goDown(
        _ attempt: Attempt, flush: Duration, at now: Instant, into actions: inout [Action]
    ) {
        actions.append(.flush(attempt.generation))
        state = .disconnecting(
            Disconnecting(attempt: attempt, step: .flushing, deadline: now.advanced(by: flush)))
    }

    private mutating func reconnect(_ mode: ReconnectMode?, at now: Instant, into actions: inout [Action]) {
        let reason = Reason(.userReconnect)
        demand.touched(at: now)
        switch state {
        case .connected(let connected):
            if mode == .full { discards.sessions.insert(connected.attempt.endpoint) }
            abandon(connected, because: reason, at: now, into: &actions)
        case .trying(let trying):
            if mode == .full { escalation = .discard }
            tryNow(trying, because: reason, at: now, into: &actions)
        case .disconnecting, .disconnected, .failed:
            if mode == .full { escalation = .discard }
            startTrying(because: reason, at: now, into: &actions)
        }
    }

    private mutating func renew(because reason: Reason, at now: Instant, into actions: inout [Action]) {
        // Without a connection there is nothing to replace: the next one tells the server anyway.
        guard case .connected(let connected) = state else { return }
        abandon(connected, because: reason, at: now, into: &actions)
    }

    // MARK: The course of an attempt

    private mutating func progressed(_ generation: Generation, to phase: Phase, at now: Instant) {
        if successorProgressed(generation, to: phase, at: now) { return }
        guard case .trying(var trying) = state, case .attempting(let attempt, _, _, let established) = trying.activity,
            attempt.generation == generation
        else { return }
        trying.activity = .attempting(
            attempt, phase: phase, deadline: now.advanced(by: limit(of: phase)), established: established)
        state = .trying(trying)
    }

    /// The transport has limits of its own, per address; this one guards against a transport that never answers.
    func limit(of phase: Phase) -> Duration {
        switch phase {
        case .waitingForNetwork, .waiting, .resolving: timeouts.dial
        case .dialing, .securing: timeouts.dial * 2
        case .authenticating: timeouts.authenticate
        case .restoring: timeouts.restore
        }
    }

    private mutating func established(
        _ generation: Generation, resumed: Bool, serverKeepAlive: Duration?, at now: Instant
    ) {
        guard case .trying(var trying) = state, case .attempting(let attempt, _, _, _) = trying.activity,
            attempt.generation == generation
        else { return }
        discards.olderCopies.remove(attempt.endpoint)
        endpoints.proven.updateValue(endpoints[attempt.endpoint], forKey: attempt.endpoint)
        remains.earlier = nil
        if attempt.discardsSession {
            discards.sessions.remove(attempt.endpoint)
            escalation = .discarded
        } else if !resumed {
            escalation = max(escalation, .full)
        }
        trying.rival.wasAccepted = true
        trying.activity = .attempting(
            attempt, phase: .restoring, deadline: now.advanced(by: timeouts.restore),
            established: Established(
                serverKeepAlive: serverKeepAlive,
                heartbeat: Heartbeat(
                    policy: heartbeatWhileRestoring, serverInterval: serverKeepAlive, lastSent: trying.lastSent, at: now
                ),
                delivery: DeliveryWatch(longest: heartbeatPolicy.deliveryTimeout)))
        state = .trying(trying)
    }

    /// A server that says nothing any more is noticed before the time to restore is over. Otherwise a message that
    /// silences it would never be found.
    private var heartbeatWhileRestoring: HeartbeatPolicy {
        var policy = heartbeatPolicy
        policy.interval = min(policy.interval, max(.seconds(1), (timeouts.restore - policy.timeout) * 2 / 3))
        return policy
    }

    private mutating func restored(_ generation: Generation, at now: Instant, into actions: inout [Action]) {
        guard case .trying(let trying) = state,
            case .attempting(let attempt, _, _, let established?) = trying.activity, attempt.generation == generation
        else { return }
        let mode = mode(at: attempt.endpoint)
        counters.connects += 1
        if mode == .quick { counters.resumes += 1 }
        escalation = .none
        discards.olderCopies.formUnion(discards.sessions)
        discards.sessions = []
        state = .connected(
            Connected(
                attempt: attempt, resumed: mode == .quick, since: now,
                heartbeat: Heartbeat(
                    policy: heartbeatPolicy, serverInterval: established.serverKeepAlive,
                    lastSent: established.heartbeat.lastSent, at: now),
                boundTo: endpoints.binding(of: attempt.endpoint), delivery: established.delivery,
                returning: attempt.endpoint == Endpoints.first
                    ? nil : .waiting(until: now.advanced(by: endpoints.returns.next())),
                returnedFrom: attempt.endpoint == Endpoints.first ? trying.returnsFrom : nil,
                path: endpoints[attempt.endpoint]))
        endpoints.watch.reset()
        reason = trying.hasteReason ?? trying.cause
        if trying.refusedBy.contains(attempt.endpoint) { pacing.backoff.serverCameBack() }
        if let outage = trying.outage {
            let length = outage.isPlanned ? nil : outage.since.duration(to: now)
            counters.longestOutage = max(counters.longestOutage, length ?? .zero)
            actions.append(.report(.reconnectCompleted(mode, outage: length)))
        }
    }

    private mutating func ended(
        _ generation: Generation, _ ending: Ending, at now: Instant, into actions: inout [Action]
    ) {
        switch state {
        case .trying(var trying):
            guard case .attempting(let attempt, _, _, _) = trying.activity, attempt.generation == generation else {
                return
            }
            noteRest(of: attempt.endpoint, ending, at: now)
            // What the session reconnects for did not come about, and the ending says why.
            if trying.hasteReason?.code == ending.reason.code { trying.hasteReason = ending.reason }
            let ending = trying.whileOthersAreLeft(
                ending, of: attempt.endpoint, among: endpoints.paths.count,
                isProven: endpoints.proven[attempt.endpoint] != nil)
            if ending.pace != .otherWay, goBack(trying, attempt, ending, at: now, into: &actions) { return }
            if ending.reason.code.group == .auth, ending.mayHaveNewCredential, !trying.credential.hasRenewed {
                trying.credential.hasRenewed = true
                trying.credential.rejection = ending.reason
                // Another credential may be accepted, but not the one that the session reconnected for.
                if trying.hasteReason?.code == .credentialRenewed {
                    trying.hasteReason = Reason(
                        .credentialRenewed, "the new credential was rejected: \(ending.reason.message)")
                }
                attemptAgain(trying, attempt, because: ending.reason, at: now, into: &actions)
            } else if ending.reason.isTerminal {
                fail(because: ending.reason)
            } else if isOnceTooOften(ending, at: attempt.endpoint) {
                fail(because: .incompatible(ending.reason))
            } else if ending.pace == .otherWay {
                attemptAgain(trying, attempt, because: ending.reason, at: now, into: &actions)
            } else if escalate(because: ending.reason.code, at: attempt.endpoint), ending.retryAfter == nil,
                ending.pace != .soon
            {
                attemptAgain(trying, attempt, because: ending.reason, at: now, into: &actions)
            } else {
                failed(attempt, of: trying, ending, at: now)
            }
        case .connected(let connected) where connected.attempt.generation == generation:
            noteRest(of: connected.attempt.endpoint, ending, at: now)
            if ending.reason.isTerminal, !(ending.reason.code.group == .auth && ending.mayHaveNewCredential) {
                fail(because: ending.reason)
            } else {
                lose(connected, ending, at: now, into: &actions)
            }
        case .disconnecting(let disconnecting) where disconnecting.attempt.generation == generation:
            state = .disconnected
            noteUnheardGoodbye(since: now, at: now)
        case .disconnected, .connected, .disconnecting, .failed:
            return
        }
    }

    /// Notes that the server asked to be left alone. This says nothing about the other endpoints, nor about another address
    /// to which this one leads now.
    private mutating func noteRest(of endpoint: EndpointIndex, _ ending: Ending, at now: Instant) {
        guard let retryAfter = ending.retryAfter, !ending.hasOtherAddress else { return }
        endpoints.restsUntil[endpoint] = now.advanced(by: retryAfter)
    }

    private mutating func silenced(_ generation: Generation) {
        guard case .connected(var connected) = state, connected.attempt.generation == generation else { return }
        connected.isSilenced = true
        state = .connected(connected)
    }

    private mutating func heartbeatAnswered(_ generation: Generation, at now: Instant) {
        guard case .connected(var connected) = state, connected.attempt.generation == generation else {
            return whileRestoring(generation) { $0.heartbeat.answered(at: now) }
        }
        connected.heartbeat.answered(at: now)
        state = .connected(connected)
    }

    private mutating func measured(_ generation: Generation, _ measurement: TCPMeasurement) {
        guard case .connected(var connected) = state, connected.attempt.generation == generation else { return }
        connected.transport = measurement
        // While nothing comes back, old measurements mean nothing.
        if connected.heldUntil == nil, !connected.heartbeat.isOverdue, !connected.delivery.isSilent {
            connected.gradeQuality()
        }
        state = .connected(connected)
    }

    private mutating func flushed(_ generation: Generation, at now: Instant, into actions: inout [Action]) {
        guard case .disconnecting(let disconnecting) = state, disconnecting.step == .flushing,
            disconnecting.attempt.generation == generation
        else { return }
        sayGoodbye(disconnecting, at: now, into: &actions)
    }

    private mutating func sayGoodbye(
        _ disconnecting: Disconnecting, at now: Instant, into actions: inout [Action]
    ) {
        actions.append(.sayGoodbye(disconnecting.attempt.generation))
        state = .disconnecting(
            Disconnecting(
                attempt: disconnecting.attempt, step: .sayingGoodbye, deadline: now.advanced(by: timeouts.goodbye)))
    }

    private mutating func closed(_ generation: Generation, at now: Instant) {
        guard case .disconnecting(let disconnecting) = state, disconnecting.attempt.generation == generation else {
            return
        }
        state = .disconnected
        noteUnheardGoodbye(since: now, at: now)
    }

    // MARK: Time

    private mutating func timeReached(at now: Instant, into actions: inout [Action]) {
        switch state {
        case .disconnected, .failed:
            return
        case .disconnecting(let disconnecting):
            guard now >= disconnecting.deadline else { return }
            switch disconnecting.step {
            case .flushing:
                sayGoodbye(disconnecting, at: now, into: &actions)
            case .sayingGoodbye:
                actions.append(.abandon(disconnecting.attempt.generation))
                state = .disconnected
                noteUnheardGoodbye(since: now, at: now)
            }
        case .connected(let connected):
            if restIfIdle(at: now, into: &actions) { return }
            renewCredential(of: connected, at: now, into: &actions)
            checkLife(at: now, into: &actions)
            // Only if it is still connected.
            returnIfDue(at: now, into: &actions)
            handOverIfDue(at: now, into: &actions)
        case .trying(let trying):
            timeReached(trying, at: now, into: &actions)
        }
    }

    private mutating func checkLife(at now: Instant, into actions: inout [Action]) {
        guard case .connected(var connected) = state else { return }
        if let heldUntil = connected.heldUntil, now >= heldUntil {
            holdEnded(connected, lostAt: heldUntil.advanced(by: .zero - PathClass.hold), at: now, into: &actions)
            return
        }
        // Without a path nothing can be answered, and the hold decides.
        guard connected.heldUntil == nil else { return }
        // If the transport can be measured, that was done before this; otherwise only the heartbeat is left.
        if let due = connected.delivery.deadline, now >= due { connected.delivery.heard() }
        switch connected.heartbeat.due(at: now) {
        case .nothing:
            state = .connected(connected)
        case .ask:
            actions.append(.sendHeartbeat(connected.attempt.generation))
            state = .connected(connected)
        case .overdue:
            connected.quality.nothingCameBack()
            state = .connected(connected)
        case .dead(let code):
            // Without a path, it is not the server that left a probe unanswered.
            let isPathLost = code == .probeTimeout && endpoints[connected.attempt.endpoint] == nil
            abandon(connected, because: Reason(isPathLost ? .pathLost : code), at: now, into: &actions)
        }
    }

    private mutating func timeReached(_ trying: Trying, at now: Instant, into actions: inout [Action]) {
        var trying = trying
        discountSleep(from: &trying, at: now)
        state = .trying(trying)
        if let giveUp = giveUpDeadline(of: trying), now >= giveUp {
            if case .attempting(let attempt, _, _, _) = trying.activity { actions.append(.abandon(attempt.generation)) }
            fail(because: givenUp(trying))
            return
        }
        if let lost = lostDeadline(of: trying), now >= lost, let outage = trying.outage {
            trying.outage?.isReportedLost = true
            countOutage(&trying)
            state = .trying(trying)
            actions.append(.report(.connectionLost(outage: outage.since.duration(to: now))))
        }
        if restIfIdle(at: now, into: &actions) { return }
        guard let due = trying.activityDeadline, now >= due else {
            knockIfDue(trying, at: now, into: &actions)
            checkLifeWhileRestoring(at: now, into: &actions)
            return
        }
        switch trying.activity {
        case .waiting(_, let isHastened):
            if isHastened { pacing.haste.hastened(at: now) }
            attemptNow(trying, at: now, into: &actions)
        case .waitingForNetwork:
            attemptNow(trying, at: now, into: &actions)
        case .attempting(let attempt, let phase, _, _):
            actions.append(.abandon(attempt.generation))
            let reason =
                trying.credential.wait != nil
                ? trying.credential.timeout(after: timeouts.credential) : Reason(timeout(of: phase))
            var ending = Ending(reason)
            if goBack(trying, attempt, ending, at: now, into: &actions) { return }
            // The server is alive, but has left something unanswered.
            if reason.code == .restoreTimeout { ending.search = .suspected }
            failed(attempt, of: trying, ending, at: now)
        }
    }

    private mutating func checkLifeWhileRestoring(at now: Instant, into actions: inout [Action]) {
        guard case .trying(let trying) = state,
            case .attempting(let attempt, _, _, var established?) = trying.activity
        else { return }
        // As for a connected session.
        if established.delivery.isDue(at: now) { established.delivery.heard() }
        let due = established.heartbeat.due(at: now)
        whileRestoring(attempt.generation) { $0 = established }
        switch due {
        case .nothing, .overdue: return
        case .ask: actions.append(.sendHeartbeat(attempt.generation))
        case .dead(let code): abandonRestoring(because: Reason(code), at: now, into: &actions)
        }
    }

    /// Gives up an attempt that the server has accepted, because nothing comes from it any more.
    mutating func abandonRestoring(because reason: Reason, at now: Instant, into actions: inout [Action]) {
        guard case .trying(let trying) = state, case .attempting(let attempt, _, _, _) = trying.activity else { return }
        actions.append(.abandon(attempt.generation))
        var ending = Ending(reason)
        if goBack(trying, attempt, ending, at: now, into: &actions) { return }
        // Something that was sent may have made the server silent.
        if reason.code == .heartbeatTimeout { ending.search = .suspected }
        failed(attempt, of: trying, ending, at: now)
    }

    /// Returns the reason for giving up, with the limit and the last failure.
    private func givenUp(_ trying: Trying) -> Reason {
        let limit = policy.giveUpAfter.map { "within \($0.components.seconds) s, as give-up-after says" } ?? ""
        // The limit may be over before the first attempt is.
        let last =
            trying.lastFailure
            ?? trying.unfinished.map { phase in
                guard let limit = policy.giveUpAfter, trying.credential.wait != nil else {
                    return Reason(timeout(of: phase))
                }
                return trying.credential.timeout(after: limit)
            }
        let failure =
            last.map { "; the last failure: \($0.message)" }
            ?? (trying.outage == nil ? "" : "; it was lost because \(trying.cause.message)")
        var reason = Reason(.retryTimeout, "the session could not be connected \(limit)\(failure)")
        reason.lastFailure = last.map { .init($0) }
        return reason
    }

    private func timeout(of phase: Phase) -> Reason.Code {
        switch phase {
        case .authenticating where awaitsStore, .restoring where awaitsStore: .storeUnavailable
        case .resolving: .dnsFailed
        case .waitingForNetwork, .waiting, .dialing: .dialTimeout
        case .securing: .tlsTimeout
        case .authenticating: .authenticateTimeout
        case .restoring: .restoreTimeout
        }
    }
}
