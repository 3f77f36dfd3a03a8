import ControlAPI
import HoldfastClient
import Support

/// What a watch of one session has reported: its events and, at the beginning and after restarts, snapshots.
///
/// A test reads them in order: `until` skips what does not match and never goes back.
actor EventFeed {
    /// The kind of an event that represents a session in a snapshot.
    static let snapshot = SessionEvent.Kind(rawValue: "snapshot")

    private let session: String
    private let record: EventRecord
    private var events: [SessionEvent] = []
    private var position = 0
    private var waiter:
        (isWanted: @Sendable (SessionEvent) -> Bool, continuation: CheckedContinuation<SessionEvent?, Never>)?
    private var reader: Task<Void, Never>?

    init(_ client: HoldfastClient, session: String, record: EventRecord) async throws {
        self.session = session
        self.record = record
        let watch = try await client.watch(session: session)
        reader = Task { [weak self] in
            do {
                for try await element in watch { await self?.take(element) }
            } catch {
                await record.add("\(session): the watch ended: \(error)")
            }
        }
    }

    deinit {
        reader?.cancel()
    }

    private func take(_ element: SessionWatch.Element) async {
        switch element {
        case .snapshot(let result):
            for status in result.snapshot.sessions { await add(SessionEvent(status, result)) }
        case .event(let event):
            await add(event)
        case .detached(let error):
            await record.add("\(session): detached: \(error)")
        case .dropped(let count):
            await record.add("\(session): \(count) events dropped")
        }
    }

    private func add(_ event: SessionEvent) async {
        events.append(event)
        resumeWaiter()
        await record.add(event.line)
    }

    private func resumeWaiter() {
        guard let waiter else { return }
        guard let event = next(waiter.isWanted) else { return }
        self.waiter = nil
        waiter.continuation.resume(returning: event)
    }

    private func next(_ isWanted: (SessionEvent) -> Bool) -> SessionEvent? {
        guard let index = events[position...].firstIndex(where: isWanted) else { return nil }
        position = index + 1
        return events[index]
    }

    /// Waits for the next event that matches.
    @discardableResult
    func until(
        _ what: String, within limit: Duration = .seconds(180), _ isWanted: @escaping @Sendable (SessionEvent) -> Bool
    ) async throws -> SessionEvent {
        precondition(waiter == nil, "a feed is read by one test")
        if let event = next(isWanted) { return event }
        let timer = Task {
            try await Patience.last(limit)
            self.giveUp()
        }
        defer { timer.cancel() }
        guard let event = await withCheckedContinuation({ waiter = (isWanted, $0) }) else {
            throw Lab.Failure("\(session) was not \(what) within \(limit)")
        }
        return event
    }

    private func giveUp() {
        waiter?.continuation.resume(returning: nil)
        waiter = nil
    }

    /// Waits until the session is in a state.
    @discardableResult
    func until(_ state: SessionState, within limit: Duration = .seconds(180)) async throws -> SessionEvent {
        try await until(state.rawValue, within: limit) { $0.state == state }
    }

    /// Waits until the session is in a phase.
    @discardableResult
    func until(_ phase: Phase) async throws -> SessionEvent {
        try await until(phase.rawValue) { $0.phase == phase }
    }

    /// Returns everything that was reported since the last event that was waited for; none of it is looked at again.
    func rest() -> [SessionEvent] {
        defer { position = events.count }
        return Array(events[position...])
    }

    /// Everything that was reported so far.
    var all: [SessionEvent] { events }
}

/// The events of all feeds of a test, as lines for the message of a failure.
actor EventRecord {
    private var lines: [String] = []

    func add(_ line: String) {
        lines.append(line)
    }

    var text: String { lines.suffix(60).joined(separator: "\n") }
}

extension SessionEvent {
    /// Makes an event of a session in a snapshot.
    init(_ status: SessionStatus, _ result: SessionWatchMethod.Result) {
        self.init(
            watch: result.watch, sequence: result.sequence, time: status.since, session: status.session,
            event: EventFeed.snapshot)
        state = status.state
        phase = status.phase
        mode = status.mode
        resumed = status.resumed
        attempt = status.attempt
        retryIn = status.retryIn
        reason = status.reason
        path = status.path
    }

    var line: String {
        let parts: [String?] = [
            time.description, session, event.rawValue, from.map { "\($0.rawValue) →" }, state?.rawValue,
            phase?.rawValue, mode?.rawValue, resumed.map { $0 ? "resumed" : "not resumed" },
            attempt.map { "attempt \($0)" },
            retryIn.map { "in \($0) s" }, reason?.code, change, outage.map { "outage \($0) s" }, path?.source,
        ]
        return parts.compactMap(\.self).joined(separator: " ")
    }
}
