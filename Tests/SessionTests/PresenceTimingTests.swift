import MQTT
import SessionCore
import Testing

@testable import Session

/// When other participants learn that a session is gone.
@Suite struct PresenceTimingTests {
    @Test(
        arguments: [
            // (timeout, heartbeat, keep-alive, will delay), all in seconds
            (90, 15, 15, 67), (90, 30, 22, 57), (20, 15, 5, 12), (20, 5, 5, 12), (20, 1, 1, 18), (12, 15, 3, 8),
            (5, 15, 1, 3), (1, 15, 1, 0), (3600, 65535, 900, 2250), (3600, 15, 15, 3577), (0, 15, 15, 0),
        ] as [(Int, Int, UInt16, Int)])
    func `keep-alive and will delay add up to the timeout`(
        timeout: Int, interval: Int, keepAlive: UInt16, willDelay: Int
    ) {
        let timing = PresenceTiming(timeout: .seconds(timeout), heartbeat: .seconds(interval))
        #expect(timing.keepAlive == keepAlive)
        #expect(timing.willDelay == .seconds(willDelay))
    }

    @Test func `a silent loss shows within the timeout plus a second, a noticed one after at least three fifths`() {
        for timeout in 4...7200 {
            for interval in [1, 5, 15, 30, 300] {
                let timing = PresenceTiming(timeout: .seconds(timeout), heartbeat: .seconds(interval))
                let silent = Duration.milliseconds(1500) * Int(timing.keepAlive) + timing.willDelay
                #expect(silent <= .seconds(timeout) + .seconds(1), "\(timeout) \(interval)")
                #expect(timing.willDelay * 5 >= .seconds(timeout) * 3, "\(timeout) \(interval)")
                #expect(Int(timing.keepAlive) <= max(1, timeout / 4))
            }
        }
    }
}
