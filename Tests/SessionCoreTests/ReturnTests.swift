import Testing

@testable import SessionCore

/// The way back to the first endpoint.
@Suite struct ReturnTests {
    /// Connected to the second of three endpoints, with generation 2.
    private static func session(paths: [Path?] = [.wifi, .wifi, .wifi], seed: UInt64 = 1) -> SessionUnderTest {
        var session = SessionUnderTest(policy: .exact, paths: paths, seed: seed)
        session.connect()
        session.end(.unreachable)
        session.wake()
        session.succeed()
        return session
    }

    /// Lets the time pass with a server that answers, until the machine orders something other than a heartbeat.
    private static func passToKnock(_ session: inout SessionUnderTest) -> Duration {
        let start = session.now
        for _ in 0..<1000 {
            let orders = session.wake()
            if orders.contains(.knock(0)) { return start.duration(to: session.now) }
            if orders.contains(where: { if case .heartbeat = $0 { true } else { false } }) { session.answerHeartbeat() }
        }
        Issue.record("the first endpoint is not checked any more")
        return start.duration(to: session.now)
    }

    @Test(arguments: UInt64(1)...20)
    func `the first endpoint is checked about every minute`(seed: UInt64) {
        var session = Self.session(seed: seed)
        for answer in [KnockAnswer.silent, .refused, .silent] {
            #expect((Duration.seconds(48)...Duration.seconds(72)).contains(Self.passToKnock(&session)))
            #expect(session.knocked(answer).isEmpty)
            #expect(session.state == .connected)
        }
    }

    @Test func `when the first endpoint answers, a quick reconnect goes there`() {
        var session = Self.session()
        _ = Self.passToKnock(&session)
        #expect(session.machine.wantsKnock(at: EndpointIndex(0)))
        #expect(session.knocked(.answered) == [.abandon(2), .open(3, at: 0)])
        #expect(session.live?.continuesKnock == true)
        #expect(session.state == .reconnecting)
        #expect(session.status.mode == .quick)
        #expect(session.reason == .returning)
        session.succeed()
        #expect(session.reason == .returning)
        #expect(session.status.endpoint == EndpointIndex(0))
        session.pass(.seconds(10))
        #expect(!session.machine.wantsKnock(at: EndpointIndex(0)))
    }

    @Test(arguments: [
        Reason.Code.unreachable, .serverBusy, .credentialRejected, .certificateInvalid, .unsupportedVersion, .tlsFailed,
    ])
    func `a return that fails goes back to the second endpoint at once`(code: Reason.Code) {
        var session = Self.session()
        _ = Self.passToKnock(&session)
        session.knocked(.answered)
        #expect(session.end(code) == [.open(4, at: 1)])
        session.succeed()
        #expect(session.status.endpoint == EndpointIndex(1))
        #expect(session.reason == .returning)
        #expect(session.status.reason.message.hasPrefix("the first endpoint answered, but could not be returned to"))
    }

    @Test func `an unusable copy at the first endpoint costs the session at the second one nothing`() {
        var session = Self.session()
        for isKnown in [false, true] {
            _ = Self.passToKnock(&session)
            session.knocked(.answered)
            #expect(session.live?.discardsOlderCopy == isKnown)
            session.establish()
            let generation = session.generation.rawValue
            #expect(session.end(.stateMismatch) == [.open(generation + 1, at: 1)])
            #expect(session.live?.discardsOlderCopy == false)
            session.succeed()
            #expect(session.status.endpoint == EndpointIndex(1))
        }
    }

    @Test func `a return that times out goes back to the second endpoint`() {
        var session = Self.session()
        _ = Self.passToKnock(&session)
        session.knocked(.answered)
        #expect(session.pass(.seconds(10)) == [.abandon(3), .open(4, at: 1)])
    }

    @Test func `a return that ends with displaced fails the session`() {
        var session = Self.session()
        _ = Self.passToKnock(&session)
        session.knocked(.answered)
        session.end(.displaced)
        #expect(session.state == .failed)
    }

