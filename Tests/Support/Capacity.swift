import Foundation

/// A number of things that may be under way at a time; who comes when there is no room waits its turn.
package actor Capacity {
    package let total: Int
    private var free: Int
    private var waiters: [(share: Int, continuation: CheckedContinuation<Void, Never>)] = []

    package init(_ total: Int) { (self.total, free) = (total, total) }

    /// How many threads can run at once here.
    package static var processors: Int { ProcessInfo.processInfo.activeProcessorCount }

    /// Takes a share, runs `body`, and gives the share back.
    package nonisolated func withShare<Value: Sendable>(
        _ share: Int = 1, _ body: () async throws -> Value
    ) async rethrows -> Value {
        await take(share)
        do {
            let value = try await body()
            await give(share)
            return value
        } catch {
            await give(share)
            throw error
        }
    }

    package func take(_ share: Int = 1) async {
        if waiters.isEmpty, free >= share {
            free -= share
            return
        }
        await withCheckedContinuation { waiters.append((share, $0)) }
    }

    package func give(_ share: Int = 1) {
        free += share
        while let first = waiters.first, free >= first.share {
            free -= first.share
            waiters.removeFirst().continuation.resume()
        }
    }
}
