import ControlAPI
import NIOCore
import NetworkPath
import Session
import SessionCore
import Transport
import Vocabulary

// Telling watchers, the journal and the history what happened. It takes longer than dialing, and must not delay the
// reconnect: while an attempt hurries, what the session machine reports is told a moment later, with its time. What that
// brings is in Documentation/decisions/0018-to-dial-comes-first.md.
// What becomes of messages is told at once, after everything that happened before.

/// What the session machine reported and is not told yet, and what was so at that moment.
struct Untold: Sendable {
    let event: SessionMachine.Event
    let instant: Instant
    let time: RFC3339
    let status: SessionMachine.Status
    /// Of the status.
    let address: Endpoint?
    /// Of the event.
    let eventAddress: Endpoint?
    let liveness: SessionMachine.Liveness?
    let credentialEnd: RFC3339?
    let room: String?
}

/// Reports that are held back, in order, and when they are sent.
struct UntoldEvents {
    private enum Time {
        /// As soon as the loop has done what it has been asked to do until now.
        case soon
        /// When the attempt has had its time.
        case later(Instant)
    }

    /// For so long an attempt is not disturbed.
    static let hurry = Duration.milliseconds(5)

    private var events: [Untold] = []
    private var time: Time?

    var nextDeadline: Instant? { if case .later(let time)? = time { time } else { nil } }

    mutating func append(_ event: Untold) { events.append(event) }

    /// - Returns: whether the loop has to be asked for a turn to tell it.
    mutating func tellLater(isHurrying: Bool, at now: Instant) -> Bool {
        guard !events.isEmpty else { return false }
        switch (time, isHurrying) {
        case (.soon?, _), (.later?, true):
            return false
        case (nil, true):
            time = .later(now.advanced(by: Self.hurry))
            return false
        case (_, false):
            time = .soon
            return true
        }
    }

    mutating func take() -> [Untold] {
        defer { self = UntoldEvents() }
        return events
    }
}

extension SessionDriver {
    func report(_ event: SessionEvent) {
        tell()
        surroundings.report(name, event)
    }

    /// Tells watchers and the journal what the session machine reports.
    func report(_ event: SessionMachine.Event) {
        let status = session.machine.status
        var eventAddress: Endpoint?
        if case .pathChanged(_, let endpoint, _, _) = event { eventAddress = address(of: endpoint) }
        if case .stateChanged(let from, _) = event { stateChanged(from: from, to: status.state) }
        untold.append(
            Untold(
                event: event, instant: now, time: wallClock, status: status,
                address: status.endpoint.map { address(of: $0) }, eventAddress: eventAddress,
                liveness: session.machine.liveness, credentialEnd: credentialEnd,
                room: session.rooms.membership?.room.name))
        if case .qualityChanged(let quality) = event { tellQuality(quality) }
    }

    func tellLater() {
        let isHurrying = link?.isDialed == true && session.machine.status.state != .connected
        guard untold.tellLater(isHurrying: isHurrying, at: now) else { return }
        eventLoop.execute { self.assumeIsolated { $0.tell() } }
    }

    /// Tells everything that is not told yet.
    func tell() {
        for report in untold.take() {
            log.tell(
                report.event, status: report.status, endpoint: report.address?.description, remedies: remedies,
                at: report.instant)
            surroundings.report(name, event(report))
        }
    }

    private func event(_ report: Untold) -> SessionEvent {
        let status = report.status
        var event = event(.stateChanged)
        event.time = report.time
        event.room = report.room
        switch report.event {
        case .stateChanged(let from, let lasted):
            if from == status.state, status.phase != nil { event.event = .phaseChanged }
            event.from = .init(from)
            if from != status.state { event.lasted = lasted.seconds }
            event.state = status.state
            event.phase = status.phase
            event.mode = status.mode
            event.resumed = status.resumed
            event.attempt = status.attempt
            event.retryIn = status.retryAt.map { max(0, report.instant.duration(to: $0).seconds) }
            event.lost = status.isLost
            event.reason = reason(status.reason)
            event.endpoint = report.address?.description
            event.path = status.path.map { .init($0) }
        case .reconnectStarted(let mode):
            event.event = .reconnectStarted
            event.mode = mode
            event.reason = reason(status.reason)
        case .reconnectCompleted(let mode, let outage):
            event.event = .reconnectCompleted
            event.mode = mode
            event.outage = outage?.seconds
            event.reason = reason(status.reason)
        case .connectionLost(let outage):
            event.event = .connectionLost
            event.outage = outage.seconds
            event.reason = reason(status.reason)
        case .qualityChanged(let quality):
            event.event = .qualityChanged
            event.quality = quality
            event.rtt = report.liveness?.roundTrip?.seconds
            event.jitter = report.liveness?.jitter?.seconds
        case .pathChanged(let pathClass, _, _, let path):
            event.event = .pathChanged
            event.change = pathClass.rawValue
            event.endpoint = report.eventAddress?.description
            event.path = path.map { .init($0) }
        case .credentialExpiring:
            event.event = .credentialExpiring
            event.expires = report.credentialEnd
        }
        return event
    }
}
