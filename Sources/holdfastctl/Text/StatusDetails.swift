import ControlAPI

/// The details below a session's sentence, in aligned lines.
enum StatusDetails {
    static func lines(for status: SessionStatus, times: TimeText, width: Int? = nil) -> [String] {
        var rows: [(String, String)] = []
        var state = [status.state.rawValue]
        if let resumed = status.resumed { state.append(resumed ? "resumed" : "new session at the server") }
        if let mode = status.mode { state.append(mode.rawValue) }
        if let phase = status.phase { state.append(phase.rawValue) }
        if status.lost { state.append("lost") }
        rows.append(("State", state.joined(separator: ", ") + ", " + times.span(since: status.since)))
        if let reason = status.reason {
            let code = reason.serverCode.map { ", server code \(serverCode($0))" } ?? ""
            let terminal = reason.terminal ? ", terminal" : ""
            // The reason of the present state is in the past once the session is connected: it is no fault.
            let isUp = status.state == .connected
            rows.append(
                (isUp ? "After" : "Reason", "\(reason.code) (\(reason.group)\(code)\(terminal)): \(reason.message)"))
            if let hint = reason.hint, !isUp { rows.append(("Hint", hint)) }
        }
        if let error = status.configurationError { rows.append(("File", "not read: \(error)")) }
        if let error = status.tlsFilesError {
            rows.append(("TLS files", "the previous ones are in use, since the last attempt: \(error)"))
        }
        if let failure = status.storeFailure {
            rows.append(("Store", "published messages cannot be stored: \(failure)"))
        }
        if let failure = status.readFailure { rows.append(("Store", failure)) }
        if let retryIn = status.retryIn {
            rows.append(("Retry", "\(times.later(retryIn)), attempt \(status.attempt)"))
        }
        if let endpoint = status.endpoint {
            let peer = [status.peer, status.tls].compactMap { $0 }.joined(separator: ", ")
            let route = endpoint + (status.proxy.map { " through \($0)" } ?? "")
            rows.append(("Endpoint", peer.isEmpty ? route : "\(route) (\(peer))"))
        }
        if let version = status.protocol {
            let limits = version == "5" ? "" : ": no reasons from the server, no will delay; see holdfast-session(5)"
            rows.append(("Protocol", "MQTT \(version)\(limits)"))
        }
        if let path = status.path {
            let gateway = path.gateway.map { " through \($0)" } ?? ""
            rows.append(("Path", "\(path.interface) (\(path.type)) from \(path.source)\(gateway)"))
        }
        if let network = status.network { rows.append(("Network", only(network))) }
        let identity = [
            status.user.map { "user \($0)" }, status.device.map { "device \($0)" },
            status.clientID.map { "client id \($0)" },
        ].compactMap { $0 }
        if !identity.isEmpty { rows.append(("Identity", identity.joined(separator: ", "))) }
        if let room = status.room {
            let refused = status.presenceRefused.map { ", where the session is not announced: \($0)" }
            rows.append(("Room", room + (refused ?? "")))
        }
        let quality = [
            status.quality?.rawValue, status.rtt.map { "RTT \(TimeText.duration($0))" },
            status.jitter.map { "jitter \(TimeText.duration($0))" },
            status.lastHeard.map { "heard \(TimeText.duration($0)) ago" },
        ].compactMap { $0 }
        if !quality.isEmpty { rows.append(("Quality", quality.joined(separator: ", "))) }
        if let granted = status.granted { rows.append(("Granted", Self.granted(granted))) }
        if let text = subscriptions(status.subscriptions) { rows.append(("Subscribed", text)) }
        for subscription in status.subscriptions where subscription.state == .refused {
            let next = subscription.retryAt.map { ", asked again \(times.later($0))" } ?? ""
            let since = subscription.since.map { " since \(times.moment($0))" } ?? ""
            rows.append(("Refused", "\(subscription.filter)\(since): \(subscription.message ?? "no reason")\(next)"))
        }
        rows.append(("Outbox", outbox(status.outbox, times)))
        if let inbox = inbox(status.inbox) { rows.append(("Inbox", inbox)) }
        for consumer in status.inbox.consumers { rows.append(("Consumer", Self.consumer(consumer))) }
        rows.append(("Counters", counters(status.counters)))
        return Columns.details(rows, width: width)
    }

    private static func only(_ network: SessionStatus.Network) -> String {
        let limits = [network.interfaces, network.types].filter { !$0.isEmpty }.map { $0.joined(separator: ", ") }
        let avoids = network.metered == "avoid" ? ["metered networks only as a last resort"] : []
        return ((limits.isEmpty ? [] : ["only " + limits.joined(separator: " of type ")]) + avoids).joined(
            separator: "; ")
    }

