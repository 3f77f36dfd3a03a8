import Configuration
import ControlAPI
import DurableStore
import Glibc
import Logging
import NIOCore
import NIOPosix
import NetworkPath
import ServiceLifecycle
import SessionCore
import Systemd
import Transport
import UnixSignals

// How the daemon starts, runs and stops.

/// Runs the daemon on its own threads until SIGTERM or SIGINT. The calling thread waits.
///
/// Call it once in a process, before anything else.
/// - Returns: the exit status; what went wrong has been logged.
public func runDaemon(_ options: DaemonOptions) -> ExitStatus {
    // SIGHUP asks for a reload. Before the configuration is read, there is nothing to do for it.
    signal(SIGHUP, SIG_IGN)
    Allocator.returnsLargeBlocks()
    let loops = MultiThreadedEventLoopGroup(numberOfThreads: 4)
    let (loop, disk) = (loops.next(), loops.next())
    GlobalJobs.run(on: loops.next())
    let log = LogWriter(on: loops.next())
    // Most of all, why the daemon could not start.
    defer { log.finish(within: .seconds(2), on: loop) }
    let status = loop.makePromise(of: ExitStatus.self)
    Task { status.succeed(await run(options, on: loop, disk: disk, log)) }
    do {
        return try status.futureResult.wait()
    } catch {
        preconditionFailure("nothing fails it: \(error)")
    }
}

/// - Parameters:
///   - loop: runs everything that decides.
///   - disk: runs the store.
private func run(
    _ options: DaemonOptions, on loop: any EventLoop, disk: any EventLoop, _ log: LogWriter
) async -> ExitStatus {
    signal(SIGPIPE, SIG_IGN)
    // A file that may not grow (LimitFSIZE=) counts as a full disk. It must not end the process.
    signal(SIGXFSZ, SIG_IGN)
    // From here on each one is kept, until the daemon can reload what it reads now.
    let hangups = await UnixSignalsSequence(trapping: .sighup)
    let loaded = ConfigurationLoader.load(directory: options.configurationDirectory)
    log.level = level(options, loaded)
    let logger = Logger(label: "holdfastd") { _ in JournalLogHandler(writer: log) }
    guard case .success(let configuration) = loaded.daemon else {
        for error in loaded.errors { logger.critical("the configuration has an error: \(error)") }
        turnAway(
            ConfigurationErrors(loaded.errors).summary,
            hint: "\"sudo holdfastctl config check\" lists all errors, and \"sudo systemctl start holdfast\" starts it "
                + "when they are corrected")
        return .configuration
    }
    logger.notice(
        "holdfastd \(holdfastVersion) started", metadata: ["MESSAGE_ID": "\(MessageID.started)"])
    // The group traps the signals before it runs its services, so a signal that arrives during the start stops the
    // daemon in order.
    var group = ServiceGroupConfiguration(
        services: [
            DaemonService(
                start: DaemonStart(
                    options: options, configuration: configuration, loaded: loaded, logger: logger, loop: loop,
                    disk: disk), hangups: hangups)
        ],
        gracefulShutdownSignals: [.sigterm, .sigint],
        logger: Logger(label: "lifecycle") { _ in SwiftLogNoOpLogHandler() })
    group.maximumGracefulShutdownDuration = .seconds(60)
    do {
        try await ServiceGroup(configuration: group).run()
        return .success
    } catch let failure as StartFailure {
        logger.critical("\(failure.sentence)")
        // A daemon that was killed may have left it.
        await MetricsPublisher.remove(configuration.metrics.textfile, BlockingCalls(eventLoop: loop))
        turnAway(failure.sentence, hint: "systemd starts it again and again, until that is corrected")
        return failure.status
    } catch {
        logger.error("stopped before everything was finished: \(error)")
        return .success
    }
}

