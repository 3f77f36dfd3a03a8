import Configuration
import ControlAPI
import Logging
import MQTT
import NIOCore
import Session
import Support
import Vocabulary

@testable import Agent
@testable import SessionCore

/// One run: daemons, servers, networks and disks of a world, to which the steps of a schedule happen. After each step
/// everything that must be true is looked at.
actor Simulation {
    nonisolated let scenario: Scenario
    nonisolated var unownedExecutor: UnownedSerialExecutor { scenario.loop.asUnownedSerialExecutor() }
    let world: World
    let seed: UInt64
    /// Of all hosts.
    nonisolated let tokens: TokenService

    /// A host, with what its programs have done, and what is expected of its session.
    struct Resident {
        /// Why the session must not try to connect.
        enum Rest: Hashable {
            case disconnected
            case failed(String)
        }

        let host: Host
        let configuration: SessionConfiguration
        var rest: Rest?
        /// Counts what was asked, so that late answers are known as such.
        var commands = 0
        var boots = 1
        var isStopping = false
        /// When the host woke up last.
        var wokeAt: Instant?
        /// What programs and people have asked for, and nobody has answered yet.
        var openCalls: [Int: String] = [:]
        var live: SubscriptionID?
        var attached: [String: SubscriptionID] = [:]
        /// What programs were given and have not acknowledged.
        var given: [String: [Int64]] = [:]
        var state = SessionState.disconnected
        var watch = Watch()
        /// What came of a server's packets in this turn of the loop.
        var handled = 0
        /// Unusable messages of QoS 1 that this daemon has told a server are taken.
        var unusable: Set<ByteBuffer> = []
        /// How often this daemon has told of an unusable message.
        var toldUnusable = 0
        /// A key of another generation is another key.
        var keyGeneration = 0
        /// Whether the clock was set since the daemon was started.
        var clockWasSet = false

        var clientID: String { configuration.clientID }
    }

    var residents: [Resident] = []
    var ledger = Ledger()
    var coverage = Coverage()
    var position = 0
    var foreignCount = 0
    var tokenCount = 0
    /// Servers that have claimed a session that they did not have, or may have.
    var liars: Set<Scenario.ServerName> = []
    /// Such a server was believed, by a client that has another one.
    var wasLiedTo = false
    /// Servers that have told somebody of limits.
    var limiters: Set<Scenario.ServerName> = []
    /// A server has resumed a session of which its client had never heard, because the answer to an earlier CONNECT was lost
    /// or another device was there. Of two servers that looks as if they had their sessions in common, as those of a
    /// cluster have; so the one that was there before is believed to know everything, and does not.
    var isMisled = false
    /// Clients that have lost what they knew of the server's session last.
    var rolledBack: Set<String> = []
    /// Clients whose session a CONNECT began anew that a killed daemon had sent, and that was late.
    var overtaken: Set<String> = []
    var lastSubscription = 0
    private var lastCall = 0
    /// Whether the durable consumers' programs acknowledge whatever they are given, at once.
    var isDraining = false
    private(set) var violations: [Violation] = []
    /// When something happened last that a session may answer with an attempt.
    var disturbedAt: Instant
    /// How often since then one host was thrown out by another one, of each client.
    var displacements: [String: Int] = [:]
    private var checkedViolations: [Scenario.ServerName: Int] = [:]
    /// What is told of a run that is replayed.
    var trace: [String]?

    init(_ schedule: Schedule, in scenario: Scenario, traces: Bool) {
        self.scenario = scenario
        world = schedule.world
        seed = schedule.seed
        tokens = TokenService(scenario.loop, World.secret)
        disturbedAt = scenario.now
        trace = traces ? [] : nil
    }

    // MARK: Beginning

    func prepare(modelsDisk: Bool) async throws {
        let servers = Scenario.ServerName.allCases
        let (silent, limits) = (world[.silentTakeOver] == 1, world.serverLimits)
        let secret = world[.password] == 1 ? World.secret : nil
        scenario.here { scenario in
            scenario.onFact = { [weak self] server, fact in self?.here { $0.take(fact, server) } }
            scenario.onArrival = { [weak self] host, wire, bytes in
                self?.here { $0.checkShare(of: bytes, on: wire, at: host) }
            }
            scenario.onDial = { [weak self] host, isKnock in self?.here { $0.dialed(host, isKnock) } }
            for server in servers {
                scenario.with(server) { broker, _ in
                    broker.recordsFacts = true
                    broker.takesOverSilently = silent
                    broker.connackProperties = limits
                    broker.password = secret
                    broker.isDisliked = { $0.hasPrefix("out/") }
                }
            }
        }
        for name in world.hosts {
            let host = try scenario.here { try $0.addHost(name, modelsDisk: modelsDisk) }
            let configuration = try world.configuration(of: name)
            residents.append(Resident(host: host, configuration: configuration))
            let index = residents.count - 1
            let logger = Logger(label: "simulation") { _ in
                LogReader { [weak self] line in
                    self?.here { $0.ledger.note(.secretsStaySecret, "in the log: \(line)") }
                } couldNotLook: { [weak self] in
                    // Who cannot see the other device can only be slow.
                    self?.here { $0.displacements = [:] }
                }
            }
            await host.use(tokens)
            await host.prepare(
                ["main": configuration].reduce(into: [:]) { result, element in
                    if let name = SessionName(element.key) { result[name] = element.value }
                }, logger: logger,
                onDeath: { [weak self] in self?.here { $0.forgetPrograms(index) } },
                onEvent: { [weak self] event in self?.here { $0.take(event, of: index) } })
            host.disk.here { disk in
                disk.onChange = { [weak self] _, change, before in
                    self?.here { $0.changing(change, before, of: index) }
                }
            }
            try await host.start(bootID: "boot 1", seed: seed)
        }
    }

    // MARK: The course

    /// - Returns: whether the run may go on.
    func run(_ step: Step) async throws -> Bool {
        trace?.append("\(position): \(step)")
        coverage.count(step)
        noteContext(of: step)
        try await carryOut(step)
        check()
        position += 1
        return violations.isEmpty
    }

    func mix(_ number: UInt64) { scenario.here { $0.digest.mix(number) } }

    // MARK: What is told

    private func take(_ event: SessionEvent, of index: Int) {
        let resident = residents[index]
        scenario.here { scenario in
            scenario.digest.mix(event.line)
            scenario.digest.mix(UInt64(bitPattern: scenario.now.nanoseconds))
        }
        trace?.append("        \(scenario.now.nanoseconds / 1_000_000) \(resident.host.name) \(event.line)")
        if world[.password] == 1 { searchForSecret(event) }
        for text in [event.reason?.message, event.subscription?.message].compactMap(\.self) where text != text.plain() {
            note(.statusIsTrue, "\(resident.host.name) tells a text that is not plain: \(text)")
        }
        switch event.event {
        case .subscriptionChanged:
            if let subscription = event.subscription { residents[index].watch.told(subscription) }
        case .stateChanged, .phaseChanged:
            guard let state = event.state else { return }
            coverage.count(event, under: faults(around: index))
            residents[index].state = state
            residents[index].watch.changed(event) { $0.contains(ModelBroker.grudgeWords) }
            if state == .failed, event.from != .failed { noteFailed(index, event.reason) }
            if state == .connected, event.from != .connected { noteConnected(index, event.endpoint) }
        case .messageRefused:
            residents[index].toldUnusable += 1
            countHandled(on: index)
        case .messageDropped:
            if let id = event.id { ledger.dropped(id, on: resident.host.name) }
        default: break
        }
    }

    /// The secret is in no part of what people and programs see.
    func searchForSecret(_ value: some Encodable) {
        guard let line = OutgoingLine.encode(value) else {
            return note(.standard, "\(value) cannot be written as JSON")
        }
        if line.withUnsafeBytes({ World.secretBytes.isIn($0) }) {
            note(.secretsStaySecret, "in what is told: \(String(decoding: line, as: UTF8.self))")
        }
    }

    /// What is wrong at the moment with the network, the servers, the disk and the credential of a host.
    private func faults(around index: Int) -> [String] {
        let resident = residents[index]
        let (fault, delay) = resident.host.disk.here { ($0.fault, $0.delay) }
        let hasToken = tokens.here { $0.failure == nil && !$0.hangs }
        return scenario.here { scenario in
            let uplink = scenario.uplink(resident.host)
            let reachable = Scenario.ServerName.allCases.prefix(resident.configuration.endpoints.count)
            let brokers = reachable.map { scenario.broker($0) }
            let isTokenRight = brokers.allSatisfy { broker in
                broker.password.map { right in tokens.here { $0.token == right } } ?? true
            }
            let all = [
                ("no path", uplink.path == nil), ("silent", !uplink.swallows.isEmpty),
                ("stranded", scenario.wires.values.contains { $0.host == resident.host.name && $0.isStranded }),
                ("server down", reachable.contains { !scenario.isUp($0) }),
                ("server hangs", reachable.contains { scenario.servers[$0]?.isHung == true }),
                ("server refuses", brokers.contains { $0.refusals[resident.clientID] != nil }),
                ("answers held", brokers.contains { $0.holdsAnswers }), ("disk faulty", fault != nil),
                ("disk slow", delay > .zero), ("token wrong", !hasToken || !isTokenRight),
            ]
            return all.filter(\.1).map(\.0)
        }
    }

    private func noteFailed(_ index: Int, _ reason: SessionStatus.Reason?) {
        residents[index].rest = .failed(reason?.code ?? "")
        // A limit of time may be reached at any end if something else used it up: the search takes a few ends only.
        let isOutOfTime =
            reason?.code == Reason.Code.retryTimeout.rawValue
            && residents[index].configuration.reconnect.giveUpAfter != nil && residents[index].watch.otherEnds > 0
        if let reason, reason.message.contains(ModelBroker.grudgeWords), !isOutOfTime {
            note(.heals, "\(residents[index].host.name) failed because of one message: \(reason.message)")
        }
        let code = reason.flatMap { Reason.Code(rawValue: $0.code) }
        // What happens again at once is given up, too.
        let isRepeated = code == .protocolError
        if code?.isTerminal != true, !isRepeated {
            note(.heals, "\(residents[index].host.name) failed for good because of \(reason?.code ?? "nothing")")
        }
        if code == .retryTimeout, residents[index].configuration.reconnect.giveUpAfter == nil,
            residents[index].configuration.reconnect.giveUpAttempts == nil
        {
            note(.heals, "\(residents[index].host.name) has given up, and its policy has no end")
        }
    }

    private func noteConnected(_ index: Int, _ endpoint: String?) {
        let resident = residents[index]
        for server in Scenario.ServerName.allCases where endpoint?.contains(server.address) == true {
            let epoch = scenario.here { $0.broker(server).epoch(of: resident.clientID) }
            if let epoch { ledger.connected(resident.host.name, at: server.rawValue, epoch: epoch) }
        }
    }

    private func changing(_ change: SessionChange, _ before: StoredMessage?, of index: Int) {
        trace?.append("        \(scenario.now.nanoseconds / 1_000_000) \(residents[index].host.name) commits \(change)")
        scenario.here { $0.digest.mix(4, UInt64(bitPattern: change.sequence?.rawValue ?? 0), at: $0.now) }
        // With one identity, each of two hosts goes on with what the other has begun: nothing of this can be promised.
        guard !world.sharesIdentity else { return }
        if case .setHomes(let addresses) = change { noteConnected(index, addresses.first) }
        if case .mqtt(let change) = change { ledger.changing(change, before, on: residents[index].host.name) }
    }

    private func take(_ fact: ModelBroker.Fact, _ server: Scenario.ServerName) {
        switch fact {
        case .accepted(let client, let resumed, let connection, let displaced):
            // Who is told of a session that is not there cannot stay, and does not come as far as being seen in the room.
            let isFight = scenario.here { scenario in
                guard !scenario.broker(server).claimsSession, let displaced,
                    let old = scenario.host(of: displaced, at: server),
                    let new = scenario.host(of: connection, at: server)
                else { return false }
                return old != new
            }
            if isFight { displacements[client, default: 0] += 1 }
            if let index = resident(client), let epoch = scenario.here({ $0.broker(server).epoch(of: client) }) {
                ledger.accepted(residents[index].host.name, at: server.rawValue, epoch: epoch, resumed: resumed)
            }
            if resumed { noteResumed(client, server) }
            if resumed, world[.endpoints] + world[.redirects] > 0, liars.contains(server) { wasLiedTo = true }
            noteOvertaken(client, resumed: resumed, by: connection, at: server)
            coverage.countAcceptance(resumed: resumed)
        case .received(let client, let epoch, let publish, let isRefused):
            if !world.sharesIdentity, resident(client) != nil {
                ledger.received(publish, epoch: epoch, at: server.rawValue, isRefused: isRefused)
            }
        case .answered(let client, let publish, let code):
            if !world.sharesIdentity, resident(client) != nil { ledger.answered(publish, code) }
        case .arrived(let client, let epoch, let publish):
            if !world.sharesIdentity, resident(client) != nil {
                // What one server has left out, while it took what was behind it, comes late to another one.
                let wasLeftOut = scenario.here { scenario in
                    Scenario.ServerName.allCases.contains { scenario.broker($0).hasLeftOut(publish) }
                }
                ledger.arrived(
                    publish, epoch: epoch, at: server.rawValue, isMisled: isMisled, wasLeftOut: wasLeftOut)
            }
        case .sent(let client, let epoch, let publish):
            guard !world.sharesIdentity, let index = resident(client) else { return }
            ledger.sent(publish, epoch: epoch, by: server.rawValue, to: residents[index].host.name)
        case .taken(let client, let publish, let connection):
            if isUnusable(publish, at: server, client) { noteUnusable(publish, on: connection, at: server) }
            guard !world.sharesIdentity, let index = resident(client) else { return }
            let host = residents[index].host
            let life = host.here { $0.life }
            // Who took two servers for a cluster, because one of them claimed the other's session, has identifiers open that
            // mean another message there.
            guard publish.qos != .exactlyOnce || !wasLiedTo else { return }
            ledger.taken(publish, by: host.name, life: life, atServer: server.rawValue)
        }
    }

    /// Who acknowledges a message that cannot be used has told of it before. With QoS 2 that may have been an earlier daemon.
    private func noteUnusable(
        _ publish: Publish, on connection: ModelBroker.ConnectionID, at server: Scenario.ServerName
    ) {
        let wire = scenario.here { scenario in
            scenario.wire(of: connection, at: server).flatMap { scenario.wires[$0] }.map { ($0.host, $0.life) }
        }
        guard publish.qos == .atLeastOnce, let (name, life) = wire,
            let index = residents.firstIndex(where: { $0.host.name == name }),
            residents[index].host.here({ $0.life }) == life
        else { return }
        residents[index].unusable.insert(publish.payload)
        let (taken, told) = (residents[index].unusable.count, residents[index].toldUnusable)
        if told < taken {
            note(.statusIsTrue, "\(name) took \(taken) messages that cannot be used, and told of \(told)")
        }
    }

    private func isUnusable(_ publish: Publish, at server: Scenario.ServerName, _ client: String) -> Bool {
        let isFive = scenario.here { $0.broker(server).version(of: client) } == .five
        return publish.payload.readableBytesView.first == UInt8(ascii: "f")
            && (publish.topic.hasSuffix("\n") || isFive)
    }

    /// A new daemon cannot know what a killed one had sent without an answer: the session that it resumes after that has
    /// nothing of what it had set up.
    private func noteOvertaken(
        _ client: String, resumed: Bool, by connection: ModelBroker.ConnectionID, at server: Scenario.ServerName
    ) {
        guard !resumed, let index = resident(client) else { return }
        let life = residents[index].host.here { $0.life }
        let isLate = scenario.here { scenario in
            scenario.wire(of: connection, at: server).flatMap { scenario.wires[$0] }.map { $0.life != life } ?? false
        }
        if isLate { overtaken.insert(client) } else { overtaken.remove(client) }
    }

    private func noteResumed(_ client: String, _ server: Scenario.ServerName) {
        guard world[.endpoints] == 1 || world[.redirects] == 1, let index = resident(client) else { return }
        let epoch = scenario.here { $0.broker(server).epoch(of: client) }
        let isKnown = epoch.map { ledger.knows(residents[index].host.name, at: server.rawValue, epoch: $0) } ?? false
        if !isKnown { isMisled = true }
    }

    private func resident(_ client: String) -> Int? { residents.firstIndex { $0.clientID == client } }

    private func dialed(_ host: String, _ isKnock: Bool) {
        guard let index = residents.firstIndex(where: { $0.host.name == host }) else { return }
        if residents[index].rest != nil {
            // What it dials for is known when it has dialed.
            scenario.loop.execute { [weak self] in self?.assumeIsolated { $0.checkDial(of: index) } }
        }
        residents[index].watch.dialed(at: scenario.now, isKnock: isKnock)
    }

    /// Only a second client may come, to say goodbye in the room for a session that was displaced.
    private func checkDial(of index: Int) {
        let host = residents[index].host
        guard let rest = residents[index].rest, !residents[index].openCalls.values.contains(Self.connecting),
            let driver = host.here({ $0.driver() }),
            !driver.here({ if case .farewell = $0.session.looking?.purpose { true } else { false } })
        else { return }
        note(.terminalIsTerminal, "\(host.name) dials, and it is \(rest)")
    }

    // MARK: Calls

    /// A program asks for something, and waits for the answer, which it never gets from a daemon that is gone.
    ///
    /// - Parameter answered: what to do with the answer, or the error, of a daemon that lives still.
    func ask<Answer>(
        _ name: String, of index: Int, _ question: @escaping @Sendable () async throws -> Answer,
        answered: @escaping (Result<Answer, any Error>) -> Void = { _ in }
    ) {
        lastCall += 1
        let (call, host) = (lastCall, residents[index].host)
        let life = host.here { $0.life }
        residents[index].openCalls[call] = name
        nonisolated(unsafe) let answered = answered
        Task {
            let answer: Result<Answer, any Error>
            do { answer = .success(try await question()) } catch { answer = .failure(error) }
            guard host.here({ $0.life }) == life else { return }
            scenario.here { $0.digest.mix(5, UInt64(call), at: $0.now) }
            residents[index].openCalls[call] = nil
            answered(answer)
        }
    }

    // MARK: Looking

    /// After each step.
    private func check() {
        for index in residents.indices { checkStatus(of: index) }
        checkPeace()
        for server in Scenario.ServerName.allCases where !world.sharesIdentity {
            let found = scenario.here { $0.servers[server]?.broker.violations ?? [] }
            for sentence in found.dropFirst(checkedViolations[server] ?? 0) {
                // In an old copy that is resumed, an identifier may mean something else.
                if isMisled, sentence.contains("used again before PUBREL") { continue }
                ledger.note(.standard, "server \(server.rawValue): \(sentence)")
            }
            checkedViolations[server] = found.count
        }
        for (invariant, sentence) in ledger.takeProblems() {
            violations.append(Violation(invariant: invariant, sentence: sentence, step: position))
        }
    }

    func note(_ invariant: Violation.Invariant, _ sentence: String) { ledger.note(invariant, sentence) }

    func finish() {
        position += 1
        check()
    }
}

/// Looks for the secret in everything that is logged, and for what a session could not do.
struct LogReader: LogHandler {
    let found: @Sendable (String) -> Void
    let couldNotLook: @Sendable () -> Void
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace
    private static let failedLook = Needle("the room cannot be looked into")

    init(found: @escaping @Sendable (String) -> Void, couldNotLook: @escaping @Sendable () -> Void) {
        (self.found, self.couldNotLook) = (found, couldNotLook)
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let message = "\(event.message)"
        if World.secretBytes.isIn(message) { found(message) }
        if Self.failedLook.isIn(message) { couldNotLook() }
        for (key, value) in event.metadata ?? [:] where World.secretBytes.isIn("\(value)") { found("\(key)=\(value)") }
    }
}
