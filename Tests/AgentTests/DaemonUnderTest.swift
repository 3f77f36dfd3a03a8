import Configuration
import ControlAPI
import DurableStore
import Glibc
import Logging
import NIOCore
import NIOPosix
import NetworkPath
import SessionCore
import Support
import Synchronization
import Transport

@testable import Agent

/// Keeps what is logged.
final class RecordingLog: Sendable {
    struct Line: Sendable {
        var level: Logger.Level
        var message: String
        var fields: [String: String]
    }

    private let recorded = Mutex<[Line]>([])
    private let level = Mutex(Logger.Level.debug)

    var lines: [Line] { recorded.withLock { $0 } }

    var logger: Logger { Logger(label: "test") { _ in Handler(log: self) } }

    struct Handler: LogHandler {
        let log: RecordingLog
        var logLevel: Logger.Level {
            get { log.level.withLock { $0 } }
            set { log.level.withLock { $0 = newValue } }
        }
        var metadata: Logger.Metadata = [:]

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let fields = (event.metadata ?? [:]).mapValues(\.description)
            log.recorded.withLock {
                $0.append(Line(level: event.level, message: event.message.description, fields: fields))
            }
        }
    }
}

/// A whole daemon in this process. Configuration files, store, sessions and control socket are real; only the service
/// manager is missing. Its MQTT server runs beside it on the same loop.
struct DaemonUnderTest: Sendable {
    let directory: TemporaryDirectory
    let server: LoopbackServer
    let daemon: Daemon
    let control: ControlServer
    let store: DurableStore
    let commits: CommitQueue
    let log: RecordingLog
    let eventLoop: any EventLoop
    /// The event loop of the store.
    let disk: any EventLoop

    var registry: SessionRegistry { daemon.registry }
    var socket: String { "\(directory.path)/run/control.sock" }

