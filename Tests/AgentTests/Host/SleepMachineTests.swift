import SessionCore
import Testing

@testable import Agent
@testable import NetworkPath

@Suite struct SleepMachineTests {
    /// The host's clocks, which a test moves.
    private struct Host {
        var clocks = ClockReading(
            boot: Instant(nanoseconds: 1_000_000_000_000), awake: .seconds(900), wall: .seconds(1_800_000_000))
        var machine: SleepMachine

        init(leave: Bool = true) {
            machine = SleepMachine(clocks)
            _ = machine.handle(.sessionsChanged(leave: leave), at: clocks)
        }

        mutating func take(_ input: SleepMachine.Input) -> [SleepMachine.Action] { machine.handle(input, at: clocks) }

        mutating func pass(_ duration: Duration) {
            sleep(duration)
            clocks.awake += duration
        }

        mutating func sleep(_ duration: Duration) {
            clocks.boot = clocks.boot.advanced(by: duration)
            clocks.wall += duration
        }
    }

    @Test func `sessions leave before sleep, and two reports of its end wake them once`() {
        for kernelIsFirst in [true, false] {
            var host = Host()
            #expect(host.take(.sleepIsNear) == [.leave])
            host.pass(.seconds(1))
            #expect(host.take(.sessionsLeft) == [.inhibit(false)])
            host.sleep(.seconds(8 * 3600))
            if kernelIsFirst {
                #expect(host.take(.clockJumped) == [.wake(slept: .seconds(8 * 3600))])
                host.pass(.seconds(2))
                #expect(host.take(.sleepIsOver) == [.inhibit(true)])
            } else {
                #expect(host.take(.sleepIsOver) == [.wake(slept: .seconds(8 * 3600)), .inhibit(true)])
                #expect(host.take(.clockJumped) == [])
            }
            #expect(host.machine.nextDeadline == nil)
            #expect(host.take(.sleepIsNear) == [.leave])
        }
    }

    @Test func `a sleep that does not happen ends like one that did`() {
        var host = Host()
        #expect(host.take(.sleepIsNear) == [.leave])
        #expect(host.take(.sessionsLeft) == [.inhibit(false)])
        host.pass(.seconds(1))
        #expect(host.take(.sleepIsOver) == [.wake(slept: .zero), .inhibit(true)])
    }

    @Test func `sessions that fail to leave do not keep the host awake`() {
        var host = Host()
        #expect(host.take(.sleepIsNear) == [.leave])
        host.pass(.seconds(3))
        #expect(host.take(.timeReached) == [])
        host.pass(.seconds(1))
        #expect(host.take(.timeReached) == [.inhibit(false)])
        #expect(host.take(.sessionsLeft) == [])
        host.sleep(.seconds(10))
        #expect(host.take(.clockJumped) == [.wake(slept: .seconds(10))])
    }

    @Test func `sessions come back when the end of sleep is not announced`() {
        var host = Host()
        #expect(host.take(.sleepIsNear) == [.leave])
        #expect(host.take(.sessionsLeft) == [.inhibit(false)])
        host.pass(.seconds(60))
        #expect(host.take(.timeReached) == [.wake(slept: .zero), .inhibit(true)])
        #expect(host.machine.nextDeadline == nil)
    }

    @Test(arguments: [true, false])
    func `a logind that is lost before sleep brings the sessions back`(haveLeft: Bool) {
        var host = Host()
        #expect(host.take(.sleepIsNear) == [.leave])
        if haveLeft { #expect(host.take(.sessionsLeft) == [.inhibit(false)]) }
        #expect(host.take(.logindLost) == [.wake(slept: .zero), .inhibit(true)])
    }

    @Test func `a sleep announced after it is over makes no session leave`() {
        var host = Host()
        host.sleep(.seconds(100))
        #expect(host.take(.sleepIsNear) == [.wake(slept: .seconds(100)), .inhibit(false)])
        #expect(host.take(.clockJumped) == [])
        #expect(host.take(.sleepIsOver) == [.inhibit(true)])
    }

    @Test func `sleep is detected by the clocks without logind`() {
        var host = Host()
        host.pass(.seconds(1000))
        #expect(host.take(.clockJumped) == [])
        host.sleep(.seconds(90))
        #expect(host.take(.clockJumped) == [.wake(slept: .seconds(90))])
    }

    @Test func `a clock that is set is not mistaken for sleep`() {
        var host = Host()
        host.clocks.wall -= .seconds(3600)
        #expect(host.take(.clockJumped) == [.judgeDates(step: .seconds(-3600))])
        #expect(host.take(.sleepIsNear) == [.leave])
        host.clocks.wall += .seconds(7200)
        #expect(host.take(.clockJumped) == [.judgeDates(step: .seconds(7200))])
        #expect(host.take(.sessionsLeft) == [.inhibit(false)])
    }

    @Test func `sleep is delayed only while sessions want to leave`() {
        var host = Host(leave: false)
        #expect(host.take(.sessionsChanged(leave: true)) == [.inhibit(true)])
        #expect(host.take(.sessionsChanged(leave: false)) == [.inhibit(false)])
        #expect(host.take(.sleepIsNear) == [.leave])
        #expect(host.take(.sessionsChanged(leave: true)) == [])
        #expect(host.take(.sessionsLeft) == [.inhibit(false)])
        #expect(host.take(.sleepIsOver) == [.wake(slept: .zero), .inhibit(true)])
    }

    @Test func `a recurring message is written once an hour, with its count`() {
        var count = HourlyCount()
        var written: [Int] = []
        for second in stride(from: Int64(0), to: 3 * 3600, by: 30) {
            if let unwritten = count.take(at: Instant(nanoseconds: second * 1_000_000_000)) {
                written.append(unwritten)
            }
        }
        #expect(written == [0, 119, 119])
    }
}
