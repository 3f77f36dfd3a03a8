import ControlAPI
import SessionCore

/// Those who wait for what a command comes to: connected, failed or disconnected.
struct OutcomeWaiters {
    private var waiting: [(limit: Instant?, resume: (SessionOutcome) -> Void)] = []

    var nextDeadline: Instant? { waiting.compactMap(\.limit).min() }

    /// - Parameters:
    ///   - limit: when the waiting ends without an outcome; `nil`: never.
    ///   - resume: called once.
    mutating func add(until limit: Instant?, _ resume: @escaping (SessionOutcome) -> Void) {
        waiting.append((limit, resume))
    }

    mutating func timeReached(at now: Instant) {
        let isLate = { (waiter: (limit: Instant?, resume: (SessionOutcome) -> Void)) in
            waiter.limit.map { $0 <= now } ?? false
        }
        let late = waiting.filter(isLate)
        waiting.removeAll(where: isLate)
        for waiter in late { waiter.resume(.timeout) }
    }

    mutating func stateChanged(to state: SessionState) {
        guard let outcome = SessionOutcome(state) else { return }
        let all = waiting
        waiting = []
        for waiter in all { waiter.resume(outcome) }
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
                outcomeWaiters.add(until: limit.map { now.advanced(by: $0) }) { continuation.resume(returning: $0) }
                schedule()
            }
        }
        return SessionStateResult(
            state: .init(machine.status.state), outcome: outcome, reason: reason(machine.status.reason))
    }
}
