import NIOCore

// Messages for durable consumers: into the inbox first, then acknowledged.

extension MQTTClientMachine {
    /// What happens to a durable consumer.
    public enum ConsumerInput: Hashable, Sendable {
        /// It is there from now on, or another one than before; the filter as it was given, and what it stands for now.
        case put(filter: String, QoS, matching: TopicFilter?)
        /// Its filter stands for something else now. Not durable: what was given is.
        case matching(TopicFilter?)
        /// It is gone, with all that waits for it.
        case remove
        /// Messages up to this one may be given to a program from now on.
        case give(through: InboxSequence)
        /// It has taken these messages, with the sum of their `size`.
        case taken([InboxSequence], bytes: Int)
    }

    /// How much there is in the inbox, and in front of it.
    public struct InboxCounts: Hashable, Sendable {
        /// Counted once for each consumer that a message waits for; those count that are not committed yet.
        public var messages: Int
        /// The sum of their `size`, counted alike.
        public var bytes: Int
        /// Messages from the server that are not acknowledged because they have not come in yet.
        public var withheld: Int
    }

    /// What waits for durable consumers.
    public var inboxCounts: InboxCounts {
        InboxCounts(messages: collection.messages, bytes: collection.bytes, withheld: collection.withheld)
    }

    /// Whether the driver is to read on. Not while a commit is under way, which has an end, and as much waits for it as there
    /// is room for in memory. Never for want of room in the inbox: that may last, and the connection has to be heard.
    public var wantsToRead: Bool {
        work.count < Self.maximumWork
            && (collection.batch == nil || collection.waitingBytes <= configuration.maximumWaitingBytes)
    }

    /// Packets that wait for commits, before the server is read no further.
    private static var maximumWork: Int { 16_384 }

    /// Whether there is room for messages that found none to wait in, and were left out. The server sends them again on
    /// another connection, and it is time for that.
    public var hasRoomForLeftOut: Bool { collection.hasRoomForLeftOut }

    /// How many messages wait for a consumer, and their size.
    public func backlog(of consumer: ConsumerName) -> (messages: Int, bytes: Int) {
        collection.collectors[consumer].map { ($0.messages, $0.bytes) } ?? (0, 0)
    }

    mutating func handle(_ input: ConsumerInput, of name: ConsumerName, _ step: inout Step) {
        switch input {
        case .put(let text, let qos, let filter):
            collection.put(name, filter)
            step.changes.append(.putConsumer(name, filter: text, qos))
        case .matching(let filter):
            collection.collectors[name]?.filter = filter
        case .remove:
            collection.remove(name)
            step.changes.append(.removeConsumer(name))
        case .give(let sequence):
            step.changes.append(.setGiven(name, through: sequence))
        case .taken(let sequences, let bytes):
            guard collection.collectors[name] != nil else { return }
            collection.count(-sequences.count, -bytes, of: name)
            for sequence in sequences { step.changes.append(.removeCollected(sequence, name)) }
        }
    }

    // MARK: Into the inbox

    /// A QoS 0 message: it waits like the others, but nobody would send it again.
    mutating func collectUnacknowledged(_ publish: Publish, _ step: inout Step) {
        let consumers = consumers(of: publish)
        guard !consumers.isEmpty else { return }
        let isBlocked = collection.isPaused || (collection.isIdle && !hasRoom(publish, for: consumers))
        if isBlocked || !collection.wait(publish, for: consumers) { step.emit(.inboxDropped(publish.topic)) }
    }

    /// The durable consumers that the message was sent for.
    func consumers(of publish: Publish) -> [ConsumerName] {
        guard !collection.collectors.isEmpty else { return [] }
        let message = InboundMessage(publish, for: subscriptions.filters(of: publish))
        return collection.collectors.filter { $0.value.filter.map(message.isFor) ?? false }.keys.sorted()
    }

    private func hasRoom(_ publish: Publish, for consumers: [ConsumerName]) -> Bool {
        // One message of any size always has, for it would wait for ever.
        guard collection.messages > 0 else { return true }
        return collection.messages + consumers.count <= configuration.inboxMaxMessages
            && collection.bytes + consumers.count * InboundMessage(publish).size <= configuration.inboxMaxBytes
    }

