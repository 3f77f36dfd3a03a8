/// Notices from a connection's own traffic that nothing gets through any more, before the heartbeat does.
///
/// It has a deadline only while something was sent and nothing has been heard since, so an idle connection costs no
/// wake-up. It looks at the kernel's view: a slow link, a slow server and even a stopped one still acknowledge what
/// arrives; a dead path does not.
struct DeliveryWatch: Hashable, Sendable {
    /// What a look at the connection shows.
    enum Verdict: Hashable, Sendable {
        /// Something comes back, or nothing is expected.
        case living
        /// What was sent has been unacknowledged for longer than round trips take.
        case silent
        /// … and has been retransmitted for so long that it will not be acknowledged any more.
        case dead
    }

    /// What the last look found: how many segments were delivered, and when the last of them was.
    private struct Progress: Hashable {
        var segments: Int?
        var at: Instant
    }

    /// The shortest silence that cannot be explained by a queue filling up on the way.
    static let deadAfter: Duration = .seconds(4)

    /// The longest silence, even if round trips take longer.
    let longest: Duration
    /// When the oldest unacknowledged data was sent, as far as is known.
    private var since: Instant?
    private var progress: Progress?
    /// Whether the last look found that nothing comes back.
    private(set) var isSilent = false
    /// When to ask the kernel; `nil` while nothing is expected.
    private(set) var deadline: Instant?

    init(longest: Duration) {
        self.longest = longest
    }

    /// How long an acknowledgement takes at most, as far as is known; never less than a second.
    static func patience(roundTrip: Duration?, variation: Duration?) -> Duration {
        max(.seconds(1), (roundTrip ?? .zero) * 8 + (variation ?? .zero) * 4)
    }

    /// Whether something was sent so long ago, and nothing has been heard since.
    func isWaiting(longerThan limit: Duration, at now: Instant) -> Bool {
        since.map { $0.duration(to: now) > limit } ?? false
    }

    func isDue(at now: Instant) -> Bool { deadline.map { now >= $0 } ?? false }

    mutating func sent(at now: Instant, patience: Duration) {
        guard since == nil else { return }
        since = now
        deadline = now.advanced(by: patience)
    }

    /// Stops waiting, because bytes came from the server or the transport cannot be asked: nothing is expected until
    /// more is sent.
    ///
    /// - Parameter arrival: when the bytes arrived, if they did. If that was before anything was sent, they say nothing.
    mutating func heard(arrivedAt arrival: Instant? = nil) {
        if let since, let arrival, arrival < since { return }
        since = nil
        progress = nil
        deadline = nil
        isSilent = false
    }

    /// Starts waiting again. What was on its way may have been lost with the path; it is retransmitted now, and gets
    /// the full time to arrive.
    mutating func restarted(at now: Instant) {
        guard since != nil else { return }
        since = now
        progress = nil
        deadline = now.advanced(by: .seconds(1))
    }

    mutating func measured(_ measurement: TCPMeasurement, at now: Instant) -> Verdict {
        guard let since else { return .living }
        guard measurement.unacknowledged > 0 else {
            heard()
            return .living
        }
        let silence = silence(since: since, measurement, at: now)
        let usual = Self.patience(roundTrip: measurement.roundTrip, variation: measurement.variation)
        let limit = max(Self.deadAfter, min(usual, longest))
        let patience = min(usual, limit)
        // The kernel's clocks are coarser than ours; if this is too early by that much, there is one more look.
        func lookAgain(after wait: Duration) { deadline = now.advanced(by: max(wait, .milliseconds(100))) }
        switch silence {
        case ..<patience:
            isSilent = false
            lookAgain(after: patience - silence)
            return .living
        case limit... where measurement.retries > 0:
            return .dead
        default:
            isSilent = true
            lookAgain(after: silence < limit ? limit - silence : .seconds(1))
            return .silent
        }
    }
}

extension DeliveryWatch {
    /// How long nothing was acknowledged of what was sent.
    private mutating func silence(since: Instant, _ measurement: TCPMeasurement, at now: Instant) -> Duration {
        if let progress, let segments = measurement.deliveredSegments, segments == progress.segments {
            return progress.at.duration(to: now)
        }
        let waited = since.duration(to: now)
        let silence = min(waited, measurement.sinceAcknowledgement ?? waited)
        progress = Progress(segments: measurement.deliveredSegments, at: now.advanced(by: .zero - silence))
        return silence
    }
}

