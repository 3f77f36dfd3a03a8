import SessionCore
import Testing

@testable import NetworkPath

@Suite struct HintPacerTests {
    private func at(_ milliseconds: Int64) -> Instant {
        Instant(nanoseconds: 3_600_000_000_000 + milliseconds * 1_000_000)
    }

    @Test func `a quiet network has no deadline`() {
        #expect(HintPacer().nextDeadline == nil)
    }

    @Test func `a single hint is checked at once, again after 20 ms, and the tables are read`() {
        var pacer = HintPacer()
        #expect(pacer.hinted(at: at(0)) == [.look])
        #expect(pacer.nextDeadline == at(20))
        #expect(pacer.deadlineReached(at: at(20)) == [.look, .dump])
        #expect(pacer.nextDeadline == nil)
    }

    @Test func `the first hints of a burst are checked without waiting`() {
        var pacer = HintPacer()
        for time in Int64(0)..<Int64(HintPacer.promptLooks) { #expect(pacer.hinted(at: at(time)) == [.look]) }
        #expect(pacer.hinted(at: at(Int64(HintPacer.promptLooks))) == [])
        #expect(pacer.nextDeadline == at(27))
    }

    @Test func `a look that the kernel does not answer is repeated a second later`() {
        var pacer = HintPacer()
        pacer.lookFailed(at: at(0))
        #expect(pacer.nextDeadline == at(1000))
        #expect(pacer.deadlineReached(at: at(999)) == [])
        #expect(pacer.deadlineReached(at: at(1000)) == [.look])
        #expect(pacer.nextDeadline == nil)
        // It is also repeated after a burst.
        #expect(pacer.hinted(at: at(2000)) == [.look])
        pacer.lookFailed(at: at(2000))
        #expect(pacer.deadlineReached(at: at(2020)) == [.look, .dump])
        #expect(pacer.deadlineReached(at: at(3000)) == [.look])
        #expect(pacer.nextDeadline == nil)
    }

    @Test func `hints that keep coming are checked every 20 ms`() {
        var pacer = HintPacer()
        var looks: [Int64] = []
        for time in Int64(0)..<100 {
            if let deadline = pacer.nextDeadline, deadline <= at(time),
                pacer.deadlineReached(at: at(time)).contains(.look)
            {
                looks.append(time)
            }
            if pacer.hinted(at: at(time)).contains(.look) { looks.append(time) }
        }
        #expect(looks == [0, 1, 2, 3, 4, 5, 6, 7, 27, 47, 67, 87])
        #expect(pacer.deadlineReached(at: at(107)) == [.look])
        #expect(pacer.deadlineReached(at: at(127)) == [.look, .dump])
        #expect(pacer.nextDeadline == nil)
    }

    @Test func `a hint need not wait for a late timer`() {
        var pacer = HintPacer()
        for _ in 0..<HintPacer.promptLooks { #expect(pacer.hinted(at: at(0)) == [.look]) }
        #expect(pacer.hinted(at: at(5)) == [])
        #expect(pacer.hinted(at: at(31)) == [.look])
        #expect(pacer.nextDeadline == at(51))
    }

    @Test func `the tables are read at most once a second`() {
        var pacer = HintPacer()
        _ = pacer.hinted(at: at(0))
        #expect(pacer.deadlineReached(at: at(20)) == [.look, .dump])
        _ = pacer.hinted(at: at(100))
        #expect(pacer.deadlineReached(at: at(120)) == [.look])
        #expect(pacer.nextDeadline == at(1020))
        #expect(pacer.deadlineReached(at: at(1020)) == [.dump])
        #expect(pacer.nextDeadline == nil)
    }

    @Test func `endless hints do not prevent a fresh snapshot`() {
        var pacer = HintPacer()
        var dumps: [Int64] = []
        for time in Int64(0)..<3000 {
            if let deadline = pacer.nextDeadline, deadline <= at(time),
                pacer.deadlineReached(at: at(time)).contains(.dump)
            {
                dumps.append(time)
            }
            _ = pacer.hinted(at: at(time))
        }
        #expect(dumps == [1027, 2047])
    }

    @Test func `tables that could not be read are read a second later`() {
        var pacer = HintPacer()
        _ = pacer.hinted(at: at(0))
        #expect(pacer.deadlineReached(at: at(20)) == [.look, .dump])
        pacer.dumpFailed(at: at(25))
        #expect(pacer.nextDeadline == at(1025))
        #expect(pacer.deadlineReached(at: at(1025)) == [.dump])
        #expect(pacer.nextDeadline == nil)
    }

    @Test func `a timer that fires early does nothing`() {
        var pacer = HintPacer()
        _ = pacer.hinted(at: at(0))
        #expect(pacer.deadlineReached(at: at(19)) == [])
        #expect(pacer.nextDeadline == at(20))
    }

    /// Whatever comes when, a deadline that is served is over: otherwise the watcher would spin.
    @Test(arguments: UInt64(0)..<200) func `a served deadline is over`(seed: UInt64) {
        var random = seed &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        var pacer = HintPacer()
        var now = at(0)
        for _ in 0..<300 {
            random = random &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            let choice = random >> 60
            if choice < 8 {
                now = now.advanced(by: .milliseconds(Int64(random >> 32) % 40))
                _ = pacer.hinted(at: now)
            } else if choice < 9 {
                pacer.dumpFailed(at: now)
            } else if let deadline = pacer.nextDeadline {
                now = max(now, deadline)
                _ = pacer.deadlineReached(at: now)
            }
            if let deadline = pacer.nextDeadline, deadline <= now {
                _ = pacer.deadlineReached(at: now)
                #expect(pacer.nextDeadline.map { $0 > now } ?? true)
            }
        }
    }
}
