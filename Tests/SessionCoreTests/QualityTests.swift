import Testing

@testable import SessionCore

@Suite struct QualityTests {
    private static func measurement(
        _ roundTrip: Int, _ variation: Int = 1, retransmissions: Int = 0
    ) -> TCPMeasurement {
        TCPMeasurement(
            roundTrip: .milliseconds(roundTrip), variation: .milliseconds(variation), retransmissions: retransmissions)
    }

    private static func connected() -> SessionUnderTest {
        var session = SessionUnderTest(policy: .exact)
        session.connect()
        session.succeed()
        return session
    }

    @Test(arguments: [
        (150, 30, Quality.excellent), (151, 30, .good), (150, 31, .good), (400, 100, .good), (401, 1, .poor),
        (20, 101, .poor),
    ])
    func `the first measurement sets the grade`(roundTrip: Int, variation: Int, quality: Quality) {
        var session = Self.connected()
        #expect(session.machine.quality == nil)
        session.take(.measured(session.generation, Self.measurement(roundTrip, variation)))
        #expect(session.machine.quality == quality)
        #expect(session.machine.liveness?.roundTrip == .milliseconds(roundTrip))
    }

    @Test func `a grade is lost at once and earned by three measurements in a row`() {
        var estimator = QualityEstimator()
        func measure(_ roundTrip: Int, _ expected: Quality, line: Int = #line) {
            estimator.measured(
                roundTrip: .milliseconds(roundTrip), variation: .milliseconds(1), retransmissions: nil)
            #expect(estimator.quality == expected)
        }
        measure(20, .excellent)
        measure(500, .poor)
        measure(20, .poor)
        measure(20, .poor)
        measure(500, .poor)
        measure(20, .poor)
        measure(20, .poor)
        measure(20, .excellent)
    }

    @Test func `segments retransmitted since the last measurement count, the handshake's do not`() {
        var estimator = QualityEstimator()
        func measure(_ retransmissions: Int) -> Quality? {
            estimator.measured(
                roundTrip: .milliseconds(20), variation: .milliseconds(1), retransmissions: retransmissions)
            return estimator.quality
        }
        #expect(measure(4) == .excellent)
        #expect(measure(5) == .good)
        #expect(measure(9) == .poor)
    }

    @Test func `a heartbeat answered later than usual grades the connection lost, but does not end it`() {
        var session = Self.connected()
        session.take(.measured(session.generation, Self.measurement(20)))
        session.pass(.seconds(15))
        #expect(session.pass(.milliseconds(999)).isEmpty)
        #expect(session.machine.quality == .excellent)
        session.pass(.milliseconds(1))
        #expect(session.machine.quality == .lost)
        #expect(session.state == .connected)
        session.take(.measured(session.generation, Self.measurement(20)))
        #expect(session.machine.quality == .lost)
        session.answerHeartbeat()
        session.take(.measured(session.generation, Self.measurement(20)))
        #expect(session.machine.quality == .poor)
    }

    @Test func `a held connection is graded lost while its path is lost`() {
        var session = Self.connected()
        session.take(.measured(session.generation, Self.measurement(20)))
        session.path(.lost)
        #expect(session.machine.quality == .lost)
        session.take(.measured(session.generation, Self.measurement(20)))
        #expect(session.machine.quality == .lost)
    }

    @Test func `a measurement of another connection is ignored, and a lost connection has no grade`() {
        var session = Self.connected()
        session.take(.measured(Generation(rawValue: 99), Self.measurement(20)))
        #expect(session.machine.quality == nil)
        session.take(.measured(session.generation, Self.measurement(20)))
        session.end(.reset)
        #expect(session.machine.quality == nil)
    }

    @Test func `each change of grade is reported once`() {
        var machine = Self.connected().machine
        let now = machine.since
        func reported(_ roundTrip: Int) -> [SessionMachine.Action] {
            var actions: [SessionMachine.Action] = []
            machine.handle(
                .measured(machine.lastGeneration, Self.measurement(roundTrip)), at: now, into: &actions)
            return actions
        }
        #expect(reported(20) == [.report(.qualityChanged(.excellent))])
        #expect(reported(30) == [])
        #expect(reported(300) == [.report(.qualityChanged(.good))])
    }
}
