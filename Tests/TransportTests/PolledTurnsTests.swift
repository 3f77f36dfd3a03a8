import NIOCore
import NIOPosix
import Testing

@testable import Transport

@Suite(.timeLimit(.minutes(10))) struct PolledTurnsTests {
    private let loop = MultiThreadedEventLoopGroup.singleton.next()

    /// Work that never ends, until it is told to.
    private final class Work {
        private let turns: PolledTurns
        private(set) var count = 0
        var isOver = false

        init(_ turns: PolledTurns) {
            self.turns = turns
        }

        func go() {
            count += 1
            if !isOver { turns.wait { self.go() } }
        }
    }

    @Test func `what arrives for others comes after a few turns, however much work there is`() async throws {
        let turns = try await PolledTurns.open(on: loop)
        let (works, other) = try await loop.submit { [loop] in
            (
                NIOLoopBound((1...20).map { _ in Work(turns) }, eventLoop: loop),
                NIOLoopBoundBox<LoopPoll?>(nil, eventLoop: loop)
            )
        }.get()
        let (counts, counted) = AsyncStream.makeStream(of: Int.self)
        let arrival = try await LoopPoll.open(on: loop) {
            counted.yield(works.value.reduce(0) { $0 + $1.count })
            other.value?.ask()
        }
        try await loop.submit {
            other.value = arrival
            for work in works.value { work.go() }
            arrival.ask()
        }.get()
        var last = 20
        for await count in counts.prefix(100) {
            #expect(count - last <= 2 * PolledTurns.turnsPerPoll)
            last = count
        }
        #expect(last > 20, "the work goes on as well")
        try await loop.submit {
            for work in works.value { work.isOver = true }
            other.value = nil
            arrival.close()
            turns.close()
        }.get()
    }

    @Test func `those that wait have their turn even if there are no more polls`() async throws {
        let turns = try await PolledTurns.open(on: loop)
        try await withCheckedThrowingContinuation { (taken: CheckedContinuation<Void, any Error>) in
            loop.execute {
                turns.wait { taken.resume() }
                turns.close()
            }
        }
    }
}
