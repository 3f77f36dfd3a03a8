import Configuration
import ControlAPI
import DurableStore
import Logging
import MQTT
import NIOCore
import NetworkPath
import Session
import SessionCore
import Transport

// The actions and events of the protocol machine.

extension SessionDriver {
    func perform(_ actions: [MQTTClientMachine.Action]) {
        for action in actions { perform(action) }
        checkFlushed()
    }

    private func perform(_ action: MQTTClientMachine.Action) {
        switch action {
        case .event(let event):
            handle(event)
        case .commit(let changes, let number):
            commit(changes, number)
        case .load(let after, let messages, let bytes):
            load(after: after, messages: messages, bytes: bytes)
        case .send(let bytes, let flush):
            send(bytes, flush)
        case .close:
            connections[link?.connection]?.close(.afterFlush)
        }
    }

    private func send(_ bytes: ByteBuffer, _ flush: FlushNumber?) {
        guard let link, let connection = connections[link.connection] else { return }
        session.machine.sent(link.generation, at: now)
        let (generation, count) = (link.generation, bytes.readableBytes)
        self.link?.unflushed += count
        if simulation.isSilent(generation) {
            // As if the kernel had taken them, for a network that swallows them.
            eventLoop.execute { [weak self] in self?.assumeIsolated { $0.flushed(count, flush, on: generation) } }
            return
        }
        connection.send(bytes) { [weak self] in
            self?.assumeIsolated { $0.flushed(count, flush, on: generation) }
        }
    }

    private func flushed(_ count: Int, _ flush: FlushNumber?, on generation: Generation) {
        if link?.generation == generation { link?.unflushed -= count }
        if let flush { run(.flushed(flush)) } else { adjustReading() }
    }

    /// Bytes of answers to a server that does not read them, before it is not read either. The heartbeat finds such a server.
    private static let maximumUnflushedAnswers = 256 << 10

    /// Lets the server wait, for as long as it has to. Messages of ours on a slow link are no reason: they have a limit of
    /// their own, and the server must be heard meanwhile.
    func adjustReading() {
        guard let link, let connection = connections[link.connection] else { return }
        let limit = link.isReading ? Self.maximumUnflushedAnswers : Self.maximumUnflushedAnswers / 2
        let reads = link.unflushed - session.mqtt.unflushedMessageBytes <= limit && session.mqtt.wantsToRead
        guard reads != link.isReading else { return }
        self.link?.isReading = reads
        if reads { connection.resumeReading() } else { connection.pauseReading() }
    }

    /// Messages that had no room even to wait come again on another connection, when there is room.
    func fetchLeftOut() {
        if session.mqtt.hasRoomForLeftOut, session.machine.status.state == .connected {
            renew(because: Reason(.inboxRoom))
        }
    }

    // MARK: Events

    /// What the server's reason to refuse or end the connection means for the session.
    private func ending(
        _ server: MQTTClientMachine.ServerReason, in place: Consequence.Place
    ) -> SessionMachine.Ending {
        if let ending = versionRefused(server) { return ending }
        var ending = SessionMachine.Ending(server, in: place)
        let measures = Consequence(of: server.code, in: place).measures
        guard measures.contains(.follow), let reference = server.serverReference, let link else { return ending }
        let isStable =
            session.machine.status.state == .connected
            && session.machine.since.duration(to: now) >= configuration.reconnect.stableAfter
        switch session.servers.follow(
            reference, from: link.address, of: link.attempt.endpoint, isRemembered: measures.contains(.remember),
            isStable: isStable)
        {
        case .followed:
            ending.triesOtherWay = true
        case .refused(let sentence):
            ending.reason = Reason(.redirectRefused, sentence, serverCode: server.code.rawValue)
        case .tooMany:
            ending.reason.message += ", which is one server too many in a row"
            ending.pace = .slow
        case .unusable:
            ending.reason.message += ", which is no address"
        }
        return ending
    }

    private func handle(_ event: MQTTClientMachine.Event) {
        switch event {
        case .connected(let connected):
            session.clientID = connected.clientID
            session.publications.connected(isKept: connected.resumed && connected.isCertain)
            if let link {
                let changes = session.servers.connected(
                    to: link.address, as: session.mqtt.version, resumed: connected.resumed)
                if !changes.isEmpty { commit(changes) }
            }
            noteGrant(connected)
            roomConnected(resumed: connected.resumed)
            tellSession {
                .established(
                    $0, resumed: connected.resumed,
                    serverKeepAlive: connected.keepAlive == 0 ? nil : .seconds(Int64(connected.keepAlive)))
            }
        case .restored:
            roomRestored()
            measure()
        case .pingAnswered:
            tellSession { .heartbeatAnswered($0) }
            announceRefusedPresence()
            measure()
            surroundings.report(name, nil)
        case .settled:
            tellSession { .settled($0) }
        case .refused(let server):
            protocolEnded(ending(server, in: .connack))
        case .disconnectedByServer(let server):
            serverEnded(server.code)
            protocolEnded(ending(server, in: .disconnect).considering(server.finding))
        case .unanswered(let sentence, let finding):
            protocolEnded(SessionMachine.Ending(Reason(.unanswered, sentence)).considering(finding))
        case .repeated(let count):
            repeated(count)
        case .protocolViolation(_, let sentence):
            // The code is ours.
            protocolEnded(.init(Reason(.protocolError, sentence)))
        case .foreignProtocol(let other):
            protocolEnded(.init(Reason(other, at: link?.opened?.peerAddress)))
        case .challenged(let challenge):
            challenged(challenge)
        case .reauthenticated:
            reauthenticated()
        case .authenticationFailed(let failure):
            authenticationFailed(failure)
        case .stateMismatch(let sentence):
            protocolEnded(.init(Reason(.stateMismatch, sentence)))
        case .discarded:
            // At once, before another client of this name, or the one that was here before, makes the session anew.
            var ending = SessionMachine.Ending(
                Reason(.stateMismatch, "the server's session is discarded, and the next connection begins a new one"))
            ending.triesOtherWay = true
            protocolEnded(ending)
        case .accepted(let sequence):
            accepted(sequence)
        case .notAccepted(let sequence):
            settle(sequence)
            programs.publishers.removeValue(forKey: sequence)?.told(.ended(.failure(.storeFull)))
        case .delivered(let sequence, let code):
            delivered(sequence, code)
        case .rejected(let message):
            rejected(message)
        case .dropped(let dropped):
            self.dropped(dropped)
        case .serverLowersQoS:
            log.serverLowersQoS()
        case .received(let message):
            session.counts.received += 1
            perform(session.rooms.received(message))
            for received in session.consumers.received(message, number: session.counts.received, session: name) {
                deliver(received)
            }
        case .messageRefused(let message):
            refused(message)
        case .collected(let messages):
            session.durableConsumers.collected(messages)
            loadConsumers()
        case .collectingPaused:
            collectingPaused()
        case .inboxFull(let isFull):
            inboxFull(isFull)
        case .consumerMissed(let consumer, let sequence, let count):
            consumerMissed(consumer, through: sequence, count: count)
        case .inboxDropped:
            session.losses.dropped(1, at: now)
        case .subscribed(let filter, let code):
            programs.subscribing.answer(session.consumers.answered(filter), code)
            perform(session.rooms.subscribed(filter, code))
        case .subscriptionChanged(let filter):
            subscriptionChanged(filter)
        case .announced(let announcement, let code):
            if !publicationAnswered(announcement, code) { announced(announcement, code) }
            renewIfRoomChanged()
        case .unsubscribed:
            break
        }
    }
}
