import Testing

@testable import SessionCore

/// A session that is up only while programs use it.
@Suite struct DemandTests {
    private static let rest: RestPolicy = {
        var rest = RestPolicy()
        rest.idleTimeout = .seconds(120)
        return rest
    }()

    private static func session(_ situation: SessionUnderTest.Situation) -> SessionUnderTest {
        SessionUnderTest(situation, rest: rest)
    }

    /// Lets the time pass with a server that answers.
    private static func pass(_ duration: Duration, _ session: inout SessionUnderTest) {
        let end = session.now.advanced(by: duration)
        while let deadline = session.machine.nextDeadline, deadline <= end {
            for order in session.wake() {
                if case .heartbeat = order { session.answerHeartbeat() }
            }
        }
        session.skip(session.now.duration(to: end))
    }

    @Test func `a session on demand does not connect on its own`() {
        var session = Self.session(.disconnected)
        #expect(session.reason == .idle)
        #expect(session.connect(.autoconnect).isEmpty)
        #expect(session.state == .disconnected)
        #expect(session.due == nil)
    }

    @Test(arguments: Use.allCases)
    func `the first use connects the session`(use: Use) {
        var session = Self.session(.disconnected)
        #expect(session.use(use) == [.open(1)])
        #expect(session.state == .connecting)
        session.succeed()
        #expect(session.reason == .demand)
    }

    @Test func `a session goes down gracefully when the idle timeout after the last use has passed`() {
        var session = Self.session(.disconnected)
        session.use(.subscriptions)
        session.succeed()
        Self.pass(.seconds(1000), &session)
        session.use(.messages)
        session.endUse(.subscriptions)
        Self.pass(.seconds(1000), &session)
        #expect(session.state == .connected)
        session.endUse(.messages)
        Self.pass(.milliseconds(119_999), &session)
        #expect(session.state == .connected)
        #expect(session.wake() == [.flush(1)])
        #expect(session.state == .disconnecting)
        #expect(session.flushed() == [.goodbye(1)])
        session.closed()
        #expect(session.state == .disconnected)
        #expect(session.reason == .idle)
        #expect(session.due == nil)
        #expect(session.use(.messages) == [.open(2)])
    }

    @Test func `a momentary use restarts the idle timeout`() {
        var session = Self.session(.disconnected)
        session.use(.messages)
        session.endUse(.messages)
        session.succeed()
        Self.pass(.seconds(100), &session)
        session.use(.messages)
        session.endUse(.messages)
        Self.pass(.milliseconds(119_999), &session)
        #expect(session.state == .connected)
        Self.pass(.milliseconds(1), &session)
        #expect(session.state == .disconnecting)
    }

    @Test func `a use while the session goes down brings it back at once`() {
        var session = Self.session(.disconnected)
        session.use(.messages)
        session.endUse(.messages)
        session.succeed()
        Self.pass(.seconds(120), &session)
        #expect(session.state == .disconnecting)
        #expect(session.use(.subscriptions) == [.abandon(1), .open(2)])
    }

    @Test func `a session without uses stops trying to connect`() {
        var session = SessionUnderTest(rest: Self.rest, paths: [nil])
        session.use(.messages)
        session.endUse(.messages)
        #expect(session.phase == .waitingForNetwork)
        session.pass(.seconds(120))
        #expect(session.state == .disconnected)
        #expect(session.reason == .idle)
    }

    @Test(arguments: SessionUnderTest.Situation.allCases)
    func `an explicit disconnect wins, and only connect ends it`(situation: SessionUnderTest.Situation) {
        var session = Self.session(situation)
        session.disconnect()
        session.pass(.seconds(10))
        #expect(session.state == .disconnected)
        for use in Use.allCases { #expect(session.use(use).isEmpty) }
        #expect(session.state == .disconnected)
        #expect(session.reason == .userDisconnect)
        session.connect()
        #expect(session.state == .connecting)
    }

    @Test func `an explicit disconnect of an idle session counts`() {
        var session = Self.session(.disconnected)
        session.disconnect()
        #expect(session.reportedStateChange)
        #expect(session.use(.messages).isEmpty)
    }

    @Test func `an explicit disconnect while the session goes down idle counts`() {
        var session = Self.session(.connected)
        session.pass(.seconds(14))
        session.heard()
        while session.state == .connected {
            for order in session.wake() {
                if case .heartbeat = order { session.answerHeartbeat() }
            }
        }
        #expect(session.reason == .idle)
        session.disconnect()
        #expect(session.use(.messages).isEmpty)
        session.pass(.seconds(10))
        #expect(session.reason == .userDisconnect)
    }

    @Test func `connect by hand is a momentary use`() {
        var session = Self.session(.disconnected)
        session.connect()
        session.succeed()
        Self.pass(.seconds(60), &session)
        session.connect()
        Self.pass(.milliseconds(119_999), &session)
        #expect(session.state == .connected)
        Self.pass(.milliseconds(1), &session)
        #expect(session.reason == .idle)
    }

    @Test func `a terminal reason is not undone by a use`() {
        var session = Self.session(.failed)
        #expect(session.use(.messages).isEmpty)
        #expect(session.state == .failed)
    }

    @Test func `a session that is not on demand never goes idle`() {
        var session = SessionUnderTest(.connected)
        session.use(.messages)
        session.endUse(.messages)
        Self.pass(.seconds(100_000), &session)
        #expect(session.state == .connected)
    }

    @Test(arguments: [KickStrategy.yield, .takeOver])
    func `a session that comes back from idle yields if that is its strategy`(strategy: KickStrategy) {
        var session = Self.session(.disconnected)
        session.machine.rivalry.strategy = strategy
        session.machine.rivalry.canLook = true
        session.use(.messages)
        #expect(session.live?.look == nil, "a first connect takes over")
        session.endUse(.messages)
        session.succeed()
        Self.pass(.seconds(120), &session)
        session.flushed()
        session.closed()
        session.use(.messages)
        #expect(session.live?.look == (strategy == .yield ? .forAny : nil))
    }
}
