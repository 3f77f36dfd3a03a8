import Testing

@testable import SessionCore

/// An uplink that carries what was written in order, at one rate, and the acknowledgements at once.
private struct Uplink {
    /// Bytes in a second.
    var rate = 32_000
    /// Bytes written when the connection was opened.
    var written = 1_000_000
    /// Bytes written in every second from then on.
    var stream = 0
    /// Milliseconds after which nothing arrives any more.
    var stops = Int.max
    /// Whether the server's kernel still answers then, and takes no more.
    var isFull = false
    /// Whether it also answers when it is asked whether it takes more.
    var answersProbes = false

    func milliseconds(_ session: SessionUnderTest) -> Int { Int(session.elapsed / .milliseconds(1)) }

    func measurement(in session: SessionUnderTest) -> TCPMeasurement {
        let elapsed = milliseconds(session)
        let total = written + stream * elapsed / 1000
        let arrived = min(total, rate * min(elapsed, stops) / 1000)
        let end = min(elapsed, stops, arrived == total && stream == 0 ? total * 1000 / rate : .max)
        let isInFlight = arrived < total && !(isFull && elapsed > stops)
        return TCPMeasurement(
            roundTrip: .milliseconds(50), variation: .milliseconds(5), retransmissions: 0,
            unacknowledged: isInFlight ? 1 : 0, retries: isInFlight && elapsed > stops ? 2 : 0,
            sinceAcknowledgement: .milliseconds(answersProbes ? 0 : elapsed - end), acknowledgedBytes: arrived,
            pendingBytes: total - arrived)
    }
}

/// A question behind what was sent before is answered late.
@Suite struct LateAnswerTests {
    /// Serves deadlines as the driver does, until the connection is given up.
    ///
    /// - Returns: milliseconds until then, and why; `nil` if it still stands when the time is up.
    private func end(
        of session: inout SessionUnderTest, on uplink: Uplink, within limit: Int = 200_000
    ) -> (Int, Reason.Code)? {
        while let deadline = session.machine.nextDeadline, uplink.milliseconds(session) <= limit {
            session.skip(max(.zero, session.now.duration(to: deadline)))
            if session.machine.needsMeasurement(at: session.now) {
                if look(&session, uplink) { return (uplink.milliseconds(session), session.reason) }
            }
            let orders = session.take(.timeReached)
            if orders.contains(.abandon(1)) { return (uplink.milliseconds(session), session.reason) }
            if orders.contains(.heartbeat(1)) {
                session.sent()
                _ = look(&session, uplink)
            }
        }
        return nil
    }

    /// - Returns: whether the connection is given up because of it.
    private func look(_ session: inout SessionUnderTest, _ uplink: Uplink) -> Bool {
        session.take(.measured(session.generation, uplink.measurement(in: session))).contains(.abandon(1))
    }

    private func connected() -> SessionUnderTest {
        var session = SessionUnderTest(.connected)
        session.sent()
        return session
    }

    @Test func `an answer has its full time once everything ahead of the question has arrived`() throws {
        var session = connected()
        let end = try #require(end(of: &session, on: Uplink()))
        #expect(end == (31_250 + 5000, .heartbeatTimeout))
    }

    @Test func `a message that takes minutes does not end the connection`() {
        var session = connected()
        #expect(end(of: &session, on: Uplink(written: 10_000_000)) == nil)
        #expect(session.state == .connected)
        #expect(session.machine.quality != .lost)
    }

    @Test func `nothing changes when nothing is ahead of the question`() throws {
        var session = connected()
        let end = try #require(end(of: &session, on: Uplink(written: 100)))
        #expect(end == (20_000, .heartbeatTimeout))
    }

    @Test func `what is sent after the question does not count`() throws {
        var session = connected()
        let uplink = Uplink(written: 64_000, stream: 32_000)
        let end = try #require(end(of: &session, on: uplink))
        // What was ahead has arrived two seconds after the question.
        #expect(end == (22_000, .heartbeatTimeout))
    }

    @Test(arguments: [(0, 20_000), (14_000, 20_000), (18_400, 23_400), (30_000, 35_000)])
    func `a server that takes no more is dead after the timeout`(stops: Int, time: Int) throws {
        var session = connected()
        let end = try #require(end(of: &session, on: Uplink(stops: stops, isFull: true)))
        #expect(end == (time, .heartbeatTimeout))
    }

