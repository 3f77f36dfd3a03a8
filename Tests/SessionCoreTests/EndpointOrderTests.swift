import Testing

@testable import SessionCore

@Suite struct EndpointOrderTests {
    private static func session(_ paths: [Path?] = [.wifi, .wifi, .wifi]) -> SessionUnderTest {
        var session = SessionUnderTest(policy: .exact, paths: paths)
        session.connect()
        return session
    }

    @Test func `endpoints are tried in order, again and again`() {
        var session = Self.session()
        var asked: [Int] = []
        for _ in 0..<7 {
            asked.append(session.live?.endpoint.rawValue ?? -1)
            session.end(.unreachable)
            session.wake()
        }
        #expect(asked == [0, 1, 2, 0, 1, 2, 0])
    }

    @Test func `an endpoint without a path is skipped`() {
        var session = Self.session([nil, .wifi, nil])
        #expect(session.live?.endpoint == EndpointIndex(1))
        session.end(.unreachable)
        #expect(session.wake() == [.open(2, at: 1)])
        session.path(.gained, at: 2)
        session.end(.unreachable)
        #expect(session.wake() == [.open(3, at: 2)])
    }

    @Test func `invalid certificates fail the session only when every endpoint has shown one`() {
        var session = Self.session()
        session.end(.certificateInvalid)
        #expect(session.reason == .tlsFailed)
        #expect(session.wake() == [.open(2, at: 1)])
        session.end(.certificateInvalid)
        #expect(session.wake() == [.open(3, at: 2)])
        session.end(.refused)
        #expect(session.wake() == [.open(4, at: 0)])
        // The first endpoint fails differently this time, so the count starts again.
        session.end(.refused)
        session.wake()
        session.end(.certificateInvalid)
        session.wake()
        session.end(.certificateInvalid)
        #expect(session.wake() == [.open(7, at: 0)])
        session.end(.certificateInvalid)
        #expect(session.machine.status.state == .failed)
        #expect(session.reason == .certificateInvalid)
    }

    /// The sign-in page of a public network answers in place of every server.
    @Test func `an invalid certificate fails no session that the server has accepted before`() {
        var session = Self.session([.wifi])
        session.succeed()
        session.end(.reset)
        session.wake()
        session.end(.certificateInvalid)
        #expect(session.state == .reconnecting && session.reason == .tlsFailed)
        #expect(session.machine.reason.detail == .otherInItsPlace)
        #expect(session.machine.reason.message.hasSuffix("something on this network may answer in the server's place"))
        session.wake()
        #expect(session.live != nil)
        session.succeed()
        #expect(session.state == .connected)
    }

    @Test func `an invalid certificate everywhere fails no session that one of the servers has accepted before`() {
        var session = Self.session([.wifi, .wifi])
        session.end(.unreachable)
        session.wake()
        session.succeed()
        session.end(.reset)
        for _ in 0..<6 {
            session.wake()
            session.end(.certificateInvalid)
            #expect(session.state == .reconnecting && session.reason == .tlsFailed)
        }
    }

