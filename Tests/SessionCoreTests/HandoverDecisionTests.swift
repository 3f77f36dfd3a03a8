import Testing

@testable import SessionCore

/// Make before break: a connection on the new path is set up beside the old one, and takes over.
@Suite struct HandoverDecisionTests {
    /// Connected with generation 1 and a round-trip time of 40 ms; the path has moved, and generation 2 is being set up.
    private static func moved(
        _ phase: Phase? = nil, policy: ReconnectPolicy = .exact, rest: RestPolicy = .init()
    ) -> SessionUnderTest {
        var session = connected(policy: policy, rest: rest)
        session.path(.movedSourceKept)
        if let phase { session.progressBeside(to: phase) }
        return session
    }

    private static func connected(policy: ReconnectPolicy = .exact, rest: RestPolicy = .init()) -> SessionUnderTest {
        var session = SessionUnderTest(.connected, policy: policy, rest: rest)
        session.pass(.seconds(15))
        session.skip(.milliseconds(40))
        session.answerHeartbeat()
        session.skip(.seconds(1))
        return session
    }

    /// The same, with a transport that is ready, and an old connection that finishes what is in flight.
    private static func settling(policy: ReconnectPolicy = .exact) -> SessionUnderTest {
        var session = moved(policy: policy)
        session.prepared()
        return session
    }

    // MARK: The course of it

    @Test func `a new path that takes over begins the table again`() {
        var session = SessionUnderTest(policy: .exact)
        session.connect()
        session.end(.unreachable)
        let first = session.retryIn
        for _ in 0..<3 {
            session.wake()
            session.end(.unreachable)
        }
        session.wake()
        session.succeed()
        session.pass(.seconds(15))
        session.skip(.milliseconds(40))
        session.answerHeartbeat()
        session.path(.movedSourceKept)
        let next = session.lastOpened.rawValue
        session.prepared()
        #expect(session.end(.reset) == [.open(next)])
        session.end(.unreachable)
        #expect(session.retryIn == first)
    }

    @Test func `the old connection is probed, and the next one is set up beside it`() {
        var session = Self.connected()
        #expect(session.path(.movedSourceKept) == [.heartbeat(1), .prepare(2)])
        #expect(session.state == .connected)
        #expect(session.status.doubt == .probing)
        session.skip(.milliseconds(40))
        session.answerHeartbeat()
        #expect(session.status.doubt == nil)
        #expect(session.progressBeside(to: .dialing).isEmpty)
        #expect(session.progressBeside(to: .securing).isEmpty)
        #expect(!session.machine.isSettling)
        #expect(session.prepared() == [.settle(1)])
        #expect(session.machine.isSettling)
        #expect(session.state == .connected)
        #expect(!session.reportedStateChange)
    }

    @Test func `when nothing is in flight any more the new connection takes over, and that is all the outage`() {
        var session = Self.settling()
        session.skip(.milliseconds(40))
        #expect(session.settled() == [.leave(1), .open(2)])
        #expect(session.events == [.reconnectStarted(.quick)])
        #expect(session.state == .reconnecting)
        #expect(session.phase == .authenticating)
        #expect(session.reason == .pathMoved)
        #expect(session.status.path == .cellular)
        #expect(session.status.attempt == 1)
        session.skip(.milliseconds(40))
        session.establish()
        session.restore()
        #expect(session.events == [.reconnectCompleted(.quick, outage: .milliseconds(40))])
        #expect(session.state == .connected)
        #expect(session.reason == .pathMoved)
        #expect(session.machine.counters.outages == 1)
        #expect(session.machine.counters.attempts == 2)
        #expect(session.machine.counters.resumes == 2)
        #expect(session.machine.successor == nil)
    }

    @Test func `an old connection that finishes nothing does not keep the new one waiting`() {
        var session = Self.settling()
        session.answerHeartbeat()
        session.pass(.milliseconds(999))
        #expect(session.state == .connected)
        #expect(session.pass(.milliseconds(1)) == [.leave(1), .open(2)])
    }

    @Test func `an old connection that does not answer its probe is taken over from as well`() {
        var session = Self.settling()
        #expect(session.pass(.seconds(1)) == [.abandon(1), .open(2)])
        #expect(session.reason == .probeTimeout)
        #expect(session.phase == .authenticating)
    }

