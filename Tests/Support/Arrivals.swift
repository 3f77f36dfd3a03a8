public import NIOCore

/// What arrives at a test, in order, and the test that waits for some of it. A test waits for an event, never for a
/// time; the time limit only makes a test that waits in vain fail instead of hanging.
public actor Arrivals<Element: Sendable> {
    /// What was waited for did not arrive; `seen` is what arrived instead.
    public struct Missing: Error, CustomStringConvertible {
        public var seen: String
        public var description: String { "what the test waits for did not arrive; since the last match came: \(seen)" }
    }

    private struct Waiter {
        var take: (Element) -> Bool
        var giveUp: (Missing) -> Void
    }

    private nonisolated let eventLoop: any EventLoop
    public nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    /// Everything that ever arrived.
    public private(set) var all: [Element] = []
    private var next = 0
    private var waiter: Waiter?
    private var waits = 0
    private let limit: TimeAmount

    public init(eventLoop: any EventLoop, limit: TimeAmount = .seconds(180)) {
        self.eventLoop = eventLoop
        self.limit = limit
    }

    public func append(_ element: Element) {
        all.append(element)
        guard let waiter else { return }
        next = all.count
        if waiter.take(element) { self.waiter = nil }
    }

    /// Waits for the next element for which `match` has a value, skipping those before it. Only one caller may wait at
    /// a time.
    public func first<Value: Sendable>(_ match: @escaping @Sendable (Element) -> Value?) async throws -> Value {
        precondition(waiter == nil, "one test waits for one thing at a time")
        while next < all.count {
            defer { next += 1 }
            if let value = match(all[next]) { return value }
        }
        let start = next
        return try await withCheckedThrowingContinuation { continuation in
            waits += 1
            countDown(limit, of: waits, from: start)
            waiter = Waiter(
                take: { element in
                    guard let value = match(element) else { return false }
                    continuation.resume(returning: value)
                    return true
                }, giveUp: { continuation.resume(throwing: $0) })
        }
    }

    /// Counts the time down in turns of the loop, like `Patience`.
    private func countDown(_ left: TimeAmount, of wait: Int, from start: Int) {
        eventLoop.assumeIsolated().scheduleTask(in: min(left, .seconds(1))) {
            self.assumeIsolated { arrivals in
                guard arrivals.waiter != nil, arrivals.waits == wait else { return }
                if left <= .seconds(1) { return arrivals.giveUp(start) }
                arrivals.countDown(left - .seconds(1), of: wait, from: start)
            }
        }
    }

    private func giveUp(_ start: Int) {
        guard let waiter else { return }
        self.waiter = nil
        waiter.giveUp(Missing(seen: all[start...].suffix(20).map { "\($0)" }.joined(separator: "\n")))
    }
}
