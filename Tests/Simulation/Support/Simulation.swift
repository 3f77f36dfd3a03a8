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

/// One run: the daemons, servers, networks and disks of a world, and the steps of a schedule that happen to them. After
/// each step, everything that must be true is checked.
actor Simulation {
    nonisolated let scenario: Scenario
    nonisolated var unownedExecutor: UnownedSerialExecutor { scenario.loop.asUnownedSerialExecutor() }
    let world: World
    let seed: UInt64
    /// Shared by all hosts.
    nonisolated let tokens: TokenService

    /// A host, what its programs have done, and what is expected of its session.
    struct Resident {
        /// Why the session must not try to connect.
        enum Rest: Hashable {
            case disconnected
            case failed(String)
        }

        let host: Host
        let configuration: SessionConfiguration
        var rest: Rest?
        /// Counts commands, so that late answers are recognized.
        var commands = 0
        var boots = 1
        /// How often its files were read again.
        var reloads = 0
        var isStopping = false
        /// When the host last woke up.
        var wokeAt: Instant?
        /// Requests of programs and people that have not been answered yet.
        var openCalls: [Int: String] = [:]
        /// What each of them is about.
        var openSubjects: [Int: String] = [:]
        /// The last requests about things that later requests change.
        var lastCalls: [String: Int] = [:]
        var live: SubscriptionID?
        var attached: [String: SubscriptionID] = [:]
        /// Messages that programs were given and have not acknowledged.
        var given: [String: [Int64]] = [:]
        var state = SessionState.disconnected
        /// The states that the session has entered since the end began to be watched.
        var unrest: [String] = []
        var watch = Watch()
        /// How many messages a server's packets have led to in this turn of the loop.
        var handled = 0
        /// Unusable QoS 1 messages that this daemon has acknowledged to a server.
        var unusable: Set<ByteBuffer> = []
        /// How often this daemon has reported an unusable message.
        var toldUnusable = 0
        /// Part of the names of keys: a key of another generation is another key.
        var keyGeneration = 0
        /// Whether the clock was set since the daemon was started.
        var clockWasSet = false
        /// By how much the clock was set forward while this daemon was running, and while no daemon noticed it. Where that
        /// is not noticed, messages seem older.
        var setForward = (noticed: Duration.zero, unnoticed: Duration.zero)
        /// Messages that people have asked to drop, in calls that have not been answered.
        var dropping: [Int64] = []

        var clientID: String { configuration.clientID }
    }

    var residents: [Resident] = []
    var ledger = Ledger()
    var coverage = Coverage()
    var position = 0
    var foreignCount = 0
    var tokenCount = 0
    /// Servers that have claimed a session that they did not have, or that may have done so.
    var liars: Set<Scenario.ServerName> = []
    /// Servers that have announced limits to a client.
    var limiters: Set<Scenario.ServerName> = []
    /// All limits that servers have announced.
    var announced: [Connack.Properties] = []
    /// The codes with which servers have ended connections of each client, whatever was sent on them.
    var endings: [String: Set<ReasonCode>] = [:]
    /// When a server last held back its answers to messages.
    var heldAt: Instant?
    /// What servers did when they were sent filters that they could not bear, before they were mended.
    var formerlyDislikedFilters: [ModelBroker.Dislike] = []
    /// Retained messages that a server had when what the publisher knew of them was lost, or that it had again when it
    /// came back in an older state.
    var leftovers: [Scenario.ServerName: Set<String>] = [:]
    /// Clients whose session was replaced by a new one because of a late CONNECT from a daemon that was killed.
    var overtaken: Set<String> = []
    var lastSubscription = 0
    private var lastCall = 0
    /// Whether the durable consumers' programs acknowledge everything that they are given, at once.
    var isDraining = false
    private(set) var violations: [Violation] = []
    /// When something last happened that a session may answer with an attempt.
    var disturbedAt: Instant
    /// How often since then one host has displaced another, for each client.
    var displacements: [String: Int] = [:]
    private var checkedViolations: [Scenario.ServerName: Int] = [:]
    /// What happens, as lines, in a run that is replayed.
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
        let lateness: ModelBroker.Time = world[.forgetsLate] == 1 ? 300 : 0
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
                    broker.lateness = lateness
                    broker.connackProperties = limits
                    broker.password = secret
                    broker.isDisliked = { $0.hasPrefix("out/") }
                }
            }
        }
        for name in world.hosts {
            let host = try scenario.here { try $0.addHost(name, modelsDisk: modelsDisk) }
            let isMeasured = world[.measured] == 1
            scenario.here { $0.withUplink(host) { $0.isMeasured = isMeasured } }
            let configuration = try world.configuration(of: name)
            residents.append(Resident(host: host, configuration: configuration))
            let index = residents.count - 1
            let logger = Logger(label: "simulation") { _ in
                LogReader { [weak self] line in
                    self?.here { $0.ledger.note(.secretsStaySecret, "in the log: \(line)") }
                } couldNotLook: { [weak self] in
                    // A session that cannot see the other device can only be slow.
                    self?.here { $0.displacements = [:] }
                }
            }
            await host.use(tokens)
            await host.prepare(
                ["main": configuration].reduce(into: [:]) { result, element in
                    if let name = SessionName(element.key) { result[name] = element.value }
                }, memory: world.memory, logger: logger,
                onDeath: { [weak self] in self?.here { $0.forgetPrograms(index) } },
                onEvent: { [weak self] event in self?.here { $0.take(event, of: index) } })
            host.disk.here { disk in
                disk.onChange = { [weak self] change, store in
                    self?.here { $0.changing(change, store, of: index) }
                }
            }
            try await host.start(bootID: "boot 1", seed: seed)
        }
    }

    // MARK: The run

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

    // MARK: What is reported

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
            // It may be about to return to its first server.
            if event.event == .stateChanged, event.reason?.code != Reason.Code.returning.rawValue {
                residents[index].unrest.append("\(state.rawValue) (\(event.reason?.code ?? ""))")
            }
            residents[index].watch.changed(event) { $0.contains(ModelBroker.grudgeWords) }
            checkVerdict(event, on: index)
            if event.from == .failed { noteAnotherNetwork(index, because: event.reason?.code) }
            if state == .failed, event.from != .failed { noteFailed(index, event.reason) }
            if state == .connected, event.from != .connected { noteConnected(index, event.endpoint) }
        case .messageRefused:
            residents[index].toldUnusable += 1
            countHandled(on: index)
        case .messageDropped: noteDropped(event, of: index)
        default: break
        }
    }

    /// The time on the clock of a host, as far as nothing makes up for its having been set.
    func hostTime(_ index: Int) -> Instant { scenario.now.advanced(by: residents[index].setForward.unnoticed) }

    /// Checks that a message is dropped only because a person asks for that, or because a limit is reached.
    private func noteDropped(_ event: SessionEvent, of index: Int) {
        guard let id = event.id, let code = event.reason?.code, !world.sharesIdentity else { return }
        let (resident, now) = (residents[index], hostTime(index))
        let limits = resident.configuration.outbox
        let stored = resident.host.disk.here { $0.sessions.values.flatMap(\.mqtt.messages.values) }
        let isQuarantined = stored.contains { message in
            if case .quarantined = message.state { message.sequence.rawValue == id } else { false }
        }
        ledger.dropped(id, on: resident.host.name, because: code) { askedAt in
            switch code {
            case "discarded":
                resident.dropping.contains(id) || isQuarantined && resident.openCalls.values.contains(Self.droppingAll)
            // The time of acceptance is in whole milliseconds.
            case "too-old": limits.maxAge.map { askedAt.duration(to: now) + .milliseconds(1) >= $0 } ?? false
            case "outbox-full":
                limits.whenFull == .dropOldest
                    && (stored.count > limits.maxMessages
                        || stored.reduce(0) { $0 + $1.message.size } > limits.maxBytes)
            default: false
            }
        }
    }

    /// Checks that a message is rejected only if a server has refused it with that code, cannot bear it, or has ruled
    /// it out; or has ended connections with that code, or for a filter, without saying that it was not the message.
    private func checkQuarantine(_ sequence: Int64, _ code: ReasonCode?, _ before: StoredMessage?, of index: Int) {
        let resident = residents[index]
        guard !ledger.wasRefused(sequence, on: resident.host.name, with: code), let message = before?.message else {
            return
        }
        let (isDisliked, filters, holdsAnswers) = scenario.here { scenario in
            let brokers = Scenario.ServerName.allCases.map { scenario.broker($0) }
            return (
                brokers.contains { $0.dislikes(message.topic, message.payload) },
                brokers.flatMap(\.dislikedFilters.values), brokers.contains(where: \.holdsAnswers)
            )
        }
        let isRuledOut = announced.contains { limits in
            code == nil
                && (message.qos > limits.maximumQoS ?? .exactlyOnce
                    || message.size > Int(limits.maximumPacketSize ?? .max) / 2)
        }
        let isForFilter = (filters + formerlyDislikedFilters).contains { $0.mayBeTaken(for: code) }
        // A server that answers no messages, and everything else, cannot bear the first one as far as a client can tell.
        let wasHeld = heldAt.map { $0.duration(to: scenario.now) < .seconds(600) } ?? false
        if isDisliked || isRuledOut || isForFilter || code == nil && (holdsAnswers || wasHeld) { return }
        if let code, endings[resident.clientID]?.contains(code) == true { return }
        let how = code.map { "rejected with \($0)" } ?? "set aside"
        note(.nothingLost, "\(sequence) was \(how), and no server has refused it")
    }

    /// Checks that messages of an inbox are dropped only if it is full, and are counted.
    private func checkDrop(
        _ name: ConsumerName, _ through: InboxSequence, _ count: Int, _ store: ModelStore, _ index: Int
    ) {
        let limits = residents[index].configuration.inbox
        let inbox = store.inboxes[name] ?? []
        guard store.consumers[name] != nil else { return }
        if limits.whenFull != .dropOldest || inbox.count < limits.maxMessages {
            note(.nothingLost, "\(count) messages of \(name) were dropped, and \(inbox.count) were in its inbox")
        }
        let dropped = inbox.count { $0.sequence <= through }
        if dropped != count { note(.nothingLost, "\(dropped) messages of \(name) were dropped as \(count)") }
    }

    /// Checks that the secret is not in anything that people and programs see.
    func searchForSecret(_ value: some Encodable) {
        guard let line = OutgoingLine.encode(value) else {
            return note(.standard, "\(value) cannot be written as JSON")
        }
        if line.withUnsafeBytes({ World.secretBytes.isIn($0) }) {
            note(.secretsStaySecret, "in what is reported: \(String(decoding: line, as: UTF8.self))")
        }
    }

    /// What is wrong at the moment with a host's network, servers, disk and credential.
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
                ("no path", uplink.path == nil), ("silent", !uplink.swallows.isEmpty), ("slow", uplink.rate != nil),
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
        // The limits of time and attempts may be reached at the end of any connection, if ends for other reasons have
        // used them up. The search for the message takes only a few.
        let isUsedUp = reason?.code == Reason.Code.retryTimeout.rawValue && residents[index].watch.otherEnds > 0
        if let reason, reason.message.contains(ModelBroker.grudgeWords), !isUsedUp {
            note(.heals, "\(residents[index].host.name) failed because of one message: \(reason.message)")
        }
        let code = reason.flatMap { Reason.Code(rawValue: $0.code) }
        // A session also gives up when a protocol error repeats at once.
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

    private func changing(_ change: SessionChange, _ store: ModelStore, of index: Int) {
        let before = change.sequence.flatMap { store.messages[$0] }
        trace?.append("        \(scenario.now.nanoseconds / 1_000_000) \(residents[index].host.name) commits \(change)")
        scenario.here { $0.digest.mix(4, UInt64(bitPattern: change.sequence?.rawValue ?? 0), at: $0.now) }
        // Two hosts with the same identity each continue what the other has begun, so none of this can be promised.
        guard !world.sharesIdentity else { return }
        if case .setHomes(let addresses) = change { noteConnected(index, addresses.first?.address) }
        guard case .mqtt(let change) = change else { return }
        switch change {
        case .quarantine(let sequence, let code, _): checkQuarantine(sequence.rawValue, code, before, of: index)
        case .dropCollected(let name, through: let through, let count): checkDrop(name, through, count, store, index)
        default: break
        }
        ledger.changing(change, before, on: residents[index].host.name)
    }

    private func take(_ fact: ModelBroker.Fact, _ server: Scenario.ServerName) {
        switch fact {
        case .accepted(let client, let resumed, let connection, let displaced):
            // A client that is told of a session that does not exist cannot stay, and ends before it is seen in the
            // room.
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
            noteOvertaken(client, resumed: resumed, by: connection, at: server)
            coverage.countAcceptance(resumed: resumed)
        case .discarded(let client, let messages, let connection):
            noteDiscarded(client, messages, by: connection, at: server)
        case .received(let client, let epoch, let publish, let isRefused):
            if !world.sharesIdentity, resident(client) != nil {
                ledger.received(publish, epoch: epoch, at: server.rawValue, isRefused: isRefused)
            }
        case .answered(let client, let publish, let code):
            if !world.sharesIdentity, resident(client) != nil { ledger.answered(publish, code) }
        case .arrived(let client, let epoch, let publish):
            if !world.sharesIdentity, resident(client) != nil {
                // A message that one server never answered, while it took those behind it, arrives late at another
                // server.
                let wasLeftOut = scenario.here { scenario in
                    Scenario.ServerName.allCases.contains { scenario.broker($0).hasLeftOut(publish) }
                }
                ledger.arrived(publish, epoch: epoch, at: server.rawValue, wasLeftOut: wasLeftOut)
            }
        case .sent(let client, let epoch, let publish):
            guard !world.sharesIdentity, let index = resident(client) else { return }
            ledger.sent(publish, epoch: epoch, by: server.rawValue, to: residents[index].host.name)
        case .taken(let client, let publish, let connection):
            if isUnusable(publish, at: server, client) { noteUnusable(publish, on: connection, at: server) }
            guard !world.sharesIdentity, let index = resident(client) else { return }
            let host = residents[index].host
            let life = host.here { $0.life }
            ledger.taken(publish, by: host.name, life: life)
        }
    }

    /// Checks that a client has reported an unusable message before it acknowledges it. With QoS 2 an earlier daemon
    /// may have reported it.
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

    /// Notes whether a client's new session comes from a killed daemon. The next daemon cannot know of packets that
    /// this one sent without an answer: the session that it resumes after that has nothing of what it had set up.
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

    /// Checks that a client has not discarded what a server has kept for it since it continued elsewhere.
    private func noteDiscarded(
        _ client: String, _ messages: Int, by connection: ModelBroker.ConnectionID, at server: Scenario.ServerName
    ) {
        // A server that hung may read late what it was asked on a connection that the host has left.
        let isLate = scenario.here { scenario in
            scenario.wire(of: connection, at: server).flatMap { scenario.wires[$0] }?.isOpenAtHost == false
        }
        guard messages > 0, !isLate, !world.sharesIdentity, let index = resident(client),
            let driver = residents[index].host.here({ $0.driver() })
        else { return }
        let isNeedless = driver.here { driver in
            let isKnown = driver.session.servers.homes.stored.dropFirst().contains {
                $0.address.contains(server.address)
            }
            // Otherwise a person asked for it, its state is unusable, what is known of the session was lost, or a daemon
            // that was killed meanwhile asked for it.
            guard isKnown, driver.session.mqtt.hasSession, let link = driver.session.link, link.peer != nil else {
                return false
            }
            let (machine, endpoint) = (driver.session.machine, link.attempt.endpoint)
            return machine.escalation < .discard && !machine.discards.sessions.contains(endpoint)
                && !machine.discards.olderCopies.contains(endpoint)
        }
        if isNeedless {
            note(.nothingLost, "\(client) discarded \(messages) messages that server \(server.rawValue) had kept")
        }
    }

    private func noteResumed(_ client: String, _ server: Scenario.ServerName) {
        guard world[.endpoints] == 1 || world[.redirects] == 1, let index = resident(client) else { return }
        let epoch = scenario.here { $0.broker(server).epoch(of: client) }
        let isKnown = epoch.map { ledger.knows(residents[index].host.name, at: server.rawValue, epoch: $0) } ?? false
        if !isKnown { doubtSessions(of: index, .misled) }
    }

    /// Notes that the client cannot know what its present sessions have.
    func doubtSessions(of index: Int, _ doubt: Ledger.Doubt) {
        let resident = residents[index]
        for server in Scenario.ServerName.allCases {
            guard let epoch = scenario.here({ $0.broker(server).epoch(of: resident.clientID) }) else { continue }
            ledger.doubt(resident.host.name, at: server.rawValue, epoch: epoch, doubt)
        }
    }

    /// Whether any of these holds for the session that a client has at a server now.
    func isDoubtful(_ index: Int, at server: Scenario.ServerName, _ doubts: Ledger.Doubt...) -> Bool {
        let resident = residents[index]
        guard let epoch = scenario.here({ $0.broker(server).epoch(of: resident.clientID) }) else { return false }
        return doubts.contains { ledger.has($0, resident.host.name, at: server.rawValue, epoch: epoch) }
    }

    private func resident(_ client: String) -> Int? { residents.firstIndex { $0.clientID == client } }

    private func dialed(_ host: String, _ isKnock: Bool) {
        guard let index = residents.firstIndex(where: { $0.host.name == host }) else { return }
        if residents[index].rest != nil {
            // The purpose of the dial is known only after it.
            scenario.loop.execute { [weak self] in self?.assumeIsolated { $0.checkDial(of: index) } }
        }
        residents[index].watch.dialed(at: scenario.now, isKnock: isKnock)
    }

    /// Checks a dial of a session that must not try to connect. Only a second client may dial, to say goodbye in the
    /// room for a session that was displaced.
    private func checkDial(of index: Int) {
        let host = residents[index].host
        guard let rest = residents[index].rest, !residents[index].openCalls.values.contains(Self.connecting),
            let driver = host.here({ $0.driver() }),
            !driver.here({ if case .farewell = $0.session.looking?.purpose { true } else { false } })
        else { return }
        // The attempt may have failed since, in the same instant.
        let cause = driver.here {
            let machine = $0.session.machine
            return if case .trying(let trying) = machine.state { trying.cause.code } else { machine.reason.code }
        }
        noteAnotherNetwork(index, because: cause.rawValue)
        guard residents[index].rest != nil else { return }
        note(.terminalIsTerminal, "\(host.name) dials, and it is \(rest)")
    }

    /// On another network, something else may answer than what had an invalid certificate.
    private func noteAnotherNetwork(_ index: Int, because code: String?) {
        let isNetwork = [Reason.Code.pathGained, .pathMoved].contains { $0.rawValue == code }
        guard isNetwork, residents[index].rest == .failed(Reason.Code.certificateInvalid.rawValue) else { return }
        residents[index].rest = nil
    }

    // MARK: Calls

    /// Asks for something as a program, and waits for the answer, which never comes from a daemon that is gone.
    ///
    /// - Parameters:
    ///   - subject: what the answer is about; a later request about the same may change it again.
    ///   - holds: whether the answer holds if the daemon is killed now and the next one is given this.
    ///   - answered: what to do with the answer, or the error, of a daemon that is still alive.
    func ask<Answer>(
        _ name: String, of index: Int, about subject: String? = nil,
        _ question: @escaping @Sendable () async throws -> Answer,
        holds: @escaping (Answer, StoredSession, ModelStore) -> Bool = { _, _, _ in true },
        answered: @escaping (Result<Answer, any Error>) -> Void = { _ in }
    ) {
        lastCall += 1
        // Calls that are open at once may be carried out in any order.
        let isAlone = !residents[index].openSubjects.values.contains { $0 == subject }
        if let subject {
            residents[index].lastCalls[subject] = lastCall
            residents[index].openSubjects[lastCall] = subject
        }
        let (call, host) = (lastCall, residents[index].host)
        let life = host.here { $0.life }
        residents[index].openCalls[call] = name
        nonisolated(unsafe) let (holds, answered) = (holds, answered)
        Task {
            let answer: Result<Answer, any Error>
            do { answer = .success(try await question()) } catch { answer = .failure(error) }
            guard host.here({ $0.life }) == life else { return }
            scenario.here { $0.digest.mix(5, UInt64(call), at: $0.now) }
            residents[index].openCalls[call] = nil
            residents[index].openSubjects[call] = nil
            let isLast = subject.map { residents[index].lastCalls[$0] == call } ?? true
            if isAlone, isLast, case .success(let answer) = answer {
                let store = host.disk.here { $0.sessions.values.first } ?? ModelSession()
                if !holds(answer, store.stored, store.mqtt) {
                    note(.committedFirst, "\(host.name) has answered \(name), which is not committed")
                }
            }
            answered(answer)
        }
    }

    // MARK: Checking

    /// Checks everything after a step.
    private func check() {
        let isHeld = scenario.here { scenario in
            Scenario.ServerName.allCases.contains { scenario.broker($0).holdsAnswers }
        }
        if isHeld { heldAt = scenario.now }
        for index in residents.indices { checkStatus(of: index) }
        checkPeace()
        for server in Scenario.ServerName.allCases where !world.sharesIdentity {
            let found = scenario.here { $0.servers[server]?.broker.violations ?? [] }
            for sentence in found.dropFirst(checkedViolations[server] ?? 0) {
                // In an old copy of a session that is resumed, an identifier may mean something else.
                let isMisled = residents.indices.contains { isDoubtful($0, at: server, .misled) }
                if isMisled, sentence.contains("used again") { continue }
                // Only messages of QoS 2 wait for identifiers that are certainly free. A server does not take a message
                // of QoS 1 for one of them.
                let isOlder = residents.indices.contains {
                    isDoubtful($0, at: server, .rolledBack, .wentBack, .returned)
                }
                if isOlder, sentence.contains("used again by QoS 1") { continue }
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

/// Searches everything that is logged for the secret, and notices when a session could not look into its room.
struct LogReader: LogHandler {
    let found: @Sendable (String) -> Void
    let couldNotLook: @Sendable () -> Void
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace
    private static let failedLook = Needle(SessionLog.failedLook)

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
