/// Decides when to ask the server for a sign of life, and when the connection is dead.
///
/// Silence counts in both directions: a server that is only written to must be asked, and a server that is only read
/// from must hear something within the keep-alive (MQTT 5, 3.1.2.10). A client that only writes therefore still sends
/// pings.
///
/// An answer cannot come before the question has arrived. A question behind a large message on a slow link has the full
/// time from the last acknowledgement of what is ahead of it: as long as there are any, it is late and not unanswered.
struct Heartbeat: Hashable, Sendable {
    /// What is due at a point in time.
    enum Due: Hashable, Sendable {
        case nothing
        case ask
        /// The answer takes longer than answers used to; the connection is not given up yet.
        case overdue
        case dead(Reason.Code)
    }

    private struct Question: Hashable, Sendable {
        let asked: Instant
        /// How long the answer may take, counted from `start`.
        private(set) var timeout: Duration
        private var start: Instant
        var ahead: BytesAhead
        /// When the answer is later than answers used to be; `nil` once that was reported.
        var overdueAt: Instant?
        let isProbe: Bool
        /// Whether what was read last had arrived before the question was asked, so that it does not answer it.
        var isReadingOlder = false

        init(asked now: Instant, within timeout: Duration, usually: Duration, isProbe: Bool) {
            (asked, start, self.timeout, self.isProbe) = (now, now, timeout, isProbe)
            ahead = BytesAhead(at: now)
            overdueAt = now.advanced(by: usually)
        }

        var deadline: Instant { start.advanced(by: timeout) }

        mutating func count(from start: Instant, usually: Duration) {
            overdueAt = start.advanced(by: usually)
            self.start = start
        }

        /// On a connection that is slower than that, no server can answer sooner.
        mutating func mayTake(_ time: Duration) { timeout = max(timeout, time) }
    }

    private let policy: HeartbeatPolicy
    let interval: Duration
    private(set) var lastHeard: Instant
    private(set) var lastSent: Instant
    private var lastAsked: Instant
    private var question: Question?
    /// When the question that measures the round trip was asked. It outlives `question`, which any byte answers.
    private var sampleStart: Instant?
    private(set) var roundTrip = RoundTripTime()
    private var stall: Stall?

    /// A time in which nothing ran: something was due, and was found so much later.
    private struct Stall: Hashable, Sendable {
        let length: Duration
        let end: Instant
    }

    /// A connection with traffic in both directions is also asked this often: the answer measures the round trip, and with it
    /// what the server has refused is tried again.
    private static let longestUnmeasured = Duration.seconds(60)

    /// How much later than due a running daemon never looks, and how long a stall can be the reason for what follows.
    private static let patience = Duration.seconds(5)

    /// - Parameters:
    ///   - serverInterval: the longest interval in which the server wants to hear something (MQTT 5, 3.2.2.3.14). A client
    ///     may ask more often at any time (3.1.2.10), so a longer one than ours changes nothing: it would only make us
    ///     notice later that the server is gone. `nil` or zero: the server does not mind.
    ///   - lastSent: when something was last sent, which is what the server's time counts from; `nil`: now.
    init(policy: HeartbeatPolicy, serverInterval: Duration?, lastSent: Instant? = nil, at now: Instant) {
        self.policy = policy
        let longest = serverInterval.flatMap { $0 > .zero ? max($0, .seconds(1)) : nil }
        interval = min(policy.interval, longest ?? policy.interval)
        lastHeard = now
        self.lastSent = max(lastSent ?? now, now.advanced(by: .zero - interval))
        lastAsked = now
    }

    /// How long an answer usually takes at most, as far as is known.
    var usualAnswer: Duration { roundTrip.usually }

    /// How long to wait for the last answer before another connection takes over.
    var lastAnswer: Duration { roundTrip.lastAnswer }

    var isProbing: Bool { question?.isProbe ?? false }

    /// Whether an answer has been awaited for longer than answers used to take.
    var isOverdue: Bool { question.map { $0.overdueAt == nil } ?? false }

    /// Whether the answer has been awaited for longer than this.
    func isUnanswered(longerThan limit: Duration, at now: Instant) -> Bool {
        question.map { $0.asked.duration(to: now) > limit } ?? false
    }

    var deadline: Instant {
        guard let question else {
            let again = max(interval, Self.longestUnmeasured)
            return min(min(lastHeard, lastSent).advanced(by: interval), lastAsked.advanced(by: again))
        }
        return min(question.overdueAt ?? question.deadline, question.deadline)
    }

