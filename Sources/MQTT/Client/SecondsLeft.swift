extension Timestamp {
    /// Whole seconds from this time until another one, rounded up, at least 0 and at most what MQTT can express.
    func secondsLeft(until other: Timestamp) -> UInt32 {
        let (milliseconds, overflow) = other.rawValue.subtractingReportingOverflow(rawValue)
        guard !overflow else { return other > self ? .max : 0 }
        guard milliseconds > 0 else { return 0 }
        return UInt32(clamping: milliseconds / 1000 + (milliseconds % 1000 == 0 ? 0 : 1))
    }
}
