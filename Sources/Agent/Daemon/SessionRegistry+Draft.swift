import Configuration
import ControlAPI
import Session
import SessionCore
import Transport

// `check.run` with the draft of a session's file.

extension SessionRegistry {
    /// - Parameter text: the content of the session's file.
    func check(
        _ wanted: CheckRunMethod.Parameters, of text: String
    ) async throws(RPCError) -> CheckRunMethod.Result {
        guard let surroundings, !isStopping else { throw .shuttingDown }
        let configuration: SessionConfiguration
        do throws(ConfigurationErrors) {
            configuration = try SessionConfiguration(ConfigurationFile(path: "\(wanted.session).toml", text: text))
        } catch {
            throw .badConfiguration(error.summary)
        }
        numbers.drafts += 1
        // The name under which the network watcher knows the draft. Not the wanted name, since a session with that name
        // may be added in the meantime.
        let name = SessionName(draft: numbers.drafts)
        _ = surroundings.paths.watch(configuration.hops, of: name, for: configuration.network)
        defer { surroundings.paths.forget(name) }
        let trial = EndpointTrial(
            session: name, configuration: configuration, clientID: configuration.clientID,
            username: configuration.username, token: nil,
            remedies: Remedies(session: name, configuration: configuration, occasion: .draft),
            surroundings: surroundings, tlsContexts: TLSContextCache(),
            protocols: ProtocolChoice(configuration.mqtt.version.only))
        return try await trial.run(wanted)
    }
}
