import Configuration
import ControlAPI
import DurableStore
import Logging
import Session
import SessionCore
import Systemd

// Sessions that do not run, because their files or their states cannot be read. They are listed with what is known.

extension SessionRegistry {
    func unreadable(_ name: SessionName, _ error: StoreError, later: Start? = nil) -> Obstacle {
        .store("the state of session \(name) cannot be read: \(error)", later: later)
    }

    /// Lists a session that does not run.
    func list(_ name: SessionName, as obstacle: Obstacle) async {
        let stored = await storedCounts(of: name)
        entries[name] = .failed(obstacle, since: clock.wallClock(), stored: stored)
        let reason = obstacle.reason
        var event = SessionEvent(time: clock.wallClock(), session: name.description, event: .stateChanged)
        event.state = .failed
        event.reason = .init(reason, Remedies(session: name, configuration: nil))
        report(name, event)
        logger.error(
            "\(name): failed (\(reason.code.rawValue)): \(reason.message)",
            metadata: [
                "MESSAGE_ID": "\(MessageID.failed)", "HOLDFAST_SESSION": "\(name)", "HOLDFAST_STATE": "failed",
                "HOLDFAST_REASON": "\(reason.code.rawValue)",
            ])
    }

    /// Adds what must not vanish because the instances of a template cannot be read: the template itself, and those of
    /// its instances that the store knows, so that their messages can be seen. Neither is added at a reload while
    /// instances run: those keep their configuration, and say so.
    func listed(
        _ sessions: [SessionName: Result<SessionConfiguration, ConfigurationErrors>],
        _ brokenTemplates: [SessionName: ConfigurationErrors]
    ) async -> [SessionName: Result<SessionConfiguration, ConfigurationErrors>] {
        let hidden = brokenTemplates.filter { template, _ in
            entries[template] != nil
                || !entries.contains { name, entry in
                    if case .running = entry { name.template == template } else { false }
                }
        }
        guard !hidden.isEmpty else { return sessions }
        var sessions = sessions
        for name in await storedNames() {
            guard let errors = name.template.flatMap({ hidden[$0] }), sessions[name] == nil else { continue }
            sessions[name] = .failure(errors)
        }
        for (template, errors) in hidden { sessions[template] = .failure(errors) }
        return sessions
    }

    /// Every session that the store knows; none while the disk does not answer.
    private func storedNames() async -> [SessionName] {
        guard let surroundings else { return [] }
        let store = surroundings.store
        return await (try? surroundings.commits.watch.answer { () throws(StoreError) in await store.sessionNames })
            ?? []
    }
}
