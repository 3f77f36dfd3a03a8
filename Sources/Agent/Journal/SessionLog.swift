import ControlAPI
import Logging
import MQTT
import SessionCore
import Systemd
import Transport

/// What a session writes to the journal: one line when it is lost, one when it is back, and in between a summary after
/// 1, 5 and 15 minutes and then every 60 minutes. While it is connected, only what is out of the ordinary.
struct SessionLog {
    private let session: SessionName
    private let logger: Logger
    /// Since when the session has been trying to connect; `nil` when it is not.
    private var tryingSince: Instant?
    /// How many summaries were written since then.
    private var summaries = 0
    private var pacers: [Paced: JournalPacer] = [:]
    private var refusals = HourlyCount()
    /// How often the credential was renewed. The first renewal is reported, since it shows that renewing works; later
    /// ones are not, since a token may last only seconds.
    private var renewals = 0
    /// The filters reported as refused.
    private var refusedFilters: Set<String> = []
    /// The shortfalls last reported: what was granted less than requested.
    private var toldShortfalls: [String] = []
    private var lastTLSFailure: TransportFailure?
    private var lastAvoided: String?
    /// Why the room could not be checked, since the session was lost.
    private var lastFailedLook: String?
    /// Where the session was connected to, for the line that says it was lost.
    private var lastEndpoint: String?
    private var lastInterface: String?

    /// Entries that programs, publishers or the server can cause in any number. The first few of a kind in a minute are
    /// written, and then how many more there were.
    private enum Paced: Hashable {
        case requested, credential, filterReplaced, publicationRefused, presenceRefused, subscriptionRefused
        case subscriptionGranted, inbox, quarantined, dropped

        var entry: (level: Logger.Level, id: MessageID?) {
            switch self {
            case .requested: (.info, nil)
            case .credential: (.notice, .credentialExpiring)
            case .filterReplaced, .subscriptionGranted: (.notice, nil)
            case .publicationRefused, .presenceRefused, .inbox: (.warning, nil)
            case .subscriptionRefused: (.warning, .subscriptionRefused)
            case .quarantined: (.warning, .itemQuarantined)
            case .dropped: (.warning, .messageDropped)
            }
        }

        func summary(_ count: Int) -> String {
            func more(_ one: String, _ many: String) -> String { "\(count) more \(count == 1 ? one : many)" }
            let what =
                switch self {
                case .requested: more("change that was asked for was made", "changes that were asked for were made")
                case .credential: more("credential was about to expire", "credentials were about to expire")
                case .filterReplaced:
                    more("change of a durable consumer's filter", "changes of durable consumers' filters")
                case .publicationRefused:
                    more("publication was refused", "publications were refused")
                case .presenceRefused:
                    more("announcement was refused", "announcements were refused")
                case .subscriptionRefused:
                    more("subscription was refused", "subscriptions were refused")
                case .subscriptionGranted: more("subscription was granted", "subscriptions were granted")
                case .inbox: more("time the inbox was full, or had room", "times the inbox was full, or had room")
                case .quarantined: more("message was quarantined", "messages were quarantined")
                case .dropped: more("message was dropped", "messages were dropped")
                }
            return "\(what) within a minute"
        }
    }

    init(session: SessionName, logger: Logger) {
        self.session = session
        self.logger = logger
    }

