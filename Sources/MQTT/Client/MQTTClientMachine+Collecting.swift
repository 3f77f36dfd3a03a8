// Messages for durable consumers: into the inbox first, then acknowledged.

import NIOCore

extension MQTTClientMachine {
    /// What happens to a durable consumer.
    public enum ConsumerInput: Hashable, Sendable {
        /// It exists from now on, or has changed: the filter as given, and the filter that it now stands for. It also
        /// gets what matches the former filters, until the server has granted the new one.
        case put(filter: String, QoS, matching: TopicFilter?, former: Set<TopicFilter> = [])
        /// From now on its filter stands for this alone. This is not durable; the filter as given is.
        case matching(TopicFilter?)
        /// It is gone, with everything that waits for it.
        case remove
        /// Messages up to this one may be given to a program from now on.
        case give(through: InboxSequence)
        /// It has taken these messages, or they are no longer wanted.
        case taken([TakenMessage])
        /// A program was told that this many messages were dropped.
        case toldMissed(Int)
    }

    /// How much the inbox holds, and how much waits to come in.
    public struct InboxCounts: Hashable, Sendable {
        /// Counted once for each consumer that a message waits for, including those that are not committed yet.
        public var messages: Int
        /// The sum of their `size`, counted alike.
        public var bytes: Int
        /// Messages from the server that are not acknowledged because they have not come in yet.
        public var withheld: Int
    }

    /// What waits for durable consumers.
    public var inboxCounts: InboxCounts {
        InboxCounts(messages: intake.messages, bytes: intake.bytes, withheld: intake.withheld)
    }

    /// Whether the driver should read more from the transport. It should not while packets wait for `readOn`, while
    /// too many wait for commits, or while no more may wait in memory, for a commit of the inbox that is under way or
    /// because the connection is settling. A full inbox is not a reason to stop: it may stay full for long, and the server must be heard.
    public var wantsToRead: Bool {
        !link.isBehind && commits.work.count < Self.maximumWork
            && (intake.batch == nil || intake.waitingBytes <= configuration.inbox.waitingBytes)
            && link.settling?.withheldBytes ?? 0 <= configuration.inbox.waitingBytes
    }

    /// How many packets may wait for commits before the driver stops reading.
    private static var maximumWork: Int { 16_384 }

    /// Whether there is room now for messages that had to be left out because too much was waiting. The server sends
    /// them again on another connection, and it is time for that.
    public var hasRoomForLeftOut: Bool { intake.hasRoomForLeftOut && intake.fetching == .ready }

    /// Prepares for another connection, on which the server sends them again: acknowledgements must not be lost on this
    /// one.
    mutating func fetchLeftOut(_ step: inout Step) {
        guard intake.hasRoomForLeftOut, intake.fetching == .none, commits.work.isEmpty, isConnected else { return }
        intake.fetching = .asking
        ping(.fetching, &step)
    }

    /// How many messages wait for a consumer, and their size.
    public func backlog(of consumer: ConsumerName) -> (messages: Int, bytes: Int) {
        intake.collectors[consumer].map { ($0.backlog.messages, $0.backlog.bytes) } ?? (0, 0)
    }

    /// How many messages were dropped because the consumer was full, without a program having been told.
    public func missed(by consumer: ConsumerName) -> Int { intake.collectors[consumer]?.missed ?? 0 }

    mutating func handle(_ input: ConsumerInput, of name: ConsumerName, _ step: inout Step) {
        switch input {
        case .put(let text, let qos, let filter, let former):
            intake.put(name, former.union([filter].compactMap(\.self)))
            step.changes.append(.putConsumer(name, filter: text, qos))
        case .matching(let filter):
            intake.collectors[name]?.filters = Set([filter].compactMap(\.self))
        case .remove:
            intake.remove(name)
            step.changes.append(.removeConsumer(name))
        case .give(let sequence):
            step.changes.append(.setGiven(name, through: sequence))
        case .taken(let messages):
            guard intake.collectors[name] != nil else { return }
            intake.taken(messages, by: name)
            for message in messages { step.changes.append(.removeCollected(message.sequence, name)) }
        case .toldMissed(let count):
            guard count > 0, let missed = intake.collectors[name]?.missed else { return }
            intake.collectors[name]?.missed = max(0, missed - count)
            step.changes.append(.toldMissed(name, count))
        }
    }

