import ControlAPI
import NIOCore
import SessionCore
import Vocabulary

@testable import MQTT

/// What must never be seen, with the number of the invariant in Documentation/ARCHITECTURE.md.
public struct Violation: Hashable, Sendable, CustomStringConvertible {
    public enum Invariant: Int, CaseIterable, Sendable {
        case nothingLost = 1
        case exactlyOnceInOrder
        case committedFirst
        case heals
        case terminalIsTerminal
        case statusIsTrue
        case bounded
        case offlineIsFree
        case secretsStaySecret
        case sameSeedSameRun
        /// None of the ten: the client broke the protocol, or the store was asked for something impossible.
        case standard

        var sentence: String {
            switch self {
            case .nothingLost: "nothing accepted is lost"
            case .exactlyOnceInOrder: "QoS 2 exactly once, and in order"
            case .committedFirst: "nothing is acknowledged before it is committed"
            case .heals: "everything heals"
            case .terminalIsTerminal: "a terminal reason and a disconnect stop all attempts"
            case .statusIsTrue: "status never lies"
            case .bounded: "every queue has a limit"
            case .offlineIsFree: "offline costs nothing"
            case .secretsStaySecret: "secrets are nowhere"
            case .sameSeedSameRun: "same seed, same run"
            case .standard: "the standard is kept"
            }
        }
    }

    public var invariant: Invariant
    public var sentence: String
    /// The step after which it was seen; the number of steps, when it was at the end.
    public var step: Int

    public init(invariant: Invariant, sentence: String, step: Int) {
        (self.invariant, self.sentence, self.step) = (invariant, sentence, step)
    }

    public var description: String {
        "step \(step), invariant \(invariant.rawValue) (\(invariant.sentence)): \(sentence)"
    }
}

/// What became of every message of a run, in both directions: invariants 1, 2 and 3.
struct Ledger {
    /// A message that a program published.
    struct Outgoing {
        enum Answer {
            /// The daemon was killed before it answered, or has not answered yet.
            case unknown
            case accepted
            case refused
        }

        let topic: String
        let qos: QoS
        let host: String
        /// When it was asked for, on the clock of its host.
        let askedAt: Instant
        var answer = Answer.unknown
        /// Whether it was committed at any time.
        var wasStored = false
        var hasArrived = false
        /// A server has answered it with success.
        var isAnswered = false
        /// The codes with which servers refused it.
        var refusals: Set<ReasonCode> = []
        /// It was set aside while it may have been on its way to another server.
        var wasSetAside = false
        /// It was reported as dropped, for a reason that there was.
        var isDropped = false
        /// It was dropped, and the disk does not have it any more.
        var isGone = false
        /// A person had it sent again: it has another place in the order.
        var wasRetried = false
        /// A program that has no answer publishes it again under this key.
        var key: String?
        /// It was published before its host lost its power, and what became of it may be lost.
        var isForgiven = false
        /// The disk still had it after that.
        var hasSurvived = false
        /// It may have been in flight when its server came back in an older state, with an identifier that meant another
        /// message then.
        var mayBeMistaken = false
        /// A server took it for another message, which it had, because the identifier meant that one in its copy of the
        /// session.
        var isMistaken = false

        /// Whether nothing is known of it any more.
        var isUnknown: Bool { isForgiven && !hasSurvived }
    }

    /// A message that a server had for a host: one of the copies, where filters overlap.
    struct Incoming {
        let name: String
        let topic: String
        /// The subscription that the server sent it for, if it says so.
        let subscriptionIDs: [UInt32]
        let qos: QoS
        /// When it was sent for the first time, as a number of this ledger.
        let sentAt: Int
        let server: String
        let epoch: Int
        /// How many copies of QoS 2 there are that cannot be told apart: without identifiers, one for each filter.
        var exactlyOnce = 0

        /// Whether every consumer with this filter must get this copy. A copy for a filter that is no longer wanted may
        /// go to any consumer.
        func isFor(_ filter: TopicFilter) -> Bool {
            let ids = [filter.subscriptionID, filter.repeatedSubscriptionID]
            return filter.matches(topic: topic)
                && (subscriptionIDs.isEmpty || subscriptionIDs.contains(where: ids.contains))
        }
    }

    struct Place: Hashable {
        var host: String
        var name: String
    }

