import ControlAPI
import MQTT
import NIOCore
import SessionCore

// The session's room, and what it publishes there and elsewhere: passes the decisions of ``Rooms`` and ``Publications``
// on to the protocol, the disk and people.

extension Session {
    mutating func perform(_ actions: [Rooms.Action]) {
        for action in actions { perform(action) }
    }

    private mutating func perform(_ action: Rooms.Action) {
        switch action {
        case .announce(let announcement): funnel.work.append(.announce(announcement))
        case .subscribe(let filter): funnel.work.append(.subscribe(filter, .atLeastOnce))
        case .unsubscribe(let filter): unsubscribeIfUnwanted(filter)
        case .remember(let said):
            act(.commit([.setPresences(said)]))
        case .rememberTopics(let topics):
            act(.commit([.setPresenceTopics(topics)]))
        case .tell(let changes): act(.tell(.participants(changes)))
        case .presenceRefused(let answer): act(.tell(.presenceRefused(answer)))
        case .presenceKept(let topic, let answer): act(.tell(.presenceKept(topic, answer)))
        case .restored: checkRestored()
        case .renew: renewForRoom()
        case .entered(let room, let old): entered(room, from: old)
        case .answer(let call, let error):
            if error == nil, let room {
                act(
                    .commit([
                        .setChosenRoom(
                            .init(room: room.name, configured: settings.room.configured, bootID: settings.bootID))
                    ]))
                act(.statusChanged)
            }
            act(.answer([call], .room(error)))
        }
    }

    /// The server has answered all subscriptions. The session is restored when its presence and its publications are
    /// published, too, unless these wait for messages: a message may take as long as it needs.
    mutating func subscriptionsRestored() {
        // A session that is about to leave is no longer restored.
        guard link?.step != .flushing else { return }
        link?.step = .restoring
        perform(rooms.subscriptionsRestored())
        publications.open()
        advancePublications()
    }

    mutating func checkRestored() {
        guard link?.step == .restoring else { return }
        let isPublished = !rooms.isAnnouncing && (publications.isSetUp || publications.isHeldBack)
        guard isPublished || mqtt.announcementsAwaitMessages else { return }
        link?.step = .none
        tellMachine { .restored($0) }
    }

    // MARK: Rooms

    /// Sets up the room and the subscriptions at the start. The room is the configured one, or the one that the session
    /// was told to switch to since: a reboot ends that choice, and so does a file that now names another room.
    ///
    /// - Parameters:
    ///   - filters: the session's subscriptions at the server from an earlier run of the daemon. If the session was in
    ///     another room then, it leaves that room.
    ///   - standing: the presence that the session's previous driver has left.
    mutating func enterRoom(
        _ chosen: ChosenRoom?, subscribedTo filters: Set<TopicFilter>, standing: StandingPresence? = nil
    ) {
        var name = settings.room.configured
        if let chosen {
            if chosen.bootID == settings.bootID, chosen.configured == name {
                name = chosen.room
            } else {
                act(.commit([.setChosenRoom(nil)]))
            }
        }
        let room = name.isEmpty ? nil : Room(prefix: settings.room.prefix, name: name)
        rooms.begin(in: room, subscribedTo: filters, standing: standing, at: wallClock)
        machine.rivalry.canLook = rooms.membership != nil
        publications.enter(room)
        _ = followWithDurables(to: room)
        if let room { _ = consumers.follow(to: room) }
        // A set's order differs between processes, but the same history must give the same session.
        for filter in wantedFilters.sorted(by: { $0.string < $1.string }) {
            funnel.work.append(.subscribe(filter, wantedQoS(of: filter) ?? .atLeastOnce))
        }
    }

    /// Joins another room, then connects again with its will and leaves the old one, and makes the choice survive restarts
    /// of the daemon within a boot. If the server refuses, the session stays where it is.
    mutating func join(_ name: String, for call: CallID) {
        if let refusal = refusal(toJoin: name) { return act(.answer([call], .room(refusal))) }
        perform(rooms.join(Room(prefix: settings.room.prefix, name: name), for: call, at: wallClock))
    }

    private func refusal(toJoin name: String) -> RPCError? {
        guard Room.isValid(name) else {
            return .invalidParameters("a room is levels of a topic, none of them empty, without + and #")
        }
        guard name.isInNormalFormC else { return .invalidParameters("the name of a room \(Room.normalForm)") }
        guard rooms.identity.user.isInNormalFormC, rooms.identity.device.isInNormalFormC else {
            return .badConfiguration("in a room, each of user and device \(Room.normalForm)")
        }
        guard Room.isLevel(rooms.identity.user), Room.isLevel(rooms.identity.device) else {
            return .badConfiguration("in a room, user and device are levels of a topic: without /, + and #")
        }
        guard state == .connected else {
            return .notConnected(
                settings.name.description, hint: "a session changes its room while it is connected")
        }
        return nil
    }

    private mutating func entered(_ room: Room, from old: Room?) {
        for move in consumers.follow(to: room) + followWithDurables(to: room) {
            unsubscribeIfUnwanted(move.old)
            if let new = move.new, let qos = wantedQoS(of: new) { funnel.work.append(.subscribe(new, qos)) }
        }
        machine.rivalry.canLook = true
        publications.enter(room)
        advancePublications()
        act(.tell(.roomChanged(from: old)))
    }

