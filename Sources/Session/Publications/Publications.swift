package import ControlAPI
package import MQTT
import NIOCore
package import SessionCore

/// What a session publishes as retained messages, and which of these the server has. A value: its owner carries out
/// what `next` returns.
///
/// Two things are kept apart, and both are durable: what the session wants the server to hold (the entries), and the
/// topics on which the server may hold a message of the session (`retained`). A topic in `retained` that no entry wants
/// is cleared, whether because of a removal, another room, or a daemon that was killed in between. So a topic is made
/// durable in `retained` before anything is published on it, and leaves `retained` only when it is certain that the
/// server holds nothing on it: the server has accepted the clearing, or has refused all that was published there.
package struct Publications: Sendable {
    /// How many publications a session may have, and how many bytes in total: all are kept in memory, published before
    /// the session counts as connected, and listed in one answer.
    package static let maximumCount = 1000
    package static let maximumBytes = 2 << 20

    package enum State: Hashable, Sendable {
        /// The server does not have it; it is sent as soon as possible. Can transition to: sending.
        case pending
        /// The server has not answered. Can transition to: published, refused, pending.
        case sending
        /// Can transition to: pending.
        case published
        /// `isFatal` if the server ended the connection because of it: it is not sent again unchanged. Can transition
        /// to: pending.
        case refused(ServerAnswer, isFatal: Bool)
    }

    package struct Entry: Hashable, Sendable {
        package let publication: Publication
        /// The topic on the server; `nil` while the publication has no valid one, and while another publication has it.
        package fileprivate(set) var topic: String?
        package fileprivate(set) var state = State.pending
        /// When a heartbeat was first answered while it was refused.
        fileprivate var refusedSince: Instant?

        fileprivate var announcement: Announcement? {
            topic.map {
                Announcement(
                    topic: $0, payload: publication.payload, qos: publication.qos, properties: publication.properties)
            }
        }

        fileprivate mutating func mustBeSent() {
            if case .refused(_, isFatal: true) = state { return }
            state = .pending
            refusedSince = nil
        }
    }

    private enum Link {
        /// There is no connection. Can transition to: connected.
        case closed
        /// The subscriptions are restored first. Can transition to: open, leaving, closed.
        case connected
        /// Can transition to: leaving, closed.
        case open
        /// Everything is being cleared. Can transition to: closed.
        case leaving
    }

    /// In the order in which programs put them.
    package private(set) var entries: [Entry]
    /// What the session has and what is on its way to the disk, by the publications' own topics.
    private var sizes = PublicationSizes()
    /// Which publication has a topic on the server.
    private var owners: [String: String] = [:]
    /// The topics on which the server may hold a message of the session.
    package private(set) var retained: Set<String>
    private var room: Room?
    private var link = Link.closed
    /// Topics that are about to become durable in `retained`.
    private var remembering: Set<String> = []
    /// Topics in `retained` on which the server has accepted nothing since they were added.
    private var unproven: Set<String> = []
    /// Whether there may be topics to clear. Set by changes, so that they are not searched for every time.
    private var mayHaveStale = true
    /// The number of announcements on each topic that the server has not answered.
    private var unanswered: [String: Int] = [:]
    /// Topics on which something has to be published before the session is restored, or its room entered.
    private var awaited: Set<String> = []
    /// Topics whose last announcement on this connection was a clearing.
    private var cleared: Set<String> = []
    /// Whether publications are sent one by one, to find the one that made the server end a connection.
    private var isIsolating = false
    /// For each topic, how often its publication was the only unanswered one when the server ended the connection
    /// because of something sent, since it was last published successfully.
    private var suspicions: [String: Int] = [:]
    /// Changes of publications that have not been reported yet.
    private var changes: [Change] = []
    /// Whether the publications are removed from the server when the session stops, whatever the reason.
    package var endWithSession = false
    /// Whether publications wait for messages that are sent one by one.
    package private(set) var isHeldBack = false

    /// A publication that is under suspicion together with messages this often is refused. In a session whose messages
    /// never stop, it is never the only suspect.
    private static let maximumSuspicions = 3

    package init(_ publications: [Publication] = [], retained: Set<String> = []) {
        entries = publications.map { Entry(publication: $0) }
        for publication in publications { sizes.put(publication) }
        self.retained = retained
        enter(nil)
    }

    /// A publication's new state, as people see it, with the topic as the program gave it.
    package struct Change: Hashable, Sendable {
        package var topic: String
        package var state: PublicationState
        /// With `refused`.
        package var answer: ServerAnswer?
    }

    /// Returns the changes since the last call.
    package mutating func takeChanges() -> [Change] {
        defer { changes = [] }
        return changes
    }

    // MARK: What is wanted

    /// Switches to a room: relative topics are published there, and cleared in the old room.
    package mutating func enter(_ room: Room?) {
        self.room = room
        resolveTopics()
    }

    /// Assigns each topic on the server to one publication, the one that was put first.
    private mutating func resolveTopics() {
        mayHaveStale = true
        owners = [:]
        for index in entries.indices {
            var topic = serverTopic(of: entries[index].publication)
            if let resolved = topic {
                if owners[resolved] == nil { owners[resolved] = entries[index].publication.topic } else { topic = nil }
            }
            guard entries[index].topic != topic else { continue }
            entries[index].topic = topic
            entries[index].state = .pending
            if link == .connected || link == .open, let topic { awaited.insert(topic) }
        }
        awaited = awaited.filter { owners[$0] != nil }
    }

    /// `nil` while the publication has no valid topic: the session is in no room, or the room's name makes the topic
    /// too long.
    private func serverTopic(of publication: Publication) -> String? {
        guard let topic = try? Room.resolve(publication.topic, in: room), (try? TopicName.validate(topic)) != nil else {
            return nil
        }
        return topic
    }

    /// Adds a publication, or replaces the one with the same topic.
    package mutating func put(_ publication: Publication) {
        discard(publication.topic)
        // A program that puts it again is told again if the server refuses it.
        refusals[publication.topic] = nil
        var entry = Entry(publication: publication)
        if let topic = serverTopic(of: publication), owners[topic] == nil {
            entry.topic = topic
            owners[topic] = publication.topic
        }
        entries.append(entry)
        sizes.put(publication)
    }

    package mutating func remove(_ topic: String) {
        discard(topic)
        sizes.remove(topic)
        refusals[topic] = nil
        resolveTopics()
    }

    private mutating func discard(_ topic: String) {
        guard sizes.has(topic), let index = entries.firstIndex(where: { $0.publication.topic == topic }) else { return }
        if let topic = entries.remove(at: index).topic { owners[topic] = nil }
    }

    package subscript(topic: String) -> Entry? {
        sizes.has(topic) ? entries.first { $0.publication.topic == topic } : nil
    }

    /// The topic of another publication that has the same topic on the server.
    package func twin(of topic: String, resolved: String) -> String? {
        owners[resolved].flatMap { $0 == topic ? nil : $0 }
    }

    /// Whether there is a topic that looks the same and has other bytes: of a publication, also one on its way to the
    /// disk, or of a message that the server may still hold.
    package func hasLookalike(of topic: String, resolved: String?) -> Bool {
        let held = resolved.flatMap { retained.firstIndex(of: $0) }.map { retained[$0] }
        return sizes.hasLookalike(of: topic) || held.map { !$0.utf8.elementsEqual((resolved ?? "").utf8) } ?? false
    }

    /// Topics that still have to be cleared, in alphabetical order.
    package var removing: [String] {
        let wanted = Set(entries.compactMap(\.topic))
        return retained.filter { !wanted.contains($0) }.sorted()
    }

    /// Whether the server may hold a message on the publication's topic.
    package func mayBeHeld(_ entry: Entry) -> Bool { entry.topic.map(retained.contains) ?? false }

    /// On how many topics the server may hold a message of the session, except where it refused to delete it.
    package var keptCount: Int { refusals.isEmpty ? retained.count : retained.count { refusals[$0] == nil } }

    /// Whether there is room for a publication, counting those that are on their way to the disk.
    package func hasRoom(for publication: Publication) -> Bool {
        let (count, bytes) = sizes.total(with: publication)
        return count <= Self.maximumCount && bytes <= Self.maximumBytes
    }

    /// Notes a publication that is on its way to the disk; `put` follows if it gets there.
    package mutating func arrive(_ publication: Publication) { sizes.arrive(publication) }

    /// The store has committed the publication, or refused it.
    package mutating func arrived(_ publication: Publication) { sizes.arrived(publication) }

    // MARK: The connection

    /// The server accepted the connection.
    ///
    /// - Parameters:
    ///   - isProbable: whether the server still has what it had, unless it was restarted in an older state. Then it is
    ///     sent that again, and the session does not wait for the answers.
    ///   - isKept: whether the server is known to still have what it had.
    package mutating func connected(isProbable: Bool, isKept: Bool) {
        link = .connected
        mayHaveStale = true
        awaited = []
        for index in entries.indices {
            let before = entries[index].state
            // There is no way to tell whether the server received one of QoS 0.
            if isKept, before == .published, entries[index].publication.qos != .atMostOnce { continue }
            if before == .published {
                changes.append(Change(topic: entries[index].publication.topic, state: .pending))
            }
            entries[index].mustBeSent()
            guard entries[index].state == .pending, !isProbable || before == .pending else { continue }
            if let topic = entries[index].topic { awaited.insert(topic) }
        }
    }

    /// The server may hold messages on these topics since the session was there before.
    ///
    /// - Returns: those to make durable in `retained`.
    package mutating func returned(to topics: Set<String>) -> [String] {
        let new = topics.subtracting(retained)
        retained.formUnion(new)
        unproven.subtract(topics)
        mayHaveStale = true
        return new.sorted()
    }

    /// The subscriptions are restored; publishing may begin.
    package mutating func open() {
        guard link == .connected else { return }
        link = .open
    }

    /// The session leaves the server: everything is cleared there, and published again after the next connect.
    package mutating func leave() {
        guard link != .closed else { return }
        link = .leaving
        for index in entries.indices { entries[index].mustBeSent() }
    }

    package mutating func connectionClosed() {
        link = .closed
        awaited = []
        // The server may hold what it has not answered.
        unproven.subtract(unanswered.keys)
        unanswered = [:]
        cleared = []
        for index in entries.indices where entries[index].state == .sending { entries[index].state = .pending }
    }

    /// Whether the server has answered everything that can be published.
    package var isAnswered: Bool {
        !entries.contains { entry in
            switch entry.state {
            case .pending: entry.topic != nil
            case .sending: true
            case .published, .refused: false
            }
        }
    }

    /// Whether something is published on each topic on which this was to be done when the session came to the server, or to
    /// the room. What programs put since does not count: there may be more of it all the time.
    package var isSetUp: Bool { awaited.isEmpty }

    /// Whether something remains to be done that needs a server.
    package var needsServer: Bool { !isQuiet || removing.contains { refusals[$0] == nil } }

    /// Whether no answer of the server is awaited, and nothing waits to be sent.
    package var isQuiet: Bool { isAnswered && unanswered.isEmpty }

    // MARK: What is to be done

    package struct Step: Hashable, Sendable {
        /// Topics to make durable in `retained`. Call `remembered` for each one that is.
        package var remember: [String] = []
        /// To be sent, in this order.
        package var announcements: [Announcement] = []
    }

    /// Returns what can be done now. Call it after every change.
    ///
    /// - Parameter isolatesMessages: whether messages are sent one by one, to find the one that makes the server end
    ///   the connection. Publications wait until that is done.
    package mutating func next(isolatesMessages: Bool = false) -> Step {
        var step = Step()
        isHeldBack = false
        guard link == .open || link == .leaving else { return step }
        clear(&step)
        guard link == .open else { return step }
        if isolatesMessages, !isAnswered {
            isHeldBack = true
            return step
        }
        if isIsolating, isAnswered { isIsolating = false }
        for index in entries.indices where entries[index].state == .pending {
            guard let announcement = entries[index].announcement else { continue }
            if isIsolating, entries.contains(where: { $0.state == .sending }) { break }
            let topic = announcement.topic
            // An answer that is no packet, to QoS 0 or to what is too large, would come before this one.
            if unanswered[topic] != nil { continue }
            if retained.contains(topic) {
                entries[index].state = .sending
                cleared.remove(topic)
                unanswered[topic, default: 0] += 1
                step.announcements.append(announcement)
            } else if remembering.insert(topic).inserted {
                step.remember.append(topic)
            }
        }
        return step
    }

    private mutating func clear(_ step: inout Step) {
        guard mayHaveStale || link == .leaving else { return }
        mayHaveStale = false
        for topic in link == .leaving ? retained.sorted() : removing where cleared.insert(topic).inserted {
            unanswered[topic, default: 0] += 1
            step.announcements.append(Announcement(topic: topic))
        }
    }

    /// The topic is durable in `retained`.
    package mutating func remembered(_ topic: String) {
        remembering.remove(topic)
        if retained.insert(topic).inserted { unproven.insert(topic) }
        mayHaveStale = true
    }

    // MARK: Answers

    package enum Answer: Hashable, Sendable {
        case noted
        /// The publication with this topic is refused, or its clearing; `isNews` unless it was before for the same reason. With `nothingOn`, the server holds nothing on that topic: make that durable.
        case refused(String, ServerAnswer, isNews: Bool, nothingOn: String? = nil)
        /// The server no longer holds anything on this topic: make that durable.
        case cleared(String)
    }

    /// Takes the answer to an announcement; `nil` if it was not for a publication.
    package mutating func answered(_ announcement: Announcement, _ answer: ServerAnswer) -> Answer? {
        let topic = announcement.topic
        guard let count = unanswered[topic] else { return nil }
        unanswered[topic] = count > 1 ? count - 1 : nil
        if announcement.payload.readableBytes > 0 {
            awaited.remove(topic)
            if !answer.isRefusal { unproven.remove(topic) }
        }
        // Answers come in order, so the last one says what the server has.
        guard count == 1 else { return .noted }
        if cleared.contains(topic) {
            guard announcement.payload.readableBytes == 0 else { return .noted }
            guard !answer.isRefusal else { return .refused(topic, answer, isNews: isNews(answer, topic)) }
            refusals[topic] = nil
            cleared.remove(topic)
            retained.remove(topic)
            let wanted = entries.first { $0.topic == topic }?.publication.topic
            changes.append(Change(topic: wanted ?? topic, state: .removed))
            return .cleared(topic)
        }
        guard let index = entries.firstIndex(where: { $0.state == .sending && $0.announcement == announcement })
        else { return .noted }
        guard answer.isRefusal else {
            entries[index].state = .published
            changes.append(Change(topic: entries[index].publication.topic, state: .published))
            suspicions[topic] = nil
            refusals[entries[index].publication.topic] = nil
            return .noted
        }
        // The server never had it, so there is nothing to clear; it would refuse the clearing as well.
        let isNew = unproven.remove(topic) != nil
        if isNew { retained.remove(topic) }
        return refuse(index, answer, isFatal: false, nothingOn: isNew ? topic : nil)
    }

    /// The last refusal for each topic, so that the same one is reported once.
    private var refusals: [String: ServerAnswer] = [:]

    /// How long a publication that was refused is not sent again on the same connection.
    private static let patience: Duration = .seconds(600)

    /// Sends what was refused long enough ago once more: what the server refuses may change. Call it when a heartbeat is
    /// answered.
    ///
    /// - Returns: whether there is anything to send.
    package mutating func retryRefused(at now: Instant) -> Bool {
        var isDue = false
        for index in entries.indices {
            guard case .refused(_, isFatal: false) = entries[index].state else { continue }
            let since = entries[index].refusedSince ?? now
            entries[index].refusedSince = since
            guard since.duration(to: now) >= Self.patience else { continue }
            entries[index].mustBeSent()
            isDue = true
        }
        return isDue
    }

    private mutating func isNews(_ answer: ServerAnswer, _ topic: String) -> Bool {
        refusals.updateValue(answer, forKey: topic).map { !answer.repeats($0) } ?? true
    }

    private mutating func refuse(
        _ index: Int, _ answer: ServerAnswer, isFatal: Bool, nothingOn cleared: String? = nil
    ) -> Answer {
        entries[index].state = .refused(answer, isFatal: isFatal)
        entries[index].refusedSince = nil
        let topic = entries[index].publication.topic
        let isNews = isNews(answer, topic)
        if isNews { changes.append(Change(topic: topic, state: .refused, answer: answer)) }
        return .refused(topic, answer, isNews: isNews, nothingOn: cleared)
    }

    /// The server ended the connection with a reason that may refer to what was sent last.
    ///
    /// - Parameter isAlone: whether no message was unanswered. The reason could refer to one as well.
    package mutating func serverEnded(_ code: ReasonCode, isAlone: Bool) -> Answer {
        switch code {
        case .topicNameInvalid, .packetTooLarge, .payloadFormatInvalid, .malformedPacket, .protocolError: break
        default: return .noted
        }
        let suspects = entries.indices.filter { entries[$0].state == .sending }
        if suspects.count == 1, let suspect = suspects.first, let topic = entries[suspect].topic {
            suspicions[topic, default: 0] += 1
            if isAlone || suspicions[topic] == Self.maximumSuspicions {
                suspicions[topic] = nil
                return refuse(suspect, .said(code), isFatal: true)
            }
        }
        isIsolating = isIsolating || !suspects.isEmpty
        return .noted
    }
}
