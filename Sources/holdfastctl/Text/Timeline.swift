import ControlAPI

/// What sessions did in a span of time, put together from the history. Without I/O and clocks; times are milliseconds
/// since 1970.
struct Timeline: Equatable {
    /// What a person wants to tell apart at a glance.
    enum Condition: CaseIterable {
        case connected
        /// Connecting or reconnecting.
        case trying
        /// There is no network, so trying would be useless.
        case offline
        /// Nothing is tried: the session is disconnected or has failed.
        case down
        /// The daemon did not run, the history of that time no longer exists, or the clock skipped that time when it was
        /// set.
        case unknown
    }

    struct Span: Equatable {
        var condition: Condition
        var start: Int64
        var end: Int64
        /// Why; `nil` if unknown.
        var reason: String?
    }

    /// A period in which a session that had been connected was not connected.
    struct Outage: Equatable {
        enum Beginning {
            /// The session lost its connection.
            case loss
            /// The session was started. This is no outage, but the time until the first connection.
            case start
            /// It had begun before the known time.
            case unknown
        }

        var session: String
        var start: Int64
        var beginning: Beginning
        /// Whether the session itself gave up the connection to make a new one.
        var isPlanned = false
        /// `nil` while it lasts.
        var end: Int64?
        /// In seconds.
        var length: Double
        var reason: String
        /// How it ended, or the current state while it lasts.
        var ending: String
        /// The attempts that failed meanwhile.
        var failedAttempts = 0
        /// Why the last of them failed.
        var failure: String?

        /// Why it began, and how its attempts failed.
        var cause: String {
            guard failedAttempts > 0, let failure else { return reason }
            if failure == reason { return failedAttempts == 1 ? reason : "\(reason); \(failedAttempts) attempts" }
            return failedAttempts == 1
                ? "\(reason); 1 attempt: \(failure)" : "\(reason); \(failedAttempts) attempts, the last: \(failure)"
        }

        mutating func add(_ failures: SessionHistoryEntry.Failures?) {
            guard let failures else { return }
            failedAttempts += failures.attempts
            failure = failures.message
        }
    }

    struct Row: Equatable {
        var session: String
        /// The spans from the start to the end of the timeline, without gaps.
        var spans: [Span]
        var outages: [Outage]
        /// Since it was started, the session has not been connected. This is no outage.
        var unconnected: Outage?

        /// The fraction of the known time in which the session was connected, 0 to 1; `nil` if nothing is known.
        var availability: Double? {
            let known = spans.filter { $0.condition != .unknown }.reduce(0) { $0 + $1.end - $1.start }
            let connected = spans.filter { $0.condition == .connected }.reduce(0) { $0 + $1.end - $1.start }
            return known > 0 ? Double(connected) / Double(known) : nil
        }
    }

    var start: Int64
    var end: Int64
    /// Ordered by the session's name.
    var rows: [Row]

    /// Ordered by their start.
    var outages: [Outage] {
        rows.flatMap(\.outages).sorted { ($0.start, $0.session) < ($1.start, $1.session) }
    }

    /// - Parameters:
    ///   - entries: all entries from `start` on, in their order.
    ///   - earlier: the last entry of each session before `start`, if there is one.
    ///   - sessions: the sessions that exist now; any other session in the entries is gone.
    init(
        start: Int64, end: Int64, entries: [SessionHistoryEntry], earlier: [SessionHistoryEntry],
        sessions: [SessionStatus]
    ) {
        self.start = start
        self.end = end
        let statuses = Dictionary(sessions.map { ($0.session, $0) }, uniquingKeysWith: { first, _ in first })
        let before = Dictionary(earlier.map { ($0.session, $0) }, uniquingKeysWith: { _, last in last })
        let own = Dictionary(grouping: entries, by: \.session)
        rows = Set(statuses.keys).union(own.keys).sorted(by: NaturalOrder.precedes).map { session in
            var builder = RowBuilder(session: session, start: start, end: end)
            if let entry = before[session] { builder.begin(with: entry) }
            for entry in own[session] ?? [] { builder.take(entry) }
            return builder.finish(statuses[session])
        }
    }
}

