import Configuration
import Logging
import MQTT
import NIOCore
import Session
import SessionCore
import Transport

// What has to be there before an attempt's connection is dialed: secrets, and a look into the room.

/// How far an attempt, or a successor, is prepared. Each step begins when the one above it is done, and a step that does not
/// apply is passed over.
enum Preparation: Hashable, Sendable {
    /// The password for the proxy, if it wants one.
    case proxyPassword
    /// The session's own credential, if it has one.
    case credential
    /// Who is present in the room, if the attempt has to know. A successor has not: the session is connected.
    case look
    /// Nothing is missing.
    case dial
}

/// What a secret is fetched for.
enum SecretUse: Hashable, Sendable {
    case proxy(DialRole)
    case login(DialRole)
    /// A credential that is about to end.
    case renewal(Generation)
    /// The proxy's, for a knock behind it.
    case knock(EndpointIndex, Knocks.Number)
}

extension SessionDriver {
    /// - Parameter role: an attempt, or a successor.
    func prepare(_ role: DialRole, from step: Preparation = .proxyPassword) {
        guard let attempt = role.attempt, let link = preparing(role) else { return }
        switch step {
        case .proxyPassword:
            guard let reference = configuration.proxy.password else { return prepare(role, from: .credential) }
            take(.credentialAwaited(attempt.generation))
            fetch(reference, for: .proxy(role))
        case .credential:
            if let credential = link.fetched ?? session.credentials.given(for: role, wallClock: wallClock, at: now) {
                take(.credentialAwaited(attempt.generation))
                use(credential, for: role)
            } else if let reference = configuration.password {
                take(.credentialAwaited(attempt.generation))
                fetch(reference, for: .login(role))
            } else {
                prepare(role, from: .look)
            }
        case .look:
            if case .attempt = role {
                stopLooking()
                update(role) { $0.isDialed = true }
            }
            if !looks(role) { prepare(role, from: .dial) }
        case .dial:
            if goOnWithKnock(role) { return }
            let options = Connection.Options(configuration, for: link.address, proxyPassword: link.proxyPassword)
            let connection = dial(link.address, options, as: role)
            update(role) { $0.connection = connection }
        }
    }

    /// The link that is prepared; `nil` if it is no longer wanted.
    private func preparing(_ role: DialRole) -> Link? {
        switch role {
        case .attempt(let attempt): link?.generation == attempt.generation ? link : nil
        case .successor(let attempt): successor?.generation == attempt.generation ? successor : nil
        case .look, .knock: nil
        }
    }

    private func update(_ role: DialRole, _ change: (inout Link) -> Void) {
        guard var link = preparing(role) else { return }
        change(&link)
        if case .successor = role { successor = link } else { self.link = link }
    }

    /// Nothing comes of it.
    private func abandon(_ role: DialRole, _ reason: Reason) {
        guard let attempt = role.attempt else { return }
        if case .successor = role {
            successorFailed(attempt.generation, reason.message)
        } else {
            retire(attempt.generation, reason)
        }
    }

    // MARK: Secrets

    func fetch(_ reference: SecretReference, for use: SecretUse) {
        let source = surroundings.credentials
        Task {
            do throws(Credential.Failure) {
                fetched(try await source.fetch(reference), for: use)
            } catch {
                notFetched(error, for: use)
            }
        }
    }

    private func fetched(_ credential: SessionCredential, for use: SecretUse) {
        switch use {
        case .proxy(let role):
            guard let attempt = role.attempt, preparing(role) != nil else { return }
            update(role) { $0.proxyPassword = credential.secret }
            take(.credentialObtained(attempt.generation, expiresAt: nil))
            prepare(role, from: .credential)
        case .login(let role):
            self.use(credential, for: role)
        case .renewal(let generation):
            renewed(credential, for: generation)
        case .knock(let endpoint, let number):
            knockPrepared(endpoint, number, proxyPassword: credential.secret)
        }
    }

    private func notFetched(_ failure: Credential.Failure, for use: SecretUse) {
        switch use {
        case .proxy(let role):
            abandon(role, Reason(.credentialUnreadable, "the password for the proxy cannot be read: \(failure)"))
        case .login(let role):
            // What was rejected is about to be replaced, or its helper needs a network or a service.
            let rejection = role.attempt?.rejection
            abandon(
                role,
                Reason(
                    .credentialUnreadable,
                    "\(rejection.map { "\($0.message), and " } ?? "")the password cannot be read: \(failure)",
                    serverCode: rejection?.serverCode))
        case .renewal(let generation):
            surroundings.logger.warning(
                "\(name): the credential could not be renewed: \(failure)", metadata: ["HOLDFAST_SESSION": "\(name)"])
            take(.credentialRenewalFailed(generation))
        case .knock(let endpoint, _):
            take(.knocked(endpoint, .silent))
        }
    }

    private func use(_ credential: SessionCredential, for role: DialRole) {
        guard preparing(role) != nil else { return }
        if case .attempt(let attempt) = role, let rejection = session.credentials.obtained(credential, for: attempt) {
            return abandon(role, rejection)
        }
        guard !usesSCRAM || SCRAMClient.isUsable(credential.secret) else {
            return abandon(
                role,
                Reason(
                    .credentialUnreadable, "SCRAM-SHA-256 takes no password with control characters, and no empty one"))
        }
        update(role) {
            $0.fetched = credential
            $0.password = credential.secret
        }
        if case .attempt = role { noteCredential(credential) }
        prepare(role, from: .look)
    }

    /// The attempt has its credential.
    func noteCredential(_ credential: SessionCredential) {
        session.credentials.mark = credential.mark
        learn(credential.end)
    }
}
