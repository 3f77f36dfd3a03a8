import Configuration
import ControlAPI
import DurableStore
import MQTT
import NIOCore
import Session
import SessionCore
import Transport

/// The shell around one session's value: it gives the value inputs, carries out its actions, and holds the programs'
/// closures.
///
/// Everything runs on the daemon's event loop. The session's inputs wait in one queue. Each is handled completely,
/// actions included, before the next, so that carrying out an action never calls back into the value.
actor SessionDriver {
    enum Life: Hashable {
        case running
        /// About to end; another driver takes the calls from now on.
        case stopping
        /// Everything that still arrives is ignored.
        case over
    }

    let name: SessionName
    let configuration: SessionConfiguration
    let surroundings: Surroundings
    nonisolated var eventLoop: any EventLoop { surroundings.eventLoop }
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    /// Decides everything. It is changed in this file only: by inputs, and by the methods that answer at once.
    private(set) var session: Session
    var log: SessionLog
    let tlsContexts: TLSContextCache
    /// The connections that the session still holds.
    var connections: [DialID: any TransportConnection] = [:]
    private(set) var isWorking = false
    /// Empty, except while the session's actions are carried out.
    private var actions: [Session.Action] = []
    var timer: (deadline: Instant, scheduled: Scheduled<Void>)?
    /// Set while there are accepted messages whose consequences are not handled yet: see ``acceptanceTime()``.
    private var acceptance: Timestamp?
    /// When the present state was entered, by the wall clock.
    var since: Timestamp
    var traffic = DiskTraffic()
    var secrets = Secrets()
    var programs = Programs()
    var clockSteps: ClockStepDetector
    /// The faults that are simulated.
    var simulation = Simulation()
    var life = Life.running
    /// Reports of the session machine that were not told yet.
    var untold = UntoldReports()

    init(
        name: SessionName, configuration: SessionConfiguration, stored: StoredSession,
        carriedOver: CarriedOver = CarriedOver(), surroundings: Surroundings
    ) {
        self.name = name
        self.configuration = configuration
        self.surroundings = surroundings
        tlsContexts = TLSContextCache(carriedOver.tls)
        programs.subscribers = carriedOver.subscribers
        programs.publishers = carriedOver.publishers
        let moment = Session.Moment(now: surroundings.clock.now(), wallClock: surroundings.clock.wallClock())
        since = moment.wallClock
        log = SessionLog(session: name, logger: surroundings.logger)
        var machine = SessionMachine(
            policy: configuration.reconnect, timeouts: configuration.timeouts, heartbeat: configuration.heartbeat,
            rest: configuration.rest, isBound: configuration.network.isBinding,
            paths: surroundings.paths.watch(configuration.hops, of: name, for: configuration.network),
            seed: surroundings.seed(), at: moment.now)
        machine.rivalry.strategy = configuration.kick
        if let counters = carriedOver.history?.counters { machine.counters = counters }
        session = Session(
            settings: SessionSettings(name, configuration, bootID: surroundings.bootID), machine: machine,
            mqtt: MQTTClientMachine(
                configuration: MQTTClientMachine.Configuration(configuration, surroundings.messageMemory),
                restoring: stored.mqtt),
            servers: Servers(
                redirections: Redirections(
                    configuration.endpoints, allowed: configuration.mqtt.redirects,
                    hasPassword: configuration.password != nil, isInsecure: configuration.insecure),
                protocols: ProtocolChoice(configuration.mqtt.version.only), homes: stored.homes),
            addresses: EndpointAddresses(configuration.hosts),
            rooms: Rooms(
                identity: .init(
                    user: configuration.user,
                    device: configuration.device.isEmpty ? surroundings.deviceID : configuration.device),
                session: name.description, willDelay: configuration.presence.willDelay,
                remembered: stored.presences, topics: stored.presenceTopics,
                seed: surroundings.seed()),
            publications: Publications(stored.publications, retained: stored.retainedTopics),
            consumers: carriedOver.live,
            durableConsumers: DurableConsumers(
                stored.mqtt, attached: carriedOver.attached, memory: surroundings.messageMemory.ahead),
            credential: carriedOver.credential,
            clientID: stored.mqtt.assignedClientID ?? configuration.clientID, verdict: stored.verdict, at: moment)
        if let messages = carriedOver.history?.messages { session.counts = messages }
        clockSteps = carriedOver.clock ?? ClockStepDetector(now: moment.now, wallClock: moment.wallClock.rawValue)
        let sinceThen = clockSteps.check(now: moment.now, wallClock: moment.wallClock.rawValue)
        let steps = carriedOver.unstored.compactMap(\.clockStep) + [sinceThen].compactMap(\.self)
        for step in steps { session.shiftStored(by: step.milliseconds, recordedWithin: step.affected) }
        // The driver before has shifted it for the earlier steps.
        if let sinceThen { session.shiftVerdict(by: sinceThen.milliseconds, within: sinceThen.affected) }
        clockSteps.areDurable = steps.isEmpty
    }

    /// Applies to what is sent and held from now on.
    func limit(to memory: MessageMemory) { session.limit(to: memory) }

    // MARK: The funnel

    func take(_ input: SessionMachine.Input) { run(.machine(input)) }

    func run(_ input: MQTTClientMachine.Input) { run(.mqtt(input)) }

    /// Lets the session decide what is answered at once. ``run(_:)`` carries out the consequences.
    ///
    /// Questions that are asked often go through here as well: to call anything of ``session`` that is not a stored
    /// property, a copy of the whole value is made, with a retain for each array in it, but not within a change.
    func ask<Answer, Failure: Error>(
        _ decide: (inout Session) throws(Failure) -> Answer
    ) throws(Failure) -> Answer {
        session.moment = moment
        return try decide(&session)
    }

    /// Gives the session the answer to an action, while that is carried out.
    func answer(_ input: Session.Input) { session.answer(input) }

    /// The kernel has taken this many more bytes.
    func flushed(_ count: Int, _ flush: FlushNumber?, on id: DialID) {
        let hasWork = session.flushed(count, on: id, at: moment)
        if let flush {
            run(.flushed(flush))
        } else if hasWork {
            run()
        }
    }

    /// Returns the acceptance time of a message that arrives now. All messages of one turn of the loop have the same
    /// one. Their consequences are handled together, at the end of the turn or before anything else is done.
    func acceptanceTime() -> Timestamp {
        if let acceptance { return acceptance }
        checkClock()
        let time = wallClock
        acceptance = time
        eventLoop.execute { [weak self] in self?.assumeIsolated { $0.runAccepted() } }
        return time
    }

    func runAccepted() {
        if acceptance != nil { run() }
    }

    /// Gives the session an input, if there is one, then handles everything that waits, actions included.
    func run(_ input: Session.Input? = nil) {
        guard life != .over else { return }
        guard !isWorking else {
            if let input { session.take(input) }
            return
        }
        isWorking = true
        session.moment = moment
        if let input { session.take(input) }
        if let time = acceptance {
            acceptance = nil
            session.commitAccepted(at: time)
        }
        checkClock()
        repeat { carryOutActions() } while session.next(at: moment)
        isWorking = false
        endUnwantedFetches()
        tellLater()
        schedule()
    }

    func carryOutActions() {
        session.exchangeActions(&actions)
        for action in actions { carryOut(action) }
        actions.removeAll(keepingCapacity: true)
    }

    /// Reports a step of the wall clock: what is measured by that clock must not change because somebody sets it.
    func checkClock() {
        guard let step = clockSteps.check(now: now, wallClock: wallClock.rawValue) else { return }
        // So that it says how long ago that was.
        if step.affected.contains(since) { since = since.advanced(by: step.milliseconds) }
        let input = MQTTClientMachine.Input.clockStepped(by: step.milliseconds, acceptedWithin: step.affected)
        if isWorking { session.handleFirst(input, at: moment) } else { run(input) }
    }
}
