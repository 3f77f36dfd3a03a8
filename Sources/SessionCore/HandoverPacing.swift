/// How soon one handover may follow another. Each costs the server a login and the session a round trip. If the kernel
/// keeps switching between two uplinks, a session that followed every switch would do nothing else.
///
/// A leaf machine: when the path moved, and when the session followed.
struct HandoverPacing: Hashable, Sendable {
    /// The pause after the first handover; it doubles with each one, up to `longest`.
    static let first: Duration = .seconds(5)
    static let longest: Duration = .seconds(5 * 60)

    /// How long the path has to stay the same for the count to restart.
    private let calm: Duration
    private var count = 0
    private var lastMove: Instant?
    private var lastHandover: Instant?

    init(calm: Duration) {
        self.calm = calm
    }

    /// Notes that the path moved.
    mutating func pathMoved(at now: Instant) {
        if let lastMove, lastMove.duration(to: now) >= calm { count = 0 }
        lastMove = now
    }

    /// When the next handover may begin: `now`, or later.
    func earliest(at now: Instant) -> Instant {
        guard count > 0, let lastHandover else { return now }
        let pause = min(Self.first * (1 << min(count - 1, 10)), Self.longest)
        return max(now, lastHandover.advanced(by: pause))
    }

    mutating func handedOver(at now: Instant) {
        count += 1
        lastHandover = now
    }
}
