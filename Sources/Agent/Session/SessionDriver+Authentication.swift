import Configuration
import Logging
import MQTT
import NIOCore
import Session
import SessionCore

// Enhanced authentication (MQTT 5, 4.12): the password is proven and never sent, and a new one is taken to the server on
// the connection that is up.

extension SessionDriver {
    var usesSCRAM: Bool { configuration.mqtt.authentication == .scramSHA256 }

    /// Who we are, for the CONNECT of the present link.
    var connectCredentials: MQTTCredentials {
        guard usesSCRAM else {
            return MQTTCredentials(
                username: username, password: link?.password.map { ByteBuffer(bytes: $0) })
        }
        return MQTTCredentials(username: configuration.username, authentication: exchange)
    }

    /// A password needs a name as well.
    var username: String? { configuration.username ?? (session.credentials.given == nil ? nil : configuration.user) }

    private var exchange: SCRAMClient { SCRAMClient(username: configuration.username ?? configuration.user) }

    /// Makes the key that answers the server's challenge, where it keeps nobody waiting.
    func challenged(_ challenge: SCRAMClient.Challenge) {
        guard let link, let password = link.renewal?.credential.secret ?? link.password else { return }
        let (generation, derive) = (link.generation, surroundings.deriveKey)
        Task {
            guard let key = await derive(password, challenge), self.link?.generation == generation else { return }
            run(.keyDerived(key))
        }
    }

    func authenticationFailed(_ failure: SCRAMClient.Failure) {
        let reason: Reason
        switch failure {
        case .malformed: reason = Reason(.protocolError, "\(failure)")
        case .refused: reason = Reason(.credentialRejected, "\(failure)")
        case .iterations, .notProven: reason = Reason(.serverUnauthenticated, "\(failure)")
        }
        var ending = SessionMachine.Ending(reason)
        if case .malformed = failure { ending.failsIfRepeated = true }
        protocolEnded(ending)
    }

    // MARK: On a connection that is up

    /// Takes a new credential to the server in place. If the server does not answer in time, it is taken there by a
    /// reconnect.
    func reauthenticate(with credential: SessionCredential, _ generation: Generation) {
        let limit = configuration.timeouts.authenticate
        link?.renewal = (credential, now.advanced(by: limit))
        run(.reauthenticate(exchange))
    }

    func reauthenticationIsDue() {
        guard let link, let renewal = link.renewal, renewal.deadline <= now else { return }
        self.link?.renewal = nil
        reconnect(with: renewal.credential, link.generation)
    }

    func reauthenticated() {
        guard let link, let credential = link.renewal?.credential else { return }
        self.link?.renewal = nil
        self.link?.password = credential.secret
        lastOpened?.password = credential.secret
        session.credentials.mark = credential.mark
        surroundings.logger.debug(
            "\(name): the server has taken the new credential", metadata: ["HOLDFAST_SESSION": "\(name)"])
        replaced(until: credential.end)
    }
}
