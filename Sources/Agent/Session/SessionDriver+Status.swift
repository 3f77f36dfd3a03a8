import Configuration
import ControlAPI
import MQTT
import Session
import SessionCore
import Transport

// What the session reports about itself when asked.

extension SessionDriver {
    /// Returns everything that `session.status` shows, as of now.
    func status() -> SessionStatus {
        let (reason, subscriptions) = (reason(session.machine.reason), subscriptionStatus)
        return ask { status(of: &$0, reason, subscriptions) }
    }

    private func status(
        of session: inout Session, _ reason: SessionStatus.Reason, _ subscriptions: [SessionStatus.Subscription]
    ) -> SessionStatus {
        let now = now
        let status = session.machine.status
        let liveness = session.machine.liveness
        let counts = session.mqtt.counts
        let counters = session.machine.counters
        var result = SessionStatus(session: name.description, state: status.state, since: since, reason: reason)
        result.phase = status.phase
        result.awaitsCredential = session.machine.awaitsCredential
        result.awaitsTurn = session.machine.awaitsTurn
        result.mode = status.mode
        result.resumed = status.resumed
        result.attempt = status.attempt
        result.retryIn = status.retryAt.map { max(0, now.duration(to: $0).seconds) }
        result.lost = status.isLost
        result.doubt = status.doubt
        result.endpoint = status.endpoint.map { session.address(of: $0).description }
        result.proxy = configuration.proxy.address?.description
        result.peer = session.link?.peer?.name
        result.tls = session.link?.peer?.tlsVersion
        result.protocol = session.mqtt.isConnected ? session.mqtt.version.description : nil
        result.path = status.path.map { .init($0) }
        result.network = .init(configuration.network)
        result.user = configuration.user
        result.device = device
        result.room = session.room?.name
        result.presenceRefused = session.rooms.membership?.refusal
        result.clientID = session.clientID
        result.quality = session.machine.quality
        result.rtt = liveness?.roundTrip?.seconds
        result.jitter = liveness?.jitter?.seconds
        result.lastHeard = liveness.map { max(0, $0.lastHeard.duration(to: now).seconds) }
        // A server of MQTT 3.1.1 says nothing about what it allows.
        result.granted = session.mqtt.version == .five ? session.mqtt.grant.map { .init($0) } : nil
        result.subscriptions = subscriptions
        result.outbox = .init(
            queued: counts.queued, inFlight: counts.inFlight, quarantined: counts.quarantined,
            bytes: Int64(counts.bytes), oldest: session.mqtt.oldestAcceptance)
        result.inbox = inboxStatus(of: &session)
        result.counters.attempts = Int64(counters.attempts)
        result.counters.connects = Int64(counters.connects)
        result.counters.resumes = Int64(counters.resumes)
        result.counters.outages = Int64(counters.outages)
        result.counters.longestOutage = counters.longestOutage > .zero ? counters.longestOutage.seconds : nil
        result.counters.published = session.counts.published
        result.counters.received = session.counts.received
        result.counters.dropped = session.counts.dropped
        result.counters.refused = session.counts.refused
        result.tlsFilesError = tlsContexts.rejection
        return result
    }

    /// Creates an event of this session with the present time.
    func event(_ kind: SessionEvent.Kind) -> SessionEvent {
        var event = SessionEvent(time: wallClock, session: name.description, event: kind)
        event.room = ask { $0.room?.name }
        return event
    }

    /// Returns a reason in the terms of the control socket.
    func reason(_ reason: Reason) -> SessionStatus.Reason { .init(reason, remedies) }

    var remedies: Remedies {
        Remedies(
            session: name, configuration: configuration, hasToken: session.credentials.given != nil,
            occasion: session.machine.status.attempt > 1 ? .retrying : .event,
            redirectedTo: session.servers.redirections.followedTo)
    }
}
