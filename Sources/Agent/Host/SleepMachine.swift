import NetworkPath
import SessionCore

/// What the host's sleep and the steps of its clock mean for the sessions.
///
/// There are two sources. logind tells of sleep before and after it, where there is a logind. The kernel tells of jumps of
/// the wall clock, always; how far the clocks ran apart says whether the host slept, and for how long. Both tell of one and
/// the same sleep: it is over with the first that knows it, because the clocks are looked at once for each.
///
///     awake ──logind: sleep is near──▶ leaving ──all have left, or the limit──▶ left
///       ▲                                 │                                       │
///       └───────── it slept; logind: awake; logind is lost; nothing came ─────────┘
///
/// Sessions that left come back in any case: a sleep that was announced and never came ends like one that did.
struct SleepMachine {
    enum Input: Hashable {
        case clockJumped
        /// logind: the host sleeps as soon as nobody delays it.
        case sleepIsNear
        /// All sessions that leave before sleep are down.
        case sessionsLeft
        /// logind: the host is awake.
        case sleepIsOver
        case logindLost
        /// Other sessions, of which some leave before sleep, or none.
        case sessionsChanged(leave: Bool)
        /// The time of `nextDeadline` has come.
        case timeReached
    }

    enum Action: Hashable {
        /// Tell the sessions that the host will sleep, and say when they have left.
        case leave
        /// Tell the sessions that the host is awake; zero if it did not come to sleep.
        case wake(slept: Duration)
        /// The wall clock is another: look at all dates again.
        case judgeDates(step: Duration)
        /// Have sleep delayed until the sessions have left, or let it come.
        case inhibit(Bool)
    }

    /// logind waits for 5 s by default.
    static let leaveLimit = Duration.seconds(4)
    /// When an announced sleep has not come by then, it is not waited for.
    static let sleepLimit = Duration.seconds(60)

    private enum State {
        /// Can transition to: leaving.
        case awake
        /// Sleep is near, and is delayed if logind allows it. Can transition to: left, awake.
        case leaving(until: Instant)
        /// The host may sleep at any moment. Can transition to: awake.
        case left(until: Instant)
    }

    private var state = State.awake
    private var clocks: ClockClassifier
    private var sessionsLeave = false

    /// - Parameter reading: the clocks now.
    init(_ reading: ClockReading) {
        clocks = ClockClassifier(reading)
    }

    /// When `timeReached` is due; `nil` while the host is awake.
    var nextDeadline: Instant? {
        switch state {
        case .awake: nil
        case .leaving(let until), .left(let until): until
        }
    }

    mutating func handle(_ input: Input, at reading: ClockReading) -> [Action] {
        var actions: [Action] = []
        var hasSlept = false
        for change in clocks.handle(reading) {
            switch change {
            case .slept(let duration):
                hasSlept = true
                state = .awake
                actions.append(.wake(slept: duration))
            case .stepped(let step):
                actions.append(.judgeDates(step: step))
            }
        }
        switch input {
        case .clockJumped:
            break
        case .sleepIsNear:
            if hasSlept {
                // The host was asleep before this was read: it is the announcement of the sleep that is over.
                actions.append(.inhibit(false))
            } else if case .awake = state {
                state = .leaving(until: reading.boot.advanced(by: Self.leaveLimit))
                actions.append(.leave)
            }
        case .sessionsLeft:
            left(at: reading.boot, into: &actions)
        case .sleepIsOver:
            // The lock that was held before the sleep is gone, and logind gives none before it says this.
            comeBack(into: &actions)
            actions.append(.inhibit(sessionsLeave))
        case .logindLost:
            // The lock is gone with it; the next logind is asked for another.
            comeBack(into: &actions)
            actions.append(.inhibit(sessionsLeave))
        case .sessionsChanged(let leave):
            sessionsLeave = leave
            if case .awake = state { actions.append(.inhibit(leave)) }
        case .timeReached:
            timeReached(at: reading.boot, into: &actions)
        }
        return actions
    }

    private mutating func timeReached(at now: Instant, into actions: inout [Action]) {
        guard let nextDeadline, now >= nextDeadline else { return }
        switch state {
        case .awake: break
        case .leaving: left(at: now, into: &actions)
        case .left:
            comeBack(into: &actions)
            actions.append(.inhibit(sessionsLeave))
        }
    }

    private mutating func left(at now: Instant, into actions: inout [Action]) {
        guard case .leaving = state else { return }
        state = .left(until: now.advanced(by: Self.sleepLimit))
        actions.append(.inhibit(false))
    }

    private mutating func comeBack(into actions: inout [Action]) {
        if case .awake = state { return }
        state = .awake
        actions.append(.wake(slept: .zero))
    }
}
