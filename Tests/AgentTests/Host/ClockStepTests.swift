import MQTT
import SessionCore
import Testing

@testable import Agent

@Suite struct ClockStepTests {
    private static func instant(_ milliseconds: Int64) -> Instant { Instant(nanoseconds: milliseconds * 1_000_000) }

    @Test func `passing time is not a step, nor is a clock that is a little fast`() {
        var detector = ClockStepDetector(now: Self.instant(1000), wallClock: 1_000_000)
        #expect(detector.check(now: Self.instant(901_000), wallClock: 1_900_000) == nil)
        for second: Int64 in 1...100 {
            #expect(
                detector.check(now: Self.instant(901_000 + second * 1000), wallClock: 1_900_000 + second * 1100) == nil)
        }
    }

    @Test(arguments: [Int64(1_790_000_000_000), -3_600_000])
    func `a step is reported once, with the range of times before it since the boot`(step: Int64) {
        var detector = ClockStepDetector(now: Self.instant(10_000), wallClock: 50_000)
        let found = detector.check(now: Self.instant(20_000), wallClock: 60_000 + step)
        #expect(
            found
                == .init(milliseconds: step, affected: Timestamp(rawValue: 40_000)...Timestamp(rawValue: 60_000)))
        #expect(detector.check(now: Self.instant(21_000), wallClock: 61_000 + step) == nil)
    }
}
