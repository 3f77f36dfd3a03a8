import ControlAPI
import DurableStore
import Logging
import MQTT
import NIOCore
import NetworkPath
import Session
import SessionCore
import Transport

// The session's room: presence, participants, and the way from one room to another.

/// What a driver knows of rooms.
struct Rooms: Sendable {
    /// `nil` when the session is in no room.
    var membership: RoomMembership?
    /// The change of rooms that is under way.
    var change: RoomChange?
    /// Where our presence must not stay.
    var topicsToClear: Set<String> = []
    /// Where the session was connected last, and how: for taking its presence away when it is displaced.
    var lastOpened: (endpoint: Endpoint, password: [UInt8]?, proxyPassword: [UInt8]?)?
    /// The server that has taken our presence last. Another one need not know it, whatever it resumes.
    var presentAt: Endpoint?
    /// What the store remembers of our presence; see ``OwnPresence/said``.
    var presences: Set<RFC3339> = []
    /// The will in the server's hands is that of another room.
    var mustRenew = false
}

/// From one room to another: the old one is left when the new one has accepted everything.
struct RoomChange: Sendable {
    var joining: RoomMembership
    var answer: @Sendable (Result<Void, RPCError>) -> Void
}

extension SessionDriver {
    /// A session's presence in the room, not published yet.
    private func membership(in room: Room) -> RoomMembership {
        RoomMembership(
            room,
            presence: OwnPresence(
                identity: identity, session: name.description, willDelay: configuration.presence.willDelay,
                since: wallClock, said: rooms.presences))
    }

    /// In any life of the daemon the session knows what it has published.
    private func remember(_ presence: OwnPresence?) {
        guard let said = presence?.said, said != rooms.presences else { return }
        rooms.presences = said
        let (commits, name) = (surroundings.commits, name)
        let times = Set(said.map { Timestamp(rawValue: $0.milliseconds) })
        commits.assumeIsolated { $0.commit([.setPresences(times)], of: name) { _ in } }
    }

    /// The configured device, or the one that is derived from the machine.
    var device: String { configuration.device.isEmpty ? surroundings.deviceID : configuration.device }

    private var identity: Participant.Identity { .init(user: configuration.user, device: device) }

    /// Takes up the room: the configured one, unless the session was told to switch to another one since. A room that the
    /// session was in when the daemon was killed, and is not in any more, is left.
    func enterRoom(_ chosen: ChosenRoom?, remembered: Set<TopicFilter>) {
        let room = chosen.map { Room(prefix: configuration.roomPrefix, name: $0.room) } ?? configuration.configuredRoom
        rooms.membership = room.map { membership(in: $0) }
        machine.rivalry.strategy = configuration.kick
        machine.rivalry.canLook = rooms.membership != nil
        rooms.topicsToClear = Set(Room.presenceTopics(of: identity, in: remembered))
        publications.enter(room)
        _ = followWithDurables(to: room)
        guard let membership = rooms.membership else { return }
        rooms.topicsToClear.remove(membership.topic)
        _ = consumers.follow(to: membership.room)
    }

    /// The topic or filter as the server has it.
    func resolve(_ text: String) throws(RPCError) -> String {
        do throws(Room.Unresolved) {
            return try Room.resolve(text, in: rooms.membership?.room)
        } catch {
            switch error {
            case .noRoom:
                throw RPCError(
                    .invalidTopic, "\(text) is relative to a room, and session \(name) is in none",
                    hint: "set room in the session's file, or: holdfastctl switch-room \(name) ROOM")
            case .empty:
                throw .invalidTopic(text, "nothing stands behind ~/")
            }
        }
    }

    // MARK: Connections

    /// Before an attempt: what CONNECT says of the room.
    func prepareRoom() {
        if machine.status.state == .connecting, !machine.wasAccepted { rooms.membership?.presence.begin(at: wallClock) }
        let mark = ConnectionMark(clientID: clientID, time: wallClock, random: surroundings.seed())
        rooms.membership?.presence.willConnect(as: mark)
        mqtt.configuration.will = rooms.membership?.will
        mqtt.configuration.keepAlive =
            rooms.membership == nil
            ? PresenceTiming.keepAlive(configuration.heartbeat.interval) : configuration.presence.keepAlive
    }

    /// After CONNACK: what has to be said and heard in the room.
    func roomConnected(resumed: Bool) {
        rooms.mustRenew = false
        for topic in rooms.topicsToClear { order(.announce(Announcement(topic: topic))) }
        guard var membership = rooms.membership else { return }
        let isKnownHere = resumed && rooms.presentAt == link?.address
        let mustAnnounce = membership.presence.connected(
            resumed: isKnownHere, isWillDelayed: mqtt.version == .five, at: now, time: wallClock)
        let knowsAll = isKnownHere && membership.participants.isKnown
        if !knowsAll {
            membership.participants.beginSnapshot()
            // A server that still has the subscription sends the retained messages only when it is asked for them.
            if resumed { order(.subscribe(membership.filter)) }
        }
        membership.step = mustAnnounce || !knowsAll ? .mustAnnounce : .done
        rooms.membership = membership
        remember(membership.presence)
        // Nobody waits for the new mark but another device.
        if membership.step == .done { order(.announce(membership.online)) }
    }

