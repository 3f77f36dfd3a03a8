import ControlAPI
import Logging
import MQTT
import NIOCore
import NetworkPath
import SessionCore

// Where the session's credential comes from, when it ends, and how another one is noticed.

extension SessionDriver {
    /// When the credential of a connection ends.
    struct CredentialLife {
        var end: CredentialEnd
        /// The end as the machine was told it last.
        var told: Instant
    }

    // MARK: For an attempt

    /// Fetches the password for the proxy, if it wants one, and then the session's own credential.
    func fetchProxyPassword(for attempt: Attempt) {
        guard let reference = configuration.proxy.password else {
            fetchCredential(for: attempt)
            return
        }
        let generation = attempt.generation
        take(.credentialAwaited(generation))
        let credentials = surroundings.credentials
        Task {
            do throws(Credential.Failure) {
                let credential = try await credentials.fetch(reference)
                guard link?.generation == generation else { return }
                link?.proxyPassword = credential.secret
                take(.credentialObtained(generation, expiresAt: nil))
                fetchCredential(for: attempt)
            } catch {
                let sentence = "the password for the proxy cannot be read: \(error)"
                retire(generation, .init(Reason(.credentialUnreadable, sentence)))
            }
        }
    }

    private func fetchCredential(for attempt: Attempt) {
        if let given = usableGivenCredential(for: attempt) {
            take(.credentialAwaited(attempt.generation))
            return use(given, for: attempt)
        }
        guard let reference = configuration.password else {
            dialOrLook(attempt)
            return
        }
        fetchCredential(reference, for: attempt)
    }

    // MARK: From a program

    /// Takes a credential from a program, instead of the one that the session's file names, and to the server at once.
    func renewToken(_ token: String, expires: RFC3339?) throws(RPCError) -> SessionState {
        try checkRunning()
        guard !token.isEmpty, token.utf8.count <= 65_535 else {
            throw .invalidParameters("a token has 1 to 65535 bytes")
        }
        guard configuration.mayCarryPassword else {
            throw .badConfiguration(
                "the token would be sent unencrypted: session \(name) needs mqtts:// or wss://, or insecure = true")
        }
        let end = expires.map { CredentialEnd.byWallClock($0) }
        guard end.map({ $0.instant(wallClock: wallClock, bootClock: now) > now }) ?? true else {
            throw .invalidParameters("the token has ended already")
        }
        let credential = Credential.Fetched(secret: Array(token.utf8), end: end, mark: nil)
        givenCredential = credential
        switch machine.status.state {
        case .connected where credential.secret == link?.password:
            learn(end)
        case .connected:
            renewedCredential = credential
            renew(because: Reason(.credentialRenewed))
            renewedCredential = nil
        case .failed:
            take(.credentialChanged)
        case .connecting, .reconnecting, .disconnecting, .disconnected:
            break
        }
        return machine.status.state
    }

    /// The credential that a program gave, as long as it is good: what the server rejected, or has ended, gives way to the
    /// configured one.
    private func usableGivenCredential(for attempt: Attempt) -> Credential.Fetched? {
        guard let given = givenCredential, link?.renewed == nil, configuration.password != nil else {
            return link?.renewed ?? givenCredential
        }
        let isRejected = attempt.rejection != nil && given.secret == rejectedSecret
        let hasEnded = given.end.map { $0.instant(wallClock: wallClock, bootClock: now) <= now } ?? false
        guard isRejected || hasEnded else { return given }
        givenCredential = nil
        return nil
    }

    /// Fetches the credential, or takes the one that was just renewed, and goes on to dial.
    private func fetchCredential(_ reference: SecretReference, for attempt: Attempt) {
        let generation = attempt.generation
        take(.credentialAwaited(generation))
        if let renewed = link?.renewed {
            link?.renewed = nil
            use(renewed, for: attempt)
            return
        }
        let credentials = surroundings.credentials
        Task {
            do throws(Credential.Failure) {
                use(try await credentials.fetch(reference), for: attempt)
            } catch {
                // What was rejected is on the way of being replaced, or its helper needs a network or a service.
                let rejection = attempt.rejection.map { "\($0.message), and " } ?? ""
                retire(
                    generation,
                    Reason(
                        .credentialUnreadable, "\(rejection)the password cannot be read: \(error)",
                        serverCode: attempt.rejection?.serverCode))
            }
        }
    }