    mutating func tell(
        _ event: SessionMachine.Event, status: SessionMachine.Status, endpoint: String?, remedies: Remedies,
        at now: Instant
    ) {
        switch event {
        case .stateChanged(let from, _):
            tell(from: from, status: status, endpoint: endpoint, remedies: remedies, at: now)
        case .reconnectCompleted(let mode, let outage):
            guard isWritten(status, at: now) else { break }
            write(
                status.reason.code == .credentialRenewed && renewals > 1 ? .debug : .info, .sessionConnected,
                status: status,
                endpoint: endpoint,
                "connected again to \(endpoint ?? "the server")"
                    + (outage.map { " after \(Self.text($0))" } ?? ": \(status.reason.message)")
                    + ", \(mode.rawValue) reconnect",
                [.mode: mode.rawValue, .previousState: SessionState.reconnecting.rawValue]
                    .merging(outage.map { [.outage: "\($0.nanoseconds / 1000)"] } ?? [:]) { $1 })
        case .pathChanged(let pathClass, _, _, _):
            logger.debug(
                "\(session): path \(pathClass.rawValue)",
                metadata: metadata(.pathChanged, status: status, endpoint: endpoint, [.pathClass: pathClass.rawValue]))
        case .credentialExpiring(let end):
            let when =
                now < end
                ? "the credential expires in \(Self.text(now.duration(to: end)))"
                : "the credential expired \(Self.text(end.duration(to: now))) ago"
            if remedies.renewsCredential {
                renewals += 1
                write(
                    now < end && renewals > 1 ? .debug : .notice, .credentialExpiring, status: status,
                    endpoint: endpoint, "\(when) and is being renewed", [:])
            } else if isWritten(.credential, at: now) {
                write(
                    .notice, .credentialExpiring, status: status, endpoint: endpoint,
                    "\(when): the program that supplied it must supply another one with session.renewToken", [:])
            }
        case .reconnectStarted, .connectionLost, .qualityChanged:
            break
        }
    }

    private mutating func tell(
        from: SessionState, status: SessionMachine.Status, endpoint: String?, remedies: Remedies, at now: Instant
    ) {
        if status.state == .connected {
            lastEndpoint = endpoint
            lastInterface = status.path?.interface
            lastFailedLook = nil
        }
        let previous = [JournalFieldName.previousState: from.rawValue]
        switch (from, status.state) {
        case (.connecting, .connected):
            tryingSince = nil
            guard isWritten(status, at: now) else { return }
            write(
                .info, .sessionConnected, status: status, endpoint: endpoint,
                "connected to \(endpoint ?? "the server")" + (status.resumed == true ? ", session resumed" : ""),
                previous.merging([.mode: (status.resumed == true ? ReconnectMode.quick : .full).rawValue]) { $1 })
        case (_, .connected):
            tryingSince = nil
        case (.connected, .reconnecting) where Self.isPlanned(status):
            begin(at: now)
            write(.debug, nil, status: status, endpoint: endpoint, "reconnecting: \(status.reason.message)", previous)
        case (.connected, .reconnecting):
            begin(at: now)
            write(
                .warning, .sessionLost, status: status, endpoint: lastEndpoint, "lost: \(status.reason.message)",
                previous.merging(Self.retry(status, at: now)) { $1 }
                    .merging(lastInterface.map { [.interface: $0] } ?? [:]) { $1 })
        case (_, .failed):
            tryingSince = nil
            write(
                .error, Self.failure(status.reason.code), status: status, endpoint: endpoint,
                "failed (\(status.reason.code.rawValue)): \(status.reason.message)"
                    + (remedies.hint(for: status.reason).map { "; \($0)" } ?? ""), previous)
        case (_, .disconnected):
            tryingSince = nil
            guard from != .disconnected, isWritten(status, at: now) else { return }
            write(.info, nil, status: status, endpoint: endpoint, "disconnected: \(status.reason.message)", previous)
        case (_, .connecting), (_, .reconnecting):
            if tryingSince == nil { begin(at: now) }
            summarize(status: status, at: now)
        case (_, .disconnecting):
            tryingSince = nil
        }
    }

    /// Whether the session left its connection on its own, for a better one. A moved path counts as that if the next
    /// connection is already open, and as a loss otherwise.
    private static func isPlanned(_ status: SessionMachine.Status) -> Bool {
        switch status.reason.code {
        case .credentialRenewed, .returning, .switchRoom, .inboxRoom, .otherVersion, .userReconnect, .serverMoved: true
        case .pathMoved: status.phase == .authenticating
        default: false
        }
    }

    /// The message id of a failure; some kinds have their own text in the journal's catalog.
    private static func failure(_ code: Reason.Code) -> MessageID {
        switch code.group {
        case .displaced: .displaced
        case .auth: .credentialRejected
        default: .failed
        }
    }

