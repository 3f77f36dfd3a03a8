import ControlAPI
import Logging
import MQTT
import NIOCore
import Session
import SessionCore
import Systemd

// What each method does: permission, parameters, the session asked, the answer.

extension ControlConnection {
    /// Runs one call. The answer to a notification is not written.
    func answer(_ call: ClientCall) async -> Reply {
        switch call {
        case .invalid(let id, let error):
            return Reply(line: OutgoingLine.failure(id, error))
        case .notification(let method, let parameters):
            return await answer(.null, method, parameters)
        case .request(let id, let method, let parameters):
            return await answer(id, method, parameters)
        }
    }

    private func answer(_ id: RequestID, _ method: String, _ parameters: JSONValue?) async -> Reply {
        do throws(RPCError) {
            switch method {
            case SessionWatchMethod.name:
                return try await watch(id, take(SessionWatchMethod.self, parameters))
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
        case RPCDiscoverMethod.name:
            _ = try take(RPCDiscoverMethod.self, parameters)
            return OutgoingLine.answer(id, result: RPCDiscoverMethod.document)
        case DaemonStatusMethod.name:
            _ = try take(DaemonStatusMethod.self, parameters)
            return OutgoingLine.answer(id, result: await daemon.status())
        case DaemonReloadMethod.name:
            let isDry = try take(DaemonReloadMethod.self, parameters).dryRun ?? false
            return OutgoingLine.answer(
                id, result: isDry ? try await daemon.reloadPreview() : try await daemon.reload())
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
            let parameters = try take(SessionConnectMethod.self, parameters)
            let limit = try Self.limit(parameters.timeout)
            let driver = try await registry.driver(parameters.session)
            let state = try await driver.connect()
            return await answer(id, state, of: driver, waits: parameters.wait, within: limit)
        case SessionDisconnectMethod.name:
            let parameters = try take(SessionDisconnectMethod.self, parameters)
            let limit = try Self.limit(parameters.timeout)
            let driver = try await registry.driver(parameters.session)
            let state = try await driver.disconnect()
            return await answer(id, state, of: driver, waits: parameters.wait, within: limit)
        case SessionReconnectMethod.name:
            let parameters = try take(SessionReconnectMethod.self, parameters)
            let limit = try Self.limit(parameters.timeout)
            let driver = try await registry.driver(parameters.session)
            let state = try await driver.reconnect(ReconnectMode(parameters.mode))
            return await answer(id, state, of: driver, waits: parameters.wait, within: limit)
        case SessionRenewTokenMethod.name:
            let parameters = try take(SessionRenewTokenMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            let state = try await driver.renewToken(parameters.token, expires: parameters.expires)
            return OutgoingLine.answer(id, result: SessionStateResult(state: .init(state)))
        case SessionSimulateMethod.name:
            let parameters = try take(SessionSimulateMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            let state = try await driver.simulate(parameters)
            return OutgoingLine.answer(id, result: SessionStateResult(state: .init(state)))
        case SessionSwitchRoomMethod.name:
            let parameters = try take(SessionSwitchRoomMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            return OutgoingLine.answer(id, result: try await driver.switchRoom(to: parameters.room))
        case RoomParticipantsMethod.name:
            let driver = try await registry.driver(take(RoomParticipantsMethod.self, parameters).session)
            return OutgoingLine.answer(id, result: try await driver.participants())
        case SessionHistoryMethod.name:
            return try await registry.history(take(SessionHistoryMethod.self, parameters), for: id)
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
    ///
    /// - Parameter decoded: the parameters, if that has been done already.
    func take<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: JSONValue?, _ decoded: Result<Method.Parameters, RPCError>? = nil
    ) throws(RPCError) -> Method.Parameters {
        if let role = Method.role, !roles.contains(role) {
            daemon.assumeIsolated { $0.calls.denied(Method.name) }
            daemon.denials.assumeIsolated { $0.denied(Method.name, to: peer, needs: role) }
            throw .notPermitted(Method.name, role: role)
        }
        daemon.assumeIsolated { $0.calls.called(Method.name) }
        if let decoded { return try decoded.get() }
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

    /// - Parameter limit: how long to wait for what the command comes to.
    private func answer(
        _ id: RequestID, _ state: SessionState, of driver: SessionDriver, waits: Bool, within limit: Duration?
    ) async -> [UInt8] {
        guard waits else { return OutgoingLine.answer(id, result: SessionStateResult(state: .init(state))) }
        return OutgoingLine.answer(id, result: await driver.outcome(within: limit))
    }

    private static func limit(_ seconds: Double?) throws(RPCError) -> Duration? {
        guard let seconds else { return nil }
        guard seconds > 0, seconds <= 31_536_000 else {
            throw .invalidParameters("timeout is a number of seconds above 0, a year at most")
        }
        return .seconds(seconds)
    }

    private func watch(
        _ id: RequestID, _ parameters: SessionWatchMethod.Parameters
    ) async throws(RPCError) -> Reply {
        let (result, missed) = try beginWatch(parameters)
        return Reply(
            line: OutgoingLine.answer(id, result: result), feed: result.watch.rawValue,
            missed: missed.isEmpty ? [] : await Self.lines(missed))
    }

    /// What comes for the watch is kept back from now on, until it is answered.
    private func beginWatch(
        _ parameters: SessionWatchMethod.Parameters
    ) throws(RPCError) -> (SessionWatchMethod.Result, missed: [SessionEvent]) {
        try addFeed(.watch)
        let watched = registry.assumeIsolated {
            $0.watch(parameters.session, since: parameters.since, epoch: parameters.epoch) { [weak self] event in
                self?.assumeIsolated { $0.deliver(event) }
            }
        }
        do throws(RPCError) {
            let (result, missed) = try watched.get()
            watches.insert(result.watch)
            hold(result.watch.rawValue)
            return (result, missed)
        } catch {
            removedFeed(.watch)
            throw error
        }
    }

    /// Thousands of events take a while to write as JSON, and the sessions must not wait for it.
    @concurrent private static func lines(_ events: [SessionEvent]) async -> [UInt8] {
        events.reduce(into: []) { lines, event in lines += OutgoingLine.notification(event) ?? [] }
    }

    private func subscribe(
        _ request: RequestID, _ parameters: MessageSubscribeMethod.Parameters
    ) async throws(RPCError) -> Reply {
        let durable = try parameters.consumer.map { text throws(RPCError) in try consumerName(text) }
        let driver = try await registry.driver(parameters.session)
        let filter = try filter(parameters.filter, of: driver)
        let id = await registry.nextSubscription()
        try addFeed(.subscription)
        subscriptions[id] = HeldSubscription(session: driver.name, consumer: durable)
        hold(id.rawValue)
        let relative = Room.isRelative(parameters.filter) ? parameters.filter : nil
        do throws(RPCError) {
            let result: MessageSubscribeMethod.Result
            if let durable {
                let subscriber = Subscriber(
                    deliver: { [weak self] message in self?.assumeIsolated { $0.deliverDurably(message) } },
                    hasRoom: { [weak self] in self?.assumeIsolated { $0.hasRoomForConsumers() } ?? false },
                    takenOver: { [weak self] in self?.assumeIsolated { $0.takenOver(id) } })
                let attached = try await driver.attach(
                    subscriber, as: id, to: durable, parameters.filter, filter, QoS(parameters.qos))
                result = .init(
                    subscription: id, grantedQoS: attached.grantedQoS, missed: attached.missed, epoch: attached.epoch)
                // The connection may have ended meanwhile.
                if isClosed { await registry.detach(id, from: driver.name) }
            } else {
                let consumer = LiveConsumer(id: id, filter: filter, qos: QoS(parameters.qos), relative: relative)
                let subscriber = Subscriber(deliver: { [weak self] message in
                    self?.assumeIsolated { $0.deliver(message) }
                })
                result = .init(subscription: id, grantedQoS: try await driver.subscribe(consumer, subscriber))
            }
            return Reply(line: OutgoingLine.answer(request, result: result), feed: id.rawValue)
        } catch {
            if subscriptions.removeValue(forKey: id) != nil { removedFeed(.subscription) }
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
        removedFeed(.watch)
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
            removedFeed(.subscription)
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