extension Timeline {
    /// The timeline without the initial period for which nothing is known about any session.
    var fitted: Timeline {
        let begins = rows.compactMap { row in row.spans.first { $0.condition != .unknown }?.start }
        guard let first = begins.min(), first > start else { return self }
        var fitted = self
        fitted.start = first
        for index in rows.indices {
            fitted.rows[index].spans = rows[index].spans.compactMap { span in
                guard span.end > first else { return nil }
                var span = span
                span.start = max(span.start, first)
                return span
            }
        }
        return fitted
    }
}

extension Timeline.Condition {
    init(_ entry: SessionHistoryEntry) {
        let isStopped = entry.to == .disconnected && entry.reason.code == "shutdown"
        let isSkipped = entry.reason.code == "clock-set"
        self = isStopped || isSkipped || entry.isRemoval ? .unknown : Self(entry.to, entry.phase)
    }

    init(_ status: SessionStatus) { self.init(status.state, status.phase) }

    private init(_ state: SessionState, _ phase: Phase?) {
        self =
            switch state {
            case .connected: .connected
            case .connecting, .reconnecting: phase == .waitingForNetwork ? .offline : .trying
            case .disconnecting, .disconnected, .failed: .down
            }
    }
}

extension SessionHistoryEntry {
    /// Whether the session was removed from the configuration. It was down by then, and nothing else than this changes a
    /// session that is down to one that is disconnected.
    fileprivate var isRemoval: Bool {
        to == .disconnected && reason.code == "configuration-changed" && (from == .disconnected || from == .failed)
    }
}

/// Follows the entries of one session.
private struct RowBuilder {
    let session: String
    let start: Int64
    let end: Int64
    private var spans: [Timeline.Span] = []
    private var outages: [Timeline.Outage] = []
    private var condition = Timeline.Condition.unknown
    private var reason: String?
    private var cursor: Int64
    private var last: SessionHistoryEntry?
    /// The outage under way.
    private var outage: Timeline.Outage?
    /// Whether a command ended the connection. That is an outage only if the daemon reports one, or if the session is
    /// still reconnecting or has failed.
    private var isAskedFor = false

    init(session: String, start: Int64, end: Int64) {
        self.session = session
        self.start = start
        self.end = end
        cursor = start
    }

    /// Takes the last entry before the timeline begins.
    mutating func begin(with entry: SessionHistoryEntry) {
        condition = .init(entry)
        reason = entry.reason.message
        last = entry
        guard entry.to != .connected, !Self.isStop(entry) else { return }
        outage = begun(by: entry, at: entry.time.rawValue)
        isAskedFor = Self.isAskedFor(entry)
    }

    mutating func take(_ entry: SessionHistoryEntry) {
        let time = min(max(entry.time.rawValue, start), end)
        if time < cursor {
            cut(at: time)
            // An outage under way began as long before this entry as it has lasted.
            if let last { outage?.start -= last.time.rawValue - entry.time.rawValue }
        } else {
            close(at: time)
        }
        condition = .init(entry)
        reason = entry.reason.message
        last = entry
        outage?.add(entry.failures)
        if entry.to == .connected {
            end(at: time, by: entry)
        } else if entry.isRemoval || Self.isStop(entry) && Self.isAskedFor(entry) {
            // From now on the session is not meant to be connected.
            end(at: time, by: entry)
        } else if outage == nil, !Self.isStop(entry) {
            outage = begun(by: entry, at: entry.time.rawValue)
            isAskedFor = Self.isAskedFor(entry)
        }
    }

