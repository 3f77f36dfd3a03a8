import Testing

@testable import SessionCore

@Suite struct HeartbeatTests {
    private static func connected(serverKeepAlive: Duration? = nil) -> SessionUnderTest {
        var session = SessionUnderTest(policy: .exact)
        session.connect()
        session.succeed(serverKeepAlive: serverKeepAlive)
        return session
    }

    @Test func `a heartbeat is sent after an interval in which nothing was read`() {
        var session = Self.connected()
        #expect(session.due == .seconds(15))
        #expect(session.pass(.milliseconds(14_999)).isEmpty)
        #expect(session.pass(.milliseconds(1)) == [.heartbeat(1)])
        #expect(!session.reportedStateChange)
    }

    @Test(arguments: [(Reason.Code.serverKeepAliveTimeout, true), (.reset, true), (.pathLost, false)])
    func `a loss that follows a time in which nothing ran says so`(code: Reason.Code, isExplained: Bool) {
        var session = Self.connected()
        // The process is stopped, and all of this happens at once when it goes on.
        session.skip(.seconds(100))
        session.heard()
        session.end(code)
        let words = ", after the daemon, or the whole host, had been stopped for 85 s or more"
        #expect(session.status.reason.message == Reason(code).message + (isExplained ? words : ""))
    }

    @Test func `a stall does not explain a loss that comes much later`() {
        var session = Self.connected()
        session.skip(.seconds(100))
        session.heard()
        session.sent()
        session.pass(.seconds(6))
        session.end(.reset)
        #expect(session.status.reason.message == Reason(.reset).message)
    }

    @Test func `rule 16: a busy sender still sends heartbeats when nothing comes back`() {
        var session = Self.connected()
        for _ in 0..<14 {
            session.pass(.seconds(1))
            session.sent()
        }
        #expect(session.pass(.seconds(1)) == [.heartbeat(1)])
    }

    /// [MQTT-3.1.2-20] On a slow path, the answer to CONNECT comes much later than CONNECT was sent.
    @Test(arguments: [(8, 7), (15, 0), (20, 0)])
    func `the server hears something within the interval after CONNECT`(answer: Int, rest: Int) {
        var session = SessionUnderTest(.securing)
        session.progress(to: .authenticating)
        session.take(.measured(session.generation, TCPMeasurement(roundTrip: .seconds(6), variation: .zero)))
        session.sent()
        session.pass(.seconds(answer))
        session.establish()
        #expect(session.due == .seconds(rest))
        if rest > 3 {
            session.pass(.seconds(3))
            session.restore()
            #expect(session.state == .connected && session.due == .seconds(rest - 3))
        }
        #expect(session.wake() == [.heartbeat(1)])
    }

    /// [MQTT-3.1.2-20]
    @Test func `rule 16: a busy reader sends heartbeats too, so that the server hears something`() {
        var session = Self.connected()
        for _ in 0..<14 {
            session.pass(.seconds(1))
            session.heard()
        }
        #expect(session.pass(.seconds(1)) == [.heartbeat(1)])
    }

    @Test func `traffic in both directions postpones heartbeats, but for no more than a minute`() {
        var session = Self.connected()
        for _ in 1...2 {
            for second in stride(from: 5, through: 60, by: 5) {
                #expect(session.pass(.seconds(5)) == (second == 60 ? [.heartbeat(1)] : []))
                session.sent()
                session.heard()
            }
            session.answerHeartbeat()
        }
        #expect(session.machine.liveness?.roundTrip == .zero)
    }

    /// [MQTT-3.12.4-1]
    @Test func `without an answer within the timeout the connection is dead`() {
        var session = Self.connected()
        session.pass(.seconds(15))
        #expect(session.pass(.milliseconds(4999)).isEmpty)
        #expect(session.pass(.milliseconds(1)) == [.abandon(1)])
        #expect(session.state == .reconnecting)
        #expect(session.reason == .heartbeatTimeout)
    }

    @Test func `an answered heartbeat is followed by the next one an interval later`() {
        var session = Self.connected()
        session.pass(.seconds(15))
        session.pass(.milliseconds(30))
        session.answerHeartbeat()
        #expect(session.due == .milliseconds(14_970))
        #expect(session.machine.liveness?.roundTrip == .milliseconds(30))
        #expect(session.machine.liveness?.lastHeard == session.now)
    }

