import Testing

@testable import SessionCore

@Suite struct DisconnectTests {
    @Test func `a connected session flushes, says goodbye and is disconnected`() {
        var session = SessionUnderTest(.connected)
        #expect(session.disconnect() == [.flush(1)])
        #expect(session.state == .disconnecting)
        #expect(session.reason == .userDisconnect)
        #expect(session.flushed() == [.goodbye(1)])
        #expect(session.state == .disconnecting)
        #expect(session.closed().isEmpty)
        #expect(session.state == .disconnected)
        #expect(session.machine.nextDeadline == nil)
    }

    @Test func `a server that acknowledges nothing and does not close cannot delay a disconnect`() {
        var session = SessionUnderTest(.connected)
        session.disconnect()
        #expect(session.pass(.seconds(3)) == [.goodbye(1)])
        #expect(session.pass(.seconds(2)) == [.abandon(1)])
        #expect(session.state == .disconnected)
    }

    @Test(arguments: [SessionUnderTest.Situation.flushing, .sayingGoodbye], [Reason.Code.reset, .banned, .serverBusy])
    func `a connection that is lost while disconnecting is disconnected all the same`(
        situation: SessionUnderTest.Situation, code: Reason.Code
    ) {
        var session = SessionUnderTest(situation)
        #expect(session.end(code).isEmpty)
        #expect(session.state == .disconnected)
        #expect(session.reason == .userDisconnect)
    }

    private static func says(_ session: SessionUnderTest, upTo seconds: Int) -> Bool {
        session.status.reason.message.contains("for up to \(seconds) s from then on")
    }

    /// Others see the session until the server announces its end, 90 s after the end of the connection.
    private static func lingering() -> SessionUnderTest {
        var session = SessionUnderTest(.connected)
        session.machine.remains.visibility = .limited(.seconds(90))
        session.heard()
        return session
    }

    @Test(arguments: [(89_000, 1), (89_001, 1), (88_999, 2), (5000, 85)])
    func `a goodbye the server cannot have heard is reported, with how long others may still see the session`(
        _ milliseconds: Int, _ rest: Int
    ) {
        var session = Self.lingering()
        session.end(.reset)
        session.skip(.milliseconds(milliseconds))
        session.disconnect()
        #expect(session.reason == .goodbyeUnheard)
        #expect(Self.says(session, upTo: rest), "\(session.status.reason.message)")
    }

    @Test(arguments: [false, true])
    func `a goodbye that is lost on its way is reported as unheard`(isSilent: Bool) {
        var session = Self.lingering()
        session.disconnect()
        if isSilent { session.pass(.seconds(5)) } else { session.end(.reset) }
        #expect(session.state == .disconnected)
        #expect(session.reason == .goodbyeUnheard)
        // The server may have heard all that was sent until now, although nothing came back.
        #expect(Self.says(session, upTo: 90), "\(session.status.reason.message)")
    }

    @Test func `a session that is still being restored says goodbye`() {
        var session = SessionUnderTest(.restoring)
        #expect(session.disconnect() == [.flush(1)])
        #expect(session.state == .disconnecting)
        #expect(session.flushed() == [.goodbye(1)])
        #expect(session.closed().isEmpty)
        #expect(session.state == .disconnected)
        #expect(session.reason == .userDisconnect)
    }

    @Test(arguments: [SessionUnderTest.Situation.waiting, .disconnected, .failed, .dialing, .connected], [1, 2])
    func `publications that the server was not told to delete are named, in a room or in none`(
        situation: SessionUnderTest.Situation, count: Int
    ) {
        var session = SessionUnderTest(situation)
        session.machine.remains.publications = count
        session.disconnect()
        session.pass(.seconds(5))
        #expect(session.reason == .goodbyeUnheard)
        let name = count == 1 ? "1 publication of" : "2 publications of"
        #expect(session.status.reason.message.contains(": the server may keep \(name) the session until"))
    }

    @Test func `a second disconnect still says what others see, from the first one on, until that is over`() {
        var session = Self.lingering()
        session.end(.reset)
        session.disconnect()
        let since = session.machine.since
        session.skip(.seconds(10))
        session.disconnect()
        #expect(Self.says(session, upTo: 90), "\(session.status.reason.message)")
        #expect(session.machine.since == since && !session.reportedStateChange)
        session.skip(.seconds(80))
        session.disconnect()
        #expect(session.reason == .userDisconnect)
    }

