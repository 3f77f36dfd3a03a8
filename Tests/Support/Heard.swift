/// What is reported to a test, in order, with nothing skipped.
public actor Heard<Element: Sendable> {
    private let stream: AsyncStream<Element>
    private let continuation: AsyncStream<Element>.Continuation

    public init() {
        (stream, continuation) = AsyncStream.makeStream()
    }

    /// Can be called from any thread.
    public nonisolated func append(_ element: Element) { continuation.yield(element) }

    /// Waits for the next one.
    public func next() async -> Element? {
        // An iterator has no state of its own: it takes from the stream.
        var iterator = stream.makeAsyncIterator()
        return await iterator.next(isolation: self)
    }
}
