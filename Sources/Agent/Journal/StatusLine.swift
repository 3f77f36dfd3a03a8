import ControlAPI

/// The one line that `systemctl status` shows.
enum StatusLine {
    /// What the line says of each of several sessions.
    struct Brief {
        var session: String
        var state: SessionState
        var reason: String?
    }

    /// - Parameters:
    ///   - session: the status of the session, if there is exactly one; `nil` if none is configured.
    ///   - now: the present time, for how long a state has lasted.
    static func text(_ session: SessionStatus?, at now: Timestamp) -> String {
        guard let session else { return "no sessions are configured" }
        return "\(session.session): \(text(session, at: now))\(refusal(session.storeFailure != nil))"
    }

    /// The RTT to show when `shown` is there already. Nearly every heartbeat measures another, and each line that
    /// changes wakes the service manager, so it stays until the present one is out of its half and its double.
    static func steadyRTT(_ rtt: Double?, shown: Double?) -> Double? {
        guard let rtt, let shown, shown / 2 <= rtt, rtt <= shown * 2 else { return rtt }
        return shown
    }

    /// - Parameter isRefusing: whether published messages cannot be stored.
    static func text(_ sessions: [Brief], isRefusing: Bool) -> String {
        overview(sessions) + refusal(isRefusing)
    }

    private static func refusal(_ isRefusing: Bool) -> String {
        isRefusing ? "; published messages cannot be stored" : ""
    }

    private static func text(_ session: SessionStatus, at now: Timestamp) -> String {
        switch session.state {
        case .connected:
            var text = "connected to \(host(of: session.endpoint))"
            if let path = session.path { text += " via \(path.interface)" }
            text += " for \(duration(now.seconds(since: session.since)))"
            if let rtt = session.rtt { text += ", RTT \(milliseconds(rtt))" }
            switch session.doubt {
            case .pathLost: text += ", path lost"
            case .probing: text += ", probing"
            case nil: break
            }
            return text
        case .connecting, .reconnecting:
            guard session.phase != .waitingForNetwork else { return "no network" }
            let reason = session.reason.map { " after \($0.code)" } ?? ""
            if session.phase == .waiting, let retryIn = session.retryIn {
                return "retry \(session.attempt) in \(Int(retryIn.rounded(.up))) s\(reason)"
            }
            return "\(session.state.rawValue), attempt \(session.attempt) \(session.phase?.rawValue ?? "")\(reason)"
        case .disconnected, .disconnecting, .failed:
            return session.state.rawValue + (session.reason.map { " (\($0.code))" } ?? "")
        }
    }

    private static func overview(_ sessions: [Brief]) -> String {
        let order: [SessionState] = [
            .connected, .connecting, .reconnecting, .disconnecting, .disconnected, .failed,
        ]
        let parts = order.compactMap { state -> String? in
            let those = sessions.filter { $0.state == state }
            guard !those.isEmpty else { return nil }
            let count = "\(those.count) \(state.rawValue)"
            if state == .connected { return count }
            let names = those.sorted { NaturalOrder.precedes($0.session, $1.session) }.prefix(3).map { session in
                session.session + (session.reason.map { ": \($0)" } ?? "")
            }
            return "\(count) (\(names.joined(separator: ", "))\(those.count > 3 ? ", …" : ""))"
        }
        return "\(sessions.count) sessions: " + parts.joined(separator: ", ")
    }

    private static func host(of endpoint: String?) -> String {
        guard let endpoint, let scheme = endpoint.firstRange(of: "://") else { return "the server" }
        let authority = endpoint[scheme.upperBound...].prefix { $0 != "/" }
        guard let colon = authority.lastIndex(of: ":") else { return String(authority) }
        return String(authority[..<colon])
    }

    /// In whole units, so that the text changes rarely.
    private static func duration(_ seconds: Double) -> String {
        switch max(0, seconds) {
        case ..<60: "less than a minute"
        case ..<3600: "\(Int(seconds / 60))min"
        case ..<172_800: "\(Int(seconds / 3600))h"
        default: "\(Int(seconds / 86_400))d"
        }
    }

    private static func milliseconds(_ seconds: Double) -> String {
        let value = seconds * 1000
        if value < 0.05 { return "under 0.1 ms" }
        return value < 10 ? "\((value * 10).rounded() / 10) ms" : "\(Int(value.rounded())) ms"
    }
}
