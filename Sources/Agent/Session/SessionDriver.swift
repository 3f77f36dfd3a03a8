import Configuration
import ControlAPI
import DurableStore
import Logging
import MQTT
import NIOCore
import NIOPosix
import NetworkPath
import Session
import SessionCore
import Transport
import Vocabulary

/// The shell around one session's two machines: the only one that carries out their actions.
///
/// Everything runs on the daemon's event loop. Inputs wait in one queue: each is handled to its end, actions included,
/// before the next one is looked at, so that carrying out an action never calls back into a machine.
actor SessionDriver {
    enum Work {
        case session(SessionMachine.Input)
        case mqtt(MQTTClientMachine.Input)
        /// What happened on a link; nothing if that is gone by then.
        case onLink(Generation, MQTTClientMachine.Input)
        case room(RoomOrder)
        /// What a call of the protocol machine answered.
        case perform([MQTTClientMachine.Action])
        case timeReached
        /// The link ended, or the protocol gave it up: both machines are told, the protocol's first.
        case retire(Generation, SessionMachine.Ending, MQTTClientMachine.Input = .connectionClosed)
    }

    enum Life: Hashable {
        case running
        /// About to end, and another driver takes over what is asked from now on. What the session has at the server goes with
        /// it `forGood`, whatever the reason says.
        case stopping(forGood: Bool)
        /// Whatever still arrives is ignored.
        case over
    }

    /// What the session itself asks of the protocol.
    enum RoomOrder {
        case announce(Announcement)
        case subscribe(TopicFilter, QoS = .atLeastOnce)
    }

    let name: SessionName
    let configuration: SessionConfiguration
    let surroundings: Surroundings
    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    /// All that decides.
    var session: Session
    var link: Link?
    /// The link was dropped, and the protocol machine has not heard of it: how it ended.
    var untoldEnd: MQTTClientMachine.Input?
    var log: SessionLog
    let tlsContexts = TLSContextCache()
    var connections = DialedConnections()
    var work = CircularBuffer<Work>()
    private(set) var isWorking = false
    var timer: (deadline: Instant, scheduled: Scheduled<Void>)?
    /// Set while messages were accepted that nothing has followed from yet: see ``acceptanceTime()``.
    private var acceptance: Timestamp?
    /// Since when the present state is, by the wall clock.
    var since: RFC3339
    var isFlushing = false
    var credentialWatch: CredentialWatch?
    var programs = Programs()
    /// Where the session was connected last, and how: for taking its presence away when it is displaced.
    var lastOpened: (endpoint: Endpoint, password: [UInt8]?, proxyPassword: [UInt8]?)?
    /// Subscriptions are restored, and what the session itself publishes is not.
    var isRestoring = false
    /// What is set up beside the link, to take over from it.
    var successor: Link?
    var clockSteps: ClockStepDetector
    /// What is simulated.
    var simulation = Simulation()
    var life = Life.running
    /// How many commits were begun.
    var commitCount = 0
    /// What the session machine reported and nobody was told yet.
    var untold = UntoldEvents()

    init(
        name: SessionName, configuration: SessionConfiguration, stored: StoredSession,
        parked: ParkedConsumers = ParkedConsumers(), surroundings: Surroundings
    ) {
        self.name = name
        self.configuration = configuration
        self.surroundings = surroundings
        programs.subscribers = parked.subscribers
        eventLoop = surroundings.eventLoop
        since = surroundings.clock.wallClock()
        log = SessionLog(session: name, logger: surroundings.logger)
        session = Session(
            machine: SessionMachine(
                policy: configuration.reconnect, timeouts: configuration.timeouts, heartbeat: configuration.heartbeat,
                rest: configuration.rest, isBound: configuration.network.isBinding,
                paths: surroundings.paths.watch(configuration.hosts, of: name, for: configuration.network),
                seed: surroundings.seed(), at: surroundings.clock.now()),
            mqtt: MQTTClientMachine(
                configuration: MQTTClientMachine.Configuration(configuration), restoring: stored.mqtt),
            servers: Servers(
                redirections: Redirections(
                    configuration.endpoints, allowed: configuration.mqtt.redirects,
                    needsEncryption: configuration.password != nil && !configuration.insecure),
                protocols: ProtocolChoice(configuration.mqtt.version.only), homes: stored.homes),
            addresses: EndpointAddresses(configuration.hosts),
            credentials: CredentialState(isConfigured: configuration.password != nil),
            rooms: Rooms(
                identity: .init(
                    user: configuration.user,
                    device: configuration.device.isEmpty ? surroundings.deviceID : configuration.device),
                session: name.description, willDelay: configuration.presence.willDelay,
                remembered: Set(stored.presences.map { RFC3339(milliseconds: $0.rawValue) }),
                seed: surroundings.seed()),
            publications: Publications(stored.publications, retained: stored.retainedTopics),
            consumers: parked.live, durableConsumers: DurableConsumers(stored.mqtt, attached: parked.attached),
            clientID: stored.mqtt.assignedClientID ?? configuration.clientID, verdict: stored.verdict)
        clockSteps = ClockStepDetector(
            now: surroundings.clock.now(), wallClock: surroundings.clock.wallClock().milliseconds)
    }

    // MARK: The funnel

    func run(_ input: MQTTClientMachine.Input) { run(.mqtt(input)) }

    func run(_ actions: [MQTTClientMachine.Action]) { run(.perform(actions)) }

    func order(_ order: RoomOrder) { run(.room(order)) }

    func unsubscribe(from filter: TopicFilter) { run(.mqtt(.unsubscribe(filter))) }

    func renew(because reason: Reason) { run(.session(.renew(reason))) }

    func progressed(_ generation: Generation, _ phase: Phase) { run(.session(.progressed(generation, phase))) }

    /// To be done after what is being done now.
    func tellSessionLater(_ input: SessionMachine.Input) { work.append(.session(input)) }

    func retire(_ generation: Generation, _ reason: Reason) { run(.retire(generation, .init(reason))) }

    /// When a message is accepted that comes now. All of one turn of the loop are accepted at the same time, and what
    /// follows from them is done once, at the end of the turn or before anything else is done.
    func acceptanceTime() -> Timestamp {
        if let acceptance { return acceptance }
        checkClock()
        let time = timestamp
        acceptance = time
        eventLoop.execute { [weak self] in self?.assumeIsolated { $0.runAccepted() } }
        return time
    }

    func runAccepted() {
        if acceptance != nil { run([]) }
    }

    private func goOnWithAccepted() {
        guard let time = acceptance else { return }
        acceptance = nil
        var actions: [MQTTClientMachine.Action] = []
        session.mqtt.goOnWithAccepted(at: time, into: &actions)
        perform(actions)
    }

    func run(_ item: Work) {
        guard life != .over else { return }
        guard !isWorking else { return work.append(item) }
        isWorking = true
        // What the protocol machine has answered already comes before what it answers from now on: commits are in its order.
        if case .perform(let actions) = item { perform(actions) } else { work.append(item) }
        goOnWithAccepted()
        checkClock()
        repeat {
            while !work.isEmpty { carryOut(work.removeFirst()) }
            noteUses()
            endSettling()
            fetchLeftOut()
            readOn()
        } while !work.isEmpty
        dropUnwantedKnocks()
        dropUnwantedSuccessor()
        adjustReading()
        isWorking = false
        tellLater()
        schedule()
    }

    /// What is measured by the wall clock must not change because somebody sets it.
    func checkClock() {
        guard let step = clockSteps.check(now: now, wallClock: wallClock.milliseconds) else { return }
        session.durableConsumers.forgetAhead()
        let input = MQTTClientMachine.Input.clockStepped(by: step.milliseconds, acceptedWithin: step.affected)
        if isWorking { handle(input) } else { run(.mqtt(input)) }
    }

    private func carryOut(_ item: Work) {
        switch item {
        case .session(let input):
            var actions: [SessionMachine.Action] = []
            session.machine.lingering = session.rooms.membership?.presence.lingering(
                keepAlive: session.mqtt.configuration.keepAlive)
            session.machine.handle(input, at: now, into: &actions)
            for action in actions { perform(action) }
            endProtocol()
        case .mqtt(let input):
            handle(input)
        case .onLink(let generation, let input):
            if link?.generation == generation { handle(input) }
        case .room(let order):
            var actions: [MQTTClientMachine.Action] = []
            switch order {
            case .announce(let announcement): session.mqtt.announce(announcement, at: timestamp, into: &actions)
            case .subscribe(let filter, let qos): subscribe(to: filter, qos: qos, into: &actions)
            }
            perform(actions)
        case .perform(let actions):
            perform(actions)
        case .timeReached:
            carryOutDue()
            work.append(.mqtt(.timePassed))
            work.append(.session(.timeReached))
        case .retire(let generation, var ending, let end):
            if let link, link.generation == generation {
                ending = link.ending ?? ending
                session.servers.ended(wasTried: link.isDialed)
                connections.letGo(of: link.connection)
                connections.letGo(of: link.knock, .abort)
                self.link = nil
                handle(end)
                if link.opened != nil { watchAllPaths(of: link.attempt.endpoint) }
            }
            work.append(.session(.ended(generation, ending)))
        }
    }

    // MARK: Actions of the session machine

    private func perform(_ action: SessionMachine.Action) {
        switch action {
        // What takes the link's place is dialed first: what the protocol does with the end takes longer.
        case .open, .report: break
        default: endProtocol()
        }
        switch action {
        case .open(let attempt):
            open(attempt)
        case .abandon(let generation):
            if link?.generation == generation { dropLink() }
        case .prepare(let attempt):
            prepareSuccessor(attempt)
        case .settle(let generation):
            work.append(.onLink(generation, .settle))
        case .leave(let generation):
            leave(generation)
        case .flush:
            isFlushing = true
            perform(session.rooms.leave())
            leavePublications()
            checkFlushed()
        case .sayGoodbye:
            isFlushing = false
            work.append(.mqtt(.disconnect(session.goodbye)))
        case .sendHeartbeat:
            work.append(.mqtt(.ping))
        case .renewCredential(let generation):
            renewCredential(generation)
        case .knock(let endpoint):
            knock(at: endpoint)
        case .report(let event):
            report(event)
        }
    }

    func handle(_ input: MQTTClientMachine.Input) {
        switch input {
        case .connectionClosed, .connectionEnded:
            programs.subscribing.answer(session.consumers.connectionEnded(), nil)
            roomConnectionClosed()
        default: break
        }
        var actions: [MQTTClientMachine.Action] = []
        let signsOfLife = session.mqtt.signsOfLife
        session.mqtt.handle(input, at: timestamp, into: &actions)
        if let link, session.mqtt.signsOfLife != signsOfLife {
            session.machine.heard(link.generation, at: now)
            session.rooms.membership?.presence.heard(at: now)
        }
        perform(actions)
    }

    func checkFlushed() {
        guard isFlushing, let link, session.isFlushed,
            !work.contains(where: { if case .room = $0 { true } else { false } })
        else { return }
        isFlushing = false
        work.append(.session(.flushed(link.generation)))
    }

    func take(_ input: SessionMachine.Input) { run(.session(input)) }

    func retire(_ generation: Generation, _ ending: SessionMachine.Ending) { run(.retire(generation, ending)) }

    /// The session machine learns what the protocol machine found out about the present link.
    func tellSession(_ input: (Generation) -> SessionMachine.Input) {
        guard let link else { return }
        work.append(.session(input(link.generation)))
    }

    func stateChanged(from: SessionState, to state: SessionState) {
        endProtocol()
        guard from != state else {
            if state == .disconnected || state == .disconnecting {
                // An explicit disconnect of a session that was idle or slept, or was about to.
                rememberVerdict(state)
                leavePublications()
            }
            return
        }
        since = wallClock
        if state == .disconnected { lastOpened = nil }
        rememberVerdict(state)
        if state == .failed { failed(because: session.machine.reason) }
        watchCredential()
        if let (calls, outcome) = session.outcomeWaiters.stateChanged(to: state) {
            programs.commanding.answer(calls, outcome)
        }
        if state != .disconnecting { programs.leaving.answerAll(()) }
    }
}
