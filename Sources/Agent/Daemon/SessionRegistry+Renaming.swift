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
// The key stays in the file, but each name in it is decided about once. What cannot be decided is an error of the file: no
// session may send the messages of another one.

extension SessionRegistry {
    /// Gives a session that is about to be started what the store has under a name that it had before.
    func takeOver(by name: SessionName, _ how: Start) async throws(StoreError) -> TakeOver {
        guard let surroundings, !how.configuration.formerNames(of: name).isEmpty else { return .nothing }
        let (store, queue, present) = (surroundings.store, historyQueue, present)
        let outcome = try await surroundings.commits.watch.wait { () throws(StoreError) in
            await queue?.everythingRecorded()
            return try await store.takeOver(by: name, present: present)
        }
        if case .done(let former) = outcome {
            logger.notice(
                "\(name): it was called \(former) before, and has its messages and its history",
                metadata: ["HOLDFAST_SESSION": "\(name)"])
        }
        return outcome
    }

    /// Returns what the store has to know of the sessions in these files, and of those that keep their configuration.
    func described(
        _ sessions: [SessionName: Result<SessionConfiguration, ConfigurationErrors>]
    ) -> [SessionName: PresentSession] {
        var described: [SessionName: PresentSession] = [:]
        for (name, result) in sessions {
            var configuration = try? result.get()
            if configuration == nil, case .running(let driver)? = entries[name] { configuration = driver.configuration }
            guard let configuration else {
                described[name] = PresentSession()
                continue
            }
            let names = configuration.formerNames(of: name)
            described[name] = PresentSession(
                endpoints: configuration.endpoints, formerNames: names,
                successorOf: entries[name] == nil
                    ? names.last { sessions[$0] == nil && runs($0, asClientOf: configuration) } : nil)
        }
        return described
    }

    private func runs(_ name: SessionName, asClientOf new: SessionConfiguration) -> Bool {
        guard case .running(let driver)? = entries[name] else { return false }
        return driver.configuration.clientID == new.clientID
            && !Set(driver.configuration.endpoints).isDisjoint(with: new.endpoints)
    }

    /// Refuses files whose earlier names cannot be decided about, and a session that is still configured under a name that
    /// another one is to have had: what is on disk could be that of either.
    ///
    /// - Parameter isPatient: whether to wait for a disk that does not answer.
    /// - Returns: the errors, and the sessions that continue others, with the earlier name of each.
    func decideNames(
        in sessions: inout [SessionName: Result<SessionConfiguration, ConfigurationErrors>], isPatient: Bool
    ) async throws(StoreError) -> (errors: [ConfigurationError], continued: [SessionName: SessionName]) {
        // Those of a session that runs have been decided about.
        let asking = sessions.filter { name, result in
            guard case .success(let new) = result, !new.formerNames(of: name).isEmpty else { return false }
            guard case .running(let driver)? = entries[name] else { return true }
            return driver.configuration.formerly != new.formerly
        }
        guard !asking.isEmpty, let surroundings else { return ([], [:]) }
        let (store, watch, names) = (surroundings.store, surroundings.commits.watch, Set(asking.keys))
        let described = described(sessions)
        let ask = { @Sendable () async throws(StoreError) -> [SessionName: NameClaim] in
            try await store.claims(of: names, among: described)
        }
        let claims = isPatient ? try await watch.wait(for: ask) : try await watch.answer(ask)
        var errors: [ConfigurationError] = []
        for (name, claim) in claims.sorted(by: { $0.key < $1.key }) {
            guard let sentence = claim.sentence(name) else { continue }
            for each in claim.obstacle == .configured ? [name, claim.former] : [name] {
                guard case .success? = sessions[each] else { continue }
                let error = ConfigurationError.earlierName(sentence, of: each)
                sessions[each] = .failure(ConfigurationErrors([error]))
                errors.append(error)
            }
        }
        return (errors, claims.filter { sessions[$0.key]?.isSuccess ?? false }.mapValues(\.former))
    }

    /// Returns the sessions that run and that new ones continue, each with the name of the new one.
    func renamed(_ continued: [SessionName: SessionName]) -> [SessionName: SessionName] {
        var renamed: [SessionName: SessionName] = [:]
        for (name, former) in continued where entries[name] == nil {
            if case .running? = entries[former] { renamed[former] = name }
        }
        return renamed
    }
}

extension Result {
    fileprivate var isSuccess: Bool { if case .success = self { true } else { false } }
}

extension NameClaim {
    /// Why the session is not started; `nil` if it is.
    func sentence(_ name: SessionName) -> String? {
        let claim = "\(name) is to go on with what is on disk of \(former)"
        return switch obstacle {
        case nil: nil
        case .configured:
            "\(claim), which has a file of its own: rename one after the other, with a reload after each; give that file "
                + "another name meanwhile"
        case .several(let other):
            "\(claim), but something is on disk of \(other) as well: remove the name that was another session's from "
                + "the key formerly of \(name)"
        case .occupied:
            "\(claim), but has messages, consumers or publications of its own on disk: give the file another name"
        }
    }
}

extension SessionConfiguration {
    /// The names that a session had before.
    func formerNames(of name: SessionName) -> [SessionName] {
        formerly.compactMap { SessionName($0) }.filter { $0 != name }
    }
}
