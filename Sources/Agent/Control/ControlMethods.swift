import Configuration
import ControlAPI
import Session
import SessionCore

// What each method does: check the role, decode the parameters, ask the session, answer.

extension ControlConnection {
    typealias AnyResult = any Encodable & Sendable

    /// Runs one call. The answer to a notification is not written.
    ///
    /// - Parameter isLong: whether the answer may be long, so that it is encoded off the event loop.
    func answer(_ call: ClientCall, isLong: Bool = false) async -> CallReply {
        switch call {
        case .invalid(let id, let error):
            return CallReply(line: OutgoingLine.failure(id, error))
        case .notification(let method, let parameters):
            return await answer(.null, method, parameters, isLong)
        case .request(let id, let method, let parameters):
            return await answer(id, method, parameters, isLong)
        }
    }

    private func answer(
        _ id: RequestID, _ method: String, _ parameters: JSONValue?, _ isLong: Bool
    ) async -> CallReply {
        while true {
            do throws(RPCError) {
                switch method {
                case SessionWatchMethod.name:
                    return try await watch(id, take(SessionWatchMethod.self, parameters), isLong)
                case MessageSubscribeMethod.name:
                    return try await subscribe(id, take(MessageSubscribeMethod.self, parameters))
                default:
                    return CallReply(line: try await run(id, method, parameters, isLong))
                }
            } catch .sessionIsRestarting {
                // Looking the session up waits for its next driver, and fails when the daemon is stopping.
                continue
            } catch {
                return CallReply(line: OutgoingLine.failure(id, error))
            }
        }
    }

    /// - Returns: the line of the answer.
    private func run(
        _ id: RequestID, _ method: String, _ parameters: JSONValue?, _ isLong: Bool
    ) async throws(RPCError) -> [UInt8] {
        switch method {
        case RPCDiscoverMethod.name:
            _ = try take(RPCDiscoverMethod.self, parameters)
            return OutgoingLine.answer(id, encoded: RPCDiscoverMethod.encodedDocument)
        case SessionHistoryMethod.name:
            return try await registry.history(take(SessionHistoryMethod.self, parameters), for: id)
        default:
            let result = try await result(of: method, parameters)
            return isLong ? await Self.longAnswer(id, result) : OutgoingLine.answer(id, result: result)
        }
    }

    /// Encodes an answer off the event loop, because a megabyte takes a while.
    @concurrent static func longAnswer(_ id: RequestID, _ result: AnyResult) async -> [UInt8] {
        OutgoingLine.answer(id, result: result)
    }

    /// Puts the participants of a room in order off the event loop, because for 10,000 of them it takes a while.
    @concurrent private static func inOrder(_ roster: Roster) async -> RoomParticipantsMethod.Result { roster.result }

    private func result(of method: String, _ parameters: JSONValue?) async throws(RPCError) -> AnyResult {
        switch method.prefix(while: { $0 != "." }) {
        case "session", "room", "check": try await sessionResult(of: method, parameters)
        case "message", "publication": try await messageResult(of: method, parameters)
        default: try await daemonResult(of: method, parameters)
        }
    }

