import SessionCore
import Testing

@testable import Session

@Suite struct InboxLossesTests {
    private var losses = InboxLosses()

    private static func at(_ seconds: Double) -> Instant { Instant(nanoseconds: Int64(seconds * 1e9)) }

    @Test mutating func `messages dropped within a second are reported together`() {
        #expect(losses.nextDeadline == nil)
        losses.dropped(2, at: Self.at(0))
        losses.dropped(3, at: Self.at(0.5))
        #expect(losses.nextDeadline == Self.at(1))
        #expect(losses.timeReached(at: Self.at(0.9)) == [])
        #expect(losses.timeReached(at: Self.at(1)) == [.tellDropped(5)])
        #expect(losses.nextDeadline == nil)
        #expect(losses.dropped == 5)
    }

    @Test mutating func `collecting resumes after the pause`() {
        losses.collectingPaused(for: .seconds(2), at: Self.at(0))
        losses.collectingPaused(for: .seconds(2), at: Self.at(1))
        #expect(losses.nextDeadline == Self.at(2))
        #expect(losses.timeReached(at: Self.at(2)) == [.resumeCollecting])
        #expect(losses.nextDeadline == nil)
    }

    @Test mutating func `pause and report have their own deadlines`() {
        losses.collectingPaused(for: .seconds(2), at: Self.at(0))
        losses.dropped(1, at: Self.at(0.5))
        #expect(losses.timeReached(at: Self.at(1.5)) == [.tellDropped(1)])
        #expect(losses.nextDeadline == Self.at(2))
    }
}