    mutating func finish(_ status: SessionStatus?) -> Timeline.Row {
        if last == nil, let status {
            // There is no entry, but the status says since when the session has been in its current state.
            close(at: min(max(status.since.rawValue, start), end))
            condition = .init(status)
            reason = status.reason?.message
        } else if status == nil {
            // The session is no longer configured.
            condition = .unknown
            reason = nil
            outage = nil
        }
        close(at: end)
        if var outage, let last, !isAskedFor || last.to == .reconnecting || last.to == .failed {
            outage.length = Double(max(0, end - outage.start)) / 1000
            guard !outage.isPlanned || outage.length >= Self.longestPlanned else {
                return Timeline.Row(session: session, spans: spans, outages: outages)
            }
            // Why the session was lost, or, if it was never connected in the known time, why it is not connected now.
            if outage.beginning != .loss, let reason = status?.reason { outage.reason = reason.message }
            if let status, let reason = status.reason, status.phase == .waiting, status.attempt > 1 {
                outage.add(.init(attempts: status.attempt - 1, code: reason.code, message: reason.message))
            }
            outage.ending =
                switch condition {
                case .connected: "connected"
                case .trying: "still trying"
                case .offline: "still no network"
                case .unknown: "the daemon is not running"
                case .down where last.to == .failed:
                    last.reason.message == outage.reason ? "failed" : "failed: \(last.reason.message)"
                case .down: last.to.rawValue
                }
            if outage.beginning == .start {
                return Timeline.Row(session: session, spans: spans, outages: outages, unconnected: outage)
            }
            outages.append(outage)
        }
        return Timeline.Row(session: session, spans: spans, outages: outages)
    }

    /// The clock was set back, and passes this time again: from here on, what happens now counts.
    private mutating func cut(at time: Int64) {
        spans.removeAll { $0.start >= time }
        if let last = spans.last, last.end > time { spans[spans.count - 1].end = time }
        cursor = time
    }

    private mutating func close(at time: Int64) {
        defer { cursor = max(cursor, time) }
        guard time > cursor else { return }
        if let previous = spans.last, previous.condition == condition, previous.reason == reason {
            spans[spans.count - 1].end = time
        } else {
            spans.append(.init(condition: condition, start: cursor, end: time, reason: reason))
        }
    }

    private func begun(by entry: SessionHistoryEntry, at time: Int64) -> Timeline.Outage {
        let beginning: Timeline.Outage.Beginning =
            switch entry.from {
            case .connected: .loss
            case .disconnected, .disconnecting: .start
            case .connecting, .reconnecting, .failed: .unknown
            }
        return .init(
            session: session, start: time, beginning: beginning,
            isPlanned: Self.isLocal(entry) && entry.to == .reconnecting, length: 0, reason: entry.reason.message,
            ending: "")
    }

    /// A planned reconnect counts as an outage from this many seconds on.
    private static let longestPlanned = 10.0

    private static func isLocal(_ entry: SessionHistoryEntry) -> Bool { entry.reason.group == "local" }

    /// Whether somebody stopped the session or the daemon, which is not an outage.
    private static func isStop(_ entry: SessionHistoryEntry) -> Bool {
        isLocal(entry) && (entry.to == .disconnecting || entry.to == .disconnected)
    }

    private static func isAskedFor(_ entry: SessionHistoryEntry) -> Bool {
        ["user-disconnect", "goodbye-unheard", "user-reconnect", "switch-room"].contains(entry.reason.code)
    }

    private mutating func end(at time: Int64, by entry: SessionHistoryEntry) {
        guard var ended = outage else { return }
        outage = nil
        if isAskedFor, entry.outage == nil { return }
        // Connecting for the first time is not the end of an outage, and an outage without a known part is not listed.
        guard ended.beginning == .loss || ended.beginning == .unknown && ended.start < start else { return }
        ended.end = time
        // If the daemon ran throughout, it has measured the length without the wall clock.
        ended.length = entry.outage ?? Double(max(0, time - ended.start)) / 1000
        // A second connection may have taken over from the first one at once.
        guard ended.length > 0, !ended.isPlanned || ended.length >= Self.longestPlanned else { return }
        ended.ending =
            entry.to == .connected
            ? entry.mode.map { "connected, \($0.rawValue) reconnect" } ?? "connected" : "disconnected"
        outages.append(ended)
    }
}
