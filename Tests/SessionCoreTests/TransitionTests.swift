import Testing

@testable import SessionCore

@Suite struct TransitionTests {
    @Test func `a new session is disconnected and waits for nothing`() {
        let session = SessionUnderTest()
        #expect(session.state == .disconnected)
        #expect(session.machine.nextDeadline == nil)
        #expect(session.status.attempt == 0)
    }

    @Test func `connect makes an attempt at once`() {
        var session = SessionUnderTest()
        #expect(session.connect(.autoconnect) == [.open(1)])
        #expect(session.state == .connecting)
        #expect(session.phase == .resolving)
        #expect(session.reason == .autoconnect)
        #expect(session.status.attempt == 1)
        #expect(session.status.mode == nil)
        #expect(session.status.endpoint == EndpointIndex(0))
        #expect(session.status.path == .wifi)
    }

    @Test(arguments: [Phase.dialing, .securing, .authenticating, .restoring])
    func `an attempt shows the phase that it is in`(phase: Phase) {
        var session = SessionUnderTest(.resolving)
        #expect(session.progress(to: phase).isEmpty)
        #expect(session.phase == phase)
    }

    @Test(arguments: [true, false])
    func `connecting becomes connected only when everything is restored`(resumed: Bool) {
        var session = SessionUnderTest(.authenticating)
        session.establish(resumed: resumed)
        #expect(session.state == .connecting)
        #expect(session.phase == .restoring)
        session.restore()
        #expect(session.state == .connected)
        #expect(session.status.resumed == resumed)
        #expect(session.status.attempt == 0)
        #expect(session.phase == nil)
        #expect(session.machine.counters.connects == 1)
        #expect(session.machine.counters.resumes == (resumed ? 1 : 0))
    }

    @Test func `an attempt that the server has not accepted cannot be restored`() {
        var session = SessionUnderTest(.authenticating)
        session.restore()
        #expect(session.state == .connecting)
    }

    @Test func `the first attempt is retried by the same rules as every other`() {
        var session = SessionUnderTest(.resolving)
        #expect(session.end(.unreachable).isEmpty)
        #expect(session.state == .connecting)
        #expect(session.phase == .waiting)
        #expect(session.reason == .unreachable)
        #expect(session.retryIn == .milliseconds(50))
        #expect(session.wake() == [.open(2)])
        #expect(session.status.attempt == 2)
    }

    @Test(arguments: [Reason.Code.reset, .serverClosed, .serverShutdown, .unreachable, .heartbeatTimeout, .unknown])
    func `a lost connection makes the session reconnect quickly`(code: Reason.Code) {
        var session = SessionUnderTest(.connected)
        session.pass(.seconds(3))
        #expect(session.end(code).isEmpty)
        #expect(session.state == .reconnecting)
        #expect(session.status.mode == .quick)
        #expect(session.reason == code)
        #expect(session.events == [.reconnectStarted(.quick)])
        #expect(session.machine.counters.outages == 1)
        session.wake()
        session.pass(.seconds(2))
        session.establish()
        session.restore()
        guard case .reconnectCompleted(.quick, let outage)? = session.events.first else {
            Issue.record("\(session.events)")
            return
        }
        #expect(outage == session.elapsed - .seconds(3))
        #expect(session.machine.counters.longestOutage == outage)
        #expect(session.state == .connected)
    }

    @Test func `a state change tells the state before and the time in it`() {
        var session = SessionUnderTest(.resolving)
        session.pass(.seconds(1))
        session.progress(to: .dialing)
        #expect(session.actions == [.report(.stateChanged(from: .connecting, lasted: .seconds(1)))])
        session.pass(.seconds(1))
        session.establish()
        session.restore()
        #expect(session.actions == [.report(.stateChanged(from: .connecting, lasted: .seconds(2)))])
        session.pass(.seconds(4))
        session.disconnect()
        #expect(session.actions.last == .report(.stateChanged(from: .connected, lasted: .seconds(4))))
    }

    @Test func `an unchanged phase is not reported`() {
        var session = SessionUnderTest(.dialing)
        session.progress(to: .dialing)
        #expect(session.actions.isEmpty)
        session.take(.timeReached)
        #expect(session.actions.isEmpty)
    }

    @Test func `a connected session tells why it connected, not why an earlier attempt failed`() {
        var session = SessionUnderTest(policy: .exact)
        session.connect(.autoconnect)
        session.end(.dnsFailed)
        session.wake()
        session.succeed()
        #expect(session.reason == .autoconnect)
        session.end(.reset)
        session.wake()
        session.end(.refused)
        session.wake()
        session.succeed()
        #expect(session.reason == .reset)
    }

    // MARK: Terminal reasons

    @Test(
        arguments: Reason.Code.allCases.filter { Reason($0).isTerminal },
        [SessionUnderTest.Situation.authenticating, .connected])
    func `a terminal reason fails the session at once`(code: Reason.Code, situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        #expect(session.end(code).isEmpty)
        #expect(session.state == .failed)
        #expect(session.reason == code)
        #expect(session.machine.nextDeadline == nil)
    }

