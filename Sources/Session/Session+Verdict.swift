import SessionCore
package import Vocabulary

// The part of the session's state that survives restarts of the daemon within a boot: that somebody disconnected the
// session, that it was started although it does not connect on its own, that it has been connected or is in an outage, or
// that it failed for a reason that trying again cannot change.

extension Session {
    /// Whether the verdict was a failure under a configuration that has changed since.
    ///
    /// - Parameter configuration: the digest of the current one. Computing it takes a while, and few sessions need it.
    func isOver(_ verdict: Verdict, under configuration: @autoclosure () -> String) -> Bool {
        guard verdict.bootID == settings.bootID, verdict.isFailure, let before = verdict.configuration else {
            return false
        }
        return before != configuration()
    }

    /// Whether the session, which does not connect on its own, was started in this boot, and was not disconnected on command
    /// since.
    func isStarted(by verdict: Verdict?) -> Bool { verdict?.isStarted == true && verdict?.bootID == settings.bootID }

    /// Remembers a command to connect, whatever becomes of it.
    mutating func rememberStart(_ reason: Reason) {
        guard !settings.autoconnects, !isStarted(by: verdict) else { return }
        guard var verdict, hasBeenUp(by: verdict) else { return remember(newVerdict(.connecting, reason)) }
        verdict.state = Verdict.state(verdict.isLost ? .lost : .connected, isStarted: true)
        remember(verdict)
    }

    /// Whether the session was connected in an earlier run of the daemon in this boot, or in this one.
    func hasBeenUp(by verdict: Verdict?) -> Bool { verdict?.hasBeenUp == true && verdict?.bootID == settings.bootID }

    /// Returns the outage that an earlier run of the daemon in this boot was in; `nil` if there was none.
    func outage(by verdict: Verdict?) -> SessionMachine.Outage? {
        guard let verdict, verdict.isLost, verdict.bootID == settings.bootID else { return nil }
        // The clock may have been set in between.
        let length = max(0, wallClock.rawValue - verdict.since.rawValue)
        let since = now.advanced(by: .zero - .milliseconds(length))
        // For how much of it the daemon, or the host, did not run is not known.
        return SessionMachine.Outage(since: max(since, Instant(nanoseconds: 0)), countsFrom: now)
    }

    /// Takes up an earlier verdict. Call it before anything else, so that nothing the session does at its start undoes
    /// the verdict.
    ///
    /// - Returns: whether the verdict is from this boot, and so applies.
    mutating func takeUp(_ verdict: Verdict) -> Bool {
        guard verdict.bootID == settings.bootID, verdict.keepsDown else { return false }
        machine.restore(isFailed: verdict.isFailure, reason: verdict.reason)
        // The watch notices if the file's version differs from this one, even if the file changed before the watch
        // began.
        rejectedFiles = verdict.rejectedFile
        return true
    }

    /// Remembers an explicit disconnect, the start of a session that does not connect on its own, that it has been
    /// connected, an outage, or a terminal reason for the next start of the daemon; all other states are decided again then.
    mutating func rememberVerdict(_ state: SessionState) {
        let reason = machine.reason
        switch state {
        case .failed: remember(newVerdict(.failed, reason))
        case .connected where !hasBeenUp(by: verdict) || verdict?.isLost == true:
            remember(newVerdict(.connected, reason))
        case .reconnecting where !(hasBeenUp(by: verdict) && verdict?.isLost == true):
            guard let outage = machine.outage else { break }
            var lost = newVerdict(.lost, reason)
            lost.since = wallClock.advanced(by: -outage.since.duration(to: now).wholeMilliseconds)
            remember(lost)
        // One that rests, or has ended for good, is no longer in an outage.
        case .disconnected where verdict?.isLost == true && (machine.isResting || publications.endWithSession):
            remember(newVerdict(.connected, reason))
        // Remembered from the moment of the request, so that a crash while the session says goodbye does not undo it.
        case .disconnecting where reason.code.isDisconnectAskedFor:
            remember(newVerdict(.disconnected, machine.reasonIfKilled(at: now)))
        case .disconnected where reason.code.isDisconnectAskedFor:
            remember(newVerdict(.disconnected, reason))
        // It does not become the very first attempt again if the daemon is started once more.
        case .connecting where hasBeenUp(by: verdict): break
        case .connecting where verdict?.isFailure == true && !machine.isNewConnect: remember(verdict?.withoutFailure)
        case .connecting where !isStarted(by: verdict): remember(nil)
        case .connecting where verdict?.isFailure == true: remember(newVerdict(.connecting, reason))
        default: break
        }
    }

    /// Shifts the time of the verdict, because the wall clock was set forward by this many milliseconds: the next run of the
    /// daemon asks how long ago that was.
    package mutating func shiftVerdict(by milliseconds: Int64, within range: ClosedRange<Timestamp>) {
        guard var verdict, verdict.bootID == settings.bootID, range.contains(verdict.since) else { return }
        verdict.since = verdict.since.advanced(by: milliseconds)
        remember(verdict)
    }

    private mutating func remember(_ verdict: Verdict?) {
        guard verdict != self.verdict else { return }
        self.verdict = verdict
        act(.commit([.setVerdict(verdict)]))
    }

    private func newVerdict(_ decision: Verdict.Decision, _ reason: Reason) -> Verdict {
        Verdict(
            state: Verdict.state(decision, isStarted: isStarted(by: verdict)), reasonCode: reason.code.rawValue,
            message: reason.message,
            serverCode: reason.serverCode, bootID: settings.bootID, since: wallClock,
            rejectedFile: rejectedFiles)
    }
}
