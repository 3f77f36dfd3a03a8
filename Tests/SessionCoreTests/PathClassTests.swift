import Testing

@testable import SessionCore

/// What each class of path change does in each situation: the class table of Documentation/Network.md.
@Suite struct PathClassTests {
    @Test(arguments: SessionUnderTest.Situation.allCases)
    func `an unchanged path does nothing`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        let (status, due) = (session.status, session.due)
        session.path(.none)
        #expect(session.actions.isEmpty)
        #expect(session.status == status)
        #expect(session.due == due)
    }

    @Test(arguments: SessionUnderTest.Situation.allCases, PathClass.allCases.filter { $0 != .none })
    func `every change of the path is reported once`(situation: SessionUnderTest.Situation, pathClass: PathClass) {
        var session = SessionUnderTest(situation)
        let from = session.machine.endpoints.paths[0]
        session.path(pathClass)
        let to = session.machine.endpoints.paths[0]
        let reports = session.actions.filter { if case .report(.pathChanged) = $0 { true } else { false } }
        #expect(reports == [.report(.pathChanged(pathClass, EndpointIndex(0), from: from, to: to))])
    }

    @Test(arguments: [SessionUnderTest.Situation.disconnected, .failed, .flushing, .sayingGoodbye], PathClass.allCases)
    func `a session that makes no attempts ignores the network`(
        situation: SessionUnderTest.Situation, pathClass: PathClass
    ) {
        var session = SessionUnderTest(situation)
        let state = session.state
        #expect(session.path(pathClass).isEmpty)
        #expect(session.state == state)
    }

    // MARK: Connected

    @Test func `a connection whose source address left is dead, and is replaced at once`() {
        var session = SessionUnderTest(.connected)
        #expect(session.path(.movedSourceGone) == [.abandon(1), .open(2)])
        #expect(session.state == .reconnecting)
        #expect(session.reason == .pathMoved)
        #expect(
            session.status.reason.message
                == "the interface \(Path.wifi.interface) is down, or has lost the address \(Path.wifi.source) of the connection"
        )
        #expect(session.status.path == .cellular)
    }

    @Test(arguments: [PathClass.maybe, .returned, .gained])
    func `a connection that may live is probed`(pathClass: PathClass) {
        var session = SessionUnderTest(.connected)
        session.pass(.seconds(1))
        #expect(session.path(pathClass) == [.heartbeat(1)])
        #expect(session.state == .connected)
        #expect(session.status.doubt != nil)
        session.answerHeartbeat()
        #expect(session.status.doubt == nil)
        #expect(session.due == .seconds(15))
    }

    @Test func `a probe without an answer leads to a reconnect by the table`() {
        var session = SessionUnderTest(.probing)
        #expect(session.pass(.seconds(3)) == [.abandon(1)])
        #expect(session.reason == .probeTimeout)
        #expect(session.retryIn == .milliseconds(50))
    }

    @Test func `a lost path is held for five seconds, then the session waits for the network`() {
        var session = SessionUnderTest(.connected)
        #expect(session.path(.lost).isEmpty)
        #expect(session.state == .connected)
        #expect(session.status.doubt != nil)
        #expect(session.due == .seconds(5))
        #expect(session.pass(.seconds(5)) == [.abandon(1)])
        #expect(session.state == .reconnecting)
        #expect(session.phase == .waitingForNetwork)
        #expect(session.reason == .pathLost)
        #expect(session.due == .seconds(300))
    }

    @Test func `a path that returns within the hold costs a probe and nothing else`() {
        var session = SessionUnderTest(.connected)
        session.path(.lost)
        session.pass(.milliseconds(4900))
        #expect(session.path(.returned) == [.heartbeat(1)])
        session.pass(.milliseconds(100))
        session.answerHeartbeat()
        #expect(session.pass(.seconds(10)).isEmpty)
        #expect(session.state == .connected)
        #expect(session.machine.counters.outages == 0)
    }

    @Test func `a path that is reported lost again does not prolong the hold`() {
        var session = SessionUnderTest(.connected)
        session.path(.lost)
        session.pass(.seconds(4))
        session.path(.lost)
        #expect(session.due == .seconds(1))
    }

    @Test func `a change that brings no path does not end the hold`() {
        var session = SessionUnderTest(.connected)
        session.path(.lost)
        session.path(.maybe)
        session.heard()
        #expect(session.status.doubt != nil)
        #expect(session.pass(.seconds(5)) == [.abandon(1)])
    }

    @Test func `a held connection whose source address left is dead at once`() {
        var session = SessionUnderTest(.held)
        #expect(session.path(.movedSourceGone) == [.abandon(1), .open(2)])
    }

    /// No answer can come.
    @Test(arguments: [SessionUnderTest.Situation.connected, .probing])
    func `a held connection is not judged by what is unanswered, and has the full time for it when the path is back`(
        situation: SessionUnderTest.Situation
    ) {
        var session = SessionUnderTest(situation)
        if situation == .connected { session.pass(.seconds(15)) }
        session.path(.lost)
        #expect(session.due == .seconds(5))
        #expect(session.pass(.milliseconds(4900)).isEmpty)
        session.path(.returned)
        #expect(session.state == .connected)
        #expect(session.pass(.milliseconds(900)).isEmpty)
        session.answerHeartbeat()
        #expect(session.pass(.seconds(5)).isEmpty)
        #expect(session.machine.counters.outages == 0)
    }

    @Test func `a server that closes while the path is lost is not dialled`() {
        var session = SessionUnderTest(.held)
        #expect(session.end(.reset).isEmpty)
        #expect(session.phase == .waitingForNetwork)
        #expect(session.path(.returned) == [.open(2)])
    }

    // MARK: Waiting

    @Test(arguments: [PathClass.gained, .returned, .movedSourceGone, .movedSourceKept, .maybe])
    func `a change of the path while waiting makes an attempt at once`(pathClass: PathClass) {
        var session = SessionUnderTest(.waiting)
        #expect(session.path(pathClass) == [.open(2)])
    }

    @Test func `a change that may help makes one early attempt and leaves the table where it is`() {
        var session = SessionUnderTest(.waiting)
        #expect(session.path(.maybe) == [.open(2)])
        session.end(.dnsFailed)
        #expect(session.retryIn == .milliseconds(250))
    }

    @Test func `a change that may help soon after another makes its attempt a second later`() {
        var session = SessionUnderTest(.waiting)
        for _ in 0..<6 {
            session.wake()
            session.end(.dnsFailed)
        }
        #expect(session.retryIn == .seconds(8))
        session.path(.maybe)
        session.end(.dnsFailed)
        #expect(session.retryIn == .seconds(16))
        #expect(session.path(.maybe).isEmpty)
        #expect(session.retryIn == .seconds(1))
        #expect(session.wake().count == 1)
    }

    @Test func `attempts pause while there is no path`() {
        var session = SessionUnderTest(.waiting)
        #expect(session.path(.lost).isEmpty)
        #expect(session.phase == .waitingForNetwork)
        #expect(session.reason == .pathLost)
        #expect(session.retryIn == nil)
        #expect(session.due == .seconds(300))
    }

    @Test func `connect without a path waits for the network and counts no attempt`() {
        var session = SessionUnderTest(policy: .exact, paths: [nil])
        #expect(session.connect().isEmpty)
        #expect(session.state == .connecting)
        #expect(session.phase == .waitingForNetwork)
        #expect(session.reason == .noPath)
        #expect(session.status.attempt == 1)
        #expect(session.path(.gained) == [.open(1)])
        #expect(session.status.attempt == 1)
        #expect(session.reason == .pathGained)
    }

    @Test func `an offline session makes a safety attempt every five minutes, outside the table`() {
        var session = SessionUnderTest(.waitingForNetwork)
        for generation: UInt64 in 2...12 {
            #expect(session.pass(.milliseconds(299_999)).isEmpty)
            #expect(session.pass(.milliseconds(1)) == [.open(generation)])
            session.end(.unreachable)
            #expect(session.phase == .waitingForNetwork)
        }
        session.path(.gained)
        session.end(.unreachable)
        #expect(session.retryIn == .milliseconds(50))
    }

    @Test func `a connection lost without a path leaves the table where it is`() {
        var session = SessionUnderTest(.waiting)
        session.path(.movedSourceKept)
        session.succeed()
        session.path(.lost)
        session.end(.reset)
        #expect(session.phase == .waitingForNetwork)
        // The second early attempt within this second follows the table, which is still at its start.
        session.path(.returned)
        #expect(session.retryIn == .milliseconds(50))
    }

    @Test func `a safety attempt that succeeds connects although the kernel knows no path`() {
        var session = SessionUnderTest(.waitingForNetwork)
        session.pass(.seconds(300))
        session.succeed()
        #expect(session.state == .connected)
    }

    @Test(arguments: [PathClass.lost, .maybe])
    func `the safety attempt is not postponed by events while offline`(pathClass: PathClass) {
        var session = SessionUnderTest(.waitingForNetwork)
        for _ in 0..<5 {
            session.pass(.seconds(50))
            #expect(session.path(pathClass).isEmpty)
            session.connect()
        }
        #expect(session.pass(.seconds(50)).count == 1)
    }

    @Test func `a reconnect by hand is tried at once while offline, and postpones the safety attempt`() {
        var session = SessionUnderTest(.waitingForNetwork)
        session.pass(.seconds(50))
        #expect(session.reconnect() == [.open(2)])
        session.end(.unreachable)
        #expect(session.phase == .waitingForNetwork)
        #expect(session.pass(.milliseconds(299_999)).isEmpty)
        #expect(session.pass(.milliseconds(1)) == [.open(3)])
    }

    @Test(arguments: [Reason.Code.unreachable, .dialTimeout, .dnsFailed])
    func `an attempt without a path that nobody answers is the network's failure`(code: Reason.Code) {
        var session = SessionUnderTest(.waitingForNetwork)
        session.reconnect()
        session.end(code)
        #expect(session.phase == .waitingForNetwork && session.reason == .noPath)
        #expect(session.status.reason.message == "\(Reason(.noPath).message): \(Reason(code).message)")
    }

    @Test(arguments: [Reason.Code.refused, .certificateInvalid, .serverBusy])
    func `an attempt without a path that is answered keeps its reason`(code: Reason.Code) {
        var session = SessionUnderTest(.waitingForNetwork)
        session.reconnect()
        session.end(code)
        #expect(session.reason == code)
        #expect(session.status.reason.message == Reason(code).message)
    }

    // MARK: Without a path, but perhaps not for long

    @Test func `a session whose path the kernel may find by trying goes on with the table after the hold`() {
        var session = SessionUnderTest(.connected)
        session.take(.detour(EndpointIndex(0), true))
        session.path(.lost)
        #expect(session.due == .seconds(5))
        #expect(session.pass(.seconds(5)) == [.abandon(1)])
        #expect(session.phase == .waiting)
        #expect(session.reason == .pathLost)
        #expect(session.status.path == nil)
        #expect(session.retryIn == .milliseconds(50))
        #expect(session.wake() == [.open(2)])
        session.end(.unreachable)
        #expect(session.retryIn == .milliseconds(250))
        // The server is not to blame.
        #expect(session.reason == .pathLost)
        #expect(session.status.reason.message.hasSuffix(": \(Reason(.unreachable).message)"))
        // The kernel has found it.
        #expect(session.path(.gained) == [.open(3)])
    }

    @Test func `a session without a path makes attempts only while the kernel may find one`() {
        var session = SessionUnderTest(.waitingForNetwork)
        #expect(session.take(.detour(EndpointIndex(0), true)) == [.open(2)])
        session.end(.unreachable)
        #expect(session.phase == .waiting)
        #expect(session.take(.detour(EndpointIndex(0), false)).isEmpty)
        #expect(session.phase == .waitingForNetwork)
        #expect(session.due == .seconds(300))
    }

    @Test func `an endpoint with a path comes before one whose path the kernel may find`() {
        var session = SessionUnderTest(policy: .exact, paths: [nil, .wifi])
        session.take(.detour(EndpointIndex(0), true))
        #expect(session.connect() == [.open(1, at: 1)])
        session.end(.unreachable)
        session.path(.lost, at: 1)
        #expect(session.wake() == [.open(2, at: 0)])
    }

    @Test func `a path that was found is relied upon, and its loss as well`() {
        var session = SessionUnderTest(.waitingForNetwork)
        session.take(.detour(EndpointIndex(0), true))
        session.path(.gained)
        session.succeed()
        session.path(.lost)
        session.pass(.seconds(5))
        #expect(session.phase == .waitingForNetwork)
    }

    // MARK: A hold in which something arrives

    @Test func `a connection on which something arrives during the hold is probed at its end, and kept`() {
        var session = SessionUnderTest(.connected)
        session.path(.lost)
        session.pass(.seconds(2))
        session.heard()
        #expect(session.pass(.seconds(3)) == [.heartbeat(1)])
        #expect(session.state == .connected)
        #expect(session.status.doubt == .probing)
        session.answerHeartbeat()
        #expect(session.status.doubt == nil)
        #expect(session.due == .seconds(15))
        #expect(session.pass(.seconds(15)) == [.heartbeat(1)])
    }

    @Test func `a connection on which nothing arrives after the hold is given up by the probe`() {
        var session = SessionUnderTest(.connected)
        session.path(.lost)
        session.pass(.seconds(2))
        session.heard()
        session.pass(.seconds(3))
        #expect(session.pass(.seconds(3)) == [.abandon(1)])
        #expect(session.phase == .waitingForNetwork)
        #expect(session.reason == .pathLost, "without a path, the server is not to blame for what is unanswered")
    }

    @Test func `what had arrived before the path was lost proves nothing, whenever it is read`() {
        var session = SessionUnderTest(.connected)
        let before = session.now
        session.pass(.seconds(1))
        session.path(.lost)
        session.pass(.seconds(2))
        session.heard(arrivedAt: before)
        #expect(session.pass(.seconds(3)) == [.abandon(1)])
    }

    @Test(arguments: [PathClass.gained, .returned, .movedSourceGone, .movedSourceKept])
    func `a path ends the wait for the network at once`(pathClass: PathClass) {
        var session = SessionUnderTest(.waitingForNetwork)
        session.pass(.seconds(100))
        #expect(session.path(pathClass).count == 1)
        #expect(session.phase == .resolving)
    }

    // MARK: Attempting

    @Test(arguments: SessionUnderTest.Situation.attempting)
    func `an attempt whose path is lost is abandoned`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        #expect(session.path(.lost) == [.abandon(1)])
        #expect(session.phase == .waitingForNetwork)
        #expect(session.reason == .pathLost)
    }

    @Test(
        arguments: SessionUnderTest.Situation.attempting,
        [PathClass.movedSourceGone, .movedSourceKept, .returned, .gained])
    func `an attempt whose path changed is made again at once`(
        situation: SessionUnderTest.Situation, pathClass: PathClass
    ) {
        var session = SessionUnderTest(situation)
        #expect(session.path(pathClass) == [.abandon(1), .open(2)])
        #expect(session.phase == .resolving)
    }

    @Test(arguments: SessionUnderTest.Situation.attempting)
    func `a change that may help does not disturb an attempt`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        let (phase, due) = (session.phase, session.due)
        #expect(session.path(.maybe).isEmpty)
        #expect(session.phase == phase)
        #expect(session.due == due)
    }

    // MARK: Too many

    @Test func `a connection whose path keeps moving reconnects at most once a second`() {
        var session = SessionUnderTest(.connected)
        session.path(.movedSourceGone)
        session.succeed()
        session.pass(.milliseconds(100))
        #expect(session.path(.movedSourceGone) == [.abandon(2)])
        #expect(session.phase == .waiting)
        #expect(session.reason == .pathMoved)
        #expect(session.retryIn == .milliseconds(50))
        session.wake()
        for _ in 0..<4 {
            session.succeed()
            session.path(.movedSourceGone)
            session.wake()
        }
        session.succeed()
        let before = session.elapsed
        session.path(.movedSourceGone)
        session.wake()
        #expect(session.elapsed - before > .milliseconds(500))
    }

    @Test func `an attempt brought forward delays the next early one`() {
        var session = SessionUnderTest(.waiting)
        for _ in 0..<7 {
            session.wake()
            session.end(.unreachable)
        }
        session.path(.maybe)
        session.end(.unreachable)
        session.path(.maybe)
        #expect(session.retryIn == .seconds(1))
        session.wake()
        session.end(.unreachable)
        session.pass(.milliseconds(500))
        #expect(session.path(.movedSourceKept).isEmpty)
        #expect(session.retryIn == .milliseconds(500))
    }

    /// How a link flaps, and how often: gone and back, or from one network to another.
    @Test(
        arguments: [[PathClass.lost, .gained], [.movedSourceGone], [.movedSourceKept], [.maybe]], [37, 150, 700, 1100])
    func `a flapping link neither makes a storm nor postpones attempts forever`(flap: [PathClass], period: Int) {
        var session = SessionUnderTest(.resolving)
        var opened: [Duration] = []
        var openedByEvents: [Duration] = []
        var step = 0
        while session.elapsed < .seconds(600) {
            if session.pass(.milliseconds(period)).contains(where: \.isOpen) { opened.append(session.elapsed) }
            if session.live != nil, step.isMultiple(of: 3) { session.end(.unreachable) }
            if session.path(flap[step % flap.count]).contains(where: \.isOpen) {
                openedByEvents.append(session.elapsed)
            }
            step += 1
        }
        for (earlier, later) in zip(openedByEvents, openedByEvents.dropFirst()) {
            #expect(later - earlier >= .seconds(1))
        }
        for (first, seventh) in zip(openedByEvents, openedByEvents.dropFirst(6)) {
            #expect(seventh - first >= .seconds(60))
        }
        let all = (opened + openedByEvents).sorted()
        for (earlier, later) in zip(all, all.dropFirst() + [session.elapsed]) {
            #expect(later - earlier <= .seconds(66))
        }
        #expect(all.count >= 8)
        // Each early attempt restarts the table, which has eight attempts in its first ten seconds.
        #expect(all.count <= 60 * 8)
    }
}
