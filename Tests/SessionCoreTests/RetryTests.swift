import Testing

@testable import SessionCore

@Suite struct RetryTests {
    /// The delays that the session waits when each attempt fails with the same reason.
    private static func delays(_ session: inout SessionUnderTest, _ code: Reason.Code, count: Int) -> [Duration?] {
        (0..<count).map { _ in
            session.end(code)
            let delay = session.retryIn
            session.wake()
            return delay
        }
    }

    @Test func `attempts follow the default table exactly when no server answers`() {
        var session = SessionUnderTest(.resolving, policy: .unwatched)
        #expect(
            Self.delays(&session, .unreachable, count: 12) == [
                .milliseconds(50), .milliseconds(250), .milliseconds(500), .seconds(1), .seconds(2), .seconds(4),
                .seconds(8), .seconds(16), .seconds(32), .seconds(64), .seconds(64), .seconds(64),
            ])
        #expect(session.status.attempt == 13)
        #expect(session.machine.counters.attempts == 13)
    }

    /// What answers on another network need not be the server: a sign-in page goes away without a sign.
    @Test(
        arguments: [true, false],
        [
            Reason.Code.reset, .tlsFailed, .tlsTimeout, .serverClosed, .authenticateTimeout, .webSocketFailed, .unknown,
            .protocolError,
        ])
    func `after something on another network answered, the session waits no longer than 15 seconds`(
        hasMoved: Bool, code: Reason.Code
    ) {
        var policy = ReconnectPolicy.exact
        policy.watch = .seconds(1)
        var session = SessionUnderTest(.connected, policy: policy)
        session.pass(.seconds(1))
        session.end(.reset)
        if hasMoved { session.path(.movedSourceGone) }
        session.pass(.seconds(1))
        let delays = Self.delays(&session, code, count: 12).compactMap(\.self)
        let isCapped = hasMoved && code != .unknown && code != .protocolError
        #expect(delays.max() == .seconds(isCapped ? 15 : 64))
        // Once the server has accepted the session there, its answers are its own.
        session.establish()
        session.end(.reset)
        session.wake()
        session.end(code)
        #expect(session.retryIn == .seconds(64))
    }

    @Test(arguments: [ReconnectPolicy.unwatched.watch, .seconds(1), .seconds(20)])
    func `after something other than an MQTT server answered, the session waits no longer than its watch`(
        watch: Duration?
    ) {
        var policy = ReconnectPolicy.exact
        policy.watch = watch
        var session = SessionUnderTest(.resolving, policy: policy)
        let delays = Self.delays(&session, .wrongProtocol, count: 12).compactMap(\.self)
        #expect(delays.max() == watch.map { max($0, .seconds(15)) } ?? .seconds(64))
    }

    @Test func `a server whose certificate was valid before is tried again within 15 seconds`() {
        var policy = ReconnectPolicy.exact
        policy.watch = .seconds(1)
        var session = SessionUnderTest(.connected, policy: policy)
        session.end(.reset)
        session.wake()
        #expect(Self.delays(&session, .certificateInvalid, count: 12).compactMap(\.self).max() == .seconds(15))
    }

    @Test func `a disconnect ends an outage, which counts with its length`() {
        var session = SessionUnderTest(.connected)
        session.end(.serverClosed)
        session.pass(.milliseconds(20))
        session.disconnect()
        #expect(session.machine.counters.outages == 1)
        #expect(session.machine.counters.longestOutage == .milliseconds(20))
    }

    @Test func `the table starts again only after the connection was stable`() {
        var session = SessionUnderTest(.connected)
        for delay: Duration in [.milliseconds(50), .milliseconds(250), .milliseconds(500)] {
            session.end(.serverClosed)
            #expect(session.retryIn == delay)
            session.wake()
            session.succeed()
        }
        for _ in 0..<2 {
            session.pass(.milliseconds(14_999))
            session.heard()
            session.sent()
        }
        session.end(.serverClosed)
        #expect(session.retryIn == .seconds(1))
        session.wake()
        session.succeed()
        for _ in 0..<2 {
            session.pass(.seconds(15))
            session.answerHeartbeat()
        }
        session.end(.serverClosed)
        #expect(session.retryIn == .milliseconds(50))
    }

    @Test(arguments: [PathClass.movedSourceGone, .movedSourceKept, .returned, .gained])
    func `a local cause restarts the table and makes the attempt at once`(pathClass: PathClass) {
        var session = SessionUnderTest(.resolving)
        _ = Self.delays(&session, .unreachable, count: 7)
        session.end(.unreachable)
        #expect(session.retryIn == .seconds(16))
        #expect(session.path(pathClass) == [.open(9)])
        session.end(.unreachable)
        #expect(session.retryIn == .milliseconds(50))
    }

    @Test func `connect by hand restarts the table`() {
        var session = SessionUnderTest(.resolving)
        _ = Self.delays(&session, .unreachable, count: 7)
        session.end(.unreachable)
        #expect(session.connect() == [.open(9)])
        session.end(.unreachable)
        #expect(session.retryIn == .milliseconds(50))
    }

    // MARK: Remote causes

    @Test(arguments: 1...50)
    func `sessions come back spread out after a remote cause, the same for the same seed`(seed: UInt64) {
        func run() -> [Duration] {
            var session = SessionUnderTest(seed: seed)
            session.connect()
            session.succeed()
            session.end(.serverShutdown)
            var delays = [session.retryIn ?? .zero]
            for _ in 0..<5 {
                session.wake()
                session.end(.refused)
                delays.append(session.retryIn ?? .zero)
            }
            return delays
        }
        let delays = run()
        #expect(delays == run())
        for (delay, limit) in zip(delays, [1000, 250, 500, 1000, 2000, 4000]) {
            #expect((Duration.zero...Duration.milliseconds(limit)).contains(delay))
        }
    }

    @Test func `a busy server is left alone for five seconds, then for twice as long each time`() {
        var session = SessionUnderTest(.authenticating)
        #expect(
            Self.delays(&session, .serverBusy, count: 4) == [.seconds(5), .seconds(10), .seconds(20), .seconds(40)])
    }

    @Test func `a hint from the server is honoured, and is no shorter than the table`() {
        var session = SessionUnderTest(.authenticating)
        session.end(.serverError, retryAfter: .seconds(30))
        #expect(session.retryIn == .seconds(30))
        session.wake()
        session.end(.serverError, retryAfter: .milliseconds(1))
        #expect(session.retryIn == .milliseconds(250))
    }

    @Test(arguments: PathClass.allCases.filter { $0 != .lost })
    func `no network event overrides the server's hint`(pathClass: PathClass) {
        var session = SessionUnderTest(.authenticating)
        session.end(.serverBusy, retryAfter: .seconds(30))
        session.pass(.seconds(2))
        #expect(session.path(pathClass).isEmpty)
        #expect(session.retryIn == .seconds(28))
        #expect(session.reason == .serverBusy)
        #expect(session.pass(.seconds(27)).isEmpty)
        #expect(session.pass(.seconds(1)) == [.open(2)])
    }

    @Test func `a wait that the server asked for is shown with its reason, whatever the network does`() {
        var session = SessionUnderTest(.authenticating)
        session.end(.serverError, retryAfter: .seconds(3000))
        for returned in [PathClass.returned, .gained] {
            session.path(.lost)
            #expect(session.reason == .pathLost && session.phase == .waitingForNetwork)
            session.pass(.seconds(1))
            #expect(session.path(returned).isEmpty)
            #expect(session.reason == .serverError && session.phase == .waiting)
            session.path(.movedSourceGone)
            #expect(session.reason == .serverError)
        }
        session.pass(.seconds(3000))
        #expect(session.live != nil)
    }

    @Test func `a wait for the limit of hastened attempts is shown with the reason of the last failure`() {
        var session = SessionUnderTest(.authenticating)
        _ = Self.delays(&session, .unreachable, count: 6)
        while session.live == nil { session.wake() }
        session.end(.refused)
        for number in 1...HasteLimiter.countPerWindow {
            session.pass(.milliseconds(1100))
            if session.live != nil { session.end(.refused) }
            session.path(.movedSourceKept)
            #expect(session.live != nil && session.reason == .pathMoved, "number \(number)")
            session.end(.refused)
        }
        while session.retryIn.map({ $0 < .seconds(2) }) ?? true {
            session.wake()
            if session.live != nil { session.end(.refused) }
        }
        session.path(.movedSourceKept)
        #expect(session.live == nil && session.reason == .refused)
        session.path(.lost)
        session.path(.returned)
        #expect(session.live == nil && session.reason == .refused)
    }

    @Test func `a busy server is left alone without a hint too, whatever the network does`() {
        var session = SessionUnderTest(.authenticating)
        session.end(.serverBusy)
        #expect(session.path(.movedSourceGone).isEmpty)
        session.path(.lost)
        #expect(session.path(.gained).isEmpty)
        #expect(session.retryIn == .seconds(5))
    }

    @Test func `a network event brings an attempt forward to the end of the hint, when the table is longer`() {
        var session = SessionUnderTest(.resolving)
        _ = Self.delays(&session, .unreachable, count: 9)
        session.end(.serverError, retryAfter: .seconds(5))
        #expect(session.retryIn == .seconds(64))
        session.pass(.seconds(1))
        session.path(.movedSourceKept)
        #expect(session.retryIn == .seconds(4))
    }

    @Test func `the hint outlives a loss of the network`() {
        var session = SessionUnderTest(.authenticating)
        session.end(.serverBusy, retryAfter: .seconds(30))
        session.path(.lost)
        #expect(session.phase == .waitingForNetwork)
        session.pass(.seconds(10))
        #expect(session.path(.gained).isEmpty)
        #expect(session.retryIn == .seconds(20))
        #expect(session.pass(.seconds(20)) == [.open(2)])
    }

    @Test(arguments: [Reason.Code.serverBusy, .serverError])
    func `a hint that comes after the path is lost is honoured`(code: Reason.Code) {
        var session = SessionUnderTest(.connected)
        session.path(.lost)
        session.end(code, retryAfter: .seconds(30))
        #expect(session.phase == .waitingForNetwork)
        #expect(session.path(.returned).isEmpty)
        #expect(session.retryIn == .seconds(30))
    }

    @Test func `the safety attempt honours the hint`() {
        var session = SessionUnderTest(.connected)
        session.path(.lost)
        session.end(.serverBusy, retryAfter: .seconds(1000))
        #expect(session.pass(.seconds(999)).isEmpty)
        #expect(session.pass(.seconds(1)) == [.open(2)])
    }

    @Test func `a hint that came with a state mismatch is honoured`() {
        var session = SessionUnderTest(.connected)
        #expect(session.end(.stateMismatch, retryAfter: .seconds(9)).isEmpty)
        #expect(session.retryIn == .seconds(9))
        #expect(session.wake() == [.open(2, discarding: true)])
    }

    @Test func `reconnect by hand overrides the server's hint`() {
        var reconnecting = SessionUnderTest(.authenticating)
        reconnecting.end(.serverBusy, retryAfter: .seconds(30))
        #expect(reconnecting.reconnect() == [.open(2)])
        var connecting = SessionUnderTest(.authenticating)
        connecting.end(.serverBusy, retryAfter: .seconds(30))
        #expect(connecting.connect() == [.open(2)])
    }

    @Test func `network events count again once the hint was overridden by hand`() {
        var session = SessionUnderTest(.authenticating)
        session.end(.serverBusy, retryAfter: .seconds(30))
        session.reconnect()
        #expect(session.path(.movedSourceKept) == [.abandon(2), .open(3)])
    }

    @Test func `one endpoint's hint does not hold up the others`() {
        var session = SessionUnderTest(policy: .exact, paths: [.wifi, .wifi])
        session.connect()
        session.end(.serverError, retryAfter: .seconds(3600))
        #expect(session.retryIn == .milliseconds(50))
        #expect(session.wake() == [.open(2, at: 1)])
        session.end(.refused)
        #expect(session.wake() == [.open(3, at: 1)], "the first endpoint is still left alone")
        session.end(.serverError, retryAfter: .seconds(30))
        #expect(session.retryIn == .seconds(30))
        #expect(session.path(.movedSourceKept).isEmpty)
        #expect(session.path(.movedSourceKept, at: 1).isEmpty)
        session.path(.lost, at: 1)
        #expect(session.wake() == [], "the endpoint whose time has come has no path")
        #expect(session.retryIn ?? .zero > .seconds(3500))
        #expect(session.path(.gained, at: 1) == [.open(4, at: 1)])
        session.succeed()
        session.end(.reset)
        #expect(session.wake() == [.open(5, at: 1)])
        session.end(.refused)
        #expect(session.reconnect() == [.open(6, at: 0)], "a person asked")
    }

    @Test func `the hint of a first endpoint holds for returns`() {
        var session = SessionUnderTest(policy: .exact, paths: [.wifi, .wifi])
        func passToKnock() -> Duration {
            let start = session.now
            while session.wake() != [.knock(0)] { session.answerHeartbeat() }
            return start.duration(to: session.now)
        }
        session.connect()
        session.end(.serverError, retryAfter: .seconds(1800))
        session.wake()
        session.succeed()
        #expect(passToKnock() >= .seconds(1790))
        session.knocked(.answered)
        #expect(session.end(.serverError, retryAfter: .seconds(2400)) == [.open(4, at: 1)])
        session.succeed()
        #expect(passToKnock() >= .seconds(2400))
    }

    @Test func `a success ends the hint`() {
        var session = SessionUnderTest(.authenticating)
        session.end(.serverBusy, retryAfter: .seconds(30))
        session.wake()
        session.succeed()
        #expect(session.path(.movedSourceGone) == [.abandon(2), .open(3)])
    }

    // MARK: Giving up

    private static let patient: ReconnectPolicy = {
        var policy = ReconnectPolicy.exact
        policy.giveUpAfter = .seconds(1200)
        return policy
    }()

    @Test func `giving up counts from the loss, with the time offline`() {
        var session = SessionUnderTest(.connected, policy: Self.patient)
        session.pass(.seconds(7))
        session.path(.lost)
        session.pass(.seconds(5))
        #expect(session.phase == .waitingForNetwork)
        session.pass(.seconds(600))
        if session.live != nil { session.end(.unreachable) }
        session.path(.gained)
        session.end(.unreachable)
        var orders: [SessionUnderTest.Order] = []
        while session.state == .reconnecting {
            orders = session.wake()
            if session.live != nil { session.end(.unreachable) }
        }
        #expect(orders.isEmpty)
        #expect(session.elapsed == .seconds(7 + 5 + 1200))
        #expect(session.state == .failed)
        #expect(session.status.reason.lastFailure?.code == .unreachable)
        #expect(session.reason == .retryTimeout)
        #expect(session.machine.nextDeadline == nil)
    }

    @Test func `an outage that another machine goes on with is given up as if it was the same one`() {
        var session = SessionUnderTest(.connected, policy: Self.patient)
        session.path(.lost)
        session.pass(.seconds(1000))
        #expect(session.state == .reconnecting)
        let elapsed = session.elapsed
        var next = SessionUnderTest(policy: Self.patient, paths: [nil])
        next.skip(elapsed)
        next.take(.resume(session.machine.outage, Reason(.configurationChanged)))
        next.pass(.seconds(5 + 1200) - elapsed - .seconds(1))
        #expect(next.state == .reconnecting)
        next.pass(.seconds(1))
        #expect(next.state == .failed && next.reason == .retryTimeout)
    }

    @Test(arguments: SessionUnderTest.Situation.trying)
    func `a first connect gives up too, whatever it is doing`(situation: SessionUnderTest.Situation) {
        var policy = Self.patient
        policy.giveUpAfter = .milliseconds(20)
        var session = SessionUnderTest(situation, policy: policy)
        let isAttempting = session.live != nil
        #expect(session.pass(.milliseconds(20)) == (isAttempting ? [.abandon(1)] : []))
        #expect(session.state == .failed)
        #expect(session.reason == .retryTimeout)
        if isAttempting { #expect(session.status.reason.lastFailure != nil, "it says how far the only attempt came") }
    }

    @Test(arguments: [(Phase.resolving, Reason.Code.dnsFailed), (.dialing, .dialTimeout), (.securing, .tlsTimeout)])
    func `a session that gives up before its first attempt has ended says how far that one came`(
        phase: Phase, code: Reason.Code
    ) {
        var policy = Self.patient
        policy.giveUpAfter = .seconds(2)
        var session = SessionUnderTest(.resolving, policy: policy)
        session.progress(to: phase)
        session.pass(.seconds(2))
        #expect(session.state == .failed)
        #expect(session.status.reason.lastFailure?.code == code)
        #expect(session.status.reason.message.hasSuffix("; the last failure: \(Reason(code).message)"))
    }

    @Test func `a session that gives up while it waits for its first credential blames the credential, not the name`() {
        var policy = Self.patient
        policy.giveUpAfter = .seconds(2)
        var session = SessionUnderTest(.resolving, policy: policy)
        session.take(.credentialAwaited(Generation(rawValue: 1)))
        session.pass(.seconds(2))
        #expect(session.state == .failed && session.reason == .retryTimeout)
        #expect(session.status.reason.lastFailure?.code == .credentialUnreadable)
        let told = session.status.reason.message
        #expect(told.hasSuffix("; the last failure: the credential was not there after 2.0 seconds"), "\(told)")
    }

    @Test func `by default a session never gives up`() {
        var session = SessionUnderTest(.waiting)
        for _ in 0..<3000 {
            session.wake()
            if session.live != nil { session.end(.unreachable) }
        }
        #expect(session.state == .connecting)
        #expect(session.elapsed > .seconds(86_400))
    }

    // MARK: Lost

    @Test func `a long outage is reported once`() {
        var policy = ReconnectPolicy.exact
        policy.lostAfter = .seconds(10)
        var session = SessionUnderTest(.connected, policy: policy)
        session.path(.lost)
        session.end(.reset)
        #expect(session.due == .seconds(10))
        session.pass(.seconds(9))
        #expect(!session.status.isLost)
        session.pass(.seconds(1))
        #expect(session.events == [.connectionLost(outage: .seconds(10))])
        #expect(session.status.isLost)
        session.path(.gained)
        session.end(.unreachable)
        session.reconnect()
        session.pass(.seconds(4000))
        #expect(!session.events.contains { if case .connectionLost = $0 { true } else { false } })
        while session.live == nil { session.wake() }
        session.succeed()
        #expect(!session.status.isLost)
        session.end(.reset)
        session.pass(.seconds(10))
        #expect(session.events == [.connectionLost(outage: .seconds(10))])
    }

    @Test func `an attempt due when the outage is reported lost is still made`() {
        var policy = ReconnectPolicy.exact
        policy.lostAfter = .milliseconds(50)
        var session = SessionUnderTest(.connected, policy: policy)
        session.end(.unreachable)
        #expect(session.wake() == [.open(2)])
        #expect(session.events == [.connectionLost(outage: .milliseconds(50))])
    }

    @Test func `a first connect is never reported lost`() {
        var session = SessionUnderTest(.resolving, policy: .unwatched)
        session.pass(.seconds(100))
        #expect(session.events.isEmpty)
        #expect(!session.status.isLost)
    }
}
