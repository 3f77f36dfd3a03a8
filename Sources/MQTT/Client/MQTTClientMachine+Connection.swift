import NIOCore

extension MQTTClientMachine {
    /// What the machine knows about the transport.
    enum ConnectionState: Sendable {
        /// There is none. Can transition to: connecting.
        case closed
        /// CONNECT is sent, or waits for a commit. Can transition to: connected, closing, closed.
        case connecting(Connecting)
        /// CONNACK was received. Can transition to: closing, closed.
        case connected(Connected)
        /// One side has ended the connection: nothing is sent, and what arrives is ignored. Can transition to: closed.
        case closing
    }

    /// What belongs to one connection, and is forgotten with it.
    struct Link: Sendable {
        var decoder = PacketDecoder()
        /// Whether whole packets may wait in the decoder for `readOn`.
        var isBehind = false
        /// Bytes that have arrived since the last sign of life.
        var bytesSinceSign = 0
        /// How much the server has read, as far as it is known.
        var reading = Reading()
        var aliases = TopicAliases()
        /// The exchange under way, before CONNACK or after.
        var authentication: SCRAMClient?
        /// Whether both sides have proven themselves by enhanced authentication.
        var isAuthenticatedByMethod = false
        /// The PINGREQs that are unanswered, in order.
        var pings = CircularBuffer<Ping>(initialCapacity: 1)
        /// Whether the server still had the session, and has not answered a message yet.
        var isFreshlyResumed = false
        /// Whether the server has answered a PINGREQ for ``PingPurpose/trial``.
        var isProven = false
        /// Whether a message waits for identifiers that the server is asked to release once nothing else is unanswered.
        var awaitsClearing = false
        /// Whether filters are not asked for meanwhile.
        var holdsRequests = false
        /// Set while nothing new is begun.
        var settling: Settling?

        func isAwaiting(_ purpose: PingPurpose) -> Bool { pings.contains { $0.purpose == purpose } }

        /// Shifts the times, because the wall clock was set forward by this many milliseconds.
        mutating func shiftTimes(by milliseconds: Int64) {
            for index in pings.indices { pings[index].sentAt = pings[index].sentAt.advanced(by: milliseconds) }
        }
    }

    /// Which session we may claim at the server, and under which name.
    struct SessionClaim: Sendable {
        var isEstablished: Bool
        /// Whether we know which session the server was left with. It is uncertain after a start of the daemon, and after a
        /// CONNECT without an answer.
        var isCertain = false
        /// A CONNECT for a new session was never answered. It may still arrive after the next one was accepted, and delete
        /// what was set up since.
        var mayBeginNewSession = false
        /// What the server that had the session before still holds.
        var leftBehind = LeftSession()
        var discarding = Discarding.none
        /// Whether the server claimed a session right after it had discarded it: some forget it a moment late.
        var isForgottenLate = false
        var assignedClientID: String?
        /// The client identifier that the session at the server belongs to, as far as it is durable.
        var durableClientID: String?
        /// The client identifier of a CONNECT that was never answered: the server may have begun a session for it.
        var unansweredClientID: String?

        /// - Parameter clientID: the configured one; empty if the server assigns it.
        init(_ durable: DurableSession, clientID: String) {
            isEstablished = durable.established
            assignedClientID = durable.assignedClientID
            durableClientID = durable.clientID
            // The session at the server belongs to another client identifier, so we have none there.
            if let before = durable.clientID, !clientID.isEmpty, before != clientID { isEstablished = false }
        }
    }

    struct Connecting: Sendable {
        var credentials: MQTTCredentials
        var cleanStart: Bool
        /// Whether we know of a session that the server should have.
        var claimsSession: Bool
        /// Whether the connection has no other purpose than to discard the server's session; in MQTT 3.1.1 only.
        var onlyDiscards: Bool
        /// ``SessionClaim/isCertain`` as it was before CONNECT.
        var wasSessionCertain: Bool
        var expected: ExpectedSession
        var isSent = false

        /// Whether the session that this server has is certainly the one that we remember.
        var isSessionCertain: Bool { wasSessionCertain && expected.isPresent }
    }

    /// Whether the server should have a session of this client.
    package var hasSession: Bool { claim.isEstablished }

