import Configuration
import ControlAPI
import DurableStore
import MQTT
import NIOCore
import Session
import Support

@testable import Agent
@testable import SessionCore

// What each step of a schedule does.

extension Simulation {
    /// In milliseconds.
    static let pauses: [Int64] = [0, 1, 3, 10, 30, 100, 300, 1000, 5000, 20_000, 120_000, 600_000]

    func carryOut(_ step: Step) async throws {
        let index = step.number(0) % residents.count
        switch step.what {
        case .settle: await scenario.loop.settle()
        case .turn: await scenario.loop.turn()
        case .next: for _ in 0...step.number(0) { await passToNextEvent() }
        case .pass: await pass(.milliseconds(Self.pauses[step.number(0) % Self.pauses.count]))

        case .publish: publish(on: index, step.number(1), step.number(2))
        case .send:
            for _ in 0..<step.number(3) { publish(on: index, step.number(1), step.number(2)) }
        case .publishLarge:
            publish(on: index, step.number(1), step.number(2), bytes: 400 * step.number(3))
        case .publishWithKey: publishWithKey(on: index, step.number(1) % Self.keys, step.number(2))
        case .hog: hog(index, step.number(1))
        case .subscribe: subscribe(on: index)
        case .unsubscribe: unsubscribe(on: index)
        case .attach: attach(step.number(1), on: index)
        case .detach: detach(step.number(1), on: index)
        case .acknowledge: acknowledge(step.number(1), step.number(2), on: index)
        case .endConsumer: endConsumer(step.number(1), on: index)
        case .putPublication: putPublication(step.number(1), on: index)
        case .removePublication: removePublication(step.number(1), on: index)
        case .retry: decide(retry: true, on: index)
        case .drop: decide(retry: false, on: index)
        case .dropInFlight: dropInFlight(step.number(1), on: index)
        case .connect: connect(index)
        case .disconnect: disconnect(index)
        case .reconnect: reconnect(step.number(1), index)
        case .switchRoom: switchRoom(step.number(1), index)

        case .foreign: foreign(step.number(0) % 2 == 0 ? .one : .two, step.number(1), step.number(2))
        case .flawed: publishFlawed(step.number(0) % 2 == 0 ? .one : .two, step.number(1), step.number(2))
        case .flood: flood(index, step.number(1), step.number(2))

        case .diskFault: onDisk(index) { $0.fault = Disk.Fault(rawValue: step.number(1) % 5) }
        case .diskMended: onDisk(index) { $0.fault = nil }
        case .diskDelay: onDisk(index) { $0.delay = .milliseconds([0, 1, 20, 500][step.number(1) % 4]) }
        case .kill: await kill(index, landing: step.number(1) == 1)
        case .killAfter:
            residents[index].host.here { $0.kill(after: max(1, step.number(1)), landing: step.number(2) == 1) }
        case .token: changeToken(step.number(1))
        case .start: if isRunning(index) { connectAgain(index) } else { try await start(index) }
        case .restartDaemon: try await restart(index)
        case .reload: reload(index)
        case .reboot: try await reboot(index)
        case .losePower: try await losePower(index, step.number(1))
        case .takeImage: onDisk(index) { $0.takeImage() }
        case .rollBack: try await rollBack(index, step.number(1))
        case .damage: try await damage(index, isWhole: step.number(1) == 0)
        case .sleep:
            let pause = Self.pauses[step.number(1) % Self.pauses.count]
            await sleep(index, pause, announced: step.number(2) == 0, isFrozen: step.number(3) == 1)
        case .clock: setClock(index, by: [-3600, 3600, -5, 5, -86_400, 86_400][step.number(1) % 6])
        default:
            if !changeNetwork(step, residents[index].host) { changeServer(step) }
        }
    }

    // MARK: Time

    func pass(_ duration: TimeAmount) async {
        await scenario.loop.sleep(until: scenario.loop.now + duration)
    }

