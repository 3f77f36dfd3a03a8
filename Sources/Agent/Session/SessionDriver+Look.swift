import ControlAPI
import MQTT
import NIOCore
import NetworkPath
import SessionCore
import Transport

// Looking into the room before CONNECT, so that two devices of one identity do not kick each other for ever; and taking
// our own presence away when we were kicked, because no will does that: the session at the server lives on.

/// A look that is under way.
struct Looking {
    enum Purpose {
        /// An attempt that goes on with CONNECT if nothing speaks against it.
        case attempt(Attempt, Look)
        /// The session is displaced.
        case farewell
    }

    let purpose: Purpose
    /// Events of an earlier look are not of this one.
    let number: Int
    /// Whether an earlier look for the same attempt has found nobody.
    var isSecond = false
    var look: PresenceLook
    var connection: (any TransportConnection)?
    var isOpen = false
    var timer: Scheduled<Void>?
}

extension SessionDriver {
    /// Looks if the attempt has to, and dials if nothing speaks against it.
    func dialOrLook(_ attempt: Attempt) {
        stopLooking()
        link?.isDialed = true
        guard let look = attempt.look, rooms.membership != nil else {
            dial(attempt)
            return
        }
        guard !usesSCRAM else {
            // It would send the password itself.
            log.cannotLook("that is not done with SCRAM-SHA-256 in this version")
            dial(attempt)
            return
        }
        self.look(for: .attempt(attempt, look), at: address(of: attempt), link?.password, link?.proxyPassword)
    }

    /// Removes our presence, if it is still the one that we published.
    func sayFarewell() {
        guard rooms.membership != nil, !usesSCRAM, let last = rooms.lastOpened else { return }
        rooms.lastOpened = nil
        look(for: .farewell, at: last.endpoint, last.password, last.proxyPassword)
    }

    private func look(
        for purpose: Looking.Purpose, at endpoint: Endpoint, _ password: [UInt8]?, _ proxyPassword: [UInt8]?,
        isSecond: Bool = false
    ) {
        guard let membership = rooms.membership else { return }
        rooms.lookCount += 1
        let number = rooms.lookCount
        let credentials = MQTTCredentials(
            username: username, password: password.map { ByteBuffer(bytes: $0) })
        looking = Looking(
            purpose: purpose, number: number, isSecond: isSecond,
            look: PresenceLook(
                room: membership.room, user: configuration.user, clientID: clientID, credentials: credentials,
                maximumPacketSize: configuration.mqtt.maximumPacketSize, version: protocols.version(at: endpoint)))
        let options = Connection.Options(configuration, for: endpoint, proxyPassword: proxyPassword)
        looking?.connection = openConnection(to: endpoint, options: options) { [weak self] event in
            self?.assumeIsolated { $0.lookEvent(event, number) }
        }
    }

    func stopLooking() {
        looking?.timer?.cancel()
        looking?.connection?.close(.abort)
        looking = nil
    }

    private func lookEvent(_ event: ConnectionEvent, _ number: Int) {
        guard let looking, looking.number == number else { return }
        switch event {
        case .resolving, .reached, .writabilityChanged:
            break
        case .tlsFilesRejected(let failure):
            log.tlsFilesRejected(failure)
        case .resolved(let addresses):
            if case .attempt(let attempt, _) = looking.purpose { watchPaths(of: attempt.endpoint, to: addresses) }
        case .dialing:
            progressed(.dialing)
        case .securing:
            progressed(.securing)
        case .opened:
            self.looking?.isOpen = true
            progressed(.authenticating)
            looking.connection?.send(looking.look.greeting)
            // A server that does not answer a second client must not keep the first one away.
            let limit = min(configuration.timeouts.dial, configuration.timeouts.authenticate) / 2
            self.looking?.timer = eventLoop.scheduleTask(in: .nanoseconds(limit.nanoseconds)) { [weak self] in
                self?.assumeIsolated { $0.lookEnded(.impossible("no answer"), number) }
            }
        case .received(let bytes):
            var output = ByteBuffer()
            let outcome = self.looking?.look.received(bytes, into: &output) ?? .unfinished
            if output.readableBytes > 0 { looking.connection?.send(output) }
            lookEnded(outcome, number)
        case .closed(let end):
            if !looking.isOpen, case .attempt(let attempt, _) = looking.purpose {
                // As it would have happened to the attempt itself.
                stopLooking()
                var ending = SessionMachine.Ending(Reason(end))
                ending.isElsewhere = link?.isRedirected ?? false
                retire(attempt.generation, ending)
            } else {
                lookEnded(.impossible("the connection was closed"), number)
            }
        }
    }

