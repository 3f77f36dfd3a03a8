import SessionCore

/// Limits entries that could repeat endlessly to one an hour; the next one says how many were not written. It needs no
/// timer.
struct HourlyCount: Hashable {
    static let period = Duration.seconds(3600)

    private var written: Instant?
    private var unwritten = 0

    /// - Returns: if this one should be written, how many were not written since the last one; otherwise `nil`.
    mutating func take(at now: Instant) -> Int? {
        if let written, written.duration(to: now) < Self.period {
            unwritten += 1
            return nil
        }
        defer { unwritten = 0 }
        written = now
        return unwritten
    }

    /// Returns the end of an entry, which says how many were not written.
    static func text(more: Int) -> String {
        more == 0 ? "" : ", and \(more) time\(more == 1 ? "" : "s") more since the last such entry"
    }
}
