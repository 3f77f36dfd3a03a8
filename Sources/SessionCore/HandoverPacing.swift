/// How soon one handover may follow another. Each costs the server a login and the session a round trip. If the kernel
/// keeps switching between two uplinks, a session that followed every switch would do nothing else. Nor would one that
/// dialed all the time over a path that leads nowhere, although it may lead somewhere a minute later.
///
/// A leaf machine: when the path moved, when the session followed, and how often it could not.
struct HandoverPacing: Hashable, Sendable {
    /// The pause after the first handover, or the first failure; it doubles with each one, up to `longest`.
    static let first: Duration = .seconds(5)
    static let longest: Duration = .seconds(5 * 60)

    /// How long the path has to stay the same for the count to restart.
    private let calm: Duration
    private var count = 0
    private var lastMove: Instant?
    private var lastHandover: Instant?
    /// How many successors could not be set up since the path moved.
    private var failures = 0

    init(calm: Duration) {
        self.calm = calm
    }

    /// Notes that the path moved.
    mutating func pathMoved(at now: Instant) {
        if let lastMove, lastMove.duration(to: now) >= calm { count = 0 }
        lastMove = now
        failures = 0
    }

    /// Whether a successor could not be set up since then.
    var hasFailed: Bool { failures > 0 }

    /// When the next handover may begin: `now`, or later.
    func earliest(at now: Instant) -> Instant {
        guard count > 0, let lastHandover else { return now }
        return max(now, lastHandover.advanced(by: Self.pause(after: count)))
    }

    private static func pause(after count: Int) -> Duration { min(first * (1 << min(count - 1, 10)), longest) }

    mutating func handedOver(at now: Instant) {
        count += 1
        lastHandover = now
    }

    /// Notes that a successor could not be set up.
    ///
    /// - Returns: when the next one is tried, unless the path moves before that.
    mutating func failed(at now: Instant) -> Instant {
        failures += 1
        return now.advanced(by: Self.pause(after: failures))
    }
}
