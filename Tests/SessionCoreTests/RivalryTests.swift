import Testing

@testable import SessionCore

/// Two devices with one identity: when a session looks for the other one, and when it suspects one.
@Suite struct RivalryTests {
    private func session(
        _ strategy: KickStrategy, canLook: Bool = true, paths: [Path?] = [.wifi]
    ) -> SessionUnderTest {
        var session = SessionUnderTest(paths: paths)
        session.machine.rivalry.strategy = strategy
        session.machine.rivalry.canLook = canLook
        session.connect()
        return session
    }

    @Test(arguments: [
        (KickStrategy.takeOver, Reason.Code.serverClosed, Look?.some(.forNewer)), (.takeOver, .reset, .forNewer),
        (.takeOver, .heartbeatTimeout, nil), (.takeOver, .serverShutdown, nil), (.takeOver, .unreachable, nil),
        (.yield, .serverClosed, .forAny), (.yield, .heartbeatTimeout, .forAny), (.yield, .unreachable, .forAny),
    ])
    func `a session looks for another device before it reconnects`(
        strategy: KickStrategy, code: Reason.Code, look: Look?
    ) {
        var session = session(strategy)
        #expect(session.live?.look == nil, "a first connect always takes over")
        session.succeed()
        session.end(code)
        session.wake()
        #expect(session.live?.look == look)
    }

    @Test func `a session also looks for another device after the server accepted an attempt and closed it`() {
        var session = session(.takeOver)
        session.succeed()
        session.end(.heartbeatTimeout)
        session.wake()
        #expect(session.live?.look == nil)
        session.establish()
        session.end(.serverClosed)
        session.wake()
        #expect(session.live?.look == .forNewer)
        session.end(.dialTimeout)
        session.wake()
        #expect(session.live?.look == .forNewer, "another failure does not say that there was no other device")
    }

    @Test(arguments: [Reason.Code.serverClosed, .reset], [true, false])
    func `a close before the server accepted the attempt is no other device's doing`(
        code: Reason.Code, isFirst: Bool
    ) {
        var session = session(.takeOver)
        if isFirst {
            session.establish()
            session.end(.serverError)
        } else {
            session.succeed()
            session.end(.heartbeatTimeout)
        }
        session.wake()
        session.end(code)
        session.wake()
        #expect(session.live?.look == nil)
    }

    @Test(arguments: [(KickStrategy.takeOver, Look?.none), (.yield, .forAny)])
    func `a server that refuses connections was down, which explains the close`(strategy: KickStrategy, look: Look?) {
        var session = session(strategy)
        session.succeed()
        session.end(.serverClosed)
        session.wake()
        session.end(.refused)
        session.wake()
        #expect(session.live?.look == look)
    }

    @Test func `a refusal after a first connect was accepted and closed explains the close as well`() {
        var session = session(.takeOver)
        session.establish()
        session.end(.serverClosed)
        session.wake()
        #expect(session.live?.look == .forNewer)
        session.end(.refused)
        while session.live == nil { session.wake() }
        #expect(session.live?.look == nil)
    }

    @Test(arguments: [(Reason.Code.heartbeatTimeout, Look?.none), (.serverClosed, .forNewer)])
    func `a refusal explains the close of its own endpoint and of no other one`(lost: Reason.Code, left: Look?) {
        var session = session(.takeOver, paths: [.wifi, .wifi])
        func next(_ endpoint: Int, _ look: Look?) {
            while session.live == nil { session.wake() }
            #expect(session.live?.endpoint == EndpointIndex(endpoint))
            #expect(session.live?.look == look)
        }
        session.succeed()
        session.end(lost)
        next(0, left)
        session.end(.unreachable)
        next(1, left)
        session.establish()
        session.end(.serverClosed)
        next(0, .forNewer)
        session.end(lost == .heartbeatTimeout ? .refused : .unreachable)
        next(1, .forNewer)
        session.end(.refused)
        next(0, left)
    }