    @Test(arguments: [PathClass.gained, .returned])
    func `another path that came after a gap is followed as well`(pathClass: PathClass) {
        var session = Self.connected()
        session.path(.lost)
        session.take(.pathChanged(EndpointIndex(0), to: .cellular, pathClass))
        #expect(session.orders == [.heartbeat(1), .prepare(2)])
    }

    @Test func `the same path that came after a gap is only probed`() {
        var session = Self.connected()
        session.path(.lost)
        #expect(session.path(.returned) == [.heartbeat(1)])
    }

    @Test func `what only may matter sets up nothing`() {
        var session = Self.connected()
        #expect(session.path(.maybe) == [.heartbeat(1)])
        session = Self.moved()
        #expect(session.path(.maybe).isEmpty)
        #expect(session.beside != nil)
    }

    @Test func `the path of another endpoint is of no concern`() {
        var session = SessionUnderTest(.connected, paths: [.wifi, .wifi])
        #expect(session.path(.movedSourceKept, at: 1).isEmpty)
    }

    @Test func `the next connection goes to the endpoint that is in use`() {
        var session = SessionUnderTest(policy: .exact, paths: [.wifi, .wifi])
        session.connect()
        session.end(.unreachable)
        session.wake()
        session.succeed()
        #expect(session.path(.movedSourceKept, at: 1) == [.heartbeat(2), .prepare(3, at: 1)])
        session.prepared()
        #expect(session.settled() == [.leave(2), .open(3, at: 1)])
    }

    // MARK: It cannot be set up

    @Test func `a new path that leads nowhere leaves an old connection that answers as it was`() {
        var session = Self.moved(.dialing)
        session.answerHeartbeat()
        #expect(session.preparationFailed().isEmpty)
        #expect(session.state == .connected)
        #expect(session.beside == nil)
        #expect(session.machine.counters.outages == 0)
        #expect(session.due == .seconds(15))
    }

    @Test func `a transport that never ends is given up, and the old connection stays`() {
        var session = Self.moved(.dialing)
        session.answerHeartbeat()
        for _ in 0..<10 {
            session.pass(.seconds(2))
            if case .heartbeat = session.orders.first { session.answerHeartbeat() }
        }
        #expect(session.beside == nil)
        #expect(session.state == .connected)
    }

    @Test func `a new path that leads nowhere and an old connection that does not answer are a reconnect as ever`() {
        var session = Self.moved(.dialing)
        session.preparationFailed()
        #expect(session.pass(.seconds(1)) == [.abandon(1)])
        #expect(session.reason == .probeTimeout)
        #expect(session.wake() == [.open(3)])
    }

    @Test func `a transport that is ready and breaks is forgotten, and the old connection goes on`() {
        var session = Self.settling()
        session.preparationFailed()
        #expect(!session.machine.isSettling)
        #expect(session.state == .connected)
        #expect(session.settled().isEmpty)
    }

    // MARK: The old connection dies first

    @Test(arguments: [Phase.resolving, .dialing, .securing], [Reason.Code.reset, .unreachable])
    func `what is being set up becomes the attempt`(phase: Phase, code: Reason.Code) {
        var session = Self.moved(phase)
        #expect(session.end(code) == [.open(2)])
        #expect(session.state == .reconnecting)
        #expect(session.phase == phase)
        #expect(session.reason == code)
        session.progress(to: .authenticating)
        session.succeed()
        #expect(session.state == .connected)
        #expect(session.machine.counters.outages == 1)
    }

    @Test func `what is being set up becomes the attempt when the probe is not answered`() {
        var session = Self.moved(.securing)
        #expect(session.pass(.seconds(1)) == [.abandon(1), .open(2)])
        #expect(session.reason == .probeTimeout)
    }

    @Test func `what is ready takes over at once`() {
        var session = Self.settling()
        #expect(session.end(.reset) == [.open(2)])
        #expect(session.phase == .authenticating)
    }

    @Test func `what became the attempt and fails is followed by the table`() {
        var session = Self.moved(.dialing)
        session.end(.reset)
        #expect(session.end(.dialTimeout).isEmpty)
        #expect(session.retryIn == .milliseconds(50))
        #expect(session.wake() == [.open(3)])
    }

