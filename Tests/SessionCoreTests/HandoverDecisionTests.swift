import Testing

@testable import SessionCore

/// Make before break: a connection on the new path is set up beside the old one, and takes over.
@Suite struct HandoverDecisionTests {
    /// Connected with generation 1 and a round-trip time of 40 ms. The path has moved: generation 2 is being set up.
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

    @Test func `a hand-over to a new path restarts the table`() {
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

    @Test func `the old connection is probed while the next one is set up beside it`() {
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

    @Test func `the new connection takes over when nothing is in flight, and the outage starts only then`() {
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

    @Test(arguments: [false, true])
    func `an old connection that never settles delays the new one by a quarter of a second`(answers: Bool) {
        var session = Self.settling()
        if answers { session.answerHeartbeat() }
        session.pass(.milliseconds(249))
        #expect(session.state == .connected)
        #expect(session.pass(.milliseconds(1)) == [.leave(1), .open(2)])
        #expect(session.reason == .pathMoved)
        #expect(session.phase == .authenticating)
    }

    @Test func `a long way to the server gives an old connection four round trips`() {
        var session = SessionUnderTest(.connected, policy: .exact)
        session.pass(.seconds(15))
        session.skip(.milliseconds(100))
        session.answerHeartbeat()
        session.skip(.seconds(1))
        session.path(.movedSourceKept)
        session.prepared()
        session.pass(.milliseconds(399))
        #expect(session.state == .connected)
        #expect(session.pass(.milliseconds(1)) == [.leave(1), .open(2)])
    }

    @Test(arguments: [PathClass.gained, .returned])
    func `another path after a gap is followed as well`(pathClass: PathClass) {
        var session = Self.connected()
        session.path(.lost)
        session.take(.pathChanged(EndpointIndex(0), to: .cellular, pathClass))
        #expect(session.orders == [.heartbeat(1), .prepare(2)])
    }

    @Test func `a connection whose path returns after a gap is only probed`() {
        var session = Self.connected()
        session.path(.lost)
        #expect(session.path(.returned) == [.heartbeat(1)])
    }

    @Test func `a path change that only may matter sets up no new connection`() {
        var session = Self.connected()
        #expect(session.path(.maybe) == [.heartbeat(1)])
        session = Self.moved()
        #expect(session.path(.maybe).isEmpty)
        #expect(session.beside != nil)
    }

    @Test func `the path of another endpoint does not matter`() {
        var session = SessionUnderTest(.connected, paths: [.wifi, .wifi])
        #expect(session.path(.movedSourceKept, at: 1).isEmpty)
    }

    @Test func `the next connection goes to the endpoint in use`() {
        var session = SessionUnderTest(policy: .exact, paths: [.wifi, .wifi])
        session.connect()
        session.end(.unreachable)
        session.wake()
        session.succeed()
        #expect(session.path(.movedSourceKept, at: 1) == [.heartbeat(2), .prepare(3, at: 1)])
        session.prepared()
        #expect(session.settled() == [.leave(2), .open(3, at: 1)])
    }

    // MARK: In doubt already

    /// The round trip takes 40 ms. In each, an answer is overdue by now.
    private static func doubted(_ silence: Duration = .milliseconds(200)) -> [SessionUnderTest] {
        var unacknowledged = connected()
        unacknowledged.sent()
        unacknowledged.skip(silence)
        var unanswered = connected()
        unanswered.pass(.milliseconds(13_960))
        unanswered.skip(silence)
        return [unacknowledged, unanswered]
    }

    @Test func `a connection that was in doubt before the path moved is not waited for`() {
        for var session in Self.doubted() {
            #expect(session.path(.movedSourceKept) == [.heartbeat(1), .prepare(2)])
            session.skip(.milliseconds(120))
            #expect(session.prepared() == [.leave(1), .open(2)])
            #expect(session.reason == .pathMoved)
            #expect(session.phase == .authenticating)
        }
    }

    @Test func `a connection that was in doubt and is heard again finishes what it has begun`() {
        for var session in Self.doubted() {
            session.path(.movedSourceKept)
            session.skip(.milliseconds(40))
            session.heard()
            #expect(session.prepared() == [.settle(1)])
        }
    }

    @Test func `an answer that takes no longer than two round trips is no doubt`() {
        for var session in Self.doubted(.milliseconds(80)) {
            session.path(.movedSourceKept)
            #expect(session.prepared() == [.settle(1)])
        }
    }

    @Test func `what the kernel knows to be acknowledged is no doubt`() {
        var session = Self.doubted()[0]
        session.take(
            .measured(
                session.generation,
                TCPMeasurement(roundTrip: .milliseconds(40), variation: .zero, retransmissions: 0)))
        session.path(.movedSourceKept)
        #expect(session.prepared() == [.settle(1)])
    }

    @Test func `a connection in doubt does not wait for the pause between hand-overs`() {
        var session = Self.settling()
        session.settled()
        session.succeed()
        session.pass(.seconds(2))
        session.sent()
        // How long its round trip takes is not known yet.
        session.skip(.milliseconds(1001))
        #expect(session.path(.movedSourceKept) == [.heartbeat(2), .prepare(3)])
    }

    @Test func `a connection in doubt is waited for if another device may have taken the session`() {
        for var session in Self.doubted() {
            session.machine.rivalry.canLook = true
            session.machine.rivalry.strategy = .yield
            session.path(.movedSourceKept)
            #expect(session.prepared() == [.settle(1)])
        }
    }

    // MARK: It cannot be set up

    @Test func `a new path that leads nowhere does not affect an old connection that answers`() {
        var session = Self.moved(.dialing)
        session.answerHeartbeat()
        #expect(session.preparationFailed().isEmpty)
        #expect(session.state == .connected)
        #expect(session.beside == nil)
        #expect(session.machine.counters.outages == 0)
        #expect(session.due == .seconds(5))
    }

    @Test func `a new transport that never finishes is given up, and the old connection stays`() {
        var session = Self.moved(.dialing)
        session.answerHeartbeat()
        let dialed = session.elapsed
        while session.beside != nil {
            session.wake()
            if session.orders.contains(where: \.isHeartbeat) { session.answerHeartbeat() }
        }
        #expect(session.elapsed - dialed <= .seconds(20))
        #expect(session.state == .connected)
        #expect(session.due.map { $0 <= .seconds(5) } == true, "another one is tried")
    }

    @Test func `a new path that leads nowhere is tried again, less and less often, and used when it works`() {
        var session = Self.moved()
        session.answerHeartbeat()
        for pause in [5, 10, 20, 40, 80, 160, 300, 300] {
            session.preparationFailed()
            let generation = session.lastOpened.rawValue
            let start = session.elapsed
            while session.beside == nil {
                session.wake()
                if session.orders.contains(where: \.isHeartbeat) { session.answerHeartbeat() }
            }
            #expect(session.elapsed - start == .seconds(pause))
            #expect(session.beside?.generation.rawValue == generation + 1)
        }
        let last = session.lastOpened.rawValue
        session.prepared()
        #expect(session.settled() == [.leave(1), .open(last)])
    }

    @Test func `a new path is tried at once, whatever the one before it led to`() {
        var session = Self.moved()
        session.answerHeartbeat()
        session.preparationFailed()
        session.skip(.seconds(1))
        session.take(.pathChanged(EndpointIndex(0), to: .wired, .movedSourceKept))
        #expect(session.orders == [.heartbeat(1), .prepare(3)])
        session.answerHeartbeat()
        session.preparationFailed()
        #expect(session.due == .seconds(5))
    }

    @Test(arguments: [PathClass.movedSourceKept, .lost])
    func `a path that led nowhere is not tried again when it is gone`(pathClass: PathClass) {
        var session = Self.moved()
        session.answerHeartbeat()
        session.preparationFailed()
        session.path(pathClass)
        session.answerHeartbeat()
        #expect(session.pass(.seconds(5)).filter(\.isPrepare).isEmpty)
    }

    @Test func `a new path that leads nowhere and a dead old connection cause an ordinary reconnect`() {
        var session = Self.moved(.dialing)
        session.preparationFailed()
        #expect(session.pass(.seconds(1)) == [.abandon(1)])
        #expect(session.reason == .probeTimeout)
        #expect(session.wake() == [.open(3)])
    }

    @Test func `a ready transport that breaks is dropped, and the old connection goes on`() {
        var session = Self.settling()
        session.preparationFailed()
        #expect(!session.machine.isSettling)
        #expect(session.state == .connected)
        #expect(session.settled().isEmpty)
    }

    // MARK: The old connection dies first

    @Test(arguments: [Phase.resolving, .dialing, .securing], [Reason.Code.reset, .unreachable])
    func `a connection being set up becomes the attempt`(phase: Phase, code: Reason.Code) {
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

    @Test func `a connection being set up becomes the attempt when the probe is not answered`() {
        var session = Self.moved(.securing)
        #expect(session.pass(.seconds(1)) == [.abandon(1), .open(2)])
        #expect(session.reason == .probeTimeout)
    }

    @Test func `a ready connection takes over at once`() {
        var session = Self.settling()
        #expect(session.end(.reset) == [.open(2)])
        #expect(session.phase == .authenticating)
    }

    @Test func `a connection that became the attempt and fails is retried by the table`() {
        var session = Self.moved(.dialing)
        session.end(.reset)
        #expect(session.end(.dialTimeout).isEmpty)
        #expect(session.retryIn == .milliseconds(50))
        #expect(session.wake() == [.open(3)])
    }

    @Test func `a connection that became the attempt and hangs is given up`() {
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

    @Test(arguments: [Reason.Code.displaced, .banned, .incompatible])
    func `a terminal reason ends both connections`(code: Reason.Code) {
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

    @Test func `a prepared hand-over does not look for another device`() {
        var session = Self.settling()
        session.machine.rivalry.canLook = true
        session.machine.rivalry.strategy = .yield
        #expect(session.settled() == [.leave(1), .open(2)])
    }

    // MARK: Something else comes in between

    @Test func `disconnect drops the connection being set up`() {
        for var session in [Self.moved(), Self.moved(.securing), Self.settling()] {
            #expect(session.disconnect() == [.flush(1)])
            #expect(session.beside == nil)
            #expect(!session.machine.isSettling)
            #expect(session.prepared().isEmpty)
            #expect(session.flushed() == [.goodbye(1)])
        }
    }

    @Test func `disconnect just after the new connection took over ends it`() {
        var session = Self.settling()
        session.settled()
        #expect(session.disconnect() == [.abandon(2)])
        #expect(session.state == .disconnected)
    }

    @Test func `reconnect by hand drops both connections and starts again`() {
        for var session in [Self.moved(), Self.settling()] {
            #expect(session.reconnect(.full) == [.abandon(1), .open(3, discarding: true)])
        }
    }

    @Test func `a host that goes to sleep drops the connection being set up`() {
        var session = Self.moved()
        #expect(session.hostWillSleep() == [.flush(1)])
        #expect(session.beside == nil)
    }

    @Test func `a session that becomes idle goes down during a hand-over`() {
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
            // Late events of the dropped connection are ignored.
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

    @Test func `a lost path drops the connection being set up`() {
        for var session in [Self.moved(), Self.settling()] {
            session.path(.lost)
            #expect(session.beside == nil)
            #expect(session.status.doubt == .pathLost)
        }
    }

    @Test func `a path that moves back because the new address left drops only the connection being set up`() {
        for var session in [Self.moved(), Self.settling()] {
            session.answerHeartbeat()
            #expect(session.path(.movedSourceGone) == [.heartbeat(1)])
            #expect(session.state == .connected)
            #expect(session.beside == nil)
            #expect(!session.machine.isSettling)
        }
    }

    @Test func `a path that moves after the new connection took over restarts the attempt`() {
        var session = Self.settling()
        session.settled()
        session.skip(.seconds(1))
        #expect(session.path(.movedSourceKept) == [.abandon(2), .open(3)])
    }

    // MARK: Refused after CONNECT

    @Test func `a server that lost the session makes the hand-over a full reconnect`() {
        var session = Self.settling()
        session.settled()
        session.establish(resumed: false)
        #expect(session.events == [.reconnectStarted(.full)])
        session.restore()
        #expect(session.state == .connected)
        #expect(session.status.resumed == false)
    }

    @Test func `a new connection that is refused is retried by the table`() {
        var session = Self.settling()
        session.settled()
        session.end(.serverError)
        #expect(session.phase == .waiting)
        #expect(session.wake() == [.open(3)])
    }

    @Test func `a missing answer to CONNECT times out as usual`() {
        var session = Self.settling()
        session.settled()
        #expect(session.pass(.seconds(10)) == [.abandon(2)])
        #expect(session.reason == .authenticateTimeout)
    }

    // MARK: Uplinks that take turns

    @Test func `a session between two alternating uplinks is handed over less and less often`() {
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

    @Test func `a move after a stable time is followed at once`() {
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

    @Test func `a hand-over that has to wait is made when it is due, if the path still differs`() {
        var session = Self.settling()
        session.settled()
        session.succeed()
        session.pass(.seconds(2))
        #expect(session.path(.movedSourceKept) == [.heartbeat(2)])
        session.answerHeartbeat()
        #expect(session.pass(.seconds(4)) == [.prepare(3)])
    }

    /// An attempt of last resort, without a route, may get through.
    @Test func `a connection that was made without a path belongs to the first path that there is`() {
        var session = SessionUnderTest(.waitingForNetwork)
        while session.live == nil { session.pass(.seconds(1)) }
        session.succeed()
        #expect(session.status.path == nil)
        #expect(session.path(.gained).map(\.isHeartbeat) == [true])
        session.answerHeartbeat()
        #expect(session.path(.movedSourceKept).map(\.isPrepare) == [false, true], "to another network")
    }

    @Test func `the kernel is asked when the path moves after more than two round trips of silence`() {
        var session = Self.connected()
        #expect(!session.machine.needsMeasurementToMove(at: session.now))
        session.sent()
        session.skip(.milliseconds(100))
        #expect(!session.machine.needsMeasurementToMove(at: session.now), "no less than an acknowledgement may take")
        session.skip(.nanoseconds(1))
        #expect(session.machine.needsMeasurementToMove(at: session.now))
        session.end(.reset)
        #expect(!session.machine.needsMeasurementToMove(at: session.now), "there is no connection")
    }
}

extension SessionUnderTest.Order {
    fileprivate var isPrepare: Bool { if case .prepare = self { true } else { false } }
    fileprivate var isHeartbeat: Bool { if case .heartbeat = self { true } else { false } }
}
