public import ControlAPI

/// What happens to sessions: first a snapshot, then the changes. The sequence continues across restarts of the daemon.
///
/// It ends with an error when the daemon refuses the watch, and without one when the client is closed. At most
/// ``HoldfastClient/Options/bufferedElements`` elements with ``HoldfastClient/Options/bufferedBytes`` bytes wait for the reader;
/// further ones are dropped and counted.
public struct SessionWatch: AsyncSequence, Sendable {
    /// What a watch brings, in order.
    public enum Element: Hashable, Sendable {
        /// The state of all watched sessions: at the beginning, and again whenever the daemon is back after being away.
        /// If its `restarted` is set, the daemon was restarted: what happened until the previous daemon ended is not
        /// known, and the events that follow are numbered from 1 again.
        case snapshot(SessionWatchMethod.Result)
        case event(SessionEvent)
        /// The connection to the daemon has ended and is being restored; a snapshot follows when it is back.
        case detached(ClientError)
        /// This many elements were dropped because too much was unread, here or at the daemon.
        case dropped(Int)
    }

    let stream: AsyncThrowingStream<Buffered<Element>, any Error>
    /// Keeps the client alive: the reader of the sequence needs its connection.
    let client: HoldfastClient
    let id: FeedID
    let gap: Gap

    public func makeAsyncIterator() -> FeedIterator<Element> {
        FeedIterator(base: stream.makeAsyncIterator(), client: client, bounded: (id, gap))
    }
}

/// The messages of a live subscription. The sequence continues across restarts of the daemon; messages that are sent in
/// the meantime are not received.
///
/// It ends with an error when the daemon refuses the subscription, or the server does, which it may do only when the session is
/// connected; when the session is removed from the configuration; and without one when the client is closed. At most
/// ``HoldfastClient/Options/bufferedElements`` elements with ``HoldfastClient/Options/bufferedBytes`` bytes wait for the reader;
/// further ones are dropped and counted.
public struct MessageSubscription: AsyncSequence, Sendable {
    /// What a live subscription brings, in order.
    public enum Element: Hashable, Sendable {
        /// The daemon has made the subscription: at the beginning, and again whenever the daemon is back after being
        /// away.
        case subscribed(MessageSubscribeMethod.Result)
        case message(ReceivedMessage)
        /// The connection to the daemon has ended and is being restored; `subscribed` follows when it is back.
        case detached(ClientError)
        /// This many elements were dropped because too much was unread, here or at the daemon.
        case dropped(Int)
    }

    let stream: AsyncThrowingStream<Buffered<Element>, any Error>
    /// Keeps the client alive: the reader of the sequence needs its connection.
    let client: HoldfastClient
    let id: FeedID
    let gap: Gap

    public func makeAsyncIterator() -> FeedIterator<Element> {
        FeedIterator(base: stream.makeAsyncIterator(), client: client, bounded: (id, gap))
    }
}
