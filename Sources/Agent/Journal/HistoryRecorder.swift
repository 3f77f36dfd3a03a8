import Configuration
import ControlAPI
import DurableStore
import MQTT
import SessionCore

/// Makes the entries of the history out of what the sessions report. Without I/O and clocks.
///
/// The entries of a session are a chain: each one comes from the state that the one before led to. The first one of a
/// life of the daemon comes from disconnected, and the last one leads there because of the shutdown.
struct HistoryRecorder {
    /// Longer messages of reasons are cut off, so that the store's bounds on entries are bounds on bytes.
    static let maximumMessageLength = 500

    private struct Last {
        var state: SessionStatus.State
        /// Whether it tries and there is no network to try with.
        var isOffline: Bool
        var isShutdown: Bool
    }

    private var last: [SessionName: Last] = [:]
    /// How an outage ended; the change of the state that belongs to it follows at once.
    private var completed: [SessionName: (mode: SessionStatus.Mode?, outage: Double?)] = [:]

    /// What a session reported.
    mutating func take(_ session: SessionName, _ event: SessionEvent) -> HistoryEntry? {
        switch event.event {
        case .reconnectCompleted:
            completed[session] = (event.mode, event.outage)
            return nil
        case .stateChanged, .phaseChanged:
            guard let state = event.state, let reason = event.reason else { return nil }
            let ended = completed.removeValue(forKey: session)
            return changed(
                session, to: state, isOffline: isOffline(session, event), mode: ended?.mode ?? event.mode,
                reason: reason, outage: ended?.outage, at: event.time)
        default:
            return nil
        }
    }

    /// A session was taken up: an entry unless it has already reported.
    mutating func started(_ status: SessionStatus, _ session: SessionName, at time: RFC3339) -> HistoryEntry? {
        guard last[session] == nil, let reason = status.reason else { return nil }
        return append(session, to: status.state, mode: status.mode, reason: reason, at: time)
    }

    /// The daemon stops; its sessions are down. One entry for each of those that have not said so themselves.
    mutating func stopped(at time: RFC3339) -> [HistoryEntry] {
        last.sorted { $0.key < $1.key }.filter { !$0.value.isShutdown }.map { session, _ in
            append(
                session, to: .disconnected, mode: nil,
                reason: .init(Reason(.shutdown), Remedies(session: session, configuration: nil)), at: time)
        }
    }

    /// The end of the life before this one, if nobody was there to record it.
    ///
    /// - Parameter lastAlive: the last sign of life of the daemon before.
    static func unrecordedEnd(after entry: HistoryEntry, lastAlive: Timestamp?, now: Timestamp) -> HistoryEntry? {
        guard entry.to != SessionState.disconnected.rawValue else { return nil }
        let time = min(max(lastAlive ?? entry.time, entry.time), max(now, entry.time))
        return HistoryEntry(
            time: time, session: entry.session, from: entry.to, to: SessionState.disconnected.rawValue,
            reasonCode: Reason.Code.shutdown.rawValue,
            message: "the daemon ended without stopping; this is its last sign of life")
    }

    /// The safety attempt that is made without a path is no network.
    private func isOffline(_ session: SessionName, _ event: SessionEvent) -> Bool {
        switch event.phase {
        case nil, .waiting?: false
        case .waitingForNetwork?: true
        default: last[session]?.isOffline == true && event.path == nil
        }
    }

    private mutating func changed(
        _ session: SessionName, to state: SessionStatus.State, isOffline: Bool, mode: SessionStatus.Mode?,
        reason: SessionStatus.Reason, outage: Double?, at time: RFC3339
    ) -> HistoryEntry? {
        if let last = last[session], last.state == state, last.isOffline == isOffline { return nil }
        return append(
            session, to: state, isOffline: isOffline, mode: mode, reason: reason, outage: outage, at: time)
    }

    private mutating func append(
        _ session: SessionName, to state: SessionStatus.State, isOffline: Bool = false, mode: SessionStatus.Mode?,
        reason: SessionStatus.Reason, outage: Double? = nil, at time: RFC3339
    ) -> HistoryEntry {
        let from = last[session]?.state ?? .disconnected
        last[session] = Last(
            state: state, isOffline: isOffline,
            isShutdown: state == .disconnected && reason.code == Reason.Code.shutdown.rawValue)
        return HistoryEntry(
            time: Timestamp(rawValue: time.milliseconds), session: session, from: from.rawValue, to: state.rawValue,
            phase: isOffline ? SessionStatus.Phase.waitingForNetwork.rawValue : nil, mode: mode?.rawValue,
            reasonCode: reason.code, message: String(reason.message.prefix(Self.maximumMessageLength)),
            serverCode: reason.serverCode.flatMap { UInt8(exactly: $0) },
            outage: outage.map { .milliseconds(Int64($0 * 1000)) })
    }
}

extension SessionHistoryEntry {
    /// `nil` for an entry with states of a later version.
    /// - Parameter configuration: the session's present one; `nil` if the session no longer exists.
    init?(_ entry: HistoryEntry, _ configuration: SessionConfiguration?) {
        guard let from = SessionStatus.State(rawValue: entry.from), let to = SessionStatus.State(rawValue: entry.to)
        else { return nil }
        let code = Reason.Code(rawValue: entry.reasonCode)
        self.init(
            time: RFC3339(milliseconds: entry.time.rawValue), session: entry.session.description, from: from, to: to,
            phase: entry.phase.flatMap { SessionStatus.Phase(rawValue: $0) },
            reason: .init(
                code: entry.reasonCode, group: (code ?? .unknown).group.rawValue,
                terminal: code?.isTerminal ?? false, serverCode: entry.serverCode.map { Int($0) },
                message: entry.message,
                hint: code.flatMap(Remedies(session: entry.session, configuration: configuration).hint)),
            mode: entry.mode.flatMap { SessionStatus.Mode(rawValue: $0) }, outage: entry.outage?.seconds)
    }
}
