import NIOCore

extension MQTTClientMachine {
    mutating func received(_ publish: Publish, _ step: inout Step) {
        if let alias = publish.properties.topicAlias {
            return violate(.topicAliasInvalid, "the server used topic alias \(alias), and we allow none", &step)
        }
        guard !publish.topic.isEmpty else {
            return violate(.protocolError, "the server sent PUBLISH without a topic (MQTT 5, 3.3.2.1)", &step)
        }
        guard let id = publish.packetID else { return deliver(publish, &step) }
        guard inbox.arrived(id) else {
            return violate(.receiveMaximumExceeded, "the server exceeded our Receive Maximum", &step)
        }
        guard publish.qos == .exactlyOnce else {
            deliver(publish, &step)
            return enqueue(.puback(id), step)
        }
        if inbox.begin(id, duplicate: publish.duplicate) == .new {
            deliver(publish, &step)
            step.changes.append(.insertInbound(id))
        }
        enqueue(.pubrec(id), step)
    }

    private func deliver(_ publish: Publish, _ step: inout Step) {
        step.emit(
            .received(
                InboundMessage(
                    topic: publish.topic, payload: publish.payload, qos: publish.qos, retain: publish.retain,
                    duplicate: publish.duplicate, properties: publish.properties)))
    }

    mutating func receivedPubrel(_ answer: Acknowledgement, _ step: inout Step) {
        guard inbox.end(answer.packetID) else {
            // A PUBCOMP of ours was lost: the server goes on all the same.
            return enqueue(.pubcomp(answer.packetID, .packetIdentifierNotFound), step)
        }
        step.changes.append(.removeInbound(answer.packetID))
        enqueue(.pubcomp(answer.packetID, .success), step)
    }
}