    @Test(arguments: [0, 10_000, 18_400, 25_000])
    func `a network that carries nothing more is noticed as fast as ever`(stops: Int) throws {
        var session = connected()
        let (time, reason) = try #require(end(of: &session, on: Uplink(stops: stops)))
        #expect(reason == .unacknowledged)
        #expect((stops + 4000...stops + 5000).contains(time), "\(time)")
    }

    @Test func `a probe has its time, too`() throws {
        var session = connected()
        session.skip(.seconds(2))
        #expect(session.path(.maybe) == [.heartbeat(1)])
        let uplink = Uplink(written: 192_000)
        _ = look(&session, uplink)
        let end = try #require(end(of: &session, on: uplink))
        #expect(end == (6000 + 3000, .probeTimeout))
    }

    /// The kernel measures the path; the server's kernel has everything that was sent.
    @Test(arguments: [(200, 5), (2000, 5), (6000, 12), (20_000, 30)])
    func `an answer has two round trips, but no more than half a minute`(roundTrip: Int, limit: Int) {
        let measurement = TCPMeasurement(roundTrip: .milliseconds(roundTrip), variation: .zero)
        var session = connected()
        #expect(session.pass(.seconds(15)) == [.heartbeat(1)])
        session.take(.measured(session.generation, measurement))
        #expect(session.pass(.milliseconds(limit * 1000 - 1)).isEmpty)
        session.take(.measured(session.generation, measurement))
        #expect(session.pass(.milliseconds(1)).first == .abandon(1))
        #expect(session.reason == .heartbeatTimeout)
    }

    @Test(arguments: [(200, 10), (2000, 10), (6000, 24), (20_000, 30)])
    func `the answer to CONNECT has four round trips, but no more than half a minute`(roundTrip: Int, limit: Int) {
        var session = SessionUnderTest(.securing)
        session.progress(to: .authenticating)
        session.take(
            .measured(session.generation, TCPMeasurement(roundTrip: .milliseconds(roundTrip), variation: .zero)))
        #expect(session.pass(.milliseconds(limit * 1000 - 1)).isEmpty)
        #expect(session.pass(.milliseconds(1)).first == .abandon(1))
        #expect(session.reason == .authenticateTimeout)
    }

    @Test func `a late answer says nothing about the round trip`() {
        var session = connected()
        #expect(end(of: &session, on: Uplink(), within: 30_000) == nil)
        session.answerHeartbeat()
        #expect(session.machine.liveness?.roundTrip == .milliseconds(50), "the kernel's")
    }

    // MARK: While restoring

    @Test func `what restores the session may wait behind messages that are sent again`() throws {
        var session = SessionUnderTest(.restoring)
        session.sent()
        let end = try #require(end(of: &session, on: Uplink(written: 3_000_000)))
        #expect(end == (93_750 + 5000, .restoreTimeout))
    }

    /// Looks each second, while a server answers something all the time, until restoring is given up for its time limit.
    private func milliseconds(toRestoreOn uplink: (Int) -> Uplink) -> Int {
        var session = SessionUnderTest(.restoring)
        session.sent()
        var time = 0
        while session.phase == .restoring, time < 100_000 {
            session.skip(.seconds(1))
            time += 1000
            session.heard()
            _ = look(&session, uplink(time))
            session.take(.timeReached)
        }
        #expect(session.reason == .restoreTimeout)
        return time
    }

    @Test func `what restores the session may also be sent after the limit, if something was under way all the time`() {
        // The last is written after a minute.
        let time = milliseconds { Uplink(written: 64_000 + 32 * min($0, 60_000)) }
        #expect(time == 62_000 + 5000)
    }

    @Test func `a server that takes no more does not delay the limit, even if its kernel says so again and again`() {
        let time = milliseconds { _ in
            Uplink(written: 3_000_000, stops: 32_000, isFull: true, answersProbes: true)
        }
        // The look at 35 s finds some progress since the one at 30 s, and the next one none.
        #expect(time == 40_000)
    }

    @Test func `a network that carries nothing more is noticed as fast as in a connected session`() throws {
        var session = SessionUnderTest(.restoring)
        session.sent()
        let (time, reason) = try #require(end(of: &session, on: Uplink(stops: 2000)))
        #expect(reason == .unacknowledged)
        #expect((6000...7000).contains(time), "\(time)")
    }
}
