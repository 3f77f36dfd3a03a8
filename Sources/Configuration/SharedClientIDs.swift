import SessionCore
import Vocabulary

/// Finds sessions that have the same client identifier at the same server. The server lets only one of them be
/// connected, so each would displace the other forever, and one would acknowledge messages meant for the other. Such
/// sessions are refused.
enum SharedClientIDs {
    /// The client identifier that a session uses, and the servers where it does.
    struct Claim {
        let session: SessionName
        let clientID: String
        let endpoints: [Endpoint]
        /// Where the file sets it.
        let value: ConfigurationValue?
        let file: String

        init(_ session: SessionName, _ configuration: SessionConfiguration, _ content: ConfigurationValue) {
            self.session = session
            clientID = configuration.clientID
            endpoints = configuration.endpoints
            value = content["client-id"] ?? content["user"]
            file = content.file
        }

        /// Returns the endpoint of this session that leads to a server of the other one.
        func endpoint(sharedWith other: Claim) -> Endpoint? {
            endpoints.first { mine in other.endpoints.contains { mine.isSameServer(as: $0) } }
        }
    }

    /// Returns what is wrong with each of the sessions that share a client identifier.
    static func errors(_ claims: [Claim]) -> [SessionName: [ConfigurationError]] {
        var errors: [SessionName: [ConfigurationError]] = [:]
        for sharing in Dictionary(grouping: claims, by: \.clientID).values where sharing.count > 1 {
            for claim in sharing {
                let rivals = sharing.filter { $0.session != claim.session && claim.endpoint(sharedWith: $0) != nil }
                guard let rival = rivals.min(by: { $0.session < $1.session }),
                    let endpoint = claim.endpoint(sharedWith: rival)
                else { continue }
                errors[claim.session] = [error(claim, rival.session, at: endpoint)]
            }
        }
        return errors
    }

    private static func error(_ claim: Claim, _ rival: SessionName, at endpoint: Endpoint) -> ConfigurationError {
        let clientID = claim.clientID.debugDescription
        let isSibling = claim.session.template != nil && claim.session.template == rival.template
        let advice =
            isSibling
            ? "put %i, which stands for the instance, into client-id or user, for example client-id = "
                + "\(claim.clientID)-%i".debugDescription
            : "give each file its own client-id, here for example client-id = "
                + "\(claim.clientID)-\(claim.session)".debugDescription
        let message =
            "sessions \(claim.session) and \(rival) have the same client-id, \(clientID), at "
            + "\(endpoint.authority), where each would displace the other: \(advice)"
        return ConfigurationError(file: claim.file, position: claim.value?.position, message: message)
    }
}
