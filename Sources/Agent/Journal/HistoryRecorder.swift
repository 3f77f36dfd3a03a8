import Configuration
import ControlAPI
import DurableStore
import MQTT
import SessionCore
import Vocabulary

/// Makes the entries of the history from what the sessions report. It does no I/O and reads no clock.
///
/// The entries of a session form a chain: each one starts from the state that the previous one led to. The first one of
/// a run of the daemon starts from disconnected, and the last one leads there because of the shutdown.
struct HistoryRecorder {
    /// Longer messages of reasons are cut off, so that limits on the number of entries are limits on bytes.
    static let maximumMessageLength = 500

    private struct Last {
        var state: SessionState
        /// Whether the session is trying to connect while there is no network.
        var isOffline: Bool
        var isShutdown: Bool
        var reason: SessionStatus.Reason
    }

    /// What failed since a session began to try.
    private struct Trying {
        /// The number of the first attempt: those since the session was last stable are counted.
        var first: Int
        /// The number of the next attempt, or of the one that is under way.
        var next = 0
        var isAttempting = false
        var failures: HistoryEntry.Failures?

        /// - Parameter attempt: the number of the attempt that is under way, or the next one.
        mutating func take(_ attempt: Int, _ phase: Phase?, _ reason: SessionStatus.Reason) {
            // After a command it begins again with the first.
            first = min(first, attempt)
            (next, isAttempting) = (attempt, phase != .waiting && phase != .waitingForNetwork)
            // An attempt that was given up for a command or another path has not failed.
            guard attempt - first > failures?.attempts ?? 0, reason.group != ReasonGroup.local.rawValue,
                !reason.code.hasPrefix("path-")
            else { return }
            fail(attempt - first, reason.code, reason.message)
        }

        /// The session gave up. The attempt that was under way then has not been counted.
        mutating func gaveUp(_ reason: SessionStatus.Reason) {
            guard isAttempting else { return }
            let last = reason.lastFailure
            fail(next - first + 1, last?.code ?? reason.code, last?.message ?? reason.message)
        }

        private mutating func fail(_ attempts: Int, _ code: String, _ message: String) {
            failures = .init(
                attempts: attempts, reasonCode: code,
                message: String(message.prefix(HistoryRecorder.maximumMessageLength)))
        }
    }

    private var last: [SessionName: Last] = [:]
    private var trying: [SessionName: Trying] = [:]
    /// How an outage ended, until the state change that belongs to it follows.
    private var completed: [SessionName: (mode: ReconnectMode?, outage: Double?)] = [:]

    /// Returns the entry for an event of a session; `nil` if it needs none.
    mutating func take(_ session: SessionName, _ event: SessionEvent) -> HistoryEntry? {
        switch event.event {
        case .reconnectCompleted:
            completed[session] = (event.mode, event.outage)
            return nil
        case .stateChanged, .phaseChanged:
            guard let state = event.state, let reason = event.reason else { return nil }
            if state == .connecting || state == .reconnecting, let attempt = event.attempt {
                trying[session, default: Trying(first: attempt)].take(attempt, event.phase, reason)
            }
            let ended = completed.removeValue(forKey: session)
            let isOffline = isOffline(session, event)
            if let last = last[session], last.state == state, last.isOffline == isOffline { return nil }
            return append(
                session, to: state, isOffline: isOffline, mode: ended?.mode ?? event.mode, reason: reason,
                outage: ended?.outage, at: event.time)
        case .sessionRemoved:
            (last[session], completed[session], trying[session]) = (nil, nil, nil)
            return nil
        default:
            return nil
        }
    }

    /// Returns the entry for a session that was started, unless it has already reported.
    mutating func started(_ status: SessionStatus, _ session: SessionName, at time: Timestamp) -> HistoryEntry? {
        guard last[session] == nil, let reason = status.reason else { return nil }
        return append(session, to: status.state, mode: status.mode, reason: reason, at: time)
    }

    /// Smaller steps of the clock are not recorded: there may be many, and the history has room for only so many entries.
    static let smallestStep = Duration.seconds(60)

    /// Returns the entries for a step of the wall clock, two for each session. About the time between the two nothing is
    /// known, or there was no such time.
    ///
    /// - Parameter time: by the clock before it was set.
    mutating func clockStepped(by step: Duration, at time: Timestamp) -> [HistoryEntry] {
        guard step >= Self.smallestStep || step <= .zero - Self.smallestStep else { return [] }
        let direction = step > .zero ? "forward" : "back"
        let sentence = "the host's clock was set \(direction) by \(SessionLog.text(step > .zero ? step : .zero - step))"
        return last.sorted { $0.key < $1.key }.filter { !$0.value.isShutdown }.flatMap { session, last in
            let reason = SessionStatus.Reason(
                Reason(.clockSet, sentence), Remedies(session: session, configuration: nil))
            return [
                append(session, to: last.state, isOffline: last.isOffline, mode: nil, reason: reason, at: time),
                append(
                    session, to: last.state, isOffline: last.isOffline, mode: nil, reason: last.reason,
                    at: time.advanced(by: step.wholeMilliseconds)),
            ]
        }
    }

