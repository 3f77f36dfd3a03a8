import Testing

@testable import SessionCore

/// A session machine with a clock that the test moves, and one short method for each thing that can happen to it.
///
/// Each method returns the orders that the machine gave. Beside them it checks, at every step of every test, what always
/// holds: one connection at a time, orders only about that one, and a state change reported exactly when one is visible.
struct SessionUnderTest {
    /// An action without what is only reported, short enough for one line a step.
    enum Order: Hashable {
        case open(UInt64, at: Int = 0, discarding: Bool = false)
        case abandon(UInt64)
        case flush(UInt64)
        case goodbye(UInt64)
        case heartbeat(UInt64)
        case renew(UInt64)
        case knock(Int)
        case prepare(UInt64, at: Int = 0)
        case settle(UInt64)
        case leave(UInt64)

        var isOpen: Bool {
            if case .open = self { true } else { false }
        }
    }

    static let start = Instant(nanoseconds: 1_000_000_000_000)

    var machine: SessionMachine
    private(set) var now = start
    /// Everything that the last step answered.
    private(set) var actions: [SessionMachine.Action] = []
    /// The attempt or connection that is open; `nil` when there is none.
    private(set) var live: Attempt?
    /// What is set up beside that.
    private(set) var beside: Attempt?
    private(set) var lastOpened = Generation(rawValue: 0)

    init(
        policy: ReconnectPolicy = .init(), timeouts: AttemptTimeouts = .init(), heartbeat: HeartbeatPolicy = .init(),
        rest: RestPolicy = .init(), isBound: Bool = false, paths: [Path?] = [.wifi], seed: UInt64 = 1
    ) {
        machine = SessionMachine(
            policy: policy, timeouts: timeouts, heartbeat: heartbeat, rest: rest, isBound: isBound, paths: paths,
            seed: seed, at: now)
    }

    // MARK: What can be asked

    var status: SessionMachine.Status { machine.status }
    var state: SessionState { machine.status.state }
    var phase: Phase? { machine.status.phase }
    var reason: Reason.Code { machine.status.reason.code }
    var elapsed: Duration { Self.start.duration(to: now) }
    /// How long until `timeReached` is due.
    var due: Duration? { machine.nextDeadline.map { now.duration(to: $0) } }
    /// How long until the next attempt.
    var retryIn: Duration? { machine.status.retryAt.map { now.duration(to: $0) } }

    var orders: [Order] {
        actions.compactMap {
            switch $0 {
            case .open(let attempt):
                .open(
                    attempt.generation.rawValue, at: attempt.endpoint.rawValue, discarding: attempt.discardsSession)
            case .abandon(let generation): .abandon(generation.rawValue)
            case .flush(let generation): .flush(generation.rawValue)
            case .sayGoodbye(let generation): .goodbye(generation.rawValue)
            case .sendHeartbeat(let generation): .heartbeat(generation.rawValue)
            case .renewCredential(let generation): .renew(generation.rawValue)
            case .knock(let endpoint): .knock(endpoint.rawValue)
            case .prepare(let attempt): .prepare(attempt.generation.rawValue, at: attempt.endpoint.rawValue)
            case .settle(let generation): .settle(generation.rawValue)
            case .leave(let generation): .leave(generation.rawValue)
            case .report: nil
            }
        }
    }

    /// What the last step reported, but for changes of state and path.
    var events: [SessionMachine.Event] {
        actions.compactMap {
            switch $0 {
            case .report(.stateChanged), .report(.pathChanged): nil
            case .report(let event): event
            default: nil
            }
        }
    }

    var reportedStateChange: Bool {
        actions.contains {
            if case .report(.stateChanged) = $0 { true } else { false }
        }
    }

    // MARK: Commands

    @discardableResult
    mutating func connect(_ code: Reason.Code = .userConnect) -> [Order] { take(.connect(Reason(code))) }

    @discardableResult
    mutating func disconnect(_ code: Reason.Code = .userDisconnect) -> [Order] { take(.disconnect(Reason(code))) }

    @discardableResult
    mutating func reconnect(_ mode: ReconnectMode? = nil) -> [Order] { take(.reconnect(mode)) }