    mutating func connectionOpened(
        _ credentials: MQTTCredentials, forceCleanStart: Bool, _ expected: ExpectedSession, _ step: inout Step
    ) {
        guard case .closed = connection else {
            preconditionFailure("a connection is opened only after the one before was reported closed")
        }
        version = configuration.version
        step.version = version
        precondition(credentials.authentication == nil || version == .five, "MQTT 3.1.1 has no enhanced authentication")
        link.decoder = PacketDecoder(
            version: version, setsContentAside: true,
            maximumPacketSize: Int(max(1, configuration.maximumPacketSize)))
        link.authentication = credentials.authentication
        lessons.relax(at: step.now)
        inbox.connectionOpened(receiveMaximum: version == .five ? Int(configuration.receiveMaximum) : .max)
        // An older copy is not the session that another server has.
        if forceCleanStart, claim.isEstablished, !expected.isOlderCopy {
            // The server forgets its session as soon as it has read CONNECT. If we are killed then, we must not take the
            // new, empty session for the old one at the next start.
            claim.isEstablished = false
            step.changes.append(.setEstablished(false))
        }
        if forceCleanStart, claim.discarding == .none { claim.discarding = .needed }
        // What one server did not discard in time does not concern a session that is known, or an older copy, at another.
        let isUnknown = !claim.isEstablished && !expected.isOlderCopy
        let discards = claim.discarding == .needed && (forceCleanStart || isUnknown)
        var expected = expected
        if forceCleanStart { expected.older = nil }
        let onlyDiscards = version == .threeOneOne && discards
        connection = .connecting(
            Connecting(
                credentials: credentials,
                cleanStart: discards || version == .threeOneOne && clientID.isEmpty,
                claimsSession: claim.isEstablished && !forceCleanStart, onlyDiscards: onlyDiscards,
                wasSessionCertain: claim.isCertain,
                expected: expected))
        enqueue(.connect, step)
    }

    mutating func sendConnect(_ step: inout Step) {
        guard case .connecting(var connecting) = connection else { return }
        connecting.isSent = true
        connection = .connecting(connecting)
        claim.isCertain = false
        var connect = Connect(clientID: clientID, cleanStart: connecting.cleanStart)
        connect.keepAlive = lessons.capped(configuration.keepAlive)
        connect.username = connecting.credentials.username
        connect.password = connecting.credentials.password
        // A connection that only discards a session must not cause a will.
        connect.will = connecting.onlyDiscards ? nil : configuration.will
        if version == .threeOneOne, connect.password != nil { connect.username = connect.username ?? "" }
        if let authentication = link.authentication {
            connect.properties.authenticationMethod = SCRAMClient.method
            connect.properties.authenticationData = ByteBuffer(bytes: authentication.clientFirst)
        }
        connect.properties.sessionExpiryInterval = configuration.sessionExpiry
        connect.properties.receiveMaximum = UInt16(clamping: inbox.receiveMaximum)
        connect.properties.maximumPacketSize = max(1, configuration.maximumPacketSize)
        connect.properties.requestProblemInformation = true
        step.write(.connect(connect))
    }

    mutating func connectionEnded(_ end: EndCause, _ step: inout Step) {
        switch end {
        case .byServer:
            // Another device may have taken over, and those before it, too. It has to see this session in its room.
            if isConnected, reasonIfEnded == nil, findingIfEnded == nil { announcements.pardon() }
            identifiers.mayEnd()
            judgeEnd(nil, "the server closes the connection whenever it is sent this message", &step)
        case .unanswered: _ = judgeUnanswered(&step)
        case .silent: _ = judgeSilence(&step)
        }
        connectionClosed()
    }

    mutating func connectionClosed() {
        quota.connectionClosed(isInDoubt: isInDoubt)
        link = Link()
        isolation.proof = .needed
        patience.connectionClosed()
        if case .connecting(let connecting) = connection, connecting.isSent {
            claim.unansweredClientID = clientID
            if connecting.cleanStart { claim.mayBeginNewSession = true }
        }
        connection = .closed
        commits.work.removeAll()
        forgetAbandoned()
        outbox.connectionClosed()
        inbox.connectionClosed()
        intake.connectionClosed()
        for id in subscriptions.connectionClosed() + announcements.connectionClosed() { identifiers.allocator.free(id) }
        identifiers.connectionClosed()
    }

    /// Ends the connection: nothing is sent from here on.
    private mutating func end(_ step: inout Step) {
        connection = .closing
        commits.work.removeAll()
        intake.connectionClosed()
        step.closes = true
    }