    private struct Arrival: Hashable {
        var server: String
        var epoch: Int
        /// How often its client had returned to the server by then: what was in flight when it left is sent again.
        var visit: Int
        var number: Int
    }

    private(set) var problems: [(Violation.Invariant, String)] = []
    private(set) var outgoing: [Int: Outgoing] = [:]
    private var numbers: [Place: Int] = [:]
    private var arrivals: Set<Arrival> = []
    private var lastArrived: [Place: Int] = [:]
    private(set) var lastNumber = 0
    /// Messages that were published with a key.
    private(set) var keyed: [String: (number: Int, qos: QoS)] = [:]

    /// By the copy.
    private(set) var incoming: [Place: Incoming] = [:]
    /// By the message, all copies together: MQTT 3.1.1 does not say which filter a copy was sent for.
    private var copies: [Place: Incoming] = [:]
    private var time = 0
    /// When the durable consumers of the hosts became durable.
    private var consumers: [Place: (since: Int, filter: TopicFilter)] = [:]
    /// What was committed for a consumer, by the copy of the message: how often as a message of QoS 2.
    private var collections: [Place: [String: Int]] = [:]
    private var collectedNames: [Place: Set<String>] = [:]
    private var lastCollected: [Place: Int] = [:]
    /// What programs have acknowledged, so that it must not be given again.
    private var finished: [Place: Set<Int64>] = [:]
    /// What programs have begun to acknowledge.
    private var finishing: [Place: Set<Int64>] = [:]
    private var lastGiven: [SubscriptionID: Int64] = [:]
    private var live: [String: (since: Int, life: Int, filter: TopicFilter)] = [:]
    private var seen: [String: Set<String>] = [:]
    /// Sessions of servers that a host was connected in.
    private var noticed: Set<Place> = []
    /// Sessions that servers began.
    private var begun: Set<Place> = []
    /// New sessions that a client takes for the one that it has: the server said that it had had them before, or it
    /// began them for a CONNECT whose answer was lost, while the client had a session at another server. There, the
    /// client takes a message for an older one with the same identifier.
    private var claimed: Set<Place> = []
    /// The server that accepted each host last, and how often it was another one than before.
    private var visits: [String: (server: String, number: Int)] = [:]

    /// Why a client cannot know what a session at a server has.
    enum Doubt: Hashable {
        /// A server has resumed a session that its client had never heard of, because the answer to an earlier CONNECT
        /// was lost, or another device was there, or the server claims what it does not have. With two servers that looks
        /// as if they shared their sessions, as the servers of a cluster do. So the client believes that each of them
        /// knows everything. But the old copy of the session at the other one takes a new message of QoS 2 for one that it
        /// has, or sends one again that was taken.
        case misled
        /// The client's disk was put back to an earlier state since.
        case rolledBack
        /// The server came back with it in an earlier state.
        case wentBack
        /// The client continued at another server, and returned. A message of QoS 1 may have an identifier under which
        /// the server holds a message of QoS 2 from before.
        case returned
    }

    /// By the session of a host at a server. A new session there is in no doubt.
    private var doubts: [Place: Set<Doubt>] = [:]

    mutating func doubt(_ host: String, at server: String, epoch: Int, _ doubt: Doubt) {
        doubts[Place(host: host, name: "\(server) \(epoch)"), default: []].insert(doubt)
    }

    func has(_ doubt: Doubt, _ host: String, at server: String, epoch: Int) -> Bool {
        doubts[Place(host: host, name: "\(server) \(epoch)")]?.contains(doubt) ?? false
    }

    mutating func takeProblems() -> [(Violation.Invariant, String)] {
        defer { problems = [] }
        return problems
    }

    mutating func note(_ invariant: Violation.Invariant, _ sentence: String) { problems.append((invariant, sentence)) }

    // MARK: From programs to servers

    mutating func asked(_ topic: String, _ qos: QoS, on host: String, at time: Instant, key: String? = nil) -> Int {
        lastNumber += 1
        outgoing[lastNumber] = Outgoing(topic: topic, qos: qos, host: host, askedAt: time, key: key)
        if let key { keyed[key] = (lastNumber, qos) }
        return lastNumber
    }

