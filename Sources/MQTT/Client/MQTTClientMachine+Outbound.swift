import NIOCore

// MARK: Accepting

extension MQTTClientMachine {
    /// Takes a message into the outbox. `accepted` follows when it is durable, `notAccepted` if the store has no room.
    ///
    /// - Parameter key: remembered with the message. The caller makes sure that it has not been used before.
    /// - Throws: why the message is not accepted, if that is known at once; nothing has changed then.
    public mutating func publish(
        _ message: OutboundMessage, key: PublishKey? = nil, at now: Timestamp, into actions: inout [Action]
    ) throws(PublishError) -> MessageSequence {
        let sequence = try accept(message, key: key, at: now)
        commitAccepted(at: now, into: &actions)
        return sequence
    }

    /// Does the same without appending the actions: they come with the machine's next input, once for all messages
    /// accepted since the last one. The caller makes sure that there is one, `commitAccepted` at the latest.
    ///
    /// - Throws: why the message is not accepted, as `publish` does; nothing has changed then.
    public mutating func accept(
        _ message: OutboundMessage, key: PublishKey? = nil, at now: Timestamp
    ) throws(PublishError) -> MessageSequence {
        var message = message
        message.properties.topicAlias = nil
        message.properties.messageExpiryInterval = nil
        message.properties.subscriptionIDs = []
        message.acceptedAt = now
        try check(message)
        try admit(message)
        return accept(message, key)
    }

    /// Commits the messages that were accepted.
    public mutating func commitAccepted(at now: Timestamp, into actions: inout [Action]) {
        if !commits.accepted.isEmpty { step(at: now, into: &actions) { _, _ in } }
    }

    /// Sends a quarantined message again, as a new one at the end of the queue: its row gets the new sequence. The
    /// caller makes sure that the message is quarantined and that its row still exists.
    ///
    /// - Throws: ``PublishError/expired``, or what the connected server or its version of MQTT does not accept; nothing
    ///   has changed then. Limits of the outbox do not apply, because the message already counts.
    public mutating func retry(
        _ stored: StoredMessage, at now: Timestamp, into actions: inout [Action]
    ) throws(PublishError) -> MessageSequence {
        guard case .quarantined = stored.state else {
            preconditionFailure("only a quarantined message can be retried")
        }
        // It has expired: sent again, it would only be dropped.
        if let expiresAt = stored.message.expiresAt, expiresAt <= now { throw .expired }
        try check(stored.message)
        return step(at: now, into: &actions) { machine, step in
            machine.outbox.counts.quarantined -= 1
            machine.outbox.counts.bytes -= stored.message.size
            let sequence = machine.outbox.nextSequence()
            var message = stored.message
            message.acceptedAt = now
            machine.enqueue(message, sequence)
            step.changes.append(.requeue(stored.sequence, as: sequence, at: now))
            machine.commits.acceptances.append(
                Acceptance(
                    commit: machine.nextCommit(step), sequence: sequence, size: stored.message.size, isRetry: true))
            return sequence
        }
    }

    private mutating func accept(_ message: OutboundMessage, _ key: PublishKey?) -> MessageSequence {
        let size = message.size
        let goesAtOnce =
            message.qos != .atMostOnce && outbox.isQueueEmpty && link.settling == nil
            && outbox.hasRoom(for: size, bytes: configuration.maximumInFlightBytes)
            && hasRoom(outbox.lastSequence.next) && !isVersionInsufficient(for: message, limits)
        let sequence = outbox.nextSequence()
        // Everything accepted before the next step is one commit.
        let commit = CommitNumber(rawValue: commits.issued.rawValue + 1)
        var stored = StoredMessage(sequence: sequence, message: message)
        var packetID: PacketID?
        if goesAtOnce, let id = identifiers.next(for: message.qos) {
            packetID = id
            stored.state = .inFlight(id)
            outbox.enterFlight(size: size)
            outbox.counts.bytes += size
        } else {
            enqueue(message, sequence)
        }
        commits.accepted.append(.insert(stored))
        if let key {
            commits.hasKeys = true
            commits.accepted.append(.rememberKey(key, sequence, at: message.acceptedAt))
        }
        commits.acceptances.append(Acceptance(commit: commit, sequence: sequence, size: size, packetID: packetID))
        if let packetID { letThrough(Outbox.Queued(sequence: sequence, message: message), packetID, commit) }
        return sequence
    }

