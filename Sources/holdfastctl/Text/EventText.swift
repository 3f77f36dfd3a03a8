import ControlAPI

/// An event in one line, for example
/// `09:12:44.120 main connected → reconnecting (quick) heartbeat-timeout`.
enum EventText {
    /// - Parameter offset: seconds that the local clock is ahead of UTC.
    static func line(_ event: SessionEvent, offset: Int64) -> String {
        let subject = event.session.map { " \($0)" } ?? ""
        return printable(event.time.time(offset: offset) + subject + " " + what(event))
    }

    private static func what(_ event: SessionEvent) -> String {
        switch event.event {
        case .stateChanged, .phaseChanged: stateChange(event)
        case .roomChanged: words(["room", event.previousRoom, event.previousRoom == nil ? nil : "→", event.room])
        case .publicationChanged:
            words([
                "publication", event.topic, event.publication?.rawValue,
                (event.message ?? event.reasonCode.map(serverCode)).map { "(\($0))" },
            ])
        case .connectionLost:
            words(["connection lost", event.outage.map { "for \(TimeText.duration($0))" }, event.reason?.code])
        case .reconnectStarted:
            words(["reconnect started", event.mode.map { "(\($0.rawValue))" }, event.reason?.code])
        case .reconnectCompleted:
            words([
                "reconnect completed", event.mode.map { "(\($0.rawValue))" },
                event.outage.map { "after \(TimeText.duration($0))" },
            ])
        case .displaced:
            words(["displaced by another device", event.reason.map { "(\($0.code))" }])
        case .credentialExpiring:
            words(["credential expires", event.expires.map { "at \($0)" }])
        case .qualityChanged:
            words(["quality", event.quality?.rawValue, event.rtt.map { "RTT \(TimeText.duration($0))" }])
        case .pathChanged:
            words(["path", event.change ?? "changed", event.path.map { "via \($0.interface) from \($0.source)" }])
        case .participantJoined: words([event.user, event.device.map { "(\($0))" }, "joined"])
        case .participantLeft:
            words([event.user, event.device.map { "(\($0))" }, event.cause == .lost ? "is lost" : "left"])
        case .participantChanged:
            words([event.user, event.device.map { "(\($0))" }, "has quality", event.quality?.rawValue])
        case .messageRejected:
            words([
                "message", event.id.map { "\($0)" }, event.topic, "rejected",
                event.reasonCode.map { "(\(serverCode($0)))" },
            ])
        case .subscriptionChanged: event.subscription.map(subscription) ?? event.event.rawValue
        case .messageDropped where event.count != nil: "\(event.count ?? 0) messages dropped"
        case .messageDropped:
            words([
                "message", event.id.map { "\($0)" }, event.topic, "dropped", event.reason.map { "(\($0.code))" },
            ])
        case .sessionDiscarded:
            "the server had a session that is not known here: it is discarded, with the messages kept in it"
        case .messageRepeated: "\(event.count ?? 0) messages of QoS 2 are sent again, and may arrive twice"
        case .messageRefused: words(["message refused", event.topic, event.reason.map { "(\($0.message))" }])
        case .inboxFull: event.full == false ? "inbox has room again" : "inbox full"
        case .sessionRemoved: "removed from the configuration"
        case .dropped: missing(event.count)
        default: event.event.rawValue
        }
    }

    /// What a reader missed that did not read fast enough.
    static func unread(_ count: Int) -> String { "\(count) events were dropped because too much was unread" }

    /// - Parameter count: how many; `nil` if that is not known.
    private static func missing(_ count: Int?) -> String {
        let events = count.map { $0 == 1 ? "1 event is" : "\($0) events are" } ?? "some events are"
        return "\(events) missing: too old, or dropped because too much was unread"
    }

    private static func subscription(_ subscription: SessionStatus.Subscription) -> String {
        switch subscription.state {
        case .pending: "subscription to \(subscription.filter) not answered yet"
        case .granted: "subscription to \(subscription.filter) granted, QoS \(subscription.grantedQoS?.rawValue ?? 0)"
        case .refused: "subscription to \(subscription.filter) refused: \(subscription.message ?? "no reason")"
        }
    }

    private static func stateChange(_ event: SessionEvent) -> String {
        let state = event.state?.rawValue
        let isSame = event.from != nil && event.from == event.state
        let change = isSame ? state : words([event.from?.rawValue, event.from == nil ? nil : "→", state])
        let mode = event.mode.map { "(\($0.rawValue))" }
        let phase = event.phase.map { phase in
            let attempt = event.attempt.flatMap { $0 > 0 && phase != .waitingForNetwork ? " \($0)" : nil } ?? ""
            if phase == .waiting, let retryIn = event.retryIn {
                return "retry\(attempt) in \(TimeText.duration(retryIn))"
            }
            return attempt.isEmpty ? phase.rawValue : "\(phase.rawValue), attempt\(attempt)"
        }
        let resumed = event.state == .connected ? event.resumed.map { $0 ? "(resumed)" : "(new session)" } : nil
        return words([change, mode, resumed, phase, event.reason?.code])
    }

    private static func words(_ parts: [String?]) -> String {
        parts.compactMap { $0 }.filter { !$0.isEmpty }.joined(separator: " ")
    }
}
