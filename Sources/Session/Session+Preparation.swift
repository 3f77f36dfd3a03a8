import MQTT
import SessionCore

// What an attempt needs before its connection is dialed: secrets, and a look into the room.

/// How far an attempt or a successor is prepared. Each step begins when the one above it is done; a step that does not
/// apply is skipped.
enum Preparation: Hashable, Sendable {
    /// The password for the proxy, if it wants one.
    case proxyPassword
    /// The session's own credential, if it has one.
    case credential
    /// Who is present in the room, if the attempt has to know. A successor never does, since the session is connected.
    case look
    /// Nothing is missing.
    case dial
}

extension Session {
    /// - Parameter role: an attempt, or a successor.
    mutating func prepare(_ role: DialRole, from step: Preparation = .proxyPassword) {
        guard let attempt = role.attempt, let link = preparing(role) else { return }
        switch step {
        case .proxyPassword:
            guard case .some(_, hasPassword: true) = settings.proxy else { return prepare(role, from: .credential) }
            tellMachine(.credentialAwaited(attempt.generation))
            act(.fetch(.proxy(role)))
        case .credential:
            if let credential = link.login.credential ?? credentials.given(for: role, wallClock: wallClock, at: now) {
                tellMachine(.credentialAwaited(attempt.generation))
                use(credential, for: role)
            } else if settings.hasPassword {
                tellMachine(.credentialAwaited(attempt.generation))
                act(.fetch(.login(role)))
            } else {
                prepare(role, from: .look)
            }
        case .look:
            if case .attempt = role {
                stopLooking()
                self.link?.isDialed = true
            }
            if !looks(role) { prepare(role, from: .dial) }
        case .dial:
            let dialed = DialTarget(address: link.address, proxyPassword: link.login.proxyPassword, knock: link.knock)
            let connection = dial(dialed, as: role)
            update(role) { $0.stage = .dialing(connection) }
        }
    }

    /// Returns the link that is being prepared; `nil` if it is no longer wanted.
    private func preparing(_ role: DialRole) -> Link? {
        switch role {
        case .attempt(let attempt): link?.generation == attempt.generation ? link : nil
        case .successor(let attempt):
            connections.successor?.generation == attempt.generation ? connections.successor : nil
        case .look, .knock: nil
        }
    }

    private mutating func update(_ role: DialRole, _ change: (inout Link) -> Void) {
        guard var link = preparing(role) else { return }
        change(&link)
        if case .successor = role { connections.successor = link } else { self.link = link }
    }

    /// Ends an attempt or a successor that cannot be prepared.
    private mutating func abandon(_ role: DialRole, _ reason: Reason) {
        guard let attempt = role.attempt else { return }
        if case .successor = role {
            successorFailed(attempt.generation, reason.message)
        } else {
            retire(attempt.generation, .init(reason))
        }
    }

    // MARK: Secrets

    /// Whether a secret that is being fetched is still needed.
    package func wants(_ use: SecretUse) -> Bool {
        switch use {
        case .proxy(let role), .login(let role): preparing(role) != nil
        case .renewal(let generation): link?.generation == generation
        case .knock(let endpoint, let number): knocks.isLast(number) && machine.wantsKnock(at: endpoint)
        }
    }

    mutating func fetched(_ credential: SessionCredential, for use: SecretUse) {
        switch use {
        case .proxy(let role):
            guard let attempt = role.attempt, preparing(role) != nil else { return }
            update(role) { $0.login.proxyPassword = credential.secret }
            tellMachine(.credentialObtained(attempt.generation, expiresAt: nil))
            prepare(role, from: .credential)
        case .login(let role):
            self.use(credential, for: role)
        case .renewal(let generation):
            renewed(credential, for: generation)
        case .knock(let endpoint, let number):
            knockPrepared(endpoint, number, proxyPassword: credential.secret)
        }
    }

    mutating func notFetched(_ sentence: String, for use: SecretUse) {
        switch use {
        case .proxy(let role):
            abandon(
                role,
                Reason(
                    .credentialUnreadable, "the password for the proxy cannot be read: \(sentence)",
                    detail: .unreadable(ofProxy: true)))
        case .login(let role):
            // This may pass: the rejected credential may be about to be replaced, or its helper may need a network or a
            // service.
            let rejection = role.attempt?.rejection
            abandon(
                role,
                Reason(
                    .credentialUnreadable,
                    "\(rejection.map { "\($0.message), and " } ?? "")the password cannot be read: \(sentence)",
                    serverCode: rejection?.serverCode, detail: .unreadable(ofProxy: false)))
        case .renewal(let generation):
            act(.tell(.credentialNotRenewed(sentence)))
            tellMachine(.credentialRenewalFailed(generation))
        case .knock(let endpoint, _):
            tellMachine(.knocked(endpoint, .silent))
        }
    }

    private mutating func use(_ credential: SessionCredential, for role: DialRole) {
        guard preparing(role) != nil else { return }
        if case .attempt(let attempt) = role, let rejection = credentials.obtained(credential, for: attempt) {
            return abandon(role, rejection)
        }
        guard !settings.provesPassword || SCRAMClient.isUsable(credential.secret) else {
            return abandon(
                role,
                Reason(
                    .credentialUnreadable,
                    "SCRAM-SHA-256 needs a password that is not empty and has no control characters"))
        }
        update(role) { $0.login.credential = credential }
        if case .attempt = role { noteCredential(credential) }
        prepare(role, from: .look)
    }
}
