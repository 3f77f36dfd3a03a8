import NIOCore

/// What durable consumers get, on its way into the inbox.
///
/// A message that somebody durable wants is acknowledged when it is committed and not before (rule 12). One commit at a
/// time has such messages; what arrives meanwhile waits, goes with the next one all together, and is acknowledged in the
/// order in which it arrived [MQTT-4.6.0-2]. That is also how back-pressure works: without room in the inbox the messages
/// just go on waiting, and the server's Receive Maximum ends it there. What waits dies with its connection; the server
/// sends it again.
struct Collection: Sendable {
    /// A durable consumer, and what it has in the inbox, committed or not.
    struct Collector: Sendable {
        /// `nil` while it stands for nothing: relative to a room, and there is none.
        var filter: TopicFilter?
        var messages = 0
        var bytes = 0
        /// Another one of the same name is another number.
        var generation = 0
    }

    /// What becomes of a message that had to wait.
    struct Entry: Sendable {
        var publish: Publish
        /// Who gets it; nobody, if it only had to wait for its turn.
        var consumers: [ConsumerName] = []
        /// The generations of those.
        var generations: [Int] = []
        var size = 0
        /// Its identifier was remembered from another session of the server.
        var wasDoubtful = false
    }

    /// What is in the commit under way.
    struct Batch: Sendable {
        var commit: CommitNumber
        var entries: [Entry]
        /// The last of the messages in it.
        var through: InboxSequence
        /// Its connection is gone: nothing of it is acknowledged.
        var isStale = false
    }

    /// Messages, and bytes of messages, in one commit; one of any size always is. All of a commit finds room or nothing,
    /// and other sessions' commits wait for it.
    static let batchMessages = 256
    static let batchBytes = 1 << 20
    /// QoS 0 messages that wait at most; more are dropped.
    static let maximumUnacknowledged = 256

    var collectors: [ConsumerName: Collector]
    private var generations = 0
    var nextSequence: InboxSequence
    private(set) var messages = 0
    private(set) var bytes = 0
    private(set) var waiting = CircularBuffer<Publish>()
    private var waitingIDs: Set<PacketID> = []
    private var waitingUnacknowledged = 0
    var batch: Batch?
    /// The store had no room; cleared by `resumeCollecting`.
    var isPaused = false
    /// Told when acknowledgements begin to be withheld, and not again before there is enough room.
    var isFull = false

    init(_ durable: DurableSession) {
        collectors = Dictionary(
            durable.consumers.map { ($0.name, Collector(messages: $0.messages, bytes: $0.bytes)) },
            uniquingKeysWith: { first, _ in first })
        nextSequence = durable.nextInboxSequence
        for collector in collectors.values {
            messages += collector.messages
            bytes += collector.bytes
        }
    }

    /// Whether a message that nobody durable wants can be acknowledged at once.
    var isIdle: Bool { waiting.isEmpty && batch == nil }

    /// Messages whose acknowledgement is withheld.
    var withheld: Int { waiting.count - waitingUnacknowledged }

    func isWaiting(_ id: PacketID) -> Bool { waitingIDs.contains(id) }

    // MARK: Waiting

    /// Answers whether it may wait.
    mutating func wait(_ publish: Publish) -> Bool {
        if let id = publish.packetID {
            waitingIDs.insert(id)
        } else {
            guard waitingUnacknowledged < Self.maximumUnacknowledged else { return false }
            waitingUnacknowledged += 1
        }
        waiting.append(publish)
        return true
    }

    mutating func waitAgain(_ publish: Publish) {
        guard let id = publish.packetID else { preconditionFailure("what nobody answers for is dropped instead") }
        waitingIDs.insert(id)
        waiting.prepend(publish)
    }

    mutating func takeFirst() {
        if let id = waiting.removeFirst().packetID {
            waitingIDs.remove(id)
        } else {
            waitingUnacknowledged -= 1
        }
    }

    mutating func connectionClosed() {
        waiting.removeAll()
        waitingIDs.removeAll()
        waitingUnacknowledged = 0
        batch?.isStale = true
    }

    // MARK: Counting

    mutating func add(_ size: Int, for consumers: [ConsumerName]) {
        for name in consumers { count(1, size, of: name) }
    }

    /// Takes back what was added for an entry, but for those who are not there any more.
    mutating func subtract(_ entry: Entry) {
        for (name, generation) in zip(entry.consumers, entry.generations)
        where collectors[name]?.generation == generation {
            count(-1, -entry.size, of: name)
        }
    }

    mutating func count(_ messages: Int, _ bytes: Int, of name: ConsumerName) {
        guard collectors[name] != nil else { return }
        collectors[name]?.messages += messages
        collectors[name]?.bytes += bytes
        self.messages += messages
        self.bytes += bytes
    }

    mutating func put(_ name: ConsumerName, _ filter: TopicFilter?) {
        if collectors[name] == nil {
            generations += 1
            collectors[name] = Collector(generation: generations)
        }
        collectors[name]?.filter = filter
    }

    mutating func remove(_ name: ConsumerName) {
        guard let collector = collectors[name] else { return }
        count(-collector.messages, -collector.bytes, of: name)
        collectors[name] = nil
    }
}