    private mutating func begin(at now: Instant) {
        tryingSince = now
        summaries = 0
    }

    /// When the summary after that many others is due, from the beginning on.
    private static func summaryTime(after count: Int) -> Duration {
        let first = [1, 5, 15]
        return .seconds(60 * (count < first.count ? first[count] : 60 * (count - first.count + 1)))
    }

    /// Writes a summary if one is due. If a session was never up, its first failure is reported at once.
    private mutating func summarize(status: SessionMachine.Status, at now: Instant) {
        guard let tryingSince else { return }
        var due = summaries
        while tryingSince.advanced(by: Self.summaryTime(after: due)) <= now { due += 1 }
        let isFirstFailure = status.state == .connecting && summaries == 0 && status.phase.map(Self.isPause) ?? false
        guard due > summaries || isFirstFailure else { return }
        summaries = due
        if isFirstFailure { summaries = max(summaries, 1) }
        let attempts = status.attempt - (status.phase.map(Self.isPause) ?? false ? 1 : 0)
        let wait = status.retryAt.map { retry in
            let pause = now.duration(to: retry)
            return pause < .milliseconds(50) ? ", next attempt at once" : ", next attempt in \(Self.text(pause))"
        }
        write(
            .notice, .stillTrying, status: status, endpoint: nil,
            (attempts > 0 ? "not connected after \(attempts) attempt\(attempts == 1 ? "" : "s"): " : "not connected: ")
                + "\(status.reason.message)\(wait ?? "")",
            Self.retry(status, at: now).merging([.attempt: String(max(0, attempts))]) { $1 })
    }

    private static func isPause(_ phase: Phase) -> Bool { phase == .waiting || phase == .waitingForNetwork }

    mutating func tlsFilesRejected(_ failure: TransportFailure) {
        guard failure != lastTLSFailure else { return }
        lastTLSFailure = failure
        say(.warning, "\(failure.message); the previous ones stay in use")
    }

    mutating func addressesAvoided(_ which: String, because why: String) {
        guard which != lastAvoided else { return }
        lastAvoided = which
        say(.warning, "from now on, other addresses of that name are dialed before \(which): \(why)")
    }

    mutating func presenceRefused(_ answer: ServerAnswer, at now: Instant) {
        let what = answer.code == nil ? "the session is not announced" : "the server refused to announce the session"
        say(.presenceRefused, "\(what) in its room: \(answer.words)", at: now)
    }

    mutating func presenceKept(_ topic: String, _ answer: ServerAnswer, at now: Instant) {
        let what = answer.code == nil ? "\(topic) is not cleared" : "the server refused to clear \(topic)"
        // A server that was not asked is not the last one that may be.
        let byHand = if case .notAsked = answer { "" } else { " by hand" }
        say(
            .presenceRefused,
            "\(what): \(answer.words); others in that room may see the session there until it is cleared\(byHand)",
            at: now)
    }

    mutating func publicationRefused(_ topic: String, _ answer: ServerAnswer, at now: Instant) {
        let isOwn = answer.code == nil
        let what = isOwn ? "\(topic) is not published, or not cleared" : "the server refused the publication \(topic)"
        say(.publicationRefused, "\(what): \(answer.words)", at: now)
    }

    func unknownSession() {
        say(
            .warning,
            "the server has a session of this client that is not known here: the state was lost, or another program, or this session with another configuration, was this client before; it is discarded, with the messages that the server has kept in it"
        )
    }

    /// The configuration no longer has the session, or its servers.
    func leftBehind(_ sentence: String) {
        say(
            .warning,
            "the server cannot have received the session's last disconnect: \(sentence); to send it, put the session's file back as it was, connect, and disconnect"
        )
    }

    /// A program has given a durable consumer another filter, perhaps by mistake.
    mutating func filterReplaced(of consumer: ConsumerName, _ old: String, by new: String, at now: Instant) {
        say(
            .filterReplaced,
            "a program gave the durable consumer \(consumer) the filter \(new); before, it had \(old)", at: now)
    }

