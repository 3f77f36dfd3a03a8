// Make before break: the path to the endpoint in use moved, and the connection may still be alive. The transport of the
// next connection is set up beside it, over the new path, and takes over when it is ready. The old one carries messages
// until then, and is kept while the new path leads nowhere.
//
//     path moved ──▶ waiting ──▶ preparing ──prepared──▶ settling ──settled──▶ authenticating, as any attempt
//                       ▲            └── failed: the old connection stays
//                       └──(pacing)──────────┘
//
// A connection that was in doubt before the path moved (`Connected.isInDoubt`) is not waited for: neither for the pause
// between hand-overs, nor for it to settle if nothing is heard from it until the successor is ready.
//
// There is at most one successor, and it is wanted only as long as the machine names it (`successor`): anything that
// leads away from connected, or changes the path again, drops it. If the old connection dies meanwhile, or its source
// address leaves the host, the successor becomes the attempt, whatever phase it has reached.

extension SessionMachine {
    /// The steps of a handover to a successor.
    enum Handover: Hashable, Sendable {
        /// The previous handover was too recent, or its successor could not be set up.
        case waiting(until: Instant)
        /// Everything before CONNECT is under way. The deadline guards against a transport that never answers.
        case preparing(Attempt, Phase, until: Instant)
        /// The transport is ready, and the old connection finishes what it has begun. The successor does not wait long
        /// for it.
        case settling(Attempt, until: Instant)

        var deadline: Instant {
            switch self {
            case .waiting(let until), .preparing(_, _, let until), .settling(_, let until): until
            }
        }

        /// The attempt that would take over, and its phase.
        var successor: (attempt: Attempt, phase: Phase)? {
            switch self {
            case .waiting: nil
            case .preparing(let attempt, let phase, _): (attempt, phase)
            case .settling(let attempt, _): (attempt, .authenticating)
            }
        }
    }

    /// The attempt whose transport is being set up, or is ready, beside the connection in use. Any other one is no
    /// longer needed.
    public var successor: Generation? {
        guard case .connected(let connected) = state else { return nil }
        return connected.handover?.successor?.attempt.generation
    }

    /// Whether nothing new may be started on the connection in use, because it is about to be left.
    public var isSettling: Bool {
        guard case .connected(let connected) = state, case .settling = connected.handover else { return false }
        return true
    }

    // MARK: The path

    /// Handles a path that moved: the kernel would now take another way to the endpoint, or again the one that the
    /// connection was made on.
    mutating func pathMoved(at now: Instant, into actions: inout [Action]) {
        guard case .connected(var connected) = state, let path = endpoints[connected.attempt.endpoint] else {
            return
        }
        handovers.pathMoved(at: now)
        connected.handover = nil
        connected.path = connected.path ?? path
        if connected.path?.leadsLike(path) == false {
            let earliest = connected.doubtedSince == nil ? handovers.earliest(at: now) : now
            connected.handover = .waiting(until: max(earliest, pacing.haste.next(at: now)))
        }
        state = .connected(connected)
        prepareIfDue(at: now, into: &actions)
    }

    private mutating func prepareIfDue(at now: Instant, into actions: inout [Action]) {
        guard case .connected(var connected) = state, case .waiting(let until) = connected.handover, now >= until else {
            return
        }
        // Only the first one follows an event; the others have pauses of their own.
        if !handovers.hasFailed { pacing.haste.hastened(at: now) }
        lastGeneration.rawValue += 1
        let attempt = Attempt(
            generation: lastGeneration, endpoint: connected.attempt.endpoint, number: 1, discardsSession: false)
        let limit = timeouts.credential + timeouts.dial
        connected.handover = .preparing(attempt, .resolving, until: now.advanced(by: limit))
        state = .connected(connected)
        actions.append(.prepare(attempt))
    }

    // MARK: The second connection

