// What a change of the path to an endpoint means: the class table of Documentation/Network.md, state by state.

extension SessionMachine {
    /// The path to an endpoint; `nil` if the kernel has none.
    public func path(to endpoint: EndpointIndex) -> Path? { endpoints[endpoint] }

    mutating func pathChanged(
        _ endpoint: EndpointIndex, from: Path?, to path: Path?, _ pathClass: PathClass, at now: Instant,
        into actions: inout [Action]
    ) {
        let old = endpoints[endpoint]
        endpoints[endpoint] = path
        guard pathClass != .none else { return }
        if pathClass == .movedSourceGone, let from, let old, let path, old.leadsLike(path) {
            sourceLeft(from, of: endpoint, at: now, into: &actions)
            return
        }
        endpoints.watch.pathChanged(to: endpoint)
        actions.append(.report(.pathChanged(pathClass, endpoint, from: old, to: path)))
        switch state {
        case .disconnected, .disconnecting:
            return
        case .failed:
            startOnOtherNetwork(pathClass, at: now, into: &actions)
        case .connected(let connected):
            guard connected.attempt.endpoint == endpoint else { return }
            // The path may have moved twice, and only the address in between is gone.
            let isSpared = pathClass == .movedSourceGone && !connected.isBoundToSource(of: from ?? old)
            pathChanged(of: connected, isSpared ? .movedSourceKept : pathClass, from: from, at: now, into: &actions)
        case .trying(let trying):
            pathChanged(during: trying, endpoint, pathClass, at: now, into: &actions)
        }
    }

    /// Handles that the kernel may, or no longer may, find a path to an endpoint that has none when it is tried. Attempts go
    /// on then, with the usual delays, because there is no message when it has found one.
    mutating func detourChanged(
        _ endpoint: EndpointIndex, _ exists: Bool, at now: Instant, into actions: inout [Action]
    ) {
        endpoints.setDetour(exists, to: endpoint)
        guard case .trying(let trying) = state else { return }
        switch trying.activity {
        case .waitingForNetwork where endpoints.hasPath: hasten(trying, because: nil, at: now, into: &actions)
        case .waiting where !endpoints.hasPath: waitForNetwork(trying, because: Reason(.pathLost), at: now)
        case .waiting, .waitingForNetwork, .attempting: return
        }
    }

    /// Starts a session again that failed because of certificates: it may have been another server that showed them, as
    /// the sign-in page of a public network does, and the way leads elsewhere now.
    private mutating func startOnOtherNetwork(
        _ pathClass: PathClass, at now: Instant, into actions: inout [Action]
    ) {
        guard reason.code == .certificateInvalid, endpoints.hasPath else { return }
        switch pathClass {
        case .gained, .movedSourceGone, .movedSourceKept:
            let cause = Self.hasteReason(pathClass) ?? reason
            startTrying(because: cause, isHastened: true, at: now, into: &actions)
        case .none, .lost, .returned, .maybe:
            return
        }
    }

    /// Handles an address that has left the host: it was the source of an earlier path to the endpoint, and the present
    /// path has not changed. This ends a connection that was made from that address and has not been handed over yet.
    /// It does not concern any other.
    private mutating func sourceLeft(
        _ departed: Path, of endpoint: EndpointIndex, at now: Instant, into actions: inout [Action]
    ) {
        guard case .connected(var connected) = state, connected.attempt.endpoint == endpoint,
            connected.isBoundToSource(of: departed)
        else { return }
        // It is unknown how long the connection has been silent, so look for another device first.
        if rivalry.look(mayHaveRival: false) != nil { connected.handover = nil }
        actions.append(
            .report(.pathChanged(.movedSourceGone, endpoint, from: departed, to: endpoints[endpoint])))
        abandon(connected, because: .sourceGone(departed), at: now, into: &actions)
    }

