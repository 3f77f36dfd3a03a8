import ControlAPI
import Logging
import MQTT
import NIOCore
import SessionCore
import Systemd

// What each method does: permission, parameters, the session asked, the answer.

extension ControlConnection {
    /// Runs one call.
    func answer(_ call: ClientCall) async -> Reply {
        switch call {
        case .invalid(let id, let error):
            return Reply(line: OutgoingLine.failure(id, error))
        case .notification(let method, let parameters):
            var reply = await answer(.null, method, parameters)
            reply.line = nil
            return reply
        case .request(let id, let method, let parameters):
            return await answer(id, method, parameters)
        }
    }

    private func answer(_ id: RequestID, _ method: String, _ parameters: JSONValue?) async -> Reply {
        do throws(RPCError) {
            switch method {
            case SessionWatchMethod.name:
                return try watch(id, take(SessionWatchMethod.self, parameters))
            case MessageSubscribeMethod.name:
                return try await subscribe(id, take(MessageSubscribeMethod.self, parameters))
            default:
                return Reply(line: try await run(id, method, parameters))
            }
        } catch {
            return Reply(line: OutgoingLine.failure(id, error))
        }
    }

    private func run(_ id: RequestID, _ method: String, _ parameters: JSONValue?) async throws(RPCError) -> [UInt8] {
        switch method {
        case RPCHelloMethod.name:
            return OutgoingLine.answer(id, result: try hello(take(RPCHelloMethod.self, parameters)))
        case DaemonStatusMethod.name:
            _ = try take(DaemonStatusMethod.self, parameters)
            return OutgoingLine.answer(id, result: await daemon.status())
        case DaemonReloadMethod.name:
            _ = try take(DaemonReloadMethod.self, parameters)
            return OutgoingLine.answer(id, result: try await daemon.reload())
        case DaemonMetricsMethod.name:
            _ = try take(DaemonMetricsMethod.self, parameters)
            return OutgoingLine.answer(id, result: await daemon.metrics())
        case DaemonLogLevelMethod.name:
            let level = try take(DaemonLogLevelMethod.self, parameters).level
            return OutgoingLine.answer(id, result: try await daemon.logLevel(level))
        case SessionListMethod.name:
            _ = try take(SessionListMethod.self, parameters)
            return OutgoingLine.answer(id, result: SessionSnapshot(sessions: await registry.statuses()))
        case SessionStatusMethod.name:
            let session = try take(SessionStatusMethod.self, parameters).session
            return OutgoingLine.answer(id, result: try await registry.status(session))
        case SessionConnectMethod.name:
            let driver = try await registry.driver(take(SessionConnectMethod.self, parameters).session)
            return state(id, try await driver.connect())
        case SessionDisconnectMethod.name:
            let driver = try await registry.driver(take(SessionDisconnectMethod.self, parameters).session)
            return state(id, try await driver.disconnect())
        case SessionReconnectMethod.name:
            let parameters = try take(SessionReconnectMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            return state(id, try await driver.reconnect(ReconnectMode(parameters.mode)))
        case SessionSwitchRoomMethod.name:
            let parameters = try take(SessionSwitchRoomMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            return OutgoingLine.answer(id, result: try await driver.switchRoom(to: parameters.room))
        case RoomParticipantsMethod.name:
            let driver = try await registry.driver(take(RoomParticipantsMethod.self, parameters).session)
            return OutgoingLine.answer(id, result: try await driver.participants())
        case SessionHistoryMethod.name:
            return await Self.line(id, try await registry.history(take(SessionHistoryMethod.self, parameters)))
        case MessagePublishMethod.name:
            let parameters = try take(MessagePublishMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            return OutgoingLine.answer(id, result: try await driver.publish(parameters))
        case MessageQueueListMethod.name:
            let parameters = try take(MessageQueueListMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            return OutgoingLine.answer(id, result: try await driver.queueList(parameters))
        case MessageQueueRetryMethod.name:
            let parameters = try take(MessageQueueRetryMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            return OutgoingLine.answer(id, result: try await driver.queueRetry(parameters))
        case MessageQueueDropMethod.name:
            let parameters = try take(MessageQueueDropMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            return OutgoingLine.answer(id, result: try await driver.queueDrop(parameters))
        case PublicationListMethod.name:
            let driver = try await registry.driver(take(PublicationListMethod.self, parameters).session)
            return OutgoingLine.answer(id, result: await driver.publicationList())
        case PublicationPutMethod.name:
            let parameters = try take(PublicationPutMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            return OutgoingLine.answer(id, result: try await driver.putPublication(parameters))
        case PublicationRemoveMethod.name:
            let parameters = try take(PublicationRemoveMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            return OutgoingLine.answer(id, result: try await driver.removePublication(parameters))
        case SessionUnwatchMethod.name:
            try unwatch(take(SessionUnwatchMethod.self, parameters).watch)
            return OutgoingLine.answer(id, result: SessionUnwatchMethod.Result())
        case MessageUnsubscribeMethod.name:
            try await unsubscribe(take(MessageUnsubscribeMethod.self, parameters))
            return OutgoingLine.answer(id, result: MessageUnsubscribeMethod.Result())
        case MessageAckMethod.name:
            return OutgoingLine.answer(id, result: try await acknowledge(take(MessageAckMethod.self, parameters)))
        case NetworkStatusMethod.name:
            _ = try take(NetworkStatusMethod.self, parameters)
            return OutgoingLine.answer(id, result: network.status(endpoints: await registry.endpoints))
        case CheckRunMethod.name:
            let parameters = try take(CheckRunMethod.self, parameters)
            return OutgoingLine.answer(id, result: try await registry.driver(parameters.session).check(parameters))
        default:
            throw .unknownMethod(method)
        }
    }

    /// Checks that the peer may call the method, and takes its parameters.
    private func take<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: JSONValue?
    ) throws(RPCError) -> Method.Parameters {
        if let role = Method.role, !roles.contains(role) {
            daemon.assumeIsolated { $0.calls.denied(Method.name) }
            daemon.denials.assumeIsolated { $0.denied(Method.name, to: peer, needs: role) }
            throw .notPermitted(Method.name, role: role)
        }
        daemon.assumeIsolated { $0.calls.called(Method.name) }
        return try ParameterDecoder.decode(Method.Parameters.self, from: parameters)
    }

    private func hello(_ parameters: RPCHelloMethod.Parameters) throws(RPCError) -> RPCHelloMethod.Result {
        if let theirs = parameters.protocol, theirs != ControlMethods.protocolVersion {
            throw .versionMismatch(client: theirs)
        }
        return RPCHelloMethod.Result(
            version: Daemon.version, protocol: ControlMethods.protocolVersion, capabilities: ControlMethods.names,
            roles: Role.allCases.filter(roles.contains))
    }

    /// Thousands of entries take a while to write as JSON, and the sessions shall not wait for it.
    @concurrent private static func line(_ id: RequestID, _ result: SessionHistoryMethod.Result) async -> [UInt8] {
        OutgoingLine.answer(id, result: result)
    }

    private func state(_ id: RequestID, _ state: SessionState) -> [UInt8] {
        OutgoingLine.answer(id, result: SessionStateResult(state: .init(state)))
    }

    /// Checks that the peer may have one more watch or subscription, and is there to have it.
    private func checkFeeds() throws(RPCError) {
        guard !isClosed else { throw .shuttingDown }
        guard watches.count + subscriptions.count < Self.maximumFeeds else {
            throw .tooManyRequests("you have \(Self.maximumFeeds) watches and subscriptions on this connection")
        }
    }

    private func watch(_ id: RequestID, _ parameters: SessionWatchMethod.Parameters) throws(RPCError) -> Reply {
        try checkFeeds()
        let watched = registry.assumeIsolated {
            $0.watch(parameters.session, since: parameters.since, epoch: parameters.epoch) { [weak self] event in
                self?.assumeIsolated { $0.deliver(event) }
            }
        }
        let (result, missed) = try watched.get()
        watches.insert(result.watch)
        hold(result.watch.rawValue)
        return Reply(
            line: OutgoingLine.answer(id, result: result), feed: result.watch.rawValue, missed: missed)
    }

    private func subscribe(
        _ request: RequestID, _ parameters: MessageSubscribeMethod.Parameters
    ) async throws(RPCError) -> Reply {
        let durable = try parameters.consumer.map { text throws(RPCError) in try consumerName(text) }
        let driver = try await registry.driver(parameters.session)
        let filter = try filter(parameters.filter, of: driver)
        let id = await registry.nextSubscription()
        try checkFeeds()
        subscriptions[id] = HeldSubscription(session: driver.name, consumer: durable)
        hold(id.rawValue)
        let relative = Room.isRelative(parameters.filter) ? parameters.filter : nil
        let consumer = LiveConsumer(id: id, filter: filter, qos: QoS(parameters.qos), relative: relative) {
            [weak self] message in
            self?.assumeIsolated { $0.deliver(message) }
        }
        do throws(RPCError) {
            let result: MessageSubscribeMethod.Result
            if let durable {
                let attachment = DurableConsumers.Attachment(
                    subscription: id,
                    deliver: { [weak self] message in self?.assumeIsolated { $0.deliverDurably(message) } },
                    takenOver: { [weak self] in self?.assumeIsolated { $0.takenOver(id) } })
                let attached = try await driver.attach(
                    attachment, to: durable, parameters.filter, filter, QoS(parameters.qos))
                result = .init(
                    subscription: id, grantedQoS: attached.grantedQoS, missed: attached.missed, epoch: attached.epoch)
                // The connection may have ended meanwhile.
                if isClosed { await registry.detach(id, from: driver.name) }
            } else {
                result = .init(subscription: id, grantedQoS: try await driver.subscribe(consumer))
            }
            return Reply(line: OutgoingLine.answer(request, result: result), feed: id.rawValue)
        } catch {
            subscriptions[id] = nil
            forget(id.rawValue)
            throw error
        }
    }

    /// A program's filter as the server has it.
    private func filter(_ text: String, of driver: SessionDriver) throws(RPCError) -> TopicFilter {
        let resolved = driver.assumeIsolated { driver in
            Result { () throws(RPCError) in try driver.resolve(text) }
        }
        let name = try resolved.get()
        do throws(InvalidTopic) {
            return try TopicFilter(name)
        } catch {
            throw .invalidTopic(text, error.description)
        }
    }

    private func unwatch(_ id: WatchID) throws(RPCError) {
        guard watches.remove(id) != nil else { throw .unknownWatch(id) }
        forget(id.rawValue)
        registry.assumeIsolated { $0.removeWatch(id) }
    }

    private func consumerName(_ text: String) throws(RPCError) -> ConsumerName {
        guard let name = ConsumerName(text) else {
            throw .invalidParameters(
                "a consumer's name has 1 to 64 letters, digits, hyphens, underscores and full stops")
        }
        return name
    }

    /// A durable consumer ends for good, unless it is to be kept: then only this program does not have it any more.
    private func unsubscribe(_ parameters: MessageUnsubscribeMethod.Parameters) async throws(RPCError) {
        switch parameters.what {
        case .consumer(let text, let session):
            let name = try consumerName(text)
            try await registry.driver(session).endConsumer(name)
        case .subscription(let id, let keep):
            guard let subscription = subscriptions.removeValue(forKey: id) else { throw .unknownSubscription(id) }
            forget(id.rawValue)
            guard let consumer = subscription.consumer else {
                await registry.unsubscribe(id, from: subscription.session)
                return
            }
            await registry.detach(id, from: subscription.session)
            if !keep { try await registry.driver(subscription.session.description).endConsumer(consumer) }
        }
    }

    private func acknowledge(
        _ parameters: MessageAckMethod.Parameters
    ) async throws(RPCError) -> MessageAckMethod.Result {
        guard let subscription = subscriptions[parameters.subscription], subscription.consumer != nil else {
            throw .unknownSubscription(parameters.subscription)
        }
        return try await registry.driver(subscription.session.description).acknowledge(
            InboxSequence(rawValue: parameters.id), upTo: parameters.upTo, by: parameters.subscription)
    }
}

extension ReconnectMode {
    /// `nil` lets the session choose.
    init?(_ mode: SessionReconnectMethod.Mode) {
        switch mode {
        case .quick: self = .quick
        case .full: self = .full
        case .auto: return nil
        }
    }
}
