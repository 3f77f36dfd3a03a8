import Configuration
import ControlAPI
import DurableStore
import Glibc
import Logging
import NIOCore
import NIOPosix
import Session
import SessionCore
import Systemd
import Transport
import Vocabulary

/// The daemon's parts, put together.
///
/// Everything that decides runs on one event loop. The store runs on a second one, because commits wait for the disk.
/// What a file system or a name service may leave unanswered runs on a thread of its own, and what keeps the processor
/// busy in a small pool.
actor Daemon {
    static let version = holdfastVersion

    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    nonisolated let registry: SessionRegistry
    nonisolated let network: NetworkView
    nonisolated let blocking: BlockingCalls
    nonisolated let denials: DenialLog
    nonisolated let notifications: Notifications
    /// All copies of it have one level.
    nonisolated let logger: Logger
    private let options: DaemonOptions
    private let store: DurableStore
    /// The statistics that the store last gave; `nil` before the first time.
    private var lastStatistics: StoreStatistics?
    private let since = Timestamp.now
    private var configuration: DaemonConfiguration
    /// What the store was opened with.
    private let durability: Durability
    /// The control socket, once it is served.
    private weak var control: ControlServer?
    /// How long a reload waits for the file system of the configuration: less than `holdfastctl reload` and the service
    /// manager wait for the reload.
    private let configurationPatience: Duration
    /// What the names in `[access]` and `[topics]` stand for.
    private let accounts: AccountLookups
    /// Counts of the calls on the control socket.
    var calls = CallMetrics()
    private var publisher: MetricsPublisher?
    private var reloads = Turns<CheckedContinuation<Void, Never>>()

    init(
        options: DaemonOptions, configuration: DaemonConfiguration, store: DurableStore, registry: SessionRegistry,
        network: NetworkView, notifications: Notifications, logger: Logger, eventLoop: any EventLoop,
        accountPatience: Duration = .seconds(5), configurationPatience: Duration = .seconds(60)
    ) {
        self.options = options
        self.configuration = configuration
        durability = configuration.durability
        self.store = store
        self.registry = registry
        self.network = network
        self.notifications = notifications
        self.logger = logger
        self.eventLoop = eventLoop
        self.configurationPatience = configurationPatience
        blocking = BlockingCalls(eventLoop: eventLoop)
        denials = DenialLog(logger: logger, eventLoop: eventLoop)
        accounts = AccountLookups(patience: accountPatience, blocking: blocking, logger: logger, eventLoop: eventLoop)
    }

    nonisolated var access: AccessPolicy {
        assumeIsolated { AccessPolicy(configuration: $0.configuration.access, accounts: $0.accounts.known) }
    }

    // MARK: Users and groups

    /// Looks up the users and groups that the configuration names, since they may have changed.
    func refreshAccounts() async { await accounts.refresh { await self.wantedAccounts } }

    private var wantedAccounts: AccountLookups.Wanted {
        get async {
            AccountLookups.Wanted(
                named: configuration.access.named + (await registry.principals), others: configuration.access.principals
            )
        }
    }

    /// Returns the users and groups that the files name and that do not exist. Those that did not are looked up again.
    func missingAccounts() async -> [String] {
        let named = await wantedAccounts.named
        if accounts.known.missing(of: named).isEmpty { return [] }
        await refreshAccounts()
        return accounts.known.missing(of: named)
    }

    // MARK: What the control socket asks

    func status() async -> DaemonStatus {
        let statistics = await storeStatistics()
        let states = await registry.states
        return DaemonStatus(
            version: Self.version, pid: getpid(), since: since,
            sessions: DaemonStatus.SessionCounts(states: states), store: statistics?.numbers ?? [:],
            storeFailure: await registry.surroundings?.commits.hindrance?.description, netlink: network.counters,
            configurationDirectory: options.configurationDirectory,
            absentSessions: await registry.absentSessions(), metricsFailure: await metricsFailure,
            restartNeeded: configuration.durability == durability
                ? nil : "durability = \"\(configuration.durability.rawValue)\"")
    }

    /// Adds what the files of the configuration are like now, unless the file system does not answer.
    func describeFiles(in status: inout DaemonStatus) async {
        let (directory, files) = (options.configurationDirectory, await registry.files)
        // Not with the key of a reload: that may take long, and would be refused while this is unanswered.
        let present = try? await blocking.run("versions in \(directory)", within: .seconds(1)) {
            let changed = files.changed(in: directory)
            let isOwn = changed.contains("\(directory)/holdfast.toml")
            return (
                changed: changed, error: isOwn ? ConfigurationLoader.daemonErrors(in: directory)?.summary : nil,
                ignored: ConfigurationLoader.ignoredFiles(in: directory)
            )
        }.get()
        guard let present else { return }
        (status.changedFiles, status.configurationError) = (present.changed, present.error)
        status.ignoredFiles = present.ignored
    }

    /// Returns the store's statistics, or the last ones while the disk does not answer.
    private func storeStatistics() async -> StoreStatistics? {
        let store = store
        guard let watch = await registry.surroundings?.commits.watch else { return await store.statistics() }
        do throws(StoreError) {
            lastStatistics = try await watch.answer { () throws(StoreError) in await store.statistics() }
        } catch {}
        return lastStatistics
    }

    func metrics(_ format: MetricsFormat = .openMetrics) async -> DaemonMetricsMethod.Result {
        let sessions = await registry.statuses()
        let metrics = MetricsText(
            status: await status(), sessions: sessions, events: await registry.metrics, calls: calls,
            commits: await registry.surroundings?.commits.durations, now: .now)
        return DaemonMetricsMethod.Result(contentType: format.contentType, text: metrics.text(format))
    }

    /// Publishes the metrics where the configuration says.
    func publishMetrics() async {
        let publisher = MetricsPublisher(eventLoop: eventLoop, blocking: blocking, logger: logger) {
            [weak self] format in
            await self?.metrics(format).text ?? OpenMetricsText(format).text
        }
        self.publisher = publisher
        await publisher.apply(configuration.metrics)
    }

    func stopPublishingMetrics() async {
        await publisher?.apply(MetricsConfiguration())
        publisher = nil
    }

    /// Where the metrics are published; `nil` when they are not.
    var metricsAddress: SocketAddress? {
        get async { await publisher?.address }
    }

    private var metricsFailure: String? {
        get async {
            guard let failures = await publisher?.failures else { return nil }
            return failures.listener ?? failures.file
        }
    }

    /// Sets how much is written to the journal, until a reload finds another level in the configuration than before.
    func logLevel(_ name: String?) throws(RPCError) -> DaemonLogLevelMethod.Result {
        if let name {
            guard let level = Logger.Level(rawValue: name) else {
                let names = Logger.Level.allCases.map(\.rawValue)
                throw .invalidParameters(
                    "there is no log level \"\(name.prefix(64))\"",
                    hint: didYouMean(nearest(to: name, among: names)) ?? "it is one of \(names.joined(separator: ", "))"
                )
            }
            let entry = { [logger] in logger.notice("the log level is \(level.rawValue) from now on") }
            // Where it is seen if one of the two levels shows it.
            if level > .notice { entry() }
            setLogLevel(level)
            if level <= .notice { entry() }
        }
        return DaemonLogLevelMethod.Result(level: logger.logLevel.rawValue)
    }

    private func setLogLevel(_ level: Logger.Level) {
        var logger = logger
        logger.logLevel = level
    }

    /// Returns what ``reload()`` would do.
    func reloadPreview() async throws(RPCError) -> DaemonReloadMethod.Result {
        let loaded = try await load()
        switch loaded.daemon {
        case .failure(let errors):
            throw .badConfiguration(
                "the configuration has errors, and a reload would be refused: \(errors)",
                hint: "correct it and try again")
        case .success(let new):
            var result = try await registry.preview(loaded)
            result.changes = changes(to: new) + result.changes
            return result
        }
    }

    func setControl(_ control: ControlServer) { self.control = control }

    private func accessChanged() {
        control?.assumeIsolated { $0.accessChanged() }
    }

    /// Returns what differs from what is in effect.
    private func changes(to new: DaemonConfiguration) -> [ConfigurationChange] {
        var present = configuration
        // The present one is that of the running store. What was reported once is not reported by each later reload.
        present.durability = new.durability == configuration.durability ? new.durability : durability
        return DaemonConfiguration.changes(from: present, to: new).map { change in
            var change = change
            if change.key == "log.level", options.logLevel != nil { change.overriddenBy = "--log-level" }
            return change
        }
    }

    /// Reads the configuration on a thread that nothing else waits for: thousands of files take a while, and a file
    /// system may not answer.
    private func load() async throws(RPCError) -> LoadedConfiguration {
        let directory = options.configurationDirectory
        var loaded: LoadedConfiguration
        do {
            loaded = try await blocking.run(directory, within: configurationPatience) {
                ConfigurationLoader.load(directory: directory)
            }.get()
        } catch {
            throw .badConfiguration(
                "the configuration in \(directory) cannot be read, and the old one stays: \(error)",
                hint: "reload again when its file system answers, which \"ls -l \(directory)\" shows")
        }
        if let missing = loaded.missingFolder, case .success = loaded.daemon {
            loaded.daemon = .failure(ConfigurationErrors([missing]))
        }
        return loaded
    }

    /// Reads the configuration again and applies it. If holdfast.toml has errors, nothing changes.
    ///
    /// Reloads take turns: each applies files that were read after it was asked for.
    func reload() async throws(RPCError) -> DaemonReloadMethod.Result {
        await withCheckedContinuation { if reloads.begin($0) { $0.resume() } }
        defer { reloads.end()?.resume() }
        let loaded: LoadedConfiguration
        do throws(RPCError) {
            loaded = try await load()
        } catch {
            logger.error(
                "reload refused: \(error.message)", metadata: ["MESSAGE_ID": "\(MessageID.reloadRefused)"])
            throw error
        }
        if case .success(let new) = loaded.daemon {
            let present = await wantedAccounts
            await accounts.lookUp(
                AccountLookups.Wanted(
                    named: new.access.named + loaded.principals,
                    others: present.named + present.others + new.access.principals))
        }
        // A reload that is refused must not be announced: the service manager would mistake its end for the end of
        // stopping.
        try await registry.checkReload()
        notifications.tell(.reloading())
        defer { notifications.tell(.ready) }
        switch loaded.daemon {
        case .failure(let errors):
            logger.error(
                "reload refused, the old configuration stays in force: \(errors)",
                metadata: ["MESSAGE_ID": "\(MessageID.reloadRefused)"])
            throw .badConfiguration(
                "the configuration has errors, and the old one stays: \(errors)", hint: "correct it and reload again")
        case .success(let new):
            if new.durability != durability, new.durability != configuration.durability {
                logger.warning("a change of durability takes effect when the daemon is restarted")
            }
            let changes = changes(to: new)
            let old = configuration
            configuration = new
            // Roles at once: ending sessions may take long. Topics once each session has its new configuration.
            accessChanged()
            defer { accessChanged() }
            // A level that was set while the daemon runs stays, unless the file has another one than before.
            if options.logLevel == nil, new.logLevel != old.logLevel,
                let level = Logger.Level(rawValue: new.logLevel.rawValue)
            {
                setLogLevel(level)
            }
            await publisher?.apply(new.metrics)
            var result = try await registry.apply(loaded)
            result.changes = changes + result.changes
            if let failure = await publisher?.failures.listener {
                let file = "\(options.configurationDirectory)/holdfast.toml"
                result.errors.insert(
                    ConfigurationProblem(session: nil, file: file, line: nil, column: nil, message: failure), at: 0)
            }
            for error in loaded.errorsOfNoSession { logger.error("\(error)") }
            let errors = result.errors.count == 1 ? "1 error" : "\(result.errors.count) errors"
            logger.notice(
                "reloaded: \(result.added.count) added, \(result.changed.count) changed, \(result.removed.count) removed, \(errors)",
                metadata: ["MESSAGE_ID": "\(MessageID.reloadDone)"])
            return result
        }
    }
}

extension StoreStatistics {
    /// What `daemon.status` says about the store.
    fileprivate var numbers: [String: Int64] {
        var numbers: [String: Int64] = [
            "schemaVersion": Int64(schemaVersion), "fileBytes": Int64(fileBytes), "logBytes": Int64(logBytes),
            "commits": Int64(clamping: commits.count), "failedCommits": Int64(clamping: commits.failed),
            "flushes": Int64(clamping: commits.flushes), "messages": Int64(messages),
        ]
        if let freeBytes { numbers["freeBytes"] = Int64(clamping: freeBytes) }
        return numbers
    }
}
