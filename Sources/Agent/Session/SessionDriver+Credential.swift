import Configuration
import ControlAPI
import Logging
import MQTT
import NIOCore
import NetworkPath
import Session
import SessionCore

// Where the session's credential comes from, when it ends, and how another one is noticed.

extension SessionDriver {
    /// When the credential of a connection ends.
    struct CredentialLife {
        var end: CredentialEnd
        /// The end as the machine was told it last.
        var told: Instant
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
        let credential = SessionCredential(secret: Array(token.utf8), end: end, mark: nil)
        session.credentials.given = credential
        switch session.machine.status.state {
        case .connected where credential.secret == link?.password:
            learn(end)
        case .connected:
            session.credentials.beginRenewal(with: credential)
            renew(because: Reason(.credentialRenewed))
            session.credentials.endRenewal()
        case .failed:
            take(.credentialChanged)
        case .connecting, .reconnecting, .disconnecting, .disconnected:
            break
        }
        return session.machine.status.state
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
        if let reference = configuration.password { fetch(reference, for: .renewal(generation)) }
    }

    func renewed(_ credential: SessionCredential, for generation: Generation) {
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
        if isLonger, session.mqtt.canReauthenticate, SCRAMClient.isUsable(credential.secret) {
            reauthenticate(with: credential, generation)
        } else {
            reconnect(with: credential, generation)
        }
    }

    /// Takes a new credential to the server by a quick reconnect.
    func reconnect(with credential: SessionCredential, _ generation: Generation) {
        session.credentials.beginRenewal(with: credential)
        take(
            .credentialRenewed(
                generation, expiresAt: credential.end?.instant(wallClock: wallClock, bootClock: now)))
        session.credentials.endRenewal()
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
        guard session.machine.status.state == .failed, session.machine.reason.code.group == .auth,
            let reference = configuration.password, let path = try? Credential.path(of: reference)
        else { return }
        let present = FileMark(path)
        // Known at once, so that nobody is told of a failure whose cause is gone.
        if let rejected = session.credentials.mark, let present, present != rejected { return take(.credentialChanged) }
        do throws(Credential.Failure) {
            credentialWatch = try CredentialWatch(path, last: session.credentials.mark ?? present) {
                [weak self] in
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
