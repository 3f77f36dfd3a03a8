import SessionCore

/// Decides when to look after the kernel said that something changed.
///
///     quiet ──hint: look──▶ pacing ──20 ms later, hints came: look──▶ pacing
///       ▲                      │
///       └──20 ms later, none came: look, dump────────┘
///
/// The first hint after a quiet time is acted on at once; while hints keep coming, looks are at least 20 ms apart; when
/// they stop there is one more, and the tables are read. When the network is quiet there is no deadline at all.
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
    static let dumpInterval: Duration = .seconds(1)

    private enum State: Hashable {
        /// Nothing happens. Can transition to: pacing.
        case quiet
        /// A look was made lately. Can transition to: pacing, quiet.
        case pacing(until: Instant, hinted: Bool)
    }

    private var state = State.quiet
    /// When the tables are due to be read; `nil` when they are not.
    private var dumpDue: Instant?
    private var lastDump: Instant?

    /// When ``deadlineReached(at:)`` is to be called; `nil` in a quiet network.
    var nextDeadline: Instant? {
        switch (state, dumpDue) {
        case (.quiet, let due): due
        case (.pacing(let until, _), let due?): min(until, due)
        case (.pacing(let until, _), nil): until
        }
    }

    /// The kernel said that something changed.
    mutating func hinted(at now: Instant) -> [Action] {
        switch state {
        case .quiet:
            state = .pacing(until: now.advanced(by: Self.lookInterval), hinted: false)
            return [.look]
        case .pacing(let until, _) where until <= now:
            // The timer is late; the hint need not wait for it.
            state = .pacing(until: now.advanced(by: Self.lookInterval), hinted: false)
            return [.look]
        case .pacing(let until, _):
            state = .pacing(until: until, hinted: true)
            return []
        }
    }

    /// The time of ``nextDeadline`` has come. Nothing happens if it has not.
    mutating func deadlineReached(at now: Instant) -> [Action] {
        var actions: [Action] = []
        if case .pacing(let until, let hinted) = state, until <= now {
            actions.append(.look)
            let soonest = max(now, lastDump?.advanced(by: Self.dumpInterval) ?? now)
            if hinted {
                state = .pacing(until: now.advanced(by: Self.lookInterval), hinted: false)
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
