import MQTT
import SessionCore

/// Finds out that somebody, or the time service, has set the wall clock: it has moved otherwise than the clock that
/// nobody sets. A value; who owns it asks whenever it looks at the wall clock.
struct ClockStepDetector {
    struct Step: Hashable {
        var milliseconds: Int64
        /// What was written down in this boot by the clock as it was.
        var affected: ClosedRange<Timestamp>
    }

    /// Less than this is left to those who adjust clocks slowly.
    static let threshold: Int64 = 5000

    /// How often the wall clock was set.
    private(set) var count = 0
    /// Up to which of these times what followed from it is durable.
    var durableCount = 0
    private var now: Instant
    private var wallClock: Int64

    /// - Parameters:
    ///   - now: the time since the boot, sleep included.
    ///   - wallClock: in milliseconds.
    init(now: Instant, wallClock: Int64) {
        self.now = now
        self.wallClock = wallClock
    }

    mutating func check(now: Instant, wallClock: Int64) -> Step? {
        let expected = self.wallClock + self.now.duration(to: now).nanoseconds / 1_000_000
        self.now = now
        self.wallClock = wallClock
        let step = wallClock - expected
        guard abs(step) >= Self.threshold else { return nil }
        count += 1
        let boot = expected - max(0, now.nanoseconds / 1_000_000)
        return Step(
            milliseconds: step,
            affected: Timestamp(rawValue: min(boot, expected))...Timestamp(rawValue: expected))
    }
}
