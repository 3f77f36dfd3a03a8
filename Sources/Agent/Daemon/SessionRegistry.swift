import Configuration
import ControlAPI
import DurableStore
import Logging
import MQTT
import NIOCore
import NetworkPath
import Session
import SessionCore
import Systemd
import Transport
import Vocabulary

/// All sessions of the daemon, what happens to them, and who watches.
actor SessionRegistry {
    enum Entry {
        case running(SessionDriver)
        /// The session's file has errors; nothing is known of the session but these.
        case broken(ConfigurationErrors, since: RFC3339)
        /// The session's state could not be read for the start.
        case unreadable(String, since: RFC3339)

        /// Why there is no session; `nil` if there is one.
        var reason: Reason? {
            switch self {
            case .running: nil
            case .broken(let errors, _): Reason(.badConfiguration, errors.summary)
            case .unreadable(let sentence, _): Reason(.unknown, sentence)
            }
        }
    }

    struct Watcher {
        var session: SessionName?
        var deliver: @Sendable (SessionEvent) -> Void
    }

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    var surroundings: SessionDriver.Surroundings?
    var clock: HostClock { surroundings?.clock ?? .system }
    let logger: Logger
    private let notifier: StatusNotifier
    var entries: [SessionName: Entry] = [:]
    /// What is wrong with the files of sessions that run with the configuration from before.
    var rejected: [SessionName: ConfigurationErrors] = [:]
    /// Sessions that are being restarted, with the callers that wait for them.
    var changing: [SessionName: [CheckedContinuation<Void, Never>]] = [:]
    /// The programs that subscribe to sessions that do not run at the moment, in case they come back.
    var parked: [SessionName: ParkedConsumers] = [:]
    private var events = EventLog()
    private var overruns = HourlyCount()
    private(set) var metrics = EventMetrics()
    private var history = HistoryRecorder()
    private var historyQueue: HistoryQueue?
    private(set) var watchers: [WatchID: Watcher] = [:]
    private var lastWatch = 0
    private var lastSubscription = 0
    /// How many configurations were tried that are no session's.
    var drafts = 0
    var isStopping = false
    var isReloading = false
    /// Called when the sessions are others than before.
    var sessionsChanged: @Sendable () -> Void = {}

    init(notifier: StatusNotifier, logger: Logger, eventLoop: any EventLoop) {
        self.notifier = notifier
        self.logger = logger
        self.eventLoop = eventLoop
    }

    // MARK: Life

    /// Takes up all sessions. Called once, before anything else.
    func start(
        _ sessions: [SessionName: Result<SessionConfiguration, ConfigurationErrors>],
        in surroundings: SessionDriver.Surroundings
    ) async throws(StoreError) {
        self.surroundings = surroundings
        historyQueue = HistoryQueue(store: surroundings.store, logger: logger, eventLoop: eventLoop)
        for name in sessions.keys.sorted() { try await recordEndBefore(name, surroundings.store) }
        for (name, result) in sessions.sorted(by: { $0.key < $1.key }) {
            switch result {
            case .success(let configuration):
                do throws(StoreError) {
                    try await start(name, configuration)
                } catch {
                    // What is wrong with the rows of one session is no reason for the others to be down.
                    guard case .damaged = error else { throw error }
                    list(name, as: unreadable(name, error))
                }
            case .failure(let errors): listBroken(name, errors)
            }
        }
        statusMayHaveChanged()
    }

    /// What of a session's durable state another configuration is the end of.
    enum Obsolete {
        /// A terminal state. An explicit disconnect stays.
        case failure
        /// The session at the server, which knows this one by another client id.
        case sessionAtServer
    }

    /// - Parameter decided: what the driver before this one knew of a disconnect or a failure, if there was one: it may not be
    ///   on the disk yet.
    func start(
        _ name: SessionName, _ configuration: SessionConfiguration, wasUp: Bool = false,
        without obsolete: Set<Obsolete> = [], decided: Verdict?? = nil
    ) async throws(StoreError) {
        guard var surroundings else { preconditionFailure("sessions are started with their surroundings") }
        surroundings.report = { [weak self] session, event in
            self?.assumeIsolated { $0.report(session, event) }
        }
        surroundings.noteAlive = { [weak self] in
            self?.assumeIsolated { registry in
                let now = registry.clock.now()
                registry.historyQueue?.assumeIsolated { $0.noteAlive(at: now) }
            }
        }
        var stored = try await surroundings.store.session(name)
        if let decided { stored.verdict = decided }
        var changes: [SessionChange] = []
        if obsolete.contains(.failure), stored.verdict?.isFailure == true {
            stored.verdict = nil
            changes.append(.setVerdict(nil))
        }
        if obsolete.contains(.sessionAtServer) {
            stored.mqtt.established = false
            changes.append(.mqtt(.setEstablished(false)))
        }
        // Before whatever the driver commits.
        if !changes.isEmpty { await surroundings.commits.commit(changes, of: name) { _ in } }
        guard !isStopping else { return }
        let driver = SessionDriver(
            name: name, configuration: configuration, stored: stored,
            parked: parked.removeValue(forKey: name) ?? ParkedConsumers(), surroundings: surroundings)
        entries[name] = .running(driver)
        await driver.start(stored, wasUp: wasUp)
        record(history.started(await driver.status(), name, at: clock.wallClock()))
    }

    func unreadable(_ name: SessionName, _ error: StoreError) -> Entry {
        .unreadable("the state of session \(name) cannot be read: \(error)", since: clock.wallClock())
    }

    func listBroken(_ name: SessionName, _ errors: ConfigurationErrors) {
        list(name, as: .broken(errors, since: clock.wallClock()))
    }

    func list(_ name: SessionName, as entry: Entry) {
        guard let reason = entry.reason else { preconditionFailure("a session that runs lists itself") }
        entries[name] = entry
        var event = SessionEvent(
            watch: .init(rawValue: ""), sequence: 0, time: clock.wallClock(), session: name.description,
            event: .stateChanged)
        event.state = .failed
        event.reason = .init(reason, Remedies(session: name, configuration: nil))
        report(name, event)
        logger.error(
            "\(name): failed (\(reason.code.rawValue)): \(reason.message)",
            metadata: [
                "MESSAGE_ID": "\(MessageID.failed)", "HOLDFAST_SESSION": "\(name)", "HOLDFAST_STATE": "failed",
                "HOLDFAST_REASON": "\(reason.code.rawValue)",
            ])
    }

    /// Brings all sessions down gracefully, all at once.
    func stop() async {
        isStopping = true
        await withTaskGroup(of: Void.self) { group in
            for case .running(let driver) in entries.values {
                group.addTask { _ = await driver.stop(.shutdown) }
            }
        }
        for entry in history.stopped(at: clock.wallClock()) { record(entry) }
        await historyQueue?.everythingRecorded()
    }

    /// Whether some session leaves its server before the host sleeps.
    var leaveBeforeSleep: Bool {
        entries.values.contains { entry in
            if case .running(let driver) = entry { driver.configuration.onSuspend == .disconnect } else { false }
        }
    }

    /// The host is about to sleep; returns when all sessions that leave before it are down.
    func hostWillSleep() async {
        await withTaskGroup(of: Void.self) { group in
            for case .running(let driver) in entries.values {
                group.addTask { await driver.hostWillSleep() }
            }
        }
    }

    /// The host is awake.
    ///
    /// - Parameter slept: for how long it was not; zero when it did not come to that.
    func hostWoke(slept: Duration) {
        for case .running(let driver) in entries.values { driver.assumeIsolated { $0.hostWoke(slept: slept) } }
    }

    /// The kernel dropped news of the network. One is told in an hour.
    func netlinkOverrun() {
        guard let more = overruns.take(at: clock.now()) else { return }
        logger.notice(
            "the network changed faster than it could be read, so the whole state was read again\(HourlyCount.text(more: more))",
            metadata: ["MESSAGE_ID": "\(MessageID.netlinkOverrun)"])
    }

    /// The host's clock was set.
    func clockStepped() {
        for case .running(let driver) in entries.values { driver.assumeIsolated { $0.clockStepped() } }
    }

    // MARK: Looking things up

    /// Waits while the session is being restarted.
    /// - Throws: `unknown-session`, or `wrong-state` when its configuration is broken.
    func driver(_ name: String) async throws(RPCError) -> SessionDriver {
        while !isStopping, let session = SessionName(name), changing[session] != nil {
            await withCheckedContinuation { continuation in
                if changing[session] == nil { continuation.resume() } else { changing[session]?.append(continuation) }
            }
        }
        guard !isStopping else { throw .shuttingDown }
        return try runningDriver(name)
    }

    /// As ``driver(_:)``, at once.
    /// - Returns: `nil` if the session has to be waited for.
    func driverNow(_ name: String) throws(RPCError) -> SessionDriver? {
        guard !isStopping else { throw .shuttingDown }
        if let session = SessionName(name), changing[session] != nil { return nil }
        return try runningDriver(name)
    }

    func runningDriver(_ name: String) throws(RPCError) -> SessionDriver {
        switch try entry(name) {
        case .running(let driver):
            return driver
        case .broken(let errors, _):
            throw .wrongState(
                name, is: "failed (bad-configuration)",
                hint: "\(errors.summary); correct it, then holdfastctl reload")
        case .unreadable(let sentence, _):
            throw .wrongState(name, is: "failed", hint: "\(sentence); holdfastctl reload tries again")
        }
    }

    private func entry(_ text: String) throws(RPCError) -> Entry {
        guard let name = SessionName(text), let entry = entries[name] else {
            throw .unknownSession(text, among: entries.keys.map(\.description))
        }
        return entry
    }

    func status(_ name: String) throws(RPCError) -> SessionStatus {
        status(of: try sessionName(name), try entry(name))
    }

    func statuses() -> [SessionStatus] {
        entries.sorted { $0.key < $1.key }.map { status(of: $0.key, $0.value) }
    }

    private func sessionName(_ text: String) throws(RPCError) -> SessionName {
        guard let name = SessionName(text) else {
            throw .unknownSession(text, among: entries.keys.map(\.description))
        }
        return name
    }

    private func status(of name: SessionName, _ entry: Entry) -> SessionStatus {
        switch entry {
        case .running(let driver):
            var status = driver.assumeIsolated { $0.status() }
            status.configurationError = rejected[name]?.summary
            return status
        case .broken(let errors, let since):
            return SessionStatus(
                session: name.description, state: .failed, since: since,
                reason: .init(
                    Reason(.badConfiguration, errors.summary), Remedies(session: name, configuration: nil)))
        case .unreadable(let sentence, let since):
            return SessionStatus(
                session: name.description, state: .failed, since: since,
                reason: .init(Reason(.unknown, sentence), Remedies(session: name, configuration: nil)))
        }
    }

    var endpoints: [String: [Endpoint]] {
        entries.reduce(into: [:]) { result, element in
            if case .running(let driver) = element.value {
                result[element.key.description] = driver.configuration.endpoints
            }
        }
    }

    // MARK: Events

    /// Takes what a session reports; `nil` when only numbers changed.
    func report(_ session: SessionName, _ event: SessionEvent?) {
        if let event {
            record(history.take(session, event))
            metrics.take(session.description, event)
            let numbered = events.append(event)
            for (id, watcher) in watchers where watcher.session == nil || watcher.session == session {
                var own = numbered
                own.watch = id
                watcher.deliver(own)
            }
        } else if entries.count > 1 {
            // The line of several sessions has none of the numbers: with a thousand of them it would be made, of all, for
            // each heartbeat of each.
            return
        }
        statusMayHaveChanged()
    }

    func statusMayHaveChanged() {
        let statuses: @Sendable () -> [SessionStatus] = { [weak self] in self?.assumeIsolated { $0.statuses() } ?? [] }
        notifier.assumeIsolated { $0.statusMayHaveChanged(statuses) }
    }

    func pathChanged(_ change: PathChange) {
        guard let name = SessionName(change.target.session), case .running(let driver)? = entries[name] else { return }
        driver.assumeIsolated { $0.pathChanged(change) }
    }

    /// Adds a watcher: the answer has the snapshot, together with the events after `since` that are still kept. They
    /// begin with `dropped` if some are no longer kept.
    func watch(
        _ session: String?, since: Int64?, epoch: String? = nil, deliver: @escaping @Sendable (SessionEvent) -> Void
    ) -> Result<(SessionWatchMethod.Result, missed: [SessionEvent]), RPCError> {
        // What the snapshot contains must not follow as an event.
        for case .running(let driver) in entries.values { driver.assumeIsolated { $0.tell() } }
        let statuses: [SessionStatus]
        do throws(RPCError) {
            statuses = try session.map { text throws(RPCError) in [try status(text)] } ?? self.statuses()
        } catch {
            return .failure(error)
        }
        lastWatch += 1
        let id = WatchID(rawValue: "w\(lastWatch)")
        watchers[id] = Watcher(session: session.flatMap { SessionName($0) }, deliver: deliver)
        // Numbers start again with each daemon: one of another epoch says nothing about this one's events.
        let isForeign = since.map { $0 > events.sequence || (epoch ?? events.epoch) != events.epoch } ?? false
        let result = SessionWatchMethod.Result(
            watch: id, snapshot: SessionSnapshot(sessions: statuses), sequence: events.sequence, epoch: events.epoch,
            restarted: isForeign)
        let after = isForeign ? 0 : since
        return .success((result, missed: after.map { missed(after: $0, session: session, by: id) } ?? []))
    }

    private func missed(after sequence: Int64, session: String?, by id: WatchID) -> [SessionEvent] {
        let (kept, forgotten) = events.events(since: sequence)
        var missed = kept.filter { session == nil || $0.session == session }
        if forgotten > 0 {
            var event = SessionEvent(
                watch: id, sequence: max(0, sequence) + forgotten, time: clock.wallClock(), session: nil,
                event: .dropped)
            event.count = Int(forgotten)
            missed.insert(event, at: 0)
        }
        for index in missed.indices { missed[index].watch = id }
        return missed
    }

    func removeWatch(_ id: WatchID) {
        watchers[id] = nil
    }

    // MARK: History

    private func record(_ entry: HistoryEntry?) {
        guard let entry else { return }
        historyQueue?.assumeIsolated { $0.record(entry) }
    }

    /// A daemon that was killed, or lost its power, could not record its end.
    private func recordEndBefore(_ name: SessionName, _ store: any SessionStore) async throws(StoreError) {
        let newest = try await store.history(session: name, since: nil, until: nil, limit: 1)
        guard let last = newest.last else { return }
        record(
            HistoryRecorder.unrecordedEnd(
                after: last, lastAlive: store.openReport.lastAlive,
                now: Timestamp(rawValue: clock.wallClock().milliseconds)))
    }

    /// How many entries are read at once: commits must not wait for more.
    private static let historyPage = 256

    /// The answer of `session.history`. It is read and written in pages; nothing of it is kept but the line.
    func history(
        _ wanted: SessionHistoryMethod.Parameters, for id: RequestID
    ) async throws(RPCError) -> [UInt8] {
        guard let surroundings else { throw .shuttingDown }
        let name = wanted.session.flatMap { SessionName($0) }
        await historyQueue?.everythingRecorded()
        // A session that is not configured any more still has a history.
        if let session = wanted.session, name.flatMap({ entries[$0] }) == nil {
            guard let name, try await !page(surroundings.store, name, limit: 1).entries.isEmpty else {
                throw .unknownSession(session, among: entries.keys.map(\.description))
            }
        }
        let configurations = entries.compactMapValues { entry in
            if case .running(let driver) = entry { driver.configuration } else { nil }
        }
        var pages: [[UInt8]] = []
        var (left, before) = (wanted.limit, Int64?.none)
        repeat {
            let page = try await page(
                surroundings.store, name, since: wanted.since, until: wanted.until, before: before,
                limit: min(left, Self.historyPage))
            if !page.entries.isEmpty { pages.append(await Self.elements(page.entries, configurations)) }
            left -= page.entries.count
            before = page.next
            // The caller does not wait for the remaining pages.
            if Task.isCancelled { throw .shuttingDown }
        } while before != nil && left > 0
        return OutgoingLine.answer(id, list: "entries", pages: pages.reversed())
    }

    /// Writing JSON takes a while, and the sessions must not wait for it.
    @concurrent private static func elements(
        _ entries: [HistoryEntry], _ configurations: [SessionName: SessionConfiguration]
    ) async -> [UInt8] {
        OutgoingLine.elements(entries.compactMap { SessionHistoryEntry($0, configurations[$0.session]) })
    }

    private func page(
        _ store: any SessionStore, _ session: SessionName?, since: RFC3339? = nil, until: RFC3339? = nil,
        before: Int64? = nil, limit: Int
    ) async throws(RPCError) -> HistoryPage {
        do throws(StoreError) {
            return try await store.historyPage(
                session: session, since: since.map { Timestamp(rawValue: $0.milliseconds) },
                until: until.map { Timestamp(rawValue: $0.milliseconds) }, before: before, limit: limit)
        } catch {
            throw .internalError("the history cannot be read: \(error)")
        }
    }

    // MARK: Consumers

    func nextSubscription() -> SubscriptionID {
        lastSubscription += 1
        return SubscriptionID(rawValue: "s\(lastSubscription)")
    }

    func unsubscribe(_ id: SubscriptionID, from session: SessionName) {
        _ = parked[session]?.live.remove(id)
        parked[session]?.subscribers[id] = nil
        if parked[session]?.isEmpty == true { parked[session] = nil }
        guard case .running(let driver)? = entries[session] else { return }
        driver.assumeIsolated { $0.unsubscribe(id) }
    }

    /// The program of a durable consumer is gone.
    func detach(_ id: SubscriptionID, from session: SessionName) {
        if let name = parked[session]?.attached.first(where: { $0.value.subscription == id })?.key {
            parked[session]?.attached[name] = nil
            parked[session]?.subscribers[id] = nil
        }
        if parked[session]?.isEmpty == true { parked[session] = nil }
        guard case .running(let driver)? = entries[session] else { return }
        driver.assumeIsolated { $0.detach(id) }
    }

    /// A program that takes messages of durable consumers has read.
    func loadConsumers(of session: SessionName) {
        guard case .running(let driver)? = entries[session] else { return }
        driver.assumeIsolated { $0.loadConsumers() }
    }

    /// Answers when every session's driver has.
    func answer() async {
        for case .running(let driver) in entries.values { _ = await driver.status() }
    }
}
