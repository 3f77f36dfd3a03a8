// When a session is down although nothing is wrong: it is not used, or the host sleeps.

extension SessionMachine {
    // MARK: Uses

    /// Whether local programs use the session in this way now.
    public func isUsed(for use: Use) -> Bool { demand.uses.contains(use) }

    /// Notes a use. Only a session that went down because nothing used it comes back for that.
    mutating func useBegan(_ use: Use, at now: Instant, into actions: inout [Action]) {
        demand.began(use)
        guard reason.code == .idle, demand.isOnDemand else { return }
        switch state {
        case .disconnecting, .disconnected:
            startTrying(because: Reason(.demand), at: now, into: &actions)
        case .trying, .connected, .failed:
            return
        }
    }

    mutating func useEnded(_ use: Use, at now: Instant, into actions: inout [Action]) {
        demand.ended(use, at: now)
        if use == .messages { quietCame(at: now, into: &actions) }
    }

    /// When the session goes down because nothing uses it.
    var idleDeadline: Instant? {
        switch state {
        case .trying, .connected: demand.deadline
        case .disconnected, .disconnecting, .failed: nil
        }
    }

    /// - Returns: whether the session is on its way down.
    mutating func restIfIdle(at now: Instant, into actions: inout [Action]) -> Bool {
        guard let deadline = idleDeadline, now >= deadline else { return false }
        goDown(because: Reason(.idle), flush: timeouts.flush, at: now, into: &actions)
        return true
    }

    /// Whether a session that is down, or going down, comes back on its own.
    public var isResting: Bool { reason.code == .idle || reason.code == .suspend }

    // MARK: Sleep

    /// A host that is about to sleep does not wait long, so neither does the flush.
    static let flushBeforeSleep: Duration = .seconds(1)

    mutating func hostWillSleep(at now: Instant, into actions: inout [Action]) {
        guard rest.onSuspend == .disconnect else { return }
        switch state {
        case .trying, .connected:
            let flush = min(timeouts.flush, Self.flushBeforeSleep)
            goDown(because: Reason(.suspend), flush: flush, at: now, into: &actions)
        case .disconnected, .disconnecting, .failed:
            return
        }
    }

    mutating func hostWoke(slept: Duration, at now: Instant, into actions: inout [Action]) {
        switch state {
        case .failed:
            return
        case .disconnected:
            guard reason.code == .suspend else { return }
            comeBack(at: now, into: &actions)
        case .disconnecting(let disconnecting):
            guard reason.code == .suspend else { return }
            actions.append(.abandon(disconnecting.attempt.generation))
            state = .disconnected
            comeBack(at: now, into: &actions)
        case .connected(var connected):
            // Without a path there is nothing to probe.
            guard slept > Self.shortSleep(connected.heartbeat.interval), connected.heldUntil == nil else { return }
            if connected.heartbeat.probe(at: now) { actions.append(.sendHeartbeat(connected.attempt.generation)) }
            state = .connected(connected)
        case .trying(var trying):
            discountSleep(from: &trying, at: now)
            state = .trying(trying)
            guard slept > Self.shortSleep(heartbeatPolicy.interval), endpoints.hasPath else { return }
            // An attempt that began before the sleep is as old as the sleep was long.
            hasten(trying, because: Reason(.wake), at: now, into: &actions)
        }
    }

    /// Does not count against `giveUpAfter` the time in which the host, or the daemon, did not run, and leaves time for
    /// an attempt. A deadline that has passed shows it, even if the sleep itself is reported only later.
    func discountSleep(from trying: inout Trying, at now: Instant) {
        guard let giveUp = giveUpDeadline(of: trying) else { return }
        let due = min(trying.activityDeadline ?? giveUp, giveUp)
        let missed = max(due, trying.discountedAt ?? due).duration(to: now)
        guard missed > Self.lateness else { return }
        trying.discountedAt = now
        let granted = max(giveUp.advanced(by: missed), now.advanced(by: timeouts.dial))
        trying.startedAt = trying.startedAt.advanced(by: giveUp.duration(to: granted))
    }

    /// A host that is only busy serves a deadline sooner than that.
    private static let lateness: Duration = .seconds(1)

    /// The longest sleep that a connection survives without a probe. Some hypervisors stop the clock for a moment every
    /// half minute.
    static func shortSleep(_ heartbeat: Duration) -> Duration { min(heartbeat, .seconds(30)) }

    private mutating func comeBack(at now: Instant, into actions: inout [Action]) {
        if let deadline = demand.deadline, now >= deadline {
            reason = Reason(.idle)
        } else {
            startTrying(because: Reason(.wake), at: now, into: &actions)
        }
    }
}