    /// - Parameter arrival: when what is read now arrived. It may have waited, in a flood or while the host slept.
    mutating func heard(arrivedAt arrival: Instant, at now: Instant) {
        noteStall(at: now)
        lastHeard = max(lastHeard, arrival)
        guard let question, arrival < question.asked else { return self.question = nil }
        self.question?.isReadingOlder = true
        // The answer is read after this.
        self.question?.count(from: now, usually: roundTrip.usually)
    }

    mutating func sent(at now: Instant) {
        lastSent = now
    }

    /// Whether the connection has to be looked at before it is judged.
    func needsMeasurement(at now: Instant) -> Bool { question != nil && now >= deadline }

    /// Notes how far the question has come.
    mutating func measured(_ measurement: TCPMeasurement, at now: Instant) {
        question?.mayTake(measurement.longestAnswer(roundTrips: 2))
        guard let progress = question?.ahead.measured(measurement, at: now), let asked = question?.asked else { return }
        question?.count(from: max(asked, progress), usually: roundTrip.usually)
        // Much of the time was spent in our own queue.
        sampleStart = nil
    }

    mutating func answered(at now: Instant) {
        defer { sampleStart = nil }
        // It answers an earlier question, or none.
        if question?.isReadingOlder == true { return }
        // The answer may have waited here to be read.
        if let sampleStart { roundTrip.add(sampleStart.duration(to: lastHeard > sampleStart ? lastHeard : now)) }
        heard(arrivedAt: now, at: now)
    }

    /// Notices that neither side can have heard the other for a while, because nothing ran here.
    private mutating func noteStall(at now: Instant) {
        let late = deadline.duration(to: now)
        if late > Self.patience { stall = Stall(length: late, end: now) }
    }

    /// For how long, at least, nothing ran here until a moment ago; `nil` if it did.
    mutating func stalled(at now: Instant) -> Duration? {
        noteStall(at: now)
        return stall.flatMap { $0.end.duration(to: now) <= Self.patience ? $0.length : nil }
    }

    mutating func due(at now: Instant) -> Due {
        noteStall(at: now)
        guard now >= deadline else { return .nothing }
        if let question {
            if now >= question.deadline { return .dead(question.isProbe ? .probeTimeout : .heartbeatTimeout) }
            self.question?.overdueAt = nil
            return .overdue
        }
        ask(within: policy.timeout, isProbe: false, at: now)
        return .ask
    }

    /// Asks at once, with a short deadline.
    /// - Returns: whether to send a question; `false` when a probe is already under way.
    mutating func probe(at now: Instant) -> Bool {
        if isProbing { return false }
        ask(within: roundTrip.probeTimeout(atMost: policy.probeTimeout), isProbe: true, at: now)
        return true
    }

    /// Gives the answer that is awaited its full time from now on: there was no path on which it could come.
    mutating func askedAgain(at now: Instant) { question?.count(from: now, usually: roundTrip.usually) }

    private mutating func ask(within timeout: Duration, isProbe: Bool, at now: Instant) {
        question = Question(asked: now, within: timeout, usually: roundTrip.usually, isProbe: isProbe)
        sampleStart = sampleStart ?? now
        lastSent = now
        lastAsked = now
    }
}

extension TCPMeasurement {
    /// How long an answer that takes so many round trips may take. This is no more than half a minute: what delays an answer
    /// for longer is noticed as a dead connection.
    func longestAnswer(roundTrips: Int) -> Duration { min(roundTrip * roundTrips, .seconds(30)) }
}

/// Smoothed round-trip time and its variation, by the estimator of RFC 6298.
public struct RoundTripTime: Hashable, Sendable {
    /// `nil` before the first sample.
    public private(set) var smoothed: Duration?
    /// `nil` before the first sample.
    public private(set) var variation: Duration?

    mutating func add(_ sample: Duration) {
        if let smoothed, let variation {
            let difference = smoothed > sample ? smoothed - sample : sample - smoothed
            self.variation = (variation * 3 + difference) / 4
            self.smoothed = (smoothed * 7 + sample) / 8
        } else {
            smoothed = sample
            variation = sample / 2
        }
    }

    /// How long answers take at most, as far as is known; never less than a second.
    var usually: Duration { max(.seconds(1), (smoothed ?? .zero) * 4) }

    /// How long the last answer on a connection that another is about to replace is worth waiting for. Its server may take
    /// longer, and then messages of QoS 1 come twice; but if the old path is dead, everything waits for this.
    var lastAnswer: Duration { smoothed.map { max(.milliseconds(250), $0 * 4) } ?? .seconds(1) }

    /// Several round trips, but no less than a second: a path that just moved is slower at first.
    func probeTimeout(atMost limit: Duration) -> Duration {
        guard let smoothed else { return limit }
        return min(limit, max(.seconds(1), smoothed * 8))
    }
}
