import ControlAPI
package import MQTT
package import NIOCore
package import SessionCore

/// Looks into a room without being in it: a second client, for one exchange, that reads which devices of a user are there.
///
///     CONNECT ─▶ SUBSCRIBE presence/USER/+ ─▶ PINGREQ, PINGRESP ─▶ (clear our own presence) DISCONNECT
///
/// Servers send the retained messages when they answer the SUBSCRIBE, so all of them are there before the PINGRESP.
/// A value without I/O: the driver moves the bytes.
package struct PresenceLook: Sendable {
    package enum Purpose: Hashable, Sendable {
        /// An attempt that goes on with CONNECT if nothing speaks against it.
        case attempt(Attempt, Look)
        /// The session is displaced, and its presence is taken away.
        case farewell

        package var attempt: Attempt? { if case .attempt(let attempt, _) = self { attempt } else { nil } }
    }

    package enum Outcome: Hashable, Sendable {
        case unfinished
        /// Every presence of the user.
        case seen([PresenceMessage])
        /// The server does not let us look; the sentence says why.
        case impossible(String)
    }

    private enum Step: Hashable, Sendable {
        /// Can transition to: subscribing, over.
        case connecting
        /// Can transition to: reading, over.
        case subscribing
        /// Can transition to: over.
        case reading
        case over
    }

    package let purpose: Purpose
    /// Whether an earlier look for the same attempt found no other device.
    package let isSecond: Bool
    /// `nil` before it is dialed.
    package var connection: DialID?
    package private(set) var isOpen = false
    /// When it is given up; before it is dialed, when it is.
    package private(set) var deadline: Instant?
    private let room: Room
    private let user: String
    private let connect: Connect
    private var step = Step.connecting
    /// What the server takes.
    private var limits = MQTTClientMachine.ServerLimits()
    private var seen: [Participant.Identity: PresenceMessage] = [:]
    package let version: ProtocolVersion
    private var decoder: PacketDecoder

    /// - Parameters:
    ///   - clientID: the session's own.
    ///   - version: as which MQTT it is done.
    package init(
        for purpose: Purpose, isSecond: Bool = false, room: Room, user: String, clientID: String,
        credentials: MQTTCredentials, maximumPacketSize: Int, version: ProtocolVersion = .five
    ) {
        self.purpose = purpose
        self.isSecond = isSecond
        self.room = room
        self.user = user
        connect = Connect(
            clientID: Connect.clientID(clientID, besides: "-look"), cleanStart: true, username: credentials.username,
            password: credentials.password)
        self.version = version
        decoder = PacketDecoder(
            sender: .server, version: version, setsContentAside: true, maximumPacketSize: maximumPacketSize)
    }

    /// The connection is there.
    ///
    /// - Parameter limit: a server that does not answer a second client must not keep the first one away for longer.
    /// - Returns: what is sent first.
    package mutating func opened(answeredWithin limit: Duration, at now: Instant) -> ByteBuffer {
        isOpen = true
        deadline = now.advanced(by: limit)
        return greeting
    }

    package enum Due: Hashable, Sendable {
        /// It is dialed for the second time.
        case dial
        /// It took too long.
        case end
    }

    package mutating func timeReached(at now: Instant) -> Due? {
        guard let time = deadline, time <= now else { return nil }
        deadline = nil
        return connection == nil ? .dial : .end
    }

    /// The same look a second time, in a moment.
    package func again(at now: Instant) -> PresenceLook {
        var look = PresenceLook(second: self)
        look.deadline = now.advanced(by: .seconds(1))
        return look
    }

    private init(second first: PresenceLook) {
        purpose = first.purpose
        isSecond = true
        (room, user, connect, version, decoder) = (first.room, first.user, first.connect, first.version, first.decoder)
    }

    private var greeting: ByteBuffer {
        var output = ByteBuffer()
        Packet.connect(connect).encode(into: &output, as: version)
        return output
    }

    private var filter: String { "\(room.base)presence/\(user)/+" }

    /// Takes what the server sent and appends what is to be sent.
    package mutating func received(_ bytes: ByteBuffer, into output: inout ByteBuffer) -> Outcome {
        decoder.append(bytes)
        do throws(MalformedPacket) {
            while step != .over, let packet = try decoder.next() {
                let outcome = received(packet, into: &output)
                if outcome != .unfinished {
                    step = .over
                    return outcome
                }
            }
            return .unfinished
        } catch {
            step = .over
            return .impossible(error.message)
        }
    }

    private mutating func received(_ packet: Packet, into output: inout ByteBuffer) -> Outcome {
        switch (step, packet) {
        case (.connecting, .connack(let connack)):
            guard connack.reasonCode == .success else { return .impossible(connack.reasonCode.description) }
            guard !connack.sessionPresent else { return .impossible("the server claims a session after Clean Start") }
            limits = MQTTClientMachine.ServerLimits(connack.properties, version)
            guard limits.wildcardSubscriptions else {
                return .impossible("the server has no subscriptions with wildcards")
            }
            let subscribe = Packet.subscribe(
                Subscribe(packetID: Self.packetID, subscriptions: [Subscription(filter: filter)]))
            guard takes(subscribe) else { return .impossible("the server takes no packet as large as the SUBSCRIBE") }
            step = .subscribing
            subscribe.encode(into: &output, as: version)
        case (.subscribing, .suback(let suback)) where suback.packetID == Self.packetID:
            guard let code = suback.reasonCodes.first, !code.isError else {
                return .impossible(suback.reasonCodes.first?.description ?? "SUBACK without a reason code")
            }
            step = .reading
            Packet.pingreq.encode(into: &output, as: version)
        // With a higher QoS it would have to be answered, and it was not asked for.
        case (.subscribing, .publish(let publish)) where publish.qos == .atMostOnce,
            (.reading, .publish(let publish)) where publish.qos == .atMostOnce:
            guard publish.flaw == nil, let identity = room.participant(ofPresence: publish.topic),
                identity.user == user
            else { break }
            seen[identity] = PresenceMessage(publish.payload.readableBytesView, of: identity)
        case (.reading, .pingresp):
            return .seen(seen.values.sorted { $0.identity < $1.identity })
        case (_, .disconnect(let disconnect)):
            return .impossible(disconnect.reasonCode.description)
        default:
            return .impossible("the server sent \(packet.kind) out of turn")
        }
        return .unfinished
    }

    /// What is sent last.
    ///
    /// - Parameter topic: the topic of our own presence, when it must not stay.
    package func farewell(clearing topic: String?) -> ByteBuffer {
        var output = ByteBuffer()
        if let topic, limits.retainAvailable {
            let clearing = Packet.publish(Publish(topic: topic, retain: true))
            if takes(clearing) { clearing.encode(into: &output, as: version) }
        }
        Packet.disconnect(Disconnect(reasonCode: .normalDisconnection)).encode(into: &output, as: version)
        return output
    }

    private func takes(_ packet: Packet) -> Bool { packet.encodedLength(as: version) <= limits.maximumPacketSize }

    private static var packetID: PacketID {
        guard let id = PacketID(rawValue: 1) else { preconditionFailure("1 is a packet identifier") }
        return id
    }
}