    // MARK: Uses and sleep

    @discardableResult
    mutating func use(_ use: Use) -> [Order] { take(.useBegan(use)) }

    @discardableResult
    mutating func endUse(_ use: Use) -> [Order] { take(.useEnded(use)) }

    @discardableResult
    mutating func hostWillSleep() -> [Order] { take(.hostWillSleep) }

    /// The host sleeps, and wakes up.
    @discardableResult
    mutating func hostSleeps(_ duration: Duration) -> [Order] {
        skip(duration)
        return take(.hostWoke(slept: duration))
    }

    // MARK: The network

    @discardableResult
    mutating func knocked(_ answer: KnockAnswer, at endpoint: Int = 0) -> [Order] {
        take(.knocked(EndpointIndex(endpoint), answer))
    }

    /// A change of the path to an endpoint, with a path that fits its class.
    @discardableResult
    mutating func path(_ pathClass: PathClass, at endpoint: Int = 0) -> [Order] {
        let old = machine.endpoints.paths[endpoint]
        let new: Path? =
            switch pathClass {
            case .none, .maybe: old
            case .gained, .returned: .wifi
            case .lost: nil
            case .movedSourceGone, .movedSourceKept: old == .wifi ? .cellular : .wifi
            }
        return take(.pathChanged(EndpointIndex(endpoint), to: new, pathClass))
    }

    /// The source address of a path that the endpoint had before has left the host.
    @discardableResult
    mutating func sourceLeft(of path: Path, at endpoint: Int = 0) -> [Order] {
        take(.pathChanged(EndpointIndex(endpoint), from: path, to: machine.endpoints.paths[endpoint], .movedSourceGone))
    }

    // MARK: The course of an attempt

    /// The generation that is open, or the last one that was.
    var generation: Generation { live?.generation ?? lastOpened }

    @discardableResult
    mutating func progress(to phase: Phase) -> [Order] { take(.progressed(generation, phase)) }

    @discardableResult
    mutating func establish(resumed: Bool = true, serverKeepAlive: Duration? = nil) -> [Order] {
        take(.established(generation, resumed: resumed, serverKeepAlive: serverKeepAlive))
    }

    @discardableResult
    mutating func restore() -> [Order] { take(.restored(generation)) }

    /// The attempt under way succeeds.
    mutating func succeed(resumed: Bool = true, serverKeepAlive: Duration? = nil) {
        establish(resumed: resumed, serverKeepAlive: serverKeepAlive)
        restore()
    }

    /// The attempt fails, or the connection is lost.
    @discardableResult
    mutating func end(
        _ code: Reason.Code, retryAfter: Duration? = nil, mayHaveNewCredential: Bool = false,
        search: SessionMachine.Ending.Search = .none
    ) -> [Order] {
        var ending = SessionMachine.Ending(
            Reason(code), retryAfter: retryAfter, mayHaveNewCredential: mayHaveNewCredential)
        ending.search = search
        return take(.ended(generation, ending))
    }

    /// The attempt under way has its credential, which ends in so long.
    @discardableResult
    mutating func obtainCredential(for lifetime: Duration?) -> [Order] {
        take(.credentialObtained(generation, expiresAt: lifetime.map { now.advanced(by: $0) }))
    }

    @discardableResult
    mutating func renewCredential(for lifetime: Duration?) -> [Order] {
        take(.credentialRenewed(generation, expiresAt: lifetime.map { now.advanced(by: $0) }))
    }

    @discardableResult
    mutating func replaceCredential(for lifetime: Duration?) -> [Order] {
        take(.credentialReplaced(generation, expiresAt: lifetime.map { now.advanced(by: $0) }))
    }

    @discardableResult
    mutating func failToRenewCredential() -> [Order] { take(.credentialRenewalFailed(generation)) }

    @discardableResult
    mutating func answerHeartbeat() -> [Order] { take(.heartbeatAnswered(generation)) }

    @discardableResult
    mutating func flushed() -> [Order] { take(.flushed(generation)) }

    @discardableResult
    mutating func closed() -> [Order] { take(.closed(generation)) }

