import Testing

@testable import SessionCore

/// The path moved while the old source address stayed. When that address leaves the host later, only the connection
/// that uses it is lost.
@Suite struct DepartureTests {
    /// Connected over wifi with generation 1; the path has moved to cellular, where generation 2 is in this phase.
    private static func moved(_ phase: Phase? = nil, isBound: Bool = false) -> SessionUnderTest {
        var session = SessionUnderTest(policy: .exact, isBound: isBound, paths: [.wifi])
        session.connect()
        session.succeed()
        session.pass(.seconds(15))
        session.answerHeartbeat()
        session.skip(.seconds(1))
        if !isBound { session.path(.movedSourceKept) }
        if let phase { session.progressBeside(to: phase) }
        return session
    }

    /// Connected over cellular with generation 2; the hand-over back to wifi has to wait.
    private static func paced() -> SessionUnderTest {
        var session = moved()
        session.prepared()
        session.settled()
        session.succeed()
        session.skip(.seconds(2))
        session.path(.movedSourceKept)
        session.answerHeartbeat()
        return session
    }

    /// Expects no visible effect.
    private func expectNothing(
        _ session: inout SessionUnderTest, whenLeft path: Path, at endpoint: Int = 0,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        let (status, due, beside) = (session.status, session.due, session.beside)
        session.sourceLeft(of: path, at: endpoint)
        #expect(session.actions.isEmpty, sourceLocation: sourceLocation)
        #expect(session.status == status, sourceLocation: sourceLocation)
        #expect(session.due == due, sourceLocation: sourceLocation)
        #expect(session.beside == beside, sourceLocation: sourceLocation)
    }

    // MARK: The connection is made there

    @Test func `a connection that waits for its hand-over is closed, and the attempt is made at once`() {
        var session = Self.paced()
        #expect(session.status.path == .wifi)
        #expect(session.sourceLeft(of: .cellular) == [.abandon(2), .open(3)])
        #expect(session.state == .reconnecting)
        #expect(session.reason == .pathMoved)
        #expect(session.events == [.reconnectStarted(.quick)])
        session.succeed()
        #expect(session.reason == .pathMoved)
        #expect(session.status.path == .wifi)
        // Nothing of the hand-over is left.
        #expect(session.pass(.seconds(10)).isEmpty)
    }

    @Test func `a path change is reported once, with the path that was left`() {
        var session = Self.paced()
        session.sourceLeft(of: .cellular)
        let reports = session.actions.filter { if case .report(.pathChanged) = $0 { true } else { false } }
        #expect(reports == [.report(.pathChanged(.movedSourceGone, EndpointIndex(0), from: .cellular, to: .wifi))])
    }

    @Test(arguments: [Phase.resolving, .dialing, .securing])
    func `a connection being set up becomes the attempt, in whatever phase it is`(phase: Phase) {
        var session = Self.moved(phase)
        #expect(session.sourceLeft(of: .wifi) == [.abandon(1), .open(2)])
        #expect(session.phase == phase)
        #expect(session.reason == .pathMoved)
        session.progress(to: .authenticating)
        session.succeed()
        #expect(session.state == .connected)
        #expect(session.machine.counters.outages == 1)
        #expect(session.machine.counters.attempts == 2)
    }

    @Test func `a ready connection takes over without waiting for messages in flight`() {
        var session = Self.moved()
        session.prepared()
        #expect(session.machine.isSettling)
        #expect(session.sourceLeft(of: .wifi) == [.abandon(1), .open(2)])
        #expect(session.phase == .authenticating)
        #expect(!session.machine.isSettling)
    }

    @Test func `a connection that was kept because the new path led nowhere is closed as well`() {
        var session = Self.moved(.dialing)
        session.answerHeartbeat()
        session.preparationFailed()
        session.pass(.seconds(10))
        #expect(session.sourceLeft(of: .wifi) == [.abandon(1), .open(3)])
    }

    @Test func `a connection that is still being probed is closed at once`() {
        var session = Self.moved(.dialing)
        #expect(session.status.doubt == .probing)
        #expect(session.sourceLeft(of: .wifi) == [.abandon(1), .open(2)])
    }

