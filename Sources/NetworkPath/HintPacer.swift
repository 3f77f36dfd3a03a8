import SessionCore

/// Decides when to look after the kernel has reported that something changed.
///
///     quiet ──hint: look──▶ burst ──20 ms later, hints came: look──▶ burst
///       ▲                     │ └──hint, prompt looks are left: look──▶ burst
///       └──20 ms later, none came: look, dump───────┘
///
/// The first few hints after a quiet time are acted on at once: a link that comes back is announced by a link message
/// first and by its routes a little later, and the last message is the one that matters. While more hints keep coming,
/// looks are at least 20 ms apart. When they stop there is one more look, and the tables are read. While the network is
/// quiet there is no deadline at all.
///
/// Reading the tables is the expensive part, so readings are at least a second apart; one that fails is repeated a
/// second later, and so is a look that fails.
struct HintPacer: Hashable {
    enum Action: Hashable {
        /// Look up the path of every target.
        case look
        /// Read the tables for the snapshot.
        case dump
    }

    static let lookInterval: Duration = .milliseconds(20)
    /// How many hints of a burst are looked at without waiting. A look costs some microseconds for each address.
    static let promptLooks = 8
    static let dumpInterval: Duration = .seconds(1)

    private enum State: Hashable {
        /// No hints. Can transition to: burst.
        case quiet
        /// There was a look recently. Can transition to: burst, quiet.
        case burst(until: Instant, hinted: Bool, promptLooksLeft: Int)
    }

    private var state = State.quiet
    /// When the tables must be read next; `nil` if they need not be.
    private var dumpDue: Instant?
    private var lastDump: Instant?

    /// When to look again, because a look failed.
    private var lookDue: Instant?
    static let lookAgainInterval: Duration = .seconds(1)

    /// When to call ``deadlineReached(at:)``; `nil` in a quiet network.
    var nextDeadline: Instant? {
        var burstEnd: Instant?
        if case .burst(let until, _, _) = state { burstEnd = until }
        return [burstEnd, dumpDue, lookDue].compactMap(\.self).min()
    }

    /// Takes a hint: the kernel reported that something changed.
    mutating func hinted(at now: Instant) -> [Action] {
        switch state {
        case .quiet:
            state = .burst(
                until: now.advanced(by: Self.lookInterval), hinted: false, promptLooksLeft: Self.promptLooks - 1)
            return [.look]
        case .burst(let until, _, let left) where until <= now || left > 0:
            // The timer is late, and the hint need not wait for it; or prompt looks are left.
            state = .burst(
                until: now.advanced(by: Self.lookInterval), hinted: false, promptLooksLeft: max(0, left - 1))
            return [.look]
        case .burst(let until, _, let left):
            state = .burst(until: until, hinted: true, promptLooksLeft: left)
            return []
        }
    }

    /// Acts on ``nextDeadline``. Does nothing if its time has not come.
    mutating func deadlineReached(at now: Instant) -> [Action] {
        var actions: [Action] = []
        if case .burst(let until, let hinted, let left) = state, until <= now {
            actions.append(.look)
            let soonest = max(now, lastDump?.advanced(by: Self.dumpInterval) ?? now)
            if hinted {
                state = .burst(until: now.advanced(by: Self.lookInterval), hinted: false, promptLooksLeft: left)
                // The tables are read when a burst is over, but an endless burst must not leave the snapshot stale.
                dumpDue = dumpDue ?? now.advanced(by: Self.dumpInterval)
            } else {
                state = .quiet
                dumpDue = min(dumpDue ?? soonest, soonest)
            }
        }
        if let due = lookDue, due <= now {
            lookDue = nil
            if actions.isEmpty { actions.append(.look) }
        }
        if let due = dumpDue, due <= now {
            dumpDue = nil
            lastDump = now
            actions.append(.dump)
        }
        return actions
    }

    /// Schedules a look ``lookAgainInterval`` from now: the kernel did not answer the last one.
    mutating func lookFailed(at now: Instant) {
        lookDue = now.advanced(by: Self.lookAgainInterval)
    }

    /// Schedules a reading ``dumpInterval`` from now: the last one failed, or another was due while it ran.
    mutating func dumpFailed(at now: Instant) {
        dumpDue = now.advanced(by: Self.dumpInterval)
    }
}
