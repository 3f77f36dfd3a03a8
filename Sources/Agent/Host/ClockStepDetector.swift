import MQTT
import Session
import SessionCore

/// Detects that somebody, or the time service, has set the wall clock: it has moved differently from the clock that is
/// never set. A value: its owner asks whenever it reads the wall clock.
struct ClockStepDetector {
    struct Step: Hashable {
        var milliseconds: Int64
        /// The times that were recorded in this boot, by the clock before it was set.
        var affected: ClosedRange<Timestamp>
    }

    /// The smallest step that counts, in milliseconds. Smaller ones are left to services that adjust the clock slowly.
    static let threshold: Int64 = 5000

    /// How often the wall clock was set.
    private(set) var count = 0
    /// Whether the consequences of all of them are durable.
    var areDurable = true
    private var now: Instant
    private var wallClock: Int64

    /// - Parameters:
    ///   - now: the time since boot, including sleep.
    ///   - wallClock: in milliseconds.
    init(now: Instant, wallClock: Int64) {
        self.now = now
        self.wallClock = wallClock
    }

    mutating func check(now: Instant, wallClock: Int64) -> Step? {
        let expected = self.wallClock + self.now.duration(to: now).wholeMilliseconds
        self.now = now
        self.wallClock = wallClock
        let step = wallClock - expected
        guard abs(step) >= Self.threshold else { return nil }
        count += 1
        areDurable = false
        let boot = expected - max(0, now.nanoseconds / 1_000_000)
        return Step(
            milliseconds: step,
            affected: Timestamp(rawValue: min(boot, expected))...Timestamp(rawValue: expected))
    }
}

extension SessionChange {
    /// The step of the clock for which it shifts the stored times.
    var clockStep: ClockStepDetector.Step? {
        guard case .mqtt(.shiftTimes(let milliseconds, let affected)) = self else { return nil }
        return .init(milliseconds: milliseconds, affected: affected)
    }
}
