import ControlAPI

/// Counts events as they happen, for metrics that a session's status does not keep. It does no I/O.
struct EventMetrics: Sendable {
    /// How often attempts failed and connections were lost, by session and reason.
    private(set) var failures: [String: [String: Int64]] = [:]
    /// How long outages lasted, in seconds, by session.
    private(set) var outages: [String: Histogram] = [:]
    /// How often another device took over, by session.
    private(set) var displacements: [String: Int64] = [:]
    /// The number of the attempt that is under way or comes next, of each session that tries to connect.
    private var attempts: [String: Int] = [:]

    private static let endings = ["user-disconnect", "goodbye-unheard", "suspend"]
    private static let outageBounds: [Double] = [0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400]

    mutating func take(_ session: String, _ event: SessionEvent) {
        switch event.event {
        case .reconnectCompleted:
            guard let outage = event.outage else { return }
            outages[session, default: Histogram(bounds: Self.outageBounds)].add(outage)
        case .displaced:
            displacements[session, default: 0] += 1
        case .stateChanged, .phaseChanged:
            // A disconnect that was asked for ends an outage as well.
            if event.from == .reconnecting, event.state == .disconnected || event.state == .disconnecting,
                let lasted = event.lasted, Self.endings.contains(event.reason?.code ?? "")
            {
                outages[session, default: Histogram(bounds: Self.outageBounds)].add(lasted)
            }
            guard hasFailed(session, event), let reason = event.reason, reason.group != "local" else { return }
            failures[session, default: [:]][reason.code, default: 0] += 1
        default:
            break
        }
    }

    /// Whether a connection was lost, an attempt has failed or the session has given up.
    private mutating func hasFailed(_ session: String, _ event: SessionEvent) -> Bool {
        let last = attempts[session]
        let isTrying = event.state == .connecting || event.state == .reconnecting
        attempts[session] = isTrying ? event.attempt : nil
        if event.state == .failed { return event.from != .failed }
        if event.from == .connected { return isTrying }
        guard isTrying, let last, let attempt = event.attempt else { return false }
        // One that was given up for another path has not failed.
        return attempt > last && event.reason?.code.hasPrefix("path-") != true
    }

    /// Forgets the counters of a session that is no longer configured.
    mutating func forget(_ session: String) {
        failures[session] = nil
        outages[session] = nil
        displacements[session] = nil
        attempts[session] = nil
    }
}

/// Counts the calls on the control socket.
struct CallMetrics: Sendable {
    private(set) var calls: [String: Int64] = [:]
    private(set) var denials: [String: Int64] = [:]
    /// How many notifications programs were too slow to read, of all connections.
    var unread: Int64 = 0

    mutating func called(_ method: String) { calls[method, default: 0] += 1 }
    mutating func denied(_ method: String) { denials[method, default: 0] += 1 }
}