    mutating func answered(_ number: Int, accepted: Bool) {
        outgoing[number]?.answer = accepted ? .accepted : .refused
        guard let message = outgoing[number] else { return }
        if accepted, !message.wasStored { note(.committedFirst, "\(number) was accepted and is not committed") }
        if !accepted, message.hasArrived { note(.nothingLost, "\(number) was refused and has arrived") }
    }

    /// A message was reported as dropped.
    ///
    /// - Parameter isDue: whether there is that reason for it, for a message that was asked for at this time.
    mutating func dropped(_ sequence: Int64, on host: String, because code: String, isDue: (Instant) -> Bool) {
        guard let number = numbers[Place(host: host, name: "\(sequence)")], let message = outgoing[number] else {
            return
        }
        guard message.isUnknown || isDue(message.askedAt) else {
            return note(.nothingLost, "\(number) was dropped without cause (\(code))")
        }
        outgoing[number]?.isDropped = true
    }

    /// A change of the outbox is about to be committed.
    mutating func changing(_ change: DurableChange, _ before: StoredMessage?, on host: String) {
        time += 1
        switch change {
        case .insert(let stored):
            guard let number = Int(String(buffer: stored.message.payload)) else { return }
            if let message = outgoing[number], message.wasStored, !message.isForgiven {
                note(.exactlyOnceInOrder, "\(number) was stored twice, key \(message.key ?? "none")")
            }
            outgoing[number]?.wasStored = true
            numbers[Place(host: host, name: "\(stored.sequence.rawValue)")] = number
        case .requeue(let old, let new, _):
            guard let number = numbers[Place(host: host, name: "\(old.rawValue)")] else { return }
            outgoing[number]?.wasRetried = true
            numbers[Place(host: host, name: "\(new.rawValue)")] = number
        case .remove(let sequence), .acknowledge(let sequence):
            guard before != nil, let number = numbers[Place(host: host, name: "\(sequence.rawValue)")],
                let message = outgoing[number], message.qos != .atMostOnce, !message.isUnknown
            else { return }
            if !message.isAnswered, !message.isDropped {
                note(.nothingLost, "\(number) (\(message.qos)) left the outbox and no server has answered it")
            }
            if message.isDropped { outgoing[number]?.isGone = true }
        case .quarantine(let sequence, let code, _):
            if let number = numbers[Place(host: host, name: "\(sequence.rawValue)")] {
                outgoing[number]?.wasSetAside = true
            }
            if let code, !code.isError { note(.nothingLost, "\(sequence) was rejected with \(code)") }
        case .putConsumer(let name, let filter, _):
            let place = Place(host: host, name: name.description)
            guard let filter = try? TopicFilter(filter) else { return }
            if consumers[place]?.filter != filter { consumers[place] = (time, filter) }
        case .removeConsumer(let name): forget(Place(host: host, name: name.description))
        case .collect(let message, let names, _):
            for name in names { collected(message.message, Place(host: host, name: name.description)) }
        case .removeCollected(let sequence, let name):
            let place = Place(host: host, name: name.description)
            if finishing[place]?.contains(sequence.rawValue) != true, consumers[place] != nil {
                note(.nothingLost, "\(sequence) left the inbox of \(name) and no program acknowledged it")
            }
        default: break
        }
    }

    /// A server has received a message. If it refuses the message, the next one with the same identifier is a new one
    /// (4.3.3).
    mutating func received(_ publish: Publish, epoch: Int, at server: String, isRefused: Bool) {
        guard let number = number(publish) else { return }
        if isRefused { arrivals.remove(arrival(number, epoch, server)) }
        guard let message = outgoing[number] else { return }
        if !message.wasStored { note(.committedFirst, "\(number) was sent and is not committed") }
        let isMisled = has(.misled, message.host, at: server, epoch: epoch)
        let isOlder = message.mayBeMistaken && has(.wentBack, message.host, at: server, epoch: epoch)
        // If the server takes it as what it is, it arrives in this moment.
        outgoing[number]?.isMistaken = message.qos == .exactlyOnce && !isRefused && (isMisled || isOlder)
    }

    /// A server has answered a message, and the answer is on its way.
    mutating func answered(_ publish: Publish, _ code: ReasonCode) {
        guard let number = number(publish) else { return }
        if code.isError { outgoing[number]?.refusals.insert(code) } else { outgoing[number]?.isAnswered = true }
    }

