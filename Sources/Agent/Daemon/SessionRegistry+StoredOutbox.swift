import ControlAPI
import DurableStore
import MQTT
import Session
import SessionCore

// What the store has of sessions that do not run, or are not configured any more, and what people decide about it. Nothing
// else changes it meanwhile. The decisions are those of a protocol machine that never connects.

extension SessionRegistry {
    /// Returns what waits in the outbox and the inbox of a session that does not run.
    func storedCounts(of name: SessionName) async -> StoredCounts {
        guard let surroundings, !name.isTemplate else { return .init() }
        let store = surroundings.store
        do throws(StoreError) {
            return try await surroundings.commits.watch.answer { () throws(StoreError) in
                let stored = try await store.session(name).mqtt
                let first = try await store.summaries(name, .queued, after: .zero, limit: 1)
                return StoredCounts(stored, firstQueued: first.first)
            }
        } catch {
            return .init(outbox: .init(unknown: "\(error)"))
        }
    }

    /// Lists the outbox of a session, also of one that does not run.
    func queueList(
        _ wanted: MessageQueueListMethod.Parameters
    ) async throws(RPCError) -> MessageQueueListMethod.Result {
        guard let name = await unstarted(wanted.session), let surroundings else {
            return try await driver(wanted.session).queueList(wanted)
        }
        let found = try await surroundings.readOutbox(of: name) { store throws(StoreError) in
            try await store.summaries(
                name, .init(wanted.state), after: .init(rawValue: wanted.after ?? 0), limit: wanted.limit + 1)
        }
        return .init(page: found, limit: wanted.limit)
    }

    /// - Parameter rights: those of the caller.
    func queueRetry(
        _ wanted: MessageQueueParameters, by rights: TopicRights
    ) async throws(RPCError) -> MessageQueueRetryMethod.Result {
        guard let decided = try await decide(wanted, isRetry: true) else {
            return try await driver(wanted.session).queueRetry(wanted, by: rights)
        }
        return .init(
            retried: decided.done.map { .init(id: $0.before.rawValue, newID: $0.now.rawValue) },
            skipped: decided.skipped, more: decided.more)
    }

    func queueDrop(_ wanted: MessageQueueParameters) async throws(RPCError) -> MessageQueueDropMethod.Result {
        if wanted.selection == .all(.everything) { return try await dropEverything(of: wanted.session) }
        guard let decided = try await decide(wanted, isRetry: false) else {
            return try await driver(wanted.session).queueDrop(wanted)
        }
        return .init(dropped: decided.done.map(\.before.rawValue), skipped: decided.skipped, more: decided.more)
    }

    /// Drops some messages of a session that is not configured, or was not started since, and once there are none,
    /// everything else that is on disk of it.
    private func dropEverything(of session: String) async throws(RPCError) -> MessageQueueDropMethod.Result {
        let refusal = RPCError.invalidParameters(
            "everything can only be dropped of a session that is not configured, or was not started since")
        guard let name = await unstarted(session), let surroundings else {
            _ = try status(session)
            throw refusal
        }
        if entries[name] != nil {
            guard try await storedState(of: name, surroundings).wasAbsent else { throw refusal }
        }
        let found = try await surroundings.readOutbox(of: name) { store throws(StoreError) in
            try await store.summaries(name, .init(QueuedMessageState?.none), after: .zero, limit: 1000)
        }
        if !found.isEmpty {
            let ids = MessageSelection.ids(found.map(\.sequence.rawValue))
            guard let decided = try await decide(.init(session: session, selection: ids), isRetry: false) else {
                throw .sessionIsRestarting
            }
            var isLeft = true
            if entries[name] == nil, let absent = await absentSessions() {
                isLeft = absent.contains { $0.session == session }
            }
            return .init(
                dropped: decided.done.map(\.before.rawValue), skipped: decided.skipped,
                more: !decided.done.isEmpty && isLeft)
        }
        // Nothing starts the session meanwhile.
        await takeTurn()
        defer { endTurn() }
        guard !isStopping else { throw .shuttingDown }
        guard running(name) == nil else { throw .sessionIsRestarting }
        let stored = try await storedState(of: name, surroundings)
        let changes: [SessionChange] =
            stored.mqtt.consumers.map { .mqtt(.removeConsumer($0.name)) }
            + stored.publications.map { .removePublication($0.topic) }
            + stored.retainedTopics.map { .forgetRetained($0) }
        if !changes.isEmpty { await surroundings.commits.commit(changes, of: name) { _ in } }
        try await everythingDurable(of: name, surroundings, isDecided: true)
        await countStored(of: name)
        let inbox = StoredCounts(stored.mqtt, firstQueued: nil).inbox
        return .init(
            dropped: [], skipped: [], more: false,
            rest: .init(
                consumers: inbox.consumers.count, received: inbox.messages, publications: stored.publications.count))
    }

    private func storedState(
        of name: SessionName, _ surroundings: SessionDriver.Surroundings
    ) async throws(RPCError) -> StoredSession {
        try await surroundings.readOutbox(of: name) { store throws(StoreError) in try await store.session(name) }
    }

    // MARK: Decisions

    private struct Decided {
        var done: [(before: MessageSequence, now: MessageSequence)] = []
        var skipped: [SkippedMessage]
        var more: Bool
    }

