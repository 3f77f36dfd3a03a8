/// When the next attempt may be made: by the table of delays, and as often as network events may bring one forward. What
/// a server asks for is kept with its endpoint.
struct Pacing: Sendable {
    private let policy: ReconnectPolicy
    var backoff: Backoff
    var haste = HasteLimiter()
    /// The end of the floor that a busy server raised; no network event overrides it.
    var notBefore: Instant?

    /// The longest wait after an ending with the pace `soon`. A rival in a room that keeps losing its connection stays
    /// away for up to four times as long, see ``Rivalry/longestPatience``.
    static let soon: Duration = .seconds(4)

    init(_ policy: ReconnectPolicy, seed: UInt64) {
        self.policy = policy
        backoff = Backoff(seed: seed)
    }

    /// Returns the time, or a later one if the floor lasts longer.
    func allowed(_ time: Instant) -> Instant { max(time, notBefore ?? time) }

    /// Restarts the table, without a floor: a person asked, or the server must be told something.
    mutating func restart() {
        notBefore = nil
        backoff.restart()
    }

    /// When the attempt after this ending is made.
    ///
    /// - Parameters:
    ///   - patience: the shortest wait.
    ///   - longest: replaces longer delays of the table; `nil`: none.
    ///   - hasPath: without a path, the delay table does not apply; a floor does.
    mutating func next(
        after ending: SessionMachine.Ending, patience: Duration, within longest: Duration?, hasPath: Bool,
        at now: Instant
    ) -> Instant {
        let cause = ending.cause
        notBefore = nil
        var next = now.advanced(by: patience)
        if hasPath || cause.hasFloor {
            let delay = delay(after: cause, within: longest)
            next = max(next, now.advanced(by: ending.pace == .soon ? min(delay, Self.soon) : delay))
        }
        if cause.hasFloor { notBefore = next }
        return next
    }

    /// Takes the next delay from the table.
    mutating func delay(after cause: Backoff.Cause, within longest: Duration? = nil) -> Duration {
        backoff.nextDelay(after: cause, within: longest, policy: policy)
    }
}