    private mutating func pathChanged(
        of connected: Connected, _ pathClass: PathClass, from old: Path?, at now: Instant,
        into actions: inout [Action]
    ) {
        if followPath(of: connected, at: now, into: &actions) { return }
        var connected = connected
        let hasPath = endpoints[connected.attempt.endpoint] != nil
        switch pathClass {
        case .none:
            return
        case .movedSourceGone:
            // A successor under way began on a path that the kernel no longer uses.
            connected.handover = nil
            abandon(connected, because: .sourceGone(connected.path ?? old), at: now, into: &actions)
        case .lost:
            connected.heldUntil = connected.heldUntil ?? now.advanced(by: PathClass.hold)
            connected.quality.nothingCameBack()
            connected.handover = nil
            state = .connected(connected)
        case .movedSourceKept, .returned, .gained, .maybe:
            // Without a path there is nothing to probe, and only a path ends the hold.
            guard hasPath || connected.heldUntil == nil else { return }
            if connected.heldUntil != nil { connected.heartbeat.askedAgain(at: now) }
            connected.heldUntil = nil
            let isInDoubt = pathClass == .movedSourceKept && connected.isInDoubt(at: now)
            connected.doubtedSince = isInDoubt ? connected.heartbeat.lastHeard : nil
            probe(connected, at: now, into: &actions)
            if pathClass != .maybe { pathMoved(at: now, into: &actions) }
        }
    }

    /// Gives up a connection whose path has not come back. If something has arrived on it since the loss, what the kernel
    /// says of the path is not the whole truth, and the server is asked instead.
    mutating func holdEnded(_ connected: Connected, lostAt: Instant, at now: Instant, into actions: inout [Action]) {
        guard connected.heartbeat.lastHeard > lostAt else {
            abandon(connected, because: Reason(.pathLost), at: now, into: &actions)
            return
        }
        var connected = connected
        connected.heldUntil = nil
        probe(connected, at: now, into: &actions)
    }

    private mutating func probe(_ connected: Connected, at now: Instant, into actions: inout [Action]) {
        var connected = connected
        connected.delivery.restarted(at: now)
        if connected.heartbeat.probe(at: now) { actions.append(.sendHeartbeat(connected.attempt.generation)) }
        state = .connected(connected)
    }

    private mutating func pathChanged(
        during trying: Trying, _ endpoint: EndpointIndex, _ pathClass: PathClass, at now: Instant,
        into actions: inout [Action]
    ) {
        switch (trying.activity, pathClass) {
        case (_, .none), (.attempting, .maybe), (.waitingForNetwork, .lost):
            return
        case (.waiting, .lost):
            if !endpoints.hasPath { waitForNetwork(trying, because: Reason(.pathLost), at: now) }
        case (.attempting(let attempt, _, _, _), .lost):
            // Another endpoint may still have a path.
            guard attempt.endpoint == endpoint else { return }
            hasten(trying, because: Reason(.pathLost), at: now, into: &actions)
        case (.attempting(let attempt, _, _, _), _):
            // The kernel does not move a dial that began on the old path: it would only time out. Nor will a safety
            // attempt, which has no path, get anywhere sooner than the endpoint that now has one.
            guard attempt.endpoint == endpoint || endpoints[attempt.endpoint] == nil else { return }
            hasten(trying, because: Self.hasteReason(pathClass), at: now, into: &actions)
        case (.waiting, _), (.waitingForNetwork, _):
            guard endpoints.hasPath else { return }
            hasten(trying, because: Self.hasteReason(pathClass), at: now, into: &actions)
        }
    }

    /// - Returns: `nil` for a change that might not matter.
    private static func hasteReason(_ pathClass: PathClass) -> Reason? {
        switch pathClass {
        case .gained: Reason(.pathGained)
        case .returned: Reason(.pathReturned)
        case .movedSourceGone, .movedSourceKept: Reason(.pathMoved)
        case .lost: Reason(.pathLost)
        case .none, .maybe: nil
        }
    }
}

extension Reason.Code {
    /// Whether something was given up because of this host's network, which says nothing about the server.
    package var isOfOwnPath: Bool {
        switch self {
        case .noPath, .pathGained, .pathMoved, .pathReturned, .pathLost: true
        default: false
        }
    }
}

extension Reason {
    /// The connection cannot be used any more. A host keeps the addresses of an interface that is set down.
    fileprivate static func sourceGone(_ path: Path?) -> Reason {
        guard let path else { return Reason(.pathMoved) }
        return Reason(
            .pathMoved,
            "the interface \(path.interface) is down, or has lost the address \(path.source) of the connection")
    }
}

extension SessionMachine.Connected {
    /// Whether the connection depends on the source address of this path; `nil` stands for an unknown path.
    fileprivate func isBoundToSource(of other: Path?) -> Bool {
        guard let path, let other else { return true }
        return path.sharesSource(with: other)
    }
}
