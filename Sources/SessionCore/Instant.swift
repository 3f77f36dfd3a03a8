/// A point in time on the host's boot clock (`CLOCK_BOOTTIME`), which goes on while the host sleeps and is never stepped.
///
/// The machines are given the time and never read it, so a test can move it at will.
public struct Instant: InstantProtocol, Hashable, Sendable {
    /// Nanoseconds since the host was booted.
    public var nanoseconds: Int64

    /// - Parameter nanoseconds: since the host was booted.
    public init(nanoseconds: Int64) {
        self.nanoseconds = nanoseconds
    }

    /// Saturates at ±292 years: a server may name any duration.
    public func advanced(by duration: Duration) -> Instant {
        let offset = duration.nanoseconds
        let (sum, overflow) = nanoseconds.addingReportingOverflow(offset)
        return Instant(nanoseconds: overflow ? (offset < 0 ? .min : .max) : sum)
    }

    /// Saturates at ±292 years, as ``advanced(by:)`` does.
    public func duration(to other: Instant) -> Duration {
        let (difference, overflow) = other.nanoseconds.subtractingReportingOverflow(nanoseconds)
        return .nanoseconds(overflow ? (other.nanoseconds < nanoseconds ? .min : .max) : difference)
    }

    public static func < (left: Instant, right: Instant) -> Bool { left.nanoseconds < right.nanoseconds }
}
