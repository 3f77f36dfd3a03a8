package import ControlAPI
package import MQTT
import NIOCore
package import SessionCore

/// What a session decides about rooms: when its presence is published, corrected and cleared, and how it moves from one
/// room to another. A value: its owner carries out what its methods return, in that order.
package struct Rooms: Sendable {
    package enum Action: Hashable, Sendable {
        case announce(Announcement)
        case subscribe(TopicFilter)
        /// The room no longer needs the subscription; a program may.
        case unsubscribe(TopicFilter)
        /// To be made durable: the values of ``OwnPresence/said``.
        case remember(Set<Timestamp>)
        /// To be made durable: the topics on which a server may hold our presence.
        case rememberTopics(Set<String>)
        /// News about participants.
        case tell([Participants.Change])
        case presenceRefused(ServerAnswer)
        /// The presence on this topic stays, because it cannot be cleared.
        case presenceKept(String, ServerAnswer)
        /// The server has answered our presence, so the room no longer keeps the session from being restored.
        case restored
        /// Everything is ready in the room that is being entered, except for its will: connect again, which gives the
        /// server that will.
        case renew
        /// The session has moved to another room.
        case entered(Room, from: Room?)
        /// `nil`: the session is in the room that was asked for.
        case answer(CallID, RPCError?)
    }

    /// A change of rooms. The session leaves the old room when the server has accepted everything for the new one: the
    /// subscription, the presence and, on a new connection, the will. Until then the old room has both the presence and
    /// the topic that the store remembers, so a crash at any moment leaves nothing behind that the next run does not
    /// clear.
    private struct Change: Sendable {
        var joining: RoomMembership
        let call: CallID
        /// Whether everything but the will is accepted, and a connection with that will is being made.
        var isRenewing = false
    }

    /// `nil` when the session is in no room.
    package var membership: RoomMembership?
    private var change: Change?
    /// The topics on which a server may hold our presence: the current one, and those of earlier rooms, users, devices
    /// and prefixes that are not cleared yet.
    package private(set) var topics: Set<String>
    /// What the store remembers of `topics`.
    private var rememberedTopics: Set<String>
    /// The server that last accepted our presence. Another one need not have it, even if it resumes the session.
    private var presentAt: String?
    /// What the store remembers about our presence.
    private var remembered: Set<Timestamp>

    let identity: Participant.Identity
    private let session: String
    private let willDelay: Duration
    private var random: SplitMix64

    /// - Parameters:
    ///   - remembered: the set of the last `remember` action, in this run of the daemon or an earlier one.
    ///   - topics: the set of the last `rememberTopics` action, in this run of the daemon or an earlier one.
    ///   - seed: of the random part of the connections' marks.
    package init(
        identity: Participant.Identity, session: String, willDelay: Duration, remembered: Set<Timestamp> = [],
        topics: Set<String> = [], seed: UInt64 = 0
    ) {
        self.identity = identity
        self.session = session
        self.willDelay = willDelay
        self.remembered = remembered
        self.topics = topics
        rememberedTopics = topics
        random = SplitMix64(seed: seed)
    }

    /// Returns a mark for a new connection.
    package mutating func newMark(clientID: String, at time: Timestamp) -> ConnectionMark {
        ConnectionMark(clientID: clientID, time: time, random: random.next())
    }

    /// Creates a membership whose presence is not published yet.
    private func membership(in room: Room, at time: Timestamp) -> RoomMembership {
        RoomMembership(
            room,
            presence: OwnPresence(
                identity: identity, former: former(in: room), session: session, willDelay: willDelay, since: time,
                said: remembered))
    }

    /// Has the store remember what the presence has said, so that the session recognizes it in a later run of the
    /// daemon.
    private mutating func remember(_ presence: OwnPresence?) -> [Action] {
        guard let said = presence?.said, said != remembered else { return [] }
        remembered = said
        return [.remember(said)]
    }

    /// The names under which the session may still be present in a room, besides its own.
    private func former(in room: Room) -> Set<Participant.Identity> {
        Set(topics.compactMap { room.participant(ofPresence: $0) }).subtracting([identity])
    }

    /// The topics that must not keep our presence: it says `online` there, and no will changes that while the server
    /// keeps the session.
    private var topicsToClear: Set<String> {
        topics.subtracting([membership?.topic, change?.joining.topic].compactMap(\.self))
    }

    /// Whether a server may hold our presence in another room than the current one, whose will does not end it.
    package var isElsewhere: Bool { topics.contains { $0 != membership?.topic } }

    /// Has the store remember the topics that may have our presence.
    private mutating func rememberTopics() -> [Action] {
        guard topics != rememberedTopics else { return [] }
        rememberedTopics = topics
        return [.rememberTopics(topics)]
    }

    /// Whether the current room, or the one that is being joined, needs the subscription.
    package func wants(_ filter: TopicFilter) -> Bool {
        filter == membership?.filter || filter == change?.joining.filter
    }

    /// Whether no change may begin, because the last one is not finished.
    package var isChanging: Bool { change != nil }

    /// The will of the next connection: that of the room which is entered with it, or else of the current room.
    package var nextWill: Will? { (isRenewing ? change?.joining : membership)?.will }

    /// The room that the next connection enters; `nil` if it enters none.
    package var joining: Room? { isRenewing ? change?.joining.room : nil }

    /// Whether the next connection enters another room.
    package var isRenewing: Bool { change?.isRenewing == true }

    /// Whether the server has to answer our presence before the session is restored.
    package var isAnnouncing: Bool { membership?.step == .announcing }

    /// Whether the session is leaving the room and the server has not accepted that yet.
    package var isLeaving: Bool { membership?.step == .leaving }

    /// Sets the room at the start.
    ///
    /// - Parameters:
    ///   - filters: the session's subscriptions at the server from an earlier run of the daemon. If the session was in
    ///     another room then, it leaves that room.
    ///   - standing: the presence that the session's previous driver has left.
    package mutating func begin(
        in room: Room?, subscribedTo filters: Set<TopicFilter>, standing: StandingPresence? = nil, at time: Timestamp
    ) {
        // Daemons before the first with a memory for topics knew them only by the subscriptions.
        topics.formUnion(Room.presenceTopics(of: identity, in: filters))
        // A name that is no level of a topic was never published.
        topics = topics.filter { (try? TopicName.validate($0)) != nil }
        guard let standing, standing.room == room, standing.identity == identity else {
            membership = room.map { membership(in: $0, at: time) }
            return
        }
        membership = membership(in: standing.room, at: standing.since)
        membership?.presence.inherit(standing)
    }

    // MARK: The connection

    /// An attempt is about to connect.
    ///
    /// - Parameter isFirst: whether nothing is known about what was published before.
    package mutating func willConnect(as mark: ConnectionMark, isFirst: Bool, at time: Timestamp) {
        if isFirst { membership?.presence.begin(at: time) }
        membership?.presence.willConnect(as: mark)
        if isRenewing { change?.joining.presence.willConnect(as: mark) }
    }

    /// The server may hold our presence on these topics since the session was there before. `connected` follows.
    package mutating func returned(to topics: Set<String>) { self.topics.formUnion(topics) }

    /// The server accepted the connection: returns what to publish and to subscribe to.
    ///
    /// - Parameters:
    ///   - server: identifies the server.
    ///   - isWillDelayed: whether the server delays this connection's will.
    package mutating func connected(
        to server: String, resumed: Bool, isWillDelayed: Bool, at now: Instant, time: Timestamp
    ) -> [Action] {
        let entered = enterRenewed()
        var actions = entered + topicsToClear.sorted().map { Action.announce(Announcement(topic: $0)) }
        guard var membership else { return actions + rememberTopics() }
        membership.isUntold = topics.insert(membership.topic).inserted
        membership.isKept = false
        let isKnownHere = resumed && presentAt == server
        let mustAnnounce = membership.presence.connected(
            resumed: isKnownHere, isWillDelayed: isWillDelayed, at: now, time: time)
        let knowsAll = isKnownHere && membership.participants.isKnown
        if !knowsAll {
            membership.participants.beginSnapshot()
            // A server that still has the subscription sends the retained messages only in answer to a new SUBSCRIBE.
            if resumed { actions.append(.subscribe(membership.filter)) }
        }
        membership.step = mustAnnounce || !knowsAll ? .mustAnnounce : .done
        self.membership = membership
        actions += remember(membership.presence) + rememberTopics()
        // Nothing waits for this: only the user's other devices need the new mark.
        if membership.step == .done { actions.append(.announce(membership.online)) }
        return actions
    }

    /// The server has answered all subscriptions.
    package mutating func subscriptionsRestored() -> [Action] {
        guard let membership, membership.step == .mustAnnounce else { return [] }
        self.membership?.step = .announcing
        return [.announce(membership.online)]
    }

    package mutating func connectionClosed() -> [Action] {
        membership?.connectionClosed()
        guard isRenewing else { return renewalFailed() }
        change?.joining.connectionClosed()
        return []
    }

    /// The session leaves its room for good while it is still connected.
    package mutating func leave() -> [Action] {
        let actions = endChange(.wrongState(session, is: "disconnecting"))
        // Where the server has refused our presence, there is nothing to clear.
        guard let membership, topics.contains(membership.topic) else { return actions }
        self.membership?.step = .leaving
        return actions + [.announce(membership.cleared)]
    }

    // MARK: Messages

    /// Takes the answer to an announcement, which may be one of the room's.
    package mutating func announced(
        _ announcement: Announcement, _ answer: ServerAnswer, by server: String?, at now: Instant
    ) -> [Action] {
        let isClearing = announcement.payload.readableBytes == 0
        let refusal = isClearing && answer.isRefusal ? [Action.presenceKept(announcement.topic, answer)] : []
        // Whether the server has cleared it or refuses to: trying again would change nothing. A server that was not asked may
        // be another one than the one that has it.
        if isClearing, topicsToClear.contains(announcement.topic) {
            if case .notAsked = answer { return refusal }
            topics.remove(announcement.topic)
            return refusal + rememberTopics()
        }
        if !isClearing, change?.joining.topic == announcement.topic { return joined(answer, by: server, at: now) }
        guard membership?.topic == announcement.topic else { return [] }
        guard isClearing else { return presenceAnswered(answer, by: server, at: now) }
        if isLeaving { membership?.isKept = answer.isRefusal }
        if isLeaving, !answer.isRefusal {
            membership?.step = .done
            membership?.presence.cleared()
            topics.remove(announcement.topic)
        }
        return refusal + rememberTopics()
    }

    private mutating func presenceAnswered(
        _ answer: ServerAnswer, by server: String?, at now: Instant
    ) -> [Action] {
        var actions: [Action] = []
        if answer.isRefusal {
            // Our own message will not arrive to mark the end of the retained ones.
            actions = [.presenceRefused(answer), .tell(membership?.participants.endSnapshot() ?? [])]
            if answer != .unsaid, let membership, membership.isUntold { topics.remove(membership.topic) }
            actions += rememberTopics()
        } else {
            membership?.presence.published(at: now)
            presentAt = server
            // An earlier announcement may have been refused while this one was on its way.
            if let membership { topics.insert(membership.topic) }
            actions += rememberTopics()
        }
        if membership?.presenceAnswered(answer, at: now) == true, let online = membership?.online {
            actions.append(.announce(online))
        }
        if isAnnouncing {
            membership?.step = .done
            actions.append(.restored)
        }
        return actions
    }

    /// Announces the presence again if the server refused it long enough ago: what it refuses may change.
    package mutating func announceRefused(at now: Instant) -> [Action] {
        membership?.takeRefusal(at: now) == true ? announceAgain() : []
    }

    /// Announces the presence again, perhaps after the server has refused it.
    private mutating func announceAgain() -> [Action] {
        guard let membership else { return [] }
        if topics.insert(membership.topic).inserted { self.membership?.isUntold = true }
        return rememberTopics() + [.announce(membership.online)]
    }

    package mutating func received(_ message: MQTTClientMachine.InboundMessage) -> [Action] {
        switch change?.joining.received(message) {
        case .mustClear(let topic, _)?: return [.announce(Announcement(topic: topic))]
        case .changes?, .mustCorrect?: return []
        case nil: break
        }
        return switch membership?.received(message) {
        case .changes(let changes)?: [.tell(changes)]
        case .mustClear(let topic, let changes)?: [.tell(changes), .announce(Announcement(topic: topic))]
        case .mustCorrect?: membership.map { [.announce($0.online)] } ?? []
        case nil: []
        }
    }

    /// Tells the others in the room how good this session's connection is.
    package mutating func qualityChanged(_ quality: Quality, isConnected: Bool) -> [Action] {
        // While nothing comes back, nothing gets through either.
        guard quality != .lost, let before = membership?.presence, before.quality != quality else { return [] }
        membership?.presence.quality = quality
        // A presence that the server refused is announced again later, with the quality.
        guard let membership, membership.step == .done, membership.refusedAt == nil, isConnected else { return [] }
        return [.announce(membership.online)]
    }

    // MARK: Switching

    /// Joins another room, and leaves the old one when that has succeeded. If the server refuses, the session stays
    /// where it is.
    package mutating func join(_ room: Room, for call: CallID, at time: Timestamp) -> [Action] {
        guard !isChanging else {
            let hint = "try again when it has changed"
            return [.answer(call, .tooManyRequests("session \(session) is changing its room", hint: hint))]
        }
        guard room != membership?.room else { return [.answer(call, nil)] }
        var joining = membership(in: room, at: time)
        if let mark = membership?.presence.mark { joining.presence.willConnect(as: mark) }
        joining.participants.beginSnapshot()
        let actions = remember(joining.presence)
        change = Change(joining: joining, call: call)
        return actions + [.subscribe(joining.filter)]
    }

    /// Takes the server's answer to a subscription, which may be that of the room, or of the new one.
    package mutating func subscribed(_ filter: TopicFilter, _ answer: ServerAnswer) -> [Action] {
        if membership?.filter == filter, membership?.subscribed(isRefused: answer.isRefusal) == true {
            return announceAgain()
        }
        guard let change, change.joining.filter == filter else { return [] }
        guard !answer.isRefusal else { return endChange(refusal(of: change, answer)) }
        guard change.joining.step == .done else { return [] }
        self.change?.joining.step = .announcing
        self.change?.joining.isUntold = topics.insert(change.joining.topic).inserted
        return rememberTopics() + [.announce(change.joining.online)]
    }

    private func refusal(of change: Change, _ answer: ServerAnswer) -> RPCError {
        let stays = membership.map { "stays in \($0.room.name)" } ?? "is in no room"
        let room = change.joining.room.name
        let what =
            if case .notAsked = answer { "session \(session) cannot enter room \(room)" } else {
                "room \(room) refused session \(session)"
            }
        return RPCError(
            .messageRejected, "\(what) (\(answer.words)): it \(stays)",
            reasonCode: answer.code.map { Int($0.rawValue) })
    }

    private mutating func joined(_ answer: ServerAnswer, by server: String?, at now: Instant) -> [Action] {
        guard var change else { return [] }
        guard !answer.isRefusal else {
            // By its own word, the server has nothing of ours there, and nothing has to be cleared.
            if answer != .unsaid, change.joining.isUntold {
                self.change?.joining.step = .done
                topics.remove(change.joining.topic)
            }
            return endChange(refusal(of: change, answer)) + rememberTopics()
        }
        change.joining.step = .done
        change.joining.isUntold = false
        change.joining.presence.published(at: now)
        presentAt = server
        if !change.joining.participants.isKnown { _ = change.joining.participants.endSnapshot() }
        change.isRenewing = true
        self.change = change
        return [.renew]
    }

    /// Moves to the new room, because the server has accepted the connection with its will. The old room's presence is
    /// among the topics to clear from now on.
    private mutating func enterRenewed() -> [Action] {
        guard let change, change.isRenewing else { return [] }
        self.change = nil
        let old = membership
        membership = change.joining
        return (old.map { [.unsubscribe($0.filter)] } ?? [])
            + [.entered(change.joining.room, from: old?.room), .answer(change.call, nil)]
    }

    /// The server has refused the connection with the new room's will. The session goes back to the old room, whose will
    /// the next connection has.
    package mutating func renewalRefused(_ answer: ServerAnswer) -> [Action] {
        guard let change, change.isRenewing else { return [] }
        return endChange(refusal(of: change, answer))
    }

    /// There is no connection, and no attempt is under way. The session stays in the old room.
    package mutating func renewalFailed() -> [Action] {
        endChange(.notConnected(session, hint: "it stays in its room; try again when it is connected"))
    }

    /// Ends a change without entering the new room; whatever was published there is cleared.
    private mutating func endChange(_ error: RPCError) -> [Action] {
        guard let change else { return [] }
        self.change = nil
        var actions = remember(membership?.presence) + [.unsubscribe(change.joining.filter)]
        if change.joining.step == .announcing || change.isRenewing { actions.append(.announce(change.joining.cleared)) }
        return actions + [.answer(change.call, error)]
    }
}