    private mutating func enqueue(_ message: OutboundMessage, _ sequence: MessageSequence) {
        outbox.enqueue(
            message, sequence, messages: configuration.readAheadMessages, bytes: configuration.readAheadBytes)
    }

    /// Checks what can be known before a message is accepted (rule 17).
    private func check(_ message: OutboundMessage) throws(PublishError) {
        try Self.checkContent(of: message)
        let limits = self.limits
        switch refusal(of: message, limits) {
        case nil: break
        case .tooLarge(let length)?: throw .tooLarge(length, limit: limits.maximumPacketSize)
        case .qos?: throw .qosNotSupported(maximum: limits.maximumQoS)
        case .retain?: throw .retainNotSupported
        case .properties?: if !isVersionInsufficient(for: message, limits) { throw .propertiesNotSupported }
        }
    }

    /// What the connected server accepts or, without a connection, what can be said in the version of the next one.
    private var limits: ServerLimits {
        if case .connected(let session) = connection { return session.limits }
        return ServerLimits(Connack.Properties(), configuration.version)
    }

    /// Whether the message has to wait for MQTT 5, which is tried again before it is refused.
    func isVersionInsufficient(for message: OutboundMessage, _ limits: ServerLimits) -> Bool {
        guard configuration.isVersionTentative, case .properties? = refusal(of: message, limits) else { return false }
        return true
    }

    /// Leaves a server that may speak MQTT 5 after all.
    mutating func leaveForFive(_ step: inout Step) {
        step.emit(.versionInsufficient)
        disconnect(.normalDisconnection, &step)
    }

    /// Checks that the MQTT version of the present or next connection can express the message, whatever the server
    /// accepts.
    ///
    /// - Throws: ``PublishError/propertiesNotSupported`` if the version is 3.1.1, not only tentatively, and the message has
    ///   properties; otherwise as the static method of this name.
    public func checkContent(of message: OutboundMessage) throws(PublishError) {
        try Self.checkContent(of: message)
        let inUse = isConnected ? version : configuration.version
        guard inUse == .five || configuration.isVersionTentative || !message.hasProperties else {
            throw .propertiesNotSupported
        }
    }

    /// Checks that MQTT can express the message at all.
    ///
    /// - Throws: ``PublishError/invalidTopic(_:)`` or ``PublishError/invalidProperty(_:)``.
    public static func checkContent(of message: OutboundMessage) throws(PublishError) {
        do throws(InvalidTopic) {
            try TopicName.validate(message.topic)
        } catch {
            throw .invalidTopic(error)
        }
        do throws(InvalidTopic) {
            if let topic = message.properties.responseTopic { try TopicName.validate(topic) }
        } catch {
            throw .invalidProperty("the response topic is not valid: \(error)")
        }
        guard message.properties.userProperties.count <= Publish.Properties.maximumRepeats else {
            throw .invalidProperty(
                "the message has more than \(Publish.Properties.maximumRepeats) user properties")
        }
        for property in message.properties.userProperties {
            try check(property.name, "the name of a user property")
            try check(property.value, "the value of a user property")
        }
        if let type = message.properties.contentType { try check(type, "the content type") }
        guard message.properties.correlationData?.readableBytes ?? 0 <= Packet.maximumStringLength else {
            throw .invalidProperty("the correlation data has more than 65,535 bytes")
        }
        guard message.properties.payloadFormat != .utf8 || message.payload.isUTF8 else {
            throw .invalidProperty("the payload is not the UTF-8 text that its format says")
        }
    }

    private static func check(_ string: String, _ what: String) throws(PublishError) {
        guard string.utf8.count <= Packet.maximumStringLength else {
            throw .invalidProperty("\(what) has more than 65,535 UTF-8 bytes")
        }
        guard !string.utf8.contains(0) else { throw .invalidProperty("\(what) contains U+0000") }
        if let character = string.discouragedCharacter {
            throw .invalidProperty(
                "\(what) contains \(character.codePoint), for which a server may close the connection (MQTT 5, 1.5.4)")
        }
    }

