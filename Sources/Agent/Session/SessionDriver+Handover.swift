import Logging
import MQTT
import NIOCore
import SessionCore
import Transport

// Make before break: the connection that is set up beside the one in use, and takes over from it. When, the session
// machine says; see SessionMachine+Handover.swift.

/// A link beside the one in use, on its way to CONNECT.
struct Successor {
    var link: SessionDriver.Link
    var credential: Credential.Fetched?

    var generation: Generation { link.generation }
}

extension SessionDriver {
    /// Sets up everything before CONNECT, to the address that is in use: the session is there.
    func prepare(_ attempt: Attempt) {
        successor?.link.connection?.close(.abort)
        guard let link else { return }
        successor = Successor(link: Link(attempt: attempt, address: link.address))
        let (proxy, own) = (configuration.proxy.password, configuration.password)
        let given = givenCredential
        guard proxy != nil || own != nil || given != nil else {
            dialBeside(attempt)
            return
        }
        let (generation, credentials) = (attempt.generation, surroundings.credentials)
        Task {
            do throws(Credential.Failure) {
                var (ofProxy, credential): (Credential.Fetched?, Credential.Fetched?)
                if let proxy { ofProxy = try await credentials.fetch(proxy) }
                if let given {
                    credential = given
                } else if let own {
                    credential = try await credentials.fetch(own)
                }
                guard successor?.generation == generation else { return }
                successor?.link.proxyPassword = ofProxy?.secret
                successor?.link.password = credential?.secret
                successor?.credential = credential
                guard !usesSCRAM || credential.map({ SCRAMClient.isUsable($0.secret) }) ?? false else {
                    return successorFailed(generation, "the password cannot be used")
                }
                dialBeside(attempt)
            } catch {
                successorFailed(generation, "the password cannot be read: \(error)")
            }
        }
    }

    private func dialBeside(_ attempt: Attempt) {
        guard let link = successor?.link else { return }
        let options = Connection.Options(configuration, for: link.address, proxyPassword: link.proxyPassword)
        successor?.link.connection = openConnection(to: link.address, options: options) { [weak self] event in
            self?.assumeIsolated { $0.successorEvent(event, attempt.generation) }
        }
    }

    private func successorEvent(_ event: ConnectionEvent, _ generation: Generation) {
        guard successor?.generation == generation else {
            // It has taken over; or it is given up, and nobody listens.
            connectionEvent(event, generation)
            return
        }
        switch event {
        case .resolving, .resolved, .reached, .writabilityChanged:
            break
        case .tlsFilesRejected(let failure):
            log.tlsFilesRejected(failure)
        case .dialing:
            progressed(generation, .dialing)
        case .securing:
            progressed(generation, .securing)
        case .opened(let opened):
            successor?.link.opened = opened
            take(.prepared(generation))
        case .received:
            successorFailed(generation, "the server spoke before it was spoken to")
        case .closed(let end):
            successor?.link.connection = nil
            successorFailed(generation, Reason(end).message)
        }
    }

    private func successorFailed(_ generation: Generation, _ sentence: String) {
        surroundings.logger.debug(
            "\(name): no second connection over the new path: \(sentence)", metadata: ["HOLDFAST_SESSION": "\(name)"])
        take(.preparationFailed(generation))
    }

    // MARK: Taking over

    /// Tells the server, behind everything that it was sent on this connection, that no more comes here. The session is
    /// back in a moment, and the will must not be dropped: nobody may be there to say it later.
    func leave(_ generation: Generation) {
        guard let link, link.generation == generation else { return }
        // MQTT 3.1.1 knows one way to leave, and a connection that is closed without it publishes the will at once.
        let keepsWill = mqtt.version == .five && rooms.membership != nil
        handle(.disconnect(keepsWill ? .disconnectWithWill : .normalDisconnection))
        link.connection?.close(.afterFlush)
        self.link = nil
        handle(.connectionClosed)
    }

    /// The attempt goes on with what was set up beside the connection before.
    ///
    /// - Returns: `false` if there is nothing to go on with.
    func goOnWithSuccessor(_ attempt: Attempt) -> Bool {
        guard let successor, successor.generation == attempt.generation, successor.link.connection != nil else {
            return false
        }
        self.successor = nil
        link = successor.link
        prepareRoom()
        if let credential = successor.credential {
            credentialMark = credential.mark
            learn(credential.end)
        }
        if let opened = successor.link.opened { self.opened(opened, on: successor.link) }
        return true
    }

    /// Asked after every step, so that whatever ends a hand-over need not say so.
    func dropUnwantedSuccessor() {
        guard let successor, successor.generation != machine.successor else { return }
        self.successor = nil
        successor.link.connection?.close(.abort)
    }

    /// The same for the connection in use: what was held back goes on, if it stays.
    func endSettling() {
        if mqtt.isSettling, !machine.isSettling { run(.goOn) }
    }
}
