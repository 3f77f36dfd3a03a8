import ControlAPI
import DurableStore
import MQTT
import Session
import SessionCore

// What happens to accepted messages that are not delivered: the configuration drops them, or people decide about them.

extension SessionDriver {
    // MARK: Dropped messages

    func dropped(_ dropped: MQTTClientMachine.DroppedMessage) {
        report(dropped.reason, dropped.sequence.rawValue, dropped.topic)
        endPublish(
            dropped.sequence,
            .failure(.messageDropped(dropped.reason.sentence).afterAcceptance(of: dropped.sequence.rawValue)))
    }

    /// - Parameter id: `nil` for a message that was not accepted.
    func report(_ reason: MQTTClientMachine.DropReason, _ id: Int64?, _ topic: String) {
        let sentence = (id.map { "message \($0)" } ?? "a message") + " was dropped: \(reason.sentence)"
        log.dropped(sentence, at: now)
        report(.messageDropped) {
            $0.id = id
            $0.topic = topic
            $0.reason = .init(reason)
        }
    }

    // MARK: The list

    func queueList(
        _ wanted: MessageQueueListMethod.Parameters
    ) async throws(RPCError) -> MessageQueueListMethod.Result {
        try checkRunning()
        run(.timePassed)
        // One more than wanted shows whether there are more.
        let found = try await surroundings.readOutbox(of: name) { store throws(StoreError) in
            await self.everythingCommitted()
            return try await store.summaries(
                self.name, .init(wanted.state), after: .init(rawValue: wanted.after ?? 0), limit: wanted.limit + 1)
        }
        return .init(page: found, limit: wanted.limit)
    }

    // MARK: Decisions

    func queueRetry(
        _ wanted: MessageQueueParameters, by rights: TopicRights = .all
    ) async throws(RPCError) -> MessageQueueRetryMethod.Result {
        try checkRunning()
        await queueTurn()
        defer { run(.endQueue) }
        let choice = try await chosen(wanted.selection, isRetry: true, by: rights)
        var result = MessageQueueRetryMethod.Result(retried: [], skipped: choice.skipped, more: choice.more)
        for summary in choice.messages {
            guard rights.permitRetry(of: summary.topic, { try? session.resolve($0) }) else {
                result.skipped.append(.notPermitted(summary, of: name))
                continue
            }
            // Read with their contents, one at a time. Nothing else takes messages out of the quarantine during this
            // call's turn.
            let found = try await surroundings.readOutbox(of: name) { store throws(StoreError) in
                try await store.message(self.name, summary.sequence)
            }
            guard let stored = found else { continue }
            try checkRunning()
            switch ask({ $0.retry(stored) }) {
            case .done(let sequence):
                result.retried.append(.init(id: stored.sequence.rawValue, newID: sequence.rawValue))
                run()
            case .skipped(let message): result.skipped.append(message)
            }
        }
        // The next call would find the skipped messages again.
        if case .all = wanted.selection, result.retried.isEmpty { result.more = false }
        try await everythingDurable("the decision")
        return result
    }

    func queueDrop(_ wanted: MessageQueueParameters) async throws(RPCError) -> MessageQueueDropMethod.Result {
        try checkRunning()
        await queueTurn()
        defer { run(.endQueue) }
        let choice = try await chosen(wanted.selection)
        var result = MessageQueueDropMethod.Result(dropped: [], skipped: choice.skipped, more: choice.more)
        for summary in choice.messages {
            switch ask({ $0.drop(summary) }) {
            case .done(let sequence): result.dropped.append(sequence.rawValue)
            case .skipped(let message): result.skipped.append(message)
            }
        }
        run(.timePassed)
        if case .all = wanted.selection, result.dropped.isEmpty { result.more = false }
        try await everythingDurable("the decision")
        return result
    }

    /// Returns when no other call decides about the messages of the outbox.
    private func queueTurn() async {
        await withCheckedContinuation { continuation in
            run(.awaitQueue(programs.queueing.add { continuation.resume() }))
        }
    }

    /// Returns the messages that a call decides about, as they are when the caller gets them.
    private func chosen(
        _ selection: MessageSelection, isRetry: Bool = false, by rights: TopicRights = .all
    ) async throws(RPCError) -> Session.MessageChoice {
        while true {
            try checkRunning()
            let version = session.mqtt.queueVersion
            // Do not decide anything that cannot be made durable, since a restart would undo it.
            try await everythingDurable("the decision")
            let found = try await found(selection, by: rights)
            try checkRunning()
            checkClock()
            if version == session.mqtt.queueVersion { return .init(selection, found: found, isRetry: isRetry) }
        }
    }