    /// All subscriptions were answered for: the session is restored when its presence and its publications are published,
    /// too.
    func roomRestored() {
        isRestoring = true
        if let membership = rooms.membership, membership.step == .mustAnnounce {
            rooms.membership?.step = .announcing
            order(.announce(membership.online))
        }
        publications.open()
        advancePublications()
    }

    func checkRestored() {
        guard isRestoring, rooms.membership?.step != .announcing, publications.isSettled else { return }
        isRestoring = false
        tellSession { .restored($0) }
    }

    func roomConnectionClosed() {
        isRestoring = false
        publications.connectionClosed()
        rooms.membership?.connectionClosed()
        endChange(.notConnected(name.description, hint: "it stays in its room; try again when it is connected"))
    }

    /// The session leaves for good, as long as it is connected.
    func leaveRoom() {
        endChange(.wrongState(name.description, is: "disconnecting"))
        guard let membership = rooms.membership else { return }
        rooms.membership?.step = .leaving
        order(.announce(membership.cleared))
    }

    /// How to say goodbye: when the room does not know yet that we left, the will tells it.
    var goodbye: MQTT.ReasonCode {
        rooms.membership?.step == .leaving ? .disconnectWithWill : .normalDisconnection
    }

    // MARK: Messages

    func announced(_ announcement: Announcement, _ code: MQTT.ReasonCode) {
        if rooms.change?.joining.topic == announcement.topic, announcement.payload.readableBytes > 0 {
            finishChange(code)
        } else if rooms.membership?.topic == announcement.topic {
            if announcement.payload.readableBytes == 0 {
                if rooms.membership?.step == .leaving, !code.isError {
                    rooms.membership?.step = .done
                    rooms.membership?.presence.cleared()
                }
            } else {
                ownPresenceAnswered(code)
            }
        }
        if announcement.payload.readableBytes == 0 { rooms.topicsToClear.remove(announcement.topic) }
    }

    /// After a change of rooms, the server is told whose end to announce where when nothing is under way any more.
    func renewIfRoomChanged() {
        guard rooms.mustRenew, rooms.topicsToClear.isEmpty, publications.isQuiet else { return }
        rooms.mustRenew = false
        renew(because: Reason(.switchRoom))
    }

    /// At a heartbeat.
    func announceRefusedPresence() {
        if rooms.membership?.takeRefusal(at: now) == true, let online = rooms.membership?.online {
            order(.announce(online))
        }
    }

    private func ownPresenceAnswered(_ code: MQTT.ReasonCode) {
        if code.isError {
            log.presenceRefused(code.description)
            // There will be no message of ours at the end of the retained ones.
            tell(rooms.membership?.participants.endSnapshot() ?? [])
        } else {
            rooms.membership?.presence.published(at: now)
            rooms.presentAt = link?.address
        }
        if rooms.membership?.presenceAnswered(isRefused: code.isError, at: now) == true,
            let online = rooms.membership?.online
        {
            order(.announce(online))
        }
        if rooms.membership?.step == .announcing {
            rooms.membership?.step = .done
            checkRestored()
        }
    }

    func roomReceived(_ message: MQTTClientMachine.InboundMessage) {
        if rooms.change?.joining.received(message) != nil { return }
        switch rooms.membership?.received(message) {
        case .changes(let changes)?: tell(changes)
        case .mustCorrect?: if let online = rooms.membership?.online { order(.announce(online)) }
        case nil: break
        }
    }

    private func tell(_ changes: [Participants.Change]) {
        for change in changes {
            let identity: Participant.Identity
            var event = self.event(.participantJoined)
            switch change {
            case .joined(let who):
                identity = who
            case .changed(let who, let quality):
                identity = who
                event.event = .participantChanged
                event.quality = .init(quality)
            case .left(let who, let cause):
                identity = who
                event.event = .participantLeft
                event.cause = cause
            }
            event.user = identity.user
            event.device = identity.device
            report(event)
        }
    }

    /// The others in the room are told how good this session's connection is.
    func tellQuality(_ quality: Quality) {
        // Nothing gets through when nothing comes back.
        guard quality != .lost, let before = rooms.membership?.presence, before.quality != quality else { return }
        rooms.membership?.presence.quality = quality
        // A first measurement that is as one expects goes along with the next message.
        guard before.quality != nil || quality == .poor, let membership = rooms.membership, membership.step == .done,
            machine.status.state == .connected
        else { return }
        order(.announce(membership.online))
    }

