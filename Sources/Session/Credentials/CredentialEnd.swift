package import ControlAPI
package import SessionCore

/// When a credential ends, by the clock of its issuer.
package enum CredentialEnd: Hashable, Sendable {
    /// A date. It comes sooner or later if the host's clock is set.
    case byWallClock(RFC3339)
    /// A length of time, counted from when the issuer stated it.
    case byBootClock(Instant)

    /// The end on the machines' clock, given what both clocks show at one moment.
    package func instant(wallClock: RFC3339, bootClock: Instant) -> Instant {
        switch self {
        case .byWallClock(let end):
            let (difference, overflow) = end.milliseconds.subtractingReportingOverflow(wallClock.milliseconds)
            guard !overflow else { return bootClock }
            return bootClock.advanced(by: .milliseconds(difference))
        case .byBootClock(let end): return end
        }
    }

    /// The end as a date, given what both clocks show at one moment.
    package func date(wallClock: RFC3339, bootClock: Instant) -> RFC3339 {
        switch self {
        case .byWallClock(let end): end
        case .byBootClock(let end):
            RFC3339(milliseconds: wallClock.milliseconds + bootClock.duration(to: end).nanoseconds / 1_000_000)
        }
    }
}
