import Testing

@testable import SessionCore

/// Watching for healing while the session waits.
@Suite struct WatchTests {
    private static let policy: ReconnectPolicy = {
        var policy = ReconnectPolicy()
        policy.lostAfter = nil
        policy.delays = [.seconds(1), .seconds(2000)]
        return policy
    }()

    /// Waits for half an hour, because of this failure; the spread after refusals is off.
    private static func waiting(_ code: Reason.Code, paths: [Path?] = [.wifi], seed: UInt64 = 1) -> SessionUnderTest {
        var policy = policy
        policy.spread = code == .refused ? .zero : policy.spread
        var session = SessionUnderTest(policy: policy, paths: paths, seed: seed)
        session.connect()
        session.end(code)
        session.pass(.seconds(1))
        session.end(code)
        return session
    }

    @Test(arguments: [Reason.Code.unreachable, .dialTimeout, .dnsFailed, .refused], UInt64(1)...5)
    func `an endpoint that was unreachable is checked every second, later every 5 and every 15`(
        code: Reason.Code, seed: UInt64
    ) {
        var session = Self.waiting(code, seed: seed)
        let failed = session.now
        var last = failed
        while failed.duration(to: session.now) < .seconds(1500) {
            #expect(session.wake() == [.knock(0)])
            let pause = last.duration(to: session.now)
            let pace = Duration.seconds(
                Self.elapsed(session, last) < .seconds(60) ? 1 : Self.elapsed(session, last) < .seconds(600) ? 5 : 15)
            #expect((pace * 0.8...pace * 1.2).contains(pause), "after \(Self.elapsed(session, last))")
            last = session.now
            session.knocked(.silent)
        }
    }

    /// The time since the start, when the endpoint failed first.
    private static func elapsed(_ session: SessionUnderTest, _ moment: Instant) -> Duration {
        SessionUnderTest.start.duration(to: moment)
    }

    @Test(arguments: [
        Reason.Code.serverBusy, .serverClosed, .reset, .tlsFailed, .authenticateTimeout, .unknown,
    ])
    func `an endpoint that answered is not checked`(code: Reason.Code) {
        var session = Self.waiting(code)
        #expect(!session.pass(.seconds(4)).contains(.knock(0)))
    }

    @Test func `an endpoint is not checked during a short wait`() {
        var session = SessionUnderTest(policy: .init())
        session.connect()
        for _ in 0..<4 {
            session.end(.unreachable)
            #expect(!session.pass(.seconds(1)).contains(.knock(0)))
        }
        session.end(.unreachable)
        #expect(session.retryIn == .seconds(2))
        #expect(session.wake() == [.knock(0)])
    }

    /// Network events may bring six attempts a minute forward. After that the session waits, and the watch goes on.
    @Test(
        arguments: [[PathClass.lost, .returned], [.movedSourceKept], [.movedSourceGone]], [nil, Reason.Code.refused])
    func `after a path that flapped, a server that answers is noticed within the watch's interval`(
        flap: [PathClass], answer: Reason.Code?
    ) {
        var session = SessionUnderTest(policy: Self.policy)
        session.connect()
        for _ in 0..<100 where session.retryIn.map({ $0 < .seconds(10) }) ?? true {
            for change in flap {
                session.pass(.milliseconds(500))
                session.path(change)
                if let answer, session.live != nil { session.end(answer) }
            }
        }
        #expect(session.phase == .waiting)
        #expect(session.retryIn.map { $0 >= .seconds(10) } == true)
        #expect(session.pass(.milliseconds(1300)).contains(.knock(0)))
        session.knocked(.answered)
        #expect(session.pass(.seconds(1)).contains { $0.isOpen } || session.live != nil)
    }

    /// Network events may bring no more attempts forward, so the session waits for the table.
    @Test(arguments: SessionUnderTest.Situation.attempting)
    func `an endpoint is checked if an attempt was abandoned before its host had answered`(
        situation: SessionUnderTest.Situation
    ) {
        var policy = Self.policy
        policy.delays = [.seconds(5), .seconds(2000)]
        var session = SessionUnderTest(situation, policy: policy)
        for _ in 0..<7 {
            session.pass(.seconds(1))
            session.path(.movedSourceGone)
            guard session.live != nil else { break }
            switch situation {
            case .dialing: session.progress(to: .dialing)
            case .securing: session.progress(to: .securing)
            case .authenticating: session.progress(to: .authenticating)
            case .restoring: session.establish()
            default: break
            }
        }
        #expect(session.phase == .waiting)
        let orders = session.pass(.seconds(4))
        #expect(orders.contains(.knock(0)) == [.resolving, .dialing].contains(situation))
    }

    @Test(arguments: [5, 6])
    func `attempts that an answer brings forward leave fewer to network events`(answers: Int) {
        var session = Self.waiting(.unreachable)
        for _ in 1...answers {
            session.pass(.milliseconds(1300))
            session.knocked(.answered)
            #expect(session.live?.continuesKnock == true)
            session.end(.unreachable)
        }
        session.pass(.milliseconds(1100))
        session.path(.movedSourceGone)
        #expect((session.live != nil) == (answers < 6))
    }

