package import ControlAPI
package import MQTT
import NIOCore
package import SessionCore

// What programs ask of the session. A request that is answered at once is a method; its consequences wait in the queue,
// like inputs.

extension Session {
    // MARK: The start

    /// Takes up the session as the configuration, or what happened before the daemon was started, has it.
    ///
    /// - Parameters:
    ///   - stored: what the session was made with.
    ///   - wasUp: it was up, or tried to be, before its configuration changed.
    ///   - outage: the one that it was in then.
    ///   - standing: its presence, if the others in the room still see it.
    ///   - configuration: the digest of the configuration.
    /// - Returns: the earlier verdict, if it still holds.
    package mutating func start(
        _ stored: StoredSession, wasUp: Bool, in outage: SessionMachine.Outage? = nil,
        standing: StandingPresence? = nil, under configuration: @autoclosure () -> String
    ) -> Verdict? {
        // A failure is about the configuration that it had: another one since is like a reload.
        let isFailureOver = stored.verdict.map { isOver($0, under: configuration()) } ?? false
        let verdict = stored.verdict.flatMap { !isFailureOver && takeUp($0) ? $0 : nil }
        let wasStarted = isStarted(by: stored.verdict)
        enterRoom(stored.chosenRoom, subscribedTo: stored.mqtt.rememberedSubscriptions, standing: standing)
        noteEarlierPresence(stored)
        take(.mqtt(.timePassed))
        if wasUp || isFailureOver {
            if verdict == nil { tellMachine(.resume(outage, Reason(.configurationChanged))) }
        } else if verdict == nil, wasStarted || settings.autoconnects {
            connectAfterStart(stored.verdict)
        }
        return verdict
    }

    /// The daemon was started.
    private mutating func connectAfterStart(_ verdict: Verdict?) {
        if let verdict, let outage = outage(by: verdict) {
            machine.counters.outages += 1
            return tellMachine(.resume(outage, verdict.reason))
        }
        let reason =
            settings.autoconnects
            ? Reason(.autoconnect)
            : Reason(.userConnect, "a connect was requested before the daemon was started again")
        tellMachine(hasBeenUp(by: verdict) ? .resume(nil, reason) : .connect(reason))
    }

    /// An earlier run of the daemon may have ended without a goodbye that the server heard. Its connection ended before now,
    /// and, if the session was disconnected, soon after that was asked for.
    private mutating func noteEarlierPresence(_ stored: StoredSession) {
        guard !stored.presenceTopics.isEmpty, let presence = rooms.membership?.presence else { return }
        var end = now
        if let verdict = stored.verdict, verdict.bootID == settings.bootID, verdict.keepsDown {
            guard verdict.reasonCode != Reason.Code.userDisconnect.rawValue else { return }
            let decided = now.advanced(by: .milliseconds(verdict.since.rawValue - wallClock.rawValue))
            let rest = verdict.isFailure ? .zero : settings.timeouts.longestGoodbye
            end = min(now, decided.advanced(by: rest))
        }
        machine.remains.earlier = .init(
            visibility: presence.longestVisibility(keepAlive: servers.homes.keepAlive ?? settings.keepAlive.inRoom),
            connectionEnded: end)
    }

    // MARK: Messages

    /// Takes a message into the outbox. ``commitAccepted(at:)`` handles the consequences.
    package mutating func publish(
        _ parameters: MessagePublishMethod.Parameters, key: PublishKey? = nil, at time: Timestamp
    ) throws(RPCError) -> MessageSequence {
        var parameters = parameters
        parameters.topic = try resolve(parameters.topic)
        parameters.properties = try resolve(parameters.properties)
        do throws(MQTTClientMachine.PublishError) {
            return try accept(OutboundMessage(parameters, at: time), key: key, at: time)
        } catch {
            throw RPCError(error, session: settings.name, topic: parameters.topic)
        }
    }

    mutating func accept(
        _ message: OutboundMessage, key: PublishKey? = nil, at time: Timestamp
    ) throws(MQTTClientMachine.PublishError) -> MessageSequence {
        // What is too old makes room.
        if !mqtt.hasRoom(for: message.size) { handle(.timePassed) }
        do throws(MQTTClientMachine.PublishError) {
            let sequence = try mqtt.accept(message, key: key, at: time)
            if let key { calls.keys.published(key, as: sequence) }
            // The use is reported whatever happens to the message, and however soon.
            if settings.notesUses, !machine.isUsed(for: .messages) { tellMachine(.useBegan(.messages)) }
            return sequence
        } catch {
            if error == .dropped {
                counts.dropped += 1
                act(.tell(.newMessageDropped(message.topic)))
            }
            throw error
        }
    }

