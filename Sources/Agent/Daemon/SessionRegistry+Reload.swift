import Configuration
import ControlAPI
import DurableStore
import Logging
import Session
import SessionCore
import Systemd

// A new configuration: sessions are added, changed and removed.

extension SessionRegistry {
    /// - Throws: the error of a reload that would be refused.
    func checkReload() throws(RPCError) {
        guard !isStopping else { throw .shuttingDown }
    }

    /// Waits until nothing else stops and starts sessions.
    func takeTurn() async {
        await withCheckedContinuation { if turns.begin($0) { $0.resume() } }
    }

    func endTurn() { turns.end()?.resume() }

    /// Applies a new configuration: adds, changes and removes sessions. The others are not touched.
    func apply(_ loaded: LoadedConfiguration) async throws(RPCError) -> DaemonReloadMethod.Result {
        await takeTurn()
        defer {
            endTurn()
            sessionsChanged()
        }
        try checkReload()
        files = loaded.files
        let loaded = await listed(loaded)
        var result = changes(to: loaded)
        let before = leavingSomething(result.removed)
        let stopped = await stop(changedBy: loaded)
        result.leftBehind = stopped.sorted { $0.key < $1.key }.compactMap { name, stopped in
            stopped.leftBehind.map { .init(session: name.description, message: $0) }
        }
        // Also the instances of a template that cannot be read.
        let hidden = entries.keys.filter { loaded.sessions[$0] == nil }.compactMap { name in
            loaded[name].map { (name, $0) }
        }
        await willHave(loaded.sessions.merging(hidden) { own, _ in own })
        for name in entries.keys.sorted() where loaded[name] == nil {
            entries[name] = nil
            var subscribers: [Subscriber] = []
            changeCarriedOver(of: name) { subscribers = $0.sessionRemoved() }
            rejected[name] = nil
            let time = clock.wallClock()
            record { $0.removed(name, at: time) }
            var event = SessionEvent(time: time, session: name.description, event: .sessionRemoved)
            event.room = stopped[name]?.room
            report(name, event)
            for subscriber in subscribers { subscriber.ended(event) }
            metrics.forget(name.description)
            changed(name)
        }
        var failure: RPCError?
        for name in Set(entries.keys).union(loaded.sessions.keys).sorted() {
            guard let configuration = loaded[name] else { continue }
            defer { changed(name) }
            do throws(StoreError) {
                try await apply(configuration, to: name, wasUp: stopped[name]?.wasUp)
            } catch {
                carriedOver[name]?.releasePublishers()
                failure = failure ?? .internalError(unreadable(name, error).reason.message)
            }
        }
        result.absentSessions = await tellAbsent(before, of: result.removed)
        statusMayHaveChanged()
        if let failure { throw failure }
        return result
    }

    /// How a session is started that was stopped for a new configuration.
    private func next(
        after driver: SessionDriver, as new: SessionConfiguration, wasUp: Bool
    ) async -> Start {
        // What the server has under another client identifier was never this session's, and must not be resumed.
        let isSameClient = driver.configuration.clientID.hasSameBytes(as: new.clientID)
        return Start(
            configuration: new, wasUp: wasUp, obsolete: isSameClient ? [.failure] : [.failure, .sessionAtServer],
            decided: .some(await driver.session.verdict))
    }

    /// Returns what applying a configuration would change.
    func preview(_ loaded: LoadedConfiguration) async throws(RPCError) -> DaemonReloadMethod.Result {
        let loaded = await listed(loaded)
        var result = changes(to: loaded)
        result.absentSessions = leavingSomething(result.removed)
        return result
    }

    private func listed(_ loaded: LoadedConfiguration) async -> LoadedConfiguration {
        var loaded = loaded
        loaded.sessions = await listed(loaded.sessions, loaded.brokenTemplates)
        let errors = await refuseForeign(in: &loaded.sessions, of: loaded.files)
        loaded.errors += errors
        return loaded
    }

    private func changes(to loaded: LoadedConfiguration) -> DaemonReloadMethod.Result {
        var result = DaemonReloadMethod.Result()
        for name in Set(entries.keys).union(loaded.sessions.keys).sorted() {
            switch (entries[name], loaded[name]) {
            case (_, nil): result.removed.append(name.description)
            case (nil, _): result.added.append(name.description)
            case (.running(let driver)?, .success(let new)?):
                guard !driver.configuration.isSame(as: new) else { continue }
                result.changed.append(name.description)
                result.changes += SessionConfiguration.changes(from: driver.configuration, to: new, of: name)
            case (.running?, .failure?): result.kept.append(name.description)
            case (.failed(.configuration, _, _)?, .failure?): break
            case (.failed?, _): result.changed.append(name.description)
            }
        }
        result.errors = loaded.errors.map { error in
            ConfigurationProblem(error, of: loaded.session(of: error))
        }
        return result
    }

