internal import ControlAPI

/// Identifies a watch or subscription of this client for as long as it lasts, across connections.
struct FeedID: Hashable, Sendable {
    enum Kind {
        case watch, subscription, consumer
    }

    var number: Int64
    var kind: Kind
}

/// The writing end of a sequence that outlives connections. The sequence is bounded; what it drops is counted.
struct Feed<Element: Sendable> {
    private let continuation: AsyncThrowingStream<Element, any Error>.Continuation
    private let dropped: @Sendable (Int) -> Element
    private var droppedCount = 0

    init(
        _ continuation: AsyncThrowingStream<Element, any Error>.Continuation,
        dropped: @escaping @Sendable (Int) -> Element
    ) {
        self.continuation = continuation
        self.dropped = dropped
    }

    mutating func send(_ element: Element) {
        // The count comes first, at the place where the elements are missing.
        if droppedCount > 0 {
            guard case .enqueued = continuation.yield(dropped(droppedCount)) else {
                droppedCount += 1
                return
            }
            droppedCount = 0
        }
        if case .dropped = continuation.yield(element) { droppedCount += 1 }
    }

    func finish(throwing error: ClientError?) {
        continuation.finish(throwing: error)
    }
}

/// A watch of this client.
struct WatchFeed {
    var session: String?
    /// The sequence number of the last event seen, from which the watch continues after a restart of the daemon.
    var since: Int64?
    /// The epoch that `since` belongs to.
    var epoch: String?
    /// The daemon's id for the watch on this connection.
    var id: WatchID?
    var feed: Feed<SessionWatch.Element>
}

/// A subscription of this client.
struct SubscriptionFeed {
    var parameters: MessageSubscribeMethod.Parameters
    /// The daemon's id for the subscription on this connection.
    var id: SubscriptionID?
    var feed: Feed<MessageSubscription.Element>
}

/// Iterates a sequence of a client.
public struct FeedIterator<Element: Sendable>: AsyncIteratorProtocol {
    var base: AsyncThrowingStream<Element, any Error>.AsyncIterator
    /// Keeps the client alive: the reader of the sequence needs its connection.
    let client: HoldfastClient

    /// Returns the next element, or `nil` when the client was closed. Throws a ``ClientError``.
    public mutating func next(isolation: isolated (any Actor)? = #isolation) async throws -> Element? {
        try await base.next(isolation: isolation)
    }
}