    /// Checks that the peer may call the method, and takes its parameters.
    ///
    /// - Parameter decoded: the parameters, if they are decoded already.
    func take<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: JSONValue?, _ decoded: Result<Method.Parameters, RPCError>? = nil
    ) throws(RPCError) -> Method.Parameters {
        if let role = Method.role { try demand(role, for: Method.name) }
        daemon.assumeIsolated { $0.calls.called(Method.name) }
        if let decoded { return try decoded.get() }
        return try ParameterDecoder.decode(Method.Parameters.self, from: parameters)
    }

    private func demand(_ role: Role, for method: String) throws(RPCError) {
        guard !roles.contains(role) else { return }
        deny(method, because: "it needs the role \(role.rawValue)")
        throw .notPermitted(role: role, others: daemon.access.others(with: role))
    }

    private func deny(_ method: String, because cause: String) {
        daemon.assumeIsolated { $0.calls.denied(method) }
        daemon.denials.assumeIsolated { [peer, client] in $0.denied(method, to: peer, client, because: cause) }
    }

    /// Checks that the peer may use the topic or filter.
    func demand(_ topic: String, to use: TopicRights.Use, for method: String, in driver: SessionDriver) throws(RPCError)
    {
        guard !mayUse(topic, to: use, in: driver) else { return }
        deny(method, because: "[topics] of session \(driver.name) does not let it \(use.rawValue) \(quoted(topic))")
        throw .topicNotPermitted(topic, of: driver.name.description, use.rawValue)
    }

    /// Whether `[topics]` of the session gives the peer the topic or filter.
    func mayUse(_ topic: String, to use: TopicRights.Use, in driver: SessionDriver) -> Bool {
        driver.configuration.topics.isEmpty || rights(in: driver).permit(use, topic)
    }

    /// Accounts are looked up once for each connection, and whenever the configuration is read again, as they are for the
    /// roles.
    private func rights(in driver: SessionDriver) -> TopicRights {
        let topics = driver.configuration.topics
        if let known = topicRights[driver.name], known.topics == topics { return known.rights }
        let rights = peer.map { daemon.access.rights(of: $0, by: topics) } ?? TopicRights(publish: [], subscribe: [])
        topicRights[driver.name] = (topics, rights)
        return rights
    }

    private func check(_ wanted: CheckRunMethod.Parameters) async throws(RPCError) -> CheckRunMethod.Result {
        try demand(wanted.role, for: CheckRunMethod.name)
        guard let text = wanted.configuration else {
            return try await registry.driver(wanted.session).check(wanted)
        }
        guard let peer, daemon.access.isMaster(peer) else {
            throw .onlyForRoot("try a configuration that is not installed")
        }
        return try await registry.check(wanted, of: text)
    }
}

// MARK: rpc, daemon, network
extension ControlConnection {
    private func daemonResult(of method: String, _ parameters: JSONValue?) async throws(RPCError) -> AnyResult {
        switch method {
        case RPCHelloMethod.name:
            return try hello(take(RPCHelloMethod.self, parameters))
        case DaemonStatusMethod.name:
            _ = try take(DaemonStatusMethod.self, parameters)
            var status = await daemon.status()
            await daemon.describeFiles(in: &status)
            status.missingAccounts = await daemon.missingAccounts()
            return status
        case DaemonClientsMethod.name:
            _ = try take(DaemonClientsMethod.self, parameters)
            return DaemonClientsMethod.Result(clients: await server.clients)
        case DaemonReloadMethod.name:
            let wanted = try take(DaemonReloadMethod.self, parameters)
            return wanted.dryRun == true ? try await daemon.reloadPreview() : try await daemon.reload()
        case DaemonMetricsMethod.name:
            _ = try take(DaemonMetricsMethod.self, parameters)
            return await daemon.metrics()
        case DaemonLogLevelMethod.name:
            let level = try take(DaemonLogLevelMethod.self, parameters).level
            return try await daemon.logLevel(level)
        case NetworkStatusMethod.name:
            _ = try take(NetworkStatusMethod.self, parameters)
            return network.status(endpoints: await registry.endpoints)
        default:
            throw .unknownMethod(method)
        }
    }

    private func hello(_ parameters: RPCHelloMethod.Parameters) throws(RPCError) -> RPCHelloMethod.Result {
        if let theirs = parameters.protocol, theirs != ControlMethods.protocolVersion {
            throw .versionMismatch(client: theirs)
        }
        client = parameters.client.map { String($0.unicodeScalars.prefix(64)) } ?? client
        return RPCHelloMethod.Result(
            version: Daemon.version, protocol: ControlMethods.protocolVersion, capabilities: ControlMethods.names,
            roles: Role.allCases.filter(roles.contains))
    }
}

