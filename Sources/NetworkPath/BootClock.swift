import Glibc
public import SessionCore

/// The host's boot clock, the only clock that deadlines are kept on.
public enum BootClock {
    /// Nanoseconds since boot by `CLOCK_BOOTTIME`, which continues while the host sleeps and is never stepped.
    public static func now() -> Instant {
        var time = timespec()
        let result = clock_gettime(CLOCK_BOOTTIME, &time)
        precondition(result == 0, "CLOCK_BOOTTIME exists on every Linux since 2.6.39")
        return Instant(nanoseconds: Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec))
    }
}
