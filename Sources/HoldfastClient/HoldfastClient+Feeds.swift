public import ControlAPI
internal import NIOCore

extension HoldfastClient {
    /// Watches sessions: a snapshot, then every event, across restarts of the daemon.
    ///
    /// - Parameter session: the session's name; `nil`: all sessions.
    /// - Parameter since: a sequence number; the events after it are replayed as far as the daemon still has them.
    /// - Parameter epoch: the epoch of the answer that `since` comes from; it shows whether the daemon was restarted in
    ///   between.
    /// - Throws: when the daemon cannot be reached or refuses.
    public func watch(
        session: String? = nil, since: Int64? = nil, epoch: String? = nil
    ) async throws(ClientError) -> SessionWatch {
        try await attach()
        let id = FeedID(number: nextID())
        let (stream, continuation) = AsyncThrowingStream.makeStream(
            of: SessionWatch.Element.self, throwing: (any Error).self,
            bufferingPolicy: .bufferingOldest(options.bufferedElements))
        continuation.onTermination = { [weak self] _ in
            guard let self else { return }
            self.eventLoop.execute { self.assumeIsolated { $0.unwatch(id) } }
        }
        let feed = Feed(continuation, dropped: SessionWatch.Element.dropped)
        watches[id] = WatchFeed(session: session, since: since, epoch: epoch, id: nil, feed: feed)
        let answer = await withCheckedContinuation { requestWatch(id, continuation: $0) }
        _ = try answer.get()
        return SessionWatch(stream: stream, client: self)
    }

    /// Subscribes to messages, across restarts of the daemon.
    ///
    /// - Throws: when the daemon cannot be reached or refuses.
    public func subscribe(
        _ parameters: MessageSubscribeMethod.Parameters
    ) async throws(ClientError) -> MessageSubscription {
        try await attach()
        let id = FeedID(number: nextID())
        let (stream, continuation) = AsyncThrowingStream.makeStream(
            of: MessageSubscription.Element.self, throwing: (any Error).self,
            bufferingPolicy: .bufferingOldest(options.bufferedElements))
        continuation.onTermination = { [weak self] _ in
            guard let self else { return }
            self.eventLoop.execute { self.assumeIsolated { $0.unsubscribe(id) } }
        }
        let feed = Feed(continuation, dropped: MessageSubscription.Element.dropped)
        subscriptions[id] = SubscriptionFeed(parameters: parameters, id: nil, feed: feed)
        let answer = await withCheckedContinuation { requestSubscription(id, continuation: $0) }
        _ = try answer.get()
        return MessageSubscription(stream: stream, client: self)
    }

    private func requestWatch(_ feed: FeedID, continuation: CheckedContinuation<Answer, Never>?) {
        guard let watch = watches[feed] else {
            continuation?.resume(returning: .failure(.closed))
            return
        }
        request(
            SessionWatchMethod.self, .init(session: watch.session, since: watch.since, epoch: watch.epoch),
            as: .watch(feed, continuation))
    }

    private func requestSubscription(_ feed: FeedID, continuation: CheckedContinuation<Answer, Never>?) {
        guard let subscription = subscriptions[feed] else {
            continuation?.resume(returning: .failure(.closed))
            return
        }
        request(MessageSubscribeMethod.self, subscription.parameters, as: .subscription(feed, continuation))
    }