/// Checks the configuration and prints every error on standard error.
///
/// - Parameter user: see ``showConfiguration(_:as:)``.
public func checkConfiguration(_ directory: String, as user: String?) -> ExitStatus {
    let loaded = ConfigurationLoader.load(directory: directory)
    let missing = loaded.missingFolder.map { [$0] } ?? []
    let references = ConfigurationReferences(in: directory)
    let referred = references.errors(for: becomeDaemon(user), pairProblem: ownPairProblem).map(\.1)
    let errors = loaded.errors + missing + referred
    guard !errors.isEmpty else { return .success }
    // Names of files and values are other people's texts.
    let lines = ConfigurationErrors(errors).list.map { "\($0.description.plain(atMost: .max))\n" }
    _ = Array(lines.joined().utf8).withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    return .configuration
}

/// Prints the effective configuration on standard output, as one line of JSON.
///
/// - Parameter user: `USER` or `USER:GROUP,…`, as whom the daemon runs. If this process is root's, it becomes this user's.
public func showConfiguration(_ directory: String, as user: String?) -> ExitStatus {
    let configuration = effectiveConfiguration(
        in: directory, deviceID: DeviceID.derived()?.description ?? "", becomeDaemon: { becomeDaemon(user) },
        pairProblem: ownPairProblem)
    var rest = (OutgoingLine.encode(configuration) ?? [])[...]
    while !rest.isEmpty {
        let written = rest.withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
        if written < 0, errno == EINTR { continue }
        guard written > 0 else { return .ioError }
        rest = rest.dropFirst(written)
    }
    return configuration.errors.isEmpty ? .success : .configuration
}

private func becomeDaemon(_ user: String?) -> String? {
    guard let user = user.flatMap(DaemonUser.init), user.become() else { return nil }
    return user.name
}

/// Tells the programs that wait at the sockets of systemd why the daemon cannot start. None must be served yet.
///
/// - Parameter why: a sentence, or a clause of one.
public func turnAway(_ why: String, hint: String) {
    TurnedAway.answer(
        at: SocketActivation.descriptors(), RPCError(.shuttingDown, "the daemon cannot start: \(why)", hint: hint))
}

private struct StartFailure: Error {
    var status: ExitStatus
    var sentence: String
}

private struct Running: Sendable {
    var daemon: Daemon
    var server: ControlServer
    var store: DurableStore
    var sleepWatch: SleepWatch
    var resolverWatch: ResolverWatch
}

private func level(_ options: DaemonOptions, _ loaded: LoadedConfiguration) -> Logger.Level {
    if let level = options.logLevel.flatMap(Logger.Level.init(rawValue:)) { return level }
    guard case .success(let configuration) = loaded.daemon else { return .info }
    return Logger.Level(rawValue: configuration.logLevel.rawValue) ?? .info
}

/// The parts of a daemon, created one after the other.
private struct DaemonStart {
    var options: DaemonOptions
    var configuration: DaemonConfiguration
    var loaded: LoadedConfiguration
    var logger: Logger
    /// Runs everything that decides.
    var loop: any EventLoop
    /// Runs the store.
    var disk: any EventLoop

    func run() async throws(StartFailure) -> Running {
        let notifications = Notifications(eventLoop: loop)
        let store = try openStore(notifications)
        let registry = SessionRegistry(
            notifier: StatusNotifier(notifications: notifications, eventLoop: loop), logger: logger, eventLoop: loop)
        let watcher = try await watchNetwork(for: registry, on: loop)
        let daemon = Daemon(
            options: options, configuration: configuration, store: store, registry: registry,
            network: NetworkView(watcher: watcher), notifications: notifications, logger: logger, eventLoop: loop)
        let server = ControlServer(daemon: daemon)
        // Before any session begins: while another daemon serves the socket, none of ours may connect.
        do throws(ControlSocket.Failure) {
            try await server.listen(path: options.socketPath)
        } catch {
            throw StartFailure(status: .ioError, sentence: "the control socket cannot be created: \(error)")
        }
        do {
            try await server.prepare()
        } catch {
            throw StartFailure(status: .ioError, sentence: "the control socket cannot be served: \(Self.words(error))")
        }
        // Before any session looks up a name: a later change must be noticed.
        let resolverWatch = ResolverWatch(eventLoop: loop) { watcher.assumeIsolated { $0.resolverChanged() } }
        if await !resolverWatch.start() {
            logger.notice("changes to the resolver's configuration cannot be watched")
        }
        try await startSessions(of: daemon, with: store)
        // Not earlier: a client must not be told that a session does not exist while it is still being loaded.
        do {
            try await server.serve()
        } catch {
            throw StartFailure(status: .ioError, sentence: "the control socket cannot be served: \(Self.words(error))")
        }
        await daemon.publishMetrics()
        // Says which of them do not exist. A name service that does not answer must not delay the start.
        Task { await daemon.refreshAccounts() }
        let sleepWatch = SleepWatch(registry: registry, logger: logger, eventLoop: loop)
        await sleepWatch.start()
        await reportReady(server, await registry.count, notifications)
        return Running(
            daemon: daemon, server: server, store: store, sleepWatch: sleepWatch, resolverWatch: resolverWatch)
    }