    mutating func disconnect(_ code: ReasonCode, _ step: inout Step) {
        switch connection {
        case .closed, .closing: return
        case .connecting(let connecting) where !connecting.isSent: end(&step)
        case .connecting, .connected:
            // In MQTT 3.1.1 DISCONNECT has one meaning: the client leaves, and the will is dropped. For any other
            // reason the client just closes.
            if version == .five || code == .normalDisconnection {
                step.write(.disconnect(Disconnect(reasonCode: code)))
            }
            end(&step)
        }
    }

    /// Ends a connection that another one is to follow. In case none does, the server keeps the will, which tells the
    /// others.
    mutating func disconnectToReturn(_ step: inout Step) {
        disconnect(configuration.will == nil ? .normalDisconnection : .disconnectWithWill, &step)
    }

    /// Ends the connection because the server broke the protocol.
    ///
    /// - Parameter suspects: what the server may have done this for. A server that did it on three connections will do
    ///   it again, and what follows would never arrive.
    mutating func violate(_ code: ReasonCode, _ message: String, for suspects: Suspects = [], _ step: inout Step) {
        if suspects.contains(.messages) { identifiers.mayEnd() }
        let finding = judgeEnd(
            nil, "the server breaks the protocol whenever it is sent this message", of: suspects, &step)
        step.emit(.protocolViolation(code, message, finding))
        disconnect(code, &step)
    }

    // MARK: Packets

    /// Whether neither side has ended the connection.
    var isOpen: Bool {
        switch connection {
        case .connecting, .connected: true
        case .closed, .closing: false
        }
    }

    mutating func received(_ bytes: ByteBuffer, _ step: inout Step) {
        guard isOpen else { return }
        link.decoder.append(bytes)
        if case .connecting = connection, link.decoder.isAtStart {
            let beginning = link.decoder.buffered.readableBytesView
            if let other = ForeignProtocol(beginning: beginning) {
                // Such a server would not understand a goodbye either.
                step.emit(.foreignProtocol(other))
                return end(&step)
            }
            if ForeignProtocol.mayBegin(with: beginning) { return }
        }
        link.bytesSinceSign += bytes.readableBytes
        if !link.isBehind { readOn(&step) }
    }

    /// How many bytes of one packet are a sign of life. The slowest link carries them within a heartbeat; a server that
    /// sends single bytes now and then never reaches them.
    private static var partOfPacket: Int { 16 << 10 }

    /// How many bytes of a message cost as much as a small packet.
    private static var bytesOfPacket: Int { 4096 }

    /// For how many packets this one counts in an input's share.
    private func weight(of packet: Packet) -> Int {
        guard case .publish(let publish) = packet else { return 1 }
        // A server can put thousands of user properties into one message, and each costs as much as a small packet. Each
        // consumer gets a copy of the bytes.
        let bytes = publish.payload.readableBytes + publish.topic.utf8.count
        return max(1, configuration.messageWeight)
            * (1 + publish.properties.userProperties.count / 16 + bytes / Self.bytesOfPacket)
    }

    /// Processes one input's share of what has arrived.
    mutating func readOn(_ step: inout Step) {
        var count = 0
        link.isBehind = false
        defer {
            if count > 0 || link.bytesSinceSign >= Self.partOfPacket {
                signsOfLife += 1
                link.bytesSinceSign = 0
            }
        }
        do throws(MalformedPacket) {
            while true {
                guard count < configuration.packetsPerInput else {
                    link.isBehind = link.decoder.bufferedBytes > 0
                    return
                }
                guard isOpen, let packet = try link.decoder.next() else { return }
                count += weight(of: packet)
                switch connection {
                case .closed, .closing: return
                case .connecting(let connecting): answered(packet, connecting, &step)
                case .connected: received(packet, &step)
                }
            }
        } catch {
            violate(error.reasonCode, error.message, for: Suspects(at: error), &step)
        }
    }

    /// Handles what the server sends before the connection is accepted.
    private mutating func answered(_ packet: Packet, _ connecting: Connecting, _ step: inout Step) {
        guard connecting.isSent else {
            return violate(.protocolError, "the server sent \(packet.kind) before CONNECT", &step)
        }
        switch packet {
        case .connack(let connack): accept(connack, connecting, &step)
        case .disconnect(let disconnect): disconnected(disconnect, &step)
        case .auth(let auth): received(auth, isConnected: false, &step)
        default:
            violate(.protocolError, "the server sent \(packet.kind) before CONNACK", &step)
        }
    }

