import Configuration
import ControlAPI
import Logging
import MQTT
import Session
import SessionCore

// What outlives the daemon of the session's state, within a boot: that somebody disconnected it, or that it failed for a
// reason that trying again cannot change; and the room that it was told to switch to.

extension SessionDriver {
    // MARK: At the start

    func isOver(_ verdict: Verdict) -> Bool {
        guard verdict.bootID == surroundings.bootID, verdict.isFailure else { return false }
        return verdict.configuration.map { $0 != configuration.digest } ?? false
    }

    /// Before anything else, for what the session finds to do must not undo it.
    ///
    /// - Returns: whether what happened earlier in this boot decides.
    func takeUp(_ verdict: Verdict?) -> Bool {
        guard let verdict, verdict.bootID == surroundings.bootID else { return false }
        let code = SessionCore.ReasonCode(rawValue: verdict.reasonCode) ?? .unknown
        session.machine.restore(
            isFailed: verdict.isFailure, reason: Reason(code, verdict.message, serverCode: verdict.serverCode))
        since = RFC3339(milliseconds: verdict.since.rawValue)
        // Another version of the file than this one is noticed by the watch, also if it came before it.
        session.credentials.mark = verdict.credential.map { FileMark(rawValue: $0) }
        return true
    }

    /// A reboot, and a file that names another room since, are the end of a room that was chosen.
    func takeUp(_ chosen: ChosenRoom?) -> ChosenRoom? {
        guard let chosen else { return nil }
        if chosen.bootID == surroundings.bootID, chosen.configured == configuration.room { return chosen }
        commit([.setChosenRoom(nil)])
        return nil
    }

    // MARK: From then on

    /// An explicit disconnect and a terminal reason outlive the daemon; everything else is decided anew.
    func rememberVerdict(_ state: SessionState) {
        let reason = session.machine.reason
        switch state {
        case .failed: remember(verdict(.failed, reason))
        // From the moment on that it is asked for: a crash while the session says goodbye does not undo it either.
        case .disconnecting where reason.code.isDisconnectAskedFor,
            .disconnected where reason.code.isDisconnectAskedFor:
            remember(verdict(.disconnected, reason))
        case .connecting: remember(nil)
        default: break
        }
    }

    private func remember(_ verdict: Verdict?) {
        guard verdict != session.verdict else { return }
        session.verdict = verdict
        commit([.setVerdict(verdict)])
    }

    func rememberRoom(_ room: String) async throws(RPCError) {
        commit([
            .setChosenRoom(ChosenRoom(room: room, configured: configuration.room, bootID: surroundings.bootID))
        ])
        try await everythingRemembered("session \(name) is in the room \(room)")
    }

    private func verdict(_ state: SessionState, _ reason: Reason) -> Verdict {
        Verdict(
            state: state.rawValue, reasonCode: reason.code.rawValue, message: reason.message,
            serverCode: reason.serverCode, bootID: surroundings.bootID, since: timestamp,
            configuration: configuration.digest, credential: session.credentials.mark?.rawValue)
    }
}

extension Verdict {
    /// It is over when the configuration changes, as an explicit disconnect is not.
    var isFailure: Bool { state == SessionState.failed.rawValue }
}
