import Testing

@testable import SessionCore

/// What the kernel says of a connection: times in milliseconds.
private func kernel(
    rtt: Int = 20, variation: Int = 5, unacknowledged: Int = 1, retries: Int = 3, sinceAcknowledgement: Int? = nil,
    delivered: Int? = nil
) -> TCPMeasurement {
    TCPMeasurement(
        roundTrip: .milliseconds(rtt), variation: .milliseconds(variation), retransmissions: retries,
        unacknowledged: unacknowledged, retries: retries,
        sinceAcknowledgement: sinceAcknowledgement.map { .milliseconds($0) }, deliveredSegments: delivered)
}

@Suite struct `What was sent` {
    struct Look: CustomTestStringConvertible {
        var waited: Int
        var seen: TCPMeasurement
        var verdict: DeliveryWatch.Verdict
        /// Milliseconds from this check to the next one.
        var next: Int?
        var why: String
        var testDescription: String { why }
    }

    @Test(arguments: [
        Look(
            waited: 1000, seen: kernel(unacknowledged: 0), verdict: .living, next: nil,
            why: "all of it arrived: a server that takes its time"),
        Look(
            waited: 1000, seen: kernel(sinceAcknowledgement: 100), verdict: .living, next: 900,
            why: "some of it arrived just now: a slow link"),
        Look(
            waited: 1000, seen: kernel(sinceAcknowledgement: 60_000), verdict: .silent, next: 3000,
            why: "idle for long before: what counts is the time since it was sent"),
        Look(
            waited: 3990, seen: kernel(sinceAcknowledgement: 3990), verdict: .silent, next: 100,
            why: "a clock that is early is not looked at again and again"),
        Look(waited: 4000, seen: kernel(), verdict: .dead, next: 1000, why: "nothing for 4 s, sent again in vain"),
        Look(
            waited: 4000, seen: kernel(retries: 0), verdict: .silent, next: 1000,
            why: "the kernel has not even tried again: it is its own congestion"),
        Look(
            waited: 4000, seen: kernel(rtt: 3000, variation: 200), verdict: .living, next: 6000,
            why: "a link that is known to take 3 s gets several of its round trips, up to a limit"),
        Look(
            waited: 10_000, seen: kernel(rtt: 3000, variation: 200), verdict: .dead, next: 1000,
            why: "no link is waited for longer than the limit"),
        Look(
            waited: 3100, seen: kernel(sinceAcknowledgement: 3100), verdict: .silent, next: 900,
            why: "a queue that has just grown to 3 s is no end"),
    ])
    func `is judged by what the kernel reports`(look: Look) {
        let start = Instant(nanoseconds: 0)
        var watch = DeliveryWatch(longest: .seconds(10))
        watch.sent(at: start, patience: .seconds(1))
        let now = start.advanced(by: .milliseconds(look.waited))
        #expect(watch.measured(look.seen, at: now) == look.verdict)
        if look.verdict != .dead {
            #expect(watch.deadline.map { now.duration(to: $0) } == look.next.map { .milliseconds($0) })
        }
        #expect(watch.isSilent == (look.verdict == .silent))
    }

    @Test func `is not acknowledged by what the server sends again`() {
        let start = Instant(nanoseconds: 0)
        func look(_ watch: inout DeliveryWatch, _ after: Int, _ delivered: Int) -> DeliveryWatch.Verdict {
            watch.measured(
                kernel(sinceAcknowledgement: 100, delivered: delivered), at: start.advanced(by: .milliseconds(after)))
        }
        var watch = DeliveryWatch(longest: .seconds(10))
        watch.sent(at: start, patience: .seconds(1))
        #expect(look(&watch, 1000, 7) == .living)
        #expect(look(&watch, 2000, 7) == .silent)
        #expect(look(&watch, 3000, 8) == .living, "something new has arrived")
        #expect(look(&watch, 6800, 8) == .silent)
        #expect(look(&watch, 6900, 8) == .dead)
    }