    @Test func `any bytes count as an answer, but not as a round trip`() {
        var session = Self.connected()
        session.pass(.seconds(15))
        session.pass(.seconds(4))
        session.heard()
        #expect(session.pass(.seconds(10)).isEmpty)
        #expect(session.machine.liveness?.roundTrip == nil)
        #expect(session.state == .connected)
    }

    /// [MQTT-3.1.2-21] [MQTT-3.2.2-21]
    @Test(arguments: [(1, 1), (3, 3), (60, 15), (65_535, 15)])
    func `the server's keep-alive counts if it is shorter than ours`(keepAlive: Int, interval: Int) {
        var session = Self.connected(serverKeepAlive: .seconds(keepAlive))
        #expect(session.due == .seconds(interval))
        #expect(session.pass(.seconds(interval)) == [.heartbeat(1)])
        #expect(session.pass(.milliseconds(4999)).isEmpty)
        #expect(session.pass(.milliseconds(1)) == [.abandon(1)])
    }

    @Test(arguments: [
        (Duration.seconds(15), Duration.seconds(10)), (.seconds(2), .seconds(6)), (.seconds(7), .seconds(6)),
    ])
    func `sent data may stay unacknowledged for half of the heartbeat's time, but longer than a hold`(
        interval: Duration, deliveryTimeout: Duration
    ) {
        var policy = HeartbeatPolicy()
        policy.interval = interval
        #expect(policy.deliveryTimeout == deliveryTimeout)
    }

    @Test func `a server that turns keep-alive off gets heartbeats at our interval`() {
        let session = Self.connected(serverKeepAlive: .zero)
        #expect(session.due == .seconds(15))
        #expect(Self.connected(serverKeepAlive: .milliseconds(1)).due == .seconds(1), "no server asks for less")
    }

    @Test func `a probe sends a heartbeat at once, with a short deadline, and the status says so`() {
        var session = Self.connected()
        session.pass(.seconds(5))
        #expect(session.path(.maybe) == [.heartbeat(1)])
        #expect(session.status.doubt == .probing)
        #expect(session.pass(.milliseconds(2999)).isEmpty)
        #expect(session.pass(.milliseconds(1)) == [.abandon(1)])
        #expect(session.reason == .probeTimeout)
        #expect(session.state == .reconnecting)
    }

    @Test func `any bytes end a probe, and the connection goes on`() {
        var session = Self.connected()
        session.path(.maybe)
        session.pass(.seconds(2))
        session.heard()
        #expect(session.status.doubt == nil)
        #expect(session.pass(.seconds(10)).isEmpty)
        #expect(session.state == .connected)
    }

    @Test func `a probe under way is neither repeated nor prolonged`() {
        var session = Self.connected()
        session.path(.maybe)
        session.pass(.seconds(2))
        #expect(session.path(.maybe).isEmpty)
        #expect(session.due == .seconds(1))
    }

    @Test(arguments: [
        (Duration.milliseconds(20), Duration.seconds(1)), (.milliseconds(200), .milliseconds(1600)),
        (.seconds(2), .seconds(3)),
    ])
    func `a probe's deadline is a multiple of the round trip, within limits`(roundTrip: Duration, deadline: Duration) {
        var session = Self.connected()
        session.pass(.seconds(15))
        session.pass(roundTrip)
        session.answerHeartbeat()
        session.path(.maybe)
        #expect(session.pass(deadline - .milliseconds(1)).isEmpty)
        #expect(session.pass(.milliseconds(1)) == [.abandon(1)])
    }

    @Test func `bytes of an old connection do not count as a sign of life`() {
        var session = Self.connected()
        session.end(.unreachable)
        session.wake()
        session.succeed()
        session.pass(.seconds(10))
        session.machine.heard(Generation(rawValue: 1), at: session.now)
        session.machine.sent(Generation(rawValue: 1), at: session.now)
        session.take(.heartbeatAnswered(Generation(rawValue: 1)))
        #expect(session.due == .seconds(5))
    }

    @Test func `a host that slept through the interval sends a heartbeat before it gives up`() {
        var session = Self.connected()
        session.skip(.seconds(3600))
        #expect(session.take(.timeReached) == [.heartbeat(1)])
        #expect(session.pass(.milliseconds(4999)).isEmpty)
        #expect(session.pass(.milliseconds(1)) == [.abandon(1)])
    }