    @Test func `a close before the daemon was started again is looked into, whichever endpoint refuses`() {
        var session = SessionUnderTest()
        session.machine.rivalry.canLook = true
        session.take(.resume(SessionMachine.Outage(since: SessionUnderTest.start), Reason(.serverClosed)))
        #expect(session.live?.look == .forNewer)
        session.end(.refused)
        while session.live == nil { session.wake() }
        #expect(session.live?.look == .forNewer)
    }

    @Test(arguments: KickStrategy.allCases)
    func `a first connect that was accepted and then closed looks for another device`(
        strategy: KickStrategy
    ) {
        var session = session(strategy)
        #expect(session.live?.look == nil, "the very first attempt takes over")
        session.end(.serverClosed)
        session.wake()
        // It was not accepted yet; but with yield, every later attempt looks.
        #expect(session.live?.look == (strategy == .yield ? .forAny : nil))
        session.establish()
        session.end(.serverClosed)
        session.wake()
        #expect(session.live?.look == (strategy == .yield ? .forAny : .forNewer))
        session.reconnect()
        #expect(session.live?.look == nil, "reconnect by hand takes over")
    }

    @Test func `a first connect that took over and then failed does not yield to the device that it displaced`() {
        var session = session(.yield)
        session.establish()
        session.end(.serverError)
        session.wake()
        #expect(session.live?.look == nil, "the room may still show the other device online")
        session.establish()
        session.end(.restoreTimeout)
        session.wake()
        #expect(session.live?.look == nil)
        session.end(.unreachable)
        session.wake()
        #expect(session.live?.look == .forAny, "another device may have logged in since")
        session.succeed()
        session.end(.serverError)
        session.wake()
        #expect(session.live?.look == .forAny)
    }

    @Test func `a first connect that found an unknown session does not yield to the device that had it`() {
        var session = session(.yield)
        for _ in 1...3 {
            session.end(.stateMismatch)
            if session.live == nil { session.wake() }
            #expect(session.live?.look == nil, "the server accepted the connection, and so ended the other device's")
        }
        session.end(.unreachable)
        session.wake()
        #expect(session.live?.look == .forAny)
    }

    @Test func `an attempt knows whether the server accepted the previous one and closed it without a reason`() {
        var session = session(.takeOver)
        var follows: [Bool?] = []
        func note() { follows.append(session.live?.followsSuddenClose) }
        note()
        session.end(.refused)
        session.wake()
        note()
        session.establish()
        session.end(.serverClosed)
        session.wake()
        note()
        session.succeed()
        session.end(.serverClosed)
        session.wake()
        note()
        session.end(.refused)
        session.wake()
        note()
        session.succeed()
        session.end(.heartbeatTimeout)
        session.wake()
        note()
        session.establish()
        session.end(.serverError)
        session.wake()
        note()
        session.end(.serverClosed)
        session.wake()
        note()
        #expect(follows == [false, false, true, true, false, false, false, false])
    }

    @Test(arguments: KickStrategy.allCases)
    func `a session without a room does not look for another device`(strategy: KickStrategy) {
        var session = session(strategy, canLook: false)
        session.succeed()
        session.end(.serverClosed)
        session.wake()
        #expect(session.live?.look == nil)
    }

    @Test(arguments: [Reason.Code.displaced, .yielded])
    func `a device that the look finds ends the session, and connect takes over again`(code: Reason.Code) {
        var session = session(code == .yielded ? .yield : .takeOver)
        session.succeed()
        session.end(.serverClosed)
        session.wake()
        session.end(code)
        #expect(session.state == .failed)
        #expect(session.reason == code)
        #expect(session.due == nil)
        session.connect()
        #expect(session.live?.look == nil)
    }

    @Test(arguments: [KickStrategy.yield, .takeOver], [Reason.Code.configurationChanged, .credentialChanged])
    func `a session that failed and comes back with another configuration or credential yields if that is its strategy`(
        strategy: KickStrategy, cause: Reason.Code
    ) {
        var session = session(strategy)
        session.succeed()
        session.end(.notAuthorized)
        #expect(session.state == .failed)
        session.connect(cause)
        #expect(session.live?.look == (strategy == .yield ? .forAny : nil))
    }

