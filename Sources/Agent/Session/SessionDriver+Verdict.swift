import ControlAPI
import DurableStore
import Logging
import MQTT
import SessionCore

// What outlives the daemon of the session's state, within a boot: that somebody disconnected it, or that it failed for a
// reason that trying again cannot change.

extension SessionDriver {
    /// The verdict on its way to the disk. Only the last one counts.
    struct VerdictMemory {
        /// To be written next; `.some(nil)` says that there is none any more.
        var next: Verdict??
        var isWriting = false
        /// Why the last one could not be written.
        var failure: StoreError?
        var waiters: [CheckedContinuation<Void, Never>] = []
    }

    // MARK: At the start

    func isOver(_ verdict: Verdict) -> Bool {
        guard verdict.bootID == surroundings.bootID, verdict.state == SessionState.failed.rawValue else { return false }
        return verdict.configuration.map { $0 != configuration.digest } ?? false
    }

    /// Before anything else, for what the session finds to do must not undo it.
    ///
    /// - Returns: whether what happened earlier in this boot decides.
    func takeUp(_ verdict: Verdict?) -> Bool {
        guard let verdict, verdict.bootID == surroundings.bootID else { return false }
        let code = SessionCore.ReasonCode(rawValue: verdict.reasonCode) ?? .unknown
        machine.restore(
            isFailed: verdict.state == SessionState.failed.rawValue,
            reason: Reason(code, verdict.message, serverCode: verdict.serverCode))
        since = RFC3339(milliseconds: verdict.since.rawValue)
        // Another version of the file than this one is noticed by the watch, also if it came before it.
        credentialMark = verdict.credential.map { FileMark(rawValue: $0) }
        return true
    }

    // MARK: From then on

    /// An explicit disconnect and a terminal reason outlive the daemon; everything else is decided anew.
    func rememberVerdict(_ state: SessionState) {
        let reason = machine.reason
        let verdict: Verdict?
        switch state {
        case .failed: verdict = self.verdict(.failed, reason)
        // From the moment on that it is asked for: a crash while the session says goodbye does not undo it either.
        case .disconnecting where reason.code.isDisconnectAskedFor,
            .disconnected where reason.code.isDisconnectAskedFor:
            verdict = self.verdict(.disconnected, reason)
        case .connecting: verdict = nil
        default: return
        }
        memory.next = .some(verdict)
        guard !memory.isWriting else { return }
        memory.isWriting = true
        Task { await writeVerdicts() }
    }

    private func writeVerdicts() async {
        while let verdict = memory.next {
            memory.next = nil
            do throws(StoreError) {
                try await surroundings.store.setVerdict(name, verdict)
                memory.failure = nil
            } catch {
                memory.failure = error
                surroundings.logger.error("\(name): the state could not be remembered: \(error)")
            }
        }
        memory.isWriting = false
        for waiter in memory.waiters { waiter.resume() }
        memory.waiters = []
    }

    func everythingRemembered() async {
        await withCheckedContinuation { continuation in
            if memory.isWriting { memory.waiters.append(continuation) } else { continuation.resume() }
        }
    }

    private func verdict(_ state: SessionState, _ reason: Reason) -> Verdict {
        Verdict(
            state: state.rawValue, reasonCode: reason.code.rawValue, message: reason.message,
            serverCode: reason.serverCode, bootID: surroundings.bootID, since: timestamp,
            configuration: configuration.digest, credential: credentialMark?.rawValue)
    }
}