    @Test func `an address that moved to another gateway is still the same address`() {
        var session = Self.moved()
        session.answerHeartbeat()
        var other = Path.wifi
        other.gateway = "192.0.2.2"
        #expect(session.sourceLeft(of: other) == [.abandon(1), .open(2)])
    }

    @Test func `a session that has to look for another device first does so`() {
        var session = Self.moved(.dialing)
        session.machine.rivalry.canLook = true
        session.machine.rivalry.strategy = .yield
        #expect(session.sourceLeft(of: .wifi) == [.abandon(1)])
        #expect(session.machine.successor == nil)
        session.wake()
        #expect(session.live?.generation == Generation(rawValue: 3))
        #expect(session.live?.look == .forAny)
    }

    @Test func `a bound connection whose address leaves its interface is closed as well`() {
        var session = Self.moved(isBound: true)
        var renumbered = Path.wifi
        renumbered.source = "192.0.2.21"
        let orders = session.take(.pathChanged(EndpointIndex(0), from: .wifi, to: renumbered, .movedSourceKept))
        #expect(orders == [.heartbeat(1), .prepare(2)])
        #expect(session.sourceLeft(of: .wifi) == [.abandon(1), .open(2)])
    }

    // MARK: It is not

    @Test func `a session that was handed over is not disturbed`() {
        var session = Self.moved()
        session.prepared()
        session.settled()
        expectNothing(&session, whenLeft: .wifi)
        session.establish()
        expectNothing(&session, whenLeft: .wifi)
        session.restore()
        #expect(session.state == .connected)
        expectNothing(&session, whenLeft: .wifi)
    }

    @Test(arguments: SessionUnderTest.Situation.allCases)
    func `a session on the current path is not disturbed`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        guard session.machine.endpoints.paths[0] != nil else { return }
        expectNothing(&session, whenLeft: .cellular)
    }

    @Test(arguments: SessionUnderTest.Situation.attempting)
    func `an attempt restarted on the new path goes on`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        #expect(session.path(.movedSourceKept) == [.abandon(1), .open(2)])
        expectNothing(&session, whenLeft: .wifi)
    }

    @Test func `a path that moved back to the connection's own leaves it undisturbed`() {
        var session = Self.moved()
        session.answerHeartbeat()
        session.path(.movedSourceKept)
        session.answerHeartbeat()
        expectNothing(&session, whenLeft: .cellular)
    }

    @Test func `the path of another endpoint does not matter`() {
        var session = SessionUnderTest(.connected, paths: [.cellular, .cellular])
        session.path(.movedSourceKept)
        expectNothing(&session, whenLeft: .cellular, at: 1)
        #expect(session.sourceLeft(of: .cellular) == [.abandon(1), .open(2)])
    }

    // MARK: Several moves

    @Test func `an address left behind matters only if the connection uses it`() {
        var session = Self.moved()
        session.answerHeartbeat()
        session.skip(.seconds(1))
        session.take(.pathChanged(EndpointIndex(0), from: .cellular, to: .wired, .movedSourceKept))
        #expect(session.orders == [.heartbeat(1), .prepare(3)])
        session.answerHeartbeat()
        expectNothing(&session, whenLeft: .cellular)
        #expect(session.sourceLeft(of: .wifi) == [.abandon(1), .open(3)])
    }

    @Test func `an intermediate address that leaves keeps the connection, and the new path is followed`() {
        var session = Self.moved()
        session.answerHeartbeat()
        session.skip(.seconds(1))
        session.take(.pathChanged(EndpointIndex(0), from: .cellular, to: .wired, .movedSourceGone))
        #expect(session.orders == [.heartbeat(1), .prepare(3)])
        #expect(session.state == .connected)
        #expect(session.sourceLeft(of: .wifi) == [.abandon(1), .open(3)])
    }

    @Test func `an intermediate address that leaves while there is no path keeps the connection`() {
        var session = Self.moved()
        session.answerHeartbeat()
        session.skip(.seconds(1))
        session.path(.lost)
        #expect(session.status.doubt == .pathLost)
        session.take(.pathChanged(EndpointIndex(0), from: .cellular, to: .wired, .movedSourceGone))
        #expect(session.orders == [.heartbeat(1), .prepare(3)])
        #expect(session.status.doubt == .probing)
    }
}
