import ControlAPI

/// The state of a session in words.
enum StatusText {
    /// Returns one sentence: the state, since when, why, what comes next and when.
    static func sentence(for status: SessionStatus, now: Timestamp) -> String {
        sentence(for: status, times: TimeText(now: now))
    }

    static func sentence(for status: SessionStatus, times: TimeText) -> String {
        let span = times.span(since: status.since)
        let name = status.session
        let text =
            switch status.state {
            case .connected:
                "\(name) is connected\(target(status, "to"))\(via(status)) \(span)\(condition(status))"
            case .connecting, .reconnecting:
                if status.phase == .waitingForNetwork, status.reason?.code == "network-not-allowed" {
                    "\(name) is \(status.state.rawValue): no network that it may use \(span)\(because(status));"
                        + " it connects as soon as one leads to the server"
                } else if status.phase == .waitingForNetwork {
                    "\(name) is \(status.state.rawValue): no network \(span);"
                        + " it connects as soon as there is a route"
                } else {
                    "\(name) has been \(status.state.rawValue) \(span)\(because(status));"
                        + " \(activity(status, times))"
                }
            case .disconnecting:
                "\(name) is disconnecting\(because(status)); it sends what is in flight first"
            case .disconnected:
                "\(name) has been disconnected \(span)\(because(status))"
                    // A reload has ended it: either it is gone, or it connects again with its new settings.
                    + (status.reason?.code == "configuration-changed" ? "" : "; \(remedy(status, "connects it"))")
            case .failed:
                "\(name) failed \(times.moment(status.since))\(because(status)); \(remedy(status, "tries again"))"
            }
        let old =
            status.configurationError == nil ? "" : "; its file has errors, so it keeps its previous configuration"
        let refusing =
            (status.tlsFilesError == nil
                ? "" : "; its TLS files could not be used the last time, so it uses those from before")
            + (status.presenceRefused == nil ? "" : "; it is not announced in its room")
            + (status.storeFailure == nil ? "" : "; published messages cannot be stored")
            + (status.readFailure == nil ? "" : "; messages on disk cannot be read") + quarantined(status)
        return printable(text + old + refusing) + "."
    }

    private static func quarantined(_ status: SessionStatus) -> String {
        let count = status.outbox.quarantined
        guard count > 0 else { return "" }
        let messages = count == 1 ? "1 rejected message is" : "\(count) rejected messages are"
        return "; \(messages) quarantined: holdfastctl queue \(status.session)"
    }

    /// Whether the session does not connect until a person or a change makes it.
    static func isStopped(_ status: SessionStatus) -> Bool {
        switch status.state {
        case .failed: true
        case .disconnected: !["idle", "configuration-changed"].contains(status.reason?.code)
        case .connecting, .connected, .reconnecting, .disconnecting: false
        }
    }

    /// Returns a sentence about all sessions, for example
    /// `5 sessions: 4 connected, 1 reconnecting (edge-2: dns-failed)`.
    ///
    /// - Parameter creation: how to create a session.
    static func overview(of sessions: [SessionStatus], creation: String) -> String {
        guard !sessions.isEmpty else { return "No session is configured; \(creation)." }
        let order: [SessionState] = [
            .connected, .connecting, .reconnecting, .disconnecting, .disconnected, .failed,
        ]
        let parts = order.compactMap { state -> String? in
            let members = sessions.filter { $0.state == state }
            guard !members.isEmpty else { return nil }
            guard state != .connected else { return "\(members.count) connected" }
            let named = members.prefix(3).map { status in
                "\(status.session): \(status.reason?.code ?? status.phase?.rawValue ?? "no reason")"
            }
            let rest = members.count > 3 ? ", and \(members.count - 3) more" : ""
            return "\(members.count) \(state.rawValue) (\(named.joined(separator: ", "))\(rest))"
        }
        let count = sessions.count == 1 ? "1 session" : "\(sessions.count) sessions"
        return printable("\(count): \(parts.joined(separator: ", "))") + "."
    }

