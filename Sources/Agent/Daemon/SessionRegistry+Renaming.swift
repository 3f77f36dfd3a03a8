import Configuration
import ControlAPI
import DurableStore
import Logging
import Session
import SessionCore

// A session that continues under another name, because its file says what it was called before. What the store has under
// that name is moved in one transaction, before the session is started. It does not matter when the file got its new name,
// and whether the daemon ran then: whatever ends the daemon, the next start does the same.
//
// The key stays in the file, so it is a wish that is granted once: the store notes which names a session had when it was
// started, and only other ones are a new wish. Later, the earlier name may be that of quite another session.

extension SessionRegistry {
    /// Gives a session that is about to be started what the store has under a name that it had before.
    ///
    /// - Returns: that name, if there was something.
    func takeOver(by name: SessionName, _ how: Start) async throws(StoreError) -> SessionName? {
        guard let surroundings, !how.configuration.formerNames(of: name).isEmpty else { return nil }
        let (store, queue, present) = (surroundings.store, historyQueue, present)
        let outcome = try await surroundings.commits.watch.wait { () throws(StoreError) in
            await queue?.everythingRecorded()
            return try await store.takeOver(by: name, present: present)
        }
        switch outcome {
        case .nothing: return nil
        case .done(let former):
            logger.notice(
                "\(name): it was called \(former) before, and has its messages and its history",
                metadata: ["HOLDFAST_SESSION": "\(name)"])
            return former
        case .refused(let former):
            logger.warning(
                "\(name): it has messages, consumers or publications of its own, so what is on disk under its earlier name \(former) stays there",
                metadata: ["HOLDFAST_SESSION": "\(name)"])
            return nil
        }
    }

    /// Returns what the store has to know of the sessions in these files, and of those that keep their configuration.
    func described(
        _ sessions: [SessionName: Result<SessionConfiguration, ConfigurationErrors>]
    ) -> [SessionName: PresentSession] {
        var described: [SessionName: PresentSession] = [:]
        for (name, result) in sessions {
            var configuration = try? result.get()
            if configuration == nil, case .running(let driver)? = entries[name] { configuration = driver.configuration }
            described[name] = PresentSession(configuration, name)
        }
        return described
    }

    /// Refuses two files of which one says that its session had the name of the other before, and has not been started
    /// with that yet: what is on disk under that name could be that of either. Each would send the messages of the other.
    func refuseContested(
        in sessions: inout [SessionName: Result<SessionConfiguration, ConfigurationErrors>]
    ) async -> [ConfigurationError] {
        let isContested = sessions.contains { name, result in
            (try? result.get())?.formerNames(of: name).contains { sessions[$0] != nil } ?? false
        }
        guard isContested, let surroundings else { return [] }
        let (store, described) = (surroundings.store, described(sessions))
        let claims = try? await surroundings.commits.watch.answer { () throws(StoreError) in
            await store.claims(of: described)
        }
        var errors: [ConfigurationError] = []
        for (name, former) in (claims ?? [:]).sorted(by: { $0.key < $1.key }) where sessions[former] != nil {
            for each in [name, former] {
                let error = ConfigurationError.contested(former, by: name, in: each)
                guard case .success? = sessions[each] else { continue }
                sessions[each] = .failure(ConfigurationErrors([error]))
                errors.append(error)
            }
        }
        return errors
    }

    /// Returns the sessions that new ones are to continue, each with the name of the new one.
    func renamed(_ loaded: LoadedConfiguration) -> [SessionName: SessionName] {
        var renamed: [SessionName: SessionName] = [:]
        for (name, result) in loaded.sessions.sorted(by: { $0.key < $1.key }) where entries[name] == nil {
            guard case .success(let configuration) = result else { continue }
            // The latest one, as when it is taken over.
            let former = configuration.formerNames(of: name).last { former in
                guard case .running? = entries[former] else { return false }
                return loaded[former] == nil && renamed[former] == nil
            }
            if let former { renamed[former] = name }
        }
        return renamed
    }
}

extension SessionConfiguration {
    /// The names that a session had before.
    func formerNames(of name: SessionName) -> [SessionName] {
        formerly.compactMap { SessionName($0) }.filter { $0 != name }
    }
}

extension PresentSession {
    init(_ configuration: SessionConfiguration?, _ name: SessionName) {
        self.init(endpoints: configuration?.endpoints ?? [], formerNames: configuration?.formerNames(of: name))
    }
}
