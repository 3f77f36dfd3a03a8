import Testing

@testable import SessionCore

@Suite struct SleepTests {
    private static func rest(_ behaviour: SuspendBehaviour, idleTimeout: Duration? = nil) -> RestPolicy {
        var rest = RestPolicy()
        rest.onSuspend = behaviour
        rest.idleTimeout = idleTimeout
        return rest
    }

    @Test func `a session leaves gracefully before sleep and connects at once on waking`() {
        var session = SessionUnderTest(.connected)
        #expect(session.hostWillSleep() == [.flush(1)])
        #expect(session.state == .disconnecting)
        #expect(session.reason == .suspend)
        #expect(session.flushed() == [.goodbye(1)])
        session.closed()
        #expect(session.state == .disconnected)
        #expect(session.due == nil)
        #expect(session.hostSleeps(.seconds(3600)) == [.open(2)])
        session.succeed()
        #expect(session.reason == .wake)
        #expect(session.status.resumed == true)
    }

    @Test func `the host waits a short while for the flush`() {
        var session = SessionUnderTest(.connected)
        session.hostWillSleep()
        #expect(session.pass(.seconds(1)) == [.goodbye(1)])
        #expect(session.pass(.seconds(2)) == [.abandon(1)])
        #expect(session.state == .disconnected)
    }

