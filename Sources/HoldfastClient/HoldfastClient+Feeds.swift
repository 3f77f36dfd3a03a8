public import ControlAPI
internal import NIOCore

extension HoldfastClient {
    /// Watches sessions: a snapshot, then every event, across restarts of the daemon.
    ///
    /// - Parameter session: the session's name; `nil`: all sessions.
    /// - Parameter since: a sequence number; the events after it are replayed as far as the daemon still has them.
    /// - Parameter epoch: the epoch of the answer that `since` comes from; it shows whether the daemon was restarted in
    ///   between.
    /// - Throws: when the daemon cannot be reached or refuses; ``ClientError/cancelled`` when the task is cancelled
    ///   first.
    public func watch(
        session: String? = nil, since: Int64? = nil, epoch: String? = nil
    ) async throws(ClientError) -> SessionWatch {
        try await attach()
        let (id, stream, continuation) = makeFeed(
            .watch, of: SessionWatch.Element.self, buffering: .bufferingOldest(options.bufferedElements))
        let feed = Feed(continuation, maximumBytes: options.bufferedBytes, dropped: SessionWatch.Element.dropped)
        watches[id] = WatchFeed(session: session, since: since, epoch: epoch, id: nil, feed: feed)
        _ = try await open(id).get()
        return SessionWatch(stream: stream, client: self, id: id, gap: feed.gap)
    }

    /// Subscribes to messages, across restarts of the daemon.
    ///
    /// - Throws: when the daemon cannot be reached or refuses; ``ClientError/cancelled`` when the task is cancelled
    ///   first.
    public func subscribe(
        _ parameters: MessageSubscribeMethod.Parameters
    ) async throws(ClientError) -> MessageSubscription {
        try await attach()
        let (id, stream, continuation) = makeFeed(
            .subscription, of: MessageSubscription.Element.self, buffering: .bufferingOldest(options.bufferedElements))
        let feed = Feed(continuation, maximumBytes: options.bufferedBytes, dropped: MessageSubscription.Element.dropped)
        subscriptions[id] = SubscriptionFeed(parameters: parameters, id: nil, feed: feed)
        _ = try await open(id).get()
        return MessageSubscription(stream: stream, client: self, id: id, gap: feed.gap)
    }

    /// Returns the two ends of a new feed's sequence. When the sequence is no longer iterated, the feed ends.
    func makeFeed<Element: Sendable>(
        _ kind: FeedID.Kind, of: Element.Type,
        buffering: AsyncThrowingStream<Buffered<Element>, any Error>.Continuation.BufferingPolicy
    ) -> (
        FeedID, AsyncThrowingStream<Buffered<Element>, any Error>,
        AsyncThrowingStream<Buffered<Element>, any Error>.Continuation
    ) {
        let id = FeedID(number: nextID(), kind: kind)
        let (stream, continuation) = AsyncThrowingStream.makeStream(
            of: Buffered<Element>.self, throwing: (any Error).self, bufferingPolicy: buffering)
        continuation.onTermination = { [weak self] _ in
            guard let self else { return }
            self.eventLoop.execute { self.assumeIsolated { $0.leave(id) } }
        }
        return (id, stream, continuation)
    }

    /// Requests a feed for a caller that waits for the answer.
    func open(_ feed: FeedID) async -> Answer {
        await withTaskCancellationHandler {
            await withCheckedContinuation { requestFeed(feed, continuation: $0) }
        } onCancel: {
            eventLoop.execute { self.assumeIsolated { $0.abandon(feed) } }
        }
    }

    /// The caller no longer waits for the answer. What the answer begins is ended when it arrives.
    private func abandon(_ feed: FeedID) {
        guard case .feed(_, let continuation?)? = pending[feed.number] else { return }
        pending[feed.number] = .feed(feed, nil)
        watches[feed] = nil
        subscriptions[feed] = nil
        consumers[feed] = nil
        continuation.resume(returning: .failure(.cancelled))
    }

    /// - Parameter continuation: that of the caller who opens the feed; `nil` when the feed is restored.
    private func requestFeed(_ feed: FeedID, continuation: CheckedContinuation<Answer, Never>?) {
        // The first request of a feed has the feed's number, by which `abandon` finds it.
        let id = continuation == nil ? nextID() : feed.number
        let role = Pending.feed(feed, continuation)
        if let watch = watches[feed] {
            request(
                SessionWatchMethod.self, .init(session: watch.session, since: watch.since, epoch: watch.epoch),
                id: id, as: role)
        } else if let parameters = subscriptions[feed]?.parameters ?? consumers[feed]?.parameters {
            request(MessageSubscribeMethod.self, parameters, id: id, as: role)
        } else {
            continuation?.resume(returning: .failure(.closed))
        }
    }

