package import MQTT
package import NIOCore
package import SessionCore

/// A look into a room without joining it: a second client reads, in one exchange, which devices of a user are present.
///
///     CONNECT ─▶ SUBSCRIBE presence/USER/+ ─▶ PINGREQ, PINGRESP ─▶ (clear our own presence) DISCONNECT
///
/// Servers send the retained messages with the answer to SUBSCRIBE, so all of them have arrived before PINGRESP. A
/// value without I/O: its owner moves the bytes.
package struct PresenceLook: Sendable {
    package enum Purpose: Hashable, Sendable {
        /// The look is for an attempt, which continues with CONNECT unless the look finds a reason not to.
        case attempt(Attempt, Look)
        /// The session is displaced, and its presence must be removed.
        case farewell

        package var attempt: Attempt? { if case .attempt(let attempt, _) = self { attempt } else { nil } }
    }

    package enum Outcome: Hashable, Sendable {
        case unfinished
        /// All presences of the user.
        case seen([PresenceMessage])
        /// The server does not allow the look; the sentence says why.
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
    /// Whether an earlier look for this attempt found no other device.
    package let isSecond: Bool
    /// `nil` before the look is dialed.
    package var connection: DialID?
    package private(set) var isOpen = false
    /// When the look is given up or, if it is not dialed yet, when to dial it.
    package private(set) var deadline: Instant?
    private let room: Room
    private let user: String
    private let connect: Connect
    private var step = Step.connecting
    /// What the server accepts.
    private var limits = MQTTClientMachine.ServerLimits()
    private var seen: [Participant.Identity: PresenceMessage] = [:]
    /// More than the devices of one user that can matter.
    private static let mostSeen = 1000
    package let version: ProtocolVersion
    private var decoder: PacketDecoder

    /// - Parameters:
    ///   - clientID: the session's own; the look uses one derived from it.
    ///   - version: the version of MQTT to use.
    package init(
        for purpose: Purpose, isSecond: Bool = false, room: Room, user: String, clientID: String,
        credentials: MQTTCredentials, maximumPacketSize: Int, version: ProtocolVersion = .five
    ) {
        self.purpose = purpose
        self.isSecond = isSecond
        self.room = room
        self.user = user
        connect = Connect(
            clientID: Connect.clientID(clientID, to: .look), cleanStart: true, username: credentials.username,
            password: credentials.password)
        self.version = version
        decoder = PacketDecoder(
            version: version, setsContentAside: true, maximumPacketSize: maximumPacketSize)
    }

    /// The connection is open.
    ///
    /// - Parameter limit: how long the server may take to answer. A server that does not answer a second client must
    ///   not hold up the attempt for longer.
    /// - Returns: what to send first.
    package mutating func opened(answeredWithin limit: Duration, at now: Instant) -> ByteBuffer {
        isOpen = true
        deadline = now.advanced(by: limit)
        return Packet.connect(connect).encoded(as: version)
    }

    package enum Due: Hashable, Sendable {
        /// The second look has to be dialed now.
        case dial
        /// The look has taken too long.
        case end
    }

    package mutating func timeReached(at now: Instant) -> Due? {
        guard let time = deadline, time <= now else { return nil }
        deadline = nil
        return connection == nil ? .dial : .end
    }

    /// Returns the same look again, to be dialed a second from now.
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

    private var filter: String { "\(room.base)presence/\(user)/+" }

    /// Takes what the server sent, and appends what to send in return.
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
                return .impossible("the server does not support wildcard subscriptions")
            }
            let subscribe = Packet.subscribe(
                Subscribe(packetID: Self.packetID, subscriptions: [Subscription(filter: filter)]))
            guard takes(subscribe) else {
                return .impossible("the server's packet limit is too small for the SUBSCRIBE")
            }
            step = .subscribing
            subscribe.encode(into: &output, as: version)
        case (.subscribing, .suback(let suback)) where suback.packetID == Self.packetID:
            guard let code = suback.reasonCodes.first, !code.isError else {
                return .impossible(suback.reasonCodes.first?.description ?? "SUBACK without a reason code")
            }
            step = .reading
            Packet.pingreq.encode(into: &output, as: version)
        // A higher QoS would need an answer, and was not asked for.
        case (.subscribing, .publish(let publish)) where publish.qos == .atMostOnce,
            (.reading, .publish(let publish)) where publish.qos == .atMostOnce:
            guard publish.flaw == nil, let identity = room.participant(ofPresence: publish.topic),
                identity.user == user
            else { break }
            seen[identity] = PresenceMessage(publish.payload.readableBytesView, of: identity)
            // Anyone who may publish in the room could invent enough of them to fill the memory.
            guard seen.count <= Self.mostSeen else {
                return .impossible("the user has more than \(Self.mostSeen) presences in the room")
            }
        case (.reading, .pingresp):
            return .seen(seen.values.sorted { $0.identity < $1.identity })
        case (_, .disconnect(let disconnect)):
            return .impossible(disconnect.reasonCode.description)
        default:
            return .impossible("the server sent \(packet.kind) out of turn")
        }
        return .unfinished
    }

    /// Returns what to send last.
    ///
    /// - Parameter topics: the topics of our own presence that have to be cleared.
    package func farewell(clearing topics: [String]) -> ByteBuffer {
        var output = ByteBuffer()
        for topic in topics where limits.retainAvailable {
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
    /// What to do after a look.
    package enum Conclusion: Hashable, Sendable {
        /// The attempt may continue.
        case proceed(Attempt)
        /// The attempt may continue if a second look, a second later, finds no other device either.
        case lookAgain
        /// The session must not connect, for this reason.
        case stayAway(Attempt, Reason)
        /// The look was a farewell, and is finished.
        case done
    }

    package func conclusion(from seen: [PresenceMessage], own: OwnPresence) -> Conclusion {
        guard case .attempt(let attempt, let look) = purpose else { return .done }
        // A connection that was closed without a reason may have been taken over. Check that first: a session that was
        // displaced does not yield.
        let looks = attempt.followsSuddenClose ? [.forNewer, look] : [look]
        if let reason = looks.lazy.compactMap({ Self.verdict($0, seen: seen, own: own) }).first {
            return .stayAway(attempt, reason)
        }
        // Another device may have taken over just now and not have announced itself yet: a server that gives no reason
        // closes the older device's connection first. Coming back at that moment would displace the newer one.
        return attempt.followsSuddenClose && !isSecond ? .lookAgain : .proceed(attempt)
    }

    /// Under which names our own presence has to be cleared, because nothing else would remove it. What another device
    /// has published under the same name stays.
    package func mustClear(
        _ seen: [PresenceMessage], own: OwnPresence, after conclusion: Conclusion
    ) -> [Participant.Identity] {
        switch conclusion {
        case .stayAway, .done: seen.filter { own.wasOwn($0) }.map(\.identity)
        case .proceed, .lookAgain: []
        }
    }

    /// Why the session must not connect, given what was seen; `nil` if it may.
    ///
    /// A device that has taken over shows a connection that this session had not seen while it was connected. The other
    /// device had seen ours before it took over, so at most one of the two stays away. The clocks of two hosts are not
    /// compared. No session yields to an earlier connection of its own device, or to one that it has displaced.
    package static func verdict(_ look: Look, seen: [PresenceMessage], own: OwnPresence) -> Reason? {
        let online = seen.filter { $0.state == .online && !own.wasOwn($0) }
        switch look {
        case .forAny:
            guard let other = online.first(where: { !own.replaces($0) }) else { return nil }
            return Reason(.yielded, "device \(other.identity.device) of this user is online, and this session yields")
        case .forNewer:
            guard let other = online.first(where: { own.isRivalUnseen($0) }) else { return nil }
            return Reason(.displaced, "device \(other.identity.device) took over this session's identity")
        }
    }
}