    /// Gives as much of what waits to the next commit as there is room for.
    mutating func collectWaiting(_ step: inout Step) {
        defer { noteFullness(&step) }
        guard collection.batch == nil, !collection.isPaused, !collection.waiting.isEmpty else { return }
        var entries: [Collection.Entry] = []
        var through: InboxSequence?
        var bytes = 0
        while var entry = collection.first, entries.count < Collection.batchMessages, bytes < Collection.batchBytes {
            let publish = entry.publish
            let isNew = publish.qos != .exactlyOnce || inbox.isNew(publish)
            if !isNew { entry.consumers = [] }
            if !entry.consumers.isEmpty {
                guard hasRoom(publish, for: entry.consumers) else {
                    guard publish.packetID == nil else { break }
                    collection.takeFirst()
                    step.emit(.inboxDropped(publish.topic))
                    continue
                }
                through = collect(&entry, &step)
                bytes += entry.size * entry.consumers.count
            }
            collection.takeFirst()
            entries.append(entry)
        }
        if let through {
            collection.batch = .init(commit: nextCommit(step), entries: entries, through: through)
        } else {
            for entry in entries { acknowledge(entry.publish, &step) }
        }
    }

    private mutating func collect(_ entry: inout Collection.Entry, _ step: inout Step) -> InboxSequence {
        var message = InboundMessage(entry.publish)
        var exchange: PacketID?
        if let id = entry.publish.packetID, entry.publish.qos == .exactlyOnce {
            entry.wasDoubtful = inbox.begin(id, duplicate: entry.publish.duplicate) == .newInDoubt
            exchange = id
            // Sent before, but never taken.
            message.duplicate = false
        }
        let sequence = collection.nextSequence
        collection.nextSequence = sequence.next
        collection.add(entry.size, for: entry.consumers)
        step.changes.append(
            .collect(CollectedMessage(sequence: sequence, message: message), for: entry.consumers, exchange))
        return sequence
    }

    /// The commit with messages for the inbox is durable.
    mutating func collected(_ number: CommitNumber, _ step: inout Step) {
        guard let batch = collection.batch, batch.commit <= number else { return }
        collection.batch = nil
        step.emit(.collected(through: batch.through))
        for entry in batch.entries { finish(entry, acknowledging: !batch.isStale, &step) }
    }

    private mutating func finish(_ entry: Collection.Entry, acknowledging: Bool, _ step: inout Step) {
        let isCollected = !entry.consumers.isEmpty
        if isCollected, entry.publish.qos == .exactlyOnce { deliver(entry.publish, &step) }
        guard acknowledging, let id = entry.publish.packetID else { return }
        switch entry.publish.qos {
        case .exactlyOnce where isCollected: enqueue(.pubrec(id), step)
        default: acknowledge(entry.publish, &step)
        }
    }

    /// The commit is durable without its messages: they wait again, until the driver says that it is time to try.
    mutating func notCollected(_ number: CommitNumber, _ step: inout Step) {
        guard let batch = collection.batch, batch.commit == number else { return }
        collection.batch = nil
        let first = batch.entries.firstIndex { !$0.consumers.isEmpty } ?? batch.entries.endIndex
        for entry in batch.entries[..<first] { finish(entry, acknowledging: !batch.isStale, &step) }
        for entry in batch.entries[first...].reversed() {
            collection.subtract(entry)
            guard let id = entry.publish.packetID else {
                step.emit(.inboxDropped(entry.publish.topic))
                continue
            }
            if !entry.consumers.isEmpty, entry.publish.qos == .exactlyOnce {
                _ = inbox.end(id)
                if entry.wasDoubtful { step.changes.append(.removeInbound(id)) }
            }
            if !batch.isStale { collection.waitAgain(entry) }
        }
        collection.isPaused = true
        step.emit(.collectingPaused)
    }

    /// Told once when acknowledgements begin to be withheld, and once when a quarter of the inbox is free again.
    private mutating func noteFullness(_ step: inout Step) {
        let isBlocked = collection.batch == nil && !collection.isPaused && !collection.waiting.isEmpty
        if isBlocked, !collection.isFull {
            collection.isFull = true
            step.emit(.inboxFull(true))
        } else if collection.isFull, !isBlocked,
            collection.messages <= configuration.inboxMaxMessages * 3 / 4,
            collection.bytes <= configuration.inboxMaxBytes / 4 * 3
        {
            collection.isFull = false
            step.emit(.inboxFull(false))
        }
    }
}

extension MQTTClientMachine.InboundMessage {
    init(_ publish: Publish, for filters: Set<TopicFilter>? = nil) {
        self.init(
            topic: publish.topic, payload: publish.payload, qos: publish.qos, retain: publish.retain,
            duplicate: publish.duplicate, properties: publish.properties, filters: filters)
    }
}