    @Test(arguments: [(nil, nil, 1000), (10, 5, 1000), (200, 100, 2000), (3000, 1000, 28_000)] as [(Int?, Int?, Int)])
    func `is given several round trips`(rtt: Int?, variation: Int?, patience: Int) {
        #expect(
            DeliveryWatch.patience(
                roundTrip: rtt.map { .milliseconds($0) }, variation: variation.map { .milliseconds($0) })
                == .milliseconds(patience))
    }

    @Test func `is not judged any more after an answer`() {
        var watch = DeliveryWatch(longest: .seconds(10))
        #expect(watch.deadline == nil)
        watch.sent(at: Instant(nanoseconds: 0), patience: .seconds(1))
        watch.sent(at: Instant(nanoseconds: 500_000_000), patience: .seconds(1))
        #expect(watch.deadline == Instant(nanoseconds: 1_000_000_000))
        watch.heard()
        #expect(watch.deadline == nil)
        #expect(watch.measured(kernel(), at: Instant(nanoseconds: 9_000_000_000)) == .living)
    }
}

@Suite struct `A connection with traffic` {
    /// Serves deadlines as the driver does, which measures before each of them.
    private func pass(
        _ session: inout SessionUnderTest, _ duration: Duration, _ seen: TCPMeasurement
    ) -> [SessionUnderTest.Order] {
        let end = session.now.advanced(by: duration)
        var all: [SessionUnderTest.Order] = []
        while let deadline = session.machine.nextDeadline, deadline <= end {
            session.skip(session.now.duration(to: deadline))
            all += session.take(.measured(session.generation, seen))
            all += session.take(.timeReached)
        }
        session.skip(session.now.duration(to: end))
        return all
    }

    @Test func `is lost when nothing is acknowledged for four seconds`() {
        var session = SessionUnderTest(.connected)
        session.sent()
        #expect(pass(&session, .milliseconds(3999), kernel()) == [])
        #expect(session.state == .connected)
        #expect(session.machine.quality == .lost)
        #expect(pass(&session, .milliseconds(1), kernel()).first == .abandon(1))
        #expect(session.state == .reconnecting)
        #expect(session.reason == .unacknowledged)
        #expect(session.reason.group == .liveness && !session.reason.isTerminal)
    }

    @Test func `is not lost while the server's kernel acknowledges`() {
        var session = SessionUnderTest(.connected)
        session.sent()
        #expect(pass(&session, .seconds(14), kernel(sinceAcknowledgement: 50)) == [])
        #expect(session.state == .connected)
    }

    @Test func `needs no deadline while no answer is outstanding`() {
        var session = SessionUnderTest(.connected)
        #expect(session.due == .seconds(15))
        session.sent()
        #expect(session.due == .seconds(1))
        session.heard()
        #expect(session.due == .seconds(15))
    }

    @Test func `is left to the heartbeat where the kernel cannot be asked`() {
        var session = SessionUnderTest(.connected)
        session.sent()
        #expect(session.pass(.seconds(15)) == [.heartbeat(1)])
        session.pass(.seconds(5))
        #expect(session.reason == .heartbeatTimeout)
    }

    @Test func `is held when its path is gone, and gets its full time again when the path returns`() {
        var session = SessionUnderTest(.connected)
        session.sent()
        session.path(.lost)
        #expect(pass(&session, .milliseconds(4900), kernel()) == [])
        #expect(session.state == .connected)
        #expect(session.path(.returned) == [.heartbeat(1)])
        #expect(pass(&session, .milliseconds(2900), kernel()) == [])
        session.heard()
        session.answerHeartbeat()
        #expect(pass(&session, .seconds(10), kernel()) == [])
        #expect(session.state == .connected)
    }

    @Test func `is graded again after the first sign of life`() {
        var session = SessionUnderTest(.connected)
        session.take(.measured(session.generation, kernel(unacknowledged: 0, retries: 0)))
        #expect(session.machine.quality == .excellent)
        session.sent()
        _ = pass(&session, .milliseconds(1500), kernel())
        #expect(session.machine.quality == .lost)
        session.heard()
        session.take(.measured(session.generation, kernel(unacknowledged: 0, retries: 0)))
        #expect(session.machine.quality == .poor)
    }
}
