import ControlAPI
import MQTT
import SessionCore

/// A watch or a subscription of a peer.
enum ControlFeedID: Hashable {
    case watch(WatchID)
    case subscription(SubscriptionID)

    /// A notification about either names it in the member `watch`.
    var watch: WatchID {
        switch self {
        case .watch(let id): id
        case .subscription(let id): WatchID(rawValue: id.rawValue)
        }
    }

    var kind: Admission.Kind {
        switch self {
        case .watch: .watch
        case .subscription: .subscription
        }
    }
}

/// The watches and subscriptions of one peer, what is held back for each until its answer is written, and how much of
/// each was dropped because the peer had too much to read.
struct ControlFeeds {
    /// How many watches and subscriptions a peer may have on one connection.
    static let maximum = 1024

    struct Subscription {
        var session: SessionName
        /// As the program writes it.
        var filter: String
        /// The durable consumer, if it is one.
        var consumer: ConsumerName?
    }

    private struct Held {
        var lines: [[UInt8]] = []
        var bytes = 0
    }

    private struct Dropped {
        var count = 0
        /// The number of the last event; 0 for messages.
        var sequence: Int64 = 0
    }

    private(set) var watches: Set<WatchID> = []
    private(set) var subscriptions: [SubscriptionID: Subscription] = [:]
    /// What is held back for those whose answer is not written yet: the peer must know about them before their
    /// notifications.
    private var held: [ControlFeedID: Held] = [:]
    /// How many bytes are held back.
    private(set) var heldBytes = 0
    /// What was dropped since the peer was last told.
    private var dropped: [ControlFeedID: Dropped] = [:]
    /// How much was dropped of all watches and subscriptions, of those that have ended too.
    private(set) var droppedSoFar = 0
    /// Whether messages of durable consumers wait for the peer to read.
    var areConsumersPaused = false

    var isEmpty: Bool { watches.isEmpty && subscriptions.isEmpty }
    var isFull: Bool { watches.count + subscriptions.count >= Self.maximum }

    /// The sessions in which the peer is attached to a durable consumer.
    var sessionsWithConsumers: Set<SessionName> {
        Set(subscriptions.values.filter { $0.consumer != nil }.map(\.session))
    }

    /// What the peer receives of each session, in natural order.
    var sessions: [ConnectedClient.Session] {
        let bySession = Dictionary(grouping: subscriptions.values, by: \.session.description)
        return bySession.sorted { NaturalOrder.precedes($0.key, $1.key) }.map { session, subscriptions in
            let consumers = subscriptions.compactMap(\.consumer?.description).sorted(by: NaturalOrder.precedes)
            return .init(
                session: session, subscriptions: subscriptions.count - consumers.count, consumers: consumers)
        }
    }

    // MARK: Begin and end

    /// Adds a watch. Its notifications are held back from now on, until ``answered(_:)``.
    mutating func add(_ watch: WatchID) {
        watches.insert(watch)
        held[.watch(watch)] = Held()
    }

    /// Adds a subscription. Its notifications are held back from now on, until ``answered(_:)``.
    mutating func add(_ id: SubscriptionID, _ subscription: Subscription) {
        subscriptions[id] = subscription
        held[.subscription(id)] = Held()
    }

    /// - Returns: the lines that were held back, and their length.
    mutating func answered(_ feed: ControlFeedID) -> (lines: [[UInt8]], bytes: Int) {
        guard let held = held.removeValue(forKey: feed) else { return ([], 0) }
        heldBytes -= held.bytes
        return (held.lines, held.bytes)
    }

    /// - Returns: the length of what was held back; `nil` if there is no such watch.
    mutating func remove(_ watch: WatchID) -> Int? {
        guard watches.remove(watch) != nil else { return nil }
        return discard(.watch(watch))
    }

    /// - Returns: the subscription and the length of what was held back; `nil` if there is no such subscription.
    mutating func remove(_ id: SubscriptionID) -> (Subscription, held: Int)? {
        guard let subscription = subscriptions.removeValue(forKey: id) else { return nil }
        return (subscription, discard(.subscription(id)))
    }

    private mutating func discard(_ feed: ControlFeedID) -> Int {
        dropped[feed] = nil
        return answered(feed).bytes
    }

    // MARK: Notifications

    /// Holds back a line if the answer of its watch or subscription is not written yet.
    ///
    /// - Returns: whether it is held back. If not, it is written.
    mutating func hold(_ line: [UInt8], for feed: ControlFeedID) -> Bool {
        guard held[feed] != nil else { return false }
        held[feed]?.lines.append(line)
        held[feed]?.bytes += line.count
        heldBytes += line.count
        return true
    }

    /// Whether the answer that begins the watch or subscription is not written yet.
    func isHeld(_ feed: ControlFeedID) -> Bool { held[feed] != nil }

    /// Holds back the last line for a subscription that ended before its answer was written.
    mutating func holdLast(_ line: [UInt8], for feed: ControlFeedID) {
        held[feed] = Held(lines: [line], bytes: line.count)
        heldBytes += line.count
    }

    func isDropping(_ feed: ControlFeedID) -> Bool { dropped[feed] != nil }

    var hasDropped: Bool { !dropped.isEmpty }

    mutating func drop(_ feed: ControlFeedID, sequence: Int64) {
        droppedSoFar += 1
        dropped[feed, default: Dropped()].count += 1
        dropped[feed]?.sequence = sequence
    }

    /// Returns the events that tell the peer how much it missed. Later notifications are delivered again.
    mutating func takeDropped(at time: Timestamp) -> [SessionEvent] {
        let told = dropped.filter { held[$0.key] == nil }
        for feed in told.keys { dropped[feed] = nil }
        return told.map { feed, dropped in
            var session: SessionName?
            if case .subscription(let id) = feed { session = subscriptions[id]?.session }
            var event = SessionEvent(
                watch: feed.watch, sequence: dropped.sequence, time: time, session: session?.description,
                event: feed.kind == .subscription ? .messageDropped : .dropped)
            event.count = dropped.count
            return event
        }
    }
}
