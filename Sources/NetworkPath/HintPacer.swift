import SessionCore

/// Decides when to look after the kernel said that something changed.
///
///     quiet ──hint: look──▶ burst ──20 ms later, hints came: look──▶ burst
///       ▲                     │ └──hint, prompt looks are left: look──▶ burst
///       └──20 ms later, none came: look, dump───────┘
///
/// The first hints after a quiet time are acted on at once, several of them: a link that comes back is announced by a
/// link message first and by its routes a little later, and it is the last one that matters. While hints keep coming
/// after those, looks are at least 20 ms apart; when they stop there is one more, and the tables are read. When the
/// network is quiet there is no deadline at all.
///
/// Reading the tables is what costs, so readings are at least a second apart; one that fails is put off by a second.
struct HintPacer: Hashable {
    enum Action: Hashable {
        /// Look up the path of every target.
        case look
        /// Read the tables for the snapshot.
        case dump
    }

    static let lookInterval: Duration = .milliseconds(20)
    /// How many hints of a burst are looked at without waiting. A look costs some microseconds for each target.
    static let promptLooks = 8
    static let dumpInterval: Duration = .seconds(1)

    private enum State: Hashable {
        /// Nothing happens. Can transition to: burst.
        case quiet
        /// A look was made lately. Can transition to: burst, quiet.
        case burst(until: Instant, hinted: Bool, promptLooksLeft: Int)
    }

    private var state = State.quiet
    /// When the tables are due to be read; `nil` when they are not.
    private var dumpDue: Instant?
    private var lastDump: Instant?

    /// When to call ``deadlineReached(at:)``; `nil` in a quiet network.
    var nextDeadline: Instant? {
        switch (state, dumpDue) {
        case (.quiet, let due): due
        case (.burst(let until, _, _), let due?): min(until, due)
        case (.burst(let until, _, _), nil): until
        }
    }

    /// The kernel said that something changed.
    mutating func hinted(at now: Instant) -> [Action] {
        switch state {
        case .quiet:
            state = .burst(
                until: now.advanced(by: Self.lookInterval), hinted: false, promptLooksLeft: Self.promptLooks - 1)
            return [.look]
        case .burst(let until, _, let left) where until <= now || left > 0:
            // The timer is late, and the hint need not wait for it; or the burst is young.
            state = .burst(
                until: now.advanced(by: Self.lookInterval), hinted: false, promptLooksLeft: max(0, left - 1))
            return [.look]
        case .burst(let until, _, let left):
            state = .burst(until: until, hinted: true, promptLooksLeft: left)
            return []
        }
    }

    /// The time of ``nextDeadline`` has come. Nothing happens if it has not.
    mutating func deadlineReached(at now: Instant) -> [Action] {
        var actions: [Action] = []
        if case .burst(let until, let hinted, let left) = state, until <= now {
            actions.append(.look)
            let soonest = max(now, lastDump?.advanced(by: Self.dumpInterval) ?? now)
            if hinted {
                state = .burst(until: now.advanced(by: Self.lookInterval), hinted: false, promptLooksLeft: left)
                // A burst is read when it is over, but one without end must not keep people from a fresh snapshot.
                dumpDue = dumpDue ?? now.advanced(by: Self.dumpInterval)
            } else {
                state = .quiet
                dumpDue = min(dumpDue ?? soonest, soonest)
            }
        }
        if let due = dumpDue, due <= now {
            dumpDue = nil
            lastDump = now
            actions.append(.dump)
        }
        return actions
    }

    /// The tables could not be read: they kept changing.
    mutating func dumpFailed(at now: Instant) {
        dumpDue = now.advanced(by: Self.dumpInterval)
    }
}