    enum Refusal {
        case tooLarge(Int)
        case qos
        case retain
        case properties

        var code: ReasonCode {
            switch self {
            case .tooLarge: .packetTooLarge
            case .qos: .qosNotSupported
            case .retain: .retainNotSupported
            case .properties: .implementationSpecificError
            }
        }

        var sentence: String {
            switch self {
            case .tooLarge(let length): "a packet of \(length) bytes is larger than the server accepts"
            case .qos: "the server does not accept this QoS"
            case .retain: "the server does not retain messages"
            case .properties: "a message of MQTT 3.1.1 has no properties"
            }
        }
    }

    /// An upper bound for the bytes of the message's packet: everything but the counted fields takes less than what is
    /// added.
    private func roughLength(of message: OutboundMessage) -> Int {
        message.size + 64 + 5 * message.properties.userProperties.count
    }

    /// Why a server with these limits must not be sent the message.
    func refusal(of message: OutboundMessage, _ limits: ServerLimits) -> Refusal? {
        if message.qos > limits.maximumQoS { return .qos }
        if message.retain, !limits.retainAvailable { return .retain }
        if !limits.messageProperties, message.hasProperties { return .properties }
        // Most messages need not be measured.
        guard roughLength(of: message) > limits.maximumPacketSize else { return nil }
        var publish = Publish(
            topic: message.topic, payload: message.payload, qos: message.qos, properties: message.properties)
        if message.qos != .atMostOnce { publish.packetID = PacketID(rawValue: 1) }
        if message.expiresAt != nil { publish.properties.messageExpiryInterval = 1 }
        let length = Packet.publish(publish).encodedLength
        return length > limits.maximumPacketSize ? .tooLarge(length) : nil
    }
}

// MARK: Sending

extension MQTTClientMachine {
    /// How many unanswered QoS 1 and 2 messages a server with these limits may be sent.
    func window(_ limits: ServerLimits) -> Int {
        min(limits.receiveMaximum, max(1, configuration.maximumInFlight), lessons.windowCap, quota.windowCap)
    }

    /// Whether this message has to go out alone.
    private mutating func isIsolated(_ sequence: MessageSequence) -> Bool {
        guard let last = isolation.through else { return false }
        if sequence <= last || outbox.inFlight.contains(where: { $0.value.sequence <= last }) { return true }
        isolation.through = nil
        if !isolation.includesAnnouncements { isolation.needsProof = false }
        return false
    }

    /// Whether this QoS 1 or 2 message may go out now, if nothing has to go before it.
    private mutating func hasRoom(_ sequence: MessageSequence) -> Bool {
        guard case .connected(let session) = connection else { return false }
        guard outbox.backlog.bytes < max(1, configuration.maximumUnflushedBytes) else { return false }
        guard outbox.windowCount + announcements.outstanding.count < window(session.limits) else { return false }
        if isolation.includesAnnouncements, isAnnouncing { return false }
        return !isIsolated(sequence)
            || (outbox.outstandingCount == 0 && !isolation.isUnproven && (!isolation.needsProof || !isAnnouncing))
    }

    /// Lets messages through to the connection, in order of acceptance, as far as window and transport have room:
    /// first what has to be sent again, then what is queued. A QoS 0 message keeps its place among them.
    mutating func pump(_ step: inout Step) {
        // A message that the server may have no room for keeps its place.
        link.awaitsClearing = false
        guard case .connected(let session) = connection, !outbox.hasRefused else { return }
        while outbox.backlog.bytes < max(1, configuration.maximumUnflushedBytes) {
            let queued = outbox.first
            if let id = outbox.resend.first, let entry = outbox.inFlight[id] {
                // A message in flight since before a start may come after one of the queue that is still to be read.
                guard queued != nil || outbox.isLoaded(through: entry.sequence) else { return }
                if let queued, queued.sequence < entry.sequence {
                    guard pass(queued, session, &step) else { return }
                } else {
                    guard hasRoom(entry.sequence), let message = entry.message else { return }
                    if isVersionInsufficient(for: message, session.limits) { return leaveForFive(&step) }
                    if let refusal = refusal(of: message, session.limits) {
                        setAside(id, refusal.code, refusal.sentence, &step)
                    } else {
                        outbox.resend.removeFirst()
                        letThrough(
                            Outbox.Queued(sequence: entry.sequence, message: message), id, nextCommit(step))
                    }
                }
            } else if let queued, link.settling == nil {
                guard pass(queued, session, &step) else { return }
            } else {
                return
            }
        }
    }

