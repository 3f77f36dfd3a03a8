import Configuration
import ControlAPI
import Logging
import Session
import SessionCore
import Transport

// Where the session's credential comes from, when it ends, and how a new one is noticed.

extension SessionDriver {
    // MARK: From a program

    /// Takes a credential from a program, to use instead of the one that the session's file names, and takes it to the
    /// server at once.
    func renewToken(_ token: String, expires: Timestamp?) throws(RPCError) -> SessionState {
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
            throw .invalidParameters("the token has already expired")
        }
        let credential = SessionCredential(secret: Array(token.utf8), end: end, mark: nil)
        run(.credentialGiven(credential))
        return session.state
    }

    // MARK: After a rejection

    /// Watches the file that the session failed because of, the credential's or that of the authorities, so that a change
    /// starts it again.
    func watchCredential() {
        credentialWatch = nil
        guard let (path, rejected) = fileToChange else { return }
        let present = FileMark(path)
        // Checked here at once, so that a failure whose cause is already gone is not reported.
        if let rejected, let present, present != rejected { return take(.credentialChanged) }
        do throws(Credential.Failure) {
            credentialWatch = try CredentialWatch(path, last: rejected ?? present) {
                [weak self] in
                Task { await self?.credentialChanged() }
            }
        } catch {
            surroundings.logger.warning(
                "\(name): \(path) cannot be watched for changes: \(error)",
                metadata: ["HOLDFAST_SESSION": "\(name)"])
        }
    }

    /// The file whose change may help, and its version when the session failed, if that is known.
    private var fileToChange: (path: String, rejected: FileMark?)? {
        switch ask({ $0.fileToWatch }) {
        case .authorities?:
            let authorities = configuration.tls.authorities ?? TLSOptions.systemAuthorityFiles.first(where: exists)
            return authorities.map { ($0, nil) }
        case .credential(let rejected)?:
            return configuration.password.flatMap { try? Credential.path(of: $0) }.map { ($0, rejected) }
        case nil: return nil
        }
    }

    private func exists(_ path: String) -> Bool { FileMark(path) != nil }

    private func credentialChanged() {
        // Ignore a change that was seen just before the session went on for another reason.
        guard credentialWatch != nil else { return }
        take(.credentialChanged)
    }
}
