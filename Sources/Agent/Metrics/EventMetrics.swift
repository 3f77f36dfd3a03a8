import ControlAPI

/// Counts events as they happen, for metrics that a session's status does not keep. It does no I/O.
struct EventMetrics: Sendable {
    /// How often attempts failed and connections were lost, by session and reason.
    private(set) var failures: [String: [String: Int64]] = [:]
    /// How long outages lasted, in seconds, by session.
    private(set) var outages: [String: Histogram] = [:]
    /// How often another device took over, by session.
    private(set) var displacements: [String: Int64] = [:]

    private static let endings = ["user-disconnect", "goodbye-unheard", "suspend"]
    private static let outageBounds: [Double] = [0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400]

    mutating func take(_ session: String, _ event: SessionEvent) {
        switch event.event {
        case .reconnectCompleted:
            guard let outage = event.outage else { return }
            outages[session, default: Histogram(bounds: Self.outageBounds)].add(outage)
        case .displaced:
            displacements[session, default: 0] += 1
        case .stateChanged:
            // A disconnect that was asked for ends an outage as well.
            if event.from == .reconnecting, event.state == .disconnected || event.state == .disconnecting,
                let lasted = event.lasted, Self.endings.contains(event.reason?.code ?? "")
            {
                outages[session, default: Histogram(bounds: Self.outageBounds)].add(lasted)
            }
            // An attempt has failed when the session waits for the next one, or gives up. A connection is lost when the
            // session leaves `connected`.
            let hasFailed = event.state == .failed || event.phase == .waiting || event.from == .connected
            guard hasFailed, event.state != .connected, let reason = event.reason, reason.group != "local" else {
                return
            }
            failures[session, default: [:]][reason.code, default: 0] += 1
        default:
            break
        }
    }

    /// Forgets the counters of a session that is no longer configured.
    mutating func forget(_ session: String) {
        failures[session] = nil
        outages[session] = nil
        displacements[session] = nil
    }
}

/// Counts the calls on the control socket.
struct CallMetrics: Sendable {
    private(set) var calls: [String: Int64] = [:]
    private(set) var denials: [String: Int64] = [:]

    mutating func called(_ method: String) { calls[method, default: 0] += 1 }
    mutating func denied(_ method: String) { denials[method, default: 0] += 1 }
}