    /// Takes the next message of the queue. Returns whether the one behind it may be tried.
    private mutating func pass(_ queued: Outbox.Queued, _ session: Connected, _ step: inout Step) -> Bool {
        let message = queued.message
        if fate(of: queued, at: step.now) == nil, isVersionInsufficient(for: message, session.limits) {
            leaveForFive(&step)
            return false
        }
        if fate(of: queued, at: step.now) != nil || message.qos == .atMostOnce
            || refusal(of: message, session.limits) != nil
        {
            return passUnacknowledged(queued, session, &step)
        }
        guard outbox.hasRoom(for: message.size, bytes: configuration.maximumInFlightBytes),
            hasRoom(queued.sequence)
        else { return false }
        guard let id = identifiers.next(for: message.qos) else {
            clearIdentifiers(atMost: window(session.limits), &step)
            return false
        }
        outbox.readAhead.removeFirst()
        outbox.leaveQueue(size: message.size)
        outbox.enterFlight(size: message.size)
        step.changes.append(.assign(queued.sequence, id))
        letThrough(queued, id, nextCommit(step))
        return true
    }

    /// Has the server release identifiers that messages of QoS 2 can then use.
    private mutating func clearIdentifiers(atMost limit: Int, _ step: inout Step) {
        if identifiers.needsProof {
            // An end would say nothing if it could be because of something else.
            link.awaitsClearing = true
            guard subscriptions.requests.isEmpty, announcements.outstanding.isEmpty else { return }
            guard link.isProven else {
                if !link.isAwaiting(.clearing) { ping(.clearing, &step) }
                return
            }
        }
        for id in identifiers.clear(atMost: limit) { enqueue(.pubrel(id, .success), step) }
    }

    /// Takes the next message of the queue, if it needs no room in the window: it is QoS 0, too old, or refused.
    private mutating func passUnacknowledged(
        _ queued: Outbox.Queued, _ session: Connected, _ step: inout Step
    ) -> Bool {
        if let reason = fate(of: queued, at: step.now) {
            dropFirst(queued, because: reason, &step)
        } else if let refusal = refusal(of: queued.message, session.limits) {
            outbox.readAhead.removeFirst()
            outbox.leaveQueue(size: queued.message.size)
            let mayHaveArrived = queued.message.qos == .exactlyOnce && outbox.sentBefore.contains(queued.sequence)
            let sentence = mayHaveArrived ? Self.doubtful(refusal.sentence) : refusal.sentence
            reject(queued.sequence, queued.message.topic, refusal.code, sentence, &step)
        } else {
            guard queued.message.qos == .atMostOnce,
                outbox.backlog.unflushedCount < max(1, configuration.maximumUnflushedQoS0),
                !isIsolated(queued.sequence) || (outbox.outstandingCount == 0 && !isolation.isUnproven)
            else { return false }
            outbox.readAhead.removeFirst()
            outbox.backlog.letThrough(queued)
            enqueue(.publishUnacknowledged, step)
        }
        return true
    }

    private mutating func letThrough(_ queued: Outbox.Queued, _ id: PacketID, _ commit: CommitNumber) {
        let size = queued.message.size
        outbox.inFlight[id, default: Outbox.InFlight(queued)].progress = .letThrough
        outbox.backlog.letThrough(bytes: size)
        commits.work.append(PendingWork(commit: commit, work: .publish(queued.sequence, id)))
    }

    /// Returns whether it was sent.
    mutating func sendPublish(_ sequence: MessageSequence, _ id: PacketID, _ step: inout Step) -> Bool {
        guard let index = outbox.inFlight.index(forKey: id) else { return false }
        let entry = outbox.inFlight.values[index]
        // Otherwise it was answered, or refused by the store, in the meantime.
        guard entry.sequence == sequence, let message = entry.message else { return false }
        let queued = Outbox.Queued(sequence: sequence, message: message)
        if !entry.wasAttempted, let reason = fate(of: queued, at: step.now) {
            finish(id, &step)
            drop(sequence, message.topic, size: entry.size, because: reason, &step)
            return false
        }
        outbox.inFlight.values[index].sent(at: link.reading.send())
        if !outbox.sentBefore.isEmpty { outbox.sentBefore.remove(sequence) }
        patience.exchanges.sent(id, at: step.now)
        write(message, id, duplicate: entry.wasAttempted, &step)
        return true
    }

