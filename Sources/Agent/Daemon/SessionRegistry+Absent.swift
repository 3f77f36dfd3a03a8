import ControlAPI
import DurableStore
import Logging
import Session
import Systemd

// Sessions that were removed from the configuration while messages waited in their outboxes. Those stay in the store.

extension SessionRegistry {
    /// Returns the sessions that are not configured and have messages on disk; `nil` while the disk does not answer.
    func absentSessions() async -> [AbsentSession]? {
        guard let surroundings else { return [] }
        let (store, present) = (surroundings.store, Set(entries.keys))
        let found = try? await surroundings.commits.watch.answer { () throws(StoreError) in
            try await store.absentOutboxes(besides: present)
        }
        return found?.map(AbsentSession.init)
    }

    /// Returns those of these sessions, which are still configured, whose messages would stay on disk.
    func withMessages(_ sessions: [String]) -> [AbsentSession] {
        sessions.compactMap { session in
            guard let outbox = try? status(session).outbox else { return nil }
            let messages = outbox.queued + outbox.inFlight + outbox.quarantined
            guard messages > 0 else { return nil }
            return AbsentSession(session: session, messages: messages, bytes: outbox.bytes, oldest: outbox.oldest)
        }
    }

    /// Returns those of the sessions that were just removed whose messages stay on disk, and writes them to the journal.
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

extension AbsentSession {
    fileprivate init(_ outbox: AbsentOutbox) {
        self.init(
            session: outbox.session.description, messages: outbox.messages, bytes: outbox.bytes, oldest: outbox.oldest)
    }
}
