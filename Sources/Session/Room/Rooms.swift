package import ControlAPI
package import MQTT
import NIOCore
package import SessionCore
import Vocabulary

/// What a session decides about rooms: when its presence is published, corrected and cleared, and how it goes from one room
/// to another. A value; the driver carries out what its methods answer, in that order.
package struct Rooms: Sendable {
    package enum Action: Hashable, Sendable {
        case announce(Announcement)
        case subscribe(TopicFilter)
        /// The room has no more use for it.
        case unsubscribe(TopicFilter)
        /// To be made durable: what the session has said of its presence, see ``OwnPresence/said``.
        case remember(Set<RFC3339>)
        /// News of the participants.
        case tell([Participants.Change])
        case presenceRefused(ReasonCode)
        /// The presence is published, and the session may be as it was.
        case restored
        /// The session is in another room.
        case entered(Room, from: Room?)
        /// `nil`: it is in the room that was asked for.
        case answer(CallID, RPCError?)
    }

    /// From one room to another: the old one is left when the new one has accepted everything.
    private struct Change: Sendable {
        var joining: RoomMembership
        let call: CallID
    }

    /// `nil` when the session is in no room.
    package var membership: RoomMembership?
    private var change: Change?
    /// Where our presence must not stay.
    private var topicsToClear: Set<String> = []
    /// The server that has taken our presence last. Another one need not know it, whatever it resumes.
    private var presentAt: String?
    /// What the store remembers of our presence.
    private var remembered: Set<RFC3339>
    /// The will in the server's hands is that of another room.
    private var mustRenew = false

    private let identity: Participant.Identity
    private let session: String
    private let willDelay: Duration
    private var random: SplitMix64

    /// - Parameters:
    ///   - remembered: what `remember` was answered with last, in this life of the daemon or before.
    ///   - seed: of the random part of the connections' marks.
    package init(
        identity: Participant.Identity, session: String, willDelay: Duration, remembered: Set<RFC3339> = [],
        seed: UInt64 = 0
    ) {
        self.identity = identity
        self.session = session
        self.willDelay = willDelay
        self.remembered = remembered
        random = SplitMix64(seed: seed)
    }

    /// Marks another connection.
    package mutating func newMark(clientID: String, at time: RFC3339) -> ConnectionMark {
        ConnectionMark(clientID: clientID, time: time, random: random.next())
    }

    /// A presence in the room, not published yet.
    private func membership(in room: Room, at time: RFC3339) -> RoomMembership {
        RoomMembership(
            room,
            presence: OwnPresence(
                identity: identity, session: session, willDelay: willDelay, since: time, said: remembered))
    }

    /// In any life of the daemon the session knows what it has published.
    private mutating func remember(_ presence: OwnPresence?) -> [Action] {
        guard let said = presence?.said, said != remembered else { return [] }
        remembered = said
        return [.remember(said)]
    }

    /// Whether the room, or the one that is being joined, needs the subscription.
    package func wants(_ filter: TopicFilter) -> Bool {
        filter == membership?.filter || filter == change?.joining.filter
    }

    /// Whether a change cannot begin, because another one is not finished.
    package var isChanging: Bool { change != nil || mustRenew }

    /// Whether the server has to take our presence before the session is as it was.
    package var isAnnouncing: Bool { membership?.step == .announcing }

    /// Whether the session is on its way out of the room, and the room has not taken that yet.
    package var isLeaving: Bool { membership?.step == .leaving }

    /// Takes up the room at the start.
    ///
    /// - Parameter filters: what the server was subscribed to in an earlier life of the daemon. A room that the session was
    ///   in then, and is not in any more, is left.
    package mutating func begin(in room: Room?, subscribedTo filters: Set<TopicFilter>, at time: RFC3339) {
        membership = room.map { membership(in: $0, at: time) }
        topicsToClear = Set(Room.presenceTopics(of: identity, in: filters))
        if let membership { topicsToClear.remove(membership.topic) }
    }

    // MARK: The connection

    /// Before an attempt.
    ///
    /// - Parameter isFirst: whether nothing is known of what was published before.
    package mutating func willConnect(as mark: ConnectionMark, isFirst: Bool, at time: RFC3339) {
        if isFirst { membership?.presence.begin(at: time) }
        membership?.presence.willConnect(as: mark)
    }

    /// After CONNACK: what has to be said and heard in the room.
    ///
    /// - Parameters:
    ///   - server: names the server.
    ///   - isWillDelayed: whether this connection's will is.
    package mutating func connected(
        to server: String, resumed: Bool, isWillDelayed: Bool, at now: Instant, time: RFC3339
    ) -> [Action] {
        mustRenew = false
        var actions = topicsToClear.sorted().map { Action.announce(Announcement(topic: $0)) }
        guard var membership else { return actions }
        let isKnownHere = resumed && presentAt == server
        let mustAnnounce = membership.presence.connected(
            resumed: isKnownHere, isWillDelayed: isWillDelayed, at: now, time: time)
        let knowsAll = isKnownHere && membership.participants.isKnown
        if !knowsAll {
            membership.participants.beginSnapshot()
            // A server that still has the subscription sends the retained messages only when it is asked for them.
            if resumed { actions.append(.subscribe(membership.filter)) }
        }
        membership.step = mustAnnounce || !knowsAll ? .mustAnnounce : .done
        self.membership = membership
        actions += remember(membership.presence)
        // Only another device waits for the new mark.
        if membership.step == .done { actions.append(.announce(membership.online)) }
        return actions
    }

    /// All subscriptions were answered for.
    package mutating func subscriptionsRestored() -> [Action] {
        guard let membership, membership.step == .mustAnnounce else { return [] }
        self.membership?.step = .announcing
        return [.announce(membership.online)]
    }

    package mutating func connectionClosed() -> [Action] {
        membership?.connectionClosed()
        return endChange(.notConnected(session, hint: "it stays in its room; try again when it is connected"))
    }

    /// The session leaves for good, as long as it is connected.
    package mutating func leave() -> [Action] {
        let actions = endChange(.wrongState(session, is: "disconnecting"))
        guard let membership else { return actions }
        self.membership?.step = .leaving
        return actions + [.announce(membership.cleared)]
    }

    // MARK: Messages

    /// The server has answered an announcement; it may be one of the room's.
    package mutating func announced(
        _ announcement: Announcement, _ code: ReasonCode, by server: String?, at now: Instant
    ) -> [Action] {
        let isClearing = announcement.payload.readableBytes == 0
        defer { if isClearing { topicsToClear.remove(announcement.topic) } }
        if !isClearing, change?.joining.topic == announcement.topic { return joined(code, by: server, at: now) }
        guard membership?.topic == announcement.topic else { return [] }
        guard isClearing else { return presenceAnswered(code, by: server, at: now) }
        if isLeaving, !code.isError {
            membership?.step = .done
            membership?.presence.cleared()
        }
        return []
    }

    private mutating func presenceAnswered(
        _ code: ReasonCode, by server: String?, at now: Instant
    ) -> [Action] {
        var actions: [Action] = []
        if code.isError {
            // There will be no message of ours at the end of the retained ones.
            actions = [.presenceRefused(code), .tell(membership?.participants.endSnapshot() ?? [])]
        } else {
            membership?.presence.published(at: now)
            presentAt = server
        }
        if membership?.presenceAnswered(isRefused: code.isError, at: now) == true, let online = membership?.online {
            actions.append(.announce(online))
        }
        if isAnnouncing {
            membership?.step = .done
            actions.append(.restored)
        }
        return actions
    }

    /// A presence that the server refused long enough ago is announced again: what it refuses may change.
    package mutating func announceRefused(at now: Instant) -> [Action] {
        guard membership?.takeRefusal(at: now) == true, let online = membership?.online else { return [] }
        return [.announce(online)]
    }

    package mutating func received(_ message: MQTTClientMachine.InboundMessage) -> [Action] {
        if change?.joining.received(message) != nil { return [] }
        return switch membership?.received(message) {
        case .changes(let changes)?: [.tell(changes)]
        case .mustCorrect?: membership.map { [.announce($0.online)] } ?? []
        case nil: []
        }
    }

    /// The others in the room are told how good this session's connection is.
    package mutating func qualityChanged(_ quality: Quality, isConnected: Bool) -> [Action] {
        // Nothing gets through when nothing comes back.
        guard quality != .lost, let before = membership?.presence, before.quality != quality else { return [] }
        membership?.presence.quality = quality
        // A first measurement that is as one expects goes along with the next message.
        guard before.quality != nil || quality == .poor, let membership, membership.step == .done, isConnected else {
            return []
        }
        return [.announce(membership.online)]
    }

    // MARK: Switching

    /// Joins another room; the old one is left when that is done. When the new one refuses, the session stays where it is.
    package mutating func join(_ room: Room, for call: CallID, at time: RFC3339) -> [Action] {
        precondition(change == nil, "one change at a time")
        var joining = membership(in: room, at: time)
        if let mark = membership?.presence.mark { joining.presence.willConnect(as: mark) }
        joining.participants.beginSnapshot()
        let actions = remember(joining.presence)
        change = Change(joining: joining, call: call)
        return actions + [.subscribe(joining.filter)]
    }

    /// The server answered a subscription; it may be that of the new room.
    package mutating func subscribed(_ filter: TopicFilter, _ code: ReasonCode) -> [Action] {
        guard let change, change.joining.filter == filter else { return [] }
        guard !code.isError else { return endChange(refusal(of: change, code)) }
        guard change.joining.step == .done else { return [] }
        self.change?.joining.step = .announcing
        return [.announce(change.joining.online)]
    }

    private func refusal(of change: Change, _ code: ReasonCode) -> RPCError {
        let stays = membership.map { "stays in \($0.room.name)" } ?? "is in no room"
        return RPCError(
            .messageRejected, "room \(change.joining.room.name) refused session \(session) (\(code)): it \(stays)",
            reasonCode: Int(code.rawValue))
    }

    private mutating func joined(_ code: ReasonCode, by server: String?, at now: Instant) -> [Action] {
        guard var change else { return [] }
        guard !code.isError else { return endChange(refusal(of: change, code)) }
        self.change = nil
        change.joining.step = .done
        change.joining.presence.published(at: now)
        presentAt = server
        if !change.joining.participants.isKnown { _ = change.joining.participants.endSnapshot() }
        let old = membership
        membership = change.joining
        mustRenew = true
        var actions: [Action] = []
        if let old {
            topicsToClear.insert(old.topic)
            actions = [.unsubscribe(old.filter), .announce(old.cleared)]
        }
        topicsToClear.remove(change.joining.topic)
        return actions + [.entered(change.joining.room, from: old?.room), .answer(change.call, nil)]
    }

    /// The new room is not entered; whatever was said there is taken back.
    private mutating func endChange(_ error: RPCError) -> [Action] {
        guard let change else { return [] }
        self.change = nil
        var actions = remember(membership?.presence) + [.unsubscribe(change.joining.filter)]
        if change.joining.step == .announcing {
            topicsToClear.insert(change.joining.topic)
            actions.append(.announce(change.joining.cleared))
        }
        return actions + [.answer(change.call, error)]
    }

    /// After a change of rooms, the server is told whose end to announce where when nothing is under way any more.
    ///
    /// - Parameter isQuiet: whether nothing of the publications is under way.
    /// - Returns: whether to connect again for that, now.
    package mutating func takeRenewal(isQuiet: Bool) -> Bool {
        guard mustRenew, topicsToClear.isEmpty, isQuiet else { return false }
        mustRenew = false
        return true
    }
}
