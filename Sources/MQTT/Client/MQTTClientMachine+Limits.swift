// What the outbox does not keep: messages that are too old, for which there is no room, or which are no longer wanted.

extension MQTTClientMachine {
    /// Whether a message of this size would be accepted without dropping another one. If not, giving `timePassed` first
    /// drops what is too old.
    public func hasRoom(for size: Int) -> Bool { excess(adding: size) == (0, 0) }

    /// When the first of the messages that are queued or in flight was accepted; `nil` if there are none. It is not known
    /// between a start and the first `loaded`.
    public var oldestAcceptance: Timestamp? { outbox.oldestAcceptance }

    /// Changes when states of messages that were read from the store before may be out of date: the server had lost the
    /// session, and what was in flight is queued again.
    public var queueVersion: Int { outbox.lossCount }

    // MARK: The limits

    /// By how much the outbox is above its limits, with one more message of this size, or as it is.
    private func excess(adding size: Int? = nil) -> (messages: Int, bytes: Int) {
        let counts = outbox.counts
        return (
            max(0, counts.total + (size == nil ? 0 : 1) - configuration.outbox.messages),
            max(0, counts.bytes + (size ?? 0) - configuration.outbox.bytes)
        )
    }

    /// The same without messages that are not durable yet: nothing is dropped for a message that the disk may refuse.
    private var settledExcess: (messages: Int, bytes: Int) {
        let new = commits.acceptances.filter { !$0.isRetry }
        return (
            max(0, outbox.counts.total - new.count - configuration.outbox.messages),
            max(0, outbox.counts.bytes - new.reduce(0) { $0 + $1.size } - configuration.outbox.bytes)
        )
    }

    /// Checks that the limits let a new message in.
    func admit(_ message: OutboundMessage) throws(PublishError) {
        let excess = excess(adding: message.size)
        guard excess != (0, 0) else { return }
        let limit = configuration.outbox.bytes
        switch configuration.outbox.whenFull {
        case .refuse where message.size > limit, .dropOldest where message.size > limit:
            throw .largerThanOutbox(size: message.size, limit: limit)
        case .refuse: throw .outboxFull
        case .dropNew: throw .dropped
        case .dropOldest:
            // The messages to be dropped may still have to be committed or read, and until then the outbox is over its
            // limit. The excess is limited too: a disk that hangs must not fill the memory.
            let waiting = outbox.waiting
            guard excess.messages <= waiting.messages, excess.bytes <= waiting.bytes,
                excess.messages <= configuration.readAhead.messages,
                excess.bytes <= max(configuration.readAhead.bytes, message.size)
            else { throw .outboxFull }
        }
    }

    /// Brings the outbox back to its limits. A message that is not durable stays until it is: its publisher has not
    /// been answered yet.
    mutating func dropOldest(_ step: inout Step) {
        guard configuration.outbox.whenFull == .dropOldest, excess() != (0, 0) else { return }
        dropOverdue(&step)
        while settledExcess != (0, 0), let first = outbox.first { dropFirst(first, because: .outboxFull, &step) }
    }

    // MARK: Time

    /// Why a message of the queue must not be sent any more, unless it was sent before (rule 22).
    func fate(of queued: Outbox.Queued, at now: Timestamp) -> DropReason? {
        guard let reason = fate(of: queued.message, at: now), !outbox.sentBefore.contains(queued.sequence) else {
            return nil
        }
        return reason
    }

    /// The same for one that was certainly not sent before.
    private func fate(of message: OutboundMessage, at now: Timestamp) -> DropReason? {
        if let expiresAt = message.expiresAt, expiresAt <= now { return .expired }
        if let age = configuration.outbox.maximumAge, message.acceptedAt.advanced(by: age) <= now { return .tooOld }
        return nil
    }

    /// Drops what is too old: of the queue's part that is in memory, every message whose expiry has passed, and the first
    /// ones if their age has. What is only in the store is looked at when it has been read.
    mutating func dropOverdue(_ step: inout Step) {
        while let first = outbox.first, let reason = fate(of: first, at: step.now) {
            dropFirst(first, because: reason, &step)
        }
        let (durable, sentBefore) = (outbox.durableThrough, outbox.sentBefore)
        let expired = outbox.readAhead.removeExpired(at: step.now) {
            $0.sequence <= durable && !sentBefore.contains($0.sequence)
        }
        for queued in expired {
            outbox.leaveQueue(size: queued.message.size)
            drop(queued.sequence, queued.message.topic, size: queued.message.size, because: .expired, &step)
        }
    }

    mutating func clockStepped(_ milliseconds: Int64, _ range: ClosedRange<Timestamp>, _ step: inout Step) {
        link.shiftTimes(by: milliseconds)
        lessons.clockStepped(by: milliseconds)
        subscriptions.clockStepped(by: milliseconds)
        announcements.clockStepped(by: milliseconds)
        patience.shiftTimes(by: milliseconds)
        guard outbox.counts.total > 0 || intake.messages > 0 || commits.hasKeys else { return }
        outbox.shiftTimes(by: milliseconds, acceptedWithin: range)
        intake.shiftTimes(by: milliseconds, receivedWithin: range)
        step.changes.append(.shiftTimes(by: milliseconds, acceptedWithin: range))
    }

    // MARK: Dropping

    /// Drops the first message of the queue.
    mutating func dropFirst(_ queued: Outbox.Queued, because reason: DropReason, _ step: inout Step) {
        outbox.readAhead.removeFirst()
        outbox.leaveQueue(size: queued.message.size)
        drop(queued.sequence, queued.message.topic, size: queued.message.size, because: reason, &step)
    }

    /// Drops a message, and reports that before it is durable: after a crash in between the message may still be sent,
    /// but none is ever lost without a report.
    mutating func drop(
        _ sequence: MessageSequence, _ topic: String, size: Int, because reason: DropReason, _ step: inout Step
    ) {
        outbox.counts.bytes -= size
        outbox.sentBefore.remove(sequence)
        remove(sequence, .dropped(reason), &step)
        step.emit(.dropped(DroppedMessage(sequence: sequence, topic: topic, reason: reason)))
    }

    // MARK: Loading

    /// Whether the head of the queue is needed although there is no connection: to know its times, or to drop it.
    private func isHeadWanted(_ step: Step) -> Bool {
        guard outbox.isHeadMissing else { return false }
        if configuration.outbox.whenFull == .dropOldest, excess() != (0, 0) { return true }
        return step.looksAtTimes
            && (outbox.readAhead.unloaded.map { fate(of: $0, at: step.now) != nil } ?? true)
    }

    mutating func nextLoad(_ step: Step) -> Action? {
        if isConnected {
            return outbox.nextLoad(messages: configuration.readAhead.messages, bytes: configuration.readAhead.bytes)
        }
        outbox.readAhead.unload(above: configuration.readAhead.bytes)
        guard isHeadWanted(step) else { return nil }
        return outbox.nextLoad(
            messages: min(64, configuration.readAhead.messages), bytes: min(64 << 10, configuration.readAhead.bytes))
    }
}
