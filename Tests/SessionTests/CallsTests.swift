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
        let taken = keys.take(key)
        let turn = try #require(taken)
        #expect(keys.take(key) == nil)
        #expect(keys.wait(for: key, call(1)) == false)
        #expect(keys.wait(for: key, call(2)) == false)
        keys.published(key, as: MessageSequence(rawValue: 7))
        #expect(keys.answered(MessageSequence(rawValue: 6)) == [])
        #expect(keys.answered(MessageSequence(rawValue: 7)) == [call(1), call(2)])
        #expect(keys.wait(for: key, call(3)) == true)
        #expect(keys.release(key, turn) == [], "the turn has ended already")
    }

    @Test func `releasing a key without a message lets the waiting calls try again`() throws {
        var keys = KeysUnderWay()
        let a = try #require(PublishKey("a"))
        let taken = keys.take(a)
        let turn = try #require(taken)
        #expect(keys.wait(for: a, call(1)) == false)
        #expect(keys.release(a, turn) == [call(1)])
        #expect(keys.take(a) != nil)
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
