public import ControlAPI

/// What happens to sessions: first a snapshot, then the changes. Goes on when the daemon restarts.
///
/// Ends with an error when the daemon refuses the watch, and without one when the client is closed. At most
/// ``HoldfastClient/Options/bufferedElements`` wait to be taken; what comes after is dropped and counted.
public struct SessionWatch: AsyncSequence, Sendable {
    public enum Element: Hashable, Sendable {
        /// The state of all watched sessions: at the beginning, and again when the daemon was away. When its `restarted`
        /// is set, the daemon was restarted: what happened until the previous one ended is not known, and the
        /// events that follow are numbered from 1 again.
        case snapshot(SessionWatchMethod.Result)
        case event(SessionEvent)
        /// The connection to the daemon ended. It is being made again; a snapshot says that it is back.
        case detached(ClientError)
        /// This many elements were dropped because the reader is too slow.
        case dropped(Int)
    }

    let stream: AsyncThrowingStream<Element, any Error>
    /// Held: who reads the sequence needs the connection.
    let client: HoldfastClient

    public func makeAsyncIterator() -> FeedIterator<Element> {
        FeedIterator(base: stream.makeAsyncIterator(), client: client)
    }
}

/// The messages of a live subscription. Goes on when the daemon restarts; what is sent meanwhile is not received.
///
/// Ends with an error when the daemon refuses the subscription, and without one when the client is closed. At most
/// ``HoldfastClient/Options/bufferedElements`` wait to be taken; what comes after is dropped and counted.
public struct MessageSubscription: AsyncSequence, Sendable {
    public enum Element: Hashable, Sendable {
        /// The subscription is made: at the beginning, and again when the daemon was away.
        case subscribed(MessageSubscribeMethod.Result)
        case message(ReceivedMessage)
        /// The connection to the daemon ended. It is being made again; `subscribed` says that it is back.
        case detached(ClientError)
        /// This many elements were dropped because the reader is too slow.
        case dropped(Int)
    }

    let stream: AsyncThrowingStream<Element, any Error>
    /// Held: who reads the sequence needs the connection.
    let client: HoldfastClient

    public func makeAsyncIterator() -> FeedIterator<Element> {
        FeedIterator(base: stream.makeAsyncIterator(), client: client)
    }
}
