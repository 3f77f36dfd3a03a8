import NIOCore

/// The head of the outbox's queue, in memory; the rest of the queue is in the store only.
struct ReadAhead: Sendable {
    private(set) var messages = CircularBuffer<Outbox.Queued>(initialCapacity: 1)
    private(set) var bytes = 0
    /// No message in memory expires before this; `nil` if none expires.
    private var earliestExpiry: Timestamp?
    /// Every queued message up to this one is in memory.
    private(set) var loadedThrough: MessageSequence
    /// The next message after that, without its content, if it was in memory and is too large to stay there.
    private(set) var unloaded: Outbox.Queued?
    /// Set while a load is outstanding: what was durable when it was issued.
    private var loadingThrough: MessageSequence?
    /// Whether the outstanding load will bring messages that are out of date.
    private var loadIsStale = false

    init(loadedThrough: MessageSequence) {
        self.loadedThrough = loadedThrough
    }

    // MARK: Messages

    /// Takes the last message of the queue, if everything before it is in memory and there is room for it.
    mutating func enqueue(_ queued: Outbox.Queued, maxMessages: Int, maxBytes: Int) {
        guard loadedThrough == queued.sequence else { return }
        if messages.isEmpty || (messages.count < maxMessages && bytes + queued.message.size <= maxBytes) {
            append(queued)
        } else {
            loadedThrough = MessageSequence(rawValue: queued.sequence.rawValue - 1)
        }
    }

    private mutating func append(_ queued: Outbox.Queued) {
        note(queued)
        messages.append(queued)
        loadedThrough = queued.sequence
    }

    private mutating func note(_ queued: Outbox.Queued) {
        bytes += queued.message.size
        if let expiresAt = queued.message.expiresAt { earliestExpiry = min(earliestExpiry ?? expiresAt, expiresAt) }
    }

    /// Puts a message back that had left the queue.
    mutating func prepend(_ queued: Outbox.Queued) {
        note(queued)
        messages.prepend(queued)
    }

    mutating func removeFirst() { bytes -= messages.removeFirst().message.size }

    /// Returns whether the message was in memory.
    mutating func remove(_ sequence: MessageSequence) -> Bool {
        if unloaded?.sequence == sequence { unloaded = nil }
        guard let index = messages.lastIndex(where: { $0.sequence == sequence }) else { return false }
        bytes -= messages[index].message.size
        messages.remove(at: index)
        return true
    }

    /// Removes the messages whose expiry has passed, wherever they are, and returns them.
    ///
    /// - Parameter mayBeRemoved: whether one may go before it is the first.
    mutating func removeExpired(at now: Timestamp, where mayBeRemoved: (Outbox.Queued) -> Bool) -> [Outbox.Queued] {
        guard let earliestExpiry, earliestExpiry <= now else { return [] }
        let expired = messages.filter { ($0.message.expiresAt.map { $0 <= now } ?? false) && mayBeRemoved($0) }
        for queued in expired { _ = remove(queued.sequence) }
        // What is being loaded may have them too.
        if expired.contains(where: { $0.sequence > loadedThrough }) { makeLoadStale() }
        self.earliestExpiry = messages.lazy.compactMap(\.message.expiresAt).min()
        return Array(expired)
    }

    mutating func update(_ change: (inout OutboundMessage) -> Void) {
        for index in messages.indices { change(&messages[index].message) }
        earliestExpiry = messages.lazy.compactMap(\.message.expiresAt).min()
        makeLoadStale()
    }

    /// Everything up to this message is in memory; `enqueue` takes this back if there is no room for it.
    mutating func advance(to sequence: MessageSequence) { loadedThrough = sequence }

    /// Starts over, to read the queue after this message.
    mutating func startOver(after sequence: MessageSequence) {
        messages.removeAll()
        earliestExpiry = nil
        bytes = 0
        loadedThrough = sequence
        makeLoadStale()
    }

    /// Keeps nothing in memory if it is more than this: a large message alone may be.
    mutating func unload(above maxBytes: Int) {
        guard bytes > maxBytes, let first = messages.first else { return }
        startOver(after: MessageSequence(rawValue: first.sequence.rawValue - 1))
        var outline = OutboundMessage(topic: "", expiresAt: first.message.expiresAt)
        outline.acceptedAt = first.message.acceptedAt
        unloaded = Outbox.Queued(sequence: first.sequence, message: outline)
    }

    // MARK: Loading

    /// What to load now, if anything: when half of the room is free and the store has more.
    mutating func nextLoad(
        through durable: MessageSequence, maxMessages: Int, maxBytes: Int
    ) -> MQTTClientMachine.Action? {
        guard loadingThrough == nil, loadedThrough < durable else { return nil }
        guard messages.count <= maxMessages / 2, bytes <= maxBytes / 2 else { return nil }
        loadingThrough = durable
        return .load(
            after: loadedThrough, messages: max(1, maxMessages - messages.count), bytes: max(1, maxBytes - bytes))
    }

    mutating func loaded(_ stored: [StoredMessage], except held: Set<MessageSequence> = []) {
        guard let through = loadingThrough else { return }
        loadingThrough = nil
        guard !loadIsStale else {
            loadIsStale = false
            return
        }
        unloaded = nil
        let returned = held.union(messages.lazy.map(\.sequence).filter { [loadedThrough] in $0 > loadedThrough })
        for stored in stored where stored.sequence > loadedThrough {
            if returned.contains(stored.sequence) {
                loadedThrough = stored.sequence
            } else {
                append(Outbox.Queued(sequence: stored.sequence, message: stored.message))
            }
        }
        // Nothing there: whatever was durable when the load was issued is done or was refused.
        if stored.isEmpty { loadedThrough = max(loadedThrough, through) }
    }

    /// Discards what an outstanding load brings, and what is known of the next message, because it may have been removed
    /// from the store, or changed.
    mutating func makeLoadStale() {
        unloaded = nil
        if loadingThrough != nil { loadIsStale = true }
    }
}
