import ControlAPI
import DurableStore
import Logging
import MQTT
import NIOCore
import NetworkPath
import SessionCore
import Systemd
import Transport

/// All sessions of the daemon, what happens to them, and who watches.
actor SessionRegistry {
    private enum Entry {
        case running(SessionDriver)
        /// The session's file has errors; nothing is known of the session but these.
        case broken(ConfigurationErrors, since: RFC3339)
    }

    private struct Watcher {
        var session: SessionName?
        var deliver: @Sendable (SessionEvent) -> Void
    }

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private var surroundings: SessionDriver.Surroundings?
    private var clock: HostClock { surroundings?.clock ?? .system }
    private let logger: Logger
    private let notifier: StatusNotifier
    private var entries: [SessionName: Entry] = [:]
    /// Sessions that are stopped and started anew, with those who wait for that to ask for something.
    private var changing: [SessionName: [CheckedContinuation<Void, Never>]] = [:]
    /// The programs that subscribe to sessions that do not run at the moment, in case they come back.
    private var parked: [SessionName: ParkedConsumers] = [:]
    private var events = EventLog()
    private var history = HistoryRecorder()
    private var historyQueue: HistoryQueue?
    private var watchers: [WatchID: Watcher] = [:]
    private var lastWatch = 0
    private var lastSubscription = 0
    private var isStopping = false
    private var isReloading = false
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
            case .success(let configuration): try await start(name, configuration)
            case .failure(let errors): listBroken(name, errors)
            }
        }
        statusMayHaveChanged()
    }

    private func start(
        _ name: SessionName, _ configuration: SessionConfiguration, wasUp: Bool = false
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
        let durable = try await surroundings.store.session(name)
        let verdict = try await surroundings.store.verdict(name)
        var chosenRoom = try await surroundings.store.chosenRoom(name)
        // A reboot, and a file that names another room since, are the end of it.
        if let chosen = chosenRoom, chosen.bootID != surroundings.bootID || chosen.configured != configuration.room {
            chosenRoom = nil
            try await surroundings.store.setChosenRoom(name, nil)
        }
        guard !isStopping else { return }
        let driver = SessionDriver(
            name: name, configuration: configuration, durable: durable,
            parked: parked.removeValue(forKey: name) ?? ParkedConsumers(), surroundings: surroundings)
        entries[name] = .running(driver)
        await driver.start(verdict: verdict, chosenRoom: chosenRoom, wasUp: wasUp)
        record(history.started(await driver.status(), name, at: clock.wallClock()))
    }

    private func listBroken(_ name: SessionName, _ errors: ConfigurationErrors) {
        entries[name] = .broken(errors, since: clock.wallClock())
        var event = SessionEvent(
            watch: .init(rawValue: ""), sequence: 0, time: clock.wallClock(), session: name.description,
            event: .stateChanged)
        event.state = .failed
        event.reason = .init(Reason(.badConfiguration, errors.description))
        report(name, event)
        logger.error(
            "\(name): failed (bad-configuration): \(errors)",
            metadata: [
                "MESSAGE_ID": "\(MessageID.failed)", "HOLDFAST_SESSION": "\(name)", "HOLDFAST_STATE": "failed",
                "HOLDFAST_REASON": "bad-configuration",
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

    /// The host's clock was set.
    func clockStepped() {
        for case .running(let driver) in entries.values { driver.assumeIsolated { $0.clockStepped() } }
    }

    /// - Throws: when a reload would be refused.
    func checkReload() throws(RPCError) {
        guard !isStopping else { throw .shuttingDown }
        guard !isReloading else { throw .tooManyRequests("a reload is under way") }
    }

    /// Applies another configuration: sessions that are new, changed and gone; the others do not notice.
    func apply(_ loaded: LoadedConfiguration) async throws(RPCError) -> DaemonReloadMethod.Result {
        try checkReload()
        isReloading = true
        defer {
            isReloading = false
            sessionsChanged()
        }
        var result = DaemonReloadMethod.Result()
        for (name, entry) in entries.sorted(by: { $0.key < $1.key }) where loaded.sessions[name] == nil {
            if case .running(let driver) = entry { await stop(driver, .configurationChanged, forGood: true) }
            entries[name] = nil
            changed(name)
            result.removed.append(name.description)
        }
        for (name, configuration) in loaded.sessions.sorted(by: { $0.key < $1.key }) {
            defer { changed(name) }
            do throws(StoreError) {
                try await apply(configuration, to: name, &result)
            } catch {
                throw .internalError("the state of session \(name) cannot be read: \(error)")
            }
        }
        result.errors = loaded.errors.map { error in
            ConfigurationProblem(
                session: loaded.session(of: error)?.description, file: error.file, line: error.line,
                column: error.column,
                message: error.message + (error.suggestion.map { "; did you mean \"\($0)\"?" } ?? ""))
        }
        statusMayHaveChanged()
        return result
    }

    private func apply(
        _ configuration: Result<SessionConfiguration, ConfigurationErrors>, to name: SessionName,
        _ result: inout DaemonReloadMethod.Result
    ) async throws(StoreError) {
        switch (entries[name], configuration) {
        case (.running(let driver)?, .success(let new)):
            guard driver.configuration != new else { return }
            let state = await driver.machine.status.state
            // Another server gets what the session publishes, and the old one shall not keep it.
            let isElsewhere = Set(driver.configuration.endpoints).isDisjoint(with: new.endpoints)
            await stop(driver, .configurationChanged, forGood: isElsewhere)
            try await forgetFailure(of: name)
            // A session that the server may have under another client id was never ours: it is not to be resumed.
            if driver.configuration.clientID != new.clientID {
                try await surroundings?.store.commit([(session: name, changes: [.setEstablished(false)])])
            }
            try await start(name, new, wasUp: state != .disconnected && state != .disconnecting)
            result.changed.append(name.description)
        case (.running(let driver)?, .failure(let errors)):
            await stop(driver, .badConfiguration)
            listBroken(name, errors)
            result.changed.append(name.description)
        case (.broken(let old, _)?, .failure(let errors)):
            if old != errors { listBroken(name, errors) }
        case (.broken?, .success(let new)):
            try await forgetFailure(of: name)
            try await start(name, new)
            result.changed.append(name.description)
        case (nil, .success(let new)):
            try await forgetFailure(of: name)
            try await start(name, new)
            result.added.append(name.description)
        case (nil, .failure(let errors)):
            listBroken(name, errors)
            result.added.append(name.description)
        }
    }

    /// A terminal state is over when the configuration changes; an explicit disconnect is not.
    private func forgetFailure(of name: SessionName) async throws(StoreError) {
        guard let store = surroundings?.store, let verdict = try await store.verdict(name),
            verdict.state == SessionState.failed.rawValue
        else { return }
        try await store.setVerdict(name, nil)
    }

    /// Stops a session whose configuration changed. Until `changed`, whoever asks for it waits.
    private func stop(_ driver: SessionDriver, _ code: SessionCore.ReasonCode, forGood: Bool = false) async {
        changing[driver.name] = []
        let consumers = await driver.stop(code, forGood: forGood)
        parked[driver.name] = consumers.isEmpty ? nil : consumers
    }

    private func changed(_ name: SessionName) {
        for waiter in changing.removeValue(forKey: name) ?? [] { waiter.resume() }
    }

    // MARK: Looking things up

    /// Waits while the session is stopped and started anew.
    /// - Throws: `unknown-session`, or `wrong-state` when its configuration is broken.
    func driver(_ name: String) async throws(RPCError) -> SessionDriver {
        while !isStopping, let session = SessionName(name), changing[session] != nil {
            await withCheckedContinuation { changing[session]?.append($0) }
        }
        guard !isStopping else { throw .shuttingDown }
        return try runningDriver(name)
    }

    func runningDriver(_ name: String) throws(RPCError) -> SessionDriver {
        switch try entry(name) {
        case .running(let driver):
            return driver
        case .broken(let errors, _):
            throw .wrongState(
                name, is: "failed (bad-configuration)",
                hint: "\(errors.description); correct it, then holdfastctl reload")
        }
    }

    private func entry(_ text: String) throws(RPCError) -> Entry {
        guard let name = SessionName(text), let entry = entries[name] else {
            throw .unknownSession(text, among: entries.keys.map(\.description))
        }
        return entry
    }

    func status(_ name: String) throws(RPCError) -> SessionStatus {
        status(of: name, try entry(name))
    }

    func statuses() -> [SessionStatus] {
        entries.sorted { $0.key < $1.key }.map { status(of: $0.key.description, $0.value) }
    }

    private func status(of name: String, _ entry: Entry) -> SessionStatus {
        switch entry {
        case .running(let driver):
            return driver.assumeIsolated { $0.status() }
        case .broken(let errors, let since):
            return SessionStatus(
                session: name, state: .failed, since: since,
                reason: .init(Reason(.badConfiguration, errors.description)))
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
            let numbered = events.append(event)
            for (id, watcher) in watchers where watcher.session == nil || watcher.session == session {
                var own = numbered
                own.watch = id
                watcher.deliver(own)
            }
        }
        statusMayHaveChanged()
    }

    private func statusMayHaveChanged() {
        let statuses: @Sendable () -> [SessionStatus] = { [weak self] in self?.assumeIsolated { $0.statuses() } ?? [] }
        notifier.assumeIsolated { $0.statusMayHaveChanged(statuses) }
    }

    func pathChanged(_ change: PathChange) {
        guard let name = SessionName(change.target.session), case .running(let driver)? = entries[name] else { return }
        driver.assumeIsolated { $0.pathChanged(change) }
    }

    /// Adds a watcher: the answer has the snapshot, and the events after `since` that are still kept come with it. They
    /// begin with `dropped` if some are kept no more.
    func watch(
        _ session: String?, since: Int64?, epoch: String? = nil, deliver: @escaping @Sendable (SessionEvent) -> Void
    ) -> Result<(SessionWatchMethod.Result, missed: [SessionEvent]), RPCError> {
        let statuses: [SessionStatus]
        do throws(RPCError) {
            statuses = try session.map { text throws(RPCError) in [try status(text)] } ?? self.statuses()
        } catch {
            return .failure(error)
        }
        lastWatch += 1
        let id = WatchID(rawValue: "w\(lastWatch)")
        watchers[id] = Watcher(session: session.flatMap { SessionName($0) }, deliver: deliver)
        // Numbers begin anew with the daemon: one of another epoch says nothing about this one's events.
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

    var watchCount: Int { watchers.count }

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

    func history(_ wanted: SessionHistoryMethod.Parameters) async throws(RPCError) -> SessionHistoryMethod.Result {
        guard let surroundings else { throw .shuttingDown }
        let name = wanted.session.flatMap { SessionName($0) }
        await historyQueue?.everythingRecorded()
        // A session that is not configured any more still has a history.
        if let session = wanted.session, name.flatMap({ entries[$0] }) == nil {
            guard let name, try await !stored(surroundings.store, name, limit: 1).isEmpty else {
                throw .unknownSession(session, among: entries.keys.map(\.description))
            }
        }
        let found = try await stored(
            surroundings.store, name, since: wanted.since, until: wanted.until, limit: wanted.limit)
        return SessionHistoryMethod.Result(entries: found.compactMap { SessionHistoryEntry($0) })
    }

    private func stored(
        _ store: any SessionStore, _ session: SessionName?, since: RFC3339? = nil, until: RFC3339? = nil, limit: Int
    ) async throws(RPCError) -> [HistoryEntry] {
        do throws(StoreError) {
            return try await store.history(
                session: session, since: since.map { Timestamp(rawValue: $0.milliseconds) },
                until: until.map { Timestamp(rawValue: $0.milliseconds) }, limit: limit)
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
        if parked[session]?.isEmpty == true { parked[session] = nil }
        guard case .running(let driver)? = entries[session] else { return }
        driver.assumeIsolated { $0.unsubscribe(id) }
    }

    /// The program of a durable consumer is gone.
    func detach(_ id: SubscriptionID, from session: SessionName) {
        if let name = parked[session]?.attached.first(where: { $0.value.subscription == id })?.key {
            parked[session]?.attached[name] = nil
        }
        if parked[session]?.isEmpty == true { parked[session] = nil }
        guard case .running(let driver)? = entries[session] else { return }
        driver.assumeIsolated { $0.detach(id) }
    }

    /// Answers when every session's driver has.
    func answer() async {
        for case .running(let driver) in entries.values { _ = await driver.status() }
    }
}