    @Test func `a path that healed is used at once`() {
        var session = Self.waiting(.unreachable)
        session.pass(.seconds(30))
        #expect(session.knocked(.answered) == [.open(3)])
        #expect(session.live?.continuesKnock == true)
        #expect(session.reason == .answered)
        session.succeed()
        #expect(session.reason == .answered)
    }

    @Test func `the connection of a knock is used by one attempt only`() {
        var session = Self.waiting(.unreachable)
        session.pass(.seconds(30))
        session.knocked(.answered)
        #expect(session.live?.continuesKnock == true)
        session.end(.tlsFailed)
        while session.live == nil { session.pass(.seconds(1)) }
        #expect(session.live?.continuesKnock == false)
        session.end(.unreachable)
        while session.live == nil { session.pass(.seconds(1)) }
        #expect(session.live?.continuesKnock == false)
    }

    @Test(arguments: UInt64(1)...50)
    func `a server that is back after refusals is approached after a random delay`(seed: UInt64) {
        var policy = Self.policy
        policy.delays = [.seconds(1), .seconds(2000), .seconds(2000)]
        var session = SessionUnderTest(policy: policy, seed: seed)
        session.connect()
        while session.retryIn ?? .zero < .seconds(30) {
            if session.live != nil { session.end(.refused) } else { session.skip(session.retryIn ?? .zero) }
            session.take(.timeReached)
        }
        session.wake()
        #expect(session.knocked(.answered).isEmpty)
        #expect((session.retryIn ?? .seconds(100)) <= .seconds(1))
        #expect(session.machine.wantsKnock(at: EndpointIndex(0)), "its connection is kept")
        #expect(session.wake().count(where: \.isOpen) == 1)
        #expect(session.live?.continuesKnock == true)
    }

    @Test func `a path that healed to a server that still refuses delays the attempt once the server answers`() {
        var session = Self.waiting(.unreachable)
        session.wake()
        session.knocked(.refused)
        session.wake()
        #expect(session.knocked(.answered).isEmpty)
        #expect((session.retryIn ?? .seconds(100)) <= .seconds(1))
    }

    @Test func `a check's connection is not used after the path moves`() {
        var session = Self.waiting(.unreachable)
        session.wake()
        session.knocked(.refused)
        session.wake()
        session.knocked(.answered)
        #expect(session.path(.movedSourceGone) == [.open(3)])
        #expect(session.live?.continuesKnock == false)
    }

    @Test func `an endpoint that redirected the session to an unreachable one is not checked`() {
        var session = SessionUnderTest(policy: Self.policy)
        session.connect()
        session.end(.refused)
        session.pass(.seconds(1))
        var ending = SessionMachine.Ending(Reason(.refused))
        ending.isElsewhere = true
        session.take(.ended(session.generation, ending))
        #expect(!session.pass(.seconds(4)).contains(.knock(0)))
    }

    @Test func `an endpoint without a path is not checked`() {
        var session = Self.waiting(.unreachable, paths: [.wifi, .wifi])
        session.path(.lost, at: 1)
        let orders = session.pass(.seconds(100))
        #expect(orders.contains(.knock(0)))
        #expect(!orders.contains(.knock(1)))
        session.path(.lost, at: 0)
        #expect(session.pass(.seconds(200)).isEmpty)
    }

    @Test func `every unreachable endpoint is checked, and the one that answers is used`() {
        var session = Self.waiting(.unreachable, paths: [.wifi, .wifi, .wifi])
        let orders = session.pass(.seconds(5))
        #expect(orders.contains(.knock(0)))
        #expect(orders.contains(.knock(1)))
        #expect(!orders.contains(.knock(2)), "it was not asked yet")
        #expect(session.knocked(.answered, at: 1) == [.open(3, at: 1)])
    }

    @Test func `an answer from one endpoint does not override another's request to wait`() {
        var session = SessionUnderTest(policy: Self.policy, paths: [.wifi, .wifi])
        session.connect()
        session.end(.unreachable)
        session.pass(.seconds(1))
        session.end(.serverBusy, retryAfter: .seconds(300))
        #expect(session.pass(.seconds(2)).contains(.knock(0)))
        #expect(session.knocked(.answered).isEmpty, "the floor of a busy server holds everywhere")
        while session.live == nil { session.wake() }
        #expect(session.live?.endpoint == EndpointIndex(0))
        #expect(session.elapsed < .seconds(20), "the other one is left alone for five minutes")
    }

    @Test(arguments: [Duration?.none, .seconds(30)])
    func `checks are never more frequent than watch says`(watch: Duration?) {
        var policy = Self.policy
        policy.watch = watch
        var session = SessionUnderTest(policy: policy)
        session.connect()
        session.end(.unreachable)
        session.pass(.seconds(1))
        session.end(.unreachable)
        let knocks = session.pass(.seconds(600)).count { $0 == .knock(0) }
        #expect(watch == nil ? knocks == 0 : (16...25).contains(knocks))
    }