    /// - Parameter wasLeftOut: a server has taken later messages and not this one.
    mutating func arrived(_ publish: Publish, epoch: Int, at server: String, wasLeftOut: Bool) {
        guard let number = number(publish), let message = outgoing[number] else { return }
        outgoing[number]?.isMistaken = false
        guard !message.isForgiven else {
            outgoing[number]?.hasArrived = true
            return
        }
        let isMisled = has(.misled, message.host, at: server, epoch: epoch)
        if message.answer == .refused { note(.nothingLost, "\(number) was refused and has arrived") }
        // What a person has sent again may have arrived before it was set aside.
        if publish.qos == .exactlyOnce, !message.wasRetried,
            !arrivals.insert(arrival(number, epoch, server)).inserted, !isMisled
        {
            note(.exactlyOnceInOrder, "\(number) (QoS 2) has arrived twice at server \(server)")
        }
        guard !message.hasArrived else { return }
        outgoing[number]?.hasArrived = true
        // With a key it may have been accepted long after it was published first.
        guard !message.wasRetried, message.key == nil, message.qos != .atMostOnce else { return }
        // It may have been taken for another one before.
        if message.isMistaken, !isMisled { return }
        // It may have been on its way when a person dropped it, or when it was set aside, on a connection that is gone.
        if wasLeftOut || message.isDropped || message.wasSetAside { return }
        let place = Place(host: message.host, name: message.topic)
        if let last = lastArrived[place], last > number {
            note(.exactlyOnceInOrder, "\(number) has arrived after \(last) on \(message.topic)")
        }
        lastArrived[place] = max(number, lastArrived[place] ?? 0)
    }

    private func arrival(_ number: Int, _ epoch: Int, _ server: String) -> Arrival {
        let visit = outgoing[number].flatMap { visits[$0.host]?.number } ?? 0
        return Arrival(server: server, epoch: epoch, visit: visit, number: number)
    }

    private func number(_ publish: Publish) -> Int? {
        publish.topic.hasPrefix("out/") ? Int(String(buffer: publish.payload)) : nil
    }

    /// Whether a server has refused the message with this code.
    func wasRefused(_ sequence: Int64, on host: String, with code: ReasonCode?) -> Bool {
        guard let number = numbers[Place(host: host, name: "\(sequence)")], let message = outgoing[number] else {
            return true
        }
        return message.isUnknown || code.map(message.refusals.contains) ?? false
    }

    /// Checks that everything that was accepted has arrived, or was dropped for a reason, or is in quarantine.
    ///
    /// - Parameter left: the messages on the disk of a host. Only what is in quarantine is left there at the end.
    mutating func checkOutgoing(left: (String) -> Set<Int>) {
        var inStore: [String: Set<Int>] = [:]
        for (number, message) in outgoing.sorted(by: { $0.key < $1.key })
        where (message.answer == .accepted || message.hasSurvived) && message.qos != .atMostOnce && !message.isUnknown {
            if message.hasArrived || message.isGone { continue }
            if message.isMistaken, message.isAnswered { continue }
            let stored = inStore[message.host] ?? left(message.host)
            inStore[message.host] = stored
            if !stored.contains(number) { note(.nothingLost, "\(number) (\(message.qos)) was accepted and is lost") }
        }
    }

    // MARK: From servers to programs

    mutating func sent(_ publish: Publish, epoch: Int, by server: String, to host: String) {
        guard publish.topic.hasPrefix("in/"), publish.qos != .atMostOnce, !publish.retain,
            publish.payload.readableBytesView.first != UInt8(ascii: "f")
        else { return }
        time += 1
        let (name, ids) = (String(buffer: publish.payload), publish.properties.subscriptionIDs)
        func new(_ ids: [UInt32]) -> Incoming {
            Incoming(
                name: name, topic: publish.topic, subscriptionIDs: ids, qos: publish.qos, sentAt: time, server: server,
                epoch: epoch)
        }
        // Where filters overlap, the copies of one message may have different QoS.
        let count = publish.qos == .exactlyOnce ? 1 : 0
        incoming[Place(host: host, name: Self.copy(name, ids)), default: new(ids)].exactlyOnce += count
        copies[Place(host: host, name: name), default: new([])].exactlyOnce += count
    }

    private static func copy(_ name: String, _ ids: [UInt32]) -> String { "\(name) \(ids)" }

