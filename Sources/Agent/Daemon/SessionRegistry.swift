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

/// All sessions of the daemon, what happens to them, and who watches them.
actor SessionRegistry {
    enum Entry {
        case running(SessionDriver)
        /// - Parameter stored: what the store has of its messages.
        case failed(Obstacle, since: Timestamp, stored: StoredCounts)
    }

    /// Why a session does not run.
    enum Obstacle {
        /// Its file has errors. `later` is kept of a session whose state could not be read before.
        case configuration(ConfigurationErrors, later: Start? = nil)
        /// Its state could not be read. If that may pass, `later` says how to start it then.
        case store(String, later: Start?)

        /// How to start it when nothing is in the way any more, if that is known.
        var later: Start? {
            switch self {
            case .configuration(_, let later), .store(_, let later): later
            }
        }

        var reason: Reason {
            switch self {
            case .configuration(let errors, _): Reason(.badConfiguration, errors.summary)
            case .store(let sentence, _): Reason(.unknown, sentence)
            }
        }
    }

    private enum Life {
        /// Not all sessions have been started. The status line would be that of a few.
        case starting
        case started
        case stopping
    }

    enum Retry {
        /// The start of sessions whose state could not be read.
        case start
        /// Telling the store which sessions there are.
        case record
    }

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    var surroundings: SessionDriver.Surroundings?
    var clock: HostClock { surroundings?.clock ?? .system }
    var isStopping: Bool { life == .stopping }
    let logger: Logger
    private let notifier: StatusNotifier
    /// The files that the sessions were read from.
    var files = ConfigurationFiles()
    var entries: [SessionName: Entry] = [:]
    /// Errors in the files of sessions that keep running with their previous configuration.
    var rejected: [SessionName: ConfigurationErrors] = [:]
    /// Sessions that are being restarted, with the callers that wait for them.
    var changing: [SessionName: [CheckedContinuation<Void, Never>]] = [:]
    /// What is kept of sessions that are not running at the moment, in case those come back.
    var carriedOver: [SessionName: CarriedOver] = [:]
    /// What is tried again until it succeeds.
    var retried: Set<Retry> = []
    /// The sessions that there were to be, each with its servers, of which the store has not been told yet; the latest
    /// come last. A session that was removed and came back in between is one that was removed.
    var unrecorded: [[SessionName: [Endpoint]]] = []
    private(set) var watches = Watches()
    private var overruns = HourlyCount()
    var metrics = EventMetrics()
    private(set) var historyQueue: HistoryQueue?
    /// How many subscriptions there were, and how many drafts were tried: they are numbered.
    var numbers = (subscriptions: 0, drafts: 0)
    private var life = Life.starting
    /// Taken by whatever stops and starts sessions: a reload, a store that was replaced, a start that is tried again.
    var turns = Turns<CheckedContinuation<Void, Never>>()
    /// Called when sessions were added, changed or removed.
    var sessionsChanged: @Sendable () -> Void = {}

    init(notifier: StatusNotifier, logger: Logger, eventLoop: any EventLoop) {
        self.notifier = notifier
        self.logger = logger
        self.eventLoop = eventLoop
    }

    // MARK: Life

    /// Starts all sessions. Called once, before anything else.
    ///
    /// - Parameters:
    ///   - brokenTemplates: templates whose instances are not all in `sessions`.
    ///   - files: the files that they were read from.
    func start(
        _ sessions: [SessionName: Result<SessionConfiguration, ConfigurationErrors>],
        brokenTemplates: [SessionName: ConfigurationErrors] = [:], files: ConfigurationFiles = ConfigurationFiles(),
        in surroundings: SessionDriver.Surroundings
    ) async throws(StoreError) {
        self.surroundings = surroundings
        self.files = files
        var sessions = await listed(sessions, brokenTemplates)
        _ = await refuseForeign(in: &sessions, of: files)
        await willHave(sessions)
        historyQueue = HistoryQueue(store: surroundings.store, logger: logger, eventLoop: eventLoop)
        noteClockStep()
        try await recordEndBefore(of: sessions.keys.sorted(), surroundings.store)
        for (name, result) in sessions.sorted(by: { $0.key < $1.key }) {
            switch result {
            case .success(let configuration):
                do throws(StoreError) {
                    try await start(name, Start(configuration: configuration))
                } catch {
                    // Damaged rows of one session must not keep the others from starting.
                    guard case .damaged = error else { throw error }
                    await list(name, as: unreadable(name, error))
                }
            case .failure(let errors): await list(name, as: .configuration(errors))
            }
        }
        if !isStopping { life = .started }
        statusMayHaveChanged()
    }

    /// Prepares for the sessions that there are from now on.
    func willHave(_ sessions: [SessionName: Result<SessionConfiguration, ConfigurationErrors>]) async {
        shareMemory(among: sessions.count)
        guard surroundings != nil else { return }
        var present: [SessionName: [Endpoint]] = [:]
        for (name, result) in sessions {
            // A session whose file has errors may keep its configuration.
            present[name] = ((try? result.get()) ?? running(name)?.configuration)?.endpoints ?? []
        }
        // A disk that does not answer must not hold up a reload.
        Self.note(present, in: &unrecorded)
        if await !recordPresent(), retried.insert(.record).inserted { Task { await recordPresentLater() } }
    }

    /// Gives each session, also those that are started from now on, its share.
    private func shareMemory(among sessions: Int) {
        guard let share = surroundings?.memoryShare(sessions), surroundings?.messageMemory != share else { return }
        surroundings?.messageMemory = share
        for driver in drivers { driver.assumeIsolated { $0.limit(to: share) } }
    }

    /// Parts of a session's durable state that a new configuration makes obsolete.
    enum Obsolete {
        /// A terminal state. An explicit disconnect is not obsolete.
        case failure
        /// The session at the server, which belongs to another client identifier.
        case sessionAtServer
    }

    /// How a session is started.
    struct Start {
        var configuration: SessionConfiguration
        /// It was up, or tried to be, before it was stopped.
        var wasUp = false
        var obsolete: Set<Obsolete> = []
        /// The verdict that the session's previous driver knew, if there was one: it may not be on disk yet.
        var decided: Verdict??
    }

    func start(_ name: SessionName, _ how: Start) async throws(StoreError) {
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
        // It may have been removed while the disk did not answer.
        if !unrecorded.isEmpty, await surroundings.commits.watch.stall != nil {
            try? await record(in: surroundings.store)
        }
        var stored = try await surroundings.store.session(name)
        if stored.wasAbsent, let error = try await foreignError(name, how.configuration) {
            carriedOver[name]?.releasePublishers()
            return await list(name, as: .configuration(ConfigurationErrors([error])))
        }
        var changes: [SessionChange] = []
        let onDisk = stored.verdict
        // A verdict is compared below.
        for change in carriedOver[name]?.unstored ?? [] where change.clockStep == nil {
            _ = stored.apply(change)
            if case .setVerdict = change { continue }
            changes.append(change)
        }
        if let decided = how.decided { stored.verdict = decided }
        if how.obsolete.contains(.failure) { stored.verdict = stored.verdict?.withoutFailure }
        // The driver before may have given up the commit. It does not know the configuration that is stored with it.
        var kept = stored.verdict
        kept?.configuration = onDisk?.configuration
        if kept != onDisk { changes.append(.setVerdict(stored.verdict)) }
        if how.obsolete.contains(.sessionAtServer) {
            stored.mqtt.established = false
            changes.append(.mqtt(.setEstablished(false)))
        }
        guard !isStopping else {
            if !changes.isEmpty { await surroundings.commits.commit(changes, of: name) { _ in } }
            carriedOver[name]?.releasePublishers()
            return
        }
        let carriedOver = carriedOver.removeValue(forKey: name) ?? CarriedOver()
        let driver = SessionDriver(
            name: name, configuration: how.configuration, stored: stored, carriedOver: carriedOver,
            surroundings: surroundings)
        entries[name] = .running(driver)
        // Ahead of everything else that the driver commits.
        if !changes.isEmpty { await driver.commitDecisions(changes) }
        await driver.start(stored, wasUp: how.wasUp, after: carriedOver.history)
        // What the start brought about was before the entry below, and makes it superfluous if the state changed.
        await driver.tell()
        let (status, time) = (await driver.status(), clock.wallClock())
        record { $0.started(status, name, at: time) }
    }

    /// Stops all sessions gracefully, all at once.
    func stop() async {
        life = .stopping
        await withTaskGroup(of: Void.self) { group in
            for driver in drivers {
                group.addTask { _ = await driver.stop(Reason(.shutdown)) }
            }
        }
        // The sessions have given up theirs. Checks may still run some, and they may take a moment to end.
        await surroundings?.credentials.stop()
        surroundings?.turns.close()
        await historyQueue?.stopped(at: clock.wallClock())
    }

    /// Whether any session disconnects before the host sleeps.
    var leaveBeforeSleep: Bool {
        drivers.contains { $0.configuration.onSuspend == .disconnect }
    }

    /// The host is about to sleep. Returns when all sessions that disconnect before sleep have done so.
    func hostWillSleep() async {
        await withTaskGroup(of: Void.self) { group in
            for driver in drivers {
                group.addTask { await driver.hostWillSleep() }
            }
        }
    }

    /// The host is awake.
    ///
    /// - Parameter slept: how long the host slept; zero if it did not sleep after all.
    func hostWoke(slept: Duration) {
        for driver in drivers { driver.assumeIsolated { $0.hostWoke(slept: slept) } }
    }

    /// The kernel dropped messages about the network. Logged at most once an hour.
    func netlinkOverrun() {
        guard let more = overruns.take(at: clock.now()) else { return }
        logger.notice(
            "the network changed faster than it could be read, so the whole state was read again\(HourlyCount.text(more: more))",
            metadata: ["MESSAGE_ID": "\(MessageID.netlinkOverrun)"])
    }

    /// The host's clock was set.
    func clockStepped() {
        noteClockStep()
        for driver in drivers { driver.assumeIsolated { $0.clockStepped() } }
    }

    // MARK: Looking things up

    /// The drivers of all sessions that run.
    var drivers: [SessionDriver] {
        entries.values.compactMap { if case .running(let driver) = $0 { driver } else { nil } }
    }

    /// Returns the session's driver, after waiting for a restart that is under way.
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

    /// Returns the session's driver without waiting.
    /// - Returns: `nil` if the session is being restarted.
    func driverNow(_ name: String) throws(RPCError) -> SessionDriver? {
        guard !isStopping else { throw .shuttingDown }
        if let session = SessionName(name), changing[session] != nil { return nil }
        return try runningDriver(name)
    }

    func runningDriver(_ name: String) throws(RPCError) -> SessionDriver {
        switch try entry(name).entry {
        case .running(let driver):
            return driver
        case .failed(.configuration(let errors, _), _, _):
            throw .wrongState(
                name, is: "failed (bad-configuration)",
                hint: "\(errors.summary); correct it, then holdfastctl reload")
        case .failed(.store(let sentence, _), _, _):
            throw .wrongState(name, is: "failed", hint: "\(sentence); holdfastctl reload tries again")
        }
    }

    private func entry(_ text: String) throws(RPCError) -> (name: SessionName, entry: Entry) {
        guard let name = SessionName(listed: text), let entry = entries[name] else {
            if let template = SessionName(text)?.template,
                case .failed(.configuration(let errors, _), _, _)? = entries[template]
            {
                throw .badConfiguration(
                    "it is not known whether there is a session \"\(text)\", because its template has errors",
                    hint: "\(errors.summary); correct it, then holdfastctl reload")
            }
            throw .unknownSession(text, among: entries.keys.lazy.map(\.description))
        }
        return (name, entry)
    }

    func status(_ name: String) throws(RPCError) -> SessionStatus {
        let (name, entry) = try entry(name)
        return status(of: name, entry)
    }

    /// How many sessions there are, without templates that are listed because their instances cannot be read.
    var count: Int { entries.keys.count { !$0.isTemplate } }

    func statuses() -> [SessionStatus] {
        entries.map { status(of: $0.key, $0.value) }.inNaturalOrder
    }

    private func status(of name: SessionName, _ entry: Entry) -> SessionStatus {
        switch entry {
        case .running(let driver):
            var status = driver.assumeIsolated { $0.status() }
            status.configurationError = rejected[name]?.summary
            status.storeFailure = driver.surroundings.commits.assumeIsolated { $0.hindrance?.description }
            status.readFailure = driver.assumeIsolated { $0.readFailure }
            return status
        case .failed(let obstacle, let since, let stored):
            var status = SessionStatus(
                session: name.description, state: .failed, since: since,
                reason: .init(obstacle.reason, Remedies(session: name, configuration: nil)))
            (status.outbox, status.inbox) = (stored.outbox, stored.inbox)
            return status
        }
    }

    var endpoints: [String: [Endpoint]] {
        Dictionary(uniqueKeysWithValues: drivers.map { ($0.name.description, $0.configuration.endpoints) })
    }

    // MARK: Events

    /// Takes an event of a session; `nil` when only numbers in its status have changed.
    func report(_ session: SessionName, _ event: SessionEvent?) {
        if let event {
            record { $0.take(session, event) }
            metrics.take(session.description, event)
            let watched = watches.take(event, of: session)
            if let first = watched.first {
                let line = EventLine(first.event, on: eventLoop)
                for (watcher, own) in watched { watcher.deliver(own, line) }
            }
        }
        // The status line of several sessions shows only their states and why. It takes a look at all of them, and each
        // of a thousand heartbeats changes a number, and every few of them a quality.
        let isShown = [.stateChanged, .phaseChanged, .sessionRemoved].contains(event?.event)
        if isShown || entries.count == 1 { statusMayHaveChanged() }
    }

    func statusMayHaveChanged() {
        guard life != .starting else { return }
        let line: @Sendable (Double?) -> (text: String, rtt: Double?) = { [weak self] shownRTT in
            self?.assumeIsolated { $0.statusLine(shownRTT: shownRTT) } ?? ("", nil)
        }
        notifier.assumeIsolated { $0.statusMayHaveChanged(line) }
    }

    /// Takes from each of many sessions only what the line shows. The whole status of each would delay their start.
    private func statusLine(shownRTT: Double?) -> (text: String, rtt: Double?) {
        guard entries.count > 1 else {
            var status = statuses().first
            let rtt = StatusLine.steadyRTT(status?.rtt, shown: shownRTT)
            status?.rtt = rtt
            return (StatusLine.text(status, at: .now), rtt)
        }
        let isRefusing = !drivers.isEmpty && surroundings?.commits.assumeIsolated { $0.hindrance } != nil
        let text = StatusLine.text(
            entries.map { name, entry in
                let (state, code) = state(of: entry)
                return StatusLine.Brief(session: name.description, state: state, reason: code.rawValue)
            }, isRefusing: isRefusing)
        return (text, nil)
    }

    private func state(of entry: Entry) -> (SessionState, Reason.Code) {
        switch entry {
        case .running(let driver): driver.assumeIsolated { $0.ask { ($0.state, $0.machine.reason.code) } }
        case .failed(let obstacle, _, _): (.failed, obstacle.reason.code)
        }
    }

    /// The state of each session.
    var states: [SessionState] { entries.values.map { state(of: $0).0 } }

    func pathChanged(_ change: PathChange) {
        guard let name = SessionName(change.target.session) else { return }
        running(name)?.assumeIsolated { $0.pathChanged(change) }
    }

    /// Adds a watcher of one session or of all: see ``Watches/add(_:since:epoch:snapshot:at:)``.
    func watch(
        _ session: String?, since: Int64?, epoch: String? = nil,
        deliver: @escaping @Sendable (SessionEvent, EventLine) -> Void
    ) -> Result<(SessionWatchMethod.Result, missed: [SessionEvent]), RPCError> {
        // Events from before the snapshot must not follow it.
        for driver in drivers { driver.assumeIsolated { $0.tell() } }
        return Result { () throws(RPCError) in
            let statuses = try session.map { text throws(RPCError) in [try status(text)] } ?? self.statuses()
            return watches.add(
                .init(session: session.flatMap { SessionName(listed: $0) }, deliver: deliver), since: since,
                epoch: epoch,
                snapshot: SessionSnapshot(sessions: statuses), at: clock.wallClock())
        }
    }

    func removeWatch(_ id: WatchID) { watches.remove(id) }

    // MARK: Programs

    /// The driver of a session that runs; `nil` for any other.
    func running(_ session: SessionName) -> SessionDriver? {
        if case .running(let driver)? = entries[session] { driver } else { nil }
    }

    /// Changes what is kept of a session, if there is anything.
    func changeCarriedOver(of session: SessionName, _ change: (inout CarriedOver) -> Void) {
        guard var kept = carriedOver.removeValue(forKey: session) else { return }
        change(&kept)
        if !kept.isEmpty { carriedOver[session] = kept }
    }

    func nextSubscription() -> SubscriptionID {
        numbers.subscriptions += 1
        return SubscriptionID(rawValue: "s\(numbers.subscriptions)")
    }

    func unsubscribe(_ id: SubscriptionID, from session: SessionName) {
        changeCarriedOver(of: session) {
            _ = $0.live.remove(id)
            $0.subscribers[id] = nil
        }
        running(session)?.assumeIsolated { $0.unsubscribe(id) }
    }

    /// The program of a durable consumer is gone.
    func detach(_ id: SubscriptionID, from session: SessionName) {
        changeCarriedOver(of: session) { carriedOver in
            guard let name = carriedOver.attached.first(where: { $0.value.subscription == id })?.key else { return }
            carriedOver.attached[name] = nil
            carriedOver.subscribers[id] = nil
        }
        running(session)?.assumeIsolated { $0.detach(id) }
    }

    /// The caller of an accepted message does not wait for its delivery any more.
    func leave(_ call: PublishCall, of sequence: MessageSequence, in session: SessionName) {
        changeCarriedOver(of: session) { $0.publishers.remove(call, of: sequence) }
        running(session)?.assumeIsolated { $0.leave(call, of: sequence) }
    }

    /// A program that takes messages of durable consumers has read some of them.
    func loadConsumers(of session: SessionName) {
        running(session)?.assumeIsolated { $0.loadConsumers() }
    }

    /// Returns when every session's driver has responded.
    func answer() async {
        for driver in drivers { _ = await driver.status() }
    }
}