    @Test(arguments: UInt64(1)...20)
    func `the interval doubles with each failed return, up to a quarter of an hour`(seed: UInt64) {
        var session = Self.session(seed: seed)
        for minutes in [1, 2, 4, 8, 15, 15] {
            let pause = Self.passToKnock(&session)
            #expect((Duration.seconds(48 * minutes)...Duration.seconds(72 * minutes)).contains(pause))
            session.knocked(.answered)
            session.end(.refused)
            session.succeed()
        }
    }

    @Test func `a first endpoint that accepts and then closes is tried less and less often`() {
        var session = Self.session()
        var pauses: [Duration] = []
        for _ in 0..<4 {
            pauses.append(Self.passToKnock(&session))
            session.knocked(.answered)
            session.succeed()
            session.end(.serverClosed)
            session.wake()
            #expect(session.live?.endpoint == EndpointIndex(1), "the session goes back to where it was well")
            session.succeed()
        }
        #expect(pauses[3] > .seconds(6 * 60))
    }

    @Test func `a session that was displaced at the first endpoint after the return looks for the other device there`()
    {
        var session = Self.session()
        session.machine.rivalry.canLook = true
        _ = Self.passToKnock(&session)
        session.knocked(.answered)
        session.succeed()
        session.end(.serverClosed)
        session.wake()
        #expect(session.live?.endpoint == EndpointIndex(0))
        #expect(session.live?.look == .forNewer)
    }

    @Test func `a stable return resets the interval`() {
        var session = Self.session()
        _ = Self.passToKnock(&session)
        session.knocked(.answered)
        session.end(.refused)
        session.succeed()
        _ = Self.passToKnock(&session)
        session.knocked(.answered)
        session.succeed()
        session.skip(.seconds(31))
        session.end(.reset)
        session.wake()
        session.end(.refused)
        session.wake()
        session.succeed()
        #expect(session.status.endpoint == EndpointIndex(1))
        #expect(Self.passToKnock(&session) <= .seconds(72))
    }

    @Test func `connect by hand resets the interval`() {
        var session = Self.session()
        for _ in 0..<3 {
            _ = Self.passToKnock(&session)
            session.knocked(.answered)
            session.end(.refused)
            session.succeed()
        }
        session.disconnect()
        session.pass(.seconds(10))
        session.connect()
        session.end(.unreachable)
        session.wake()
        session.succeed()
        #expect(session.status.endpoint == EndpointIndex(1))
        #expect(Self.passToKnock(&session) <= .seconds(72))
    }

    @Test func `messages in flight delay the check`() {
        var session = Self.session()
        session.use(.messages)
        session.skip(.seconds(72))
        #expect(!session.take(.timeReached).contains(.knock(0)))
        session.answerHeartbeat()
        session.skip(.seconds(3))
        #expect(session.endUse(.messages) == [.knock(0)])
    }

    @Test func `messages that are never acknowledged do not prevent the check`() {
        var session = Self.session()
        session.use(.messages)
        session.skip(.seconds(72))
        session.take(.timeReached)
        session.answerHeartbeat()
        session.skip(.seconds(10))
        #expect(session.take(.timeReached).contains(.knock(0)))
    }

    @Test func `the first endpoint is not checked without a path`() {
        var session = Self.session()
        session.path(.lost, at: 0)
        for _ in 0..<50 {
            let orders = session.wake()
            #expect(!orders.contains(.knock(0)))
            session.answerHeartbeat()
        }
        session.path(.gained, at: 0)
        #expect(Self.passToKnock(&session) <= .seconds(72))
    }

    @Test func `a check that gets no answer is given up after a while`() {
        var session = Self.session()
        _ = Self.passToKnock(&session)
        #expect(Self.passToKnock(&session) >= .seconds(48 + 30))
    }

    @Test func `an answer that comes too late changes nothing`() {
        var session = Self.session()
        _ = Self.passToKnock(&session)
        session.disconnect()
        #expect(session.knocked(.answered).isEmpty)
        #expect(!session.machine.wantsKnock(at: EndpointIndex(0)))
    }
}
