import SessionCore
import Vocabulary

/// Sessions that have one client identifier at one server. The server lets only one of them be connected, so each would throw
/// the other out for ever, and messages for one of them would be acknowledged by the other: they are refused.
enum SharedClientIDs {
    /// The client identifier that a session uses, at which servers.
    struct Claim {
        let session: SessionName
        let clientID: String
        let endpoints: [Endpoint]
        /// Where the file says it.
        let value: ConfigurationValue?
        let file: String

        init(_ session: SessionName, _ configuration: SessionConfiguration, _ content: ConfigurationValue) {
            self.session = session
            clientID = configuration.clientID
            endpoints = configuration.endpoints
            value = content["client-id"] ?? content["user"]
            file = content.file
        }

        /// The endpoint of this session that leads to a server of the other one.
        func endpoint(sharedWith other: Claim) -> Endpoint? {
            endpoints.first { mine in other.endpoints.contains { mine.isSameServer(as: $0) } }
        }
    }

    /// What is wrong with each of the sessions that share one.
    static func errors(_ claims: [Claim]) -> [SessionName: [ConfigurationError]] {
        var errors: [SessionName: [ConfigurationError]] = [:]
        for sharing in Dictionary(grouping: claims, by: \.clientID).values where sharing.count > 1 {
            for claim in sharing {
                let rivals = sharing.filter { $0.session != claim.session && claim.endpoint(sharedWith: $0) != nil }
                guard let rival = rivals.map(\.session).min(),
                    let endpoint = rivals.lazy.compactMap({ claim.endpoint(sharedWith: $0) }).first
                else { continue }
                errors[claim.session] = [error(claim, rival, at: endpoint)]
            }
        }
        return errors
    }

    private static func error(_ claim: Claim, _ rival: SessionName, at endpoint: Endpoint) -> ConfigurationError {
        let message =
            "sessions \(claim.session) and \(rival) have the same client-id, \(claim.clientID.debugDescription), at "
            + "\(endpoint.authority), where each would displace the other: give each file its own client-id, "
            + "here for example client-id = \("\(claim.clientID)-\(claim.session)".debugDescription)"
        return ConfigurationError(file: claim.file, position: claim.value?.position, message: message)
    }
}

extension Endpoint {
    /// Whether both lead to one server: to one port, or each to the default port of its scheme at one host.
    func isSameServer(as other: Endpoint) -> Bool {
        guard host == other.host else { return false }
        return port == other.port || (port == scheme.defaultPort && other.port == other.scheme.defaultPort)
    }
}