    /// The attempt beside the connection in use goes on.
    @discardableResult
    mutating func progressBeside(to phase: Phase) -> [Order] { take(.progressed(lastOpened, phase)) }

    @discardableResult
    mutating func prepared() -> [Order] { take(.prepared(lastOpened)) }

    @discardableResult
    mutating func preparationFailed() -> [Order] { take(.preparationFailed(lastOpened)) }

    @discardableResult
    mutating func settled() -> [Order] { take(.settled(generation)) }

    /// - Parameter arrival: when what is read arrived, if that was earlier.
    mutating func heard(arrivedAt arrival: Instant? = nil) { machine.heard(generation, arrivedAt: arrival, at: now) }
    mutating func sent() { machine.sent(generation, at: now) }

    // MARK: Time

    /// Moves the clock, and serves every deadline on the way.
    @discardableResult
    mutating func pass(_ duration: Duration) -> [Order] {
        let end = now.advanced(by: duration)
        var all: [SessionMachine.Action] = []
        var served = 0
        while let deadline = machine.nextDeadline, deadline <= end {
            now = max(now, deadline)
            take(.timeReached)
            all += actions
            served += 1
            guard served < 100_000 else {
                Issue.record("the machine asks to be woken for ever at \(elapsed)")
                break
            }
        }
        now = end
        actions = all
        return orders
    }

    /// Moves the clock and serves nothing: for what happens just before a deadline is served.
    mutating func skip(_ duration: Duration) {
        now = now.advanced(by: duration)
    }

    /// Moves the clock to the next deadline and serves it.
    @discardableResult
    mutating func wake() -> [Order] {
        guard let deadline = machine.nextDeadline else {
            Issue.record("there is nothing to wait for")
            return []
        }
        now = max(now, deadline)
        return take(.timeReached)
    }

    // MARK: One step

    @discardableResult
    mutating func take(_ input: SessionMachine.Input) -> [Order] {
        let before = Self.visible(machine.status)
        switch input {
        case .ended(live?.generation, _): live = nil
        case .closed(live?.generation) where state == .disconnecting: live = nil
        default: break
        }
        actions = []
        machine.handle(input, at: now, into: &actions)
        for action in actions { follow(action, of: input) }
        checkBeside(after: input)
        let after = Self.visible(machine.status)
        if reportedStateChange != (before != after) {
            Issue.record("\(input): reported \(actions) although the status went from \(before) to \(after)")
        }
        if input == .timeReached, let deadline = machine.nextDeadline, deadline < now {
            Issue.record("the deadline is in the past after it was served")
        }
        checkLive(after: input)
        return orders
    }

    private mutating func follow(_ action: SessionMachine.Action, of input: SessionMachine.Input) {
        switch action {
        case .open(let attempt):
            if live != nil { Issue.record("\(input): \(attempt) was opened beside \(String(describing: live))") }
            if attempt.generation <= lastOpened, attempt != beside {
                Issue.record("\(input): generation \(attempt.generation) repeats")
            }
            live = attempt
            if beside == attempt { beside = nil }
            lastOpened = max(lastOpened, attempt.generation)
        case .prepare(let attempt):
            if live == nil { Issue.record("\(input): \(attempt) beside nothing") }
            if attempt.generation <= lastOpened { Issue.record("\(input): generation \(attempt.generation) repeats") }
            if attempt.endpoint != live?.endpoint { Issue.record("\(input): \(attempt) leads elsewhere") }
            if machine.endpoints.paths[attempt.endpoint.rawValue] == nil {
                Issue.record("\(input): \(action) without a path")
            }
            beside = attempt
            lastOpened = attempt.generation
        case .leave(let generation):
            if live?.generation != generation { Issue.record("\(input): \(action), which is not open") }
            live = nil
        case .abandon(let generation):
            if live?.generation != generation { Issue.record("\(input): \(action), which is not open") }
            live = nil
        case .flush(let generation), .sayGoodbye(let generation), .sendHeartbeat(let generation),
            .renewCredential(let generation), .settle(let generation):
            if live?.generation != generation { Issue.record("\(input): \(action), which is not open") }
        case .knock(let endpoint):
            if machine.endpoints.paths[endpoint.rawValue] == nil { Issue.record("\(input): \(action) without a path") }
            if endpoint == live?.endpoint { Issue.record("\(input): \(action), which is in use") }
            if !machine.wantsKnock(at: endpoint) { Issue.record("\(input): \(action), which nobody wants") }
        case .report:
            break
        }
    }

