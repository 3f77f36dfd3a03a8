package import ControlAPI
package import SessionCore

/// When a credential ends, according to its issuer.
package enum CredentialEnd: Hashable, Sendable {
    /// A date. Setting the host's clock brings it closer or moves it away.
    case byWallClock(Timestamp)
    /// A length of time, counted from when the issuer stated it.
    case byBootClock(Instant)

    /// The end as an instant, given what both clocks show at one moment.
    package func instant(wallClock: Timestamp, bootClock: Instant) -> Instant {
        switch self {
        case .byWallClock(let end):
            let (difference, overflow) = end.rawValue.subtractingReportingOverflow(wallClock.rawValue)
            guard !overflow else { return bootClock }
            return bootClock.advanced(by: .milliseconds(difference))
        case .byBootClock(let end): return end
        }
    }

    /// The end as a date, given what both clocks show at one moment.
    package func date(wallClock: Timestamp, bootClock: Instant) -> Timestamp {
        switch self {
        case .byWallClock(let end): end
        case .byBootClock(let end):
            wallClock.advanced(by: bootClock.duration(to: end).wholeMilliseconds)
        }
    }
}
