public import ControlAPI
internal import NIOCore

/// The messages of a durable consumer, each until it is acknowledged. Goes on when the daemon restarts; nothing is lost
/// meanwhile, and nothing that waits here is seen twice.
///
///     for try await message in try await client.consume(session: "main", filter: "orders/#", consumer: "billing") {
///         try await book(message)
///         try await message.ack()
///     }
/// Ends with an error when the daemon refuses the consumer or another program takes it over
/// (``ClientError/consumerEnded(_:)``), and without one when the client is closed. The consumer keeps collecting when
/// the sequence is no longer iterated.
public struct DurableSubscription: AsyncSequence, Sendable {
    /// A message to acknowledge.
    public struct Element: Sendable {
        public let message: ReceivedMessage
        /// Within which the id of the message means something.
        let epoch: String?
        let feed: FeedID
        let client: HoldfastClient

        /// Says that the message is done, and is not to be given again.
        ///
        /// - Returns: once that is committed to disk; while the daemon is away, or is back and has not given the message
        ///   again yet, at once.
        /// - Throws: when the daemon refuses, or the consumer has ended.
        @discardableResult
        public func ack() async throws(ClientError) -> Acknowledgement {
            try await client.acknowledge(message.id, epoch, of: feed)
        }
    }

    /// What has come of an acknowledgement.
    public enum Acknowledgement: Sendable {
        /// It is committed to disk: the message is not given again.
        case committed
        /// The daemon is told when it gives the message again. If this client ends first, the next one is given the
        /// message.
        case pending
    }

    /// How many messages of the consumer were dropped because it was full, since a program was last told.
    public let missed: Int

    let stream: AsyncThrowingStream<Element, any Error>
    /// Held: who reads the sequence needs the connection.
    let client: HoldfastClient

    public func makeAsyncIterator() -> FeedIterator<Element> {
        FeedIterator(base: stream.makeAsyncIterator(), client: client)
    }
}

/// A durable consumer of this client. What waits in it is bounded by what the daemon gives without acknowledgement.
struct ConsumerFeed {
    var parameters: MessageSubscribeMethod.Parameters
    /// What the daemon calls it on this connection.
    var id: SubscriptionID?
    var continuation: AsyncThrowingStream<DurableSubscription.Element, any Error>.Continuation
    /// What the program has, or will get, by id, until the daemon has confirmed that it is acknowledged: it is not passed
    /// on again.
    var messages: [Int64: GivenMessage] = [:]
    /// Whether there are some from the connection before.
    var hasEarlier = false
    /// That of the ids.
    var epoch: String?

    mutating func detach() {
        id = nil
        messages = messages.mapValues { GivenMessage(isGivenHere: false, isAcknowledged: $0.isAcknowledged) }
        hasEarlier = true
    }

    /// The daemon gives a message.
    ///
    /// - Returns: what is known of it from the connection before.
    mutating func given(_ id: Int64) -> GivenMessage? {
        let before = messages[id]
        messages[id] = GivenMessage(isGivenHere: true, isAcknowledged: before?.isAcknowledged ?? false)
        if before == nil, hasEarlier {
            // The daemon gives messages in order: what came before and does not come again was acknowledged, or
            // dropped.
            messages = messages.filter(\.value.isGivenHere)
            hasEarlier = false
        }
        return before
    }
}

struct GivenMessage {
    /// On the connection that there is. Of another message the daemon takes no acknowledgement.
    var isGivenHere: Bool
    /// By the program.
    var isAcknowledged: Bool
}

extension HoldfastClient {
    /// Takes the messages of a durable consumer. It is created if necessary; if another program has it, this one takes it
    /// over.
    ///
    /// - Parameter consumer: 1 to 64 letters, digits, hyphens, underscores and full stops.
    /// - Throws: when the daemon cannot be reached or refuses.
    public func consume(
        session: String, filter: String, qos: QoS = .atLeastOnce, consumer: String
    ) async throws(ClientError) -> DurableSubscription {
        try await attach()
        let id = FeedID(number: nextID())
        let (stream, continuation) = AsyncThrowingStream.makeStream(
            of: DurableSubscription.Element.self, throwing: (any Error).self, bufferingPolicy: .unbounded)
        continuation.onTermination = { [weak self] _ in
            guard let self else { return }
            self.eventLoop.execute { self.assumeIsolated { $0.leave(id) } }
        }
        consumers[id] = ConsumerFeed(
            parameters: .init(session: session, filter: filter, qos: qos, consumer: consumer),
            continuation: continuation)
        let answer = await withCheckedContinuation { requestConsumer(id, continuation: $0) }
        let result = try Self.decode(MessageSubscribeMethod.Result.self, from: try answer.get())
        return DurableSubscription(missed: result.missed ?? 0, stream: stream, client: self)
    }

