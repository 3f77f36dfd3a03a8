import ControlAPI
import DurableStore
import MQTT
import Session

// What happens to accepted messages that are not delivered: the configuration drops them, or people decide about them.

extension SessionDriver {
    // MARK: Dropped messages

    func dropped(_ dropped: MQTTClientMachine.DroppedMessage) {
        report(dropped.reason, dropped.sequence.rawValue, dropped.topic)
        programs.publishers.removeValue(forKey: dropped.sequence)?.told(
            .ended(.failure(.messageDropped(dropped.reason.sentence))))
    }

    /// - Parameter id: `nil` for a message that was not accepted.
    func report(_ reason: MQTTClientMachine.DropReason, _ id: Int64?, _ topic: String) {
        let sentence = (id.map { "message \($0)" } ?? "a message") + " was dropped: \(reason.sentence)"
        log.dropped(sentence, at: now)
        var event = self.event(.messageDropped)
        event.id = id
        event.topic = topic
        event.reason = .init(code: reason.code, group: "outbox", terminal: false, message: reason.sentence)
        report(event)
    }

    // MARK: The list

    /// The most bytes in a page, so that its line stays below the limit however its texts are escaped.
    private static let pageBytes = 900 << 10

    func queueList(
        _ wanted: MessageQueueListMethod.Parameters
    ) async throws(RPCError) -> MessageQueueListMethod.Result {
        try checkRunning()
        run(.timePassed)
        // One more than wanted shows whether there are more.
        let found = try await read { store throws(StoreError) in
            await self.everythingCommitted()
            return try await store.summaries(
                self.name, .init(wanted.state), after: .init(rawValue: wanted.after ?? 0), limit: wanted.limit + 1)
        }
        var page: [ListedMessage] = []
        var bytes = 0
        for summary in found.prefix(wanted.limit) {
            let message = ListedMessage(summary)
            bytes += 400 + 6 * (message.topic.utf8.count + (message.message?.utf8.count ?? 0))
            guard page.isEmpty || bytes <= Self.pageBytes else { break }
            page.append(message)
        }
        return .init(messages: page, next: page.count < found.count ? page.last?.id : nil)
    }

    private func read<Value: Sendable>(
        _ body: @escaping @Sendable (any SessionStore) async throws(StoreError) -> Value
    ) async throws(RPCError) -> Value {
        let store = surroundings.store
        do throws(StoreError) {
            return try await surroundings.commits.watch.answer { () throws(StoreError) in try await body(store) }
        } catch {
            throw .internalError("the outbox of session \(name) cannot be read: \(error)")
        }
    }

    // MARK: Decisions

    /// How many messages one call may decide about.
    private static let decisions = 1000

    func queueRetry(_ wanted: MessageQueueParameters) async throws(RPCError) -> MessageQueueRetryMethod.Result {
        try checkRunning()
        await queueTurn()
        defer { run(.endQueue) }
        let (messages, missing, more) = try await selected(wanted.selection)
        var result = MessageQueueRetryMethod.Result(retried: [], skipped: missing, more: more)
        for summary in messages {
            guard case .quarantined = summary.state else {
                result.skipped.append(.notQuarantined(summary))
                continue
            }
            // Read with their contents, one at a time. Nothing else takes messages out of the quarantine during this
            // call's turn.
            let found = try await read { store throws(StoreError) in
                try await store.message(self.name, summary.sequence)
            }
            guard let stored = found else { continue }
            try checkRunning()
            do throws(MQTTClientMachine.PublishError) {
                let sequence = try ask { session throws(MQTTClientMachine.PublishError) in try session.retry(stored) }
                result.retried.append(.init(id: summary.sequence.rawValue, newID: sequence.rawValue))
                run()
            } catch .expired {
                result.skipped.append(.expired(summary))
            } catch {
                let reason = RPCError(error, session: name, topic: summary.topic)
                result.skipped.append(
                    .init(
                        id: summary.sequence.rawValue, code: reason.data?.code ?? "message-rejected",
                        message: reason.message, hint: reason.data?.hint))
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
        let (messages, missing, more) = try await selected(wanted.selection)
        var result = MessageQueueDropMethod.Result(dropped: [], skipped: missing, more: more)
        for summary in messages {
            switch ask({ $0.discard(summary) }) {
            case .dropped, .delivered: result.dropped.append(summary.sequence.rawValue)
            case .isWithTransport: result.skipped.append(.inFlight(summary.sequence))
            case .isGone: result.skipped.append(.unknown(summary.sequence.rawValue))
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

    /// Returns the messages in their present state, and the ids that do not exist. Both are still current when the
    /// caller gets them.
    private func selected(
        _ selection: MessageSelection
    ) async throws(RPCError) -> (messages: [StoredMessageSummary], missing: [SkippedMessage], more: Bool) {
        while true {
            try checkRunning()
            let version = session.mqtt.queueVersion
            // Do not decide anything that cannot be made durable, since a restart would undo it.
            try await everythingDurable("the decision")
            var missing: [SkippedMessage] = []
            var messages: [StoredMessageSummary]
            switch selection {
            case .ids(let ids):
                // The same id twice counts once.
                let wanted = Set(ids).sorted()
                messages = try await read { store throws(StoreError) in
                    try await store.summaries(self.name, of: wanted.map { .init(rawValue: $0) })
                }
                let found = Set(messages.map(\.sequence.rawValue))
                missing = wanted.filter { !found.contains($0) }.map { .unknown($0) }
            case .all(let state):
                messages = try await read { store throws(StoreError) in
                    try await store.summaries(
                        self.name, .init(state), after: .zero, limit: Self.decisions + 1)
                }
            }
            try checkRunning()
            let more = messages.count > Self.decisions
            if more { messages.removeLast(messages.count - Self.decisions) }
            checkClock()
            if version == session.mqtt.queueVersion { return (messages, missing, more) }
        }
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
            reasonCode = Int(code.rawValue)
            message = sentence
        }
    }
}

extension SkippedMessage {
    fileprivate static func unknown(_ id: Int64) -> SkippedMessage {
        .init(
            id: id, code: "unknown-message", message: "there is no message \(id) in the outbox",
            hint: "it was delivered or dropped, or a retry gave it another id")
    }

    fileprivate static func inFlight(_ sequence: MessageSequence) -> SkippedMessage {
        .init(
            id: sequence.rawValue, code: "in-flight",
            message: "message \(sequence), of QoS 0, is being sent at this moment",
            hint: "try again when the connection is lost, or ignore it: it is sent once")
    }

    fileprivate static func expired(_ summary: StoredMessageSummary) -> SkippedMessage {
        .init(
            id: summary.sequence.rawValue, code: "expired",
            message: "message \(summary.sequence) has expired, so it is no longer sent",
            hint: "drop it")
    }

    fileprivate static func notQuarantined(_ summary: StoredMessageSummary) -> SkippedMessage {
        .init(
            id: summary.sequence.rawValue, code: "not-quarantined",
            message: "message \(summary.sequence) is not quarantined, so it needs no retry")
    }
}