    @Test func `what became the attempt and hangs is given up`() {
        var session = Self.moved(.dialing)
        session.end(.reset)
        session.pass(.seconds(20))
        #expect(session.live?.generation != Generation(rawValue: 2))
        #expect(session.state == .reconnecting)
    }

    @Test(
        arguments: [
            Reason.Code.serverClosed, .serverShutdown, .serverBusy, .rateLimited, .serverError, .stateMismatch,
            .sessionLost,
        ])
    func `a server that ended the old connection decides what comes next`(code: Reason.Code) {
        var plain = Self.connected()
        var session = Self.moved(.dialing)
        plain.path(.maybe)
        plain.end(code)
        session.end(code)
        #expect(session.machine.successor == nil)
        #expect(session.retryIn == plain.retryIn)
        #expect(session.phase == plain.phase)
    }

    @Test(arguments: [Reason.Code.displaced, .banned, .quota])
    func `a terminal reason ends both`(code: Reason.Code) {
        for var session in [Self.moved(), Self.moved(.securing), Self.settling()] {
            #expect(session.end(code).isEmpty)
            #expect(session.state == .failed)
            #expect(session.beside == nil)
        }
    }

    @Test func `a session that has to look for another device first does so`() {
        var session = Self.moved(.dialing)
        session.machine.rivalry.canLook = true
        #expect(session.end(.reset) == [])
        #expect(session.machine.successor == nil)
        session.wake()
        #expect(session.live?.look == .forNewer)
    }

    @Test func `a hand-over that was prepared needs no look, for the session was there all the time`() {
        var session = Self.settling()
        session.machine.rivalry.canLook = true
        session.machine.rivalry.strategy = .yield
        #expect(session.settled() == [.leave(1), .open(2)])
    }

    // MARK: Something else comes in between

    @Test func `disconnect drops what is being set up`() {
        for var session in [Self.moved(), Self.moved(.securing), Self.settling()] {
            #expect(session.disconnect() == [.flush(1)])
            #expect(session.beside == nil)
            #expect(!session.machine.isSettling)
            #expect(session.prepared().isEmpty)
            #expect(session.flushed() == [.goodbye(1)])
        }
    }

    @Test func `disconnect just after the new connection took over ends that`() {
        var session = Self.settling()
        session.settled()
        #expect(session.disconnect() == [.abandon(2)])
        #expect(session.state == .disconnected)
    }

    @Test func `reconnect by hand begins anew`() {
        for var session in [Self.moved(), Self.settling()] {
            #expect(session.reconnect(.full) == [.abandon(1), .open(3, discarding: true)])
        }
    }

    @Test func `a host that sleeps drops what is being set up`() {
        var session = Self.moved()
        #expect(session.hostWillSleep() == [.flush(1)])
        #expect(session.beside == nil)
    }

    @Test func `a session that goes down because nobody uses it does so`() {
        var rest = RestPolicy()
        rest.idleTimeout = .seconds(17)
        var session = SessionUnderTest(.connected, rest: rest)
        session.skip(.seconds(16))
        session.path(.movedSourceKept)
        session.answerHeartbeat()
        #expect(session.pass(.seconds(1)) == [.flush(1)])
        #expect(session.beside == nil)
    }

    @Test func `a path that moves on is followed with another connection`() {
        for var session in [Self.moved(), Self.moved(.securing), Self.settling()] {
            session.skip(.seconds(1))
            session.answerHeartbeat()
            session.take(.pathChanged(EndpointIndex(0), to: .wired, .movedSourceKept))
            #expect(session.orders == [.heartbeat(1), .prepare(3)])
            #expect(session.beside?.generation == Generation(rawValue: 3))
            #expect(!session.machine.isSettling)
            // What the first one still does is of no concern.
            #expect(session.take(.prepared(Generation(rawValue: 2))).isEmpty)
        }
    }

    @Test func `a path that moves back needs no second connection`() {
        for var session in [Self.moved(), Self.settling()] {
            session.answerHeartbeat()
            #expect(session.path(.movedSourceKept) == [.heartbeat(1)])
            #expect(session.beside == nil)
            #expect(!session.machine.isSettling)
        }
    }