    /// They have waited behind others while the host slept.
    @Test func `bytes that arrived before a probe do not answer it, nor does a PINGRESP among them`() {
        var session = Self.connected()
        session.pass(.seconds(1))
        let arrival = session.now
        #expect(session.hostSleeps(.seconds(120)) == [.heartbeat(1)])
        session.heard(arrivedAt: arrival)
        session.answerHeartbeat()
        #expect(session.status.doubt == .probing)
        #expect(session.machine.liveness?.lastHeard == arrival)
        #expect(session.pass(.milliseconds(2999)).isEmpty)
        // The answer is read after them, so it has as much time again.
        session.heard(arrivedAt: arrival)
        #expect(session.pass(.milliseconds(2999)).isEmpty)
        #expect(session.pass(.milliseconds(1)) == [.abandon(1)])
        #expect(session.reason == .probeTimeout)
    }

    @Test func `bytes that arrived after a probe answer it, also if they were read later`() {
        var session = Self.connected()
        #expect(session.hostSleeps(.seconds(120)) == [.heartbeat(1)])
        session.heard(arrivedAt: session.now.advanced(by: .seconds(-60)))
        session.pass(.milliseconds(10))
        let arrival = session.now
        session.pass(.milliseconds(10))
        session.heard(arrivedAt: arrival)
        #expect(session.status.doubt == nil)
        #expect(session.status.state == .connected)
    }

    @Test func `the round trip is smoothed as RFC 6298 says`() {
        var roundTrip = RoundTripTime()
        roundTrip.add(.milliseconds(80))
        #expect(roundTrip.smoothed == .milliseconds(80))
        #expect(roundTrip.variation == .milliseconds(40))
        roundTrip.add(.milliseconds(160))
        #expect(roundTrip.smoothed == .milliseconds(90))
        #expect(roundTrip.variation == .milliseconds(50))
    }

    // MARK: While restoring

    @Test func `a server that answers heartbeats but not SUBSCRIBE gets the full time to restore`() {
        var session = SessionUnderTest(.restoring)
        #expect(session.due == .seconds(15))
        #expect(session.wake() == [.heartbeat(1)])
        session.take(.heartbeatAnswered(session.generation))
        session.heard()
        #expect(session.due == .seconds(15))
        #expect(session.pass(.seconds(15)) == [.abandon(1)])
        #expect(session.reason == .restoreTimeout)
        #expect(session.wake() == [.open(2)])
    }

    @Test func `a server that answers nothing at all is dead`() {
        var session = SessionUnderTest(.restoring)
        #expect(session.pass(.seconds(20)) == [.heartbeat(1), .abandon(1)])
        #expect(session.reason == .heartbeatTimeout)
    }

    @Test(arguments: [(60, 10), (300, 5), (300, 40)])
    func `a server that answers nothing at all is noticed before the time to restore is over`(
        interval: Int, timeout: Int
    ) {
        var heartbeat = HeartbeatPolicy()
        (heartbeat.interval, heartbeat.timeout) = (.seconds(interval), .seconds(timeout))
        var session = SessionUnderTest(heartbeat: heartbeat)
        session.connect()
        session.establish()
        #expect(session.pass(.seconds(30)).prefix(2) == [.heartbeat(1), .abandon(1)])
        #expect(session.reason == (timeout < 30 ? .heartbeatTimeout : .restoreTimeout))
    }

    /// [MQTT-3.1.2-20]
    @Test func `a server with a short keep-alive gets a heartbeat in time`() {
        var session = SessionUnderTest(.authenticating)
        session.take(.established(session.generation, resumed: true, serverKeepAlive: .seconds(5)))
        #expect(session.due == .seconds(5))
        #expect(session.wake() == [.heartbeat(1)])
    }

    @Test func `only a connected session has a liveness`() {
        var session = SessionUnderTest(.restoring)
        #expect(session.machine.liveness == nil)
        session.restore()
        #expect(session.machine.liveness?.lastHeard == session.now)
        session.disconnect()
        #expect(session.machine.liveness == nil)
    }

    @Test func `the kernel has to be asked about a question when it is overdue, not before and not without one`() {
        let start = SessionUnderTest.start
        var heartbeat = Heartbeat(policy: .init(), serverInterval: nil, at: start)
        let asked = heartbeat.deadline
        #expect(!heartbeat.needsMeasurement(at: asked))
        #expect(heartbeat.due(at: asked) == .ask)
        #expect(!heartbeat.needsMeasurement(at: asked))
        #expect(heartbeat.needsMeasurement(at: heartbeat.deadline))
    }
}
