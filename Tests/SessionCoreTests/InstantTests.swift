import Testing

@testable import SessionCore

@Suite struct `An instant` {
    @Test(arguments: [(2, .min + 1, .min), (-2, .max, .max), (5, 3, -2)] as [(Int64, Int64, Int64)])
    func `gives the longest duration to another one that is too far away`(from: Int64, to: Int64, expected: Int64) {
        let duration = Instant(nanoseconds: from).duration(to: Instant(nanoseconds: to))
        #expect(duration.nanoseconds == expected)
    }
}