    /// A subscription that is granted as requested is not reported.
    mutating func subscriptionChanged(
        _ subscription: SessionStatus.Subscription, ofConsumers consumers: [ConsumerName], at now: Instant
    ) {
        let filter = subscription.filter
        switch subscription.state {
        case .pending: return
        case .refused:
            // One that no program has any more is never granted again, and there may be any number of these.
            if subscription.retryAt != nil { refusedFilters.insert(filter) }
            let names = consumers.map(\.description).joined(separator: ", ")
            let who = consumers.isEmpty ? "" : ", and nothing new arrives for the durable consumer \(names)"
            let next =
                switch (subscription.since, subscription.retryAt) {
                case (let since?, let retry?) where retry.rawValue - since.rawValue > 600_000:
                    "each request for it cost a connection, so it is made again only every hour"
                case (_, nil): "it is requested again when a program subscribes"
                default: "it is requested again every 10 min and at every reconnect"
                }
            let what =
                subscription.reasonCode == nil
                ? "there is no subscription to \(filter)" : "the server refuses the subscription to \(filter)"
            say(.subscriptionRefused, "\(what)\(who): \(subscription.message ?? ""); \(next)", at: now)
        case .granted:
            let wasRefused = refusedFilters.remove(filter) != nil
            guard let granted = subscription.grantedQoS else { return }
            if granted.rawValue < subscription.qos.rawValue {
                let lower = "QoS \(granted.rawValue), not \(subscription.qos.rawValue)"
                say(
                    .subscriptionGranted, "the server grants the subscription to \(filter) with \(lower)", at: now)
            } else if wasRefused {
                say(.subscriptionGranted, "the server grants the subscription to \(filter) again", at: now)
            }
        }
    }

    /// Reports what the server grants less of than was requested, and again only when that changes.
    mutating func grants(_ shortfalls: [String]) {
        guard shortfalls != toldShortfalls else { return }
        toldShortfalls = shortfalls
        guard !shortfalls.isEmpty else {
            say(.notice, "the server now grants everything that was requested")
            return
        }
        say(.notice, "the server grants less than was requested: \(shortfalls.joined(separator: "; "))")
    }

    mutating func inboxFull(_ isFull: Bool, at now: Instant) {
        say(
            .inbox,
            isFull
                ? "the inbox is full: the server's messages are not acknowledged until a consumer takes some"
                : "the inbox has room again", at: now)
    }

    func serverLowersQoS() {
        say(
            .warning,
            "the server acknowledges messages of QoS 2 like those of QoS 1: one may arrive twice after an outage")
    }

    /// The beginning of the line that ``cannotLook(_:)`` writes. The simulation looks for it.
    static let failedLook = "the room cannot be checked for other devices of the user"

    /// Every attempt looks.
    mutating func cannotLook(_ sentence: String) {
        say(sentence == lastFailedLook ? .debug : .notice, "\(Self.failedLook): \(sentence)")
        lastFailedLook = sentence
    }

    mutating func quarantined(_ sequence: MessageSequence, _ sentence: String, at now: Instant) {
        say(.quarantined, "message \(sequence.rawValue) is quarantined: \(sentence)", at: now)
    }

    /// Happens at most once for each session that a server loses.
    func repeated(_ count: Int) {
        say(
            .notice,
            "the session at the server ended before it had confirmed \(count) of the messages of QoS 2: they are sent again, and may arrive twice"
        )
    }

    /// Any publisher can cause any number of these, so one an hour is written.
    mutating func refused(_ message: MQTTClientMachine.RefusedMessage, at now: Instant) {
        guard let unwritten = refusals.take(at: now) else { return }
        let sentence =
            "a message from the server cannot be used and is set aside: topic \(quoted(message.topic)), "
            + message.flaw.message + (unwritten == 0 ? "" : ", and \(unwritten) more since the last such entry")
        say(.warning, sentence, .messageRefused)
    }

    mutating func dropped(_ sentence: String, at now: Instant) { say(.dropped, sentence, at: now) }

    // MARK: Summaries

