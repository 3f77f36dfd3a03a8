public import ControlAPI
internal import NIOCore

/// The messages of a durable consumer, each of which is delivered until it is acknowledged. The sequence continues
/// across restarts of the daemon: nothing is lost in the meantime, and no message that already waits here is delivered
/// twice.
///
///     for try await message in try await client.consume(session: "main", filter: "orders/#", consumer: "billing") {
///         try await book(message)
///         try await message.ack()
///     }
///
/// The sequence ends with an error when the daemon refuses the consumer or another program takes it over
/// (``ClientError/consumerEnded(_:)``), when the session is removed from the configuration, when the server refuses the filter, once the messages that were collected before are
/// acknowledged (``ClientError/refused(_:)``), or when the daemon's line cannot be read, and cannot be read again on the next
/// connection (``ClientError/invalidAnswer(_:)``). It ends without one when the client is closed. The consumer keeps collecting
/// messages when the sequence is no longer iterated.
public struct DurableSubscription: AsyncSequence, Sendable {
    /// A message to acknowledge.
    public struct Element: Sendable {
        public let message: ReceivedMessage
        /// How many messages the daemon dropped before this one while this client was not attached, because the
        /// consumer was full. For the time before the sequence began, see ``DurableSubscription/missed``.
        public let missed: Int
        /// The epoch in which the message's id is valid.
        let epoch: String?
        let feed: FeedID
        /// The error that the sequence ended with; `nil` if it has not ended, or ended without one.
        let failure: NIOLoopBoundBox<ClientError?>
        let client: HoldfastClient

        /// Acknowledges the message, so that the daemon does not send it again.
        ///
        /// - Returns: ``DurableSubscription/Acknowledgement/committed`` once the acknowledgement is committed to disk.
        ///   While the daemon is away, or is back but has not sent the message again yet,
        ///   ``DurableSubscription/Acknowledgement/pending`` at once. If the daemon's store has been replaced in the
        ///   meantime, ``DurableSubscription/Acknowledgement/outdated``.
        /// - Throws: when the daemon refuses, or the task is cancelled before the answer. After the sequence has ended:
        ///   its error (``ClientError/consumerEnded(_:)`` after a take-over), or ``ClientError/closed`` if it ended
        ///   without one. The next program that has the consumer then receives the message again, unless it was
        ///   acknowledged before.
        @discardableResult
        public func ack() async throws(ClientError) -> Acknowledgement {
            try await client.acknowledge(self, upTo: false)
        }

        /// Acknowledges the message and all that the sequence gave before it, with one call: a third of the work, for
        /// the daemon, of acknowledging each.
        ///
        /// - Returns: as ``ack()``.
        /// - Throws: as ``ack()``.
        @discardableResult
        public func ackUpToHere() async throws(ClientError) -> Acknowledgement {
            try await client.acknowledge(self, upTo: true)
        }
    }

    /// The outcome of an acknowledgement.
    public enum Acknowledgement: Sendable {
        /// The acknowledgement is committed to disk: the daemon does not send the message again.
        case committed
        /// The acknowledgement is sent when the daemon sends the message again. If this client ends before that, the
        /// next one receives the message; if the daemon's store was replaced, this one receives it again.
        case pending
        /// The daemon's store has been replaced since the message was delivered. If the message was recovered, it is
        /// delivered again as another element, with another id.
        case outdated
    }

    /// How many messages the daemon dropped before the sequence began and since a program was last told, because the
    /// consumer was full.
    public let missed: Int

    let stream: AsyncThrowingStream<Buffered<Element>, any Error>
    /// Keeps the client alive: the reader of the sequence needs its connection.
    let client: HoldfastClient

    public func makeAsyncIterator() -> FeedIterator<Element> {
        FeedIterator(base: stream.makeAsyncIterator(), client: client)
    }
}