    @Test(arguments: [PathClass.gained, .movedSourceGone, .movedSourceKept], [true, false])
    func `a session that failed because of a certificate tries again on another network`(
        pathClass: PathClass, isInUse: Bool
    ) {
        var session = Self.session([.wifi, .wifi])
        session.end(.certificateInvalid)
        session.wake()
        session.end(.certificateInvalid)
        #expect(session.state == .failed)
        for other in [PathClass.maybe, .lost, .returned] { #expect(session.path(other).isEmpty) }
        let endpoint = isInUse ? 1 : 0
        if pathClass == .gained { session.path(.lost, at: endpoint) }
        #expect(session.path(pathClass, at: endpoint) == [.open(3)])
        #expect(session.state == .connecting)
        #expect(session.reason == (pathClass == .gained ? .pathGained : .pathMoved))
    }

    @Test(arguments: Reason.Code.allCases.filter { $0.isTerminal && $0 != .certificateInvalid })
    func `another network changes nothing for a session that failed otherwise`(code: Reason.Code) {
        var session = SessionUnderTest(.authenticating)
        session.end(code)
        for other in PathClass.allCases { #expect(session.path(other).isEmpty) }
        #expect(session.state == .failed && session.machine.nextDeadline == nil)
    }

    @Test func `a network that flaps starts a failed session six times in a minute at most`() {
        var session = Self.session([.wifi])
        session.end(.certificateInvalid)
        var attempts = 0
        for _ in 0..<100 {
            attempts += session.path(.movedSourceKept).count(where: \.isOpen)
            attempts += session.pass(.milliseconds(500)).count(where: \.isOpen)
            if session.live != nil { session.end(.certificateInvalid) }
        }
        #expect(attempts == 6)
        #expect(session.pass(.seconds(15)).count(where: \.isOpen) == 1)
    }

    @Test(arguments: [Reason.Code.reset, .serverClosed, .serverBusy, .serverShutdown, .unreachable])
    func `every outage begins with the first endpoint`(code: Reason.Code) {
        var session = Self.session()
        session.end(.unreachable)
        session.wake()
        session.succeed()
        session.pass(.seconds(1))
        session.end(code)
        #expect(session.wake() == [.open(3, at: 0)])
        session.end(.unreachable)
        #expect(session.wake() == [.open(4, at: 1)])
    }

    /// The endpoints at which the next outages begin, if a connection comes about at each of them and soon ends.
    private static func beginnings(
        _ session: inout SessionUnderTest, _ codes: [Reason.Code], search: SessionMachine.Ending.Search = .none
    ) -> [Int?] {
        codes.map { code in
            session.succeed()
            session.pass(.seconds(5))
            session.end(code, search: search)
            while session.live == nil { session.wake() }
            return session.live?.endpoint.rawValue
        }
    }

    @Test(arguments: [
        Reason.Code.serverClosed, .reset, .serverError, .protocolError, .stateMismatch, .sessionLost, .notAuthorized,
    ])
    func `a server that accepts and soon ends two connections does not keep the session from the next one`(
        code: Reason.Code
    ) {
        var session = Self.session()
        func ending() -> SessionMachine.Ending { .init(Reason(code), mayHaveNewCredential: true) }
        session.succeed()
        session.take(.ended(session.generation, ending()))
        while session.live == nil { session.wake() }
        #expect(session.live?.endpoint == EndpointIndex(0), "once is an accident")
        session.succeed()
        session.take(.ended(session.generation, ending()))
        while session.live == nil { session.wake() }
        #expect(session.live?.endpoint == EndpointIndex(1))
        session.succeed()
        session.skip(.seconds(31))
        session.end(.reset)
        #expect(session.wake() == [.open(4, at: 0)], "the next outage begins with the first endpoint again")
    }

    @Test func `servers that all end connections soon are tried in turns`() {
        var session = Self.session()
        let codes = [Reason.Code](repeating: .serverError, count: 8)
        #expect(Self.beginnings(&session, codes) == [0, 1, 1, 2, 2, 0, 1, 2])
    }

    @Test func `servers that are all busy once they have accepted are tried in turns`() {
        var session = Self.session()
        let codes = [Reason.Code](repeating: .serverBusy, count: 4)
        #expect(Self.beginnings(&session, codes) == [1, 2, 0, 1])
    }

    @Test func `a server that ends connections soon is used again if no other one accepts the session`() {
        var session = Self.session([.wifi, .wifi])
        #expect(Self.beginnings(&session, [.serverError, .serverError]) == [0, 1])
        session.end(.unreachable)
        session.wake()
        #expect(Self.beginnings(&session, [.serverError, .serverError]) == [0, 1])
    }

    @Test func `a server that accepts and falls silent three times does not keep the session from the next one`() {
        var session = Self.session()
        for endpoint in [0, 0, 1] {
            session.succeed()
            while session.state == .connected { session.wake() }
            #expect(session.reason == .heartbeatTimeout)
            while session.live == nil { session.wake() }
            #expect(session.live?.endpoint.rawValue == endpoint)
        }
        session.succeed()
        session.skip(.seconds(31))
        session.heard()
        session.end(.reset)
        #expect(session.wake() == [.open(5, at: 0)], "the next outage begins with the first endpoint again")
    }

    @Test(arguments: [Reason.Code.probeTimeout, .pathMoved, .pathLost, .serverKeepAliveTimeout])
    func `what the network does to short connections is not the first server's fault`(code: Reason.Code) {
        var session = Self.session()
        let codes = [Reason.Code](repeating: code, count: 6)
        #expect(Self.beginnings(&session, codes) == [0, 0, 0, 0, 0, 0])
    }

    @Test func `a search for the message that a server objects to goes on at that server`() {
        var session = Self.session()
        let codes = [Reason.Code](repeating: .serverClosed, count: 6)
        #expect(Self.beginnings(&session, codes, search: .continued) == [0, 0, 0, 0, 0, 0])
    }

    @Test func `another device is looked for at the server that closed the connection, and then elsewhere`() {
        var session = SessionUnderTest(paths: [.wifi, .wifi])
        session.machine.rivalry.canLook = true
        session.connect()
        let codes = [Reason.Code](repeating: .serverClosed, count: 4)
        #expect(Self.beginnings(&session, codes) == [0, 0, 0, 1])
        #expect(session.live?.look == .forNewer)
    }

    @Test func `connect by hand forgets which servers ended connections soon`() {
        var session = Self.session()
        #expect(Self.beginnings(&session, [.serverError, .serverError]) == [0, 1])
        session.disconnect()
        session.connect()
        #expect(Self.beginnings(&session, [.serverError]) == [0])
    }

    @Test func `a reconnect for the server's sake goes to the endpoint in use`() {
        var session = Self.session()
        session.end(.unreachable)
        session.wake()
        session.succeed()
        #expect(session.take(.renew(Reason(.switchRoom))) == [.abandon(2), .open(3, at: 1)])
        session.succeed()
        #expect(session.end(.stateMismatch) == [.open(4, at: 1, discarding: true)])
    }

    @Test func `a mismatched state is discarded where it is, even if an earlier endpoint has a path again`() {
        var session = Self.session([nil, .wifi])
        #expect(session.live?.endpoint == EndpointIndex(1))
        #expect(session.path(.gained, at: 0).isEmpty)
        let orders = session.end(.stateMismatch)
        #expect((orders.isEmpty ? session.wake() : orders) == [.open(2, at: 1, discarding: true)])
    }

    @Test func `a session is discarded where its state is unusable, and nowhere else`() {
        var session = Self.session([.wifi, .wifi])
        session.succeed()
        #expect(session.end(.stateMismatch) == [.open(2, at: 0, discarding: true)])
        session.end(.refused)
        #expect(session.status.mode == .quick)
        #expect(session.wake() == [.open(3, at: 1)])
        session.end(.refused)
        #expect(session.status.mode == .full)
        #expect(session.wake() == [.open(4, at: 0, discarding: true)])
        session.end(.refused)
        session.wake()
        session.succeed()
        #expect(session.status.resumed == true)
        // What the first server has is an older copy now, if they do not share it.
        session.pass(.seconds(5))
        session.end(.heartbeatTimeout)
        #expect(session.wake() == [.open(6, at: 0)])
        #expect(session.live?.discardsOlderCopy == true)
        session.succeed(resumed: false)
        session.end(.heartbeatTimeout)
        session.wake()
        #expect(session.live?.discardsOlderCopy == false)
    }

    @Test(arguments: [nil, ReconnectMode.quick, .full])
    func `only a full reconnect by hand stays at a later endpoint, whose session it discards`(mode: ReconnectMode?) {
        var session = Self.session()
        session.end(.unreachable)
        session.wake()
        session.succeed()
        let isFull = mode == .full
        #expect(session.reconnect(mode) == [.abandon(2), .open(3, at: isFull ? 1 : 0, discarding: isFull)])
    }

    @Test func `an unreadable credential does not count as a failure of the endpoint`() {
        var session = Self.session()
        session.end(.credentialUnreadable)
        #expect(session.wake() == [.open(2, at: 0)])
    }

    @Test(arguments: [Reason.Code.serverShutdown, .serverBusy])
    func `a server that goes away or is busy makes the session try the next endpoint`(code: Reason.Code) {
        var session = Self.session()
        session.succeed()
        session.end(code)
        #expect(session.wake() == [.open(2, at: 1)])
    }

    @Test func `a timeout counts as a failure of the endpoint`() {
        var session = Self.session()
        #expect(session.wake() == [.abandon(1)])
        #expect(session.wake() == [.open(2, at: 1)])
    }

    @Test func `connect after a failure starts with the first endpoint again`() {
        var session = Self.session()
        session.end(.unreachable)
        session.wake()
        session.end(.banned)
        #expect(session.connect() == [.open(3, at: 0)])
    }

    @Test func `a renewed credential is tried at the same endpoint`() {
        var session = Self.session()
        session.end(.unreachable)
        session.wake()
        #expect(session.end(.credentialExpired, mayHaveNewCredential: true) == [.open(3, at: 1)])
    }

    @Test func `a renewed credential is tried at the same endpoint even if an earlier one has a path again`() {
        var session = Self.session([nil, .wifi])
        #expect(session.path(.gained, at: 0).isEmpty)
        #expect(session.end(.credentialExpired, mayHaveNewCredential: true) == [.open(2, at: 1)])
    }

    @Test func `a lost path to another endpoint disturbs neither a connection nor an attempt`() {
        var session = Self.session()
        #expect(session.path(.lost, at: 1).isEmpty)
        session.succeed()
        for pathClass in PathClass.allCases { #expect(session.path(pathClass, at: 2).isEmpty) }
        #expect(session.status.doubt == nil)
    }

    @Test func `an attempt whose path is lost goes on at the next endpoint with a path`() {
        var session = Self.session([.wifi, nil, .wifi])
        #expect(session.path(.lost, at: 0) == [.abandon(1), .open(2, at: 2)])
    }

    @Test func `paths lost in turns do not cause a storm of attempts`() {
        var session = Self.session([.wifi, .wifi])
        var opened = 0
        for step in 0..<400 {
            let (lost, kept) = (step % 2, (step + 1) % 2)
            for orders in [session.path(.gained, at: kept), session.path(.lost, at: lost)] {
                opened += orders.count(where: \.isOpen)
            }
            opened += session.pass(.milliseconds(50)).count(where: \.isOpen)
        }
        #expect(opened < 20)
    }

    @Test func `a held connection goes on at another endpoint that has a path`() {
        var session = Self.session([.wifi, .cellular])
        session.succeed()
        session.path(.lost, at: 0)
        #expect(session.pass(.seconds(5)) == [.abandon(1)])
        #expect(session.phase == .waiting)
        #expect(session.wake() == [.open(2, at: 1)])
    }

    @Test func `the last path that is lost makes the session wait for the network`() {
        var session = Self.session([.wifi, .wifi])
        session.end(.unreachable)
        session.path(.lost, at: 0)
        #expect(session.phase == .waiting)
        session.path(.lost, at: 1)
        #expect(session.phase == .waitingForNetwork)
        #expect(session.path(.gained, at: 1) == [.open(2, at: 1)])
    }

    @Test func `a path gained by another endpoint ends a safety attempt, which has no path`() {
        var session = SessionUnderTest(policy: .exact, paths: [nil, nil])
        session.connect()
        #expect(session.pass(.seconds(300)) == [.open(1, at: 0)])
        #expect(session.path(.gained, at: 1) == [.abandon(1), .open(2, at: 1)])
    }

    @Test func `safety attempts take the endpoints in turn`() {
        var session = SessionUnderTest(policy: .exact, paths: [nil, nil])
        session.connect()
        #expect(session.pass(.seconds(300)) == [.open(1, at: 0)])
        session.end(.unreachable)
        #expect(session.pass(.seconds(300)) == [.open(2, at: 1)])
    }

    @Test func `a path lost during the outage does not replace the reason`() {
        var session = SessionUnderTest(paths: [.wifi, .wifi])
        session.connect()
        session.succeed()
        session.end(.reset)
        session.wake()
        #expect(session.path(.lost).contains(.open(3, at: 1)))
        session.succeed()
        #expect(session.reason == .reset)
    }
}
