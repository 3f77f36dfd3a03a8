import SessionCore
import Testing

@testable import NetworkPath

struct LookRoundTests {
    private let all = (0..<150).map { Target(session: "s", endpoint: $0) }

    @Test func `many targets are looked at in turns, and all of them once`() {
        var round = LookRound()
        round.add(all, receivedAt: Instant(nanoseconds: 1))
        var turns: [[Target]] = []
        while !round.isOver { turns.append(Array(round.turn())) }
        #expect(turns.map(\.count) == [64, 64, 22])
        #expect(turns.flatMap(\.self) == all)
    }

    @Test func `hints that keep coming put off no target`() {
        var (round, seen) = (LookRound(), [Target]())
        for time in 1...3 {
            round.add(all, receivedAt: Instant(nanoseconds: Int64(time)))
            seen += round.turn()
        }
        #expect(Set(seen) == Set(all))
        #expect(round.receivedAt == Instant(nanoseconds: 1))
    }
}
