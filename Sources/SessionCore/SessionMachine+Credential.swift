// How a session lives with a credential that expires. It is renewed before its end and sent to the server on the
// existing connection or, where that is not possible, by a quick reconnect. A failed renewal is retried for as long as
// the connection lasts: before the end after half of the remaining time, after it more and more slowly. What the server
// does with a connection whose credential has expired is up to the server.

extension SessionMachine {
    /// When the credential of an attempt, and of the connection it becomes, ends and is renewed.
    struct CredentialLife: Hashable, Sendable {
        let generation: Generation
        let obtainedAt: Instant
        /// How long before its end it is renewed.
        let margin: Duration
        var expiresAt: Instant
        /// When the next renewal begins; `nil` while one is under way.
        var renewAt: Instant?
        var isRenewing = false
        var isReportedExpiring = false

        /// `nil` for a credential that has already expired by the host's clock: that may be wrong, so the server
        /// decides.
        init?(_ generation: Generation, expiresAt: Instant, at now: Instant) {
            let lifetime = now.duration(to: expiresAt)
            guard lifetime > .zero else { return nil }
            self.generation = generation
            self.expiresAt = expiresAt
            obtainedAt = now
            margin = min(.seconds(60), lifetime / 5)
            renewAt = renewal(at: now)
        }

        /// Never at once, however short-lived the credential is: that would be a loop.
        private func renewal(at now: Instant) -> Instant {
            max(expiresAt.advanced(by: .zero - margin), now.advanced(by: Self.shortestWait))
        }

        /// Moves the end of the credential, because the host's clock was set.
        mutating func moveEnd(to end: Instant, at now: Instant) {
            expiresAt = end
            guard !isRenewing, !isReportedExpiring || now < expiresAt.advanced(by: .zero - margin) else { return }
            isReportedExpiring = false
            renewAt = renewal(at: now)
        }

        /// Schedules the next renewal: after half of the remaining time or, once the credential has expired, after as
        /// long again as it has been expired. A source that is broken for a while is asked often while that helps, and
        /// one that is broken for good costs little.
        mutating func renewalFailed(at now: Instant) {
            isRenewing = false
            let remaining = now.duration(to: expiresAt)
            let wait = remaining > .zero ? remaining / 2 : min(.zero - remaining, Self.longestWait)
            renewAt = now.advanced(by: max(Self.shortestWait, wait))
        }

        static let shortestWait = Duration.seconds(1)
        static let longestWait = Duration.seconds(300)
    }

    /// What an attempt knows about its credential.
    struct CredentialTrial: Hashable, Sendable {
        /// Whether a rejected credential has been renewed since the last success.
        var hasRenewed = false
        /// What the server said about the last credential, until the next attempt has another one.
        var rejection: Reason?
        /// What the attempt under way waits for before anything else; `nil` when it has its credential, or needs none.
        var wait: Wait?

        enum Wait: Hashable, Sendable {
            /// The program or file that has the credential.
            case source
            /// Its turn to run the program.
            case turn
        }

        func timeout(after limit: Duration) -> Reason {
            let sentence = "the credential was not there after \(limit)"
            guard let rejection else { return Reason(.credentialUnreadable, sentence) }
            return Reason(
                .credentialUnreadable, "\(rejection.message), and \(sentence)", serverCode: rejection.serverCode)
        }
    }

    mutating func credentialAwaited(_ generation: Generation, at now: Instant) {
        restartPhase(of: generation, deadline: now.advanced(by: timeouts.credential), .source)
    }

    mutating func credentialQueued(_ generation: Generation, at now: Instant) {
        restartPhase(of: generation, deadline: now, .turn)
    }

    /// Restarts the limit of the resolving phase, which has two parts with a limit each: credential and name.
    private mutating func restartPhase(of generation: Generation, deadline: Instant, _ wait: CredentialTrial.Wait?) {
        guard case .trying(var trying) = state,
            case .attempting(let attempt, .resolving, _, let established) = trying.activity,
            attempt.generation == generation
        else { return }
        trying.activity = .attempting(attempt, phase: .resolving, deadline: deadline, established: established)
        trying.credential.wait = wait
        if wait == nil { trying.credential.rejection = nil }
        state = .trying(trying)
    }