    private mutating func accept(_ connack: Connack, _ connecting: Connecting, _ step: inout Step) {
        guard !connack.reasonCode.isError else {
            // The server has left the session as it was.
            claim.isCertain = connecting.wasSessionCertain
            step.emit(
                .refused(
                    ServerReason(
                        code: connack.reasonCode, reasonString: connack.properties.reasonString,
                        serverReference: connack.properties.serverReference)))
            return end(&step)
        }
        guard connack.reasonCode == .success else {
            return violate(
                .protocolError, "the server answered CONNECT with \(connack.reasonCode) (MQTT 5, 3.2.2.2)", &step)
        }
        guard isProven(connack, &step) else { return }
        let limits = ServerLimits(connack.properties, version)
        guard takesAnswers(limits, &step) else { return }
        if connack.sessionPresent, connecting.cleanStart {
            return violate(
                .protocolError, "the server claims a session after Clean Start (MQTT \(version), 3.2.2)", &step)
        }
        guard !endedDiscarding(connack, connecting, &step) else { return }
        if clientID.isEmpty, version == .five {
            guard let assigned = connack.properties.assignedClientID, !assigned.isEmpty else {
                return violate(.protocolError, "the server assigned no client identifier (MQTT 5, 3.2.2.3.7)", &step)
            }
            claim.assignedClientID = assigned
            step.changes.append(.setAssignedClientID(assigned))
        }
        if !claim.isEstablished {
            claim.isEstablished = true
            step.changes.append(.setEstablished(true))
        }
        if claim.durableClientID != clientID {
            claim.durableClientID = clientID
            step.changes.append(.setClientID(clientID))
        }
        // The server counts from what CONNECT said, unless it says something else.
        let asked = lessons.capped(configuration.keepAlive)
        if !connecting.expected.isPresent { lessons = Lessons() }
        keepAlive = lessons.capped(connack.properties.serverKeepAlive ?? asked)
        let older = connack.sessionPresent ? connecting.expected.older : nil
        let grant = Connected(
            found: found(connack, connecting, older), clientID: clientID, keepAlive: keepAlive,
            serverKeepAlive: connack.properties.serverKeepAlive,
            sessionExpiry: connack.properties.sessionExpiryInterval ?? configuration.sessionExpiry, limits: limits)
        connection = .connected(grant)
        link.isFreshlyResumed = connack.sessionPresent
        quota.connected()
        link.aliases = TopicAliases(maximum: lessons.usesAliases ? limits.topicAliasMaximum : 0)
        step.emit(.connected(grant))
        if grant.resumed {
            if !grant.isCertain { identifiers.doubtCleared() }
            resume(&step)
            if let older { endLeft(older, &step) }
        } else {
            claim.leftBehind = leavable
            loseSession(toAnotherServer: !connecting.expected.isPresent, &step)
            if let older { returned(to: older, &step) }
        }
        claim.isCertain = !claim.mayBeginNewSession
        claim.mayBeginNewSession = false
        // A server of MQTT 3.1.1 would send retained messages again.
        let isTrusted =
            version == .five
            ? grant.isCertain : grant.isProbable && connecting.expected.continuity != .doubtful
        restoreSubscriptions(
            resumed: grant.resumed, isCertain: isTrusted, isProbable: grant.isProbable, limits, &step)
    }

    /// - Parameter older: what was left at the server, if it says that it has a session.
    private func found(_ connack: Connack, _ connecting: Connecting, _ older: LeftSession?) -> Connected.Found {
        guard connack.sessionPresent else { return .nothing(wasClaimed: connecting.claimsSession) }
        if connecting.expected.isOlderCopy { return .olderCopy }
        guard connecting.isSessionCertain, older == nil else { return .resumed(.uncertain) }
        return .resumed(connecting.expected.continuity == .proven ? .certain : .probable)
    }

    /// Whether the server takes packets as large as the answers that a client has to send [MQTT-3.2.2-15]: PUBREL and
    /// PUBCOMP with a reason code have 5 bytes, and DISCONNECT with one has 3. If not, ends the connection.
    private mutating func takesAnswers(_ limits: ServerLimits, _ step: inout Step) -> Bool {
        let largest = limits.maximumPacketSize
        guard largest < 5 else { return true }
        let code = ReasonCode.implementationSpecificError
        let sentence = "the server accepts no packet of more than \(largest) bytes (MQTT 5, 3.2.2.3.6)"
        step.emit(.protocolViolation(code, sentence, nil))
        if largest < 3 { end(&step) } else { disconnect(code, &step) }
        return false
    }