    /// - Returns: `false` if the progress is not that of the successor.
    mutating func successorProgressed(_ generation: Generation, to phase: Phase, at now: Instant) -> Bool {
        guard case .connected(var connected) = state, case .preparing(let attempt, _, _) = connected.handover,
            attempt.generation == generation
        else { return false }
        connected.handover = .preparing(attempt, phase, until: now.advanced(by: limit(of: phase)))
        state = .connected(connected)
        return true
    }

    mutating func prepared(_ generation: Generation, at now: Instant, into actions: inout [Action]) {
        guard case .connected(var connected) = state, case .preparing(let attempt, _, _) = connected.handover,
            attempt.generation == generation
        else { return }
        // After a silence, look for another device first, which the end of an unanswered probe does.
        let looks = rivalry.look(mayHaveRival: false) != nil
        let patience = looks ? connected.heartbeat.usualAnswer : connected.heartbeat.lastAnswer
        connected.handover = .settling(attempt, until: now.advanced(by: patience))
        if let heard = connected.doubtedSince, heard == connected.heartbeat.lastHeard, !looks {
            return handOver(connected, at: now, into: &actions)
        }
        state = .connected(connected)
        actions.append(.settle(connected.attempt.generation))
    }

    mutating func preparationFailed(_ generation: Generation, at now: Instant) {
        guard case .connected(let connected) = state, connected.handover?.successor?.attempt.generation == generation
        else { return }
        dropSuccessor(of: connected, at: now)
    }

    /// Drops the successor, because the new path leads nowhere so far, and tries another one later. The probe tells
    /// whether the old connection is still good.
    private mutating func dropSuccessor(of connected: Connected, at now: Instant) {
        var connected = connected
        connected.handover = .waiting(until: handovers.failed(at: now))
        state = .connected(connected)
    }

    /// Hands over, because nothing is in flight on the old connection any more.
    mutating func settled(_ generation: Generation, at now: Instant, into actions: inout [Action]) {
        guard case .connected(let connected) = state, connected.attempt.generation == generation,
            case .settling = connected.handover
        else { return }
        handOver(connected, at: now, into: &actions)
    }

    mutating func handOverIfDue(at now: Instant, into actions: inout [Action]) {
        guard case .connected(let connected) = state, let handover = connected.handover, now >= handover.deadline else {
            return
        }
        switch handover {
        case .waiting:
            prepareIfDue(at: now, into: &actions)
        case .preparing:
            dropSuccessor(of: connected, at: now)
        case .settling:
            handOver(connected, at: now, into: &actions)
        }
    }

    private mutating func handOver(_ connected: Connected, at now: Instant, into actions: inout [Action]) {
        handovers.handedOver(at: now)
        actions.append(.leave(connected.attempt.generation))
        lose(
            connected,
            Ending(Reason(.pathMoved, "the route to the endpoint moved, and a connection over it takes over")),
            at: now, into: &actions)
    }

    // MARK: Taking over

    /// Makes the successor the attempt when the old connection is gone, unless the server gave a reason, or the session
    /// has to look for other devices first.
    ///
    /// A handover that was fully prepared does not look for other devices: the session was connected all the time, and
    /// would have been told.
    mutating func continueWithSuccessor(
        _ trying: Trying, after connected: Connected, _ ending: Ending, at now: Instant, into actions: inout [Action]
    ) -> Bool {
        let code = ending.reason.code
        guard let (attempt, phase) = connected.handover?.successor, [.network, .liveness].contains(code.group),
            ending.retryAfter == nil, ending.pace == .byReason, !ending.leavesEndpoint,
            code == .pathMoved || rivalry.look(mayHaveRival: Rivalry.isSudden(ending.reason)) == nil
        else { return false }
        var trying = trying
        pacing.backoff.restart()
        reason = ending.reason
        counters.attempts += 1
        trying.attempts += 1
        trying.hasteReason = Reason(.pathMoved)
        trying.activity = .attempting(
            attempt, phase: phase, deadline: now.advanced(by: limit(of: phase)), established: nil)
        state = .trying(trying)
        actions.append(.open(attempt))
        return true
    }
}
