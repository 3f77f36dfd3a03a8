import ControlAPI
import MQTT
import NIOCore
import Session
import SessionCore

// The clocks, and the session's one timer, for the earliest deadline of all its values.

extension SessionDriver {
    // MARK: The clocks

    var now: Instant { surroundings.clock.now() }
    var wallClock: Timestamp { surroundings.clock.wallClock() }
    var moment: Session.Moment { .init(now: now, wallClock: wallClock) }

    // MARK: The timer

    /// `nil` when there is nothing to wait for.
    private var nextDeadline: Instant? {
        var earliest = ask { $0.nextDeadline }
        func consider(_ deadline: Instant?) {
            if let deadline { earliest = earliest.map { min($0, deadline) } ?? deadline }
        }
        consider(simulation.pathsReturn)
        consider(log.nextDeadline)
        consider(untold.nextDeadline)
        return earliest
    }

    /// How much earlier than its deadline a timer may fire.
    private static let earliness = Duration.seconds(1)

    /// Arms the timer. Call it when a deadline has changed; it is called after every input anyway.
    func schedule() {
        guard !isWorking else { return }
        guard let deadline = nextDeadline else {
            timer?.scheduled.cancel()
            timer = nil
            return
        }
        // A timer that fires too early is harmless, and is set again then: most deadlines move later with every byte
        // read. Only if it would fire much too early is it set again now, which costs less than a wake-up for nothing.
        if let timer, timer.deadline <= deadline, timer.deadline.duration(to: deadline) < Self.earliness { return }
        timer?.scheduled.cancel()
        let wait = max(.zero, now.duration(to: deadline))
        let scheduled = eventLoop.scheduleTask(in: .nanoseconds(wait.nanoseconds)) { [weak self] in
            guard let self else { return }
            self.assumeIsolated { $0.timeReached() }
        }
        timer = (deadline, scheduled)
    }

    /// Sets the timer again after the host slept: the loop's timers do not count that time, but deadlines do.
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
        // Everything is done before the next timer is set, since what was due is no longer due then.
        run(.timeReached)
        log.timeReached(at: now, status: session.machine.status)
    }
}