    /// Runs `body` with a server, a directory without sessions, and the threads for a daemon.
    static func withServer(
        _ body: (TemporaryDirectory, LoopbackServer, MultiThreadedEventLoopGroup) async throws -> Void
    ) async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let server = LoopbackServer(eventLoop: group.next())
        try await server.start()
        let outcome: Result<Void, any Error>
        do {
            try directory.makeFolder("sessions.d")
            outcome = .success(try await body(directory, server, group))
        } catch {
            outcome = .failure(error)
        }
        try await server.stop()
        try await group.shutdownGracefully()
        try outcome.get()
    }

    /// Runs a daemon with the session `main` and the other files in `files` for the duration of `body`.
    static func run(
        _ extra: String = "", autoconnect: Bool = true, files: [String: String] = [:],
        diskPatience: TimeAmount = .hours(1), configurationPatience: Duration = .seconds(3600),
        limits: ControlScheduler.Limits = .init(), logLevel: String? = nil,
        prepare: (LoopbackServer) async throws -> Void = { _ in },
        _ body: (DaemonUnderTest) async throws -> Void
    ) async throws {
        try await withServer { directory, server, group in
            try await prepare(server)
            try directory.write("sessions.d/main.toml", await session(server, extra, autoconnect: autoconnect))
            for (name, text) in files { try directory.write(name, text) }
            try await run(
                in: directory, server, on: group, diskPatience: diskPatience,
                configurationPatience: configurationPatience, limits: limits, logLevel: logLevel, body)
        }
    }

    /// Does the same with a program that watches, after the session has connected, or after the daemon has started.
    static func run(
        _ extra: String = "", autoconnect: Bool = true, _ body: (DaemonUnderTest, ControlPeer) async throws -> Void
    ) async throws {
        try await run(extra, autoconnect: autoconnect) { daemon in
            try await body(daemon, try await daemon.watcher(autoconnect ? "connected" : "disconnected"))
        }
    }

    /// Runs one life of the daemon.
    static func run(
        in directory: TemporaryDirectory, _ server: LoopbackServer, on group: MultiThreadedEventLoopGroup,
        bootID: String = "boot", diskPatience: TimeAmount = .hours(1),
        configurationPatience: Duration = .seconds(3600), limits: ControlScheduler.Limits = .init(),
        logLevel: String? = nil, clock: HostClock = .system,
        configure: (inout SessionConfiguration) -> Void = { _ in },
        surround: (inout SessionDriver.Surroundings) -> Void = { _ in },
        _ body: (DaemonUnderTest) async throws -> Void
    ) async throws {
        let daemon = try await start(
            in: directory, server, on: group, bootID: bootID, diskPatience: diskPatience,
            configurationPatience: configurationPatience, limits: limits, logLevel: logLevel, clock, configure,
            surround)
        let result: Result<Void, any Error>
        do {
            try await body(daemon)
            result = .success(())
        } catch {
            result = .failure(error)
        }
        await daemon.stop()
        try result.get()
    }

    private static func start(
        in directory: TemporaryDirectory, _ server: LoopbackServer, on group: MultiThreadedEventLoopGroup,
        bootID: String, diskPatience: TimeAmount, configurationPatience: Duration, limits: ControlScheduler.Limits,
        logLevel: String?, _ clock: HostClock, _ configure: (inout SessionConfiguration) -> Void,
        _ surround: (inout SessionDriver.Surroundings) -> Void
    ) async throws -> DaemonUnderTest {
        let (loop, disk, log) = (server.eventLoop, group.next(), RecordingLog())
        let store = try DurableStore(
            directory: "\(directory.path)/state", durability: .normal, executor: disk.executor)
        let notifications = Notifications(eventLoop: loop)
        let registry = SessionRegistry(
            notifier: StatusNotifier(notifications: notifications, eventLoop: loop), logger: log.logger, eventLoop: loop
        )
        let watcher = NetworkWatcher(eventLoop: loop) { [weak registry] change in
            registry?.assumeIsolated { $0.pathChanged(change) }
        }
        try await watcher.start()
        let options = DaemonOptions(
            configurationDirectory: directory.path, stateDirectory: "\(directory.path)/state",
            socketPath: "\(directory.path)/run/control.sock", logLevel: logLevel)
        let daemon = Daemon(
            options: options, configuration: DaemonConfiguration(), store: store, registry: registry,
            network: NetworkView(watcher: watcher), notifications: notifications, logger: log.logger, eventLoop: loop,
            accountPatience: .seconds(3600), configurationPatience: configurationPatience)
        let control = ControlServer(daemon: daemon, limits: limits)
        try await control.listen(path: options.socketPath)
        try await control.prepare()
        let commits = CommitQueue(store: store, eventLoop: loop, patience: diskPatience) { _ in }
        await store.whenReplaced { moved in
            loop.execute { registry.assumeIsolated { $0.storeReplaced(moved) } }
        }
        var surroundings = SessionDriver.Surroundings(
            eventLoop: loop, threadPool: .singleton, blocking: daemon.blocking,
            turns: try await PolledTurns.open(on: loop), store: store, commits: commits,
            network: daemon.network, logger: log.logger, bootID: bootID, deviceID: "device")
        surroundings.clock = clock
        surroundings.credentials = HostCredentials(
            calls: daemon.blocking,
            helpers: RunningHelpers(eventLoop: loop, calls: daemon.blocking, timeLimit: .seconds(3600)))
        surround(&surroundings)
        let loaded = ConfigurationLoader.load(directory: directory.path)
        try await registry.start(
            loaded.sessions.mapValues { result in
                result.map { configuration in
                    var configuration = configuration
                    configure(&configuration)
                    return configuration
                }
            }, brokenTemplates: loaded.brokenTemplates, files: loaded.files, in: surroundings)
        try await control.serve()
        return DaemonUnderTest(
            directory: directory, server: server, daemon: daemon, control: control, store: store, commits: commits,
            log: log, eventLoop: loop, disk: disk)
    }

    private func stop() async {
        await control.stopListening()
        await registry.stop()
        await control.closeConnections()
        await daemon.network.watcher.stop()
        try? await store.close()
    }

    static func session(
        _ server: LoopbackServer, _ extra: String = "", autoconnect: Bool = true, user: String = "edge-42"
    ) async -> String {
        // On a machine that is busy with other tests, no time limit may end a connection.
        let limits = [
            ("heartbeat", ["interval", "timeout"]), ("timeouts", ["dial", "authenticate", "restore", "acknowledge"]),
        ].filter { !extra.contains("[\($0.0)]") }.flatMap { table, keys in
            keys.map { "\(table).\($0)" }.filter { !extra.contains($0) }.map { "\($0) = \"1h\"" }
        }
        return """
            endpoints = ["mqtt://127.0.0.1:\(await server.port)"]
            user = "\(user)"
            autoconnect = \(autoconnect)
            \(limits.joined(separator: "\n"))
            \(extra)
            [reconnect]
            delays = ["10ms"]
            spread = "0s"
            """
    }

    func peer(reads: Bool = true) async throws -> ControlPeer {
        try await ControlPeer.connect(socket, on: eventLoop, reads: reads)
    }

    /// Returns a peer that watches, and that has seen the session reach a state.
    func watcher(_ state: String = "connected", of session: String = "main") async throws -> ControlPeer {
        let peer = try await peer()
        let result = try await peer.call("session.watch")
        let states = result["snapshot"]?["sessions"]
        guard case .array(let sessions)? = states,
            sessions.contains(where: { $0["session"] == .string(session) && $0["state"] == .string(state) })
        else {
            try await peer.state(state, of: session)
            return peer
        }
        return peer
    }

    func writeSession(_ extra: String = "", autoconnect: Bool = true, user: String = "edge-42") async throws {
        try directory.write(
            "sessions.d/main.toml", await Self.session(server, extra, autoconnect: autoconnect, user: user))
    }
}
