import ControlAPI
import NIOCore
import SessionCore

/// Those who wait for what a command comes to: connected, failed or disconnected.
struct OutcomeWaiters {
    private var waiting: [Int: (resume: (SessionOutcome) -> Void, timer: Scheduled<Void>?)] = [:]
    private var last = 0

    /// - Parameter resume: called once.
    /// - Returns: the number of the one who waits.
    mutating func add(_ resume: @escaping (SessionOutcome) -> Void) -> Int {
        last += 1
        waiting[last] = (resume, nil)
        return last
    }

    mutating func setTimer(_ timer: Scheduled<Void>, of number: Int) { waiting[number]?.timer = timer }

    mutating func timeReached(_ number: Int) { waiting.removeValue(forKey: number)?.resume(.timeout) }

    mutating func stateChanged(to state: SessionState) {
        guard let outcome = SessionOutcome(state) else { return }
        let all = waiting.sorted { $0.key < $1.key }
        waiting = [:]
        for (_, waiter) in all {
            waiter.timer?.cancel()
            waiter.resume(outcome)
        }
    }
}

extension SessionOutcome {
    /// `nil` for a state that leads on to another one.
    init?(_ state: SessionState) {
        switch state {
        case .connected: self = .connected
        case .failed: self = .failed
        case .disconnected: self = .disconnected
        case .connecting, .reconnecting, .disconnecting: return nil
        }
    }
}

extension SessionDriver {
    /// What the last command comes to.
    ///
    /// - Parameter limit: how long to wait; `nil`: as long as it takes.
    func outcome(within limit: Duration?) async -> SessionStateResult {
        let outcome: SessionOutcome
        if let reached = SessionOutcome(machine.status.state) {
            outcome = reached
        } else {
            outcome = await withCheckedContinuation { continuation in
                let number = outcomeWaiters.add { continuation.resume(returning: $0) }
                guard let limit else { return }
                let timer = eventLoop.scheduleTask(in: .nanoseconds(limit.nanoseconds)) { [weak self] in
                    guard let self else { return }
                    self.assumeIsolated { $0.outcomeWaiters.timeReached(number) }
                }
                outcomeWaiters.setTimer(timer, of: number)
            }
        }
        return SessionStateResult(
            state: .init(machine.status.state), outcome: outcome, reason: reason(machine.status.reason))
    }
}
