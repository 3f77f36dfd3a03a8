import ControlAPI
import MQTT
import NIOCore
package import SessionCore
package import Vocabulary

// Where the session's credential comes from, when it ends, and how a new one gets to the server: by a quick reconnect,
// or with enhanced authentication (MQTT 5, 4.12) on the connection that is up.

extension Session {
    // MARK: Login

    /// The credentials for CONNECT on the current link.
    var connectCredentials: MQTTCredentials {
        guard settings.provesPassword else {
            return MQTTCredentials(
                username: username, password: link?.login.password.map { ByteBuffer(bytes: $0) })
        }
        return MQTTCredentials(username: settings.username, authentication: exchange)
    }

    /// The user name for CONNECT. If none is configured, a password that a program gave is sent with the session's user.
    package var username: String? { settings.username ?? (credentials.given == nil ? nil : settings.user) }

    private var exchange: SCRAMClient { SCRAMClient(username: settings.username ?? settings.user) }

    /// Notes the credential that the attempt uses.
    mutating func noteCredential(_ credential: SessionCredential) {
        credentials.file = credential.file
        learn(credential.end)
    }

    private mutating func learn(_ end: CredentialEnd?) {
        guard let generation = link?.generation else { return }
        tellMachine(.credentialObtained(generation, expiresAt: live(until: end)))
    }

    /// Notes when the link's credential ends.
    ///
    /// - Returns: the end as an instant.
    private mutating func live(until end: CredentialEnd?) -> Instant? {
        let instant = end?.instant(wallClock: wallClock, bootClock: now)
        link?.login.expiry = end.flatMap { end in instant.map { CredentialExpiry(end: end, told: $0) } }
        return instant
    }

    /// When the credential in use ends, as a date for people.
    var credentialEnd: Timestamp? { link?.login.expiry?.end.date(wallClock: wallClock, bootClock: now) }

    // MARK: From a program

    mutating func given(_ credential: SessionCredential) {
        credentials.given = credential
        servers.redirections.passwordGiven()
        switch state {
        case .connected where credential.secret == link?.login.password:
            learn(credential.end)
        case .connected:
            credentials.beginRenewal(with: credential)
            renew(because: Reason(.credentialRenewed))
            funnel.work.append(.endRenewal)
        case .failed:
            tellMachine(.credentialChanged)
        case .connecting, .reconnecting, .disconnecting, .disconnected:
            break
        }
    }

    // MARK: Before its end

    /// Checks whether the host's clock was set, which moves an end that is given as a date. Called whenever a timer
    /// wakes the session, which the heartbeat does often enough.
    ///
    /// - Returns: whether the end has moved.
    @discardableResult
    package mutating func checkCredentialEnd() -> Bool {
        guard let expiry = link?.login.expiry, case .byWallClock = expiry.end else { return false }
        let shift = expiry.told.duration(to: expiry.end.instant(wallClock: wallClock, bootClock: now))
        guard shift > .seconds(1) || shift < .seconds(-1) else { return false }
        learn(expiry.end)
        return true
    }

    mutating func renewed(_ credential: SessionCredential, for generation: Generation) {
        guard let link, link.generation == generation else { return }
        guard credential.secret != link.login.password else {
            // There is nothing to take to the server, but the credential may last longer than before.
            tellMachine(.credentialRenewalFailed(generation))
            learn(credential.end)
            return
        }
        // A credential that ends no later is not worth an exchange.
        let end = credential.end?.instant(wallClock: wallClock, bootClock: now)
        let isLonger = end.map { end in link.login.expiry.map { end > $0.told } ?? true } ?? true
        if isLonger, mqtt.canReauthenticate, SCRAMClient.isUsable(credential.secret) {
            let deadline = now.advanced(by: settings.timeouts.authenticate)
            self.link?.login.renewal = (credential, deadline)
            take(.mqtt(.reauthenticate(exchange)))
        } else {
            reconnect(with: credential, generation)
        }
    }

    /// Takes a new credential to the server by a quick reconnect.
    private mutating func reconnect(with credential: SessionCredential, _ generation: Generation) {
        credentials.beginRenewal(with: credential)
        tellMachine(
            .credentialRenewed(
                generation, expiresAt: credential.end?.instant(wallClock: wallClock, bootClock: now)))
        funnel.work.append(.endRenewal)
    }

