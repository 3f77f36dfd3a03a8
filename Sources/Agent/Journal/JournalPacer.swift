import SessionCore

/// Keeps one kind of entry from flooding the journal: the first few of a minute are written, the rest is counted and told
/// in one entry when the minute is over. A value; who owns it asks again at the time that it names.
struct JournalPacer: Hashable, Sendable {
    /// How many are written in one minute.
    static let burst = 5
    static let period = Duration.seconds(60)

    enum Verdict: Hashable, Sendable {
        case write
        /// The first that is not written: `summary` has to be asked for at that time.
        case count(until: Instant)
        case countMore
    }

    private var began: Instant?
    private var written = 0
    private var counted = 0

    /// Something happened that would be written.
    mutating func take(at now: Instant) -> Verdict {
        if counted == 0, began.map({ $0.duration(to: now) >= Self.period }) ?? true {
            began = now
            written = 0
        }
        guard counted > 0 || written >= Self.burst else {
            written += 1
            return .write
        }
        counted += 1
        return counted == 1 ? .count(until: (began ?? now).advanced(by: Self.period)) : .countMore
    }

    /// When `summary` has something to say.
    var nextDeadline: Instant? { counted > 0 ? began?.advanced(by: Self.period) : nil }

    /// How many were counted, once the minute is over; a new one begins.
    mutating func summary() -> Int {
        defer { self = JournalPacer() }
        return counted
    }

    /// Whether it remembers nothing that still matters.
    func isIdle(at now: Instant) -> Bool {
        counted == 0 && began.map { $0.duration(to: now) >= Self.period } ?? true
    }
}
