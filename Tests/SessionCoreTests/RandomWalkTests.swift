import Testing
import Vocabulary

@testable import SessionCore

/// Random inputs at random times, with what must hold after each step, and the promise that everything heals.
@Suite struct RandomWalkTests {
    private static let steps = 150

    @Test(arguments: UInt64(1)...400)
    func `nothing that can happen leaves a session stuck, doubled or restless`(seed: UInt64) {
        var walk = RandomWalk(seed: seed)
        for _ in 0..<Self.steps { walk.step() }
        walk.heal()
    }

    @Test(arguments: [UInt64(3), 77, 2026])
    func `the same seed gives the same run, to the last action`(seed: UInt64) {
        func run(_ seed: UInt64) -> [[SessionMachine.Action]] {
            var walk = RandomWalk(seed: seed)
            for _ in 0..<Self.steps { walk.step() }
            walk.heal()
            return walk.history
        }
        #expect(run(seed) == run(seed))
        #expect(run(seed) != run(seed + 1))
    }
}

/// The world of one session: its network, its server, its users, and what it did so far.
private struct RandomWalk {
    private var session: SessionUnderTest
    private var random: SplitMix64
    private(set) var history: [[SessionMachine.Action]] = []
    private let seed: UInt64
    private let endpoints: Int
    /// The path that was lost last, to which an endpoint may return.
    private var lostPaths: [Path?]
    /// The paths that each endpoint had before, and whose source address may have stayed.
    private var leftPaths: [Set<Path>]
    /// Set while the last command, or the server's last answer, forbids attempts.
    private var mustRest = true
    private var offlineSince: Instant?
    private var hastened: [Instant] = []

    init(seed: UInt64) {
        self.seed = seed
        var random = SplitMix64(seed: seed)
        endpoints = Int.random(in: 1...3, using: &random)
        var policy = ReconnectPolicy()
        if Bool.random(using: &random) { policy.giveUpAfter = .seconds(1200) }
        if Bool.random(using: &random) { policy.lostAfter = nil }
        if Bool.random(using: &random) { policy.giveUpAttempts = Int.random(in: 1...20, using: &random) }
        if Bool.random(using: &random) { policy.watch = nil }
        var rest = RestPolicy()
        if Bool.random(using: &random) { rest.idleTimeout = .seconds(Int.random(in: 1...100, using: &random)) }
        if Bool.random(using: &random) { rest.onSuspend = .keep }
        let paths: [Path?] = (0..<endpoints).map { _ in Bool.random(using: &random) ? .wifi : nil }
        lostPaths = paths
        leftPaths = paths.map { _ in [] }
        mustRest = rest.idleTimeout == nil
        session = SessionUnderTest(
            policy: policy, rest: rest, isBound: Bool.random(using: &random), paths: paths, seed: seed)
        self.random = random
    }

    private mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

    private mutating func pick<Element>(_ elements: [Element]) -> Element {
        elements[Int.random(in: 0..<elements.count, using: &random)]
    }

    // MARK: A step