    @Test(arguments: Reason.Code.allCases.filter { !Reason($0).isTerminal })
    func `every other reason leads to another attempt`(code: Reason.Code) {
        var attempting = SessionUnderTest(.authenticating)
        attempting.end(code)
        #expect(attempting.state == .connecting)
        #expect(attempting.machine.nextDeadline != nil)
        var connected = SessionUnderTest(.connected)
        connected.end(code)
        #expect(connected.state == .reconnecting)
        #expect(connected.machine.nextDeadline != nil)
    }

    @Test func `a failed session stays failed until connect by hand`() {
        var session = SessionUnderTest(.failed)
        for pathClass in PathClass.allCases { #expect(session.path(pathClass).isEmpty) }
        for input in lateCompletions(of: 1) + [.timeReached] { #expect(session.take(input).isEmpty) }
        #expect(session.pass(.seconds(86_400)).isEmpty)
        #expect(session.state == .failed)
        #expect(session.reason == .banned)
        #expect(session.connect() == [.open(2)])
        #expect(session.state == .connecting)
        #expect(session.status.attempt == 1)
    }

    // MARK: Credentials

    @Test(arguments: [Reason.Code.credentialRejected, .credentialExpired, .notAuthorized])
    func `a rejected credential is renewed once and tried at once, then it is terminal`(code: Reason.Code) {
        var session = SessionUnderTest(.authenticating)
        #expect(session.end(code, mayHaveNewCredential: true) == [.open(2)])
        #expect(session.state == .connecting)
        #expect(session.end(code, mayHaveNewCredential: true).isEmpty)
        #expect(session.state == .failed)
        #expect(session.reason == code)
    }

    @Test func `an attempt after a rejection keeps its reason until it has another credential`() {
        var session = SessionUnderTest(.authenticating)
        session.end(.credentialRejected, mayHaveNewCredential: true)
        #expect(session.live?.rejection == Reason(.credentialRejected))
        session.take(.credentialAwaited(session.generation))
        session.path(.movedSourceKept)
        #expect(session.live?.rejection == Reason(.credentialRejected), "haste changes nothing about it")
        session.take(.credentialObtained(session.generation, expiresAt: nil))
        session.end(.unreachable)
        session.wake()
        #expect(session.live?.rejection == nil)
    }

    @Test func `connect by hand tries the rejected credential again`() {
        var session = SessionUnderTest(.connected)
        session.end(.reset)
        session.wake()
        session.end(.credentialRejected, mayHaveNewCredential: true)
        #expect(session.live?.rejection != nil)
        session.reconnect()
        #expect(session.live?.rejection == nil)
    }

    @Test func `a credential that does not arrive after a rejection is reported together with it`() {
        var session = SessionUnderTest(.authenticating)
        session.end(.notAuthorized, mayHaveNewCredential: true)
        session.take(.credentialAwaited(session.generation))
        session.wake()
        #expect(session.reason == .credentialUnreadable)
        #expect(session.status.reason.message.hasPrefix(Reason(.notAuthorized).message + ", and "))
        #expect(session.phase == .waiting)
    }

    @Test func `a renewed credential that is rejected later, after other failures, is terminal`() {
        var session = SessionUnderTest(.authenticating)
        session.end(.credentialRejected, mayHaveNewCredential: true)
        session.end(.unreachable)
        session.wake()
        session.end(.credentialRejected, mayHaveNewCredential: true)
        #expect(session.state == .failed)
    }

    @Test func `a credential that expires on a connection is renewed at once, and only once`() {
        var session = SessionUnderTest(.connected)
        #expect(session.end(.credentialExpired, mayHaveNewCredential: true) == [.open(2)])
        #expect(session.reason == .credentialExpired)
        #expect(session.state == .reconnecting)
        session.end(.credentialRejected, mayHaveNewCredential: true)
        #expect(session.state == .failed)
    }

    @Test func `after a success a credential may be renewed again, but not in a tight loop`() {
        var session = SessionUnderTest(.connected)
        #expect(session.end(.credentialExpired, mayHaveNewCredential: true) == [.open(2)])
        session.succeed()
        #expect(session.end(.credentialExpired, mayHaveNewCredential: true).isEmpty)
        #expect(session.phase == .waiting)
    }

    @Test func `a credential that cannot be read is tried again`() {
        var session = SessionUnderTest(.resolving)
        session.end(.credentialUnreadable)
        #expect(session.phase == .waiting)
        #expect(session.retryIn == .milliseconds(50))
    }

    // MARK: Deadlines

    @Test(arguments: [
        (SessionUnderTest.Situation.resolving, Duration.seconds(10), Reason.Code.dnsFailed),
        (.dialing, .seconds(20), .dialTimeout), (.securing, .seconds(20), .tlsTimeout),
        (.authenticating, .seconds(10), .authenticateTimeout),
    ])
    func `every phase has a time limit`(situation: SessionUnderTest.Situation, limit: Duration, code: Reason.Code) {
        var session = SessionUnderTest(situation)
        #expect(session.due == limit)
        #expect(session.pass(limit) == [.abandon(1)])
        #expect(session.phase == .waiting)
        #expect(session.reason == code)
        #expect(session.wake() == [.open(2)])
    }

    @Test(arguments: [SessionUnderTest.Situation.disconnected, .failed])
    func `a session at rest has no deadline`(situation: SessionUnderTest.Situation) {
        let session = SessionUnderTest(situation)
        #expect(session.machine.nextDeadline == nil)
    }

    @Test(arguments: SessionUnderTest.Situation.allCases)
    func `a wake-up that comes too early does nothing`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        let due = session.due
        #expect(session.take(.timeReached).isEmpty)
        #expect(session.actions.isEmpty)
        #expect(session.due == due)
    }

    @Test(arguments: SessionUnderTest.Situation.allCases)
    func `late completions of an old generation do nothing`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        let status = session.status
        for input in lateCompletions(of: 0) + lateCompletions(of: 99) {
            #expect(session.take(input).isEmpty)
            #expect(session.actions.isEmpty)
        }
        #expect(session.status == status)
    }