    func request<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: Method.Parameters, id: Int64? = nil, as role: Pending
    ) {
        let id = id ?? nextID()
        do {
            send(try Self.line(method, parameters, id: id), id: id, as: role, timeout: nil)
        } catch {
            resolve(role, .failure(error))
        }
    }

    /// Ends a feed whose sequence is no longer iterated. A durable consumer keeps collecting.
    private func leave(_ feed: FeedID) {
        let watch = watches.removeValue(forKey: feed)?.id
        let subscription = subscriptions.removeValue(forKey: feed)?.id ?? consumers.removeValue(forKey: feed)?.id
        guard case .attached = connection else { return }
        if let watch { end(watch) }
        if let subscription { end(subscription, of: feed) }
    }

    private func end(_ watch: WatchID) {
        request(SessionUnwatchMethod.self, .init(watch: watch), as: .ignored)
    }

    private func end(_ subscription: SubscriptionID, of feed: FeedID) {
        request(
            MessageUnsubscribeMethod.self, .init(subscription: subscription, keep: feed.kind == .consumer), as: .ignored
        )
    }

    /// - Parameter isFirst: whether a caller is waiting for the feed, and gets the error of a refusal.
    func feedAnswered(_ feed: FeedID, _ answer: Answer, isFirst: Bool) {
        do throws(ClientError) {
            let answer = try answer.get()
            if feed.kind == .watch {
                watchBegan(feed, try Self.decode(SessionWatchMethod.Result.self, from: answer))
            } else {
                subscriptionBegan(
                    feed, try Self.decode(MessageSubscribeMethod.Result.self, from: answer), isFirst: isFirst)
            }
        } catch {
            switch refusal(error, isFirst: isFirst) {
            case .left: break
            case .askedAgain: askAgain { $0.requestFeed(feed, continuation: nil) }
            case .ended:
                watches.removeValue(forKey: feed)?.feed.finish(throwing: error)
                subscriptions.removeValue(forKey: feed)?.feed.finish(throwing: error)
                consumerRefused(feed, error)
            }
        }
    }

    private func watchBegan(_ feed: FeedID, _ result: SessionWatchMethod.Result) {
        guard watches[feed] != nil else { return end(result.watch) }
        watches[feed]?.id = result.watch
        // Replayed events follow the snapshot, but their numbers are lower than the snapshot's. The watch therefore
        // continues from the last event seen, and from the snapshot's number only if there was none. If the numbering
        // has started again, the replay begins with the first event.
        if watches[feed]?.since == nil { watches[feed]?.since = result.sequence }
        if result.restarted { watches[feed]?.since = 0 }
        watches[feed]?.epoch = result.epoch
        watches[feed]?.feed.send(.snapshot(result))
    }

    private func subscriptionBegan(_ feed: FeedID, _ result: MessageSubscribeMethod.Result, isFirst: Bool) {
        if consumers[feed] != nil { return consumerBegan(feed, result, isFirst: isFirst) }
        guard subscriptions[feed] != nil else { return end(result.subscription, of: feed) }
        subscriptions[feed]?.id = result.subscription
        subscriptions[feed]?.feed.send(.subscribed(result))
    }

    /// What to do with a feed that the daemon refused.
    private enum Refusal {
        /// The connection has ended or is about to end. The feed is requested again on the next one.
        case left
        /// The daemon has no room for the feed at the moment. Nothing is wrong with the feed itself.
        case askedAgain
        case ended
    }

    /// - Parameter isFirst: whether a caller is waiting for the feed, and gets the error.
    private func refusal(_ error: ClientError, isFirst: Bool) -> Refusal {
        if isFirst { return .ended }
        guard case .attached = connection else { return .left }
        guard case .refused(let error) = error else { return .ended }
        return switch error.known {
        case .shuttingDown: .left
        case .tooManyRequests, .storeFull: .askedAgain
        default: .ended
        }
    }

    /// Requests a feed again after the last of the reattach delays, unless the connection has changed by then.
    private func askAgain(_ ask: @escaping @Sendable (isolated HoldfastClient) -> Void) {
        let generation = generation
        eventLoop.scheduleTask(in: TimeAmount(options.reattachDelays[options.reattachDelays.count - 1])) {
            [weak self] in
            self?.assumeIsolated { if $0.generation == generation { ask($0) } }
        }
    }

    /// - Parameter bytes: the length of the line.
    func notified(_ method: String, _ parameters: JSONValue, bytes: Int) {
        switch method {
        case SessionEvent.name:
            guard let event = try? Self.decode(SessionEvent.self, from: parameters) else { return }
            if event.event == .consumerEnded { return consumerEnded(event) }
            if let feed = feed(of: SubscriptionID(rawValue: event.watch.rawValue)) {
                switch event.event {
                case .subscriptionChanged: return serverAnswered(event, for: feed)
                case .sessionRemoved: return sessionRemoved(event, from: feed)
                default: break
                }
            }
            if event.event == .messageDropped,
                let id = subscriptions.first(where: { $0.value.id?.rawValue == event.watch.rawValue })?.key
            {
                subscriptions[id]?.feed.send(.dropped(event.count ?? 0))
                return
            }
            guard let id = watches.first(where: { $0.value.id == event.watch })?.key
            else { return }
            watches[id]?.since = event.sequence
            watches[id]?.feed.send(.event(event), bytes: bytes)
        case ReceivedMessage.name:
            guard let message = try? Self.decode(ReceivedMessage.self, from: parameters) else { return }
            if let id = consumers.first(where: { $0.value.id == message.subscription })?.key {
                return received(message, for: id)
            }
            guard let id = subscriptions.first(where: { $0.value.id == message.subscription })?.key
            else { return }
            subscriptions[id]?.feed.send(.message(message), bytes: bytes)
        default:
            // A newer daemon may send notifications that this client does not know.
            break
        }
    }

    /// The subscription of either kind that the daemon has given this id on this connection.
    private func feed(of subscription: SubscriptionID) -> FeedID? {
        subscriptions.first { $0.value.id == subscription }?.key ?? consumers.first { $0.value.id == subscription }?.key
    }

    /// The server has answered for the filter of a subscription, of which it could not be asked when that began. A refusal
    /// ends the sequence, as it would have been an error then.
    private func serverAnswered(_ event: SessionEvent, for feed: FeedID) {
        guard let answer = event.subscription, answer.state == .refused else { return }
        let refusal = RPCError.subscriptionRefused(
            subscriptions[feed]?.parameters.filter ?? consumers[feed]?.parameters.filter ?? answer.filter,
            answer.message ?? "", reasonCode: answer.reasonCode)
        let subscription = subscriptions[feed]?.id ?? consumers[feed]?.id
        subscriptions.removeValue(forKey: feed)?.feed.finish(throwing: .refused(refusal))
        consumerRefused(feed, .refused(refusal))
        if let subscription { end(subscription, of: feed) }
    }

    /// A reload has removed the session of a subscription. The sequence ends with the error that a new one would have.
    private func sessionRemoved(_ event: SessionEvent, from feed: FeedID) {
        let error = ClientError.refused(.sessionRemoved(event.session ?? ""))
        subscriptions.removeValue(forKey: feed)?.feed.finish(throwing: error)
        consumerRefused(feed, error)
    }

    func detachFeeds(_ error: ClientError) {
        for id in watches.keys {
            watches[id]?.id = nil
            watches[id]?.feed.send(.detached(error))
        }
        for id in subscriptions.keys {
            subscriptions[id]?.id = nil
            subscriptions[id]?.feed.send(.detached(error))
        }
        detachConsumers(error)
    }

    /// Tells the reader of a feed what was dropped, now that it has taken an element.
    func tellDropped(_ feed: FeedID) {
        watches[feed]?.feed.tellDropped()
        subscriptions[feed]?.feed.tellDropped()
    }

    /// Requests again the watches and subscriptions of the last connection.
    func restoreFeeds() {
        for feeds in [Array(watches.keys), Array(subscriptions.keys), Array(consumers.keys)] {
            for feed in feeds.sorted(by: { $0.number < $1.number }) { requestFeed(feed, continuation: nil) }
        }
    }

    /// - Parameter error: `nil` when the client is closed.
    func endFeeds(_ error: ClientError?) {
        for watch in watches.values { watch.feed.finish(throwing: error) }
        for subscription in subscriptions.values { subscription.feed.finish(throwing: error) }
        watches = [:]
        subscriptions = [:]
        endConsumers(error)
    }
}