    /// NIO's own text of an error has no advice.
    private static func words(_ error: any Error) -> String {
        (error as? IOError).map { systemText($0.errnoCode) } ?? "\(error)"
    }

    private func openStore(_ notifications: Notifications) throws(StartFailure) -> DurableStore {
        let extending = TimeExtension(on: loop) {
            notifications.tell(.timeExtension(TimeExtension.requested, status: "opening the durable state"))
        }
        defer { extending.end() }
        let store: DurableStore
        do throws(StoreError) {
            store = try DurableStore(
                directory: options.stateDirectory, durability: configuration.durability,
                executor: disk.executor)
        } catch {
            switch error {
            case .locked, .busy: throw StartFailure(status: .temporaryFailure, sentence: error.description)
            default: throw StartFailure(status: .cannotCreate, sentence: error.description)
            }
        }
        if let moved = store.openReport.movedAside {
            logger.error("\(moved.sentence)", metadata: ["MESSAGE_ID": "\(MessageID.storeReplaced)"])
        }
        for sentence in store.openReport.adopted.sentences { logger.error("\(sentence)") }
        if let backup = store.openReport.backup {
            logger.notice("the durable state was migrated; a copy is \(backup)")
        }
        return store
    }

    private func watchNetwork(
        for registry: SessionRegistry, on loop: any EventLoop
    ) async throws(StartFailure) -> NetworkWatcher {
        let watcher = NetworkWatcher(
            eventLoop: loop, overrun: { registry.assumeIsolated { $0.netlinkOverrun() } },
            pathChanged: { change in registry.assumeIsolated { $0.pathChanged(change) } })
        do throws(NetlinkError) {
            try await watcher.start()
        } catch {
            throw StartFailure(status: .osError, sentence: "the network cannot be watched: \(error)")
        }
        return watcher
    }

    private func startSessions(of daemon: Daemon, with store: DurableStore) async throws(StartFailure) {
        let (registry, loop) = (daemon.registry, daemon.eventLoop)
        await store.whenReplaced { moved in
            loop.execute { registry.assumeIsolated { $0.storeReplaced(moved) } }
        }
        let turns: PolledTurns
        do {
            turns = try await PolledTurns.open(on: loop)
        } catch {
            throw StartFailure(status: .osError, sentence: "the sessions cannot be started: \(Self.words(error))")
        }
        let threadPool = NIOThreadPool(numberOfThreads: 4)
        threadPool.start()
        let surroundings = SessionDriver.Surroundings(
            eventLoop: loop, threadPool: threadPool, blocking: daemon.blocking, turns: turns, store: store,
            commits: commits(to: store, of: registry, on: loop), network: daemon.network, logger: logger,
            bootID: BootID.current()?.description ?? "",
            deviceID: DeviceID.ofThisHost(keptIn: options.stateDirectory)?.description ?? "")
        do throws(StoreError) {
            try await registry.start(
                loaded.sessions, brokenTemplates: loaded.brokenTemplates, files: loaded.files, in: surroundings)
        } catch {
            // The sessions that were started before may be running helpers.
            await surroundings.credentials.stop()
            throw StartFailure(status: .cannotCreate, sentence: error.description)
        }
        for error in loaded.errorsOfNoSession + [loaded.missingFolder].compactMap(\.self) { logger.error("\(error)") }
        let queue = surroundings.commits
        Task { await queue.lookForRoom() }
    }

