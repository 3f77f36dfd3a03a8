internal import ControlAPI
internal import NIOCore
internal import Synchronization

/// Identifies a watch or subscription of this client for as long as it lasts, across connections.
struct FeedID: Hashable, Sendable {
    enum Kind {
        case watch, subscription, consumer
    }

    var number: Int64
    var kind: Kind
}

/// An element that waits for its reader, with the length of what the daemon wrote.
struct Buffered<Element: Sendable>: Sendable {
    var element: Element
    var bytes = 0
}

/// What the reader of a bounded sequence and its client share.
final class Gap: Sendable {
    /// Whether the sequence has dropped elements of which its reader has not been told. The reader looks at it when it takes
    /// an element, and then lets the client tell it: otherwise, only the next element would.
    let isOpen = Atomic(false)
    /// How many bytes wait for the reader.
    let bytes = Atomic(0)
}

/// The writing end of a sequence that outlives connections. The sequence is bounded; what it drops is counted.
struct Feed<Element: Sendable> {
    private let continuation: AsyncThrowingStream<Buffered<Element>, any Error>.Continuation
    private let maximumBytes: Int
    private let dropped: @Sendable (Int) -> Element
    private var droppedCount = 0
    let gap = Gap()

    init(
        _ continuation: AsyncThrowingStream<Buffered<Element>, any Error>.Continuation, maximumBytes: Int,
        dropped: @escaping @Sendable (Int) -> Element
    ) {
        self.continuation = continuation
        self.maximumBytes = maximumBytes
        self.dropped = dropped
    }

    mutating func send(_ element: Element, bytes: Int = 0) {
        // The count comes first, at the place where the elements are missing.
        guard tellDropped() else {
            droppedCount += 1
            return
        }
        let waiting = gap.bytes.load(ordering: .sequentiallyConsistent)
        if waiting == 0 || waiting + bytes <= maximumBytes {
            gap.bytes.add(bytes, ordering: .sequentiallyConsistent)
            guard case .dropped = continuation.yield(Buffered(element: element, bytes: bytes)) else { return }
            gap.bytes.subtract(bytes, ordering: .sequentiallyConsistent)
        }
        droppedCount = 1
        gap.isOpen.store(true, ordering: .sequentiallyConsistent)
        // The reader may have taken the last element before it could see this.
        tellDropped()
    }

    /// Tells the reader how many elements were dropped, if there is room for more than that.
    ///
    /// - Returns: whether the reader has been told of all of them.
    @discardableResult mutating func tellDropped() -> Bool {
        guard droppedCount > 0 else { return true }
        guard gap.bytes.load(ordering: .sequentiallyConsistent) <= maximumBytes / 2,
            case .enqueued = continuation.yield(Buffered(element: dropped(droppedCount)))
        else { return false }
        droppedCount = 0
        gap.isOpen.store(false, ordering: .releasing)
        return true
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
    var base: AsyncThrowingStream<Buffered<Element>, any Error>.AsyncIterator
    /// Keeps the client alive: the reader of the sequence needs its connection.
    let client: HoldfastClient
    /// The feed, if it may drop elements.
    var bounded: (id: FeedID, gap: Gap)?

    /// Returns the next element, or `nil` when the client was closed. Throws a ``ClientError``.
    public mutating func next(isolation: isolated (any Actor)? = #isolation) async throws -> Element? {
        let next = try await base.next(isolation: isolation)
        if let (id, gap) = bounded {
            gap.bytes.subtract(next?.bytes ?? 0, ordering: .sequentiallyConsistent)
            if gap.isOpen.load(ordering: .sequentiallyConsistent) {
                let client = client
                client.eventLoop.execute { client.assumeIsolated { $0.tellDropped(id) } }
            }
        }
        return next?.element
    }
}