    /// The daemon was started again, or a reload has changed the session.
    @Test(arguments: KickStrategy.allCases, [true, false])
    func `a session that goes on where an earlier machine left off yields if that is its strategy`(
        strategy: KickStrategy, isInOutage: Bool
    ) {
        var session = SessionUnderTest()
        session.machine.rivalry.strategy = strategy
        session.machine.rivalry.canLook = true
        let outage = isInOutage ? SessionMachine.Outage(since: session.now) : nil
        session.take(.resume(outage, Reason(isInOutage ? .unreachable : .autoconnect)))
        #expect(session.state == (isInOutage ? .reconnecting : .connecting))
        #expect(session.live?.look == (strategy == .yield ? .forAny : nil))
        session.end(.yielded)
        session.connect()
        #expect(session.live?.look == nil, "somebody asks")
    }

    @Test func `a session on demand that was up before the daemon was started again yields at its next use`() {
        var rest = RestPolicy()
        rest.idleTimeout = .seconds(60)
        var session = SessionUnderTest(rest: rest)
        session.machine.rivalry.strategy = .yield
        session.machine.rivalry.canLook = true
        session.take(.resume(nil, Reason(.autoconnect)))
        #expect(session.live == nil && session.reason == .idle)
        session.take(.useBegan(.messages))
        #expect(session.live?.look == .forAny)
    }

    @Test func `the third sudden close in a row is suspicious`() {
        var session = session(.takeOver, canLook: false)
        for expected in [Reason.Code.serverClosed, .serverClosed, .displacedSuspected, .displacedSuspected] {
            session.succeed()
            session.end(.serverClosed)
            #expect(session.reason == expected)
            #expect(session.state == .reconnecting, "it is only a suspicion")
            session.wake()
        }
        session.succeed()
        #expect(session.reason == .displacedSuspected, "the status names it while it is connected, too")
    }

    @Test(arguments: [true, false])
    func `a stable connection or another reason ends the suspicion`(isStable: Bool) {
        var session = session(.takeOver, canLook: false)
        for _ in 0..<2 {
            session.succeed()
            session.end(.serverClosed)
            session.wake()
        }
        session.succeed()
        if isStable { session.skip(.seconds(30)) }
        session.end(isStable ? .serverClosed : .serverShutdown)
        session.wake()
        session.succeed()
        session.end(.serverClosed)
        #expect(session.reason == .serverClosed)
    }

    @Test func `a server killed and restarted three times within half a minute is not taken for a rival`() throws {
        var session = session(.takeOver)
        for _ in 1...3 {
            session.succeed(resumed: false)
            session.skip(.seconds(5))
            session.end(.serverClosed)
            #expect(session.reason == .serverClosed, "no other device took the session")
            // Its port refuses connections until it is up again.
            var waited = Duration.zero
            while waited < .seconds(3) {
                let delay = try #require(session.retryIn)
                #expect(delay <= .seconds(8))
                waited += delay
                while session.live == nil { session.wake() }
                if waited < .seconds(3) { session.end(.refused) }
            }
            #expect(waited < .seconds(8), "it had been back for seconds")
        }
    }

    @Test func `a rival is suspected although the server was down in between`() {
        var session = session(.takeOver, canLook: false)
        session.succeed()
        session.end(.serverClosed)
        session.wake()
        session.end(.refused)
        session.wake()
        for expected in [Reason.Code.serverClosed, .serverClosed, .displacedSuspected] {
            session.succeed()
            session.end(.serverClosed)
            #expect(session.reason == expected)
            session.wake()
        }
    }

    @Test func `a close with a server code is never suspicious`() {
        var session = session(.takeOver)
        for _ in 1...5 {
            session.succeed()
            let reason = Reason(.serverClosed, "the server said: maximum connect time (0xA0)", serverCode: 0xA0)
            session.take(.ended(session.lastOpened, .init(reason)))
            #expect(session.status.reason == reason)
            session.wake()
            #expect(session.live?.look == nil)
        }
    }

