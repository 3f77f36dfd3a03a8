import Configuration
import ControlAPI
import DurableStore
import Logging
import Session
import SessionCore
import Systemd
import Transport

// Another configuration: sessions that are new, changed and gone.

extension SessionRegistry {
    /// - Throws: when a reload would be refused.
    func checkReload() throws(RPCError) {
        guard !isStopping else { throw .shuttingDown }
        guard !isReloading else { throw .tooManyRequests("a reload is under way") }
    }

    /// Applies another configuration: sessions that are new, changed and gone; the others do not notice.
    func apply(_ loaded: LoadedConfiguration) async throws(RPCError) -> DaemonReloadMethod.Result {
        try checkReload()
        isReloading = true
        defer {
            isReloading = false
            sessionsChanged()
        }
        let result = preview(loaded)
        let wereUp = await stop(changedBy: loaded)
        for name in entries.keys.sorted() where loaded[name] == nil {
            entries[name] = nil
            rejected[name] = nil
            changed(name)
        }
        var failure: RPCError?
        for name in Set(entries.keys).union(loaded.sessions.keys).sorted() {
            guard let configuration = loaded[name] else { continue }
            defer { changed(name) }
            do throws(StoreError) {
                try await apply(configuration, to: name, wasUp: wereUp[name])
            } catch {
                let entry = unreadable(name, error)
                if changing[name] != nil { list(name, as: entry) }
                failure = failure ?? .internalError(entry.reason?.message ?? "\(error)")
            }
        }
        if let failure {
            statusMayHaveChanged()
            throw failure
        }
        statusMayHaveChanged()
        return result
    }

    /// What applying a configuration comes to.
    func preview(_ loaded: LoadedConfiguration) -> DaemonReloadMethod.Result {
        var result = DaemonReloadMethod.Result()
        for name in Set(entries.keys).union(loaded.sessions.keys).sorted() {
            switch (entries[name], loaded[name]) {
            case (_, nil): result.removed.append(name.description)
            case (nil, _): result.added.append(name.description)
            case (.running(let driver)?, .success(let new)?):
                guard driver.configuration != new else { continue }
                result.changed.append(name.description)
                result.changes += SessionConfiguration.changes(from: driver.configuration, to: new, of: name)
            case (.running?, .failure?): result.kept.append(name.description)
            case (.broken?, .failure?): break
            case (.broken?, .success?), (.unreadable?, _): result.changed.append(name.description)
            }
        }
        result.errors = loaded.errors.map { error in
            ConfigurationProblem(error, of: loaded.session(of: error))
        }
        return result
    }

    /// Stops the sessions that are gone or others now, all at once: each may need its time to say goodbye.
    ///
    /// - Returns: of each that was stopped, whether it was up, or tried to be.
    private func stop(changedBy loaded: LoadedConfiguration) async -> [SessionName: Bool] {
        var wereUp: [SessionName: Bool] = [:]
        await withTaskGroup(of: Void.self) { group in
            for (name, entry) in entries {
                guard case .running(let driver) = entry else { continue }
                let code = Reason.Code.configurationChanged
                var forGood = true
                switch loaded[name] {
                case nil: break
                case .success(driver.configuration)?: continue
                // Another server gets what the session publishes, and the old one shall not keep it.
                case .success(let new)?:
                    forGood = Set(driver.configuration.endpoints).isDisjoint(with: new.endpoints)
                // It goes on with the configuration that it has.
                case .failure?: continue
                }
                let state = await driver.session.machine.status.state
                wereUp[name] = state != .disconnected && state != .disconnecting
                // Until `changed`, callers that ask for it wait.
                changing[name] = []
                let isForGood = forGood
                group.addTask { await self.stop(driver, code, forGood: isForGood) }
            }
        }
        return wereUp
    }

    /// - Parameter wasUp: `nil` for a session that was not stopped.
    private func apply(
        _ configuration: Result<SessionConfiguration, ConfigurationErrors>, to name: SessionName, wasUp: Bool?
    ) async throws(StoreError) {
        switch (entries[name], configuration) {
        case (.running(let driver)?, .success(let new)):
            rejected[name] = nil
            guard let wasUp else { return }
            // A session that the server may have under another client id was never ours: it is not to be resumed.
            let isSameClient = driver.configuration.clientID == new.clientID
            try await start(
                name, new, wasUp: wasUp, without: isSameClient ? [.failure] : [.failure, .sessionAtServer],
                decided: .some(await driver.session.verdict))
        case (.running?, .failure(let errors)):
            if rejected.updateValue(errors, forKey: name) != errors { tellRejected(name, errors) }
        case (.broken(let old, _)?, .failure(let errors)):
            if old != errors { listBroken(name, errors) }
        case (_, .success(let new)):
            try await start(name, new, without: [.failure])
        case (.unreadable?, .failure(let errors)), (nil, .failure(let errors)):
            listBroken(name, errors)
        }
    }

    private func tellRejected(_ name: SessionName, _ errors: ConfigurationErrors) {
        logger.error(
            "\(name): its new configuration has errors, so it keeps the previous one: \(errors.summary)",
            metadata: ["MESSAGE_ID": "\(MessageID.reloadRefused)", "HOLDFAST_SESSION": "\(name)"])
    }

    /// The store has another file, with what could be read of the one before: what the sessions know of it may not be so,
    /// unless it is seamless.
    func storeReplaced(_ moved: OpenReport.MovedAside) {
        logger.error("\(moved.sentence)", metadata: ["MESSAGE_ID": "\(MessageID.storeReplaced)"])
        guard !isStopping, !moved.isSeamless else { return }
        Task { await restartAll() }
    }

    private func restartAll() async {
        // A reload restarts nothing that this does not.
        while isReloading {
            await eventLoop.pause(for: .milliseconds(100))
        }
        guard !isStopping else { return }
        isReloading = true
        defer { isReloading = false }
        var drivers: [(driver: SessionDriver, wasUp: Bool)] = []
        for case .running(let driver) in entries.values {
            let state = await driver.session.machine.status.state
            drivers.append((driver, state != .disconnected && state != .disconnecting && state != .failed))
            changing[driver.name] = []
        }
        await withTaskGroup(of: Void.self) { group in
            for (driver, _) in drivers { group.addTask { await self.stop(driver, .storeReplaced, forGood: false) } }
        }
        for (driver, wasUp) in drivers {
            defer { changed(driver.name) }
            let decided = await driver.session.verdict
            do throws(StoreError) {
                try await start(driver.name, driver.configuration, wasUp: wasUp, decided: .some(decided))
            } catch {
                list(driver.name, as: unreadable(driver.name, error))
            }
        }
        statusMayHaveChanged()
    }

    private func stop(_ driver: SessionDriver, _ code: Reason.Code, forGood: Bool) async {
        let consumers = await driver.stop(code, forGood: forGood)
        parked[driver.name] = consumers.isEmpty ? nil : consumers
    }

    private func changed(_ name: SessionName) {
        for waiter in changing.removeValue(forKey: name) ?? [] { waiter.resume() }
    }
}
