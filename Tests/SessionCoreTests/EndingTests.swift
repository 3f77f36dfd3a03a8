import Testing

@testable import SessionCore

/// What an ending asks for besides its reason.
@Suite struct EndingTests {
    private static func ending(
        _ code: Reason.Code = .serverError, _ change: (inout SessionMachine.Ending) -> Void
    ) -> SessionMachine.Ending {
        var ending = SessionMachine.Ending(Reason(code))
        change(&ending)
        return ending
    }

    private static func end(
        _ session: inout SessionUnderTest, _ code: Reason.Code = .serverError,
        _ change: (inout SessionMachine.Ending) -> Void
    ) -> [SessionUnderTest.Order] {
        session.take(.ended(session.generation, ending(code, change)))
    }

    @Test(arguments: [
        (SessionMachine.Ending.Pace.slow, [5, 5, 5]), (.floor, [5, 10, 20]), (.doubledFloor, [10, 20, 40]),
    ])
    func `a floor holds from the first delay on`(pace: SessionMachine.Ending.Pace, seconds: [Int]) {
        var session = SessionUnderTest(.connected)
        for second in seconds {
            #expect(Self.end(&session) { $0.pace = pace } == [])
            #expect(session.retryIn == .seconds(second))
            #expect(session.path(.movedSourceKept).isEmpty, "no network event overrides it")
            session.wake()
        }
    }

    @Test func `a slow pace never waits less than its floor`() {
        var session = SessionUnderTest(.connected)
        for _ in 0..<8 {
            _ = Self.end(&session) { $0.pace = .slow }
            session.wake()
        }
        #expect(session.elapsed >= .seconds(40))
        _ = Self.end(&session) { $0.pace = .slow }
        #expect(session.retryIn ?? .zero >= .seconds(5))
    }

    @Test func `a change that helps is tried at once, and a repeated failure follows the table`() {
        var session = SessionUnderTest(.connected)
        #expect(Self.end(&session) { $0.pace = .atOnce } == [.open(2)])
        session.succeed()
        #expect(Self.end(&session) { $0.pace = .atOnce } == [])
        #expect(session.retryIn == .milliseconds(250))
    }

    @Test func `what a rival could undo goes by the table, but waits only a few seconds, and stays where it is`() {
        var session = SessionUnderTest(policy: .exact, paths: [.wifi, .wifi])
        session.connect()
        session.end(.stateMismatch)
        var waits: [Duration?] = []
        for number in 0..<10 {
            _ = Self.end(&session, .stateMismatch) { $0.pace = .soon }
            waits.append(session.retryIn)
            #expect(session.wake() == [.open(UInt64(number) + 3, discarding: true)])
        }
        #expect(waits.suffix(3) == [.seconds(4), .seconds(4), .seconds(4)])
        #expect(waits.allSatisfy { $0 ?? .zero <= .seconds(4) })
    }

    @Test func `connections that only discard the session do not use up the attempts`() {
        var policy = ReconnectPolicy.exact
        policy.giveUpAttempts = 3
        var session = SessionUnderTest(policy: policy, paths: [.wifi])
        session.connect()
        session.end(.stateMismatch)
        for _ in 0..<2 {
            session.end(.stateMismatch)
            session.wake()
            _ = Self.end(&session, .stateMismatch) { $0.pace = .soon }
            session.wake()
        }
        session.succeed()
        #expect(session.status.state == .connected)
    }

    @Test func `an ending that leaves the endpoint makes the next attempt elsewhere`() {
        var session = SessionUnderTest(policy: .exact, paths: [.wifi, .wifi])
        session.connect()
        session.succeed()
        _ = Self.end(&session) { $0.leavesEndpoint = true }
        #expect(session.wake() == [.open(2, at: 1)])
    }

    @Test func `a redirect is followed at once from the same endpoint, whatever the table says`() {
        var session = SessionUnderTest(policy: .exact, paths: [.wifi, .wifi])
        session.connect()
        session.end(.unreachable)
        session.wake()
        #expect(Self.end(&session, .serverMoved) { $0.pace = .otherWay } == [.open(3, at: 1)])
        session.succeed()
        #expect(Self.end(&session, .serverMoved) { $0.pace = .otherWay } == [.open(4, at: 1)])
        #expect(session.state == .reconnecting)
        #expect(session.events == [.reconnectStarted(.quick)])
    }

