import Configuration
import ControlAPI
import Session
import SessionCore
import Transport

// `check.run` with a draft of a file: checks it with a session that is never started and reports no events.

extension SessionRegistry {
    /// - Parameter text: of the session's file.
    func check(
        _ wanted: CheckRunMethod.Parameters, of text: String
    ) async throws(RPCError) -> CheckRunMethod.Result {
        guard var surroundings, !isStopping else { throw .shuttingDown }
        let configuration: SessionConfiguration
        do throws(ConfigurationErrors) {
            configuration = try SessionConfiguration(ConfigurationFile(path: "\(wanted.session).toml", text: text))
        } catch {
            throw .badConfiguration(error.summary)
        }
        drafts += 1
        // What the watcher of the network knows it by: a session of the wanted name may be added meanwhile.
        guard let name = SessionName("draft-\(drafts)") else { preconditionFailure("digits are right in a name") }
        guard entries[name] == nil else { throw .tooManyRequests("there is a session \(name)") }
        surroundings.report = { _, _ in }
        surroundings.noteAlive = {}
        let driver = SessionDriver(
            name: name, configuration: configuration, stored: StoredSession(),
            surroundings: surroundings)
        defer { surroundings.paths.forget(name) }
        var result = try await driver.check(wanted)
        result.session = wanted.session
        return result
    }
}