    private func use(_ credential: Credential.Fetched, for attempt: Attempt) {
        guard link?.generation == attempt.generation else { return }
        if let rejection = attempt.rejection, credential.secret == rejectedSecret {
            credentialMark = credential.mark
            rejectedSecret = nil
            retire(attempt.generation, rejection)
            return
        }
        rejectedSecret = nil
        guard !usesSCRAM || SCRAMClient.isUsable(credential.secret) else {
            retire(
                attempt.generation,
                Reason(
                    .credentialUnreadable, "SCRAM-SHA-256 takes no password with control characters, and no empty one"))
            return
        }
        link?.password = credential.secret
        credentialMark = credential.mark
        learn(credential.end)
        dialOrLook(attempt)
    }

    func learn(_ end: CredentialEnd?) {
        guard let generation = link?.generation else { return }
        let instant = end?.instant(wallClock: wallClock, bootClock: now)
        link?.credentialLife = end.flatMap { end in instant.map { CredentialLife(end: end, told: $0) } }
        take(.credentialObtained(generation, expiresAt: instant))
    }

    // MARK: Before its end

    /// A date comes sooner or later when the host's clock is set. That is looked at whenever a timer wakes the session,
    /// which the heartbeat does often enough.
    func checkCredentialEnd() {
        guard let life = link?.credentialLife, case .byWallClock = life.end else { return }
        let shift = life.told.duration(to: life.end.instant(wallClock: wallClock, bootClock: now))
        if shift > .seconds(1) || shift < .seconds(-1) { learn(life.end) }
    }

    /// When the credential in use ends, for people.
    var credentialEnd: RFC3339? {
        link?.credentialLife?.end.date(wallClock: wallClock, bootClock: now)
    }

    func renewCredential(_ generation: Generation) {
        guard let reference = configuration.password else { return }
        let credentials = surroundings.credentials
        Task {
            do throws(Credential.Failure) {
                renewed(try await credentials.fetch(reference), for: generation)
            } catch {
                surroundings.logger.warning(
                    "\(name): the credential could not be renewed: \(error)", metadata: ["HOLDFAST_SESSION": "\(name)"])
                take(.credentialRenewalFailed(generation))
            }
        }
    }

    private func renewed(_ credential: Credential.Fetched, for generation: Generation) {
        guard link?.generation == generation else { return }
        guard credential.secret != link?.password else {
            // Nothing to take to the server; but it may last longer than it did.
            take(.credentialRenewalFailed(generation))
            learn(credential.end)
            return
        }
        // One that ends no later is no gain, and not worth an exchange.
        let end = credential.end?.instant(wallClock: wallClock, bootClock: now)
        let isLonger = end.map { end in link?.credentialLife.map { end > $0.told } ?? true } ?? true
        if isLonger, mqtt.canReauthenticate, SCRAMClient.isUsable(credential.secret) {
            reauthenticate(with: credential, generation)
        } else {
            reconnect(with: credential, generation)
        }
    }

    /// Takes a new credential to the server by a quick reconnect.
    func reconnect(with credential: Credential.Fetched, _ generation: Generation) {
        renewedCredential = credential
        take(
            .credentialRenewed(
                generation, expiresAt: credential.end?.instant(wallClock: wallClock, bootClock: now)))
        renewedCredential = nil
    }

    /// The server has taken a new credential on the connection that is up.
    func replaced(until end: CredentialEnd?) {
        guard let generation = link?.generation else { return }
        let instant = end?.instant(wallClock: wallClock, bootClock: now)
        link?.credentialLife = end.flatMap { end in instant.map { CredentialLife(end: end, told: $0) } }
        take(.credentialReplaced(generation, expiresAt: instant))
    }

    // MARK: After a rejection

    /// MQTT has no code for a credential that has ended; but its source told when it ends.
    func namedByEnd(_ reason: Reason) -> Reason {
        guard let end = link?.credentialLife?.end, end.instant(wallClock: wallClock, bootClock: now) <= now else {
            return reason
        }
        return Reason(
            .credentialExpired,
            "\(reason.message); the credential ended at \(end.date(wallClock: wallClock, bootClock: now))",
            serverCode: reason.serverCode)
    }

    /// A session that failed because of its credential starts again when the file with it changes.
    func watchCredential() {
        credentialWatch = nil
        guard machine.status.state == .failed, machine.reason.code.group == .auth,
            let reference = configuration.password, let path = try? Credential.path(of: reference)
        else { return }
        do throws(Credential.Failure) {
            credentialWatch = try CredentialWatch(path, last: credentialMark ?? FileMark(path)) { [weak self] in
                Task { await self?.credentialChanged() }
            }
        } catch {
            surroundings.logger.warning(
                "\(name): the credential is not watched for changes: \(error)",
                metadata: ["HOLDFAST_SESSION": "\(name)"])
        }
    }

    private func credentialChanged() {
        // A change that was seen just before the session went on by other means is nothing new.
        guard credentialWatch != nil else { return }
        take(.credentialChanged)
    }
}
