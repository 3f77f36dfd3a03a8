import Glibc
public import SessionCore

/// The host's clocks, read at one moment.
public struct ClockReading: Hashable, Sendable {
    /// The time since boot, with the time that the host slept: `CLOCK_BOOTTIME`.
    public var boot: Instant
    /// The time since boot, without the time that the host slept: `CLOCK_MONOTONIC`.
    public var awake: Duration
    /// The time since 1970 by the wall clock: `CLOCK_REALTIME`.
    public var wall: Duration

    /// Reads the clocks. If the process is stopped in between, which would look like sleep, they are read again.
    public static func now() -> ClockReading {
        var reading = ClockReading(boot: BootClock.now(), awake: read(CLOCK_MONOTONIC), wall: read(CLOCK_REALTIME))
        for _ in 1...3 where reading.boot.duration(to: BootClock.now()) > .milliseconds(100) {
            reading = ClockReading(boot: BootClock.now(), awake: read(CLOCK_MONOTONIC), wall: read(CLOCK_REALTIME))
        }
        return reading
    }

    private static func read(_ clock: clockid_t) -> Duration {
        var time = timespec()
        let result = clock_gettime(clock, &time)
        precondition(result == 0, "every Linux has these clocks")
        return .seconds(Int64(time.tv_sec)) + .nanoseconds(Int64(time.tv_nsec))
    }
}
