import ControlAPI

/// All metrics of the daemon at one moment. It does no I/O.
struct MetricsText {
    var status: DaemonStatus
    var sessions: [SessionStatus]
    var events: EventMetrics
    var calls: CallMetrics
    /// How long commits took, in seconds.
    var commits: Histogram?
    var now: Timestamp

    func text(_ format: MetricsFormat) -> String {
        var output = OpenMetricsText(format)
        daemon(&output)
        states(&output)
        connections(&output)
        messages(&output)
        store(&output)
        network(&output)
        socket(&output)
        return output.text
    }

    private func daemon(_ output: inout OpenMetricsText) {
        output.begin("holdfast_build", .info, "The version of the daemon.")
        output.add("_info", [("version", status.version)], 1)
        output.begin("holdfast_start_time_seconds", .gauge, unit: "seconds", "When the daemon was started.")
        output.add("", [], Double(status.since.rawValue) / 1000)
    }

    private func states(_ output: inout OpenMetricsText) {
        output.begin("holdfast_session_connected", .gauge, "Whether the session is connected.")
        for session in sessions { output.add("", own(session), session.state == .connected ? 1 : 0) }
        output.begin(
            "holdfast_session_failed", .gauge, "Whether the session makes no more attempts until something is changed.")
        for session in sessions { output.add("", own(session), session.state == .failed ? 1 : 0) }
        output.begin(
            "holdfast_session_state_seconds", .gauge, unit: "seconds", "How long the session has been in its state.")
        for session in sessions {
            output.add(
                "", own(session) + [("state", session.state.rawValue)], max(0, now.seconds(since: session.since)))
        }
    }

    private func connections(_ output: inout OpenMetricsText) {
        counter("holdfast_session_attempts", "Attempts to connect.", \.counters.attempts, &output)
        counter("holdfast_session_connects", "Connections that were established.", \.counters.connects, &output)
        counter(
            "holdfast_session_resumes", "Connections that resumed the server's session.", \.counters.resumes,
            &output)
        counter("holdfast_session_outages", "Times that a connected session was lost.", \.counters.outages, &output)
        output.begin(
            "holdfast_session_failures", .counter, "Attempts that failed and connections that were lost, by reason.")
        for session in sessions {
            for (reason, count) in (events.failures[session.session] ?? [:]).sorted(by: { $0.key < $1.key }) {
                output.add("_total", own(session) + [("reason", reason)], Double(count))
            }
        }
        output.begin("holdfast_session_displacements", .counter, "Times that another device took over.")
        for session in sessions {
            output.add("_total", own(session), Double(events.displacements[session.session] ?? 0))
        }
        output.begin(
            "holdfast_session_outage_seconds", .histogram, unit: "seconds", "How long past outages lasted.")
        for session in sessions {
            if let histogram = events.outages[session.session] { output.add(histogram, own(session)) }
        }
        output.begin("holdfast_session_rtt_seconds", .gauge, unit: "seconds", "The round trip to the server.")
        for session in sessions {
            if let rtt = session.rtt { output.add("", own(session), rtt) }
        }
        output.begin(
            "holdfast_session_heard_seconds", .gauge, unit: "seconds", "Time since anything was heard from the server.")
        for session in sessions {
            if let heard = session.lastHeard { output.add("", own(session), heard) }
        }
    }

    private func messages(_ output: inout OpenMetricsText) {
        // What is not known is not 0.
        let known = sessions.filter { $0.outbox.unknown == nil }
        output.begin("holdfast_session_outbox_messages", .gauge, "Messages that were accepted and not delivered yet.")
        for session in known {
            output.add("", own(session) + [("state", "queued")], Double(session.outbox.queued))
            output.add("", own(session) + [("state", "in-flight")], Double(session.outbox.inFlight))
            output.add("", own(session) + [("state", "quarantined")], Double(session.outbox.quarantined))
        }
        output.begin("holdfast_session_outbox_bytes", .gauge, unit: "bytes", "Their size.")
        for session in known { output.add("", own(session), Double(session.outbox.bytes)) }
        output.begin("holdfast_session_outbox_age_seconds", .gauge, unit: "seconds", "The age of the oldest of them.")
        for session in known {
            output.add("", own(session), session.outbox.oldest.map { max(0, now.seconds(since: $0)) } ?? 0)
        }
        output.begin("holdfast_session_inbox_messages", .gauge, "Messages that wait for durable consumers.")
        for session in sessions { output.add("", own(session), Double(session.inbox.messages)) }
        output.begin("holdfast_session_inbox_bytes", .gauge, unit: "bytes", "Their size.")
        for session in sessions { output.add("", own(session), Double(session.inbox.bytes)) }
        counter(
            "holdfast_session_published", "Messages that were accepted from programs.", \.counters.published, &output)
        counter(
            "holdfast_session_received", "Messages that were received from the server.", \.counters.received, &output)
        counter(
            "holdfast_session_dropped", "Messages of programs that were dropped instead of sent.", \.counters.dropped,
            &output)
        counter(
            "holdfast_session_inbox_dropped",
            "Received messages that a durable consumer did not get, because it or the inbox was full.",
            \.inbox.dropped, &output)
        counter(
            "holdfast_session_refused", "Received messages that no program got, because they cannot be used.",
            \.counters.refused, &output)
    }

    private func store(_ output: inout OpenMetricsText) {
        output.begin("holdfast_store_commits", .counter, "Transactions that were committed.")
        output.add("_total", [], Double(status.store["commits"] ?? 0))
        output.begin("holdfast_store_failed_commits", .counter, "Transactions that could not be committed.")
        output.add("_total", [], Double(status.store["failedCommits"] ?? 0))
        output.begin("holdfast_store_commit_seconds", .histogram, unit: "seconds", "How long commits took.")
        if let commits { output.add(commits) }
        output.begin("holdfast_store_file_bytes", .gauge, unit: "bytes", "The size of the state file and its log.")
        output.add("", [], Double((status.store["fileBytes"] ?? 0) + (status.store["logBytes"] ?? 0)))
        guard let free = status.store["freeBytes"] else { return }
        output.begin("holdfast_store_free_bytes", .gauge, unit: "bytes", "The room that its file system has left.")
        output.add("", [], Double(free))
    }

    private func network(_ output: inout OpenMetricsText) {
        output.begin(
            "holdfast_network_events", .counter, "The kernel's messages, lookups and changes of paths, by class.")
        for (name, count) in status.netlink.sorted(by: { $0.key < $1.key }) {
            output.add("_total", [("class", name)], Double(count))
        }
    }

    private func socket(_ output: inout OpenMetricsText) {
        output.begin("holdfast_rpc_calls", .counter, "Calls on the control socket.")
        for (method, count) in calls.calls.sorted(by: { $0.key < $1.key }) {
            output.add("_total", [("method", method)], Double(count))
        }
        output.begin("holdfast_rpc_denials", .counter, "Calls that were denied.")
        for (method, count) in calls.denials.sorted(by: { $0.key < $1.key }) {
            output.add("_total", [("method", method)], Double(count))
        }
        output.begin(
            "holdfast_rpc_unread", .counter,
            "Events, and messages of subscriptions that are not durable, that programs were too slow to read.")
        output.add("_total", [], Double(calls.unread))
    }

    private func counter(
        _ name: String, _ help: String, _ value: KeyPath<SessionStatus, Int64>, _ output: inout OpenMetricsText
    ) {
        output.begin(name, .counter, help)
        for session in sessions { output.add("_total", own(session), Double(session[keyPath: value])) }
    }

    private func own(_ session: SessionStatus) -> OpenMetricsText.Labels { [("session", session.session)] }
}
