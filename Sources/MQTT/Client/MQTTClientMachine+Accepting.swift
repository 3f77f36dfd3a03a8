import NIOCore

// Which messages are accepted, and which the connected server would not take.

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
            && outbox.hasRoom(for: size, bytes: configuration.inFlight.bytes)
            && hasRoom(outbox.lastSequence.next) && !outbox.overtakes(message)
            && !isVersionInsufficient(for: message, limits)
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
            message, sequence, messages: configuration.readAhead.messages, bytes: configuration.readAhead.bytes)
    }

    /// Checks what can be known before a message is accepted (rule 17).
    private func check(_ message: OutboundMessage) throws(PublishError) {
        try Self.checkContent(of: message)
        let limits = self.limits
        switch refusal(of: message, limits) {
        case nil: break
        case .tooLarge(let length, let limit)?: throw .tooLarge(length, limit: limit)
        case .qos(let maximum)?: throw .qosNotSupported(maximum: maximum)
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

    /// Leaves a server that may speak MQTT 5 after all. In MQTT 3.1.1, the server would publish the will at once, although
    /// the session is back in a moment.
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
        case tooLarge(Int, limit: Int)
        case qos(maximum: QoS)
        case retain
        case properties

        /// Why a message is set aside without being sent.
        var sentence: String {
            let why =
                switch self {
                case .tooLarge(let length, let limit):
                    "its packet has \(length) bytes, and the server's limit is \(limit)"
                case .qos(let maximum): "the server accepts QoS \(maximum.rawValue) at most"
                case .retain: "the server does not retain messages"
                case .properties: "a message of MQTT 3.1.1 has no properties"
                }
            return "the session does not send it, because \(why)"
        }
    }

    /// An upper bound for the bytes of the message's packet: everything but the counted fields takes less than what is
    /// added.
    func roughLength(of message: OutboundMessage) -> Int {
        message.size + 64 + 5 * message.properties.userProperties.count
    }

    /// Why a server with these limits must not be sent the message.
    func refusal(of message: OutboundMessage, _ limits: ServerLimits) -> Refusal? {
        if message.qos > limits.maximumQoS { return .qos(maximum: limits.maximumQoS) }
        if message.retain, !limits.retainAvailable { return .retain }
        if !limits.messageProperties, message.hasProperties { return .properties }
        // Most messages need not be measured.
        guard roughLength(of: message) > limits.maximumPacketSize else { return nil }
        var publish = Publish(
            topic: message.topic, payload: message.payload, qos: message.qos, properties: message.properties)
        if message.qos != .atMostOnce { publish.packetID = PacketID(rawValue: 1) }
        if message.expiresAt != nil { publish.properties.messageExpiryInterval = 1 }
        let length = Packet.publish(publish).encodedLength
        return length > limits.maximumPacketSize ? .tooLarge(length, limit: limits.maximumPacketSize) : nil
    }
}
