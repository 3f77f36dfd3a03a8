import Configuration
import Glibc
import Logging
import MQTT
import NIOCore
import Session
import SessionCore
import Transport

// Carries out the session's actions.

extension SessionDriver {
    func carryOut(_ action: Session.Action) {
        switch action {
        case .dial(let id, let dialed):
            dial(dialed, id)
        case .send(let id, let bytes, let flush):
            send(bytes, flush, on: id)
        case .letGo(let id, let closing):
            let connection = connections.removeValue(forKey: id)
            if let closing { connection?.close(closing) }
        case .close(let id):
            connections[id]?.close(.afterFlush)
        case .read(let id, let reads):
            if reads { connections[id]?.resumeReading() } else { connections[id]?.pauseReading() }
        case .readOnLater(let generation):
            surroundings.turns.wait { [weak self] in self?.assumeIsolated { $0.run(.readOn(generation)) } }
        case .measure(let generation, let id):
            measure(generation, id)
        case .lookUp(let endpoint, let watch):
            lookUp(endpoint, watch)
        case .fetch(let use):
            fetch(use)
        case .deriveKey(let generation, let password, let challenge):
            Task { await deriveKey(generation, password, challenge) }
        case .watchCredential:
            watchCredential()
        case .commit(let changes):
            commitDecisions(changes)
        case .commitNumbered(let changes, let number):
            commit(changes, number)
        case .commitAnswered(let changes):
            store(changes)
        case .load(let after, let messages, let bytes):
            load(after: after, messages: messages, bytes: bytes)
        case .answer(let calls, .subscription(let answer)):
            programs.subscribing.answer(calls, answer)
        case .answer(let calls, .outcome(let outcome)):
            programs.commanding.answer(calls, outcome)
        case .answer(let calls, .turn):
            programs.queueing.answer(calls, ())
        case .answer(let calls, .keyTurn(let turn)):
            programs.keying.answer(calls, turn)
        case .answer(let calls, .room(let error)):
            programs.switching.answer(calls, error.map { .failure($0) } ?? .success(()))
        case .isDown:
            programs.leaving.answerAll(())
        case .deliver(let message, let wanting):
            deliver(message, to: wanting)
        case .loadConsumers:
            loadConsumers()
        case .report(let report):
            note(report)
        case .tell(let news):
            tell(news)
        case .statusChanged:
            surroundings.report(name, nil)
        }
    }

    // MARK: Connections

    private func dial(_ dialed: DialTarget, _ id: DialID) {
        // The knock's connection may be gone by now: fetching the credential took time, and the server may have closed
        // it.
        if let knock = dialed.knock, let connection = connections.removeValue(forKey: knock),
            connection.proceed(onEvent: events(of: id))
        {
            connections[id] = connection
            return run(.connection(id, .dialing))
        }
        var options = Connection.Options(configuration, for: dialed.address, proxyPassword: dialed.proxyPassword)
        if case .knock(let isBehindProxy, let limit) = dialed.goal {
            options.stop = isBehindProxy ? .server : .firstHop
            (options.dialTimeout, options.handshakeTimeout) = (limit, configuration.timeouts.dial)
        }
        options = surroundings.bound(options, by: configuration.network, of: name)
        if case .knock = dialed.goal {
            surroundings.logger.debug("\(name): tries whether \(dialed.address) answers", metadata: metadata)
        } else {
            surroundings.logger.debug("\(name): dials \(dialed.address)", metadata: metadata)
        }
        connections[id] = surroundings.dial(dialed.address, options, tlsContexts, events(of: id))
    }

    private func events(of id: DialID) -> (ConnectionEvent) -> Void {
        { [weak self] event in self?.assumeIsolated { $0.take(event, of: id) } }
    }

    func take(_ event: ConnectionEvent, of id: DialID) {
        guard let role = ask({ $0.connections.role(of: id) }) else { return }
        if surroundings.logger.logLevel <= .debug, let words = event.words {
            surroundings.logger.debug("\(name): \(words)", metadata: metadata)
        }
        if case .tlsFilesRejected(let failure) = event {
            if case .knock = role { return }
            log.tlsFilesRejected(failure)
        } else if case .addressesAvoided(let which, let why) = event {
            log.addressesAvoided(which, because: why)
        } else if let dialEvent = DialEvent(event) {
            if case .closed(.failed(let failure)) = event, failure.code == .certificateInvalid {
                ask { $0.rejectedCertificate(by: tlsContexts.authorities(for: configuration.tls)) }
            }
            if case .opened(let opened) = event, configuration.tls.certificate != nil {
                ask { $0.usedCertificate(opened.tlsVersion == nil ? nil : tlsContexts.identity) }
            }
            if case .received = dialEvent, simulation.isSilent(id) { return }
            run(.connection(id, dialEvent))
            if case .closed(.failed(let failure)) = event, failure.isOfRoute(for: role) {
                surroundings.paths.lookAgain()
            }
        }
    }

    private func send(_ bytes: ByteBuffer, _ flush: FlushNumber?, on id: DialID) {
        guard let connection = connections[id] else { return }
        let count = bytes.readableBytes
        if simulation.isSilent(id) {
            // The network swallows the bytes, so they count as taken by the kernel.
            eventLoop.execute { [weak self] in self?.assumeIsolated { $0.flushed(count, flush, on: id) } }
            return
        }
        connection.send(bytes) { [weak self] in
            self?.assumeIsolated { $0.flushed(count, flush, on: id) }
        }
    }

    /// Gives the session the kernel's view of the connection.
    private func measure(_ generation: Generation, _ id: DialID) {
        if let measured = connections[id]?.measure() { answer(.machine(.measured(generation, measured))) }
    }

    /// Adds the configuration under which a session failed: whether it has changed is asked at the next start.
    func withDigest(_ change: SessionChange) -> SessionChange {
        guard case .setVerdict(var verdict?) = change, verdict.isFailure else { return change }
        verdict.configuration = configuration.digest
        return .setVerdict(verdict)
    }
}

extension TransportFailure {
    /// Whether the kernel may take another way from now on, about which it says nothing. A host on the way that does not
    /// answer is also reported for each knock, which is too often to look at all paths.
    fileprivate func isOfRoute(for role: DialRole) -> Bool {
        switch (systemError, role) {
        case (ENETUNREACH, _), (ENETDOWN, _): true
        case (EHOSTUNREACH, .knock): false
        case (EHOSTUNREACH, _): true
        default: false
        }
    }
}