    mutating func sendUnacknowledged(_ step: inout Step) {
        guard let message = outbox.backlog.nextToWrite() else { return }
        link.reading.sendUnanswerable()
        write(message, nil, duplicate: false, &step)
    }

    private mutating func write(_ message: OutboundMessage, _ id: PacketID?, duplicate: Bool, _ step: inout Step) {
        var publish = Publish(
            topic: message.topic, payload: message.payload, qos: message.qos, retain: message.retain,
            duplicate: duplicate, packetID: id, properties: message.properties)
        if let expiresAt = message.expiresAt, version == .five {
            // A message that was sent before is finished even if it has expired, and servers differ about what 0 means.
            publish.properties.messageExpiryInterval = max(1, step.now.secondsLeft(until: expiresAt))
        }
        if case .connected(let session) = connection {
            link.aliases.apply(to: &publish, room: session.limits.maximumPacketSize - roughLength(of: message))
        }
        step.write(.publish(publish))
        step.messageBytes += message.size
    }

    // MARK: Answers

    mutating func flushed(_ number: FlushNumber, _ step: inout Step) {
        for done in outbox.backlog.flushed(number) {
            outbox.leaveQueue(size: done.size)
            delivered(done.sequence, size: done.size, .success, &step)
        }
    }

    mutating func receivedPuback(_ answer: Acknowledgement, _ step: inout Step) {
        if receivedPubackOfAnnouncement(answer, &step) { return }
        let id = answer.packetID
        if answeredAbandoned(id) { return }
        guard let entry = outbox.inFlight[id], entry.wasAttempted else { return }
        link.reading.answered(entry.place)
        guard let message = entry.message, message.qos == .atLeastOnce || version == .threeOneOne else {
            return answeredWrongly(id, "the server answered a QoS 2 PUBLISH with PUBACK", &step)
        }
        if message.qos == .exactlyOnce, !lessons.lowersQoS {
            lessons.lowersQoS = true
            step.emit(.serverLowersQoS)
        }
        if answer.reasonCode.isError { return refused(answer, &step) }
        deliver(id, entry, answer.reasonCode, &step)
    }

    mutating func receivedPubrec(_ answer: Acknowledgement, _ step: inout Step) {
        let id = answer.packetID
        guard let entry = outbox.inFlight[id], entry.wasAttempted else {
            // With an error the server has freed the identifier already (4.3.3).
            guard !answer.reasonCode.isError else {
                _ = answeredAbandoned(id)
                return
            }
            if outbox.abandoned[id] != nil, identifiers.unreleased.insert(id).inserted {
                patience.exchanges.answered(id)
            }
            return enqueue(
                .pubrel(id, identifiers.unreleased.contains(id) ? .success : .packetIdentifierNotFound), step)
        }
        link.reading.answered(entry.place)
        if let message = entry.message {
            guard message.qos == .exactlyOnce else {
                return answeredWrongly(id, "the server answered a QoS 1 PUBLISH with PUBREC", &step)
            }
            if answer.reasonCode.isError { return refused(answer, &step) }
            if entry.progress == .letThrough { outbox.backlog.takeBack(bytes: entry.size) }
            if entry.progress == .idle { outbox.resend.removeAll { $0 == id } }
            outbox.inFlight[id]?.message = nil
            outbox.inFlight[id]?.progress = .onWire
            outbox.inFlight[id]?.answer = answer.reasonCode
            step.changes.append(.release(entry.sequence))
            patience.exchanges.answered(id)
            messageTaken()
        } else if answer.reasonCode.isError {
            // The server does not know the identifier of a message that it owned: there is nothing left to do for it.
            return deliver(id, entry, entry.answer, &step)
        }
        enqueue(.pubrel(id, .success), step)
    }