    /// Stops the sessions that are removed or changed, all at once, since each may take its time to say goodbye.
    ///
    /// - Returns: the sessions that were stopped.
    private func stop(changedBy loaded: LoadedConfiguration) async -> [SessionName: StoppedSession] {
        var stopped: [SessionName: StoppedSession] = [:]
        await withTaskGroup(of: (SessionName, String?).self) { group in
            for (name, entry) in entries {
                guard case .running(let driver) = entry else { continue }
                var reason = Reason(.configurationChanged)
                var (parting, hasNext, isSameClient) = (Session.Parting.forGood, false, false)
                switch loaded[name] {
                case nil: reason.message = "the session was removed from the configuration"
                case .success(let new)? where driver.configuration.isSame(as: new): continue
                // If the new file names other servers only, the old ones must not keep what the session publishes.
                case .success(let new)?:
                    if !Set(driver.configuration.endpoints).isDisjoint(with: new.endpoints) {
                        parting =
                            driver.configuration.isSameParticipant(as: new) ? .stayingInRoom : .leavingRoom
                    }
                    hasNext = true
                    isSameClient = driver.configuration.isSameClient(as: new)
                // It keeps its present configuration.
                case .failure?: continue
                }
                let (state, room) = (await driver.session.state, await driver.session.room?.name)
                stopped[name] = StoppedSession(
                    driver: driver, room: room, wasUp: state != .disconnected && state != .disconnecting)
                // Callers that ask for this session wait until `changed`.
                changing[name] = []
                let (why, how, isFollowed, keepsCredential) = (reason, parting, hasNext, isSameClient)
                group.addTask {
                    let leftBehind = await self.stop(
                        driver, why, how, hasNext: isFollowed, keepsCredential: keepsCredential)
                    return (name, leftBehind)
                }
            }
            for await (name, leftBehind) in group { stopped[name]?.leftBehind = leftBehind }
        }
        return stopped
    }

    private struct StoppedSession {
        var driver: SessionDriver
        /// The room that it was in.
        var room: String?
        /// Whether it was up or trying to be.
        var wasUp: Bool
        /// What its server may keep of it, if it is gone for good.
        var leftBehind: String?
    }

    /// - Parameter wasUp: `nil` for a session that was not stopped.
    private func apply(
        _ configuration: Result<SessionConfiguration, ConfigurationErrors>, to name: SessionName, wasUp: Bool?
    ) async throws(StoreError) {
        switch (entries[name], configuration) {
        case (.running(let driver)?, .success(let new)):
            rejected[name] = nil
            guard let wasUp else { return }
            try await startNowOrLater(name, await next(after: driver, as: new, wasUp: wasUp))
        case (.running?, .failure(let errors)):
            if rejected.updateValue(errors, forKey: name) != errors { tellRejected(name, errors) }
        case (.failed(.configuration(let old, _), _, _)?, .failure(let errors)) where old == errors: break
        case (.failed(let obstacle, _, _)?, .failure(let errors)):
            await list(name, as: .configuration(errors, later: obstacle.later))
        case (.failed(let obstacle, _, _)?, .success(let new)) where obstacle.later != nil:
            // It is still to be started as it was to be before.
            guard var later = obstacle.later else { return }
            if !later.configuration.isSame(as: new) {
                later.obsolete.insert(.failure)
                if !later.configuration.clientID.hasSameBytes(as: new.clientID) {
                    later.obsolete.insert(.sessionAtServer)
                }
                if !later.configuration.isSameClient(as: new) { carriedOver[name]?.credential = nil }
                later.configuration = new
            }
            try await startNowOrLater(name, later)
        case (_, .success(let new)):
            // It may have been given for another configuration.
            carriedOver[name]?.credential = nil
            try await startNowOrLater(name, Start(configuration: new, obsolete: [.failure]))
        case (_, .failure(let errors)):
            await list(name, as: .configuration(errors))
        }
    }

    private func tellRejected(_ name: SessionName, _ errors: ConfigurationErrors) {
        logger.error(
            "\(name): its new configuration has errors, so it keeps the previous one: \(errors.summary)",
            metadata: ["MESSAGE_ID": "\(MessageID.reloadRefused)", "HOLDFAST_SESSION": "\(name)"])
    }

