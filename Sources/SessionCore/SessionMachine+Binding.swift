// What is different for a session that may not use every network: its connections are bound to an interface, and a path
// of the kernel's may be one that the session must not use.

extension SessionMachine {
    /// The kernel's own path to an endpoint has become, or has ceased to be, one that the session must not use.
    mutating func pathExcluded(_ endpoint: EndpointIndex, _ path: Path?) {
        precondition(excluded.indices.contains(endpoint.rawValue), "paths change only for the session's own endpoints")
        excluded[endpoint.rawValue] = path
        guard case .trying(let trying) = state, case .waitingForNetwork = trying.activity else { return }
        reason = explained(reason)
    }

    /// Why the session waits for the network when there is a path that it must not use: whatever the network did
    /// before, that is what it waits for.
    func explained(_ reason: Reason) -> Reason {
        guard reason.code.group == .network || reason.code.group == .liveness else { return reason }
        if let path = excluded.lazy.compactMap({ $0 }).first {
            return Reason(
                .networkNotAllowed,
                "the only way to the endpoint is \(path.interface) (\(path.type.rawValue)), which the session may not use"
            )
        }
        return reason.code == .networkNotAllowed ? Reason(.noPath) : reason
    }

    /// A bound connection does not follow when the path moves to another interface, and a probe would report that all
    /// is well where the session should no longer be.
    /// - Returns: whether the connection was given up.
    mutating func followPath(of connected: Connected, at now: Instant, into actions: inout [Action]) -> Bool {
        guard let interface = connected.boundTo, let path = paths[connected.attempt.endpoint.rawValue],
            path.interfaceIndex != interface
        else { return false }
        actions.append(.abandon(connected.attempt.generation))
        lose(connected, because: Reason(.pathMoved), at: now, into: &actions)
        return true
    }
}