    @Test(arguments: SessionUnderTest.Situation.trying)
    func `a session makes no attempts before sleep`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        #expect(session.hostWillSleep().count(where: \.isOpen) == 0)
        // A server that has accepted the attempt is told first.
        #expect(session.pass(.seconds(3)).count(where: \.isOpen) == 0)
        #expect(session.state == .disconnected)
        #expect(session.reason == .suspend)
        #expect(session.due == nil)
    }

    @Test(arguments: [SessionUnderTest.Situation.disconnected, .failed, .flushing, .sayingGoodbye])
    func `sleep and waking change nothing for a session that is down`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        let before = session.status
        #expect(session.hostWillSleep().isEmpty)
        #expect(session.take(.hostWoke(slept: .seconds(3600))).isEmpty)
        #expect(session.status == before)
    }

    @Test func `a session comes back when the sleep does not happen`() {
        var session = SessionUnderTest(.connected)
        session.hostWillSleep()
        #expect(session.take(.hostWoke(slept: .zero)) == [.abandon(1), .open(2)])
    }

    @Test(arguments: [true, false])
    func `an explicit disconnect wins over waking`(isDown: Bool) {
        var session = SessionUnderTest(.connected)
        session.hostWillSleep()
        if isDown {
            session.flushed()
            session.closed()
        }
        session.disconnect()
        #expect(session.hostSleeps(.seconds(60)).filter(\.isOpen).isEmpty)
        session.pass(.seconds(10))
        #expect(session.reason == .userDisconnect)
        #expect(session.take(.hostWoke(slept: .seconds(60))).isEmpty)
    }

    @Test func `a session with on-suspend = keep does nothing before sleep`() {
        for situation in SessionUnderTest.Situation.allCases {
            var session = SessionUnderTest(situation, rest: Self.rest(.keep))
            let before = session.status
            #expect(session.hostWillSleep().isEmpty)
            #expect(session.status == before)
        }
    }

    @Test(arguments: [(Duration.seconds(16), true), (.seconds(15), false), (.milliseconds(1), false)])
    func `a connection that slept longer than the heartbeat's interval is probed at once`(slept: Duration, probes: Bool)
    {
        var session = SessionUnderTest(.connected, rest: Self.rest(.keep))
        #expect(session.hostSleeps(slept) == (probes ? [.heartbeat(1)] : []))
        #expect(session.status.doubt == (probes ? .probing : nil))
    }

    @Test(arguments: [(Duration.seconds(31), true), (.seconds(30), false)])
    func `a sleep of over half a minute is long even if the interval is longer`(slept: Duration, probes: Bool) {
        var heartbeat = HeartbeatPolicy()
        heartbeat.interval = .seconds(600)
        var session = SessionUnderTest(policy: .exact, heartbeat: heartbeat, rest: Self.rest(.keep))
        session.connect()
        session.succeed()
        #expect(session.hostSleeps(slept) == (probes ? [.heartbeat(1)] : []))
    }

    @Test func `a probe that is not answered ends the connection`() {
        var session = SessionUnderTest(.connected, rest: Self.rest(.keep))
        session.hostSleeps(.seconds(600))
        #expect(session.pass(.seconds(3)).contains(.abandon(1)))
        #expect(session.reason == .probeTimeout)
    }

    @Test(arguments: [(Duration.seconds(16), true), (.seconds(15), false)])
    func `after a long sleep the table restarts and the attempt is made at once`(slept: Duration, isHastened: Bool) {
        var session = SessionUnderTest(.resolving, rest: Self.rest(.keep))
        for _ in 0..<8 {
            session.end(.unreachable)
            session.wake()
        }
        session.end(.unreachable)
        #expect(session.retryIn == .seconds(32))
        #expect(session.hostSleeps(slept) == (isHastened ? [.open(10)] : []))
        session.pass(.seconds(20))
        session.end(.unreachable)
        #expect(session.retryIn == (isHastened ? .milliseconds(250) : .seconds(64)), "a wait later")
    }

    @Test(arguments: SessionUnderTest.Situation.attempting)
    func `an attempt that began before a long sleep starts again`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation, rest: Self.rest(.keep))
        #expect(session.hostSleeps(.seconds(60)) == [.abandon(1), .open(2)])
        #expect(session.state == .connecting)
    }

    @Test func `waking without a network makes no attempt`() {
        var session = SessionUnderTest(.waitingForNetwork, rest: Self.rest(.keep))
        let before = session.status
        #expect(session.hostSleeps(.seconds(60)).isEmpty)
        #expect(session.status == before)
    }

    /// The host sleeps for longer than the session tries, at different moments, and the sleep is reported at once, or
    /// after the deadlines that passed in it.
    @Test(arguments: [.waiting, .waitingForNetwork, .dialing] as [SessionUnderTest.Situation], [true, false])
    func `a session does not give up because the host slept`(
        situation: SessionUnderTest.Situation, isReportedFirst: Bool
    ) {
        var policy = ReconnectPolicy.exact
        policy.giveUpAfter = .seconds(1200)
        var session = SessionUnderTest(situation, policy: policy, rest: Self.rest(.keep))
        session.skip(.seconds(1800))
        let inputs: [SessionMachine.Input] = [.hostWoke(slept: .seconds(1800)), .timeReached]
        for input in isReportedFirst ? inputs : inputs.reversed() { session.take(input) }
        #expect(session.state == .connecting)
        if session.live == nil { session.path(.gained) }
        session.progress(to: .dialing)
        session.pass(.seconds(5))
        #expect(session.state == .connecting)
        while session.state == .connecting {
            if session.live != nil { session.end(.unreachable) } else { session.wake() }
        }
        #expect(session.reason == .retryTimeout)
        #expect(session.elapsed >= .seconds(1800 + 800), "the sleep does not count")
        #expect(session.elapsed <= .seconds(1800 + 1200))
    }

    @Test func `a session that was about to give up makes an attempt on waking`() {
        var policy = ReconnectPolicy.exact
        policy.giveUpAfter = .milliseconds(40)
        var session = SessionUnderTest(.waiting, policy: policy, rest: Self.rest(.keep))
        #expect(session.retryIn == .milliseconds(50))
        session.skip(.seconds(1800))
        #expect(session.take(.timeReached) == [.open(2)])
        session.succeed()
    }

    @Test func `waking does not override a server's request to wait`() {
        var session = SessionUnderTest(.resolving, rest: Self.rest(.keep))
        session.end(.serverBusy, retryAfter: .seconds(100))
        #expect(session.hostSleeps(.seconds(60)).isEmpty)
        #expect((session.retryIn ?? .zero) >= .seconds(40))
    }

    @Test func `a session on demand whose idle timeout passes during a sleep stays down after it`() {
        var session = SessionUnderTest(rest: Self.rest(.disconnect, idleTimeout: .seconds(120)))
        session.use(.messages)
        session.succeed()
        session.endUse(.messages)
        session.hostWillSleep()
        session.flushed()
        session.closed()
        #expect(session.hostSleeps(.seconds(200)).isEmpty)
        #expect(session.reason == .idle)
        #expect(session.use(.messages) == [.open(2)])
    }

    @Test(arguments: [Reason.Code.serverBusy, .rateLimited])
    func `a server's request to wait outlives a sleep`(code: Reason.Code) {
        var session = SessionUnderTest(.resolving)
        session.end(code)
        let due = session.due ?? .zero
        #expect(due >= .seconds(5))
        session.hostWillSleep()
        #expect(session.state == .disconnected)
        #expect(session.hostSleeps(.seconds(1)).isEmpty)
        #expect(session.state == .connecting)
        #expect(session.reason == .wake)
        #expect(session.retryIn == due - .seconds(1))
        #expect(session.wake().count(where: \.isOpen) == 1)
    }
}
