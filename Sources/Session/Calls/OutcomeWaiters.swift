package import ControlAPI
package import SessionCore

/// Calls that wait for the outcome of a command: connected, failed or disconnected.
package struct OutcomeWaiters: Sendable {
    private var waiting: [(call: CallID, limit: Instant?)] = []

    package init() {}

    package var nextDeadline: Instant? { waiting.compactMap(\.limit).min() }

    /// - Parameter limit: when to stop waiting for an outcome; `nil`: never.
    package mutating func add(_ call: CallID, until limit: Instant?) { waiting.append((call, limit)) }

    /// The caller has left.
    package mutating func remove(_ call: CallID) { waiting.removeAll { $0.call == call } }

    /// - Returns: the calls whose time is up.
    package mutating func timeReached(at now: Instant) -> [CallID] {
        let isLate = { (limit: Instant?) in limit.map { $0 <= now } ?? false }
        let late = waiting.filter { isLate($0.limit) }.map(\.call)
        waiting.removeAll { isLate($0.limit) }
        return late
    }

    /// - Returns: the calls that the new state answers, and the outcome.
    package mutating func stateChanged(to state: SessionState) -> (calls: [CallID], outcome: SessionOutcome)? {
        guard let outcome = SessionOutcome(state) else { return nil }
        defer { waiting = [] }
        return (waiting.map(\.call), outcome)
    }
}

extension SessionOutcome {
    /// `nil` for a state that is only a transition to another one.
    package init?(_ state: SessionState) {
        switch state {
        case .connected: self = .connected
        case .failed: self = .failed
        case .disconnected: self = .disconnected
        case .connecting, .reconnecting, .disconnecting: return nil
        }
    }
}