    /// A device on a slow link needs seconds to connect and to be seen in the room.
    @Test func `a session that is closed again and again waits longer and longer`() throws {
        var session = session(.takeOver)
        func delays(_ count: Int, every interval: Duration) throws -> [Duration] {
            try (0..<count).map { _ in
                session.succeed()
                session.skip(interval)
                session.end(.serverClosed)
                let delay = try #require(session.retryIn)
                // Other deadlines may come first.
                while session.live == nil { session.wake() }
                return delay
            }
        }
        let first = try delays(9, every: .seconds(31))
        #expect(first.prefix(3).allSatisfy { $0 <= .seconds(1) }, "\(first)")
        #expect(zip(first.dropFirst(3), [2, 4, 8, 16, 16, 16]).allSatisfy { $0 == .seconds($1) }, "\(first)")
        #expect(try delays(3, every: .seconds(601)).allSatisfy { $0 <= .seconds(1) }, "it is forgotten")
        session.machine.rivalry.canLook = false
        #expect(try delays(9, every: .seconds(31)).allSatisfy { $0 <= .seconds(1) }, "there is nothing to wait for")
    }

    /// The server has closed connections at this moment, each of them long enough to be stable.
    private static func rivalry(closes: Int, at now: Instant) -> Rivalry {
        var rivalry = Rivalry()
        rivalry.canLook = true
        for _ in 0..<closes { _ = patience(of: &rivalry, afterCloseAt: now) }
        return rivalry
    }

    private static func patience(of rivalry: inout Rivalry, afterCloseAt now: Instant) -> Duration {
        let reason = rivalry.lost(because: Reason(.serverClosed), isStable: true, mayBeRival: true, at: now)
        return rivalry.patience(after: reason)
    }

    @Test func `a sudden close is remembered for ten minutes and no longer`() {
        let now = SessionUnderTest.start
        var rivalry = Self.rivalry(closes: 4, at: now)
        #expect(Self.patience(of: &rivalry, afterCloseAt: now.advanced(by: .seconds(600))) == .seconds(4))
        rivalry = Self.rivalry(closes: 4, at: now)
        let later = now.advanced(by: .seconds(600) + .nanoseconds(1))
        #expect(Self.patience(of: &rivalry, afterCloseAt: later) == .zero)
    }

    @Test func `a close explained by a server stop does not count, and earlier ones still do`() {
        let now = SessionUnderTest.start
        var rivalry = Self.rivalry(closes: 5, at: now)
        rivalry.serverWasDown()
        rivalry.serverWasDown()
        #expect(Self.patience(of: &rivalry, afterCloseAt: now) == .seconds(4))
    }

    @Test func `connect by hand forgets that the server had accepted the session`() {
        var session = session(.takeOver)
        session.establish()
        session.end(.serverClosed)
        #expect(session.machine.wasAccepted)
        session.connect()
        #expect(!session.machine.wasAccepted)
        session.end(.serverClosed)
        session.wake()
        #expect(session.live?.look == nil)
    }

    @Test func `connect by hand clears the suspicion`() {
        var session = session(.takeOver)
        for _ in 1...3 {
            session.succeed()
            session.end(.serverClosed)
            #expect(session.reason == .serverClosed)
            session.wake()
            session.end(.displaced)
            session.connect()
        }
    }

    @Test func `a change that needs a new connection reconnects at once`() {
        var session = session(.takeOver)
        session.succeed()
        #expect(session.take(.renew(Reason(.switchRoom))) == [.abandon(1), .open(2)])
        #expect(session.state == .reconnecting)
        #expect(session.take(.renew(Reason(.switchRoom))).isEmpty, "the attempt under way will tell it")
        session.succeed()
        #expect(session.reason == .switchRoom)
    }

    @Test func `a change of rooms that fails is not the reason of the connection after it`() {
        var session = session(.takeOver)
        session.succeed()
        session.take(.renew(Reason(.switchRoom)))
        session.end(.refused)
        session.wake()
        session.succeed()
        #expect(session.reason == .refused)
    }

    @Test func `an accepted attempt that ends looks for another device only in a room, and without a reason`() {
        for (canLook, code, look) in [
            (true, Reason.Code.serverClosed, Look?.some(.forNewer)), (false, .serverClosed, nil),
            (true, .serverError, nil), (false, .serverError, nil),
        ] {
            var session = session(.takeOver, canLook: canLook)
            session.establish()
            session.end(code)
            session.wake()
            #expect(session.live?.look == look)
        }
    }
}