    @Test func `a return that is redirected follows, and goes back if nothing comes of it`() {
        var session = SessionUnderTest(policy: .exact, paths: [.wifi, .wifi])
        session.connect()
        session.end(.unreachable)
        session.wake()
        session.succeed()
        for isBack in [true, false] {
            while session.wake() != [.knock(0)] { session.answerHeartbeat() }
            session.knocked(.answered)
            let generation = session.generation.rawValue
            #expect(Self.end(&session, .serverMoved) { $0.pace = .otherWay } == [.open(generation + 1, at: 0)])
            if isBack { #expect(session.end(.refused) == [.open(generation + 2, at: 1)]) }
            session.succeed()
            #expect(session.status.endpoint == EndpointIndex(isBack ? 1 : 0))
            #expect(session.reason == .returning)
        }
    }

    @Test(arguments: [true, false])
    func `an ending allowed once fails the session the second time`(isConnected: Bool) {
        var session = SessionUnderTest(isConnected ? .connected : .authenticating)
        #expect(Self.end(&session, .protocolError) { $0.failsIfRepeated = true } == [])
        #expect(session.state == (isConnected ? .reconnecting : .connecting))
        session.wake()
        if isConnected { session.succeed() }
        _ = Self.end(&session, .protocolError) { $0.failsIfRepeated = true }
        #expect(session.state == .failed)
        #expect(session.reason == .incompatible)
        session.connect()
        _ = Self.end(&session, .protocolError) { $0.failsIfRepeated = true }
        #expect(session.state == .connecting, "connect by hand resets the count")
    }

    @Test(arguments: [true, false])
    func `an ending allowed once fails the session only when every endpoint with a path has had one`(isConnected: Bool)
    {
        var session = SessionUnderTest(paths: [.wifi, nil, .wifi])
        session.connect()
        var refusedBy: Set<Int> = []
        while refusedBy.count < 2 {
            #expect(session.state != .failed)
            if isConnected { session.succeed() }
            refusedBy.insert(session.live?.endpoint.rawValue ?? 1)
            _ = Self.end(&session, .protocolError) { $0.failsIfRepeated = true }
            if refusedBy.count < 2 { while session.live == nil { session.wake() } }
        }
        #expect(refusedBy == [0, 2] && session.state == .failed)
    }

    @Test func `an endpoint that is well keeps a session that another one refuses`() {
        var session = SessionUnderTest(paths: [.wifi, .wifi])
        session.connect()
        for _ in 0..<3 {
            _ = Self.end(&session, .protocolError) { $0.failsIfRepeated = true }
            while session.live?.endpoint != EndpointIndex(0) {
                if session.live != nil { session.end(.dialTimeout) }
                session.wake()
            }
        }
        _ = Self.end(&session, .protocolError) { $0.failsIfRepeated = true }
        while session.live == nil { session.wake() }
        session.succeed()
        #expect(session.live?.endpoint == EndpointIndex(1) && session.state == .connected)
    }

    @Test(arguments: [true, false])
    func `a server to which an endpoint had led rests alone, not the endpoint's own address`(hasOtherAddress: Bool) {
        var session = SessionUnderTest(.authenticating)
        _ = Self.end(&session, .webSocketFailed) {
            ($0.retryAfter, $0.hasOtherAddress) = (.seconds(3600), hasOtherAddress)
        }
        #expect(session.retryIn.map { $0 < .seconds(60) } == hasOtherAddress)
    }

    @Test func `an ending allowed once is allowed again after a stable connection`() {
        var session = SessionUnderTest(.connected)
        for _ in 0..<4 {
            for _ in 0..<3 {
                session.pass(.seconds(15))
                session.answerHeartbeat()
            }
            _ = Self.end(&session, .protocolError) { $0.failsIfRepeated = true }
            #expect(session.state == .reconnecting)
            session.wake()
            session.succeed()
        }
    }
}
