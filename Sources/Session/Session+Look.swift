import MQTT
import NIOCore
import SessionCore

// A look into the room before CONNECT, so that two devices with one identity do not displace each other endlessly. Also
// the removal of our own presence after we were displaced: no will does that, because the session at the server lives
// on.

extension Session {
    /// Starts a look, if the attempt needs one.
    ///
    /// - Returns: `false` if there is nothing to wait for.
    mutating func looks(_ role: DialRole) -> Bool {
        guard case .attempt(let attempt) = role, let look = attempt.look, let link, rooms.membership != nil else {
            return false
        }
        guard !settings.provesPassword else {
            // A look would have to send the password itself.
            act(.tell(.cannotLook("not supported with SCRAM-SHA-256")))
            return false
        }
        self.look(for: .attempt(attempt, look), at: link.address, link.login)
        return true
    }

    /// Removes our presence, if it is still the one that we published.
    private mutating func sayFarewell() {
        guard rooms.membership != nil, !settings.provesPassword, let last = connections.lastOpened else { return }
        connections.lastOpened = nil
        look(for: .farewell, at: last.address, last.login)
    }

    private mutating func look(
        for purpose: PresenceLook.Purpose, at address: Endpoint, _ login: Login, isSecond: Bool = false
    ) {
        guard let membership = rooms.membership else { return }
        looking = PresenceLook(
            for: purpose, isSecond: isSecond, room: membership.room, user: settings.user, clientID: clientID,
            credentials: MQTTCredentials(username: username, password: login.password.map { ByteBuffer(bytes: $0) }),
            maximumPacketSize: settings.maximumPacketSize, version: servers.protocols.version(at: address))
        let dialed = DialTarget(address: address, proxyPassword: login.proxyPassword)
        let connection = dial(dialed, as: .look(purpose.attempt))
        looking?.connection = connection
    }

    mutating func stopLooking() {
        letGo(looking?.connection, .abort)
        looking = nil
    }

    mutating func lookOpened() {
        guard let look = looking, let connection = look.connection else { return }
        let now = now
        if let attempt = look.purpose.attempt { tellMachine(.progressed(attempt.generation, .authenticating)) }
        let limit = min(settings.timeouts.dial, settings.timeouts.authenticate) / 2
        if let greeting = looking?.opened(answeredWithin: limit, at: now) { act(.send(connection, greeting, nil)) }
    }

    mutating func lookIsDue() {
        guard let look = looking else { return }
        let now = now
        switch looking?.timeReached(at: now) {
        case .dial?:
            guard let link else { return }
            self.look(for: look.purpose, at: link.address, link.login, isSecond: true)
        case .end?: lookEnded(.impossible("no answer"))
        case nil: break
        }
    }

    mutating func lookReceived(_ bytes: ByteBuffer) {
        guard let connection = looking?.connection else { return }
        var output = ByteBuffer()
        let outcome = looking?.received(bytes, into: &output) ?? .unfinished
        if output.readableBytes > 0 { act(.send(connection, output, nil)) }
        lookEnded(outcome)
    }

    mutating func lookClosed(_ ending: SessionMachine.Ending) {
        guard let look = looking else { return }
        if !look.isOpen, let link, look.purpose.attempt?.generation == link.generation {
            // The same would have happened to the attempt itself.
            stopLooking()
            retire(link, because: ending)
        } else {
            lookEnded(.impossible("the connection was closed"))
        }
    }

    private mutating func lookEnded(_ outcome: PresenceLook.Outcome) {
        guard outcome != .unfinished, let look = looking else { return }
        looking = nil
        guard case .seen(let seen) = outcome, let membership = rooms.membership else {
            if case .impossible(let sentence) = outcome { act(.tell(.cannotLook(sentence))) }
            letGo(look.connection, .abort)
            if let attempt = look.purpose.attempt { prepare(.attempt(attempt), from: .dial) }
            return
        }
        let conclusion = look.conclusion(from: seen, own: membership.presence)
        let mustClear = look.mustClear(seen, own: membership.presence, after: conclusion)
        for message in seen { rooms.membership?.presence.noteSeen(message) }
        if let connection = look.connection {
            let topics = mustClear.map { membership.room.presenceTopic(of: $0) }
            act(.send(connection, look.farewell(clearing: topics), nil))
        }
        letGo(look.connection, .afterFlush)
        switch conclusion {
        case .proceed(let attempt):
            prepare(.attempt(attempt), from: .dial)
        case .lookAgain:
            looking = look.again(at: now)
        case .stayAway(let attempt, let reason):
            connections.lastOpened = nil
            retire(attempt.generation, .init(reason))
        case .done:
            break
        }
    }

    /// The session failed. If another device now has its identity, that is reported, and our presence is removed.
    mutating func failed(because reason: Reason) {
        defer { connections.lastOpened = nil }
        guard reason.code.group == .displaced else { return }
        if reason.code == .displaced { act(.tell(.displaced(reason))) }
        sayFarewell()
    }
}
