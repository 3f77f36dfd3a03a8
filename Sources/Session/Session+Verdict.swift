import SessionCore
import Vocabulary

// What outlives the daemon of the session's state, within a boot: that somebody disconnected it, or that it failed for a
// reason that trying again cannot change.

extension Session {
    /// Whether the verdict was a failure of a configuration that is another one since.
    package func isOver(_ verdict: Verdict) -> Bool {
        guard verdict.bootID == settings.bootID, verdict.isFailure else { return false }
        return verdict.configuration.map { $0 != settings.digest } ?? false
    }

    /// Before anything else, for what the session finds to do must not undo it.
    ///
    /// - Returns: whether what happened earlier in this boot decides.
    package mutating func takeUp(_ verdict: Verdict) -> Bool {
        guard verdict.bootID == settings.bootID else { return false }
        let code = Reason.Code(rawValue: verdict.reasonCode) ?? .unknown
        machine.restore(
            isFailed: verdict.isFailure, reason: Reason(code, verdict.message, serverCode: verdict.serverCode))
        // Another version of the file than this one is noticed by the watch, also if it came before it.
        credentials.mark = verdict.credential.map { FileMark(rawValue: $0) }
        return true
    }

    /// An explicit disconnect and a terminal reason outlive the daemon; everything else is decided anew.
    mutating func rememberVerdict(_ state: SessionState) {
        let reason = machine.reason
        switch state {
        case .failed: remember(newVerdict(.failed, reason))
        // From the moment on that it is asked for: a crash while the session says goodbye does not undo it either.
        case .disconnecting where reason.code.isDisconnectAskedFor,
            .disconnected where reason.code.isDisconnectAskedFor:
            remember(newVerdict(.disconnected, reason))
        case .connecting: remember(nil)
        default: break
        }
    }

    private mutating func remember(_ verdict: Verdict?) {
        guard verdict != self.verdict else { return }
        self.verdict = verdict
        act(.commit([.setVerdict(verdict)]))
    }

    private func newVerdict(_ state: SessionState, _ reason: Reason) -> Verdict {
        Verdict(
            state: state.rawValue, reasonCode: reason.code.rawValue, message: reason.message,
            serverCode: reason.serverCode, bootID: settings.bootID, since: timestamp, configuration: settings.digest,
            credential: credentials.mark?.rawValue)
    }
}

extension Verdict {
    /// It is over when the configuration changes, as an explicit disconnect is not.
    package var isFailure: Bool { state == SessionState.failed.rawValue }
}
