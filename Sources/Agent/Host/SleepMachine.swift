import NetworkPath
import SessionCore

/// What the host's sleep, and steps of its clock, mean for the sessions.
///
/// There are two sources. logind, if there is one, announces sleep before and after it. The kernel always reports jumps
/// of the wall clock; how far the clocks have moved apart says whether the host slept, and for how long. Both report
/// the same sleep. It ends with the first report, because the clocks are checked for each of them.
///
///     awake ──logind: sleep is near──▶ leaving ──all have left, or the limit──▶ left
///       ▲                                 │                                       │
///       └───────── it slept; logind: awake; logind is lost; nothing came ─────────┘
///
/// Sessions that left come back in any case: a sleep that was announced but never came ends like one that did come.
struct SleepMachine {
    enum Input: Hashable {
        case clockJumped
        /// logind: the host will sleep as soon as nothing delays it.
        case sleepIsNear
        /// All sessions that leave before sleep are disconnected.
        case sessionsLeft
        /// logind: the host is awake.
        case sleepIsOver
        case logindLost
        /// The sessions have changed; `leave` says whether any of them leaves before sleep.
        case sessionsChanged(leave: Bool)
        /// The time of `nextDeadline` has come.
        case timeReached
    }

    enum Action: Hashable {
        /// Tell the sessions that the host is about to sleep, and report when they have left.
        case leave
        /// Tell the sessions that the host is awake; zero if it did not sleep after all.
        case wake(slept: Duration)
        /// The wall clock was set: check all dates again.
        case judgeDates(step: Duration)
        /// Ask logind to delay sleep until the sessions have left, or no longer to delay it.
        case inhibit(Bool)
    }

    /// How long sessions have to leave. By default, logind waits 5 s.
    static let leaveLimit = Duration.seconds(4)
    /// How long to wait for a sleep that was announced.
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

    /// - Parameter reading: the present reading of the clocks.
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
                // The host slept before this was read: it announces the sleep that is already over.
                actions.append(.inhibit(false))
            } else if case .awake = state {
                state = .leaving(until: reading.boot.advanced(by: Self.leaveLimit))
                actions.append(.leave)
            }
        case .sessionsLeft:
            left(at: reading.boot, into: &actions)
        case .sleepIsOver:
            // The lock that was held before the sleep is gone, and logind grants none before this message.
            comeBack(into: &actions)
            actions.append(.inhibit(sessionsLeave))
        case .logindLost:
            // The lock is gone too; the next logind is asked for a new one.
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