// MARK: session, room, check
extension ControlConnection {
    private func sessionResult(of method: String, _ parameters: JSONValue?) async throws(RPCError) -> AnyResult {
        switch method {
        case SessionListMethod.name:
            _ = try take(SessionListMethod.self, parameters)
            return SessionSnapshot(sessions: await registry.statuses())
        case SessionStatusMethod.name:
            let session = try take(SessionStatusMethod.self, parameters).session
            return try await registry.status(session)
        case SessionUnwatchMethod.name:
            try unwatch(take(SessionUnwatchMethod.self, parameters).watch)
            return SessionUnwatchMethod.Result()
        case SessionConnectMethod.name:
            let wanted = try take(SessionConnectMethod.self, parameters)
            return try await command(wanted.session, waits: wanted.wait, within: wanted.timeout) {
                driver throws(RPCError) in try await driver.connect()
            }
        case SessionDisconnectMethod.name:
            let wanted = try take(SessionDisconnectMethod.self, parameters)
            return try await command(wanted.session, waits: wanted.wait, within: wanted.timeout) {
                driver throws(RPCError) in try await driver.disconnect()
            }
        case SessionReconnectMethod.name:
            let wanted = try take(SessionReconnectMethod.self, parameters)
            return try await command(wanted.session, waits: wanted.wait, within: wanted.timeout) {
                // None for `auto`, which lets the session choose.
                driver throws(RPCError) in try await driver.reconnect(ReconnectMode(rawValue: wanted.mode.rawValue))
            }
        case SessionRenewTokenMethod.name:
            let parameters = try take(SessionRenewTokenMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            let state = try await driver.renewToken(parameters.token, expires: parameters.expires)
            return SessionStateResult(state: state)
        case SessionSimulateMethod.name:
            let parameters = try take(SessionSimulateMethod.self, parameters)
            let state = try await registry.driver(parameters.session).simulate(parameters)
            return SessionStateResult(state: state)
        case SessionSwitchRoomMethod.name:
            let parameters = try take(SessionSwitchRoomMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            return try await driver.switchRoom(to: parameters.room)
        case RoomParticipantsMethod.name:
            let driver = try await registry.driver(take(RoomParticipantsMethod.self, parameters).session)
            let roster = try await driver.session.participants()
            // On the event loop, no event can come before the list that includes it.
            return roster.length <= CallNeeds.shortAnswer ? roster.result : await Self.inOrder(roster)
        case CheckRunMethod.name:
            return try await check(take(CheckRunMethod.self, parameters))
        default:
            throw .unknownMethod(method)
        }
    }

    /// Gives a session a command, whose caller can wait for the outcome.
    ///
    /// - Parameter seconds: how long to wait for the outcome.
    private func command(
        _ session: String, waits: Bool, within seconds: Double?,
        _ give: (SessionDriver) async throws(RPCError) -> SessionState
    ) async throws(RPCError) -> SessionStateResult {
        let limit = try Self.limit(seconds)
        let driver = try await registry.driver(session)
        let state = try await give(driver)
        guard waits else { return SessionStateResult(state: state) }
        return await driver.outcome(within: limit)
    }

    private static func limit(_ seconds: Double?) throws(RPCError) -> Duration? {
        guard let seconds else { return nil }
        guard seconds > 0, seconds <= 31_536_000 else {
            throw .invalidParameters("timeout is a number of seconds above 0, a year at most")
        }
        return .seconds(seconds)
    }
}

// MARK: message, publication
extension ControlConnection {
    private func messageResult(of method: String, _ parameters: JSONValue?) async throws(RPCError) -> AnyResult {
        switch method {
        case MessageUnsubscribeMethod.name:
            try await unsubscribe(take(MessageUnsubscribeMethod.self, parameters))
            return MessageUnsubscribeMethod.Result()
        case MessageAckMethod.name:
            return try await acknowledge(take(MessageAckMethod.self, parameters))
        case MessageQueueListMethod.name:
            let parameters = try take(MessageQueueListMethod.self, parameters)
            return try await registry.queueList(parameters)
        case MessageQueueRetryMethod.name:
            let parameters = try take(MessageQueueRetryMethod.self, parameters)
            guard ![.all(.queued), .all(.everything)].contains(parameters.selection) else {
                throw .invalidParameters("all must be quarantined: the queued messages are sent without a retry")
            }
            let driver = try? await registry.driver(parameters.session)
            // Without its configuration, nothing says what others may publish.
            if driver == nil { try demand(.control, for: MessageQueueRetryMethod.name) }
            let own: TopicRights = if let driver { rights(in: driver) } else { .all }
            return try await registry.queueRetry(parameters, by: own)
        case MessageQueueDropMethod.name:
            let parameters = try take(MessageQueueDropMethod.self, parameters)
            return try await registry.queueDrop(parameters)
        case PublicationListMethod.name:
            let driver = try await registry.driver(take(PublicationListMethod.self, parameters).session)
            let publications = await driver.session.listedPublications
            return PublicationListMethod.Result(publications: publications)
        case PublicationPutMethod.name:
            let parameters = try take(PublicationPutMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            try demand(parameters.topic, to: .publish, for: method, in: driver)
            return try await driver.putPublication(parameters)
        case PublicationRemoveMethod.name:
            let parameters = try take(PublicationRemoveMethod.self, parameters)
            let driver = try await registry.driver(parameters.session)
            try demand(parameters.topic, to: .publish, for: method, in: driver)
            return try await driver.removePublication(parameters)
        default:
            throw .unknownMethod(method)
        }
    }
}