    /// Takes over the end of a credential that the attempt under way has fetched, or the new end of the present one
    /// after the host's clock was set.
    mutating func credentialObtained(_ generation: Generation, expiresAt: Instant?, at now: Instant) {
        guard liveGeneration == generation else { return }
        restartPhase(of: generation, deadline: now.advanced(by: limit(of: .resolving)), nil)
        guard let expiresAt else {
            credential = nil
            return
        }
        if credential?.generation == generation {
            credential?.moveEnd(to: expiresAt, at: now)
        } else {
            credential = CredentialLife(generation, expiresAt: expiresAt, at: now)
        }
    }

    mutating func credentialRenewed(
        _ generation: Generation, expiresAt: Instant?, at now: Instant, into actions: inout [Action]
    ) {
        guard case .connected(let connected) = state, connected.attempt.generation == generation, let old = credential,
            old.isRenewing
        else { return }
        // A credential that ends no later gains nothing: a helper that answers from a cache has not renewed anything
        // yet. Neither does one that would expire before a connection that takes as long as this one is up: the session
        // would reconnect in a loop.
        let needed = old.obtainedAt.duration(to: connected.since)
        if let expiresAt, expiresAt <= old.expiresAt || expiresAt <= now.advanced(by: needed) {
            credentialRenewalFailed(generation, at: now)
            return
        }
        credential = nil
        abandon(connected, because: Reason(.credentialRenewed), at: now, into: &actions)
    }

    mutating func credentialReplaced(_ generation: Generation, expiresAt: Instant?, at now: Instant) {
        guard case .connected(let connected) = state, connected.attempt.generation == generation,
            credential?.isRenewing == true
        else { return }
        credential = expiresAt.flatMap { CredentialLife(generation, expiresAt: $0, at: now) }
    }

    mutating func credentialRenewalFailed(_ generation: Generation, at now: Instant) {
        guard credential?.generation == generation, credential?.isRenewing == true else { return }
        credential?.renewalFailed(at: now)
    }

    /// The failure that the change of a file may end: that of a session that has failed, or that of the last attempt while
    /// the next one is waited for; `nil` if no file is to blame.
    package var failureOfFile: Reason? {
        switch state {
        case .failed where reason.code.group == .auth || reason.code == .certificateInvalid:
            return reason
        case .trying(let trying):
            guard case .waiting = trying.activity, let last = trying.lastFailure, last.awaitsFile else { return nil }
            return last
        case .connected, .disconnecting, .disconnected, .failed:
            return nil
        }
    }

    /// Tries again, because there is now a credential other than the one that the server rejected, there are other
    /// authorities than those that did not know the server, or a file may be readable now.
    mutating func credentialChanged(at now: Instant, into actions: inout [Action]) {
        guard failureOfFile != nil else { return }
        if case .trying(let trying) = state {
            hasten(trying, because: Reason(.credentialChanged), at: now, into: &actions)
        } else {
            // A file that changes again and again brings attempts forward only as often as the network may.
            startTrying(because: Reason(.credentialChanged), isHastened: true, at: now, into: &actions)
        }
    }

    mutating func renewCredential(of connected: Connected, at now: Instant, into actions: inout [Action]) {
        guard let due = renewalDeadline(of: connected), now >= due, let credential else { return }
        self.credential?.renewAt = nil
        self.credential?.isRenewing = true
        self.credential?.isReportedExpiring = true
        if !credential.isReportedExpiring { actions.append(.report(.credentialExpiring(at: credential.expiresAt))) }
        actions.append(.renewCredential(credential.generation))
    }

    func renewalDeadline(of connected: Connected) -> Instant? {
        guard let credential, credential.generation == connected.attempt.generation, let renewAt = credential.renewAt
        else { return nil }
        // Not at once if it became due while the connection was being made.
        return max(renewAt, connected.since.advanced(by: CredentialLife.shortestWait))
    }

    private var liveGeneration: Generation? {
        switch state {
        case .connected(let connected): connected.attempt.generation
        case .trying(let trying):
            if case .attempting(let attempt, _, _, _) = trying.activity { attempt.generation } else { nil }
        case .disconnected, .disconnecting, .failed: nil
        }
    }
}

extension Reason {
    /// Whether an attempt failed because of a file that may be about to be written, or to be made readable.
    fileprivate var awaitsFile: Bool {
        code == .credentialUnreadable || detail == .ownFilesUnusable || detail == .certificateWanted
    }
}