    // MARK: On a connection that is up

    /// A part of a key is derived for this link. Meanwhile the server waits for us, so its time to answer begins again: a
    /// million iterations may take this host longer than that time.
    ///
    /// - Returns: whether the key is still needed.
    package mutating func stillDerives(for generation: Generation) -> Bool {
        guard link?.generation == generation else { return false }
        let deadline = now.advanced(by: settings.timeouts.authenticate)
        machine.isOurTurn(generation, at: now)
        link?.login.renewal?.deadline = deadline
        return true
    }

    /// Falls back to a reconnect with the new credential if the server has not answered in time.
    mutating func reauthenticationIsDue() {
        guard let link, let renewal = link.login.renewal, renewal.deadline <= now else { return }
        self.link?.login.renewal = nil
        act(
            .tell(
                .credentialNotRenewed(
                    "the server did not answer AUTH on this connection within \(settings.timeouts.authenticate.text)")))
        reconnect(with: renewal.credential, link.generation)
    }

    mutating func reauthenticated() {
        guard let link, let credential = link.login.renewal?.credential else { return }
        self.link?.login.renewal = nil
        self.link?.login.credential = credential
        connections.lastOpened?.login.credential = credential
        credentials.file = credential.file
        act(.tell(.credentialTaken))
        tellMachine(.credentialReplaced(link.generation, expiresAt: live(until: credential.end)))
    }

    // MARK: After a rejection

    /// Names an ended credential as the reason if its source said when it ends: MQTT has no code for that.
    func namedByEnd(_ reason: Reason) -> Reason {
        guard let end = link?.login.expiry?.end, end.instant(wallClock: wallClock, bootClock: now) <= now else {
            return reason
        }
        return Reason(
            .credentialExpired,
            "\(reason.message); the credential ended at \(end.date(wallClock: wallClock, bootClock: now))",
            serverCode: reason.serverCode)
    }

    // MARK: After a failure

    /// A file, or a few that belong together, whose change may end a failure.
    package enum WatchedFile: Hashable, Sendable {
        /// The one with the trusted certificates.
        case authorities
        case credential
        case proxyCredential
        /// This host's own certificate and its key.
        case certificate
    }

    /// Those whose change can end the failure of the session or of its last attempt, if the session has them at all.
    package var filesToWatch: [WatchedFile] {
        switch machine.failureOfFile?.code {
        case nil: []
        case .certificateInvalid?: [.authorities]
        case .credentialUnreadable?: [.credential, .proxyCredential]
        case .tlsFailed?: [.authorities, .certificate]
        // Whether the server has objected to the password or to the certificate is not known.
        default: [.credential, .certificate]
        }
    }

    /// The version of a file that the session failed with; `nil` if that is not known, and for one that an attempt could
    /// not use: the present one counts there.
    package func rejectedVersion(of file: WatchedFile) -> FileVersion? {
        guard state == .failed else { return nil }
        return switch file {
        case .authorities: credentials.authorities
        case .credential: credentials.file
        case .certificate: credentials.certificate
        case .proxyCredential: nil
        }
    }

    /// The versions of ``filesToWatch`` that the session failed with, one a line, for the next run of the daemon.
    package var rejectedFiles: String? {
        get {
            var lines = filesToWatch.map { rejectedVersion(of: $0)?.rawValue ?? "" }
            while lines.last?.isEmpty == true { lines.removeLast() }
            return lines.isEmpty ? nil : lines.joined(separator: "\n")
        }
        set {
            let lines = (newValue ?? "").split(separator: "\n", omittingEmptySubsequences: false)
            for (file, line) in zip(filesToWatch, lines) where !line.isEmpty {
                let version = FileVersion(rawValue: String(line))
                switch file {
                case .authorities: credentials.authorities = version
                case .credential: credentials.file = version
                case .certificate: credentials.certificate = version
                case .proxyCredential: break
                }
            }
        }
    }

    /// A connection was made with this version of this host's own certificate and its key.
    package mutating func usedCertificate(_ version: FileVersion?) { credentials.certificate = version }

    /// The server's certificate was rejected by these files of trusted authorities. If they are replaced before another
    /// endpoint is tried, the first one has not been tried with the new ones.
    package mutating func rejectedCertificate(by authorities: FileVersion?) {
        credentials.authorities = credentials.authorities ?? authorities
    }
}