    /// Who is in the room.
    func participants() throws(RPCError) -> RoomParticipantsMethod.Result {
        guard let membership = rooms.membership else {
            throw .wrongState(
                name.description, is: "in no room",
                hint: "set room in the session's file, or: holdfastctl switch-room \(name) ROOM")
        }
        let state = machine.status.state
        guard state == .connected || state == .reconnecting else { throw .notConnected(name.description) }
        guard membership.participants.hasList else {
            throw .wrongState(
                name.description, is: "not told who is in its room",
                hint: "a moment after connecting it is, unless the server refuses \(membership.room.presenceFilter)")
        }
        return RoomParticipantsMethod.Result(
            room: membership.room.name,
            participants: membership.participants.list.map {
                RoomParticipant(
                    user: $0.identity.user, device: $0.identity.device, state: .online, since: $0.since,
                    quality: $0.quality.map { .init($0) })
            })
    }

    // MARK: Switching

    /// Joins another room, then leaves the old one. When the new one refuses, the session stays where it is.
    func switchRoom(to room: String) async throws(RPCError) -> SessionSwitchRoomMethod.Result {
        try checkRunning()
        guard Room.isValid(room) else {
            throw .invalidParameters("a room is levels of a topic, none of them empty, without + and #")
        }
        let new = Room(prefix: configuration.roomPrefix, name: room)
        guard Room.isLevel(configuration.user), Room.isLevel(device) else {
            throw .badConfiguration("in a room, user and device are levels of a topic: without /, + and #")
        }
        guard machine.status.state == .connected else {
            throw .notConnected(name.description, hint: "a session changes its room while it is connected")
        }
        guard rooms.change == nil, !rooms.mustRenew else {
            throw .tooManyRequests("session \(name) is changing its room")
        }
        guard new != rooms.membership?.room else { return .init(room: room) }
        var joining = membership(in: new)
        if let mark = rooms.membership?.presence.mark { joining.presence.willConnect(as: mark) }
        joining.participants.beginSnapshot()
        remember(joining.presence)
        let result: Result<Void, RPCError> = await withCheckedContinuation { continuation in
            rooms.change = RoomChange(joining: joining) { continuation.resume(returning: $0) }
            order(.subscribe(joining.filter))
        }
        try result.get()
        await rememberRoom(room)
        return .init(room: room)
    }

    private func rememberRoom(_ room: String) async {
        do {
            try await surroundings.store.setChosenRoom(
                name, ChosenRoom(room: room, configured: configuration.room, bootID: surroundings.bootID))
        } catch {
            surroundings.logger.error("\(name): the room could not be remembered: \(error)")
        }
    }

    /// The server answered a subscription; it may be that of the new room.
    func roomSubscribed(_ filter: TopicFilter, _ code: MQTT.ReasonCode) {
        if let change = rooms.change, change.joining.filter == filter {
            guard !code.isError else {
                endChange(refusal(of: change, code))
                return
            }
            if change.joining.step == .done {
                rooms.change?.joining.step = .announcing
                order(.announce(change.joining.online))
            }
        }
    }

    private func refusal(of change: RoomChange, _ code: MQTT.ReasonCode) -> RPCError {
        let stays = rooms.membership.map { "stays in \($0.room.name)" } ?? "is in no room"
        return RPCError(
            .messageRejected, "room \(change.joining.room.name) refused session \(name) (\(code)): it \(stays)",
            reasonCode: Int(code.rawValue))
    }

    private func finishChange(_ code: MQTT.ReasonCode) {
        guard var change = rooms.change else { return }
        guard !code.isError else {
            endChange(refusal(of: change, code))
            return
        }
        rooms.change = nil
        change.joining.step = .done
        change.joining.presence.published(at: now)
        rooms.presentAt = link?.address
        if change.joining.participants.isKnown == false { _ = change.joining.participants.endSnapshot() }
        let old = rooms.membership
        rooms.membership = change.joining
        if let old {
            unsubscribeIfUnwanted(old.filter)
            rooms.topicsToClear.insert(old.topic)
            order(.announce(old.cleared))
        }
        rooms.topicsToClear.remove(change.joining.topic)
        for move in consumers.follow(to: change.joining.room) + followWithDurables(to: change.joining.room) {
            unsubscribeIfUnwanted(move.old)
            if let new = move.new, let qos = wantedQoS(of: new) { order(.subscribe(new, qos)) }
        }
        machine.rivalry.canLook = true
        publications.enter(change.joining.room)
        advancePublications()
        rooms.mustRenew = true
        renewIfRoomChanged()
        var event = self.event(.roomChanged)
        event.previousRoom = old?.room.name
        report(event)
        change.answer(.success(()))
        surroundings.report(name, nil)
    }

    /// The new room is not entered; whatever was said there is taken back.
    private func endChange(_ error: RPCError) {
        guard let change = rooms.change else { return }
        rooms.change = nil
        remember(rooms.membership?.presence)
        unsubscribeIfUnwanted(change.joining.filter)
        if change.joining.step == .announcing {
            rooms.topicsToClear.insert(change.joining.topic)
            order(.announce(change.joining.cleared))
        }
        change.answer(.failure(error))
    }
}