    /// Lets time pass to the next event; ten minutes if nothing is planned before.
    private func passToNextEvent() async {
        let limit = scenario.loop.now + .minutes(10)
        await scenario.loop.sleep(until: min(scenario.loop.nextTimer ?? limit, limit))
    }

    // MARK: Hosts

    private func onDisk(_ index: Int, _ change: @Sendable (isolated Disk) -> Void) {
        residents[index].host.disk.here { change($0) }
    }

    private func isRunning(_ index: Int) -> Bool { residents[index].host.here { $0.isRunning } }

    func kill(_ index: Int, landing: Bool, silently: Bool = false) async {
        guard isRunning(index) else { return }
        await residents[index].host.kill(landing: landing, silently: silently)
        forgetPrograms(index)
    }

    /// Forgets what a daemon that is gone knew, except what the next one must know.
    func forgetPrograms(_ index: Int) {
        let resident = residents[index]
        residents[index].live = nil
        residents[index].attached = [:]
        residents[index].given = [:]
        residents[index].openCalls = [:]
        residents[index].openSubjects = [:]
        residents[index].dropping = []
        residents[index].watch = Watch()
        (residents[index].unusable, residents[index].toldUnusable) = ([], 0)
        // It may not be durable that the clock was set.
        if residents[index].clockWasSet { forgetKeys(of: index) }
        residents[index].clockWasSet = false
        residents[index].setForward.unnoticed += residents[index].setForward.noticed
        residents[index].setForward.noticed = .zero
        ledger.unsubscribed(resident.host.name)
        let boot = bootID(of: resident)
        let digest = SessionName("main").flatMap { name in resident.host.here { $0.digest(of: name) } }
        let isRemembered = resident.host.disk.here { disk in
            disk.sessions.values.lazy.compactMap(\.stored.verdict).contains {
                $0.keepsDown && $0.bootID == boot && (digest == nil || $0.configuration == digest)
            }
        }
        // A disk that could not be written does not remember a failure, which people were told, or remembers one of an
        // earlier configuration. A disconnect is answered when it is remembered.
        if !isRemembered, residents[index].rest != .disconnected { residents[index].rest = nil }
    }

    func start(_ index: Int) async throws {
        guard !isRunning(index) else { return }
        let disk = residents[index].host.disk
        // A daemon does not start without its disk.
        guard disk.here({ $0.fault }) == nil else { return }
        try await residents[index].host.start(bootID: bootID(of: residents[index]), seed: seed)
    }

    /// Connects a session that has given up, as a person would who sees that.
    private func connectAgain(_ index: Int) {
        if residents[index].rest == .failed(Reason.Code.retryTimeout.rawValue) { connect(index) }
    }

    func bootID(of resident: Resident) -> String { "boot \(resident.boots)" }

    /// Restarts the daemon as the service manager does, which does not wait forever.
    private func restart(_ index: Int) async throws {
        guard isRunning(index), let registry = residents[index].host.here({ $0.runningRegistry }) else {
            return
        }
        residents[index].isStopping = true
        Task {
            await registry.stop()
            residents[index].isStopping = false
        }
        for _ in 0..<50 where residents[index].isStopping { await pass(.milliseconds(200)) }
        // The daemon waits for what it still has to write.
        let canWrite = residents[index].host.disk.here { $0.fault == nil && $0.delay < .milliseconds(100) }
        if residents[index].isStopping, canWrite { note(.heals, "\(residents[index].host.name) does not stop") }
        await kill(index, landing: true)
        try await start(index)
    }

    /// Makes the daemon read its files again, one of which has changed. A session that has failed tries again.
    private func reload(_ index: Int) {
        let resident = residents[index]
        guard let name = SessionName("main"), let registry = resident.host.here({ $0.runningRegistry }) else { return }
        residents[index].reloads += 1
        var configuration = resident.configuration
        // Nothing comes near to that limit.
        configuration.inbox.maxBytes -= residents[index].reloads % 2
        let loaded = resident.host.here { [configuration] in $0.change(configuration, of: name) }
        if resident.rest != .disconnected { residents[index].rest = nil }
        ask(Self.connecting, of: index) {
            try await registry.apply(loaded)
        } answered: { [self] _ in
            // It may have failed before the files were read.
            let state = resident.host.here { $0.driver() }?.here { $0.session.state }
            if state != .failed, state != .disconnected { residents[index].rest = nil }
        }
    }

