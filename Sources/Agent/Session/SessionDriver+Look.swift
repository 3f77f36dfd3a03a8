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

/// A look that is under way.
struct Looking {
    enum Purpose {
        /// An attempt that goes on with CONNECT if nothing speaks against it.
        case attempt(Attempt, Look)
        /// The session is displaced.
        case farewell

        var attempt: Attempt? { if case .attempt(let attempt, _) = self { attempt } else { nil } }
    }

    let purpose: Purpose
    /// Whether an earlier look for the same attempt has found nobody.
    var isSecond = false
    var look: PresenceLook
    var connection: DialID?
    var isOpen = false
    /// When it is given up; before it is dialed, when it is.
    var deadline: Instant?
}

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

    private func look(for purpose: Looking.Purpose, isSecond: Bool = false) {
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
        for purpose: Looking.Purpose, at endpoint: Endpoint, _ password: [UInt8]?, _ proxyPassword: [UInt8]?,
        isSecond: Bool = false
    ) {
        guard let membership = session.rooms.membership else { return }
        let login = MQTTCredentials(
            username: username, password: password.map { ByteBuffer(bytes: $0) })
        looking = Looking(
            purpose: purpose, isSecond: isSecond,
            look: PresenceLook(
                room: membership.room, user: configuration.user, clientID: session.clientID, credentials: login,
                maximumPacketSize: configuration.mqtt.maximumPacketSize, version: session.servers.version(at: endpoint))
        )
        let options = Connection.Options(configuration, for: endpoint, proxyPassword: proxyPassword)
        looking?.connection = dial(endpoint, options, as: .look(purpose.attempt))
    }

    func stopLooking() {
        connections.letGo(of: looking?.connection, .abort)
        looking = nil
    }

    func lookOpened() {
        guard let looking else { return }
        self.looking?.isOpen = true
        if let attempt = looking.purpose.attempt { progressed(attempt.generation, .authenticating) }
        connections[looking.connection]?.send(looking.look.greeting)
        // A server that does not answer a second client must not keep the first one away.
        let limit = min(configuration.timeouts.dial, configuration.timeouts.authenticate) / 2
        self.looking?.deadline = now.advanced(by: limit)
        schedule()
    }

    func lookIsDue() {
        guard let looking, let deadline = looking.deadline, deadline <= now else { return }
        self.looking?.deadline = nil
        if looking.connection == nil {
            look(for: looking.purpose, isSecond: true)
        } else {
            lookEnded(.impossible("no answer"))
        }
    }

    func lookReceived(_ bytes: ByteBuffer) {
        guard let looking else { return }
        var output = ByteBuffer()
        let outcome = self.looking?.look.received(bytes, into: &output) ?? .unfinished
        if output.readableBytes > 0 { connections[looking.connection]?.send(output) }
        lookEnded(outcome)
    }

    func lookClosed(_ end: ConnectionEnd) {
        guard let looking else { return }
        if !looking.isOpen, case .attempt(let attempt, _) = looking.purpose {
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
        guard outcome != .unfinished, let looking else { return }
        self.looking = nil
        guard case .seen(let seen) = outcome, let membership = session.rooms.membership else {
            if case .impossible(let sentence) = outcome { log.cannotLook(sentence) }
            connections.letGo(of: looking.connection, .abort)
            if let attempt = looking.purpose.attempt { prepare(.attempt(attempt), from: .dial) }
            return
        }
        var verdict: Reason?
        if case .attempt(let attempt, let look) = looking.purpose {
            // A connection that was closed without a reason may have been taken over: that is no yielding.
            let looks = attempt.followsSuddenClose ? [.forNewer, look] : [look]
            verdict = looks.lazy.compactMap { PresenceLook.verdict($0, seen: seen, own: membership.presence) }.first
        }
        for message in seen { session.rooms.membership?.presence.noteSeen(message) }
        // Nobody would take it away otherwise; but what another device says under the same name stays.
        let mustClear =
            seen.contains { membership.presence.wasOwn($0) }
            && (verdict != nil || { if case .farewell = looking.purpose { true } else { false } }())
        connections[looking.connection]?.send(looking.look.farewell(clearing: mustClear ? membership.topic : nil))
        connections.letGo(of: looking.connection, .afterFlush)
        guard case .attempt(let attempt, _) = looking.purpose else { return }
        if let verdict {
            lastOpened = nil
            retire(attempt.generation, verdict)
        } else if mayBeTooEarly(looking) {
            lookAgain(looking)
        } else {
            prepare(.attempt(attempt), from: .dial)
        }
    }

    /// Whether another device may have taken over just now and not have said yet that it is there: a server that gives no
    /// reason closes the connection of the older device first. To come back then would throw the newer one out again.
    private func mayBeTooEarly(_ looking: Looking) -> Bool {
        guard case .attempt(let attempt, _) = looking.purpose else { return false }
        return attempt.followsSuddenClose && !looking.isSecond
    }

    /// Looks a second time in a moment.
    private func lookAgain(_ first: Looking) {
        looking = Looking(
            purpose: first.purpose, isSecond: true, look: first.look, deadline: now.advanced(by: .seconds(1)))
        schedule()
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