    @Test func `a path that is lost drops what is being set up`() {
        for var session in [Self.moved(), Self.settling()] {
            session.path(.lost)
            #expect(session.beside == nil)
            #expect(session.status.doubt == .pathLost)
        }
    }

    @Test func `a path that moves back because the new address left ends only what is being set up`() {
        for var session in [Self.moved(), Self.settling()] {
            session.answerHeartbeat()
            #expect(session.path(.movedSourceGone) == [.heartbeat(1)])
            #expect(session.state == .connected)
            #expect(session.beside == nil)
            #expect(!session.machine.isSettling)
        }
    }

    @Test func `a path that moves when the new connection has taken over makes the attempt anew`() {
        var session = Self.settling()
        session.settled()
        session.skip(.seconds(1))
        #expect(session.path(.movedSourceKept) == [.abandon(2), .open(3)])
    }

    // MARK: Refused after CONNECT

    @Test func `a server that lost the session is told everything again`() {
        var session = Self.settling()
        session.settled()
        session.establish(resumed: false)
        #expect(session.events == [.reconnectStarted(.full)])
        session.restore()
        #expect(session.state == .connected)
        #expect(session.status.resumed == false)
    }

    @Test func `a new connection that is refused is followed by the table, and the session is never stuck`() {
        var session = Self.settling()
        session.settled()
        session.end(.serverError)
        #expect(session.phase == .waiting)
        #expect(session.wake() == [.open(3)])
    }

    @Test func `an answer to CONNECT that does not come is waited for as ever`() {
        var session = Self.settling()
        session.settled()
        #expect(session.pass(.seconds(10)) == [.abandon(2)])
        #expect(session.reason == .authenticateTimeout)
    }

    // MARK: Uplinks that take turns

    @Test func `between two uplinks that take turns the session changes over more and more rarely`() {
        var session = Self.connected()
        var handovers: [Duration] = []
        var attempts: [Duration] = []
        let start = session.elapsed
        while session.elapsed - start < .seconds(600) {
            let orders = session.path(.movedSourceKept)
            if session.status.doubt == .probing { session.answerHeartbeat() }
            if orders.contains(where: \.isPrepare) { attempts.append(session.elapsed) }
            for _ in 0..<10 {
                session.pass(.milliseconds(100))
                if session.orders.contains(where: \.isPrepare) { attempts.append(session.elapsed) }
                if session.status.doubt == .probing { session.answerHeartbeat() }
                if session.orders.contains(where: \.isHeartbeat) { session.answerHeartbeat() }
                guard session.beside != nil else { continue }
                session.prepared()
                session.settled()
                session.succeed()
                handovers.append(session.elapsed)
            }
        }
        #expect(session.state == .connected)
        #expect(attempts.count == handovers.count)
        for (earlier, later) in zip(handovers, handovers.dropFirst()) { #expect(later - earlier >= .seconds(4)) }
        // 5, 10, 20, 40, 80, 160 and 300 s apart.
        #expect((5...8).contains(handovers.count), "\(handovers)")
    }

    @Test func `a path that stayed where it was is followed at once again`() {
        var session = Self.connected()
        for _ in 0..<10 {
            session.path(.movedSourceKept)
            #expect(session.beside != nil)
            session.prepared()
            session.settled()
            session.succeed()
            for _ in 0..<10 {
                session.pass(.seconds(4))
                if session.orders.contains(where: \.isHeartbeat) { session.answerHeartbeat() }
            }
        }
    }

    @Test func `a hand-over that has to wait is made when it is time, if the path is still another`() {
        var session = Self.settling()
        session.settled()
        session.succeed()
        session.pass(.seconds(2))
        #expect(session.path(.movedSourceKept) == [.heartbeat(2)])
        session.answerHeartbeat()
        #expect(session.pass(.seconds(4)) == [.prepare(3)])
    }
}

extension SessionUnderTest.Order {
    fileprivate var isPrepare: Bool { if case .prepare = self { true } else { false } }
    fileprivate var isHeartbeat: Bool { if case .heartbeat = self { true } else { false } }
}
