package import SessionCore

/// What is lost when the inbox has no room: how many messages were dropped, when to report it, and when to resume
/// collecting after the disk was full.
package struct InboxLosses: Hashable, Sendable {
    /// Losses within this time are reported together.
    package static let period = Duration.seconds(1)

    package enum Due: Hashable, Sendable {
        case tellDropped(Int)
        case resumeCollecting
    }

    /// Messages dropped since the session was started.
    package private(set) var dropped: Int64 = 0
    private var untold = 0
    private var tellAt: Instant?
    private var resumeAt: Instant?

    package init() {}

    package var nextDeadline: Instant? { [tellAt, resumeAt].compactMap(\.self).min() }

    package mutating func dropped(_ count: Int, at now: Instant) {
        dropped += Int64(count)
        untold += count
        if tellAt == nil { tellAt = now.advanced(by: Self.period) }
    }

    /// Collecting has paused because the disk had no room. It resumes after `pause`.
    package mutating func collectingPaused(for pause: Duration, at now: Instant) {
        if resumeAt == nil { resumeAt = now.advanced(by: pause) }
    }

    package mutating func timeReached(at now: Instant) -> [Due] {
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