    private func progressed(_ phase: Phase) {
        guard case .attempt(let attempt, _)? = looking?.purpose else { return }
        progressed(attempt.generation, phase)
    }

    private func lookEnded(_ outcome: PresenceLook.Outcome, _ number: Int) {
        guard outcome != .unfinished, let looking, looking.number == number else { return }
        self.looking = nil
        looking.timer?.cancel()
        guard case .seen(let seen) = outcome, let membership = rooms.membership else {
            if case .impossible(let sentence) = outcome { log.cannotLook(sentence) }
            looking.connection?.close(.abort)
            if case .attempt(let attempt, _) = looking.purpose { dial(attempt) }
            return
        }
        var verdict: Reason?
        if case .attempt(let attempt, let look) = looking.purpose {
            // A connection that was closed without a reason may have been taken over: that is no yielding.
            let mayBeTaken = attempt.followsConnection && Rivalry.isSudden(machine.status.reason)
            verdict =
                (mayBeTaken ? PresenceLook.verdict(.forNewer, seen: seen, own: membership.presence) : nil)
                ?? PresenceLook.verdict(look, seen: seen, own: membership.presence)
        }
        for message in seen { rooms.membership?.presence.noteSeen(message) }
        // Nobody would take it away otherwise; but what another device says under the same name stays.
        let mustClear =
            seen.contains { membership.presence.wasOwn($0) }
            && (verdict != nil || { if case .farewell = looking.purpose { true } else { false } }())
        looking.connection?.send(looking.look.farewell(clearing: mustClear ? membership.topic : nil))
        looking.connection?.close(.afterFlush)
        guard case .attempt(let attempt, _) = looking.purpose else { return }
        if let verdict {
            rooms.lastOpened = nil
            retire(attempt.generation, verdict)
        } else if mayBeTooEarly(looking) {
            lookAgain(looking)
        } else {
            dial(attempt)
        }
    }

    /// Whether another device may have taken over just now and not have said yet that it is there: the server closes the
    /// connection of the older device first, in MQTT 3.1.1 always without a word. To come back then would throw it out again.
    private func mayBeTooEarly(_ looking: Looking) -> Bool {
        guard case .attempt(let attempt, let look) = looking.purpose, !looking.isSecond, attempt.followsConnection
        else {
            return false
        }
        return switch look {
        case .forNewer: looking.look.version == .threeOneOne
        case .forAny: Rivalry.isSudden(machine.status.reason)
        }
    }

    /// Looks a second time in a moment.
    private func lookAgain(_ first: Looking) {
        guard case .attempt(let attempt, let look) = first.purpose else { return }
        rooms.lookCount += 1
        let number = rooms.lookCount
        looking = Looking(purpose: first.purpose, number: number, isSecond: true, look: first.look)
        looking?.timer = eventLoop.scheduleTask(in: .seconds(1)) { [weak self] in
            self?.assumeIsolated { driver in
                guard driver.looking?.number == number else { return }
                driver.look(
                    for: .attempt(attempt, look), at: driver.address(of: attempt), driver.link?.password,
                    driver.link?.proxyPassword, isSecond: true)
            }
        }
    }

    /// The session failed; if another device has its identity now, that is told, and our presence goes.
    func failed(because reason: Reason) {
        defer { rooms.lastOpened = nil }
        guard reason.code.group == .displaced else { return }
        if reason.code == .displaced {
            var event = self.event(.displaced)
            event.reason = self.reason(reason)
            report(event)
        }
        sayFarewell()
    }
}