    private func commits(
        to store: DurableStore, of registry: SessionRegistry, on loop: any EventLoop
    ) -> CommitQueue {
        CommitQueue(store: store, eventLoop: loop) { [logger, weak registry] failure in
            registry?.assumeIsolated { $0.statusMayHaveChanged() }
            if let failure {
                logger.error("\(failure)", metadata: ["MESSAGE_ID": "\(MessageID.storeFull)"])
            } else {
                logger.notice("the store is writable again")
            }
        } stallChanged: { [logger, weak registry] stall in
            registry?.assumeIsolated { $0.statusMayHaveChanged() }
            if let stall {
                logger.warning("\(stall)")
            } else {
                logger.notice("the disk answers again")
            }
        } leftOut: { [logger] session, error in
            logger.error(
                "\(session): a change of its state cannot be stored and is skipped, so a message may be sent twice after a restart: \(error)"
            )
        } unfitMessage: { [logger] session, error in
            logger.error("\(session): a new message cannot be stored and is refused: \(error)")
        }
    }

    private func reportReady(_ server: ControlServer, _ sessions: Int, _ notifications: Notifications) async {
        notifications.tell(.ready)
        let socketPath = await server.path ?? options.socketPath
        logger.notice(
            "ready: \(sessions) session\(sessions == 1 ? "" : "s"), control socket \(socketPath)",
            metadata: ["MESSAGE_ID": "\(MessageID.ready)"])
    }
}

/// Starts the daemon, and stops it when asked to.
private struct DaemonService: Service, CustomStringConvertible {
    var start: DaemonStart
    /// SIGHUP is the traditional way to ask for a reload; `holdfastctl reload` shows the result.
    var hangups: UnixSignalsSequence
    /// The service group describes its services when it is made: that would be every session's configuration.
    var description: String { "holdfastd" }

    func run() async throws {
        let running = try await start.run()
        // Not a child: a reload whose file system does not answer must not keep the daemon from ending.
        Task { for await _ in hangups.cancelOnGracefulShutdown() { _ = try? await running.daemon.reload() } }
        await withTaskGroup(of: Void.self) { group in
            if let interval = Notifier.watchdogInterval {
                group.addTask { await Watchdog(daemon: running.daemon, interval: interval).run() }
            }
            try? await gracefulShutdown()
            await stop(running, start.logger)
        }
    }
}

/// Stops everything in an order in which nothing is lost.
private func stop(_ running: Running, _ logger: Logger) async {
    let notifications = running.daemon.notifications
    notifications.tell(.stopping)
    logger.notice("stopping", metadata: ["MESSAGE_ID": "\(MessageID.stopping)"])
    // First of all: a host that goes to sleep now must not wait for a stopping daemon, and nothing may bring a session
    // back.
    await running.sleepWatch.stop()
    await running.resolverWatch.stop()
    await running.server.stopListening()
    await running.daemon.stopPublishingMetrics()
    // From here on: the sessions wait for their last commits.
    let extending = TimeExtension(on: running.daemon.eventLoop) {
        notifications.tell(.timeExtension(TimeExtension.requested, status: "writing out the durable state"))
    }
    let work: @Sendable () async -> Void = {
        await running.daemon.registry.stop()
        await running.server.closeConnections()
        await running.daemon.network.watcher.stop()
        try? await running.store.close()
    }
    if let surroundings = await running.daemon.registry.surroundings {
        let watch = surroundings.commits.watch
        if await !watch.finish(running.store, orStalledFor: diskPatience, work) {
            logger.error("stopped without the disk, which does not answer; what was accepted is on it already")
            await surroundings.credentials.stop()
        }
    } else {
        await work()
    }
    extending.end()
}

/// How long stopping waits for a disk that does not answer. Then the daemon ends as if it were killed, and loses as
/// little.
private let diskPatience = TimeAmount.seconds(60)