    /// Decides about messages of a session that does not run; `nil` if it runs.
    private func decide(_ wanted: MessageQueueParameters, isRetry: Bool) async throws(RPCError) -> Decided? {
        guard let name = await unstarted(wanted.session), let surroundings else { return nil }
        // Nothing starts the session meanwhile.
        await takeTurn()
        defer { endTurn() }
        guard !isStopping else { throw .shuttingDown }
        if case .running? = entries[name] { return nil }
        try await everythingDurable(of: name, surroundings, isDecided: false)
        let (stored, found) = try await surroundings.readOutbox(of: name) { store throws(StoreError) in
            (try await store.session(name).mqtt, try await store.summaries(name, chosenBy: wanted.selection))
        }
        var machine = MQTTClientMachine(configuration: .init(clientID: name.description), restoring: stored)
        let choice = Session.MessageChoice(wanted.selection, found: found, isRetry: isRetry)
        var decided = Decided(skipped: choice.skipped, more: choice.more)
        for summary in choice.messages {
            var actions: [MQTTClientMachine.Action] = []
            let decision: Session.Decision
            if isRetry {
                let message = try await surroundings.readOutbox(of: name) { store throws(StoreError) in
                    try await store.message(name, summary.sequence)
                }
                guard let message else { continue }
                decision = machine.retry(message, of: name, at: clock.wallClock(), into: &actions)
            } else {
                decision = machine.drop(summary, at: clock.wallClock(), into: &actions)
            }
            for action in actions { await carryOut(action, of: name, surroundings) }
            switch decision {
            case .done(let sequence): decided.done.append((summary.sequence, sequence))
            case .skipped(let message): decided.skipped.append(message)
            }
        }
        // The next call would find the skipped messages again.
        if case .all = wanted.selection, decided.done.isEmpty { decided.more = false }
        do throws(RPCError) {
            try await everythingDurable(of: name, surroundings, isDecided: true)
        } catch {
            await surroundings.commits.commit([], of: name) { [weak self] _ in
                Task { await self?.decisionIsDurable(of: name) }
            }
            throw error
        }
        await countStored(of: name)
        // Nothing shows what is counted of a session that does not exist.
        if entries[name] == nil { metrics.forget(name.description) }
        return decided
    }

    /// The store works again, after the caller was told that the decision is not on disk yet.
    private func decisionIsDurable(of name: SessionName) async {
        await takeTurn()
        defer { endTurn() }
        if !isStopping { await countStored(of: name) }
    }

    /// Brings the counts of a session that does not run up to date.
    private func countStored(of name: SessionName) async {
        guard case .failed(let obstacle, let since, _)? = entries[name] else { return }
        entries[name] = .failed(obstacle, since: since, stored: await storedCounts(of: name))
        report(name, nil)
    }

    private func carryOut(
        _ action: MQTTClientMachine.Action, of name: SessionName, _ surroundings: SessionDriver.Surroundings
    ) async {
        switch action {
        case .commit(let changes, _):
            await surroundings.commits.commit(changes.map { .mqtt($0) }, of: name) { _ in }
        case .event(.dropped(let message)):
            var event = SessionEvent(time: clock.wallClock(), session: name.description, event: .messageDropped)
            event.id = message.sequence.rawValue
            event.topic = message.topic
            event.reason = .init(message.reason)
            report(name, event)
        // Nothing is loaded or sent, since there is no connection.
        case .event, .load, .send, .close: break
        }
    }

    // MARK: Reading

    /// Returns the name of a session that does not run, or of one that is not configured and has messages on disk; `nil`
    /// if it runs, or is just being started.
    private func unstarted(_ text: String) async -> SessionName? {
        guard let name = SessionName(text), changing[name] == nil, surroundings != nil else { return nil }
        switch entries[name] {
        case .running?: return nil
        case .failed?: return name
        case nil:
            // While the disk does not answer, the caller is told that.
            let isAbsent = await absentSessions()?.contains { $0.session == text } ?? true
            return isAbsent && changing[name] == nil && entries[name] == nil ? name : nil
        }
    }

    /// - Throws: if the disk takes nothing at the moment, or does not answer.
    private func everythingDurable(
        of name: SessionName, _ surroundings: SessionDriver.Surroundings, isDecided: Bool
    ) async throws(RPCError) {
        let commits = surroundings.commits
        let failure = await withCheckedContinuation { continuation in
            commits.assumeIsolated { $0.barrier(name, isPatient: false) { continuation.resume(returning: $0) } }
        }
        guard let failure else { return }
        throw isDecided
            ? .notDurableYet("the decision", because: failure.description)
            : .notCommitted("the decision", because: failure.description)
    }
}

/// What the store has of a session that does not run.
struct StoredCounts {
    var outbox = SessionStatus.Outbox()
    var inbox = SessionStatus.Inbox()
}

extension StoredCounts {
    /// - Parameter firstQueued: the first message that is queued.
    init(_ stored: DurableSession, firstQueued: StoredMessageSummary?) {
        let times = [firstQueued?.acceptedAt].compactMap(\.self) + stored.inFlight.map(\.message.acceptedAt)
        outbox = SessionStatus.Outbox(
            queued: stored.queuedCount, inFlight: stored.inFlight.count, quarantined: stored.quarantinedCount,
            bytes: Int64(
                stored.queuedBytes + stored.quarantinedBytes + stored.inFlight.reduce(0) { $0 + $1.message.size }),
            oldest: times.min())
        let consumers = stored.consumers.sorted { $0.name < $1.name }.map { consumer in
            SessionStatus.Inbox.Consumer(
                name: consumer.name.description, filter: consumer.filter, qos: consumer.qos, attached: false,
                messages: consumer.runs.reduce(0) { $0 + $1.messages },
                bytes: Int64(consumer.runs.reduce(0) { $0 + $1.bytes }), missed: consumer.missed)
        }
        inbox = SessionStatus.Inbox(
            messages: consumers.reduce(0) { $0 + $1.messages }, bytes: consumers.reduce(0) { $0 + $1.bytes },
            consumers: consumers)
    }
}
