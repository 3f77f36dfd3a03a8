import Testing

@testable import SessionCore

@Suite struct ResumeTests {
    private static func lost(_ code: Reason.Code = .unreachable) -> SessionUnderTest {
        var session = SessionUnderTest(.connected)
        session.end(code)
        session.wake()
        return session
    }

    @Test func `a server that has no session turns quick into full in the same attempt`() {
        var session = Self.lost()
        #expect(session.status.mode == .quick)
        #expect(session.establish(resumed: false).isEmpty)
        #expect(session.status.mode == .full)
        #expect(session.phase == .restoring)
        session.restore()
        #expect(session.status.resumed == false)
        guard case .reconnectCompleted(.full, _)? = session.events.first else {
            Issue.record("\(session.events)")
            return
        }
    }

    @Test func `full stays until a full reconnect has succeeded, although the server has the new session`() {
        var session = Self.lost()
        session.establish(resumed: false)
        session.end(.reset)
        #expect(session.status.mode == .full)
        session.wake()
        session.establish(resumed: true)
        #expect(session.status.mode == .full)
        session.restore()
        #expect(session.status.resumed == false)
        #expect(session.machine.counters.resumes == 1)
        session.end(.reset)
        #expect(session.status.mode == .quick)
    }

    @Test func `full survives a disconnect and connect`() {
        var session = Self.lost()
        session.establish(resumed: false)
        session.disconnect()
        session.connect()
        session.succeed(resumed: true)
        #expect(session.status.resumed == false)
    }

    @Test func `a state mismatch on a connection discards the session at once`() {
        var session = SessionUnderTest(.connected)
        #expect(session.end(.stateMismatch) == [.open(2, discarding: true)])
        #expect(session.state == .reconnecting)
        #expect(session.status.mode == .full)
        #expect(session.events == [.reconnectStarted(.full)])
    }

    @Test func `a state mismatch in an attempt discards the session at once, wherever the table is`() {
        var session = Self.lost()
        for _ in 0..<8 {
            session.end(.unreachable)
            session.wake()
        }
        #expect(session.end(.stateMismatch) == [.open(11, discarding: true)])
        #expect(session.status.mode == .full)
    }

    @Test func `a session that the server lost is set up in full at once`() {
        var session = Self.lost()
        #expect(session.end(.sessionLost) == [.open(3)])
        #expect(session.status.mode == .full)
    }

    @Test func `a mismatch that comes again goes by the table`() {
        var session = SessionUnderTest(.authenticating)
        #expect(session.end(.stateMismatch) == [.open(2, discarding: true)])
        #expect(session.end(.stateMismatch).isEmpty)
        #expect(session.retryIn == .milliseconds(50))
        session.wake()
        session.end(.stateMismatch)
        #expect(session.retryIn == .milliseconds(250))
    }

    @Test func `a server that accepts and then disagrees each time is not hammered`() {
        var session = SessionUnderTest(.connected)
        session.end(.stateMismatch)
        for delay: Duration in [.milliseconds(250), .milliseconds(500), .seconds(1)] {
            session.succeed(resumed: false)
            #expect(session.end(.stateMismatch).isEmpty)
            #expect(session.retryIn == delay)
            #expect(session.wake().count == 1)
        }
    }

    @Test func `discarding lasts through failures until a success`() {
        var session = SessionUnderTest(.connected)
        session.end(.stateMismatch)
        session.end(.unreachable)
        #expect(session.wake() == [.open(3, discarding: true)])
        session.end(.unreachable)
        #expect(session.wake() == [.open(4, discarding: true)])
        session.succeed(resumed: false)
        session.end(.unreachable)
        #expect(session.wake() == [.open(5)])
        #expect(session.status.mode == .quick)
    }

    @Test func `what the server has discarded is not discarded again because the new session was not set up in time`() {
        var session = SessionUnderTest(.connected)
        session.end(.stateMismatch)
        session.establish(resumed: false)
        session.end(.reset)
        #expect(session.wake() == [.open(3)])
        #expect(session.status.mode == .full)
        session.establish(resumed: true)
        #expect(session.end(.stateMismatch).isEmpty, "not in a loop")
        #expect(session.wake() == [.open(4, discarding: true)])
        session.succeed(resumed: false)
        #expect(session.status.resumed == false)
    }

    @Test func `a full reconnect by hand is remembered while there is no network`() {
        var session = SessionUnderTest(.connected)
        session.path(.lost)
        session.pass(.seconds(5))
        #expect(session.reconnect(.full) == [.open(2, discarding: true)])
        session.end(.unreachable)
        #expect(session.phase == .waitingForNetwork)
        #expect(session.status.mode == .full)
        #expect(session.path(.gained) == [.open(3, discarding: true)])
    }

    @Test func `a quick reconnect by hand does not undo the full one that the server made necessary`() {
        var session = SessionUnderTest(.connected)
        session.end(.stateMismatch)
        #expect(session.reconnect(.quick) == [.abandon(2), .open(3, discarding: true)])
    }

    @Test func `a server that missed our heartbeat is reconnected to at once, but not in a loop`() {
        var session = SessionUnderTest(.connected)
        #expect(session.end(.serverKeepAliveTimeout) == [.open(2)])
        session.succeed()
        #expect(session.end(.serverKeepAliveTimeout).isEmpty)
        #expect(session.phase == .waiting)
    }
}
