import SessionCore

/// What the inbox has no room for: how many messages were dropped, when that is told, and when collecting begins again
/// after the disk had no room.
struct InboxLosses: Hashable, Sendable {
    /// What drops within this time is told together.
    static let period = Duration.seconds(1)

    /// What is due.
    enum Due: Hashable, Sendable {
        case tellDropped(Int)
        case resumeCollecting
    }

    /// Since the session was started.
    private(set) var dropped: Int64 = 0
    private var untold = 0
    private var tellAt: Instant?
    private var resumeAt: Instant?

    var nextDeadline: Instant? { [tellAt, resumeAt].compactMap(\.self).min() }

    mutating func dropped(_ count: Int, at now: Instant) {
        dropped += Int64(count)
        untold += count
        if tellAt == nil { tellAt = now.advanced(by: Self.period) }
    }

    /// The disk had no room.
    mutating func collectingPaused(for pause: Duration, at now: Instant) {
        if resumeAt == nil { resumeAt = now.advanced(by: pause) }
    }

    mutating func timeReached(at now: Instant) -> [Due] {
        var due: [Due] = []
        if let tellAt, tellAt <= now {
            due.append(.tellDropped(untold))
            (untold, self.tellAt) = (0, nil)
        }
        if let resumeAt, resumeAt <= now {
            due.append(.resumeCollecting)
            self.resumeAt = nil
        }
        return due
    }
}
