import ControlAPI
import MQTT
import Session
import SessionCore
import Testing

/// Calls that wait for a turn, for a key or for the outcome of a command.
struct CallsTests {
    private func call(_ number: Int) -> CallID { CallID(rawValue: number) }

    @Test func `calls take turns in the order in which they came`() {
        var turns = Turns<CallID>()
        #expect(turns.begin(call(1)) == true)
        #expect(turns.begin(call(2)) == false)
        #expect(turns.begin(call(3)) == false)
        #expect(turns.end() == call(2))
        #expect(turns.end() == call(3))
        #expect(turns.end() == nil)
        #expect(turns.begin(call(4)) == true)
    }

    @Test func `a call with a key under way waits until its message is on the disk`() throws {
        var keys = KeysUnderWay()
        let key = try #require(PublishKey("k"))
        let turn = keys.begin(key, call(1))
        #expect(turn != nil)
        #expect(keys.begin(key, call(2)) == nil)
        #expect(keys.begin(key, call(3)) == nil)
        keys.published(key, as: MessageSequence(rawValue: 7))
        #expect(keys.answered(MessageSequence(rawValue: 6)) == nil)
        let next = keys.answered(MessageSequence(rawValue: 7))
        #expect(next?.call == call(2))
        #expect(keys.end(key, try #require(turn)) == nil, "the turn has ended already")
        #expect(keys.end(key, try #require(next?.turn))?.call == call(3))
    }

    @Test func `ending the turn of a key that nobody waits for frees the key`() throws {
        var keys = KeysUnderWay()
        let key = try #require(PublishKey("a"))
        let turn = keys.begin(key, call(1))
        #expect(keys.end(key, try #require(turn)) == nil)
        #expect(keys.begin(key, call(2)) != nil)
    }

    @Test func `commands are answered by a final state or by their time limit`() {
        var waiters = OutcomeWaiters()
        let (soon, late) = (Instant(nanoseconds: 1), Instant(nanoseconds: 2))
        waiters.add(call(1), until: late)
        waiters.add(call(2), until: nil)
        waiters.add(call(3), until: soon)
        #expect(waiters.nextDeadline == soon)
        #expect(waiters.timeReached(at: soon) == [call(3)])
        #expect(waiters.nextDeadline == late)
        for state in [SessionState.connecting, .reconnecting, .disconnecting] {
            let answered = waiters.stateChanged(to: state)
            #expect(answered == nil)
        }
        let answered = waiters.stateChanged(to: .failed)
        #expect(answered?.calls == [call(1), call(2)])
        #expect(answered?.outcome == .failed)
        #expect(waiters.nextDeadline == nil)
    }
}