    /// Returns a sentence about files that the daemon has not read as they are now; `nil` if there are none.
    ///
    /// - Parameters:
    ///   - paths: the files.
    ///   - session: the session whose files matter, besides that of the daemon; `nil` for all.
    static func changedFiles(_ paths: [String], of session: String?) -> String? {
        let wanted = session.map { session in
            [session, session.prefix { $0 != "@" } + "@"].map { "/sessions.d/\($0).toml" }
        }
        let names = paths.filter { path in
            wanted.map { isDaemonFile(path) || $0.contains(where: path.hasSuffix) } ?? true
        }.map { path in
            let name = String(path.split(separator: "/").last ?? "")
            // A session may be called "holdfast".
            return name == "holdfast.toml" && !isDaemonFile(path) ? "sessions.d/\(name)" : name
        }
        guard !names.isEmpty else { return nil }
        return printable(
            "\(listed(names)) \(names.count == 1 ? "has" : "have") changed since the daemon read its configuration: "
                + "holdfastctl reload")
    }

    /// Whether a file of the configuration is the daemon's own.
    static func isDaemonFile(_ path: String) -> Bool {
        path.hasSuffix("/holdfast.toml") && !path.hasSuffix("/sessions.d/holdfast.toml")
    }

    /// - Parameter error: what is wrong with the daemon's own file.
    static func unusable(_ error: String) -> String {
        printable("the daemon would not start again: \(error); correct that, then holdfastctl reload")
    }

    private static func target(_ status: SessionStatus, _ preposition: String) -> String {
        status.endpoint.map { " \(preposition) \($0)" } ?? ""
    }

    private static func via(_ status: SessionStatus) -> String {
        status.path.map { " via \($0.interface)" } ?? ""
    }

    private static func condition(_ status: SessionStatus) -> String {
        switch status.doubt {
        case .pathLost:
            return ", but the route to it is gone; the connection is kept for a few seconds in case the route returns"
        case .probing: return ", but the network changed; the server is being probed"
        case nil: break
        }
        var text = status.rtt.map { ", RTT \(TimeText.duration($0))" } ?? ""
        switch status.quality {
        case .poor: text += ", but the connection is poor"
        case .lost:
            let heard = status.lastHeard.map { " for \(TimeText.duration($0))" } ?? ""
            text += ", but nothing has been heard from the server\(heard)"
        case .excellent, .good, nil: break
        }
        let refused = status.subscriptions.filter { $0.state == .refused }
        if let first = refused.first {
            let what = refused.count == 1 ? "the subscription to \(first.filter)" : "\(refused.count) subscriptions"
            // Without a code, the session may not have asked.
            text += first.reasonCode == nil ? ", but without \(what)" : ", but the server refuses \(what)"
        }
        return text
    }

    private static func because(_ status: SessionStatus) -> String {
        status.reason.map { ": \($0.message)" } ?? ""
    }

    private static func activity(_ status: SessionStatus, _ times: TimeText) -> String {
        let attempt = status.attempt > 0 ? " (attempt \(status.attempt))" : ""
        switch status.phase {
        case .waiting:
            let number = status.attempt > 0 ? " \(status.attempt)" : ""
            return status.retryIn.map { "retry\(number) \(times.later($0))" } ?? "retry\(number) follows"
        case .resolving where status.awaitsTurn == true:
            return "it is waiting for its turn to run the program that has its password\(attempt)"
        case .resolving where status.awaitsCredential == true:
            return "it is waiting for the program or file that has its password\(attempt)"
        case .resolving: return "it is looking up the name\(target(status, "of"))\(attempt)"
        case .dialing: return "it is opening a connection\(target(status, "to"))\(attempt)"
        case .securing: return "it is negotiating TLS\(target(status, "with"))\(attempt)"
        case .authenticating: return "it is logging in\(target(status, "to"))\(attempt)"
        case .restoring: return "it is restoring subscriptions and messages\(target(status, "at"))\(attempt)"
        case .waitingForNetwork, nil: return "an attempt follows"
        }
    }

    /// What the user can do: the reason's hint, if it has one.
    private static func remedy(_ status: SessionStatus, _ effect: String) -> String {
        status.reason?.hint ?? "holdfastctl connect \(status.session) \(effect)"
    }
}
