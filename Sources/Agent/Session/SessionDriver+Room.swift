import Configuration
import ControlAPI
import DurableStore
import Logging
import MQTT
import NIOCore
import NetworkPath
import Session
import SessionCore
import Transport
import Vocabulary

// The session's room: what ``Rooms`` decides is carried out here, and what programs ask is answered.

extension SessionDriver {
    func perform(_ actions: [Rooms.Action]) {
        for action in actions { perform(action) }
    }

    private func perform(_ action: Rooms.Action) {
        switch action {
        case .announce(let announcement): order(.announce(announcement))
        case .subscribe(let filter): order(.subscribe(filter))
        case .unsubscribe(let filter): unsubscribeIfUnwanted(filter)
        case .remember(let said):
            commit([.setPresences(Set(said.map { Timestamp(rawValue: $0.milliseconds) }))])
        case .tell(let changes): tell(changes)
        case .presenceRefused(let code): log.presenceRefused(code.description)
        case .restored: checkRestored()
        case .entered(let room, let old): entered(room, from: old)
        case .answer(let call, let error):
            programs.switching.answer([call], error.map { .failure($0) } ?? .success(()))
            if error == nil { surroundings.report(name, nil) }
        }
    }

    /// The configured device, or the one that is derived from the machine.
    var device: String { configuration.device.isEmpty ? surroundings.deviceID : configuration.device }

    /// Takes up the room: the configured one, unless the session was told to switch to another one since. A room that the
    /// session was in when the daemon was killed, and is not in any more, is left.
    func enterRoom(_ chosen: ChosenRoom?, remembered: Set<TopicFilter>) {
        let room = chosen.map { Room(prefix: configuration.roomPrefix, name: $0.room) } ?? configuration.configuredRoom
        session.rooms.begin(in: room, subscribedTo: remembered, at: wallClock)
        session.machine.rivalry.strategy = configuration.kick
        session.machine.rivalry.canLook = session.rooms.membership != nil
        session.publications.enter(room)
        _ = followWithDurables(to: room)
        if let room { _ = session.consumers.follow(to: room) }
    }

    /// The topic or filter as the server has it.
    func resolve(_ text: String) throws(RPCError) -> String {
        guard Room.isRelative(text) else { return text }
        do throws(Room.Unresolved) {
            return try Room.resolve(text, in: session.rooms.membership?.room)
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
        session.prepareConnect(
            keepAlive: session.rooms.membership == nil
                ? PresenceTiming.keepAlive(configuration.heartbeat.interval) : configuration.presence.keepAlive,
            wallClock: wallClock)
    }

    func roomConnected(resumed: Bool) {
        guard let link else { return }
        perform(
            session.rooms.connected(
                to: link.address.description, resumed: resumed, isWillDelayed: session.mqtt.version == .five, at: now,
                time: wallClock))
    }

    /// All subscriptions were answered for: the session is restored when its presence and its publications are published,
    /// too.
    func roomRestored() {
        isRestoring = true
        perform(session.rooms.subscriptionsRestored())
        session.publications.open()
        advancePublications()
    }

    func checkRestored() {
        guard isRestoring, session.isRestored else { return }
        isRestoring = false
        tellSession { .restored($0) }
    }

    func roomConnectionClosed() {
        isRestoring = false
        session.publications.connectionClosed()
        perform(session.rooms.connectionClosed())
    }

    // MARK: Messages

    func announced(_ announcement: Announcement, _ code: MQTT.ReasonCode) {
        perform(session.rooms.announced(announcement, code, by: link?.address.description, at: now))
    }

    /// After a change of rooms, the server is told whose end to announce where when nothing is under way any more.
    func renewIfRoomChanged() {
        if session.rooms.takeRenewal(isQuiet: session.publications.isQuiet) { renew(because: Reason(.switchRoom)) }
    }

    /// At a heartbeat.
    func announceRefusedPresence() {
        perform(session.rooms.announceRefused(at: now))
    }

    /// The others in the room are told how good this session's connection is.
    func tellQuality(_ quality: Quality) {
        perform(session.rooms.qualityChanged(quality, isConnected: session.machine.status.state == .connected))
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
                event.quality = quality
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

    /// Who is in the room.
    func participants() throws(RPCError) -> RoomParticipantsMethod.Result {
        guard let membership = session.rooms.membership else {
            throw .wrongState(
                name.description, is: "in no room",
                hint: "set room in the session's file, or: holdfastctl switch-room \(name) ROOM")
        }
        let state = session.machine.status.state
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
                    quality: $0.quality)
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
        guard session.machine.status.state == .connected else {
            throw .notConnected(name.description, hint: "a session changes its room while it is connected")
        }
        guard !session.rooms.isChanging else {
            throw .tooManyRequests("session \(name) is changing its room")
        }
        guard new != session.rooms.membership?.room else {
            // It may be asked for again because it could not be remembered.
            try await rememberRoom(room)
            return .init(room: room)
        }
        let result: Result<Void, RPCError> = await withCheckedContinuation { continuation in
            let call = programs.switching.add { continuation.resume(returning: $0) }
            perform(session.rooms.join(new, for: call, at: wallClock))
        }
        try result.get()
        try await rememberRoom(room)
        return .init(room: room)
    }

    private func entered(_ room: Room, from old: Room?) {
        for move in session.consumers.follow(to: room) + followWithDurables(to: room) {
            unsubscribeIfUnwanted(move.old)
            if let new = move.new, let qos = session.wantedQoS(of: new) { order(.subscribe(new, qos)) }
        }
        session.machine.rivalry.canLook = true
        session.publications.enter(room)
        advancePublications()
        renewIfRoomChanged()
        var event = self.event(.roomChanged)
        event.previousRoom = old?.name
        report(event)
    }
}
