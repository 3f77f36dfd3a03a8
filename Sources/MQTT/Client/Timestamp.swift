/// A time on the wall clock, because the age and expiry of messages must survive reboots.
public struct Timestamp: RawRepresentable, Hashable, Comparable, Sendable {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    public let rawValue: Int64

    public init(rawValue: Int64) {
        self.rawValue = rawValue
    }

    public static func < (left: Timestamp, right: Timestamp) -> Bool {
        left.rawValue < right.rawValue
    }

    /// Later by this many milliseconds, or earlier if negative; saturates at the end of the range.
    func advanced(by milliseconds: Int64) -> Timestamp {
        let (sum, overflow) = rawValue.addingReportingOverflow(milliseconds)
        return Timestamp(rawValue: overflow ? (milliseconds > 0 ? .max : .min) : sum)
    }

    /// Whole seconds from this time until another one, rounded up, at least 0 and at most what MQTT can express.
    func secondsLeft(until other: Timestamp) -> UInt32 {
        let (milliseconds, overflow) = other.rawValue.subtractingReportingOverflow(rawValue)
        guard !overflow else { return other > self ? .max : 0 }
        guard milliseconds > 0 else { return 0 }
        return UInt32(clamping: milliseconds / 1000 + (milliseconds % 1000 == 0 ? 0 : 1))
    }
}