    @Test func `late answers change nothing`() {
        var session = Self.waiting(.unreachable)
        #expect(session.knocked(.answered).isEmpty, "nobody knocked")
        session.wake()
        session.reconnect()
        #expect(session.knocked(.answered).isEmpty)
        session.succeed()
        #expect(session.knocked(.answered).isEmpty)
        session.disconnect()
        #expect(session.knocked(.answered).isEmpty)
    }

    @Test(arguments: [
        ([Reason.Code.unreachable, .refused], false), ([.refused, .unreachable], true), ([.refused, .refused], false),
    ])
    func `an endpoint that answers is used at once if it was silent last, and not if it refused last`(
        codes: [Reason.Code], isUsedAtOnce: Bool
    ) {
        var session = SessionUnderTest(policy: Self.policy)
        session.connect()
        for code in codes {
            session.end(code)
            while session.live == nil, session.retryIn.map({ $0 < .seconds(60) }) == true { session.pass(.seconds(1)) }
        }
        session.wake()
        #expect(session.knocked(.answered).map(\.isOpen) == (isUsedAtOnce ? [true] : []))
    }
}

@Suite struct AttemptBudgetTests {
    private static let policy: ReconnectPolicy = {
        var policy = ReconnectPolicy.exact
        policy.giveUpAttempts = 3
        return policy
    }()

    @Test func `a session gives up after the configured number of failed attempts, and says so`() {
        var session = SessionUnderTest(.connected, policy: Self.policy)
        session.end(.reset)
        for _ in 0..<2 {
            session.wake()
            session.end(.unreachable)
        }
        session.wake()
        #expect(session.state == .reconnecting)
        session.end(.refused)
        #expect(session.state == .failed)
        #expect(session.reason == .retryTimeout)
        #expect(session.status.reason.message.contains("connected within 3 attempts, as give-up-attempts says"))
        #expect(session.status.reason.message.hasSuffix(Reason.Code.refused.sentence))
        #expect(session.status.reason.lastFailure == .init(Reason(.refused)))
    }

    @Test func `a session that may make one attempt says so`() {
        var policy = Self.policy
        policy.giveUpAttempts = 1
        var session = SessionUnderTest(policy: policy)
        session.connect()
        session.end(.unreachable)
        #expect(session.status.reason.message.contains("within 1 attempt, as give-up-attempts says"))
    }

    @Test func `a search that finds what the server closes for does not count as failed attempts`() {
        var session = SessionUnderTest(.connected, policy: Self.policy)
        session.end(.reset)
        for _ in 0..<5 {
            for search in [SessionMachine.Ending.Search.continued, .continued, .continued, .found] {
                session.wake()
                session.end(.serverClosed, search: search)
            }
        }
        #expect(session.state == .reconnecting)
        for _ in 0..<3 {
            #expect(session.state == .reconnecting)
            session.wake()
            session.end(.unreachable)
        }
        #expect(session.reason == .retryTimeout)
    }

    @Test func `a search that finds nothing uses up the attempts`() {
        var session = SessionUnderTest(.connected, policy: Self.policy)
        session.end(.reset)
        for _ in 0..<15 {
            #expect(session.state == .reconnecting)
            session.wake()
            session.end(.serverClosed, search: .continued)
        }
        #expect(session.reason == .retryTimeout)
    }

    @Test func `a timeout counts as a failed attempt`() {
        var session = SessionUnderTest(.resolving, policy: Self.policy)
        session.pass(.seconds(60))
        #expect(session.state == .failed)
        #expect(session.machine.counters.attempts == 3)
    }

    @Test func `attempts on an uncertain path are not counted until the path is gained`() {
        var nearby = Path.wired
        nearby.isToNeighbours = true
        var session = SessionUnderTest(policy: Self.policy, paths: [nearby])
        session.connect()
        for _ in 0..<10 {
            session.end(.dnsFailed)
            while session.live == nil { session.wake() }
        }
        #expect(session.state == .connecting)
        session.end(.dnsFailed)
        let waiting = session.retryIn
        #expect(waiting.map { $0 > .seconds(1) } == true)
        session.path(.gained)
        #expect(session.phase == .resolving, "at once")
        for _ in 0..<2 {
            session.end(.dnsFailed)
            while session.live == nil { session.wake() }
        }
        session.end(.dnsFailed)
        #expect(session.state == .failed)
    }

    @Test func `attempts without a path are not counted`() {
        var session = SessionUnderTest(.waitingForNetwork, policy: Self.policy)
        for _ in 0..<10 {
            session.pass(.seconds(300))
            session.end(.unreachable)
        }
        #expect(session.phase == .waitingForNetwork)
        session.path(.gained)
        for _ in 0..<2 {
            session.end(.unreachable)
            session.wake()
        }
        #expect(session.state == .connecting)
        session.end(.unreachable)
        #expect(session.state == .failed)
    }

    @Test func `each outage and each manual reconnect starts with all attempts`() {
        var session = SessionUnderTest(.resolving, policy: Self.policy)
        for round in 0..<3 {
            for _ in 0..<2 {
                session.end(.unreachable)
                session.wake()
            }
            if round == 1 { session.reconnect() } else { session.succeed() }
            if round == 0 {
                session.end(.reset)
                session.wake()
            }
        }
        #expect(session.state == .connected)
    }
}
