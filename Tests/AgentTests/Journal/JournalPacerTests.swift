import SessionCore
import Testing

@testable import Agent

@Suite struct JournalPacerTests {
    @Test func `the first lines of a minute are written, the rest are counted and summed up once`() {
        var pacer = JournalPacer()
        let start = Instant(nanoseconds: 1_000_000_000)
        for _ in 0..<JournalPacer.burst { #expect(pacer.take(at: start) == .write) }
        let end = start.advanced(by: JournalPacer.period)
        #expect(pacer.take(at: start.advanced(by: .seconds(1))) == .count(until: end))
        #expect(pacer.take(at: start.advanced(by: .seconds(2))) == .countMore)
        #expect(pacer.take(at: end.advanced(by: .seconds(2))) == .countMore, "until the summary was asked for")
        #expect(pacer.summary() == 3)
        #expect(pacer.take(at: end) == .write)
    }

    @Test func `a rare line is always written`() {
        var pacer = JournalPacer()
        var now = Instant(nanoseconds: 0)
        for _ in 0..<100 {
            #expect(pacer.take(at: now) == .write)
            now = now.advanced(by: .seconds(20))
        }
        #expect(!pacer.isIdle(at: now))
        #expect(pacer.isIdle(at: now.advanced(by: .seconds(60))))
    }
}