    /// Makes the host lose what was not flushed to its disk. From then on everything must be well again.
    private func losePower(_ index: Int, _ number: Int) async throws {
        let host = residents[index].host
        guard host.here({ $0.isDiskModelled }), host.disk.here({ $0.fault }) == nil else { return }
        await kill(index, landing: false, silently: true)
        host.disk.here { $0.losePower(number) }
        noteLost(index)
        residents[index].boots += 1
        residents[index].rest = nil
        try await start(index)
    }

    /// Puts the host back to an older image of its disk, as when a virtual machine or a backup is restored, just after
    /// this many messages of QoS 2 were sent. Then programs publish as many.
    private func rollBack(_ index: Int, _ count: Int) async throws {
        let host = residents[index].host
        guard host.here({ $0.isDiskModelled }), host.disk.here({ $0.fault == nil && $0.image != nil }) else { return }
        func publishAll() { for number in 0..<count { publish(on: index, number, 2) } }
        publishAll()
        await pass(Scenario.latency + .milliseconds(1))
        await kill(index, landing: false, silently: true)
        host.disk.here { $0.putImageBack() }
        noteLost(index)
        residents[index].boots += 1
        residents[index].rest = nil
        try await start(index)
        publishAll()
    }

    /// Notes that what was durable a moment ago is lost, or a part of it.
    func noteLost(_ index: Int) {
        let host = residents[index].host
        let kept = host.disk.here { Set($0.sessions.values.flatMap(\.mqtt.consumers.keys).map(\.description)) }
        ledger.lostPower(host.name, keeping: kept, storedNumbers(on: host))
        doubtSessions(of: index, .rolledBack)
        noteLeftovers()
        forgetKeys(of: index)
    }

    /// The messages that the disk of a host has, by their numbers.
    func storedNumbers(on host: Host) -> Set<Int> {
        let messages = host.disk.here { $0.sessions.values.flatMap(\.mqtt.messages.values) }
        return Set(messages.compactMap { Int(String(buffer: $0.message.payload)) })
    }

    /// Notes what the servers retain, of which a publisher may not know any more.
    func noteLeftovers() {
        for server in Scenario.ServerName.allCases {
            leftovers[server, default: []].formUnion(scenario.here { $0.broker(server).retained.keys })
        }
    }

    private func reboot(_ index: Int) async throws {
        await kill(index, landing: false, silently: true)
        residents[index].boots += 1
        residents[index].rest = nil
        try await start(index)
    }

    /// - Parameter isFrozen: whether nothing runs on any host, as in a real sleep. Otherwise this host hears nothing,
    ///   and nobody hears it.
    private func sleep(_ index: Int, _ milliseconds: Int64, announced: Bool, isFrozen: Bool) async {
        let host = residents[index].host
        guard let registry = host.here({ $0.runningRegistry }) else { return }
        if announced {
            Task(executorPreference: scenario.loop) { await registry.hostWillSleep() }
            await pass(.seconds(2))
        }
        if isFrozen {
            scenario.here { $0.freeze(for: .milliseconds(milliseconds)) }
            for index in residents.indices {
                residents[index].wokeAt = scenario.now
                let registry = residents[index].host.here { $0.runningRegistry }
                registry?.here { $0.hostWoke(slept: .milliseconds(milliseconds)) }
            }
            await scenario.loop.settle()
            return
        }
        let wasSilent = scenario.here { scenario in
            defer { scenario.silence(host) }
            return scenario.uplink(host).swallows
        }
        await pass(.milliseconds(milliseconds))
        scenario.here { scenario in
            scenario.unsilence(host)
            scenario.silence(host, wasSilent)
        }
        registry.here { $0.hostWoke(slept: .milliseconds(milliseconds)) }
    }