extension SessionMachine {
    /// Whether what was sent has been unacknowledged for so long that the kernel has to be asked.
    package func needsMeasurement(at now: Instant) -> Bool {
        switch state {
        case .connected(let connected):
            return connected.delivery.isDue(at: now) || connected.heartbeat.needsMeasurement(at: now)
        case .trying(let trying):
            guard case .attempting(_, .restoring, let deadline, let established?) = trying.activity else {
                return false
            }
            return now >= deadline || established.delivery.isDue(at: now)
                || established.heartbeat.needsMeasurement(at: now)
        case .disconnected, .disconnecting, .failed:
            return false
        }
    }

    /// Whether a path that moves now has to find out from the kernel whether what was sent gets through.
    package func needsMeasurementToMove(at now: Instant) -> Bool {
        guard case .connected(let connected) = state else { return false }
        return connected.delivery.isWaiting(longerThan: connected.doubtfulAfter, at: now)
    }

    /// Judges by the kernel's measurement whether what was sent gets through.
    mutating func judgeDelivery(
        _ generation: Generation, _ measurement: TCPMeasurement, at now: Instant, into actions: inout [Action]
    ) {
        guard case .connected(var connected) = state, connected.attempt.generation == generation else {
            allowForRoundTrips(generation, measurement, at: now)
            return judgeWhileRestoring(generation, measurement, at: now, into: &actions)
        }
        connected.heartbeat.measured(measurement, at: now)
        // Without a path nothing can be acknowledged, and the hold decides.
        guard connected.heldUntil == nil else {
            connected.delivery.restarted(at: now)
            state = .connected(connected)
            return
        }
        switch connected.delivery.measured(measurement, at: now) {
        case .living:
            state = .connected(connected)
        case .silent:
            connected.quality.nothingCameBack()
            state = .connected(connected)
        case .dead:
            abandon(connected, because: Reason(.unacknowledged), at: now, into: &actions)
        }
    }

    /// Gives the answer to CONNECT, which was just sent, as long as it takes on a slow path: after segments that were sent
    /// again, the kernel sends the next ones one by one.
    private mutating func allowForRoundTrips(
        _ generation: Generation, _ measurement: TCPMeasurement, at now: Instant
    ) {
        guard case .trying(var trying) = state,
            case .attempting(let attempt, .authenticating, let deadline, nil) = trying.activity,
            attempt.generation == generation
        else { return }
        let slow = now.advanced(by: measurement.longestAnswer(roundTrips: 4))
        trying.activity = .attempting(
            attempt, phase: .authenticating, deadline: max(deadline, slow), established: nil)
        state = .trying(trying)
    }

    private mutating func judgeWhileRestoring(
        _ generation: Generation, _ measurement: TCPMeasurement, at now: Instant, into actions: inout [Action]
    ) {
        guard case .trying(var trying) = state,
            case .attempting(let attempt, let phase, var deadline, var established?) = trying.activity,
            attempt.generation == generation
        else { return }
        established.heartbeat.measured(measurement, at: now)
        let verdict = established.delivery.measured(measurement, at: now)
        if now >= deadline, let progress = established.progress(measurement, at: now) {
            deadline = progress.advanced(by: heartbeatPolicy.timeout)
        }
        trying.activity = .attempting(attempt, phase: phase, deadline: deadline, established: established)
        state = .trying(trying)
        if verdict == .dead { abandonRestoring(because: Reason(.unacknowledged), at: now, into: &actions) }
    }
}

extension SessionMachine.Established {
    /// What is needed to restore the session may wait behind messages that are sent again, and much of it is sent only
    /// after an answer. So this goes on for as long as something is under way and arrives: `MQTTClientMachine` has a time
    /// limit for each request that has arrived.
    ///
    /// - Returns: when the last progress was made, if the time to restore is over and something is still under way.
    fileprivate mutating func progress(_ measurement: TCPMeasurement, at now: Instant) -> Instant? {
        let progress = ahead?.measured(measurement, at: now)
        if let ahead, ahead.isUnderWay { return progress }
        var next = BytesAhead(at: now)
        _ = next.measured(measurement, at: now)
        ahead = next
        return next.isUnderWay ? now : progress
    }
}

extension SessionMachine.Connected {
    var patience: Duration { DeliveryWatch.patience(roundTrip: roundTrip, variation: jitter) }

    /// Two round trips, as far as is known, and no less than receivers may delay an acknowledgement.
    fileprivate var doubtfulAfter: Duration { max(.milliseconds(100), (roundTrip ?? .milliseconds(500)) * 2) }

    /// Whether nothing was heard for more than two round trips after something was sent or asked.
    func isInDoubt(at now: Instant) -> Bool {
        delivery.isWaiting(longerThan: doubtfulAfter, at: now)
            || heartbeat.isUnanswered(longerThan: doubtfulAfter, at: now)
    }
}
