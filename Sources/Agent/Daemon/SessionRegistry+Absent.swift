import Configuration
import ControlAPI
import DurableStore
import Logging
import Session
import Systemd

// Sessions that were removed from the configuration while the store had something of them. It stays there, for a file of the
// same name and with one of the same servers. A file with others is refused, since it may be that of another session.

extension SessionRegistry {
    /// Returns the sessions that are not configured and of which something is on disk; `nil` while the disk does not answer.
    func absentSessions() async -> [AbsentSession]? {
        guard let surroundings else { return [] }
        let (store, present) = (surroundings.store, Set(entries.keys))
        let found = try? await surroundings.commits.watch.answer { () throws(StoreError) in
            try await store.absentStates(besides: present)
        }
        return found?.map(AbsentSession.init)
    }

    /// More reloads than there are while a disk fails.
    static let mostUnrecorded = 100

    /// Appends the sessions that there are from now on. When there are too many lists, the oldest are merged: a session that
    /// one of them did not have was removed. If it moved to other servers before that, its file may be refused without need.
    static func note(_ present: [SessionName: [Endpoint]], in unrecorded: inout [[SessionName: [Endpoint]]]) {
        if unrecorded.last != present { unrecorded.append(present) }
        guard unrecorded.count > mostUnrecorded else { return }
        let oldest = unrecorded.removeFirst()
        unrecorded[0] = unrecorded[0].filter { oldest[$0.key] != nil }
    }

    /// Tells the store which sessions there are, and which there were to be before, in their order.
    func record(in store: any SessionStore) async throws(StoreError) {
        while let present = unrecorded.first {
            try await store.setPresent(present)
            if unrecorded.first == present { unrecorded.removeFirst() }
        }
    }

    /// - Returns: whether the store knows; `false` while the disk does not answer, or if it fails.
    func recordPresent() async -> Bool {
        guard let surroundings, !unrecorded.isEmpty else { return true }
        let store = surroundings.store
        return await
            (try? surroundings.commits.watch.answer { [self] () throws(StoreError) in
                try await record(in: store)
                return true
            }) ?? false
    }

    func recordPresentLater() async {
        defer { retried.remove(.record) }
        while !isStopping {
            await eventLoop.pause(for: CommitQueue.retryInterval)
            if await recordPresent() { return }
        }
    }

    /// Refuses files that would send elsewhere what is on disk of sessions that were removed.
    ///
    /// - Returns: the errors; none while the disk does not answer. Then each is found when its session is started.
    func refuseForeign(
        in sessions: inout [SessionName: Result<SessionConfiguration, ConfigurationErrors>],
        of files: ConfigurationFiles
    ) async -> [ConfigurationError] {
        guard let surroundings else { return [] }
        // A session that runs has been decided about.
        let stopped = sessions.filter { running($0.key) == nil }.compactMapValues { try? $0.get().endpoints }
        guard !stopped.isEmpty else { return [] }
        let store = surroundings.store
        _ = await recordPresent()
        let found = try? await surroundings.commits.watch.answer { () throws(StoreError) in
            try await store.foreignStates(among: stopped)
        }
        let errors = (found ?? [:]).mapValues { $0.error(in: files) }
        for (name, error) in errors { sessions[name] = .failure(ConfigurationErrors([error])) }
        return errors.values.sorted()
    }

    /// Returns why a session is not started that was removed before.
    func foreignError(
        _ name: SessionName, _ configuration: SessionConfiguration
    ) async throws(StoreError) -> ConfigurationError? {
        try await surroundings?.store.foreignStates(among: [name: configuration.endpoints])[name]?.error(in: files)
    }

    /// Returns those of these sessions, which are still configured, of which something would stay on disk.
    func leavingSomething(_ sessions: [String]) -> [AbsentSession] {
        sessions.compactMap { session in
            guard let status = try? status(session) else { return nil }
            let outbox = status.outbox
            let driver = try? runningDriver(session)
            let absent = AbsentSession(
                session: session, messages: outbox.queued + outbox.inFlight + outbox.quarantined, bytes: outbox.bytes,
                oldest: outbox.oldest, consumers: status.inbox.consumers.count, received: status.inbox.messages,
                publications: driver?.assumeIsolated { $0.ask { $0.publications.entries.count } } ?? 0)
            return absent.messages + absent.consumers + absent.publications > 0 ? absent : nil
        }
    }

    /// Returns those of the sessions that were just removed of which something stays on disk, and writes them to the
    /// journal.
    ///
    /// - Parameter before: what they had before they were stopped, in case the disk does not answer.
    func tellAbsent(_ before: [AbsentSession], of removed: [String]) async -> [AbsentSession] {
        guard !removed.isEmpty else { return [] }
        let absent = await absentSessions()?.filter { removed.contains($0.session) } ?? before
        for session in absent {
            logger.notice("\(session.sentence)", metadata: ["HOLDFAST_SESSION": "\(session.session)"])
        }
        return absent
    }
}

extension ForeignState {
    /// What is wrong with the file of a session that has this name.
    fileprivate func error(in files: ConfigurationFiles) -> ConfigurationError {
        let name = state.session
        let all = servers.map(\.description).joined(separator: ", ")
        return .stored(
            "on disk: \(AbsentSession(state).list) of a session \(name) that was removed, for \(all), which this file does not "
                + "name; give the file another name, name one of those servers in endpoints as well, or remove what is on "
                + "disk, with holdfastctl queue drop \(name) --all --any-state, and then holdfastctl reload",
            in: files.path(of: name))
    }
}

extension AbsentSession {
    fileprivate init(_ state: AbsentState) {
        self.init(
            session: state.session.description, messages: state.messages, bytes: state.bytes, oldest: state.oldest,
            consumers: state.consumers, received: state.received, publications: state.publications)
    }
}
