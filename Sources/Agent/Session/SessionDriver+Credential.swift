import Configuration
import ControlAPI
import Logging
import Session
import SessionCore
import Transport

// Where the session's credential comes from, when it ends, and how a new one is noticed.

extension SessionDriver {
    struct Secrets: ~Copyable {
        /// The file whose change may end a failure.
        var watch: CredentialWatch?
        /// What is being fetched, for uses that the session still wants.
        var fetches: [SecretUse: Task<Void, Never>] = [:]
    }

    // MARK: From its source

    func fetch(_ use: SecretUse) {
        let reference =
            switch use {
            case .proxy, .knock: configuration.proxy.password
            case .login, .renewal: configuration.password
            }
        guard let reference else { preconditionFailure("the settings say which secrets there are") }
        let source = surroundings.credentials
        let task = Task {
            let input: Session.Input
            do throws(Credential.Failure) {
                input = .fetched(use, try await source.fetch(reference))
            } catch {
                input = .notFetched(use, "\(error)")
            }
            guard !Task.isCancelled else { return }
            secrets.fetches[use] = nil
            run(input)
        }
        secrets.fetches.updateValue(task, forKey: use)?.cancel()
    }

    /// Ends the helpers of attempts that were given up.
    func endUnwantedFetches() {
        guard !secrets.fetches.isEmpty else { return }
        for use in secrets.fetches.keys where !ask({ $0.wants(use) }) {
            secrets.fetches.removeValue(forKey: use)?.cancel()
        }
    }

    // MARK: From a program

    func renewToken(_ token: String, expires: Timestamp?) throws(RPCError) -> SessionState {
        try checkRunning()
        try ask { session throws(RPCError) in try session.give(token, expires: expires) }
        run()
        return session.state
    }

    // MARK: After a rejection

    /// Watches the file that the session failed because of, the credential's or that of the authorities, so that a change
    /// starts it again.
    func watchCredential() {
        secrets.watch = nil
        guard let (path, rejected) = fileToChange else { return }
        let present = FileMark(path)
        // Checked here at once, so that a failure whose cause is already gone is not reported.
        if let rejected, let present, present != rejected { return take(.credentialChanged) }
        do throws(Credential.Failure) {
            secrets.watch = try CredentialWatch(path, last: rejected ?? present) {
                [weak self] in
                Task { await self?.credentialChanged() }
            }
        } catch {
            surroundings.logger.warning(
                "\(name): \(path) cannot be watched for changes: \(error)", metadata: metadata)
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
        guard secrets.watch != nil else { return }
        take(.credentialChanged)
    }
}
