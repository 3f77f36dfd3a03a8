// What people see of a session. It is derived from the state and never stored beside it.

extension SessionMachine {
    /// What status, events and logs say about the session at one moment.
    public struct Status: Hashable, Sendable {
        public var state: SessionState
        public var phase: Phase?
        public var mode: ReconnectMode?
        /// Whether the server still had the session; `nil` unless connected.
        public var resumed: Bool?
        /// The number of the attempt under way or, while waiting, of the next one; 0 when not trying.
        public var attempt: Int
        /// When the next attempt is due; `nil` when none is scheduled.
        public var retryAt: Instant?
        /// Whether the outage is longer than `lost-after`.
        public var isLost: Bool
        /// Why a connected session may not really be connected.
        public var doubt: Doubt?
        public var reason: Reason
        /// The endpoint in use, or the one being tried; `nil` while the session does neither.
        public var endpoint: EndpointIndex?
        /// The path to that endpoint, if it has one.
        public var path: Path?
    }

    /// What people see of the session now.
    public var status: Status {
        var status = Status(
            state: .disconnected, phase: nil, mode: nil, resumed: nil, attempt: 0, retryAt: nil, isLost: false,
            doubt: nil, reason: reason, endpoint: nil, path: nil)
        switch state {
        case .disconnected:
            break
        case .failed:
            status.state = .failed
        case .trying(let trying):
            status.state = trying.outage == nil ? .connecting : .reconnecting
            status.mode = trying.outage == nil ? nil : mode(at: trying.endpoint(of: endpoints))
            status.attempt = trying.attempts + 1
            status.isLost = trying.outage?.isReportedLost ?? false
            switch trying.activity {
            case .waitingForNetwork:
                status.phase = .waitingForNetwork
            case .waiting(let until, _):
                status.phase = .waiting
                status.retryAt = until
            case .attempting(let attempt, let phase, _, _):
                status.phase = phase
                status.attempt = attempt.number
                status.endpoint = attempt.endpoint
            }
        case .connected(let connected):
            status.state = .connected
            status.resumed = connected.resumed
            status.endpoint = connected.attempt.endpoint
            status.doubt =
                if connected.heldUntil != nil { .pathLost } else if connected.heartbeat.isProbing { .probing } else {
                    nil
                }
        case .disconnecting(let disconnecting):
            status.state = .disconnecting
            status.endpoint = disconnecting.attempt.endpoint
        }
        status.path = status.endpoint.flatMap { endpoints[$0] }
        return status
    }

    /// Whether an attempt in the phase `resolving` still waits for its credential or the proxy's; `nil` in any other
    /// phase.
    public var awaitsCredential: Bool? { resolving.map { $0.credential.wait != nil } }

    /// Whether an attempt in the phase `resolving` still waits until its helper command may run; `nil` in any other
    /// phase.
    public var awaitsTurn: Bool? { resolving.map { $0.credential.wait == .turn } }

    private var resolving: Trying? {
        guard case .trying(let trying) = state, case .attempting(_, .resolving, _, _) = trying.activity else {
            return nil
        }
        return trying
    }

    /// The part of the status whose change is an event. Doubt and path have events of their own.
    var visible: Status {
        var visible = status
        visible.doubt = nil
        visible.path = nil
        return visible
    }

    /// The numbers behind the quality of a connection.
    public struct Liveness: Hashable, Sendable {
        /// When anything was last read from the server.
        public var lastHeard: Instant
        /// Smoothed; from the answers to heartbeats or, before the first of them, from the kernel's measurement of TCP
        /// segments.
        public var roundTrip: Duration?
        /// The smoothed variation of the round-trip time.
        public var jitter: Duration?
    }

    /// `nil` unless connected.
    public var liveness: Liveness? {
        guard case .connected(let connected) = state else { return nil }
        return Liveness(
            lastHeard: connected.heartbeat.lastHeard, roundTrip: connected.roundTrip, jitter: connected.jitter)
    }

    /// `nil` unless connected, and until the first measurement.
    public var quality: Quality? {
        guard case .connected(let connected) = state else { return nil }
        return connected.quality.quality
    }

    /// When `timeReached` is due; `nil` when there is nothing to wait for.
    public var nextDeadline: Instant? {
        switch state {
        case .disconnected, .failed:
            return nil
        case .disconnecting(let disconnecting):
            return disconnecting.deadline
        case .connected(let connected):
            let isHeld = connected.heldUntil != nil
            return [
                connected.heldUntil, isHeld ? nil : connected.heartbeat.deadline,
                isHeld ? nil : connected.delivery.deadline, renewalDeadline(of: connected),
                connected.returning?.deadline, connected.handover?.deadline, idleDeadline,
            ].compactMap { $0 }.min()
        case .trying(let trying):
            return [
                trying.activityDeadline, trying.livenessDeadline, lostDeadline(of: trying), giveUpDeadline(of: trying),
                knockDeadline(of: trying), idleDeadline,
            ].compactMap { $0 }.min()
        }
    }

    func lostDeadline(of trying: Trying) -> Instant? {
        guard let outage = trying.outage, !outage.isReportedLost, let lostAfter = policy.lostAfter else { return nil }
        return outage.since.advanced(by: lostAfter)
    }

    func giveUpDeadline(of trying: Trying) -> Instant? {
        policy.giveUpAfter.map { trying.startedAt.advanced(by: $0) }
    }
}

extension SessionMachine.Trying {
    /// The endpoint of the attempt under way, or else of the next one.
    func endpoint(of endpoints: Endpoints) -> EndpointIndex {
        switch activity {
        case .attempting(let attempt, _, _, _): attempt.endpoint
        case .waiting(let until, _): endpoints.next(at: until) ?? endpoints.cursor
        case .waitingForNetwork: endpoints.cursor
        }
    }

    /// `nil` while the session waits for something that has a limit of its own.
    var activityDeadline: Instant? {
        switch activity {
        case .waitingForNetwork(let safetyAttempt): safetyAttempt
        case .waiting(let until, _): until
        case .attempting(_, .resolving, _, _) where credential.wait == .turn: nil
        case .attempting(_, _, let deadline, _): deadline
        }
    }

    /// `nil` before a server has accepted the attempt.
    var livenessDeadline: Instant? {
        guard case .attempting(_, _, _, let established?) = activity else { return nil }
        return min(established.heartbeat.deadline, established.delivery.deadline ?? established.heartbeat.deadline)
    }
}

extension SessionMachine.Connected {
    var roundTrip: Duration? { heartbeat.roundTrip.smoothed ?? transport?.roundTrip }
    var jitter: Duration? { heartbeat.roundTrip.variation ?? transport?.variation }

    /// Grades the connection by the latest measurements.
    mutating func gradeQuality() {
        guard let roundTrip, let jitter else { return }
        quality.measured(roundTrip: roundTrip, variation: jitter, retransmissions: transport?.retransmissions)
    }
}
