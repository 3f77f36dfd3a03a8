import NIOPosix
import Support
import Testing

@testable import Agent

@Suite(.timeLimit(.minutes(10)))
struct SharedRunsTests {
    @Test func `those who come during a run share the next one`() async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let runs = SharedRuns(eventLoop: loop)
        let begun = Arrivals<Int>(eventLoop: loop)
        let (gate, open) = AsyncStream.makeStream(of: Void.self)
        let body: @Sendable () async -> Void = {
            let count = await begun.all.count
            await begun.append(count)
            if count == 0 { for await _ in gate { break } }
        }
        try await withThrowingTaskGroup(of: Int.self) { group in
            func call() {
                group.addTask {
                    await runs.run(body)
                    return await begun.all.count
                }
            }
            call()
            _ = try await begun.first { $0 == 0 ? true : nil }
            for _ in 1...50 { call() }
            while await runs.waiting.count < 50 { try Task.checkCancellation() }
            open.yield()
            let counts = try await group.reduce(into: []) { $0.append($1) }
            #expect(counts.count == 51)
            #expect(counts.filter { $0 == 2 }.count >= 50, "all but the first have waited for the second run")
        }
        #expect(await begun.all == [0, 1])
    }
}