    /// The store has a new file, with what could be read of the old one. Unless the change was seamless, what the
    /// sessions know about the store may no longer be true, so they are restarted.
    func storeReplaced(_ moved: OpenReport.MovedAside) {
        logger.error("\(moved.sentence)", metadata: ["MESSAGE_ID": "\(MessageID.storeReplaced)"])
        for sentence in moved.adopted.sentences { logger.error("\(sentence)") }
        guard !isStopping, !moved.isSeamless else { return }
        Task { await restartAll() }
    }

    private func restartAll() async {
        // A reload restarts only some of the sessions.
        await takeTurn()
        defer { endTurn() }
        guard !isStopping else { return }
        var drivers: [(driver: SessionDriver, wasUp: Bool)] = []
        for driver in self.drivers {
            let state = await driver.session.state
            drivers.append((driver, state != .disconnected && state != .disconnecting && state != .failed))
            changing[driver.name] = []
        }
        await withTaskGroup(of: Void.self) { group in
            for (driver, _) in drivers {
                group.addTask {
                    _ = await self.stop(driver, Reason(.storeReplaced), .leavingRoom, keepsCredential: true)
                }
            }
        }
        for (driver, wasUp) in drivers {
            defer { changed(driver.name) }
            let decided = await driver.session.verdict
            try? await startNowOrLater(
                driver.name,
                Start(configuration: driver.configuration, wasUp: wasUp, decided: .some(decided)))
        }
        statusMayHaveChanged()
    }

    // MARK: Sessions that cannot be started

    /// Starts a session. If its state cannot be read, it is listed with the error, and started once the state can be:
    /// a disk may fail for a moment only. Damage does not pass.
    func startNowOrLater(_ name: SessionName, _ how: Start) async throws(StoreError) {
        do throws(StoreError) {
            try await start(name, how)
        } catch {
            guard case .damaged = error else {
                await list(name, as: unreadable(name, error, later: how))
                if retried.insert(.start).inserted { Task { await startLater() } }
                throw error
            }
            await list(name, as: unreadable(name, error))
            throw error
        }
    }

    /// Sessions whose state could not be read, for a reason that may pass, and how to start them.
    var unstarted: [SessionName: Start] {
        entries.compactMapValues { entry in
            if case .failed(.store(_, let later), _, _) = entry { later } else { nil }
        }
    }

    private func startLater() async {
        defer { retried.remove(.start) }
        while !unstarted.isEmpty, !isStopping {
            await eventLoop.pause(for: CommitQueue.retryInterval)
            await takeTurn()
            defer { endTurn() }
            if isStopping { return }
            for (name, how) in unstarted.sorted(by: { $0.key < $1.key }) {
                // Callers that ask for this session wait until `changed`.
                changing[name] = []
                defer { changed(name) }
                do throws(StoreError) {
                    try await start(name, how)
                } catch {
                    if case .damaged = error { await list(name, as: unreadable(name, error)) }
                }
            }
            statusMayHaveChanged()
        }
    }

    /// - Parameter keepsCredential: whether the next driver may use the credential that a program gave.
    /// - Returns: what the server may keep of a session that is gone for good.
    private func stop(
        _ driver: SessionDriver, _ reason: Reason, _ parting: Session.Parting, hasNext: Bool = false,
        keepsCredential: Bool
    ) async -> String? {
        var (left, leftBehind) = await driver.stop(reason, parting, hasNext: hasNext)
        if !keepsCredential { left.credential = nil }
        carriedOver[driver.name] = left.isEmpty ? nil : left
        return leftBehind
    }

    private func changed(_ name: SessionName) {
        for waiter in changing.removeValue(forKey: name) ?? [] { waiter.resume() }
    }
}

extension SessionConfiguration {
    /// Whether the session is the same participant of the same room of the same servers with another configuration.
    fileprivate func isSameParticipant(as new: SessionConfiguration) -> Bool {
        clientID.hasSameBytes(as: new.clientID) && user == new.user && device == new.device && room == new.room
            && roomPrefix == new.roomPrefix && endpoints == new.endpoints
    }

    /// Whether a credential that a program gave for this configuration may be used with another one: for the same client
    /// of the same servers, and as safely.
    func isSameClient(as new: SessionConfiguration) -> Bool {
        user.hasSameBytes(as: new.user) && (username ?? "").hasSameBytes(as: new.username ?? "")
            && username == new.username && clientID.hasSameBytes(as: new.clientID) && endpoints == new.endpoints
            && mqtt.authentication == new.mqtt.authentication && new.mayCarryPassword
    }
}