    private static func outbox(_ outbox: SessionStatus.Outbox, _ times: TimeText) -> String {
        if let unknown = outbox.unknown { return "not known: \(unknown)" }
        guard outbox.queued + outbox.inFlight + outbox.quarantined > 0 else { return "empty" }
        var text = "\(outbox.queued) queued, \(outbox.inFlight) in flight, \(TimeText.size(outbox.bytes))"
        if outbox.quarantined > 0 { text += ", \(outbox.quarantined) quarantined" }
        if let oldest = outbox.oldest { text += ", oldest accepted \(times.moment(oldest))" }
        return text
    }

    /// `nil` for a session without durable consumers.
    private static func inbox(_ inbox: SessionStatus.Inbox) -> String? {
        guard !inbox.consumers.isEmpty else { return nil }
        var text = inbox.messages == 0 ? "empty" : "\(inbox.messages) waiting, \(TimeText.size(inbox.bytes))"
        if inbox.withheld > 0 { text += ", \(inbox.withheld) not acknowledged to the server" }
        if inbox.dropped > 0 { text += ", \(inbox.dropped) dropped" }
        return text
    }

    private static func consumer(_ consumer: SessionStatus.Inbox.Consumer) -> String {
        "\(consumer.name): \(consumer.filter), \(consumer.messages) waiting, "
            + (consumer.attached ? "attached" : "no program attached")
            + (consumer.refused.map { ", refused: \($0)" } ?? "")
            + ((consumer.missed ?? 0) > 0 ? ", \(consumer.missed ?? 0) missed because it was full" : "")
    }

    private static func granted(_ granted: SessionStatus.Granted) -> String {
        var parts = [
            granted.sessionExpiry.map {
                $0 == 0 ? "session not kept in an outage" : "session kept for \(TimeText.duration($0))"
            } ?? "session kept indefinitely"
        ]
        if let keepAlive = granted.keepAlive { parts.append("keep-alive \(TimeText.duration(keepAlive))") }
        parts.append("QoS \(granted.maximumQoS.rawValue)" + (granted.maximumQoS == .exactlyOnce ? "" : " at most"))
        parts.append("\(granted.receiveMaximum) messages in flight")
        parts.append("packets up to \(TimeText.size(granted.maximumPacketSize))")
        if !granted.retain { parts.append("no retained messages") }
        if !granted.wildcardSubscriptions { parts.append("no wildcards") }
        return parts.joined(separator: ", ")
    }

    /// `nil` if there are none.
    private static func subscriptions(_ subscriptions: [SessionStatus.Subscription]) -> String? {
        guard !subscriptions.isEmpty else { return nil }
        func count(_ state: SessionStatus.Subscription.State) -> Int { subscriptions.count { $0.state == state } }
        var text = "\(count(.granted)) of \(subscriptions.count) filters"
        if count(.pending) > 0 { text += ", \(count(.pending)) not answered yet" }
        if count(.refused) > 0 { text += ", \(count(.refused)) refused" }
        for subscription in subscriptions {
            guard let granted = subscription.grantedQoS, granted.rawValue < subscription.qos.rawValue else { continue }
            text += ", \(subscription.filter) with QoS \(granted.rawValue) only"
        }
        return text
    }

    private static func counters(_ counters: SessionStatus.Counters) -> String {
        var text = "attempts \(counters.attempts), connects \(counters.connects), resumed \(counters.resumes), "
        text += "outages \(counters.outages)"
        if let longest = counters.longestOutage { text += " (longest \(TimeText.duration(longest)))" }
        text += ", accepted \(counters.published), received \(counters.received)"
        if counters.dropped > 0 { text += ", dropped \(counters.dropped)" }
        return counters.refused > 0 ? text + ", refused \(counters.refused)" : text
    }

    /// The table of `list`.
    ///
    /// - Parameter width: that of the terminal; `nil` if the table is not cut.
    static func table(
        _ sessions: [SessionStatus], times: TimeText, width: Int? = nil, isColoured: Bool = false
    ) -> [String] {
        Columns.table(
            ["SESSION", "STATE", "TIME", "VIA", "RTT", "OUTBOX", "REASON", "ENDPOINT"],
            sessions.map { status in
                let phase = status.phase.map { " (\($0.rawValue))" } ?? ""
                let quarantined = status.outbox.quarantined > 0 ? "+\(status.outbox.quarantined)" : ""
                return [
                    status.session, status.state.rawValue + phase, times.span(since: status.since),
                    status.path?.interface ?? "-", status.rtt.map { TimeText.duration($0) } ?? "-",
                    (status.outbox.unknown == nil ? "\(status.outbox.queued + status.outbox.inFlight)" : "?")
                        + quarantined,
                    // Why it was not connected before is no fault of a connected session.
                    status.state == .connected ? "-" : status.reason?.code ?? "-",
                    status.endpoint ?? "-",
                ]
            }, width: width, marks: isColoured ? sessions.map { Terminal.colour($0.state) } : nil, isLineEach: true)
    }
}