    func setClock(_ index: Int, by seconds: Int) {
        let host = residents[index].host
        // A running daemon sees that the clock was set; for one that does not run, the time has passed.
        let forward = Duration.seconds(max(0, seconds))
        if isRunning(index) {
            residents[index].clockWasSet = true
            residents[index].setForward.noticed += forward
        } else {
            forgetKeys(of: index)
            residents[index].setForward.unnoticed += forward
        }
        host.here { host in
            host.setClock(by: .seconds(seconds))
            host.runningRegistry?.here { $0.clockStepped() }
        }
    }

    // MARK: The network

    private func changeNetwork(_ step: Step, _ host: Host) -> Bool {
        let number = step.number(1)
        switch step.what {
        case .cut: cut(host)
        case .mend: mend(host)
        case .move:
            if scenario.here({ $0.path(of: host.name) }) != nil { scenario.here { $0.move(host) } }
        case .moveUnnoticed: scenario.here { $0.moveUnnoticed(host) }
        case .silence: scenario.here { $0.silence(host) }
        case .halfOpen: scenario.here { $0.silence(host, number == 0 ? [.toServer] : [.toHost]) }
        case .unsilence: scenario.here { $0.unsilence(host) }
        case .reset: scenario.here { $0.reset(host) }
        case .latency: onUplink(host) { $0.latency = .milliseconds([1, 5, 50, 400, 3000][number % 5]) }
        case .slowUplink: scenario.here { $0.slowDown(host, to: [nil, 1000, 200, 50][number % 4]) }
        case .piece: onUplink(host) { $0.piece = [nil, 1, 2, 3, 7, 50][number % 6] }
        case .drip: scenario.here { $0.drip(host) }
        case .resetAfter: onUplink(host) { $0.resetAfter[number == 0 ? .toServer : .toHost] = max(1, step.number(2)) }
        case .dialFault:
            onUplink(host) { $0.dialFault = Scenario.DialFault(rawValue: number % Scenario.DialFault.allCases.count) }
        case .abortLoses: onUplink(host) { $0.abortLoses = number == 1 }
        case .reorder: onUplink(host) { $0.reorders = number == 1 }
        case .holdFlushes: scenario.here { $0.holdsFlushes = number == 0 }
        case .shift:
            guard scenario.here({ $0.path(of: host.name) }) != nil else { break }
            let dialing: Scenario.Dialing = [.works, .hangs, .refused, .works, .works][step.number(2) % 5]
            scenario.here {
                $0.shift(host, strands: number == 1, dialing, latency: $0.uplink(host).latency)
            }
        case .dropAddress:
            guard let path = scenario.here({ $0.dropOldAddress(of: host, number) }) else { break }
            checkSource(of: host, without: path)
        default: return false
        }
        return true
    }

    private func onUplink(_ host: Host, _ change: @Sendable (inout Scenario.Uplink) -> Void) {
        scenario.here { $0.withUplink(host, change) }
    }

    func cut(_ host: Host) {
        guard scenario.here({ $0.path(of: host.name) }) != nil else { return }
        scenario.here { $0.cut(host) }
    }

    func mend(_ host: Host) {
        scenario.here { $0.look(host.name) }
        guard scenario.here({ $0.path(of: host.name) }) == nil,
            let index = residents.firstIndex(where: { $0.host.name == host.name })
        else { return }
        let since = residents[index].watch.offlineSince
        let mayHasten = since.map { $0.duration(to: scenario.now) > .seconds(61) } ?? false
        let driver = host.here { $0.driver() }
        residents[index].watch.isFresh =
            mayHasten && (driver?.here { $0.session.machine.isWaitingForNetworkOnly(at: scenario.now) } ?? false)
        scenario.here { $0.mend(host) }
    }
}

extension SessionMachine {
    /// Whether it waits for the network, and for nothing else.
    func isWaitingForNetworkOnly(at now: Instant) -> Bool {
        status.phase == .waitingForNetwork && allowed(now) == now
    }
}