// MARK: What it means

extension PresenceLook {
    /// What follows from the presences that were seen.
    package enum Conclusion: Hashable, Sendable {
        /// The attempt goes on: nothing speaks against it.
        case goOn(Attempt)
        /// The attempt goes on if a second look, a second later, finds no other device either.
        case lookAgain
        /// The session must not connect, for this reason.
        case stayAway(Attempt, Reason)
        /// The farewell is said.
        case done
    }

    package func conclusion(from seen: [PresenceMessage], own: OwnPresence) -> Conclusion {
        guard case .attempt(let attempt, let look) = purpose else { return .done }
        // A connection that was closed without a reason may have been taken over: that is no yielding.
        let looks = attempt.followsSuddenClose ? [.forNewer, look] : [look]
        if let reason = looks.lazy.compactMap({ Self.verdict($0, seen: seen, own: own) }).first {
            return .stayAway(attempt, reason)
        }
        // Another device may have taken over just now and not have said yet that it is there: a server that gives no reason
        // closes the connection of the older device first. To come back then would throw the newer one out again.
        return attempt.followsSuddenClose && !isSecond ? .lookAgain : .goOn(attempt)
    }

    /// Whether our own presence must go: nobody would take it away otherwise. What another device says under the same name
    /// stays.
    package func mustClear(_ seen: [PresenceMessage], own: OwnPresence, after conclusion: Conclusion) -> Bool {
        switch conclusion {
        case .stayAway, .done: seen.contains { own.wasOwn($0) }
        case .goOn, .lookAgain: false
        }
    }

    /// Why the session must not connect, by what was seen; `nil` when it may.
    ///
    /// A device that has taken over shows a connection that this session had not seen when it was up. The other one had seen
    /// ours before it took over, and so at most one of the two stays away. Clocks of two hosts are not compared.
    package static func verdict(_ look: Look, seen: [PresenceMessage], own: OwnPresence) -> Reason? {
        let online = seen.filter { $0.state == .online && !own.wasOwn($0) }
        switch look {
        case .forAny:
            guard let other = online.first else { return nil }
            return Reason(.yielded, "device \(other.identity.device) of this user is online, and this session yields")
        case .forNewer:
            guard let other = online.first(where: { own.isRivalUnseen($0) }) else { return nil }
            return Reason(.displaced, "device \(other.identity.device) took over this session's identity")
        }
    }
}