    // MARK: Into the inbox

    /// Collects a QoS 0 message: it waits like the others, but the server would not send it again.
    mutating func collectUnacknowledged(_ publish: Publish, _ step: inout Step) {
        let consumers = consumers(of: publish)
        guard !consumers.isEmpty else { return }
        let isBlocked =
            intake.isPaused || (intake.isIdle && !hasRoom(for: publish.contentSize, of: consumers))
            || intake.isOverfull(with: publish, above: configuration.inbox.waitingBytes)
        if isBlocked || !intake.wait(publish, for: consumers) { step.emit(.inboxDropped(publish.topic)) }
    }

    /// The durable consumers that the message was sent for.
    func consumers(of publish: Publish) -> [ConsumerName] {
        guard !intake.collectors.isEmpty, publish.flaw == nil else { return [] }
        let message = InboundMessage(publish, for: subscriptions.collectedFilters(of: publish))
        var names: [ConsumerName] = []
        for (name, collector) in intake.collectors {
            if collector.filters.contains(where: message.isFor) { names.append(name) }
        }
        return names.count > 1 ? names.sorted() : names
    }

    /// Whether the message may come into the inbox, if necessary after the oldest messages are dropped.
    private func hasRoom(for size: Int, of consumers: [ConsumerName]) -> Bool {
        configuration.inbox.whenFull == .dropOldest
            || intake.hasRoom(for: size, of: consumers, configuration.inbox)
    }

    /// Gives as much of what waits to the next commit as there is room for.
    mutating func collectWaiting(_ step: inout Step) {
        defer { noteFullness(&step) }
        while intake.batch == nil, !intake.isPaused, !intake.waiting.isEmpty {
            let (entries, messages, drops) = takeWaiting(&step)
            if !messages.isEmpty {
                intake.batch = .init(commit: nextCommit(step), entries: entries, messages: messages, drops: drops)
            } else if entries.isEmpty {
                return
            } else {
                for entry in entries { acknowledge(entry.publish, &step) }
            }
        }
    }

    /// Takes what fits into one commit.
    ///
    /// - Returns: the packets, the messages among them that go into the inbox, and what is dropped for those.
    private mutating func takeWaiting(
        _ step: inout Step
    ) -> ([InboxIntake.Entry], [InboxMessage], [InboxIntake.Drop]) {
        var entries: [InboxIntake.Entry] = []
        var messages: [InboxMessage] = []
        var drops: [InboxIntake.Drop] = []
        var bytes = 0
        let first = intake.nextSequence
        while var entry = intake.first, entries.count < InboxIntake.batchMessages, bytes < InboxIntake.batchBytes {
            let publish = entry.publish
            let isNew = publish.qos != .exactlyOnce || inbox.isNew(publish)
            if !isNew { entry.consumers = [] }
            if !entry.consumers.isEmpty {
                guard hasRoom(for: entry.size, of: entry.consumers) else {
                    guard publish.packetID == nil else { break }
                    intake.takeFirst()
                    step.emit(.inboxDropped(publish.topic))
                    continue
                }
                guard let dropped = dropOldest(for: entry, before: first, &step) else { break }
                drops += dropped
                messages.append(collect(&entry, &step))
                bytes += entry.size * entry.consumers.count
            }
            intake.takeFirst()
            entries.append(entry)
        }
        return (entries, messages, drops)
    }

