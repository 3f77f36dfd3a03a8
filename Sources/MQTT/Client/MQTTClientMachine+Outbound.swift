// How accepted messages are sent, and what their answers do.

import NIOCore

extension MQTTClientMachine {
    /// How many unanswered QoS 1 and 2 messages a server with these limits may be sent.
    func window(_ limits: ServerLimits) -> Int {
        min(limits.receiveMaximum, max(1, configuration.inFlight.messages), lessons.windowCap, quota.windowCap)
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
    mutating func hasRoom(_ sequence: MessageSequence) -> Bool {
        guard case .connected(let session) = connection else { return false }
        guard outbox.backlog.bytes < max(1, configuration.unflushed.bytes) else { return false }
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
        while outbox.backlog.bytes < max(1, configuration.unflushed.bytes) {
            let queued = outbox.first
            if let id = outbox.resend.first, let entry = outbox.inFlight[id] {
                // A message in flight since before a start may come after one of the queue that is still to be read.
                guard queued != nil || outbox.isLoaded(through: entry.sequence) else { return }
                if let queued, queued.sequence < entry.sequence {
                    guard pass(queued, session, &step) else { return }
                } else {
                    guard hasRoom(entry.sequence), let message = entry.message, !outbox.overtakes(message) else {
                        return
                    }
                    if isVersionInsufficient(for: message, session.limits) { return leaveForFive(&step) }
                    if let refusal = refusal(of: message, session.limits) {
                        setAside(id, nil, refusal.sentence, &step)
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
        guard outbox.hasRoom(for: message.size, bytes: configuration.inFlight.bytes),
            hasRoom(queued.sequence), !outbox.overtakes(message)
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
            // An end would say nothing if it could be because of something else. New filters wait meanwhile, but not those
            // that the connection is to be restored with.
            link.awaitsClearing = subscriptions.restoring == nil
            guard subscriptions.requests.isEmpty, link.awaitsClearing || subscriptions.needs.isEmpty,
                announcements.outstanding.isEmpty
            else { return }
            guard link.isProven else {
                if !link.isAwaiting(.trial) { ping(.trial, &step) }
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
            reject(queued.sequence, queued.message.topic, nil, sentence, &step)
        } else {
            guard queued.message.qos == .atMostOnce,
                outbox.backlog.unflushedCount < max(1, configuration.unflushed.qos0),
                !outbox.overtakes(queued.message),
                !isIsolated(queued.sequence) || (outbox.outstandingCount == 0 && !isolation.isUnproven)
            else { return false }
            outbox.readAhead.removeFirst()
            outbox.backlog.letThrough(queued)
            enqueue(.publishUnacknowledged, step)
        }
        return true
    }

    mutating func letThrough(_ queued: Outbox.Queued, _ id: PacketID, _ commit: CommitNumber) {
        // One end may be an accident, as when the server is restarted.
        let suspect = Suspicion.Suspect.message(queued.sequence)
        let isSuspect = patience.silences.include(suspect, ends: 1) || suspicions.include(suspect, ends: 2)
        outbox.letThrough(id, queued, isSuspect: isSuspect)
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
            finish(id)
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
            outbox.released(id, answer.reasonCode)
            step.changes.append(.release(entry.sequence))
            patience.exchanges.answered(id)
            // What the server does for the PUBREL is another matter.
            suspicions.answered(.message(entry.sequence))
            patience.silences.answered(.message(entry.sequence))
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
        finish(id)
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
        if commits.hasKeys { step.changes.append(.concludeKey(sequence, outcome, at: step.now)) }
    }

    /// Ends the exchange; the caller decides what becomes of the message.
    mutating func finish(_ id: PacketID) {
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
        finish(id)
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