    /// Whether this copy was collected, or one that came without its identifiers.
    private func hasCollected(_ sent: Incoming, _ place: Place) -> Bool {
        let all = collections[place] ?? [:]
        return all[Self.copy(sent.name, sent.subscriptionIDs)] != nil || all[Self.copy(sent.name, [])] != nil
    }

    private mutating func collected(_ message: MQTTClientMachine.InboundMessage, _ place: Place) {
        let name = String(buffer: message.payload)
        let ids = message.properties.subscriptionIDs
        let copy = Self.copy(name, ids)
        let before = collections[place]?[copy] ?? 0
        // A copy of QoS 1 may come again.
        let count = before + (message.qos == .exactlyOnce ? 1 : 0)
        collections[place, default: [:]][copy] = count
        let isFirst = collectedNames[place, default: []].insert(name).inserted
        let whole = copies[Place(host: place.host, name: name)]
        guard let sent = ids.isEmpty ? whole : incoming[Place(host: place.host, name: copy)] else { return }
        if message.qos == .exactlyOnce, count > sent.exactlyOnce, noticed.contains(session(sent, of: place.host)),
            !has(.misled, place.host, at: sent.server, epoch: sent.epoch)
        {
            note(.exactlyOnceInOrder, "\(name) (QoS 2) was collected \(count) times for \(place.name)")
        }
        guard let filter = consumers[place]?.filter else { return }
        let others = consumers.filter { $0.key.host == place.host && $0.key != place && sent.isFor($0.value.filter) }
        if !sent.isFor(filter), let other = others.keys.first {
            note(.exactlyOnceInOrder, "\(name), which was sent for \(other.name), was collected for \(place.name)")
        }
        guard isFirst, sent.isFor(filter), let number = Int(name.dropFirst()) else { return }
        let order = Place(host: place.host, name: "\(place.name) \(sent.topic) \(sent.server) \(sent.epoch)")
        if let last = lastCollected[order], last > number {
            note(.exactlyOnceInOrder, "\(name) was collected after \(last) for \(place.name)")
        }
        lastCollected[order] = max(number, lastCollected[order] ?? 0)
    }

    /// The server was told that the client has taken over a message.
    mutating func taken(_ publish: Publish, by host: String, life: Int) {
        let name = String(buffer: publish.payload)
        let copy = Self.copy(name, publish.properties.subscriptionIDs)
        guard let sent = incoming[Place(host: host, name: copy)] else { return }
        // A client that took two servers for a cluster has exchanges open whose identifiers mean other messages there.
        if publish.qos == .exactlyOnce, has(.misled, host, at: sent.server, epoch: sent.epoch) { return }
        for (place, consumer) in consumers
        where place.host == host && consumer.since < sent.sentAt && sent.isFor(consumer.filter) {
            if sent.qos == .exactlyOnce, !noticed.contains(session(sent, of: host)) { continue }
            guard !hasCollected(sent, place) else { continue }
            note(.committedFirst, "\(name) was acknowledged and is not committed for \(place.name)")
        }
        if let live = live[host], live.life == life, live.since < sent.sentAt, publish.qos == .atLeastOnce,
            sent.isFor(live.filter), seen[host]?.contains(name) != true
        {
            note(.committedFirst, "\(name) was acknowledged and no program was given it")
        }
    }

    private func session(_ sent: Incoming, of host: String) -> Place {
        Place(host: host, name: "\(sent.server) \(sent.epoch)")
    }

    /// Whether the client has heard of this session of the server.
    func knows(_ host: String, at server: String, epoch: Int) -> Bool {
        noticed.contains(Place(host: host, name: "\(server) \(epoch)"))
    }

    mutating func connected(_ host: String, at server: String, epoch: Int) {
        let session = Place(host: host, name: "\(server) \(epoch)")
        if !claimed.contains(session) { noticed.insert(session) }
    }

    /// A server accepted a host's connection.
    mutating func accepted(_ host: String, at server: String, epoch: Int, resumed: Bool) {
        let session = Place(host: host, name: "\(server) \(epoch)")
        let isNew = begun.insert(session).inserted
        if let visit = visits[host], visit.server != server, !isNew { doubts[session, default: []].insert(.returned) }
        if visits[host]?.server != server { visits[host] = (server, (visits[host]?.number ?? 0) + 1) }
        let hasAnother = noticed.contains { $0.host == host && !$0.name.hasPrefix("\(server) ") }
        if resumed, isNew || hasAnother && !noticed.contains(session) { claimed.insert(session) }
    }

