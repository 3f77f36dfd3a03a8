import ControlAPI
import DurableStore
import Logging
import Session
import Systemd

// Sessions that were removed from the configuration while the store had something of them. It stays there.

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

extension AbsentSession {
    fileprivate init(_ state: AbsentState) {
        self.init(
            session: state.session.description, messages: state.messages, bytes: state.bytes, oldest: state.oldest,
            consumers: state.consumers, received: state.received, publications: state.publications)
    }
}