    mutating func step() {
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<35: passTime()
        case 35..<60: changePath()
        case 60..<66: command()
        case 66..<86: proceed()
        case 86..<90: useOrSleep()
        case 90..<94:
            take(pick(lateCompletions(of: UInt64.random(in: 0...session.lastOpened.rawValue, using: &random))))
        case 94..<96: session.heard()
        case 96..<98: renewCredential()
        default: session.sent()
        }
    }

    private mutating func passTime() {
        if let due = session.due, due <= .zero || chance(60) {
            session.skip(max(due, .zero))
            if chance(10) { session.skip(.milliseconds(Int.random(in: 1...500, using: &random))) }
            take(.timeReached)
        } else {
            let longest = min(session.due ?? .seconds(60), .seconds(60))
            session.skip(.nanoseconds(Int64.random(in: 0..<max(1, longest.nanoseconds), using: &random)))
        }
    }

    private mutating func changePath() {
        let endpoint = Int.random(in: 0..<endpoints, using: &random)
        if chance(20) { return loseSource(of: endpoint) }
        if chance(10) { take(.pathExcluded(EndpointIndex(endpoint), pick([.cellular, nil]))) }
        if chance(10) { take(.detour(EndpointIndex(endpoint), chance(50))) }
        let old = session.machine.endpoints.paths[endpoint]
        let (new, pathClass): (Path?, PathClass)
        if chance(20) {
            (new, pathClass) = (old, pick([.none, .maybe]))
        } else if let old {
            if chance(50) {
                lostPaths[endpoint] = old
                (new, pathClass) = (nil, .lost)
            } else {
                new = pick([.wifi, .cellular, .wired].filter { $0 != old })
                pathClass = pick([.movedSourceGone, .movedSourceKept])
                if pathClass == .movedSourceKept { leftPaths[endpoint].insert(old) }
            }
        } else {
            new = pick([.wifi, .cellular])
            pathClass = new == lostPaths[endpoint] ? .returned : .gained
        }
        if let new { leftPaths[endpoint].remove(new) }
        take(.pathChanged(EndpointIndex(endpoint), from: old, to: new, pathClass))
    }

    /// An address that stayed when its path was left goes as well, which only affects a connection that uses it.
    private mutating func loseSource(of endpoint: Int) {
        let left = leftPaths[endpoint].sorted { $0.interfaceIndex < $1.interfaceIndex }
        guard let path = session.machine.endpoints.paths[endpoint], !left.isEmpty else { return }
        let departed = pick(left)
        leftPaths[endpoint].remove(departed)
        var isDead = false
        if case .connected(let connected) = session.machine.state {
            isDead = connected.attempt.endpoint == EndpointIndex(endpoint) && connected.path == departed
        }
        let before = session.status
        take(.pathChanged(EndpointIndex(endpoint), from: departed, to: path, .movedSourceGone))
        if isDead {
            check(session.state != .connected, "connected from an address that the host does not have")
        } else {
            check(session.actions.isEmpty && session.status == before, "\(session.actions) for nothing")
        }
    }

    private mutating func renewCredential() {
        let generation = session.generation
        let end = chance(70) ? session.now.advanced(by: .seconds(Int.random(in: -5...300, using: &random))) : nil
        take(
            pick([
                .credentialAwaited(generation), .credentialObtained(generation, expiresAt: end),
                .credentialRenewed(generation, expiresAt: end), .credentialReplaced(generation, expiresAt: end),
                .credentialRenewalFailed(generation),
            ]))
    }

    private mutating func measurement() -> TCPMeasurement {
        TCPMeasurement(
            roundTrip: .milliseconds(Int.random(in: 1...4000, using: &random)),
            variation: .milliseconds(Int.random(in: 0...1000, using: &random)), retransmissions: 0,
            unacknowledged: Int.random(in: 0...2, using: &random), retries: Int.random(in: 0...2, using: &random),
            sinceAcknowledgement: .seconds(Int.random(in: 0...20, using: &random)),
            acknowledgedBytes: Int.random(in: 0...9000, using: &random),
            pendingBytes: Int.random(in: 0...9000, using: &random))
    }

    private mutating func useOrSleep() {
        let endpoint = EndpointIndex(Int.random(in: 0..<endpoints, using: &random))
        switch Int.random(in: 0..<5, using: &random) {
        case 0: take(.useBegan(pick(Use.allCases)))
        case 1: take(.useEnded(pick(Use.allCases)))
        case 2: take(.hostWillSleep)
        case 3:
            let slept = Duration.seconds(Int.random(in: 0...100, using: &random))
            session.skip(slept)
            take(.hostWoke(slept: slept))
        default: take(.knocked(endpoint, pick(KnockAnswer.allCases)))
        }
    }

    private mutating func command() {
        switch Int.random(in: 0..<6, using: &random) {
        case 0..<3: take(.connect(Reason(pick([.userConnect, .autoconnect]))))
        case 3: take(.disconnect(Reason(pick([.userDisconnect, .shutdown]))))
        default: take(.reconnect(pick([nil, .quick, .full])))
        }
    }

    /// The transport and the server go on with what is open: mostly well, sometimes not.
    private mutating func proceed() {
        if session.beside != nil, chance(40) { return proceedBeside() }
        guard let generation = session.live?.generation else { return }
        if chance(25) {
            let reasons = Reason.Code.allCases.filter { !$0.isTerminal || $0.group == .auth }
            let code = chance(4) ? pick([.displaced, .banned, .badEndpoint]) : pick(reasons)
            var ending = SessionMachine.Ending(
                Reason(code), retryAfter: chance(20) ? .seconds(Int.random(in: 0...50, using: &random)) : nil,
                mayHaveNewCredential: chance(80))
            ending.pace = pick([.byReason, .byReason, .atOnce, .slow, .floor, .doubledFloor])
            ending.leavesEndpoint = chance(20)
            ending.failsIfRepeated = chance(2)
            if chance(5) { ending.pace = .otherWay }
            take(.ended(generation, ending))
            return
        }
        switch (session.state, session.phase) {
        case (.disconnecting, _): take(pick([.flushed(generation), .closed(generation)]))
        case (.connected, _): take(pick([.heartbeatAnswered(generation), .measured(generation, measurement())]))
        case (_, .restoring): take(.restored(generation))
        default:
            if chance(60) {
                take(.progressed(generation, pick([.dialing, .securing, .authenticating])))
            } else {
                take(
                    .established(
                        generation, resumed: chance(70), serverKeepAlive: pick([nil, .zero, .seconds(1), .seconds(60)]))
                )
            }
        }
    }

    /// The connection set up beside it goes on as well.
    private mutating func proceedBeside() {
        guard let generation = session.beside?.generation, let old = session.live?.generation else { return }
        take(
            session.machine.isSettling
                ? pick([.settled(old), .settled(old), .preparationFailed(generation)])
                : pick([
                    .progressed(generation, pick([.dialing, .securing])), .prepared(generation), .prepared(generation),
                    .preparationFailed(generation),
                ]))
    }

    // MARK: What holds after each step

    private mutating func take(_ input: SessionMachine.Input) {
        let (before, beside) = (session.status, session.beside)
        let orders = session.take(input)
        history.append(session.actions)
        switch input {
        case .connect(let reason) where reason.code == .autoconnect && session.machine.demand.isOnDemand: break
        case .connect, .reconnect: mustRest = false
        case .disconnect(let reason):
            // A session that is down, or going down, does not report that the daemon ends.
            let isDown = [.disconnected, .failed, .disconnecting].contains(before.state)
            if reason.code == .userDisconnect || !isDown { mustRest = true }
        default: break
        }
        if session.state == .failed { mustRest = true }
        if orders.contains(where: \.isOpen) {
            check(!mustRest, "something was opened although nothing shall be tried")
            checkPath(input)
            switch input {
            // A connection that was being set up already does not count as another attempt.
            case .pathChanged where session.live != beside: countHaste()
            case .hostWoke where before.state == .connecting || before.state == .reconnecting: countHaste()
            default: break
            }
        }
        if mustRest {
            check([.disconnected, .failed, .disconnecting].contains(session.state), "\(session.state) instead of rest")
        }
        if [.disconnected, .failed].contains(session.state) {
            check(session.machine.nextDeadline == nil, "\(session.state) waits for something")
        } else {
            check(session.machine.nextDeadline != nil, "\(session.state) waits for nothing: it is stuck")
        }
        if session.phase == .waitingForNetwork {
            if before.phase != .waitingForNetwork { offlineSince = session.now }
            check(!session.machine.endpoints.hasPath, "it waits for a network that is there")
        }
        if session.phase == .waiting {
            check(session.machine.endpoints.hasPath, "it waits for a delay without a network")
            check((session.retryIn ?? .zero) <= .seconds(66), "it waits for \(String(describing: session.retryIn))")
        }
        if session.state == .connected, let liveness = session.machine.liveness, input == .timeReached {
            let silence = liveness.lastHeard.duration(to: session.now)
            check(silence < .seconds(60 + 5 + 1) || session.status.doubt != nil, "connected, but silent for \(silence)")
        }
    }

    private mutating func checkPath(_ input: SessionMachine.Input) {
        guard let attempt = session.live, session.machine.endpoints.paths[attempt.endpoint.rawValue] == nil,
            !session.machine.endpoints.isWorthwhile(attempt.endpoint)
        else { return }
        if case .reconnect = input { return }
        let isSafetyAttempt = offlineSince.map { $0.duration(to: session.now) >= .seconds(300) } ?? false
        check(isSafetyAttempt, "an attempt was made without a path, and not after five minutes")
    }

    private mutating func countHaste() {
        if let last = hastened.last {
            check(last.duration(to: session.now) >= .seconds(1), "two hastened attempts in a second")
        }
        hastened.append(session.now)
        if hastened.count > 6 {
            check(
                hastened[hastened.count - 7].duration(to: session.now) >= .seconds(60),
                "seven hastened attempts in a minute")
        }
    }

    private func check(_ condition: Bool, _ sentence: @autoclosure () -> String) {
        guard !condition else { return }
        Issue.record("seed \(seed), step \(history.count), at \(session.elapsed): \(sentence())")
    }

    // MARK: Everything heals

    /// The network is there, the server is well, and terminal states are undone by hand: the session is connected
    /// within the table's largest delay.
    mutating func heal() {
        for endpoint in 0..<endpoints where session.machine.endpoints.paths[endpoint] == nil {
            take(.pathChanged(EndpointIndex(endpoint), to: .wifi, .gained))
        }
        take(.useBegan(.subscriptions))
        if [.disconnected, .failed, .disconnecting].contains(session.state) { take(.connect(Reason(.userConnect))) }
        let start = session.now
        let bound = start.advanced(by: .seconds(64 + 2))
        for _ in 0..<100 {
            if let generation = session.live?.generation {
                switch session.state {
                case .connected:
                    take(.heartbeatAnswered(generation))
                    if session.status.doubt == nil { return }
                default:
                    take(.established(generation, resumed: true, serverKeepAlive: nil))
                    take(.restored(generation))
                }
                continue
            }
            guard let deadline = session.machine.nextDeadline, deadline <= bound else { break }
            session.skip(max(.zero, session.now.duration(to: deadline)))
            take(.timeReached)
        }
        // A session that has waited this long may have been about to give up.
        if session.state == .failed, session.reason == .retryTimeout { return }
        check(session.state == .connected, "not healed: \(session.status)")
    }
}