    /// There is one second connection at most, and only beside a first one; an unwanted one is dropped.
    private mutating func checkBeside(after input: SessionMachine.Input) {
        guard let wanted = machine.successor else {
            if machine.isSettling { Issue.record("\(input): settling for nothing") }
            beside = nil
            return
        }
        if beside?.generation != wanted { Issue.record("\(input): \(wanted) is wanted, there is \(beside as Any)") }
        if state != .connected { Issue.record("\(input): \(wanted) is wanted in \(state)") }
    }

    /// Something is open exactly in the states that have something open.
    private func checkLive(after input: SessionMachine.Input) {
        // No wait is left alone: only one that began shorter than a second is without the watch.
        if let retryIn, retryIn > EndpointWatch.shortWait {
            #expect(machine.endpoints.watch.isWaiting, "waits for \(retryIn) without the watch, after \(input)")
        }
        let expected =
            switch (state, phase) {
            case (.disconnected, _), (.failed, _), (_, .waiting), (_, .waitingForNetwork): false
            default: true
            }
        if (live != nil) != expected { Issue.record("\(input): \(state) with \(String(describing: live)) open") }
    }

    private static func visible(_ status: SessionMachine.Status) -> SessionMachine.Status {
        var visible = status
        visible.doubt = nil
        visible.path = nil
        return visible
    }
}

extension Path {
    static let wifi = Path(
        interface: "wlan0", interfaceIndex: 3, type: .wifi, source: "192.0.2.20", gateway: "192.0.2.1", table: 254)
    static let cellular = Path(
        interface: "wwan0", interfaceIndex: 4, type: .cellular, source: "198.51.100.7", gateway: nil, table: 254)
    static let wired = Path(
        interface: "eth0", interfaceIndex: 2, type: .ethernet, source: "203.0.113.9", gateway: "203.0.113.1", table: 254
    )
}

extension ReconnectPolicy {
    /// Without looks at endpoints while waiting.
    static let unwatched: ReconnectPolicy = {
        var policy = ReconnectPolicy()
        policy.watch = nil
        return policy
    }()

    /// Without randomness and looks, and with a lost-after that does not stand in the way of counting deadlines.
    static let exact: ReconnectPolicy = {
        var policy = unwatched
        policy.spread = .zero
        policy.lostAfter = nil
        return policy
    }()
}

extension SessionUnderTest {
    /// A session in one of the situations that a session can be in, with one path and generation 1 open where one is.
    enum Situation: CaseIterable {
        case disconnected, failed, flushing, sayingGoodbye
        case connected, held, probing
        case waiting, waitingForNetwork
        case resolving, dialing, securing, authenticating, restoring

        static let attempting: [Situation] = [.resolving, .dialing, .securing, .authenticating, .restoring]
        static let trying: [Situation] = [.waiting, .waitingForNetwork] + attempting
    }

    init(
        _ situation: Situation, policy: ReconnectPolicy = .exact, rest: RestPolicy = .init(),
        paths: [Path?] = [.wifi]
    ) {
        self.init(policy: policy, rest: rest, paths: paths)
        guard situation != .disconnected else { return }
        connect()
        switch situation {
        case .disconnected, .resolving: break
        case .failed: end(.banned)
        case .flushing:
            succeed()
            disconnect()
        case .sayingGoodbye:
            succeed()
            disconnect()
            flushed()
        case .connected: succeed()
        case .held:
            succeed()
            path(.lost)
        case .probing:
            succeed()
            path(.maybe)
        case .waiting: end(.unreachable)
        case .waitingForNetwork: path(.lost)
        case .dialing: progress(to: .dialing)
        case .securing: progress(to: .securing)
        case .authenticating: progress(to: .authenticating)
        case .restoring: establish()
        }
    }
}