    /// Of all messages, only those whose topics the caller may publish to: others must not hide what is behind them.
    private func found(
        _ selection: MessageSelection, by rights: TopicRights
    ) async throws(RPCError) -> [StoredMessageSummary] {
        guard case .all = selection, rights.narrowsPublishing else {
            return try await surroundings.readOutbox(of: name) { store throws(StoreError) in
                try await store.summaries(self.name, chosenBy: selection)
            }
        }
        let maximum = Session.MessageChoice.maximum
        var (permitted, after) = ([StoredMessageSummary](), MessageSequence.zero)
        while permitted.count <= maximum {
            let start = after
            let page = try await surroundings.readOutbox(of: name) { store throws(StoreError) in
                try await store.summaries(self.name, .quarantined, after: start, limit: maximum)
            }
            guard let last = page.last else { break }
            permitted += page.filter { rights.permitRetry(of: $0.topic) { try? session.resolve($0) } }
            after = last.sequence
        }
        return Array(permitted.prefix(maximum + 1))
    }
}

extension SessionDriver.Surroundings {
    /// Asks the store about the outbox of a session on behalf of a person.
    func readOutbox<Value: Sendable>(
        of name: SessionName, _ body: @escaping @Sendable (any SessionStore) async throws(StoreError) -> Value
    ) async throws(RPCError) -> Value {
        do throws(StoreError) {
            return try await commits.watch.answer { [store] () throws(StoreError) in try await body(store) }
        } catch {
            throw .internalError("the outbox of session \(name) cannot be read: \(error)")
        }
    }
}

extension SessionStore {
    /// Returns the messages that a call decides about, and one more if there are more than it may decide about.
    func summaries(
        _ session: SessionName, chosenBy selection: MessageSelection
    ) async throws(StoreError) -> [StoredMessageSummary] {
        switch selection {
        // The same id twice counts once.
        case .ids(let ids): try await summaries(session, of: Set(ids).sorted().map { .init(rawValue: $0) })
        case .all(let state):
            try await summaries(session, .init(state), after: .zero, limit: Session.MessageChoice.maximum + 1)
        }
    }
}

extension SkippedMessage {
    fileprivate static func notPermitted(_ summary: StoredMessageSummary, of session: SessionName) -> SkippedMessage {
        let error = RPCError.topicNotPermitted(summary.topic, of: session.description, "publish to")
        return .init(
            id: summary.sequence.rawValue, code: error.data?.code ?? "not-permitted", message: error.message,
            hint: error.data?.hint)
    }
}

extension SessionStatus.Reason {
    init(_ reason: MQTTClientMachine.DropReason) {
        self.init(code: reason.code, group: "outbox", terminal: false, message: reason.sentence)
    }
}

extension MQTTClientMachine.DropReason {
    /// A stable code in kebab-case.
    var code: String {
        switch self {
        case .expired: "expired"
        case .tooOld: "too-old"
        case .outboxFull: "outbox-full"
        case .discarded: "discarded"
        }
    }

    var sentence: String {
        switch self {
        case .expired: "it expired before it could be sent"
        case .tooOld: "it was older than max-age before it could be sent"
        case .outboxFull: "the outbox is full"
        case .discarded: "it was dropped on request"
        }
    }
}

extension DurableStore.MessageFilter {
    init(_ state: QueuedMessageState?) {
        self =
            switch state {
            case QueuedMessageState.queued?: .queued
            case QueuedMessageState.inFlight?: .inFlight
            case QueuedMessageState.quarantined?: .quarantined
            default: .all
            }
    }
}

extension ListedMessage {
    init(_ summary: StoredMessageSummary) {
        self.init(
            id: summary.sequence.rawValue, topic: summary.topic, qos: summary.qos, retain: summary.retain,
            size: summary.size, acceptedAt: summary.acceptedAt,
            expiresAt: summary.expiresAt, state: .queued)
        switch summary.state {
        case .queued: state = .queued
        case .inFlight, .released: state = .inFlight
        case .quarantined(let code, let sentence):
            state = .quarantined
            reasonCode = code.map { Int($0.rawValue) }
            message = sentence
        }
    }
}

extension MessageQueueListMethod.Result {
    /// The most bytes in a page, so that its line stays below the limit however its texts are escaped.
    private static let pageBytes = 900 << 10

    /// - Parameter found: one more message than wanted, if there are more.
    init(page found: [StoredMessageSummary], limit: Int) {
        var page: [ListedMessage] = []
        var bytes = 0
        for summary in found.prefix(limit) {
            let message = ListedMessage(summary)
            bytes += 400 + 6 * (message.topic.utf8.count + (message.message?.utf8.count ?? 0))
            guard page.isEmpty || bytes <= Self.pageBytes else { break }
            page.append(message)
        }
        self.init(messages: page, next: page.count < found.count ? page.last?.id : nil)
    }
}
