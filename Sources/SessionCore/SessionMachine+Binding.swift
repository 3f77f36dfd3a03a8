// What is different for a session that may not use every network: its connections are bound to an interface, and the
// kernel's path may be one that the session must not use.

extension SessionMachine {
    /// Notes that the kernel's own path to an endpoint is, or no longer is, one that the session must not use.
    mutating func pathExcluded(_ endpoint: EndpointIndex, _ path: Path?) {
        endpoints.exclude(path, to: endpoint)
        guard case .trying(let trying) = state, case .waitingForNetwork = trying.activity else { return }
        reason = endpoints.explained(reason)
    }

    /// Gives up a bound connection when the path moves to another interface. The connection does not follow, and a
    /// probe would report that all is well on an interface that the session should have left.
    /// - Returns: whether the connection was given up.
    mutating func followPath(of connected: Connected, at now: Instant, into actions: inout [Action]) -> Bool {
        guard let interface = connected.boundTo, let path = endpoints[connected.attempt.endpoint],
            path.interfaceIndex != interface
        else { return false }
        abandon(connected, because: Reason(.pathMoved), at: now, into: &actions)
        return true
    }
}
