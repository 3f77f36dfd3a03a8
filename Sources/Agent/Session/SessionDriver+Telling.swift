import Configuration
import ControlAPI
import Logging
import MQTT
import NIOCore
import Session
import SessionCore

// Telling watchers, the journal and the history what happened. This takes longer than dialing and must not delay the
// reconnect, so while an attempt is in a hurry, the session machine's reports are told a moment later, with their
// original times. Documentation/decisions/0018-dialing-comes-first.md says what that gains. What happens to messages is
// told at once, after everything that happened before.

/// Reports that are held back, in order, and when to tell them.
struct UntoldReports {
    private enum Time {
        /// As soon as the loop has done everything that it was asked to do before.
        case soon
        /// When the attempt has had its time undisturbed.
        case later(Instant)
    }

    /// How long an attempt is left undisturbed.
    static let hurry = Duration.milliseconds(5)

    private var reports: [Report] = []
    private var time: Time?

    var isEmpty: Bool { reports.isEmpty }
    var nextDeadline: Instant? { if case .later(let time)? = time { time } else { nil } }

    mutating func append(_ report: Report) { reports.append(report) }

    /// - Returns: whether the caller has to ask the loop for a turn to tell the reports.
    mutating func tellLater(isHurrying: Bool, at now: Instant) -> Bool {
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

    mutating func take() -> [Report] {
        defer { self = UntoldReports() }
        return reports
    }
}

extension SessionDriver {
    /// Reports an event that happened now, after everything that happened before.
    ///
    /// - Parameter fill: sets what the event has besides the session and the time.
    func report(_ kind: SessionEvent.Kind, _ fill: (inout SessionEvent) -> Void) {
        var event = event(kind)
        fill(&event)
        tell()
        surroundings.report(name, event)
    }

    /// Keeps a report of the session machine, to be told to watchers and the journal.
    func note(_ report: Report) {
        if case .stateChanged(let from, _) = report.event, from != report.status.state { since = report.time }
        untold.append(report)
    }

    func tellLater() {
        guard !untold.isEmpty else { return }
        guard untold.tellLater(isHurrying: ask { $0.isHurrying }, at: now) else { return }
        eventLoop.execute { self.assumeIsolated { $0.tell() } }
    }

    /// Tells all reports that were held back.
    func tell() {
        for report in untold.take() {
            log.tell(
                report.event, status: report.status, endpoint: report.address?.description, remedies: remedies,
                at: report.instant)
            surroundings.report(name, event(report))
        }
    }

    private func event(_ report: Report) -> SessionEvent {
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

    func tell(_ news: Session.News) {
        switch news {
        case .accepted(let sequence): accepted(sequence)
        case .notAccepted(let sequence): endPublish(sequence, .failure(.storeFull))
        case .delivered(let sequence, let code): delivered(sequence, code)
        case .rejected(let message): rejected(message)
        case .messageDropped(let message): dropped(message)
        case .newMessageDropped(let topic): report(.outboxFull, nil, topic)
        case .repeated(let count): repeated(count)
        case .messageRefused(let message): refused(message)
        case .serverLowersQoS: log.serverLowersQoS()
        case .inboxFull(let isFull): inboxFull(isFull)
        case .consumerMissed(let consumer):
            log.dropped("the consumer \(consumer) is full: its oldest messages are dropped", at: now)
        case .subscriptionChanged(let filter): subscriptionChanged(filter)
        case .subscriptionAnswered(let filter): subscriptionAnswered(filter)
        case .participants(let changes): tell(changes)
        case .roomChanged(let old):
            report(.roomChanged) { $0.previousRoom = old?.name }
        case .presenceRefused(let answer): log.presenceRefused(answer, at: now)
        case .presenceKept(let topic, let answer): log.presenceKept(topic, answer, at: now)
        case .publicationChanged(let change):
            report(.publicationChanged) {
                $0.topic = change.topic
                $0.publication = change.state
                $0.reasonCode = change.answer?.code.map { Int($0.rawValue) }
                $0.message = change.answer?.words
            }
        case .publicationRefused(let topic, let answer): log.publicationRefused(topic, answer, at: now)
        case .dropped(let count): report(.messageDropped) { $0.count = count }
        case .granted(let grant):
            let isInRoom = session.rooms.membership != nil && configuration.presenceTimeout > .zero
            log.grants(
                grant.shortfalls(
                    from: session.mqtt.configuration, as: session.mqtt.version,
                    inRoom: isInRoom ? (configuration.presenceTimeout, configuration.presence.willDelay) : nil))
        case .unknownSession:
            log.unknownSession()
            report(.sessionDiscarded) { _ in }
        case .olderCopy:
            surroundings.logger.notice(
                """
                \(name): this server has the session as it was before it continued at another server; what it has kept \
                for it since then arrives now, and may have arrived from the other server as well
                """, metadata: metadata)
        case .displaced(let reason):
            report(.displaced) { $0.reason = self.reason(reason) }
        case .cannotLook(let sentence): log.cannotLook(sentence)
        case .credentialNotRenewed(let sentence):
            surroundings.logger.warning("\(name): the credential could not be renewed: \(sentence)", metadata: metadata)
        case .credentialTaken:
            surroundings.logger.debug("\(name): the server has taken the new credential", metadata: metadata)
        case .successorFailed(let sentence):
            surroundings.logger.debug(
                "\(name): no second connection over the new path: \(sentence)", metadata: metadata)
        }
    }

    /// Tells which session a line of the journal is about.
    var metadata: Logger.Metadata { ["HOLDFAST_SESSION": "\(name)"] }
}
