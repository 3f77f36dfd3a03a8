package import MQTT
import NIOCore
import SessionCore

// The actions and events of the protocol machine.

extension Session {
    mutating func handle(_ input: MQTTClientMachine.Input) {
        switch input {
        case .connectionClosed, .connectionEnded:
            act(.answer(consumers.connectionEnded(), .subscription(nil)))
            publications.connectionClosed()
            perform(rooms.connectionClosed())
        case .clockStepped(let milliseconds, let range):
            durableConsumers.forgetAhead()
            shiftVerdict(by: milliseconds, within: range)
        default: break
        }
        withAnswers { session, answers in
            let now = session.now
            if case .received = input { session.link?.flow.arrivedAt = now }
            let signsOfLife = session.mqtt.signsOfLife
            session.mqtt.configuration.messageWeight = session.consumers.messageWeight
            session.mqtt.handle(input, at: session.wallClock, into: &answers)
            if let link = session.link, session.mqtt.signsOfLife != signsOfLife {
                let arrival = link.flow.arrivedAt ?? now
                session.machine.heard(link.generation, arrivedAt: arrival, at: now)
                session.rooms.membership?.presence.heard(at: arrival)
            }
        }
    }

    /// Shifts the times of what is stored, because the wall clock was set before this session was made, and the disk has
    /// not taken that. What was decided since then has the right times.
    package mutating func shiftStored(by milliseconds: Int64, recordedWithin range: ClosedRange<Timestamp>) {
        withAnswers { session, answers in
            session.mqtt.handle(
                .clockStepped(by: milliseconds, acceptedWithin: range), at: session.wallClock, into: &answers)
        }
    }

    /// Carries out the protocol machine's actions, in a buffer that is reused.
    mutating func withAnswers(_ body: (inout Session, inout [MQTTClientMachine.Action]) -> Void) {
        var answers: [MQTTClientMachine.Action] = []
        swap(&answers, &funnel.answers)
        body(&self, &answers)
        for action in answers { perform(action) }
        answers.removeAll(keepingCapacity: true)
        swap(&answers, &funnel.answers)
        checkFlushed()
    }

    mutating func perform(_ action: MQTTClientMachine.Action) {
        switch action {
        case .event(let event):
            handle(event)
        case .commit(let changes, let number):
            act(.commitNumbered(changes, number))
        case .load(let after, let messages, let bytes):
            act(.load(after: after, messages: messages, bytes: bytes))
        case .send(let bytes, let flush):
            guard let link, let connection = link.connection else { return }
            machine.sent(link.generation, at: now)
            self.link?.flow.unflushed += bytes.readableBytes
            act(.send(connection, bytes, flush))
        case .close:
            if let connection = link?.connection { act(.close(connection)) }
        }
    }

    // MARK: Flow

    /// The kernel has taken this many more bytes. Call it between two inputs.
    ///
    /// - Returns: whether there is anything left to decide or to carry out.
    package mutating func flushed(_ count: Int, on connection: DialID, at moment: Moment) -> Bool {
        self.moment = moment
        if link?.connection == connection { link?.flow.unflushed -= count }
        adjustReading()
        return hasWork
    }

    /// How many bytes of answers may wait for a server that does not read them, before the session stops reading from
    /// it. The heartbeat detects such a server.
    private static let maximumUnflushedAnswers = 256 << 10

    /// Stops or resumes reading from the server. Our own messages on a slow link are not a reason to stop: they have a
    /// limit of their own, and the server must be heard in the meantime.
    mutating func adjustReading() {
        guard let link, let connection = link.connection else { return }
        let limit = link.flow.isReading ? Self.maximumUnflushedAnswers : Self.maximumUnflushedAnswers / 2
        let reads = link.flow.unflushed - mqtt.unflushedMessageBytes <= limit && mqtt.wantsToRead
        guard reads != link.flow.isReading else { return }
        self.link?.flow.isReading = reads
        let now = now
        if reads { self.link?.flow.resumedAt = now }
        act(.read(connection, reads))
    }

    /// Lets other sessions go first when a server sends more than is handled in one turn of the loop.
    mutating func readOn() {
        guard let link, !link.flow.readsOn else { return }
        if mqtt.isBehind {
            self.link?.flow.readsOn = true
            act(.readOnLater(link.generation))
        } else if let end = link.flow.end {
            self.link?.flow.end = nil
            retire(link, because: end)
        }
    }

    // MARK: Events

