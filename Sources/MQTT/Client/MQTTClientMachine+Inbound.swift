extension MQTTClientMachine {
    mutating func received(_ publish: Publish, _ step: inout Step) {
        if let alias = publish.properties.topicAlias {
            return violate(.topicAliasInvalid, "the server used topic alias \(alias), and we allow none", &step)
        }
        var publish = publish
        publish.flaw = publish.contentFlaw(in: version)
        guard let id = publish.packetID else {
            deliver(publish, &step)
            return collectUnacknowledged(publish, &step)
        }
        guard inbox.arrived(id) else {
            return violate(.receiveMaximumExceeded, "the server exceeded our Receive Maximum", &step)
        }
        guard !withhold(publish) else { return }
        take(publish, id, &step)
    }

    /// Delivers a message that arrived, and answers it as soon as that is allowed.
    mutating func take(_ publish: Publish, _ id: PacketID, _ step: inout Step) {
        // A waiting message keeps its identifier until it is acknowledged, so this is the same message again.
        guard !intake.isWaiting(id) else { return }
        guard !intake.leaveOut(publish, id, above: configuration.inbox.waitingBytes) else { return }
        if publish.qos == .atLeastOnce { deliver(publish, &step) }
        let consumers = consumers(of: publish)
        if intake.isIdle, consumers.isEmpty {
            acknowledge(publish, &step)
        } else {
            _ = intake.wait(publish, for: consumers)
        }
    }

    /// Answers a message that no durable consumer needs, or that was collected before.
    mutating func acknowledge(_ publish: Publish, _ step: inout Step) {
        guard let id = publish.packetID else { return }
        guard publish.qos == .exactlyOnce else { return enqueue(.puback(id), step) }
        if inbox.begin(id, duplicate: publish.duplicate) != .duplicate {
            deliver(publish, &step)
            step.changes.append(.insertInbound(id))
        }
        enqueue(.pubrec(id), step)
    }

    /// Hands the message to live subscribers, or reports that its content cannot be used.
    func deliver(_ publish: Publish, _ step: inout Step) {
        if let flaw = publish.flaw {
            return step.emit(.messageRefused(RefusedMessage(topic: publish.topic, qos: publish.qos, flaw: flaw)))
        }
        step.emit(.received(InboundMessage(publish, for: subscriptions.filters(of: publish))))
    }

    mutating func receivedPubrel(_ answer: Acknowledgement, _ step: inout Step) {
        // What is just being committed was not acknowledged, so the server has nothing to release there.
        let isUnderWay = intake.batch?.entries.contains { $0.publish.packetID == answer.packetID } == true
        guard !isUnderWay, inbox.end(answer.packetID) else {
            // If it is not under way, an earlier PUBCOMP of ours was lost. The server continues after this one.
            return enqueue(.pubcomp(answer.packetID, .packetIdentifierNotFound), step)
        }
        step.changes.append(.removeInbound(answer.packetID))
        enqueue(.pubcomp(answer.packetID, .success), step)
    }
}
