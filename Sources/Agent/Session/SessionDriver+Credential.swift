import Configuration
import ControlAPI
import Logging
import MQTT
import Session
import SessionCore
import Transport

// Where the session's credential comes from, when it ends, and how a new one is noticed.

extension SessionDriver {
    struct Secrets: ~Copyable {
        /// Waits for the change of a file that may end a failure.
        var watch: Task<Void, Never>?
        /// What is being fetched, for uses that the session still wants.
        var fetches: [SecretUse: Task<Void, Never>] = [:]
        /// The key for the last challenge, as far as it is derived. The next attempt may need the same.
        var derivation: SCRAMClient.Derivation?

        deinit { watch?.cancel() }
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
                input = .fetched(
                    use,
                    try await source.fetch(reference) { turn in self.assumeIsolated { $0.turnChanged(turn, for: use) } }
                )
            } catch {
                input = .notFetched(use, "\(error)")
            }
            guard !Task.isCancelled else { return }
            secrets.fetches[use] = nil
            run(input)
        }
        secrets.fetches.updateValue(task, forKey: use)?.cancel()
    }

    private func turnChanged(_ turn: RunningHelpers.Turn, for use: SecretUse) {
        guard secrets.fetches[use] != nil else { return }
        switch turn {
        case .isAwaited: run(.fetchQueued(use))
        case .hasCome: run(.fetchBegun(use))
        }
    }

    /// Ends the helpers of attempts that were given up.
    func endUnwantedFetches() {
        guard !secrets.fetches.isEmpty else { return }
        for use in secrets.fetches.keys where !ask({ $0.wants(use) }) {
            secrets.fetches.removeValue(forKey: use)?.cancel()
        }
    }

    /// Derives the key for a challenge, for as long as the connection that it came on is in use: a server can ask for a
    /// million iterations, and hang up.
    func deriveKey(_ generation: Generation, _ password: [UInt8], _ challenge: SCRAMClient.Challenge) async {
        var derivation = SCRAMClient.Derivation(password, challenge)
        if let last = secrets.derivation, last.isFor(password, challenge) { derivation = last }
        while derivation.key == nil {
            guard let next = await surroundings.derive(derivation), ask({ $0.stillDerives(for: generation) }) else {
                return
            }
            derivation = next
            secrets.derivation = next
        }
        if let key = derivation.key { run(.keyDerived(generation, key)) }
    }

    // MARK: From a program

    func renewToken(_ token: String, expires: Timestamp?) throws(RPCError) -> SessionState {
        try checkRunning()
        try ask { session throws(RPCError) in try session.give(token, expires: expires) }
        run()
        return session.state
    }

    // MARK: After a rejection

    /// Watches the files that the session, or its last attempt, failed because of: those of the credential, the authorities
    /// or this host's own certificate. A change starts the session again, or makes the next attempt at once.
    func watchCredential() {
        endWatch()
        let files = filesToChange
        guard !files.isEmpty else { return }
        let source = surroundings.credentials
        secrets.watch = Task { [weak self] in
            let result: Result<Void, Credential.Failure>
            do throws(Credential.Failure) {
                result = .success(try await source.change(of: files))
            } catch {
                result = .failure(error)
            }
            await self?.watchEnded(result, of: files[0].paths[0])
        }
    }

    func endWatch() {
        secrets.watch?.cancel()
        secrets.watch = nil
    }

    private func watchEnded(_ result: Result<Void, Credential.Failure>, of path: String) {
        // Ignore a change that was seen just before the session went on for another reason.
        guard !Task.isCancelled else { return }
        secrets.watch = nil
        switch result {
        case .success:
            take(.credentialChanged)
        case .failure(let error):
            // Attempts go on in any other state.
            guard session.state == .failed else { return }
            surroundings.logger.warning(
                "\(name): \(path) cannot be watched for changes: \(error)", metadata: metadata)
        }
    }

    /// The files whose change may help, as far as the configuration names any.
    private var filesToChange: [WatchedFiles] {
        let wanted = ask { session in session.filesToWatch.map { ($0, session.rejectedVersion(of: $0)) } }
        return wanted.compactMap { file, last in
            let paths =
                switch file {
                case .authorities: configuration.tls.authorityFiles
                case .certificate: configuration.tls.identityFiles
                case .credential: Self.files(of: configuration.password)
                case .proxyCredential: Self.files(of: configuration.proxy.password)
                }
            return paths.isEmpty ? nil : WatchedFiles(paths, last: last)
        }
    }

    private static func files(of reference: SecretReference?) -> [String] {
        guard let reference, let path = try? Credential.path(of: reference) else { return [] }
        return [path]
    }
}