    /// Returns the last entry of a session that is no longer configured: what follows is not its history.
    mutating func removed(_ session: SessionName, at time: Timestamp) -> HistoryEntry? {
        guard last[session] != nil else { return nil }
        let reason = Reason(.configurationChanged, "the session is no longer configured")
        return append(
            session, to: .disconnected, mode: nil,
            reason: .init(reason, Remedies(session: session, configuration: nil)), at: time)
    }

    /// Returns the last entries when the daemon stops, one for each session that has not reported the shutdown itself.
    mutating func stopped(at time: Timestamp) -> [HistoryEntry] {
        last.sorted { $0.key < $1.key }.filter { !$0.value.isShutdown }.map { session, _ in
            append(
                session, to: .disconnected, mode: nil,
                reason: .init(Reason(.shutdown), Remedies(session: session, configuration: nil)), at: time)
        }
    }

    /// Returns the entry for the end of the daemon's previous run, if that could not record it.
    ///
    /// - Parameter lastAlive: the last sign of life of that run.
    static func unrecordedEnd(after entry: HistoryEntry, lastAlive: Timestamp?, now: Timestamp) -> HistoryEntry? {
        guard entry.to != SessionState.disconnected.rawValue else { return nil }
        let time = min(max(lastAlive ?? entry.time, entry.time), max(now, entry.time))
        return HistoryEntry(
            time: time, session: entry.session, from: entry.to, to: SessionState.disconnected.rawValue,
            reasonCode: Reason.Code.shutdown.rawValue,
            message: "the daemon ended unexpectedly; this is its last sign of life")
    }

    /// A safety attempt without a path still counts as having no network.
    private func isOffline(_ session: SessionName, _ event: SessionEvent) -> Bool {
        switch event.phase {
        case nil, .waiting?: false
        case .waitingForNetwork?: true
        default: last[session]?.isOffline == true && event.path == nil
        }
    }

    private mutating func append(
        _ session: SessionName, to state: SessionState, isOffline: Bool = false, mode: ReconnectMode?,
        reason: SessionStatus.Reason, outage: Double? = nil, at time: Timestamp
    ) -> HistoryEntry {
        let from = last[session]?.state ?? .disconnected
        let isTrying = state == .connecting || state == .reconnecting
        var ended = isTrying ? nil : trying.removeValue(forKey: session)
        if state == .failed, reason.code == Reason.Code.retryTimeout.rawValue { ended?.gaveUp(reason) }
        last[session] = Last(
            state: state, isOffline: isOffline,
            isShutdown: state == .disconnected && reason.code == Reason.Code.shutdown.rawValue, reason: reason)
        return HistoryEntry(
            time: time, session: session, from: from.rawValue, to: state.rawValue,
            phase: isOffline ? Phase.waitingForNetwork.rawValue : nil, mode: mode?.rawValue,
            reasonCode: reason.code, message: String(reason.message.prefix(Self.maximumMessageLength)),
            serverCode: reason.serverCode.flatMap { UInt8(exactly: $0) },
            outage: outage.map { .milliseconds(Int64($0 * 1000)) }, failures: ended?.failures)
    }
}

extension SessionHistoryEntry {
    /// `nil` for an entry with states from a later version.
    /// - Parameter configuration: the session's present one; `nil` if the session no longer exists.
    init?(_ entry: HistoryEntry, _ configuration: SessionConfiguration?) {
        guard let from = SessionState(rawValue: entry.from), let to = SessionState(rawValue: entry.to)
        else { return nil }
        let code = Reason.Code(rawValue: entry.reasonCode)
        let failures = entry.failures.map { Failures(attempts: $0.attempts, code: $0.reasonCode, message: $0.message) }
        // An attempt that was cut off by the time limit has not failed for a reason of its own.
        let hasFailed = code == .retryTimeout && to == .failed && failures?.code != Reason.Code.retryTimeout.rawValue
        let last = hasFailed ? failures : nil
        self.init(
            time: entry.time, session: entry.session.description, from: from, to: to,
            phase: entry.phase.flatMap { Phase(rawValue: $0) },
            reason: .init(
                code: entry.reasonCode, group: (code ?? .unknown).group.rawValue,
                terminal: code?.isTerminal ?? false, serverCode: entry.serverCode.map { Int($0) },
                message: entry.message,
                hint: code.flatMap(Remedies(session: entry.session, configuration: configuration).hint),
                lastFailure: last.map {
                    .init(
                        code: $0.code, group: (Reason.Code(rawValue: $0.code) ?? .unknown).group.rawValue,
                        message: $0.message)
                }),
            mode: entry.mode.flatMap { ReconnectMode(rawValue: $0) }, outage: entry.outage?.seconds,
            failures: failures)
    }
}