    private mutating func handle(_ event: MQTTClientMachine.Event) {
        switch event {
        case .connected(let connected):
            established(connected)
        case .restored:
            subscriptionsRestored()
            funnel.work.append(.measure)
        case .pingAnswered:
            pingAnswered()
        case .settled:
            tellMachine { .settled($0) }
        case .refused(let server):
            protocolEnded(renewalRefused(server, ending(server, in: .connack)))
        case .disconnectedByServer(let server):
            tell(publications.serverEnded(server.code, isAlone: mqtt.counts.inFlight == 0))
            protocolEnded(ending(server, in: .disconnect).considering(server.finding))
        case .unanswered(let sentence, let finding):
            protocolEnded(SessionMachine.Ending(Reason(.unanswered, sentence)).considering(finding))
        case .protocolViolation(_, let sentence, let finding):
            // The reason code is our own, not the server's.
            protocolEnded(SessionMachine.Ending(Reason(.protocolError, sentence)).considering(finding))
        case .versionInsufficient:
            var ending = SessionMachine.Ending(Reason(.otherVersion))
            ending.pace = .otherWay
            protocolEnded(ending)
        case .foreignProtocol(let other):
            // Behind a proxy, the address is the proxy's, which is not to blame.
            let place = settings.proxy == .none ? link?.peer?.name : link?.address.authority
            protocolEnded(.init(Reason(other, at: place)))
        case .unknownSession:
            act(.tell(.unknownSession))
        case .stateMismatch(let sentence):
            protocolEnded(.init(Reason(.stateMismatch, sentence)))
        case .discarded(let isForgottenLate):
            discarded(isForgottenLate: isForgottenLate)
        case .challenged(let challenge):
            if let link, let password = link.login.renewal?.credential.secret ?? link.login.password {
                act(.deriveKey(link.generation, password: password, challenge))
            }
        case .reauthenticated:
            reauthenticated()
        case .authenticationFailed(let failure):
            protocolEnded(SessionMachine.Ending(failure))
        case .delivered(let sequence, let code):
            if publications.isHeldBack { advancePublications() }
            act(.tell(.delivered(sequence, code)))
        case .rejected(let message):
            if publications.isHeldBack { advancePublications() }
            act(.tell(.rejected(message)))
        case .received(let message):
            counts.received += 1
            perform(rooms.received(message))
            if let (received, wanting) = consumers.received(
                message, number: counts.received, session: settings.name)
            {
                act(.deliver(received, to: wanting))
            }
        case .messageRefused(let message):
            counts.refused += 1
            act(.tell(.messageRefused(message)))
        case .collected(let messages):
            durableConsumers.collected(messages)
            act(.loadConsumers)
        case .collectingPaused:
            losses.collectingPaused(for: settings.retryInterval, at: now)
        case .consumerMissed(let consumer, let sequence, let count):
            durableConsumers.dropped(through: sequence, of: consumer)
            act(.tell(.consumerMissed(consumer)))
            losses.dropped(count, at: now)
        case .inboxDropped:
            losses.dropped(1, at: now)
        case .subscribed(let filter, let answer):
            subscribed(filter, answer)
        case .announced(let announcement, let answer):
            if !publicationAnswered(announcement, answer) {
                perform(rooms.announced(announcement, answer, by: link?.address.description, at: now))
            }
        case .accepted(let sequence):
            counts.published += 1
            endKey(of: sequence)
            act(.tell(.accepted(sequence)))
        case .requeued(let sequence):
            act(.tell(.accepted(sequence)))
        case .notAccepted(let sequence):
            endKey(of: sequence)
            act(.tell(.notAccepted(sequence)))
        case .dropped(let message):
            counts.dropped += 1
            if publications.isHeldBack { advancePublications() }
            act(.tell(.messageDropped(message)))
        case .repeated(let count): act(.tell(.repeated(count)))
        case .serverLowersQoS: act(.tell(.serverLowersQoS))
        case .inboxFull(let isFull): act(.tell(.inboxFull(isFull)))
        case .subscriptionChanged(let filter):
            // Not that of a room that has just refused the session: it is not requested again.
            if wantedQoS(of: filter) != nil { act(.tell(.subscriptionChanged(filter))) }
        case .unsubscribed:
            break
        }
    }

    private mutating func pingAnswered() {
        tellMachine { .heartbeatAnswered($0) }
        perform(rooms.announceRefused(at: now))
        if publications.retryRefused(at: now) { advancePublications() }
        funnel.work.append(.measure)
        act(.statusChanged)
    }

    /// Reconnects at once, before another client with the same identifier, or the one that used it before, creates the
    /// session again. A server that forgets it late is given a moment for that, but no more.
    private mutating func discarded(isForgottenLate: Bool) {
        var ending = SessionMachine.Ending(
            Reason(.stateMismatch, "the server's session is discarded, and the next connection begins a new one"))
        ending.pace = isForgottenLate ? .soon : .otherWay
        protocolEnded(ending)
    }

