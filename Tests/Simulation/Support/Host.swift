import ControlAPI
import Glibc
import Logging
import MQTT
import NIOCore
import SessionCore
import Support
import Transport

@testable import Agent
@testable import Configuration
@testable import DurableStore
@testable import NetworkPath
@testable import Session

/// One host of a scenario: its daemon, and a program that uses it.
actor Host {
    nonisolated let name: String
    nonisolated let scenario: Scenario
    nonisolated var unownedExecutor: UnownedSerialExecutor { scenario.loop.asUnownedSerialExecutor() }

    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    private let directory: String
    private var daemon: (registry: SessionRegistry, store: DiskAccess, commits: CommitQueue)?
    /// Counts the daemons.
    private(set) var life = 0
    nonisolated let disk: Disk
    nonisolated let isDiskModelled: Bool
    /// Used instead of the files.
    private var configurations: [SessionName: Result<SessionConfiguration, ConfigurationErrors>]?
    /// After this many more actions the daemon is dead.
    private var fuse: (actions: Int, landing: Bool)?
    private var onDeath: () -> Void = {}
    private var onEvent: (SessionEvent) -> Void = { _ in }
    private var memory = MessageMemory(sessions: 1)
    private var logger = Logger(label: "scenario") { _ in SwiftLogNoOpLogHandler() }
    private var paths: ScenarioPaths
    private var tokens: TokenService?
    /// By how much the wall clock was set.
    private var clockOffset = Duration.zero

    private var events: [(at: Instant, event: SessionEvent)] = []
    private var position = 0
    private var waiter: (isWanted: (SessionEvent) -> Bool, continuation: CheckedContinuation<SessionEvent?, Never>)?
    private(set) var received: [String] = []
    private(set) var given: [ReceivedMessage] = []
    private(set) var lastGiven: Int64?
    private(set) var takenOver: [(id: SubscriptionID, event: SessionEvent)] = []

    /// - Parameter modelsDisk: whether the disk is a model as well.
    init(_ name: String, in scenario: Scenario, modelsDisk: Bool = false) throws {
        isDiskModelled = modelsDisk
        self.name = name
        self.scenario = scenario
        directory = try TemporaryDirectory().path
        mkdir("\(directory)/sessions.d", 0o700)
        paths = ScenarioPaths(host: name, scenario: scenario)
        disk = Disk(scenario.loop)
    }

    // MARK: The daemon's life

    func write(_ session: String, _ text: String) throws {
        guard let file = fopen("\(directory)/sessions.d/\(session).toml", "w") else {
            throw Failure(description: "the session's file cannot be written")
        }
        fputs(text, file)
        fclose(file)
    }

    /// Removes a session's file.
    func remove(_ session: String) { unlink("\(directory)/sessions.d/\(session).toml") }

    /// - Parameters:
    ///   - configurations: the sessions, instead of what is in the files.
    ///   - memory: what the messages of each session may take.
    ///   - onDeath: called when the fuse has killed the daemon.
    ///   - onEvent: takes the events, which are not kept then.
    func prepare(
        _ configurations: [SessionName: SessionConfiguration], memory: MessageMemory, logger: Logger,
        onDeath: @escaping @Sendable () -> Void, onEvent: @escaping @Sendable (SessionEvent) -> Void
    ) {
        self.configurations = configurations.mapValues { .success($0) }
        self.memory = memory
        self.logger = logger
        self.onDeath = onDeath
        self.onEvent = onEvent
    }

    /// Identifies the session's configuration, if `prepare` gave it.
    func digest(of session: SessionName) -> String? { try? configurations?[session]?.get().digest }

    /// Changes the sessions that `prepare` gave. A running daemon has them once it is told to read its files again.
    func change(_ configuration: SessionConfiguration, of session: SessionName) -> LoadedConfiguration {
        configurations?[session] = .success(configuration)
        return LoadedConfiguration(
            daemon: .success(DaemonConfiguration()), sessions: configurations ?? [:], errors: [])
    }

    func start(bootID: String = "boot", seed: UInt64 = 0) async throws {
        life += 1
        let (loop, life, log) = (scenario.loop, life, logger)
        var real: DurableStore?
        if !isDiskModelled {
            real = try DurableStore(directory: "\(directory)/state", durability: .normal, executor: loop.executor)
        }
        if isDiskModelled { disk.here { $0.takeUp() } }
        fuse = nil
        // A daemon that was killed while it stopped still forgets its own paths.
        paths = ScenarioPaths(host: name, scenario: scenario)
        let store = DiskAccess(disk, to: real) { [weak self] in self?.here { $0.acts(in: life) } ?? false }
        let registry = SessionRegistry(
            notifier: StatusNotifier(notifications: Notifications(eventLoop: loop), eventLoop: loop), logger: log,
            eventLoop: loop)
        let commits = CommitQueue(store: store, eventLoop: loop) { _ in }
        daemon = (registry, store, commits)
        let (scenario, name, memory) = (scenario, name, memory)
        let surroundings = SessionDriver.Surroundings(
            eventLoop: loop,
            clock: HostClock(
                now: { scenario.now },
                wallClock: { [weak self] in
                    let offset = self?.assumeIsolated { $0.clockOffset } ?? .zero
                    return Self.wallClock(scenario.now.advanced(by: offset))
                }), store: store, commits: commits, paths: paths,
            dial: { [weak self] endpoint, options, _, onEvent in
                // A killed daemon continues in memory only, and what it still does has no effect.
                let isAlive = self?.assumeIsolated { $0.acts(in: life) } ?? false
                nonisolated(unsafe) let onEvent = onEvent
                return ScenarioConnection(
                    wire: isAlive
                        ? scenario.assumeIsolated {
                            $0.dial(endpoint, from: name, in: life, options, onEvent: onEvent)
                        } : 0, scenario: scenario
                ) { [weak self] in self?.here { $0.acts(in: life) } ?? false }
            }, turns: PolledTurns(eventLoop: loop),
            credentials: ScenarioCredentials(host: self),
            logger: log, bootID: bootID, deviceID: "device-\(name.lowercased())",
            seed: { seed &+ UInt64(name.utf8.reduce(0) { $0 + Int($1) }) },
            memoryShare: { _ in memory })
        let watch = await registry.watch(nil, since: nil) { [weak self] event, _ in
            self?.assumeIsolated { if $0.life == life { $0.take(event) } }
        }
        _ = try watch.get()
        try await registry.start(
            configurations ?? ConfigurationLoader.load(directory: directory).sessions, in: surroundings)
    }

    /// 2026-01-01 plus the virtual time.
    private nonisolated static func wallClock(_ now: Instant) -> Timestamp {
        Timestamp(rawValue: 1_767_225_600_000 + now.nanoseconds / 1_000_000)
    }

    /// Kills the daemon with SIGKILL: the kernel closes its connections, and nothing else is done.
    /// - Parameter landing: whether what the disk was asked to write still gets there.
    /// - Parameter silently: whether the servers are not told, as when the power fails.
    func kill(landing: Bool = false, silently: Bool = false) async {
        life += 1
        fuse = nil
        await scenario.dropConnections(of: name, tellingServers: !silently)
        await daemon?.store.die(landing: landing)
        daemon = nil
    }

    /// Kills the daemon between two of its actions: dials, sends, ends of connections, writes.
    /// - Parameter actions: how many more actions it takes.
    func kill(after actions: Int, landing: Bool) {
        // A real store cannot be released in the middle of what it does.
        guard isDiskModelled, daemon != nil else { return }
        fuse = (actions, landing)
    }

    /// Cancels `kill(after:landing:)`.
    func spare() { fuse = nil }

    /// Whether the daemon of this life is alive for what it is about to do.
    private func acts(in life: Int) -> Bool {
        guard self.life == life else { return false }
        guard let fuse else { return true }
        self.fuse?.actions -= 1
        guard fuse.actions <= 0 else { return true }
        self.fuse = nil
        self.life += 1
        scenario.here { $0.dropConnections(of: name, tellingServers: true) }
        daemon?.store.here { $0.dieAtOnce(landing: fuse.landing) }
        // The daemon is in the middle of something, and is released when that is over.
        let last = daemon
        scenario.loop.execute { _ = last }
        daemon = nil
        onDeath()
        return false
    }

    /// Stops the daemon as the service manager does.
    func stop() async {
        await daemon?.registry.stop()
        await kill()
    }

    func end() async {
        await kill()
        TemporaryDirectory.remove(directory)
    }

    /// Looks at the paths, and tells the daemon what has changed.
    func lookAtPaths() {
        paths.look { tell($0) }
    }

    /// The resolver has a new configuration.
    func resolverChanged() {
        let path = scenario.here { $0.path(of: name) }
        for target in paths.targets {
            tell(PathChange(target: target, pathClass: .maybe, from: path, to: path, receivedAt: scenario.now))
        }
    }

    private func tell(_ change: PathChange) {
        daemon?.registry.assumeIsolated { $0.pathChanged(change) }
    }

    /// Sets the wall clock, as a person or the time service does.
    func setClock(by offset: Duration) {
        clockOffset += offset
    }

    /// Makes the host sleep: nothing reaches it, and nothing leaves it. Its daemon keeps running.
    func sleep(for duration: Duration, announced: Bool = true) async throws {
        if announced { await daemon?.registry.hostWillSleep() }
        await scenario.silence(self)
        await scenario.sleep(duration)
        await scenario.unsilence(self)
        await daemon?.registry.hostWoke(slept: duration)
    }

    var isRunning: Bool { daemon != nil }
    /// Whether the daemon writes, or waits to write.
    var isCommitting: Bool { daemon?.commits.assumeIsolated { $0.isRunning } ?? false }
    var runningRegistry: SessionRegistry? { daemon?.registry }

    /// The driver of a session that is running.
    func driver(_ session: String = "main") -> SessionDriver? {
        guard let registry = daemon?.registry else { return nil }
        return registry.assumeIsolated { try? $0.runningDriver(session) }
    }

    /// Limits the memory for messages that wait for the inbox.
    func limitWaiting(to bytes: Int) {
        guard let driver = driver() else { return }
        driver.assumeIsolated { $0.ask { $0.mqtt.configuration.inbox.waitingBytes = bytes } }
    }

    // MARK: What a program does

    /// Makes the sessions get their credentials from this service, whatever their files name.
    func use(_ service: TokenService) {
        tokens = service
    }

    func fetchCredential() async throws(Credential.Failure) -> SessionCredential {
        guard let tokens else { throw Credential.Failure(description: "the host has no token service") }
        return try await tokens.fetch(at: scenario.now)
    }

    func registry() throws -> SessionRegistry {
        guard let daemon else { throw Failure(description: "the daemon of \(name) does not run") }
        return daemon.registry
    }

    /// Changes the stored state behind the daemon's back.
    func executeInStore(_ statements: String) async throws {
        try await daemon?.store.real?.execute(statements)
    }

    /// What the files say now.
    func configuration() -> LoadedConfiguration { ConfigurationLoader.load(directory: directory) }

    func status(_ session: String = "main") async throws -> SessionStatus { try await registry().status(session) }

    @discardableResult
    func connect(_ session: String = "main") async throws -> SessionState {
        try await registry().driver(session).connect()
    }

    @discardableResult
    func disconnect(_ session: String = "main") async throws -> SessionState {
        try await registry().driver(session).disconnect()
    }

    @discardableResult
    func reconnect(_ mode: ReconnectMode?, _ session: String = "main") async throws -> SessionState {
        try await registry().driver(session).reconnect(mode)
    }

    func switchRoom(to room: String, _ session: String = "main") async throws {
        _ = try await registry().driver(session).switchRoom(to: room)
    }

    func participants(_ session: String = "main") async throws -> [String] {
        try await registry().driver(session).session.participants().result.participants.map(\.user)
    }

    @discardableResult
    func publish(
        _ topic: String, _ text: String, qos: QoS = .atLeastOnce, _ session: String = "main"
    ) async throws -> Int64? {
        try await registry().driver(session).publish(
            .init(session: session, topic: topic, payload: .init(text: text), qos: qos)
        ).id
    }

    /// Subscribes; what arrives is in `received`.
    @discardableResult
    func subscribe(
        _ filter: String, qos: QoS = .atLeastOnce, _ session: String = "main"
    ) async throws -> SubscriptionID {
        let driver = try await registry().driver(session)
        let consumer = LiveConsumer(
            id: try await registry().nextSubscription(), filter: try TopicFilter(filter), qos: qos)
        let subscriber = Subscriber(deliver: { [weak self] line in
            self?.assumeIsolated { $0.received.append(line.message.payload.text ?? "") }
        })
        _ = try await driver.subscribe(consumer, subscriber)
        return consumer.id
    }

    /// Attaches a program to a durable consumer. What it is given is in `given`; it acknowledges nothing on its own.
    @discardableResult
    func consume(
        _ consumer: String, _ filter: String, qos: QoS = .exactlyOnce, _ session: String = "main"
    ) async throws -> SubscriptionID {
        guard let consumer = ConsumerName(consumer) else { throw Failure(description: "no name of a consumer") }
        let driver = try await registry().driver(session)
        let id = try await registry().nextSubscription()
        let subscriber = Subscriber(
            deliver: { [weak self] line in self?.assumeIsolated { $0.given.append(line.message) } },
            ended: { [weak self] event in self?.assumeIsolated { $0.takenOver.append((id, event)) } })
        _ = try await driver.attach(
            subscriber, as: id, to: consumer, filter, try TopicFilter(await driver.session.resolve(filter)), qos)
        return id
    }

    func acknowledge(
        _ id: Int64, upTo: Bool = false, by subscription: SubscriptionID, _ session: String = "main"
    ) async throws {
        _ = try await registry().driver(session).acknowledge(
            InboxSequence(rawValue: id), upTo: upTo, by: subscription)
    }

    /// Ends the program of a durable consumer.
    func detach(_ id: SubscriptionID, _ session: String = "main") async throws {
        guard let name = SessionName(session) else { return }
        try await registry().detach(id, from: name)
    }

    func endConsumer(_ consumer: String, _ session: String = "main") async throws {
        guard let consumer = ConsumerName(consumer) else { return }
        try await registry().driver(session).endConsumer(consumer)
    }

    /// Returns what the programs of durable consumers were given since the last call, as `text`, with `*` if it may be
    /// the second time.
    func takeGiven() -> [String] {
        defer { given = [] }
        lastGiven = given.last?.id ?? lastGiven
        return given.map { ($0.payload.text ?? "") + ($0.duplicate ? "*" : "") }
    }

    func unsubscribe(_ id: SubscriptionID, _ session: String = "main") async throws {
        guard let name = SessionName(session) else { return }
        try await registry().unsubscribe(id, from: name)
    }

    // MARK: What it reports

    private func take(_ event: SessionEvent) {
        onEvent(event)
        guard configurations == nil else { return }
        events.append((scenario.now, event))
        guard let waiter, let found = next(waiter.isWanted) else { return }
        self.waiter = nil
        waiter.continuation.resume(returning: found)
    }

    /// Skips what does not match, and never goes back.
    private func next(_ isWanted: (SessionEvent) -> Bool) -> SessionEvent? {
        while position < events.count {
            defer { position += 1 }
            if isWanted(events[position].event) { return events[position].event }
        }
        return nil
    }

    /// Waits for the next event that matches, at most for this virtual time.
    @discardableResult
    func until(
        _ what: String, within limit: Duration = .seconds(3 * 3600),
        _ isWanted: @escaping @Sendable (SessionEvent) -> Bool
    ) async throws -> SessionEvent {
        if let event = next(isWanted) { return event }
        let timer = scenario.loop.scheduleTask(in: .nanoseconds(limit.nanoseconds)) { [weak self] in
            self?.assumeIsolated { host in
                host.waiter?.continuation.resume(returning: nil)
                host.waiter = nil
            }
        }
        defer { timer.cancel() }
        let event = await withCheckedContinuation { waiter = (isWanted, $0) }
        guard let event else {
            let told = events.suffix(12).map { "\($0.at.nanoseconds / 1_000_000) \($0.event.line)" }
            throw Failure(description: "\(name): not within \(limit): \(what); last:\n" + told.joined(separator: "\n"))
        }
        return event
    }

    @discardableResult
    func until(_ state: SessionState, within limit: Duration = .seconds(3 * 3600)) async throws -> SessionEvent {
        try await until("state \(state.rawValue)", within: limit) {
            $0.event == .stateChanged && $0.state == state && $0.from != state
        }
    }

    /// Returns the host when its session has connected.
    @discardableResult
    func connected() async throws -> Host {
        try await until(.connected)
        return self
    }

    @discardableResult
    func until(_ kind: SessionEvent.Kind, within limit: Duration = .seconds(3 * 3600)) async throws -> SessionEvent {
        try await until("event \(kind.rawValue)", within: limit) { $0.event == kind }
    }

    /// All events of these kinds so far, or simply all events, in order.
    func told(_ kinds: SessionEvent.Kind...) -> [SessionEvent] {
        events.map(\.event).filter { kinds.isEmpty || kinds.contains($0.event) }
    }

    /// Forgets the events so far.
    func forget() {
        position = events.count
        events.removeAll()
        position = 0
    }
}

extension SessionEvent {
    /// For messages of tests that fail.
    var line: String {
        [
            event.rawValue, state?.rawValue, phase?.rawValue, mode?.rawValue, reason?.code, user,
            attempt.map { "attempt \($0)" }, retryIn.map { "retry in \($0)" },
        ].compactMap(\.self).joined(separator: " ")
    }
}

extension DurableStore {
    fileprivate func execute(_ statements: String) throws(StoreError) { try opened().execute(statements) }
}