    func requestConsumer(_ feed: FeedID, continuation: CheckedContinuation<Answer, Never>?) {
        guard let consumer = consumers[feed] else {
            continuation?.resume(returning: .failure(.closed))
            return
        }
        request(MessageSubscribeMethod.self, consumer.parameters, as: .consumer(feed, continuation))
    }

    /// - Parameter isFirst: whether the caller waits for the consumer and must learn of a refusal.
    func consumerAnswered(_ id: FeedID, _ answer: Answer, isFirst: Bool) {
        guard consumers[id] != nil else { return }
        do {
            let result = try Self.decode(MessageSubscribeMethod.Result.self, from: try answer.get())
            consumers[id]?.id = result.subscription
            if consumers[id]?.epoch != result.epoch {
                // The daemon's store was replaced: what has these ids now is not what had them.
                consumers[id]?.epoch = result.epoch
                consumers[id]?.messages = [:]
            }
        } catch {
            switch refusal(error, isFirst: isFirst) {
            case .left: break
            case .askedAgain: askAgain { $0.requestConsumer(id, continuation: nil) }
            case .ended: consumers.removeValue(forKey: id)?.continuation.finish(throwing: error)
            }
        }
    }

    func detachConsumers() {
        for feed in consumers.keys {
            consumers[feed]?.detach()
        }
    }

    /// The sequence is no longer iterated; the consumer keeps collecting.
    private func leave(_ feed: FeedID) {
        guard let id = consumers.removeValue(forKey: feed)?.id, case .attached = connection else { return }
        request(MessageUnsubscribeMethod.self, .init(subscription: id, keep: true), as: .ignored)
    }

    func received(_ message: ReceivedMessage, for feed: FeedID) {
        let before = consumers[feed]?.given(message.id) ?? nil
        guard let consumer = consumers[feed] else { return }
        switch before {
        case nil:
            consumer.continuation.yield(.init(message: message, epoch: consumer.epoch, feed: feed, client: self))
        case .some(let earlier) where earlier.isAcknowledged:
            // The program was not told of the daemon's absence, and need not do it twice.
            request(
                MessageAckMethod.self, .init(subscription: message.subscription, id: message.id),
                as: .acknowledgement(feed, message.id))
        case .some:
            break
        }
    }

    func acknowledge(_ id: Int64, _ epoch: String?, of feed: FeedID) async throws(ClientError)
        -> DurableSubscription.Acknowledgement
    {
        guard let consumer = consumers[feed] else { throw .closed }
        // The daemon no longer knows of this message.
        guard consumer.epoch == epoch, let message = consumer.messages[id] else { return .committed }
        consumers[feed]?.messages[id]?.isAcknowledged = true
        guard let subscription = consumer.id, message.isGivenHere else { return .pending }
        let number = nextID()
        let line = try Self.line(MessageAckMethod.self, .init(subscription: subscription, id: id), id: number)
        // Not by way of `call`, which would make a connection on which the subscription is another one.
        let answer = await withCheckedContinuation { send(line, id: number, as: .call($0), timeout: nil) }
        switch answer {
        case .success:
            acknowledgementAnswered(feed, id, answer)
            return .committed
        case .failure(let error) where error.isPassing:
            return .pending
        case .failure(.refused(let error)) where error.known == .unknownSubscription:
            return .pending
        case .failure(let error):
            consumers[feed]?.messages[id]?.isAcknowledged = false
            throw error
        }
    }

    func acknowledgementAnswered(_ feed: FeedID, _ id: Int64, _ answer: Answer) {
        if case .success = answer { consumers[feed]?.messages[id] = nil }
    }

    /// Another program has the consumer now, or it is gone. It is not taken back: the two would never stop.
    func consumerEnded(_ event: SessionEvent) {
        guard let feed = consumers.first(where: { $0.value.id?.rawValue == event.watch.rawValue })?.key else { return }
        consumers.removeValue(forKey: feed)?.continuation.finish(
            throwing: ClientError.consumerEnded(event.consumer ?? ""))
    }

    func endConsumers(_ error: ClientError?) {
        for consumer in consumers.values { consumer.continuation.finish(throwing: error) }
        consumers = [:]
    }
}