    /// Returns what is dropped for the message; `nil` if there is no room for it in the commit that is being made.
    private mutating func dropOldest(
        for entry: InboxIntake.Entry, before first: InboxSequence, _ step: inout Step
    ) -> [InboxIntake.Drop]? {
        let drops = intake.makeRoom(for: entry.size, of: entry.consumers, configuration.inbox, before: first)
        for drop in drops ?? [] {
            step.changes.append(.dropCollected(drop.name, through: drop.run.through, count: drop.run.messages))
        }
        return drops
    }

    private mutating func collect(_ entry: inout InboxIntake.Entry, _ step: inout Step) -> InboxMessage {
        var message = InboundMessage(entry.publish)
        var exchange: PacketID?
        if let id = entry.publish.packetID, entry.publish.qos == .exactlyOnce {
            entry.wasDoubtful = inbox.begin(id, duplicate: entry.publish.duplicate) == .newInDoubt
            exchange = id
            // The server may have sent it before, but it was never collected.
            message.duplicate = false
        }
        let sequence = intake.nextSequence
        intake.nextSequence = sequence.next
        entry.sequence = sequence
        intake.add(entry, configuration.inbox)
        let collected = CollectedMessage(sequence: sequence, message: message, receivedAt: step.now)
        step.changes.append(.collect(collected, for: entry.consumers, exchange))
        return InboxMessage(message: collected, consumers: entry.consumers)
    }

    /// Finishes the messages for the inbox whose commit is durable.
    mutating func collected(_ number: CommitNumber, _ step: inout Step) {
        guard let batch = intake.batch, batch.commit <= number else { return }
        intake.batch = nil
        for drop in intake.confirm(batch.drops) {
            step.emit(.consumerMissed(drop.name, through: drop.run.through, count: drop.run.messages))
        }
        step.emit(.collected(batch.messages))
        for entry in batch.entries { finish(entry, acknowledging: !batch.isStale, &step) }
    }

    private mutating func finish(_ entry: InboxIntake.Entry, acknowledging: Bool, _ step: inout Step) {
        let isCollected = !entry.consumers.isEmpty
        if isCollected, entry.publish.qos == .exactlyOnce { deliver(entry.publish, &step) }
        guard acknowledging, let id = entry.publish.packetID else { return }
        switch entry.publish.qos {
        case .exactlyOnce where isCollected: enqueue(.pubrec(id), step)
        default: acknowledge(entry.publish, &step)
        }
    }

    /// Makes the messages of a commit that is durable without them wait again, until the driver says that it is time to
    /// try.
    mutating func notCollected(_ number: CommitNumber, _ step: inout Step) {
        guard let batch = intake.batch, batch.commit == number else { return }
        intake.batch = nil
        intake.undo(batch.drops)
        let first = batch.entries.firstIndex { !$0.consumers.isEmpty } ?? batch.entries.endIndex
        for entry in batch.entries[..<first] { finish(entry, acknowledging: !batch.isStale, &step) }
        for entry in batch.entries[first...].reversed() {
            intake.subtract(entry)
            guard let id = entry.publish.packetID else {
                step.emit(.inboxDropped(entry.publish.topic))
                continue
            }
            if !entry.consumers.isEmpty, entry.publish.qos == .exactlyOnce {
                _ = inbox.end(id)
                if entry.wasDoubtful { step.changes.append(.removeInbound(id)) }
            }
            if !batch.isStale { intake.waitAgain(entry) }
        }
        intake.isPaused = true
        step.emit(.collectingPaused)
    }

    /// Reports once when acknowledgements begin to be withheld, and once when a quarter of the inbox is free again.
    private mutating func noteFullness(_ step: inout Step) {
        let isBlocked = intake.batch == nil && !intake.isPaused && !intake.waiting.isEmpty
        if isBlocked, !intake.isFull {
            intake.isFull = true
            step.emit(.inboxFull(true))
        } else if intake.isFull, !isBlocked, intake.isRoomy(configuration.inbox) {
            intake.isFull = false
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