    /// Resumes the session (Session Present 1): both sides continue where they were (4.4).
    private mutating func resume(_ step: inout Step) {
        inbox.resumed()
        for id in outbox.identifiersInOrder {
            guard let entry = outbox.inFlight[id] else { continue }
            if entry.isReleased {
                // Not subject to the window [MQTT-3.3.4-8], so it does not wait for its turn.
                outbox.inFlight[id]?.progress = .onWire
                enqueue(.pubrel(id, .success), step)
            } else {
                outbox.resend.append(id)
            }
        }
        releaseDropped(&step)
        askAboutSuspects(&step)
    }

    /// Finishes the exchanges at the server that may have begun in moments that the store has lost, so that the server
    /// takes nothing new for one of them. It is unknown whether there are any; a server that has none says so, which is
    /// not an error (4.3.3).
    mutating func askAboutSuspects(_ step: inout Step) {
        guard !identifiers.hasAskedAboutSuspects else { return }
        identifiers.hasAskedAboutSuspects = true
        for id in identifiers.suspects.sorted(by: { $0.rawValue < $1.rawValue }) {
            enqueue(.pubrel(id, .success), step)
        }
    }

    /// Starts over in a new session (Session Present 0): there is no exchange to continue [MQTT-3.2.2-5].
    private mutating func loseSession(toAnotherServer isElsewhere: Bool, _ step: inout Step) {
        for id in outbox.identifiersInOrder {
            guard let entry = outbox.inFlight[id] else { continue }
            outbox.counts.inFlight -= 1
            if entry.isReleased {
                // PUBREC made the server its owner (4.3.3).
                delivered(entry.sequence, size: entry.size, entry.answer, &step)
            } else {
                outbox.enterQueue(size: entry.size)
                step.changes.append(.unassign(entry.sequence))
            }
        }
        let repeated = outbox.inFlight.values.count { $0.wasAttempted && $0.message?.qos == .exactlyOnce }
        if repeated > 0 { step.emit(.repeated(repeated)) }
        if !outbox.inFlight.isEmpty { outbox.sessionLost() }
        if identifiers.hasRetired || !identifiers.suspects.isEmpty { step.changes.append(.freeRetiredIdentifiers) }
        identifiers.sessionLost(toAnotherServer: isElsewhere)
        quota.sessionLost()
        if inbox.sessionLost() { step.changes.append(.removeAllInbound) }
        if subscriptions.sessionLost() { step.changes.append(.forgetAllSubscriptions) }
    }

    private mutating func received(_ packet: Packet, _ step: inout Step) {
        switch packet {
        case .puback, .pubrec, .pubcomp: link.isFreshlyResumed = false
        default: break
        }
        switch packet {
        case .publish(let publish): received(publish, &step)
        case .puback(let answer): receivedPuback(answer, &step)
        case .pubrec(let answer): receivedPubrec(answer, &step)
        case .pubrel(let answer): receivedPubrel(answer, &step)
        case .pubcomp(let answer): receivedPubcomp(answer, &step)
        case .suback(let suback): received(suback, &step)
        case .unsuback(let unsuback): received(unsuback, &step)
        case .pingresp: pingAnswered(&step)
        case .disconnect(let disconnect): disconnected(disconnect, &step)
        case .connack: violate(.protocolError, "the server sent a second CONNACK", for: .everything, &step)
        case .auth(let auth): received(auth, isConnected: true, &step)
        case .connect, .subscribe, .unsubscribe, .pingreq:
            violate(
                .protocolError, "the server sent \(packet.kind), which only a client may send", for: .everything, &step)
        }
    }

    private mutating func disconnected(_ disconnect: Disconnect, _ step: inout Step) {
        var reason = ServerReason(
            code: disconnect.reasonCode, reasonString: disconnect.properties.reasonString,
            serverReference: disconnect.properties.serverReference)
        if case .connected(let session) = connection {
            reason.remedies = remedies(for: disconnect, session, &step)
            for remedy in reasonIfEnded?.remedies ?? [] where !reason.remedies.contains(remedy) {
                reason.remedies.append(remedy)
            }
            let code = disconnect.reasonCode
            let measures = Consequence.measures(for: code, in: .disconnect)
            // If there is no message to blame, it may have been about an announcement or a filter.
            let isUnexplained = !reason.remedies.contains(.quarantine) && !reason.remedies.contains(.isolation)
            if !measures.contains(.blameNoPacket), !measures.contains(.quarantine) || isUnexplained {
                identifiers.mayEnd()
                let words = reason.reasonString ?? "the server ends the connection for this message: \(code.name)"
                reason.finding = judgeEnd(code, words, &step)
            }
        }
        step.emit(.disconnectedByServer(reason))
        end(&step)
    }
}