    /// - Returns: `nil` if a message with the key is already on its way to the disk; the call is answered when it no
    ///   longer is, and it is the call's turn.
    package mutating func takeTurn(with key: PublishKey, for call: CallID) -> KeysUnderWay.Turn? {
        calls.keys.begin(key, call)
    }

    // MARK: Topics

    /// Returns the topic or filter as the server has it.
    package func resolve(_ text: String) throws(RPCError) -> String {
        guard Room.isRelative(text) else { return text }
        do throws(Room.Unresolved) {
            return try Room.resolve(text, in: room)
        } catch {
            switch error {
            case .noRoom:
                throw RPCError(
                    .invalidTopic, "\(text) is relative to a room, and session \(settings.name) is in none",
                    hint: "set room in the session's file, or: holdfastctl switch-room \(settings.name) ROOM")
            case .empty:
                throw .invalidTopic(text, "there is nothing after ~/")
            }
        }
    }

    /// Returns the properties with the response topic as the server has it.
    package func resolve(_ properties: MessageProperties?) throws(RPCError) -> MessageProperties? {
        guard var properties, let responseTopic = properties.responseTopic else { return properties }
        properties.responseTopic = try resolve(responseTopic)
        return properties
    }

    // MARK: The room

    /// Returns who is in the room.
    package func participants() throws(RPCError) -> Roster {
        guard let membership = rooms.membership else {
            throw .wrongState(
                settings.name.description, is: "in no room",
                hint: "set room in the session's file, or: holdfastctl switch-room \(settings.name) ROOM")
        }
        guard state == .connected || state == .reconnecting else { throw .notConnected(settings.name.description) }
        guard membership.participants.hasList else {
            throw .wrongState(
                settings.name.description, is: "not told who is in its room",
                hint: "it is told shortly after connecting, unless there is no subscription to "
                    + "\(membership.room.presenceFilter)")
        }
        return Roster(
            room: membership.room, participants: membership.participants,
            // A server that refuses our presence, as one without retained messages does, may not show the others either.
            isComplete: membership.participants.isComplete && membership.refusal == nil)
    }

    // MARK: The credential

    /// Takes a credential from a program, to use instead of the one that the session's file names, and takes it to the
    /// server at once.
    package mutating func give(_ token: String, expires: Timestamp?) throws(RPCError) {
        guard !token.isEmpty, token.utf8.count <= 65_535 else {
            throw .invalidParameters("a token has 1 to 65535 bytes")
        }
        guard !settings.provesPassword || SCRAMClient.isUsable(Array(token.utf8)) else {
            throw .invalidParameters("with SCRAM-SHA-256 a token has no control characters, such as a line's end")
        }
        guard settings.mayCarryPassword else {
            throw .badConfiguration(
                "the token would be sent unencrypted: session \(settings.name) needs mqtts:// or wss://, or insecure = true"
            )
        }
        if let expires, expires <= wallClock { throw .invalidParameters("the token has already expired") }
        take(.credentialGiven(SessionCredential(secret: Array(token.utf8), end: expires.map { .byWallClock($0) })))
    }

    // MARK: Subscriptions

    /// - Parameter isLive: whether the call is not for a durable consumer.
    mutating func subscribe(to filter: TopicFilter, isLive: Bool = false, for call: CallID) {
        // Since its program attached, the consumer may have been removed, or got another filter.
        guard let qos = wantedQoS(of: filter) else { return act(.answer([call], .subscription(nil))) }
        if state == .connected {
            consumers.await(filter, call)
        } else {
            act(.answer([call], .subscription(nil)))
        }
        subscribe(to: filter, qos: qos, isLive: isLive)
    }

    // MARK: The end

    /// Disconnects from the server, unless the session is already doing so for another reason than to rest.
    mutating func stop(because reason: Reason, _ parting: Parting) {
        // A goodbye that is under way has cleared the presence already.
        self.parting = state == .disconnecting && parting == .stayingInRoom ? .leavingRoom : parting
        publications.endWithSession = parting == .forGood
        switch state {
        case .connected, .connecting, .reconnecting: tellMachine(.disconnect(reason))
        case .disconnecting where machine.isResting: tellMachine(.disconnect(reason))
        case .disconnecting, .disconnected, .failed: break
        }
    }
}