    /// Resolves the relative filters of durable consumers in a room.
    ///
    /// - Returns: the filters to subscribe to, and those that may no longer be wanted.
    private mutating func followWithDurables(to room: Room?) -> [(old: TopicFilter?, new: TopicFilter?)] {
        durableConsumers.follow(to: room).map { move in
            take(.mqtt(.consumer(move.name, .matching(move.new))))
            return (move.old, move.new)
        }
    }

    /// Whether the others in the room notice nothing if the session now leaves its server with its will, and is back soon.
    /// MQTT 3.1.1 has no delay of the will, which also ends with the session at the server. Another server than the first
    /// would publish it although the session is back: its next driver begins with the first.
    var canLeaveUnseen: Bool {
        guard let membership = rooms.membership, !rooms.isChanging, link?.address == settings.endpoints.first else {
            return false
        }
        return mqtt.version == .five && membership.will.properties.willDelay != 0 && servers.homes.expiry != 0
    }

    /// Connects again, so that the server gets the will for the room that is being entered.
    private mutating func renewForRoom() {
        // The server publishes the will for the old room unless it gets a DISCONNECT (3.1.2.5, 3.14.4), or the next
        // connection comes within the will delay.
        let isWillDelayed = mqtt.version == .five && rooms.membership?.will.properties.willDelay != 0
        if !isWillDelayed { link?.hasStaleWill = true }
        renew(because: Reason(.switchRoom))
    }

    /// Ends a change of rooms when there is neither a connection nor an attempt to get one: the caller is not to wait for
    /// the end of an outage. Checked after every input.
    mutating func endRoomChange() {
        if link == nil, rooms.isRenewing { perform(rooms.renewalFailed()) }
    }

    /// Handles a server that refuses the connection which would enter another room. Whether it objects to the will or to
    /// the session, the next connection shows: it has the will that the server had accepted before.
    ///
    /// - Parameter ending: what the refusal would mean otherwise.
    mutating func renewalRefused(
        _ server: MQTTClientMachine.ServerReason, _ ending: SessionMachine.Ending
    ) -> SessionMachine.Ending {
        // The connection is tried again in another way, with the same will.
        guard ending.pace != .otherWay, let joining = rooms.joining else { return ending }
        perform(rooms.renewalRefused(.said(server.code, server.reasonString)))
        // A server that asks to be left alone does not object to the will.
        guard ending.retryAfter == nil, !Self.isUnready(server.code) else { return ending }
        var back = SessionMachine.Ending(
            Reason(
                .switchRoom,
                "the server refused the session in room \(joining.name), and it goes back: \(ending.reason.message)",
                serverCode: server.code.rawValue))
        back.pace = .otherWay
        return back
    }

    /// Whether the server would refuse any session now.
    private static func isUnready(_ code: ReasonCode) -> Bool {
        switch code {
        case .serverUnavailable, .serverBusy, .serverShuttingDown, .messageRateTooHigh, .connectionRateExceeded,
            .useAnotherServer, .serverMoved:
            true
        default: false
        }
    }

    // MARK: Publications

    /// Sends the publications and clearings that can be sent now.
    mutating func advancePublications() {
        let step = publications.next(isolatesMessages: mqtt.isIsolating)
        if !step.remember.isEmpty { act(.commitAnswered(step.remember.map { .rememberRetained($0) })) }
        for announcement in step.announcements { funnel.work.append(.announce(announcement)) }
        for change in publications.takeChanges() { act(.tell(.publicationChanged(change))) }
        checkRestored()
    }

    mutating func stored(_ changes: [SessionChange], isComplete: Bool) {
        for change in changes {
            switch change {
            case .putPublication(let publication):
                publications.arrived(publication)
                if isComplete { publications.put(publication) }
            case .removePublication(let topic): publications.remove(topic)
            case .rememberRetained(let topic): publications.remembered(topic)
            default: break
            }
        }
        advancePublications()
    }

    /// - Returns: whether the answer was about a publication.
    mutating func publicationAnswered(_ announcement: Announcement, _ answer: ServerAnswer) -> Bool {
        guard let answer = publications.answered(announcement, answer) else { return false }
        tell(answer)
        switch answer {
        case .cleared(let topic), .refused(_, _, _, nothingOn: let topic?):
            act(.commitAnswered([.forgetRetained(topic)]))
        case .noted, .refused: break
        }
        advancePublications()
        return true
    }

    mutating func tell(_ answer: Publications.Answer) {
        guard case .refused(let topic, let refusal, isNews: true, _) = answer else { return }
        act(.tell(.publicationRefused(topic, refusal)))
    }

    /// Clears the publications when the session leaves: on an explicit disconnect, or when it ends for good. Sleep, the
    /// daemon's end and the like do not count as leaving.
    mutating func leavePublications() {
        guard publications.endWithSession || machine.reason.code == .userDisconnect else { return }
        publications.leave()
        advancePublications()
    }
}