    func request<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: Method.Parameters, as role: Pending
    ) {
        let id = nextID()
        do {
            send(try Self.line(method, parameters, id: id), id: id, as: role, timeout: nil)
        } catch {
            resolve(role, .failure(error))
        }
    }

    private func unwatch(_ feed: FeedID) {
        guard let id = watches.removeValue(forKey: feed)?.id, case .attached = connection else { return }
        request(SessionUnwatchMethod.self, .init(watch: id), as: .ignored)
    }

    private func unsubscribe(_ feed: FeedID) {
        guard let id = subscriptions.removeValue(forKey: feed)?.id, case .attached = connection else { return }
        request(MessageUnsubscribeMethod.self, .init(subscription: id), as: .ignored)
    }

    /// - Parameter isFirst: whether a caller is waiting for the watch, and gets the error of a refusal.
    func watchAnswered(_ id: FeedID, _ answer: Answer, isFirst: Bool) {
        guard watches[id] != nil else { return }
        do {
            let result = try Self.decode(SessionWatchMethod.Result.self, from: try answer.get())
            watches[id]?.id = result.watch
            // Replayed events follow the snapshot, but their numbers are lower than the snapshot's. The watch therefore
            // continues from the last event seen, and from the snapshot's number only if there was none. If the
            // numbering has started again, the replay begins with the first event.
            if watches[id]?.since == nil { watches[id]?.since = result.sequence }
            if result.restarted { watches[id]?.since = 0 }
            watches[id]?.epoch = result.epoch
            watches[id]?.feed.send(.snapshot(result))
        } catch {
            switch refusal(error, isFirst: isFirst) {
            case .left: break
            case .askedAgain: askAgain { $0.requestWatch(id, continuation: nil) }
            case .ended: watches.removeValue(forKey: id)?.feed.finish(throwing: error)
            }
        }
    }

    /// - Parameter isFirst: whether a caller is waiting for the subscription, and gets the error of a refusal.
    func subscriptionAnswered(_ id: FeedID, _ answer: Answer, isFirst: Bool) {
        guard subscriptions[id] != nil else { return }
        do {
            let result = try Self.decode(MessageSubscribeMethod.Result.self, from: try answer.get())
            subscriptions[id]?.id = result.subscription
            subscriptions[id]?.feed.send(.subscribed(result))
        } catch {
            switch refusal(error, isFirst: isFirst) {
            case .left: break
            case .askedAgain: askAgain { $0.requestSubscription(id, continuation: nil) }
            case .ended: subscriptions.removeValue(forKey: id)?.feed.finish(throwing: error)
            }
        }
    }

    /// What to do with a feed that the daemon refused.
    enum Refusal {
        /// The connection has ended or is about to end. The feed is requested again on the next one.
        case left
        /// The daemon has no room for the feed at the moment. Nothing is wrong with the feed itself.
        case askedAgain
        case ended
    }

    /// - Parameter isFirst: whether a caller is waiting for the feed, and gets the error.
    func refusal(_ error: ClientError, isFirst: Bool) -> Refusal {
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
    func askAgain(_ ask: @escaping @Sendable (isolated HoldfastClient) -> Void) {
        let generation = generation
        eventLoop.scheduleTask(in: TimeAmount(options.reattachDelays[options.reattachDelays.count - 1])) {
            [weak self] in
            self?.assumeIsolated { if $0.generation == generation { ask($0) } }
        }
    }

    func notified(_ method: String, _ parameters: JSONValue) {
        switch method {
        case SessionEvent.name:
            guard let event = try? Self.decode(SessionEvent.self, from: parameters) else { return }
            if event.event == .consumerEnded { return consumerEnded(event) }
            if event.event == .messageDropped,
                let id = subscriptions.first(where: { $0.value.id?.rawValue == event.watch.rawValue })?.key
            {
                subscriptions[id]?.feed.send(.dropped(event.count ?? 0))
                return
            }
            guard let id = watches.first(where: { $0.value.id == event.watch })?.key
            else { return }
            watches[id]?.since = event.sequence
            watches[id]?.feed.send(.event(event))
        case ReceivedMessage.name:
            guard let message = try? Self.decode(ReceivedMessage.self, from: parameters) else { return }
            if let id = consumers.first(where: { $0.value.id == message.subscription })?.key {
                return received(message, for: id)
            }
            guard let id = subscriptions.first(where: { $0.value.id == message.subscription })?.key
            else { return }
            subscriptions[id]?.feed.send(.message(message))
        default:
            // A newer daemon may send notifications that this client does not know.
            break
        }
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
        detachConsumers()
    }

    /// Requests again the watches and subscriptions of the last connection.
    func restoreFeeds() {
        for id in watches.keys.sorted(by: { $0.number < $1.number }) { requestWatch(id, continuation: nil) }
        for id in subscriptions.keys.sorted(by: { $0.number < $1.number }) {
            requestSubscription(id, continuation: nil)
        }
        for id in consumers.keys.sorted(by: { $0.number < $1.number }) { requestConsumer(id, continuation: nil) }
    }

    func endFeeds(_ error: ClientError) {
        for watch in watches.values { watch.feed.finish(throwing: error) }
        for subscription in subscriptions.values { subscription.feed.finish(throwing: error) }
        watches = [:]
        subscriptions = [:]
        endConsumers(error)
    }
}
