import NIOCore
import NIOPosix
import Support
import Testing

@testable import Agent

struct TimeExtensionTests {
    @Test func `more time is asked for until the work is done`() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        let asked = Arrivals<Bool>(eventLoop: loop)
        let extending = TimeExtension(on: loop, every: .milliseconds(1)) {
            asked.assumeIsolated { $0.append(true) }
        }
        try await until("more time was asked for") { await asked.all.count >= 3 }
        extending.end()
        let count = try await loop.submit { asked.assumeIsolated { $0.all.count } }.get()
        // Another extension, which continues, shows that the time has passed.
        let others = Arrivals<Bool>(eventLoop: loop)
        let other = TimeExtension(on: loop, every: .milliseconds(1)) {
            others.assumeIsolated { $0.append(true) }
        }
        try await until("the other one has asked") { await others.all.count >= 3 }
        other.end()
        #expect(await asked.all.count == count)
        #expect(TimeExtension.requested > .nanoseconds(TimeExtension.interval.nanoseconds))
        try await group.shutdownGracefully()
    }
}
