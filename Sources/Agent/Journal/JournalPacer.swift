import SessionCore

/// Keeps one kind of entry from flooding the journal: the first few in a minute are written, the others are counted and
/// summed up in one entry when the minute is over. It has no timer: its owner asks for the summary at `nextDeadline`.
struct JournalPacer: Hashable, Sendable {
    /// How many entries are written in one minute.
    static let burst = 5
    static let period = Duration.seconds(60)

    enum Verdict: Hashable, Sendable {
        case write
        /// Do not write this one, the first that is counted. Ask for `summary` at that time.
        case count(until: Instant)
        case countMore
    }

    private var began: Instant?
    private var written = 0
    private var counted = 0

    /// Returns what to do with an entry.
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

    /// When to ask for `summary`.
    var nextDeadline: Instant? { counted > 0 ? began?.advanced(by: Self.period) : nil }

    /// Returns how many entries were counted in the minute that is over, and begins a new one.
    mutating func summary() -> Int {
        defer { self = JournalPacer() }
        return counted
    }

    /// Whether its state no longer matters.
    func isIdle(at now: Instant) -> Bool {
        counted == 0 && began.map { $0.duration(to: now) >= Self.period } ?? true
    }
}