    private mutating func subscribed(_ filter: TopicFilter, _ answer: ServerAnswer) {
        if !answer.isRefusal { granted(filter) }
        act(.answer(consumers.answered(filter), .subscription(answer)))
        act(.tell(.subscriptionAnswered(filter)))
        perform(rooms.subscribed(filter, answer))
    }

    /// The next call with the same key will find the message in the store, or find that it is not there.
    private mutating func endKey(of sequence: MessageSequence) {
        if let next = calls.keys.answered(sequence) { act(.answer([next.call], .keyTurn(next.turn))) }
    }

    private mutating func established(_ connected: MQTTClientMachine.Connected) {
        clientID = connected.clientID
        publications.connected(isProbable: connected.isProbable, isKept: connected.isCertain)
        connections.serverMayHaveRestarted = false
        guard let link else { return }
        if connected.found == .olderCopy { act(.tell(.olderCopy)) }
        let retained = RetainedTopics(publications: publications.retained, presences: rooms.topics)
        let found = servers.homes.retained(at: link.address)
        var changes = servers.connected(
            to: link.address, as: mqtt.version, connected, leaving: mqtt.takeLeftBehind(), retaining: retained,
            at: wallClock)
        changes += publications.returned(to: found.publications).map { .rememberRetained($0) }
        if !changes.isEmpty { act(.commit(changes)) }
        rooms.returned(to: found.presences)
        act(.tell(.granted(connected)))
        perform(
            rooms.connected(
                to: link.address.description, resumed: connected.resumed, isWillDelayed: mqtt.version == .five, at: now,
                time: wallClock))
        // In a room, the keep-alive that the session asked for may be shorter than the heartbeat's interval.
        let keepAlive = [connected.keepAlive, mqtt.configuration.keepAlive].filter { $0 > 0 }.min()
        tellMachine(
            .established(
                link.generation, resumed: connected.resumed, serverKeepAlive: keepAlive.map { .seconds(Int64($0)) }))
    }

    // MARK: Ends

    /// Returns what the server's reason for refusing or ending the connection means for the session.
    private mutating func ending(
        _ server: MQTTClientMachine.ServerReason, in place: Consequence.Place
    ) -> SessionMachine.Ending {
        guard let link else { return SessionMachine.Ending(server, in: place) }
        if let ending = versionRefused(server, by: link) { return ending }
        var ending = SessionMachine.Ending(server, in: place)
        let measures = Consequence.measures(for: server.code, in: place)
        guard measures.contains(.follow) else { return ending }
        let isStable =
            state == .connected && machine.since.duration(to: now) >= settings.stableAfter
        switch servers.redirections.follow(
            server.serverReference ?? "", from: link.address, of: link.attempt.endpoint,
            isRemembered: measures.contains(.remember), isStable: isStable)
        {
        case .followed:
            ending.pace = .otherWay
        case .refused(let sentence):
            ending.reason = Reason(.redirectRefused, sentence, serverCode: server.code.rawValue)
        case .tooMany:
            ending.reason.message += ", but there were too many redirections in a row"
            ending.pace = .slow
        case .empty:
            ending.reason.message += ", but named no address"
        case .unusable:
            ending.reason.message += ", but that is not an address"
        }
        return ending
    }

    /// Handles a server that said it does not speak the version. With version = "auto" the session continues with the
    /// other version, at the same server and at once; `nil` if no version is left.
    private mutating func versionRefused(
        _ server: MQTTClientMachine.ServerReason, by link: Link
    ) -> SessionMachine.Ending? {
        guard server.code == .unsupportedProtocolVersion,
            let other = servers.protocols.refused(mqtt.version, at: link.address)
        else { return nil }
        var ending = SessionMachine.Ending(
            Reason(
                .serverClosed, "the server does not speak MQTT \(mqtt.version), and MQTT \(other) is tried",
                serverCode: server.code.rawValue))
        ending.pace = .otherWay
        return ending
    }

    /// Ends the connection because of what the server said or did. What the protocol machine still has to send goes out
    /// first.
    private mutating func protocolEnded(_ ending: SessionMachine.Ending) {
        guard let link else { return }
        var ending = ending
        if ending.reason.code.group == .auth, credentials.exists {
            ending.reason = namedByEnd(ending.reason)
            // The next attempt finds out whether there is another credential.
            ending.mayHaveNewCredential = true
            let secret = link.login.renewal?.credential.secret ?? link.login.password
            credentials.serverRejected(secret)
            if settings.hasPassword, let secret, secret == credentials.given?.secret {
                act(
                    .tell(
                        .credentialNotRenewed(
                            "the server rejected the token that a program gave (\(ending.reason.message)), and the "
                                + "credential that the session's file names is used again")))
            }
        }
        self.link?.ending = link.ending ?? ending
        retire(link.generation, ending)
    }
}