    var nextDeadline: Instant? {
        let summary = tryingSince.map { $0.advanced(by: Self.summaryTime(after: summaries)) }
        return (pacers.values.map(\.nextDeadline) + [summary]).compactMap(\.self).min()
    }

    /// - Parameter status: the present one, which may not have been told yet.
    mutating func timeReached(at now: Instant, status: SessionMachine.Status) {
        if status.state == .connecting || status.state == .reconnecting {
            summarize(status: status, at: now)
        } else {
            tryingSince = nil
        }
        for (kind, pacer) in pacers where pacer.nextDeadline.map({ $0 <= now }) ?? false {
            let count = pacers[kind]?.summary() ?? 0
            let state = kind == .requested ? "; it is \(status.state.rawValue) now" : ""
            say(kind.entry.level, kind.summary(count) + state, kind.entry.id)
        }
    }

    // MARK: Pace

    private mutating func isWritten(_ kind: Paced, at now: Instant) -> Bool {
        pacers[kind, default: JournalPacer()].take(at: now) == .write
    }

    /// Whether a change of state is written. Programs can ask for any number of them.
    private mutating func isWritten(_ status: SessionMachine.Status, at now: Instant) -> Bool {
        switch status.reason.code {
        case .userConnect, .userDisconnect, .userReconnect, .switchRoom, .credentialRenewed:
            isWritten(.requested, at: now)
        default: true
        }
    }

    private mutating func say(_ kind: Paced, _ text: String, at now: Instant) {
        guard isWritten(kind, at: now) else { return }
        say(kind.entry.level, text, kind.entry.id)
    }

    // MARK: Fields

    private var identity: Logger.Metadata { ["HOLDFAST_SESSION": "\(session)"] }

    private func say(_ level: Logger.Level, _ text: String, _ id: MessageID? = nil) {
        let metadata = id.map { identity.merging(["MESSAGE_ID": "\($0)"]) { $1 } } ?? identity
        logger.log(level: level, "\(session): \(text)", metadata: metadata)
    }

    private func write(
        _ level: Logger.Level, _ id: MessageID?, status: SessionMachine.Status, endpoint: String?, _ text: String,
        _ fields: [JournalFieldName: String]
    ) {
        logger.log(
            level: level, "\(session): \(text)",
            metadata: metadata(id, status: status, endpoint: endpoint, fields))
    }

    /// Returns when the next attempt is due, as a field.
    private static func retry(_ status: SessionMachine.Status, at now: Instant) -> [JournalFieldName: String] {
        guard let retryAt = status.retryAt else { return [:] }
        return [.retry: String(max(0, now.duration(to: retryAt).nanoseconds) / 1000)]
    }

    private func metadata(
        _ id: MessageID?, status: SessionMachine.Status, endpoint: String?, _ fields: [JournalFieldName: String]
    ) -> Logger.Metadata {
        var metadata = identity
        func set(_ name: JournalFieldName, _ value: String?) {
            if let value { metadata[name.description] = .string(value) }
        }
        set(.messageID, id?.description)
        set(.state, status.state.rawValue)
        set(.reason, status.reason.code.rawValue)
        set(.errno, status.reason.systemError.map(String.init))
        set(.mode, status.mode?.rawValue)
        set(.endpoint, endpoint)
        set(.interface, status.path?.interface)
        set(.attempt, status.attempt > 0 ? String(status.attempt) : nil)
        for (name, value) in fields { set(name, value) }
        return metadata
    }

    /// Returns a duration in words for people: `0.3 s`, `41 s`, `12 min`, `3 h`.
    static func text(_ duration: Duration) -> String {
        let seconds = max(0, duration.seconds)
        if seconds < 0.05 { return "less than 0.1 s" }
        if seconds < 10 { return "\((seconds * 10).rounded() / 10) s" }
        if seconds < 120 { return "\(Int(seconds.rounded())) s" }
        if seconds < 7200 { return "\(Int((seconds / 60).rounded())) min" }
        return "\(Int((seconds / 3600).rounded())) h"
    }
}