    // MARK: Connect and reconnect by hand

    @Test(arguments: SessionUnderTest.Situation.allCases)
    func `connect in every situation`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        let before = session.status
        let orders = session.connect(.userConnect)
        switch situation {
        case .disconnected:
            #expect(orders == [.open(1)])
        case .failed:
            #expect(orders == [.open(2)])
        case .flushing, .sayingGoodbye:
            #expect(orders == [.abandon(1), .open(2)])
            #expect(session.state == .connecting)
        case .waiting:
            #expect(orders == [.open(2)])
            #expect(session.status.attempt == 2)
        case .waitingForNetwork, .connected, .held, .probing, .resolving, .dialing, .securing, .authenticating,
            .restoring:
            #expect(orders.isEmpty)
            #expect(session.status.state == before.state)
            #expect(session.phase == before.phase)
        }
    }

    @Test(arguments: SessionUnderTest.Situation.allCases, [nil, ReconnectMode.quick, .full])
    func `reconnect by hand in every situation`(situation: SessionUnderTest.Situation, mode: ReconnectMode?) {
        var session = SessionUnderTest(situation)
        let orders = session.reconnect(mode)
        let discarding = mode == .full
        switch situation {
        case .disconnected:
            #expect(orders == [.open(1, discarding: discarding)])
            #expect(session.state == .connecting)
        case .failed, .waiting:
            #expect(orders == [.open(2, discarding: discarding)])
            #expect(session.state == .connecting)
        case .flushing, .sayingGoodbye:
            #expect(orders == [.abandon(1), .open(2, discarding: discarding)])
            #expect(session.state == .connecting)
        // Without a path as well: the kernel may be wrong about that.
        case .connected, .probing, .held:
            #expect(orders == [.abandon(1), .open(2, discarding: discarding)])
            #expect(session.state == .reconnecting)
            #expect(session.status.mode == (discarding ? .full : .quick))
            #expect(session.events == [.reconnectStarted(discarding ? .full : .quick)])
            #expect(session.reason == .userReconnect)
        case .waitingForNetwork:
            #expect(orders == [.open(2, discarding: discarding)])
            #expect(session.state == .connecting)
        case .resolving, .dialing, .securing, .authenticating, .restoring:
            #expect(orders == [.abandon(1), .open(2, discarding: discarding)])
            #expect(session.state == .connecting)
        }
    }

    @Test func `reconnect by hand restarts the table`() {
        var session = SessionUnderTest(.waiting)
        for _ in 0..<6 {
            session.wake()
            session.end(.unreachable)
        }
        #expect(session.retryIn == .seconds(8))
        session.reconnect()
        session.end(.unreachable)
        #expect(session.retryIn == .milliseconds(50))
    }
}

/// Everything that can be said about an attempt or a connection.
func lateCompletions(of generation: UInt64) -> [SessionMachine.Input] {
    let generation = Generation(rawValue: generation)
    return [
        .progressed(generation, .dialing), .progressed(generation, .restoring),
        .established(generation, resumed: true, serverKeepAlive: nil), .restored(generation),
        .heartbeatAnswered(generation), .flushed(generation), .closed(generation),
        .prepared(generation), .preparationFailed(generation), .settled(generation),
        .ended(generation, .init(Reason(.unreachable))), .ended(generation, .init(Reason(.banned))),
        .ended(generation, .init(Reason(.credentialRejected), mayHaveNewCredential: true)),
        .ended(generation, .init(Reason(.serverBusy), retryAfter: .seconds(60))),
    ]
}
