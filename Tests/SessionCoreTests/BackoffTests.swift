import Testing

@testable import SessionCore

@Suite struct BackoffTests {
    @Test func `delays without an answer are exactly the table's, and the last one repeats`() {
        var backoff = Backoff(seed: 1)
        let delays = (0..<13).map { _ in backoff.nextDelay(after: .unanswered, policy: .init()) }
        #expect(
            delays == [
                .milliseconds(50), .milliseconds(250), .milliseconds(500), .seconds(1), .seconds(2), .seconds(4),
                .seconds(8), .seconds(16), .seconds(32), .seconds(64), .seconds(64), .seconds(64), .seconds(64),
            ])
    }

    @Test(arguments: 1...200)
    func `the first delay after a remote cause is within spread, later ones within the table's values`(seed: UInt64) {
        var backoff = Backoff(seed: seed)
        let policy = ReconnectPolicy()
        let first = backoff.nextDelay(after: .remote, policy: policy)
        #expect((Duration.zero...policy.spread).contains(first))
        for entry in policy.delays.dropFirst() + [.seconds(64), .seconds(64)] {
            let delay = backoff.nextDelay(after: .remote, policy: policy)
            #expect((Duration.zero...entry).contains(delay))
        }
    }

    @Test func `a limit replaces the table's longer values before the randomness, so that delays do not meet there`() {
        let delays = (UInt64(1)...400).map { seed in
            var backoff = Backoff(seed: seed)
            return (0..<10).map { _ in backoff.nextDelay(after: .remote, within: .seconds(15), policy: .init()) }.last
        }.compactMap(\.self)
        #expect(delays.allSatisfy { $0 <= .seconds(15) })
        #expect((60...140).contains(delays.count { $0 > .seconds(11.25) }))
        #expect(Set(delays).count > 390)
    }

    @Test func `random first delays use the whole range and do not cluster`() {
        let policy = ReconnectPolicy()
        let firsts = (UInt64(1)...400).map { seed in
            var backoff = Backoff(seed: seed)
            return backoff.nextDelay(after: .remote, policy: policy)
        }
        for quarter in 0..<4 {
            let range = policy.spread * quarter / 4..<policy.spread * (quarter + 1) / 4
            #expect((60...140).contains(firsts.count { range.contains($0) }))
        }
        #expect(Set(firsts).count > 390)
    }

    @Test func `the same seed gives the same delays, another seed gives others`() {
        func delays(seed: UInt64) -> [Duration] {
            var backoff = Backoff(seed: seed)
            return (0..<10).map { _ in backoff.nextDelay(after: .remote, policy: .init()) }
        }
        #expect(delays(seed: 7) == delays(seed: 7))
        #expect(delays(seed: 7) != delays(seed: 8))
    }

    @Test func `a spread of zero turns all randomness off`() {
        var backoff = Backoff(seed: 1)
        let delays = (0..<12).map { _ in backoff.nextDelay(after: .remote, policy: .exact) }
        #expect(delays == ReconnectPolicy.exact.delays + [.seconds(64), .seconds(64)])
    }

    @Test(arguments: [Backoff.Cause.unanswered, .remote], UInt64(1)...50)
    func `jitter lengthens every delay of the table`(cause: Backoff.Cause, seed: UInt64) {
        var policy = ReconnectPolicy.exact
        policy.jitter = .milliseconds(700)
        var backoff = Backoff(seed: seed)
        for entry in policy.delays + [.seconds(64), .seconds(64)] {
            let delay = backoff.nextDelay(after: cause, policy: policy)
            #expect((entry...entry + policy.jitter).contains(delay))
        }
    }

    @Test func `jitter uses its whole range`() {
        var policy = ReconnectPolicy.exact
        policy.jitter = .seconds(1)
        var backoff = Backoff(seed: 5)
        let extra = (0..<400).map { _ in
            backoff.restart()
            return backoff.nextDelay(after: .unanswered, policy: policy) - policy.delays[0]
        }
        for quarter in 0..<4 {
            let range = policy.jitter * quarter / 4..<policy.jitter * (quarter + 1) / 4
            #expect((60...140).contains(extra.count { range.contains($0) }))
        }
    }

    @Test func `a busy server's floor doubles up to the table's end`() {
        var backoff = Backoff(seed: 1)
        let floors = (0..<6).map { _ in backoff.nextDelay(after: .floor, policy: .exact) }
        #expect(floors == [.seconds(5), .seconds(10), .seconds(20), .seconds(40), .seconds(64), .seconds(64)])
    }

    @Test(arguments: 1...100)
    func `a busy server is never tried before its floor, and by each session at a different moment`(seed: UInt64) {
        var backoff = Backoff(seed: seed)
        let first = backoff.nextDelay(after: .floor, policy: .init())
        let second = backoff.nextDelay(after: .floor, policy: .init())
        #expect((Duration.seconds(5)...Duration.seconds(6)).contains(first))
        #expect((Duration.seconds(10)...Duration.seconds(11)).contains(second))
        let firsts = (seed..<seed + 20).map { seed in
            var backoff = Backoff(seed: seed)
            return backoff.nextDelay(after: .floor, policy: .init())
        }
        #expect(Set(firsts).count > 15)
    }

    @Test func `a restarted table starts again with its first delay and the first floor`() {
        var backoff = Backoff(seed: 1)
        for _ in 0..<5 { _ = backoff.nextDelay(after: .floor, policy: .exact) }
        backoff.restart()
        #expect(backoff.isAtStart)
        #expect(backoff.nextDelay(after: .unanswered, policy: .exact) == .milliseconds(50))
        backoff.restart()
        #expect(backoff.nextDelay(after: .floor, policy: .exact) == .seconds(5))
    }

    @Test(arguments: [
        (Reason.Code.unreachable, Backoff.Cause.unanswered), (.dialTimeout, .unanswered), (.dnsFailed, .unanswered),
        (.heartbeatTimeout, .unanswered), (.probeTimeout, .unanswered), (.pathLost, .unanswered),
        (.unknown, .remote), (.refused, .remote), (.reset, .remote), (.tlsFailed, .remote),
        (.proxyFailed, .remote), (.webSocketFailed, .remote),
        (.serverClosed, .remote), (.serverShutdown, .remote), (.serverError, .remote), (.serverMoved, .remote),
        (.authenticateTimeout, .remote), (.restoreTimeout, .remote), (.serverBusy, .floor), (.rateLimited, .floor),
    ])
    func `the cause depends on who answered`(code: Reason.Code, cause: Backoff.Cause) {
        #expect(NextAttempt(after: code).cause == cause)
    }
}