    mutating func receivedPubcomp(_ answer: Acknowledgement, _ step: inout Step) {
        let id = answer.packetID
        if identifiers.answered(id) { return patience.exchanges.answered(id) }
        if identifiers.clearSuspect(id) { return step.changes.append(.clearSuspect(id)) }
        if answeredAbandoned(id) { return }
        guard let entry = outbox.inFlight[id], entry.wasAttempted else { return }
        guard entry.isReleased else {
            return answeredWrongly(id, "the server sent PUBCOMP before PUBREL", &step)
        }
        // 0x92 is success too: an earlier PUBCOMP was lost.
        deliver(id, entry, entry.answer, &step)
    }

    private mutating func deliver(
        _ id: PacketID, _ entry: Outbox.InFlight, _ code: ReasonCode, _ step: inout Step
    ) {
        finish(id, &step)
        messageTaken()
        outbox.counts.bytes -= entry.size
        step.changes.append(.acknowledge(entry.sequence))
        conclude(entry.sequence, .delivered(code), &step)
        step.emit(.delivered(entry.sequence, code))
    }

    /// Removes a message that is delivered without a last answer of the server.
    mutating func delivered(_ sequence: MessageSequence, size: Int, _ code: ReasonCode, _ step: inout Step) {
        outbox.counts.bytes -= size
        remove(sequence, .delivered(code), &step)
        step.emit(.delivered(sequence, code))
    }

    /// Removes a message that is done, and notes the outcome for its key.
    mutating func remove(_ sequence: MessageSequence, _ outcome: PublishOutcome, _ step: inout Step) {
        step.changes.append(.remove(sequence))
        conclude(sequence, outcome, &step)
    }

    private func conclude(_ sequence: MessageSequence, _ outcome: PublishOutcome, _ step: inout Step) {
        if commits.hasKeys { step.changes.append(.concludeKey(sequence, outcome)) }
    }

    /// Ends the exchange; the caller decides what becomes of the message.
    mutating func finish(_ id: PacketID, _ step: inout Step) {
        outbox.remove(id)
        outbox.counts.inFlight -= 1
        identifiers.free(id)
        patience.exchanges.answered(id)
    }

    private mutating func refused(_ answer: Acknowledgement, _ step: inout Step) {
        if doubt(answer.packetID, answer, &step) { return }
        quarantine(answer.packetID, answer.reasonCode, answer.properties.reasonString, &step)
        if Consequence.measures(for: answer.reasonCode, in: .acknowledgement).contains(.retireIdentifier) {
            _ = identifierIsTaken(answer.packetID, &step)
        }
    }

    /// Quarantines a message that the server has not answered. The server may have one of QoS 2, and would take the
    /// next one with the same identifier for it, so that identifier is retired.
    mutating func setAside(_ id: PacketID, _ code: ReasonCode?, _ sentence: String, _ step: inout Step) {
        guard let entry = outbox.inFlight[id] else { return }
        guard entry.wasAttempted, entry.message?.qos == .exactlyOnce else {
            return quarantine(id, code, sentence, &step)
        }
        quarantine(id, code, Self.doubtful(sentence), &step)
        retire(id, &step)
    }

    /// Why a message of QoS 2 is set aside that was sent before.
    private static func doubtful(_ sentence: String) -> String {
        "\(sentence); it may have arrived before, so a retry may deliver it twice"
    }

    mutating func quarantine(_ id: PacketID, _ code: ReasonCode?, _ sentence: String?, _ step: inout Step) {
        guard let entry = outbox.inFlight[id] else { return }
        finish(id, &step)
        reject(entry.sequence, entry.message?.topic, code, sentence, &step)
    }

    /// - Parameters:
    ///   - code: `nil` if the server has not said why.
    ///   - sentence: the server's words or ours; `nil` if the server gave a code only.
    mutating func reject(
        _ sequence: MessageSequence, _ topic: String?, _ code: ReasonCode?, _ sentence: String?, _ step: inout Step
    ) {
        outbox.counts.quarantined += 1
        outbox.sentBefore.remove(sequence)
        // The words are kept with the message.
        let words = sentence?.plain()
        step.changes.append(.quarantine(sequence, code, words ?? code?.name ?? ""))
        step.emit(.rejected(RejectedMessage(sequence: sequence, topic: topic, code: code, words: words)))
    }
}
