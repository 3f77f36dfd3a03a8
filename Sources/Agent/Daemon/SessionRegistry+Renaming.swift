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
// The key stays in the file, so it is a wish that is granted once: to a session that the store does not know yet, or by the
// reload that brings the session or the key. Later, the earlier name may be that of quite another session.

extension SessionRegistry {
    /// Gives a session that is about to be started what the store has under a name that it had before.
    ///
    /// - Returns: that name, if there was something.
    func takeOver(by name: SessionName, _ how: Start) async throws(StoreError) -> SessionName? {
        guard let surroundings else { return nil }
        let isWished = how.isWished || how.isRenamed
        for former in how.configuration.formerNames(of: name).reversed() {
            let (store, queue, present) = (surroundings.store, historyQueue, present)
            let outcome = try await surroundings.commits.watch.wait { () throws(StoreError) in
                await queue?.everythingRecorded()
                return try await store.takeOver(former, by: name, replacing: isWished, present: present)
            }
            switch outcome {
            case .nothing: continue
            case .done:
                logger.notice(
                    "\(name): it was called \(former) before, and has its messages and its history",
                    metadata: ["HOLDFAST_SESSION": "\(name)"])
                return former
            case .refused:
                logger.warning(
                    "\(name): it has messages, consumers or publications of its own, so what is on disk under its earlier name \(former) stays there",
                    metadata: ["HOLDFAST_SESSION": "\(name)"])
                return nil
            }
        }
        return nil
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