@Suite struct HasteLimiterTests {
    private static let start = Instant(nanoseconds: 0)

    @Test func `the first attempt is hastened at once, the next one a second later`() {
        var haste = HasteLimiter()
        #expect(haste.next(at: Self.start) == Self.start)
        haste.hastened(at: Self.start)
        let soon = Self.start.advanced(by: .milliseconds(10))
        #expect(haste.next(at: soon) == Self.start.advanced(by: .seconds(1)))
        let second = Self.start.advanced(by: .seconds(1))
        #expect(haste.next(at: second) == second)
    }

    @Test func `the seventh early attempt within a minute waits until the first is a minute old`() {
        var haste = HasteLimiter()
        for number in 0..<6 { haste.hastened(at: Self.start.advanced(by: .seconds(number * 2))) }
        #expect(haste.next(at: Self.start.advanced(by: .seconds(15))) == Self.start.advanced(by: .seconds(60)))
        let later = Self.start.advanced(by: .seconds(60))
        #expect(haste.next(at: later) == later)
    }

    @Test func `after a slow ending all clients wait for the floor, and spread over the table's delay if they may`() {
        var exact = Backoff(seed: 1)
        #expect(
            (0..<12).map { _ in exact.nextDelay(after: .slow, policy: .exact) }
                == Array(repeating: .seconds(5), count: 12))
        var policy = ReconnectPolicy()
        policy.delays = [.seconds(60)]
        let delays = (UInt64(1)...100).map { seed in
            var backoff = Backoff(seed: seed)
            return backoff.nextDelay(after: .slow, policy: policy)
        }
        #expect(delays.allSatisfy { (.seconds(5)...(.seconds(60))).contains($0) })
        #expect(delays.contains { $0 < .seconds(20) } && delays.contains { $0 > .seconds(45) })
    }
}