    @Test func `the server may have heard the session until the connection ended, however long nothing came back`() {
        var session = Self.lingering()
        session.skip(.seconds(12))
        session.end(.heartbeatTimeout)
        session.skip(.seconds(10))
        session.disconnect()
        #expect(Self.says(session, upTo: 80), "\(session.status.reason.message)")
        // A new attempt that comes to nothing does not change that.
        session.connect()
        session.skip(.seconds(10))
        session.disconnect()
        #expect(Self.says(session, upTo: 70), "\(session.status.reason.message)")
    }

    @Test func `a goodbye while the session is restored is unheard from the last sign of life on`() {
        var session = Self.lingering()
        session.end(.reset)
        session.skip(.seconds(50))
        session.connect()
        session.establish()
        session.skip(.seconds(2))
        session.heard()
        session.disconnect()
        session.end(.reset)
        #expect(session.reason == .goodbyeUnheard)
        #expect(Self.says(session, upTo: 90), "\(session.status.reason.message)")
    }

    @Test func `a goodbye is unheard after a first connection that ended before it was restored`() {
        var session = SessionUnderTest(.restoring)
        session.machine.remains.visibility = .limited(.seconds(90))
        session.heard()
        session.end(.reset)
        session.skip(.seconds(1))
        session.disconnect()
        #expect(session.reason == .goodbyeUnheard)
        #expect(Self.says(session, upTo: 89), "\(session.status.reason.message)")
    }

    @Test func `a goodbye is not reported as unheard once others cannot see the session any more`() {
        var session = Self.lingering()
        session.end(.reset)
        session.skip(.seconds(90))
        session.disconnect()
        #expect(session.reason == .userDisconnect)
    }

    @Test func `a server that set no keep-alive may never notice that the session went away`() {
        var session = Self.lingering()
        session.machine.remains.visibility = .unlimited
        session.end(.reset)
        session.skip(.seconds(86_400))
        session.disconnect()
        #expect(session.reason == .goodbyeUnheard)
        #expect(session.status.reason.message.contains("until the server notices that the connection is gone"))
    }

    @Test func `presence in another room than that of the will is not said to end with a connection to any server`() {
        var session = Self.lingering()
        session.machine.remains.visibility = .untilCleared
        session.end(.reset)
        session.disconnect()
        let message = session.status.reason.message
        #expect(message.contains("by its next connection, if the server lets it, or by hand"), "\(message)")
    }

    @Test func `a daemon that stops reports no unheard goodbye`() {
        var session = Self.lingering()
        session.end(.reset)
        session.disconnect(.shutdown)
        #expect(session.reason == .shutdown)
    }

    @Test(arguments: SessionUnderTest.Situation.allCases)
    func `disconnect wins from every situation, and nothing late undoes it`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        let orders = session.disconnect()
        switch situation {
        case .disconnected, .failed, .waiting, .waitingForNetwork, .flushing, .sayingGoodbye:
            #expect(orders.isEmpty)
        case .connected, .held, .probing, .restoring:
            #expect(orders == [.flush(1)])
        case .resolving, .dialing, .securing, .authenticating:
            #expect(orders == [.abandon(1)])
        }
        session.pass(.seconds(10))
        #expect(session.state == .disconnected)
        #expect(session.reason == .userDisconnect)
        for input in lateCompletions(of: 1) + [.timeReached] { #expect(session.take(input).isEmpty) }
        for pathClass in PathClass.allCases { #expect(session.path(pathClass).isEmpty) }
        #expect(session.pass(.seconds(86_400)).isEmpty)
        #expect(session.state == .disconnected)
        #expect(session.machine.nextDeadline == nil)
    }

    @Test(arguments: SessionUnderTest.Situation.allCases)
    func `after disconnect and connect nothing late reaches the new attempt`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        session.path(.gained)
        session.disconnect()
        session.pass(.seconds(10))
        let old = session.lastOpened.rawValue
        session.connect()
        let status = session.status
        for generation in 0...old {
            for input in lateCompletions(of: generation) { #expect(session.take(input).isEmpty) }
        }
        #expect(session.status == status)
    }

    @Test(arguments: [SessionUnderTest.Situation.flushing, .sayingGoodbye, .disconnected])
    func `a daemon that stops does not hide a disconnect by hand`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        if situation == .disconnected { session.disconnect() }
        session.disconnect(.shutdown)
        #expect(session.reason == .userDisconnect)
        session.pass(.seconds(10))
        #expect(session.state == .disconnected)
        #expect(session.reason == .userDisconnect)
    }

    @Test func `a disconnect by hand while the daemon stops is remembered`() {
        var session = SessionUnderTest(.connected)
        session.disconnect(.shutdown)
        session.disconnect(.userDisconnect)
        #expect(session.reason == .userDisconnect)
    }
}