    /// A server has crashed, and will have a host's session in an older state. What it had done since is lost with it.
    mutating func wentBack(_ host: String, at server: String, from before: Int, to epoch: Int) {
        for (number, message) in outgoing where message.host == host && !message.hasArrived {
            outgoing[number]?.mayBeMistaken = true
        }
        incoming = incoming.filter { $0.key.host != host || $0.value.server != server }
        copies = copies.filter { $0.key.host != host || $0.value.server != server }
        let session = Place(host: host, name: "\(server) \(epoch)")
        begun.insert(session)
        doubts[session] = (doubts[Place(host: host, name: "\(server) \(before)")] ?? []).union([.wentBack])
        if noticed.contains(Place(host: host, name: "\(server) \(before)")) {
            noticed.insert(session)
        } else {
            claimed.insert(session)
        }
    }

    mutating func subscribed(_ host: String, _ filter: TopicFilter, life: Int) {
        time += 1
        live[host] = (time, life, filter)
        seen[host] = []
    }

    mutating func unsubscribed(_ host: String) { live[host] = nil }

    mutating func saw(_ name: String, on host: String) { seen[host, default: []].insert(name) }

    /// The host's disk is as it was some moments before: what was accepted, acknowledged or taken then may be undone.
    ///
    /// - Parameters:
    ///   - kept: the durable consumers that it has.
    ///   - messages: the messages in the outbox that it has, by their numbers.
    mutating func lostPower(_ host: String, keeping kept: Set<String>, _ messages: Set<Int>) {
        time += 1
        for (number, message) in outgoing where message.host == host {
            outgoing[number]?.isForgiven = true
            outgoing[number]?.hasSurvived = messages.contains(number)
            outgoing[number]?.isGone = false
        }
        finished = finished.filter { $0.key.host != host }
        finishing = finishing.filter { $0.key.host != host }
        incoming = incoming.filter { $0.key.host != host }
        copies = copies.filter { $0.key.host != host }
        for (place, consumer) in consumers where place.host == host {
            forget(place)
            if kept.contains(place.name) { consumers[place] = (time, consumer.filter) }
        }
    }

    private mutating func forget(_ place: Place) {
        consumers[place] = nil
        collections[place] = nil
        collectedNames[place] = nil
        finished[place] = nil
        finishing[place] = nil
        lastCollected = lastCollected.filter {
            $0.key.host != place.host || !$0.key.name.hasPrefix("\(place.name) ")
        }
    }

    /// A durable consumer's program was given a message: by each attachment once, in order.
    mutating func given(_ id: Int64, to name: String, by attachment: SubscriptionID, on host: String) {
        if let last = lastGiven[attachment], last >= id {
            note(.exactlyOnceInOrder, "\(id) was given to \(name) after \(last)")
        }
        lastGiven[attachment] = id
        if finished[Place(host: host, name: name)]?.contains(id) == true {
            note(.exactlyOnceInOrder, "\(id) was acknowledged by \(name) and given again")
        }
    }

    mutating func acknowledging(_ ids: [Int64], by name: String, on host: String) {
        finishing[Place(host: host, name: name), default: []].formUnion(ids)
    }

    mutating func acknowledged(_ ids: [Int64], by name: String, on host: String) {
        finished[Place(host: host, name: name), default: []].formUnion(ids)
    }

    /// Checks that everything that the servers have sent in their present sessions has reached all who want it.
    ///
    mutating func checkIncoming(present: (_ host: String, _ server: String) -> Int?) {
        for (place, sent) in incoming.sorted(by: { $0.value.sentAt < $1.value.sentAt })
        where present(place.host, sent.server) == sent.epoch {
            // The client may have taken a new message of QoS 2 for one that it has.
            let isMisled = has(.misled, place.host, at: sent.server, epoch: sent.epoch)
            if sent.qos == .exactlyOnce, isMisled || !noticed.contains(session(sent, of: place.host)) { continue }
            for (consumer, wanted) in consumers
            where consumer.host == place.host && wanted.since < sent.sentAt
                && sent.isFor(wanted.filter) && !hasCollected(sent, consumer)
            {
                note(.nothingLost, "\(sent.name) was sent by the server and never came to \(consumer.name)")
            }
        }
    }
}
