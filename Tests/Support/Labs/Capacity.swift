import Foundation

/// The number of things that may be under way at a time; when there is no room, callers wait their turn.
package actor Capacity {
    private var free: Int
    private var waiters: [CheckedContinuation<Void, Never>] = []

    package init(_ total: Int) { free = total }

    /// How many threads can run at once on this machine.
    package static var processors: Int { ProcessInfo.processInfo.activeProcessorCount }

    /// Takes a share, runs `body`, and gives the share back.
    package nonisolated func withShare<Value: Sendable>(_ body: () async throws -> Value) async rethrows -> Value {
        await take()
        do {
            let value = try await body()
            await give()
            return value
        } catch {
            await give()
            throw error
        }
    }

    package func take() async {
        guard free == 0 else {
            free -= 1
            return
        }
        await withCheckedContinuation { waiters.append($0) }
    }

    /// A waiting caller gets the share at once, so a later caller cannot take it.
    package func give() {
        if waiters.isEmpty { free += 1 } else { waiters.removeFirst().resume() }
    }
}
