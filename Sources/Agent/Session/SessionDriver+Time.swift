import ControlAPI
import MQTT
import NIOCore
import Session
import SessionCore

// The clocks, and the session's one timer: for the earliest of what its values wait for.

extension SessionDriver {
    // MARK: The clocks

    var now: Instant { surroundings.clock.now() }
    var wallClock: RFC3339 { surroundings.clock.wallClock() }
    var moment: Session.Moment { .init(now: now, wallClock: wallClock) }
    /// The wall clock as the protocol and the store have it.
    var timestamp: Timestamp { Timestamp(rawValue: wallClock.milliseconds) }

    // MARK: The timer

    /// `nil` when there is nothing to wait for.
    private var nextDeadline: Instant? {
        var earliest = session.nextDeadline(at: now, wallClock: timestamp)
        func consider(_ deadline: Instant?) {
            if let deadline { earliest = earliest.map { min($0, deadline) } ?? deadline }
        }
        consider(simulation.pathsReturn)
        consider(log.nextDeadline)
        consider(untold.nextDeadline)
        return earliest
    }

    /// So much earlier than its deadline a timer may fire.
    private static let earliness = Duration.seconds(1)

    /// Arms the timer. To be called when a deadline has changed; after every input it is.
    func schedule() {
        guard !isWorking else { return }
        guard let deadline = nextDeadline else {
            timer?.scheduled.cancel()
            timer = nil
            return
        }
        // A timer that fires too early is harmless and re-armed then: deadlines mostly move away, with every byte read.
        // Where it would be much too early nothing is awake for it, and to set it again costs less than to wake up in vain.
        if let timer, timer.deadline <= deadline, timer.deadline.duration(to: deadline) < Self.earliness { return }
        timer?.scheduled.cancel()
        let wait = max(.zero, now.duration(to: deadline))
        let scheduled = eventLoop.scheduleTask(in: .nanoseconds(wait.nanoseconds)) { [weak self] in
            guard let self else { return }
            self.assumeIsolated { $0.timeReached() }
        }
        timer = (deadline, scheduled)
    }

    /// The loop's timers do not count the time that the host slept, and deadlines do.
    func rearm() {
        timer?.scheduled.cancel()
        timer = nil
        schedule()
    }

    private func timeReached() {
        timer = nil
        surroundings.noteAlive()
        if let time = untold.nextDeadline, time <= now { tell() }
        returnPathsIfDue()
        // All before the next timer is set: what is due is not due any more then.
        run(.timeReached)
        log.timeReached(at: now)
    }
}
