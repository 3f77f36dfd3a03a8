import Configuration
import ControlAPI
import MQTT
import NIOCore
import NetworkPath
import Session
import SessionCore
import Transport
import Vocabulary

// Looking into the room before CONNECT, so that two devices of one identity do not kick each other for ever; and taking
// our own presence away when we were kicked, because no will does that: the session at the server lives on.

extension SessionDriver {
    /// Looks, if the attempt has to.
    ///
    /// - Returns: `false` if nothing is awaited.
    func looks(_ role: DialRole) -> Bool {
        guard case .attempt(let attempt) = role, let look = attempt.look, session.rooms.membership != nil else {
            return false
        }
        guard !usesSCRAM else {
            // It would send the password itself.
            log.cannotLook("that is not done with SCRAM-SHA-256 in this version")
            return false
        }
        self.look(for: .attempt(attempt, look))
        return true
    }

    private func look(for purpose: PresenceLook.Purpose, isSecond: Bool = false) {
        guard let link else { return }
        look(for: purpose, at: link.address, link.password, link.proxyPassword, isSecond: isSecond)
    }

    /// Removes our presence, if it is still the one that we published.
    func sayFarewell() {
        guard session.rooms.membership != nil, !usesSCRAM, let last = lastOpened else { return }
        lastOpened = nil
        look(for: .farewell, at: last.endpoint, last.password, last.proxyPassword)
    }

    private func look(
        for purpose: PresenceLook.Purpose, at endpoint: Endpoint, _ password: [UInt8]?, _ proxyPassword: [UInt8]?,
        isSecond: Bool = false
    ) {
        guard let membership = session.rooms.membership else { return }
        let login = MQTTCredentials(username: username, password: password.map { ByteBuffer(bytes: $0) })
        session.looking = PresenceLook(
            for: purpose, isSecond: isSecond, room: membership.room, user: configuration.user,
            clientID: session.clientID, credentials: login, maximumPacketSize: configuration.mqtt.maximumPacketSize,
            version: session.servers.version(at: endpoint))
        let options = Connection.Options(configuration, for: endpoint, proxyPassword: proxyPassword)
        session.looking?.connection = dial(endpoint, options, as: .look(purpose.attempt))
    }

    func stopLooking() {
        connections.letGo(of: session.looking?.connection, .abort)
        session.looking = nil
    }

    func lookOpened() {
        guard let look = session.looking else { return }
        if let attempt = look.purpose.attempt { progressed(attempt.generation, .authenticating) }
        let limit = min(configuration.timeouts.dial, configuration.timeouts.authenticate) / 2
        guard let greeting = session.looking?.opened(answeredWithin: limit, at: now) else { return }
        connections[look.connection]?.send(greeting)
        schedule()
    }

    func lookIsDue() {
        guard let look = session.looking else { return }
        switch session.looking?.timeReached(at: now) {
        case .dial?: self.look(for: look.purpose, isSecond: true)
        case .end?: lookEnded(.impossible("no answer"))
        case nil: break
        }
    }

    func lookReceived(_ bytes: ByteBuffer) {
        guard let look = session.looking else { return }
        var output = ByteBuffer()
        let outcome = session.looking?.received(bytes, into: &output) ?? .unfinished
        if output.readableBytes > 0 { connections[look.connection]?.send(output) }
        lookEnded(outcome)
    }

    func lookClosed(_ end: ConnectionEnd) {
        guard let look = session.looking else { return }
        if !look.isOpen, let attempt = look.purpose.attempt {
            // As it would have happened to the attempt itself.
            stopLooking()
            var ending = SessionMachine.Ending(Reason(end))
            ending.isElsewhere = link?.isRedirected ?? false
            retire(attempt.generation, ending)
        } else {
            lookEnded(.impossible("the connection was closed"))
        }
    }

    private func lookEnded(_ outcome: PresenceLook.Outcome) {
        guard outcome != .unfinished, let look = session.looking else { return }
        session.looking = nil
        guard case .seen(let seen) = outcome, let membership = session.rooms.membership else {
            if case .impossible(let sentence) = outcome { log.cannotLook(sentence) }
            connections.letGo(of: look.connection, .abort)
            if let attempt = look.purpose.attempt { prepare(.attempt(attempt), from: .dial) }
            return
        }
        let conclusion = look.conclusion(from: seen, own: membership.presence)
        let mustClear = look.mustClear(seen, own: membership.presence, after: conclusion)
        for message in seen { session.rooms.membership?.presence.noteSeen(message) }
        connections[look.connection]?.send(look.farewell(clearing: mustClear ? membership.topic : nil))
        connections.letGo(of: look.connection, .afterFlush)
        switch conclusion {
        case .goOn(let attempt):
            prepare(.attempt(attempt), from: .dial)
        case .lookAgain:
            session.looking = look.again(at: now)
            schedule()
        case .stayAway(let attempt, let reason):
            lastOpened = nil
            retire(attempt.generation, reason)
        case .done:
            break
        }
    }

    /// The session failed; if another device has its identity now, that is told, and our presence goes.
    func failed(because reason: Reason) {
        defer { lastOpened = nil }
        guard reason.code.group == .displaced else { return }
        if reason.code == .displaced {
            var event = self.event(.displaced)
            event.reason = self.reason(reason)
            report(event)
        }
        sayFarewell()
    }
}