/// A durable consumer of this client. The daemon limits how many unacknowledged messages it sends, which bounds what
/// waits here.
struct ConsumerFeed {
    var parameters: MessageSubscribeMethod.Parameters
    /// The daemon's id for the subscription on this connection.
    var id: SubscriptionID?
    let continuation: AsyncThrowingStream<Buffered<DurableSubscription.Element>, any Error>.Continuation
    /// Shared with the messages, which may outlive the sequence.
    let failure: NIOLoopBoundBox<ClientError?>
    /// The messages that the program has been given or will be given, by id. Each stays until the daemon confirms its
    /// acknowledgement, so that it is not given to the program again.
    var messages: [Int64: GivenMessage] = [:]
    /// Whether `messages` holds some from an earlier connection.
    var hasEarlier = false
    /// The epoch that the ids belong to.
    var epoch: String?
    /// What the next element reports as missed.
    var missed = 0
    let detached: (@Sendable (ClientError) -> Void)?

    func end(_ error: ClientError?) {
        failure.value = error
        continuation.finish(throwing: error)
    }

    mutating func detach() {
        id = nil
        messages = messages.mapValues { GivenMessage(isGivenHere: false, isAcknowledged: $0.isAcknowledged) }
        hasEarlier = true
    }

    /// Records that the daemon has sent a message.
    ///
    /// - Returns: what was known about the message before; `nil` if it is new.
    mutating func given(_ id: Int64) -> GivenMessage? {
        let before = messages[id]
        messages[id] = GivenMessage(isGivenHere: true, isAcknowledged: before?.isAcknowledged ?? false)
        if before == nil, hasEarlier {
            // The daemon sends messages in order: the earlier ones that did not come again were acknowledged or
            // dropped.
            messages = messages.filter(\.value.isGivenHere)
            hasEarlier = false
        }
        return before
    }
}

struct GivenMessage {
    /// Whether the message came on the current connection. The daemon refuses to acknowledge any other.
    var isGivenHere: Bool
    /// Whether the program has acknowledged the message.
    var isAcknowledged: Bool
}

extension HoldfastClient {
    /// Receives the messages of a durable consumer. The consumer is created if necessary, and taken over if another
    /// program has it.
    ///
    /// - Parameter consumer: its name, 1 to 64 letters, digits, hyphens, underscores and full stops.
    /// - Parameter detached: called, on the client's event loop, when the connection to the daemon has ended and is being
    ///   restored, and when the daemon is back but this user may not open its socket.
    /// - Throws: when the daemon cannot be reached or refuses; ``ClientError/cancelled`` when the task is cancelled
    ///   first.
    public func consume(
        session: String, filter: String, qos: QoS = .atLeastOnce, consumer: String,
        detached: (@Sendable (ClientError) -> Void)? = nil
    ) async throws(ClientError) -> DurableSubscription {
        try await attach()
        let (id, stream, continuation) = makeFeed(
            .consumer, of: DurableSubscription.Element.self, buffering: .unbounded)
        consumers[id] = ConsumerFeed(
            parameters: .init(session: session, filter: filter, qos: qos, consumer: consumer),
            continuation: continuation, failure: NIOLoopBoundBox(nil, eventLoop: eventLoop), detached: detached)
        let answer = await open(id)
        let result: MessageSubscribeMethod.Result
        do throws(ClientError) {
            result = try Self.decode(MessageSubscribeMethod.Result.self, from: try answer.get())
        } catch {
            throw error.ofConsumer(consumer)
        }
        return DurableSubscription(missed: result.missed ?? 0, stream: stream, client: self)
    }

    /// - Parameter isFirst: whether a caller is waiting for the consumer, and is told what was missed.
    func consumerBegan(_ feed: FeedID, _ result: MessageSubscribeMethod.Result, isFirst: Bool) {
        consumers[feed]?.id = result.subscription
        if !isFirst { consumers[feed]?.missed += result.missed ?? 0 }
        if consumers[feed]?.epoch != result.epoch {
            // The daemon's store was replaced: these ids now belong to other messages.
            consumers[feed]?.epoch = result.epoch
            consumers[feed]?.messages = [:]
        }
    }

    func consumerRefused(_ feed: FeedID, _ error: ClientError) {
        guard let consumer = consumers.removeValue(forKey: feed) else { return }
        consumer.end(error.ofConsumer(consumer.parameters.consumer ?? ""))
    }

    func detachConsumers(_ error: ClientError) {
        for feed in consumers.keys {
            consumers[feed]?.detach()
            consumers[feed]?.detached?(error)
        }
    }

    func received(_ message: ReceivedMessage, for feed: FeedID) {
        let before = consumers[feed]?.given(message.id) ?? nil
        guard let consumer = consumers[feed] else { return }
        switch before {
        case nil:
            unreadableConnections = 0
            consumers[feed]?.missed = 0
            let element = DurableSubscription.Element(
                message: message, missed: consumer.missed, epoch: consumer.epoch, feed: feed, failure: consumer.failure,
                client: self)
            consumer.continuation.yield(Buffered(element: element))
        case .some(let earlier) where earlier.isAcknowledged:
            // The program has acknowledged this message. It does not know that the daemon was away, and need not
            // acknowledge the message twice.
            request(
                MessageAckMethod.self, .init(subscription: message.subscription, id: message.id),
                as: .acknowledgement(feed, message.id))
        case .some:
            break
        }
    }

    func acknowledge(
        _ element: DurableSubscription.Element, upTo: Bool
    ) async throws(ClientError) -> DurableSubscription.Acknowledgement {
        let (id, feed) = (element.message.id, element.feed)
        guard let consumer = consumers[feed] else { throw element.failure.value ?? .closed }
        guard consumer.epoch == element.epoch else { return .outdated }
        guard let message = consumer.messages[id] else { return .committed }
        let ids = upTo ? consumer.messages.keys.filter { $0 <= id } : [id]
        let unacknowledged = ids.filter { consumer.messages[$0]?.isAcknowledged == false }
        for id in unacknowledged { consumers[feed]?.messages[id]?.isAcknowledged = true }
        guard let subscription = consumer.id, message.isGivenHere else { return .pending }
        let number = nextID()
        let line = try Self.line(
            MessageAckMethod.self, .init(subscription: subscription, id: id, upTo: upTo), id: number)
        // Not through `call`: that could open a new connection, on which the subscription has another id.
        let answer = await answer(to: line, id: number, timeout: nil)
        switch answer {
        case .success:
            for id in ids { acknowledgementAnswered(feed, id, answer) }
            return .committed
        case .failure(let error) where error.isPassing || error.isUnknownSubscription:
            guard consumers[feed] != nil else { throw element.failure.value ?? .closed }
            return .pending
        case .failure(let error):
            for id in unacknowledged { consumers[feed]?.messages[id]?.isAcknowledged = false }
            throw error
        }
    }

    func acknowledgementAnswered(_ feed: FeedID, _ id: Int64, _ answer: Answer) {
        if case .success = answer { consumers[feed]?.messages[id] = nil }
    }

    /// Ends the sequence of a consumer that another program has taken over, or that was ended. The consumer is not
    /// taken back: two programs that did this would take it from each other forever.
    func consumerEnded(_ event: SessionEvent) {
        guard let feed = consumers.first(where: { $0.value.id?.rawValue == event.watch.rawValue })?.key else { return }
        consumers.removeValue(forKey: feed)?.end(.consumerEnded(event.consumer ?? ""))
    }

    /// Ends the sequences of consumers when a line cannot be read for the second time. The daemon would send the message
    /// in it again on every connection.
    func endUnreadableConsumers(_ error: ClientError) {
        // The line may also have been the answer to a call, which fails.
        let hasCalls = pending.values.contains { role in
            switch role {
            case .call, .member: true
            case .greeting, .feed, .acknowledgement, .ignored: false
            }
        }
        guard case .invalidAnswer = error, !consumers.isEmpty, !hasCalls else { return }
        unreadableConnections += 1
        if unreadableConnections > 1 { endConsumers(error) }
    }

    func endConsumers(_ error: ClientError?) {
        for consumer in consumers.values { consumer.end(error) }
        consumers = [:]
    }
}
