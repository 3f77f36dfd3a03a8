import MQTT
import SessionCore
import Vocabulary

/// Finds sessions that have the same client identifier at the same server. The server lets only one of them be
/// connected, so each would displace the other forever, and one would acknowledge messages meant for the other. Such
/// sessions are refused, and so are those with the name of another session's second connection.
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

    /// Returns what is wrong with each of the sessions that share a client identifier, or that have one which another
    /// session takes for a second connection. Such a connection begins with Clean Start, so it would end a session of
    /// that name at the server.
    static func errors(_ claims: [Claim]) -> [SessionName: [ConfigurationError]] {
        var errors: [SessionName: [ConfigurationError]] = [:]
        // Servers compare byte by byte.
        let sharing = Dictionary(grouping: claims) { Array($0.clientID.utf8) }
        for claim in claims {
            if let (rival, endpoint) = rival(of: claim, among: sharing[Array(claim.clientID.utf8)]) {
                errors[claim.session] = [error(claim, rival.session, at: endpoint)]
                continue
            }
            for purpose in Connect.Purpose.allCases {
                // Any session may be moved to a room, and look there.
                let end = Connect.clientID("", to: purpose).utf8
                guard claim.clientID.utf8.count > end.count, claim.clientID.utf8.suffix(end.count).elementsEqual(end),
                    let (rival, endpoint) = rival(
                        of: claim, among: sharing[Array(claim.clientID.utf8.dropLast(end.count))])
                else { continue }
                errors[claim.session] = [error(claim, rival, at: endpoint, takenTo: purpose)]
            }
        }
        return errors
    }

    /// Returns the first other session, by name, that uses a server of this one, and the endpoint that leads there.
    private static func rival(of claim: Claim, among claims: [Claim]?) -> (Claim, Endpoint)? {
        let rivals = claims?.filter { $0.session != claim.session && claim.endpoint(sharedWith: $0) != nil }
        return rivals?.min { $0.session < $1.session }.flatMap { rival in
            claim.endpoint(sharedWith: rival).map { (rival, $0) }
        }
    }

    private static func error(_ claim: Claim, _ rival: SessionName, at endpoint: Endpoint) -> ConfigurationError {
        let clientID = claim.clientID.debugDescription
        let isSibling = claim.session.template != nil && claim.session.template == rival.template
        let advice =
            isSibling
            ? "put %i, which stands for the instance, into client-id or user, for example client-id = "
                + advised(claim.clientID, "%i", for: [claim.session, rival].compactMap(\.instance)).debugDescription
            : "give each file its own client-id, here for example client-id = "
                + advised(claim.clientID, "\(claim.session)", for: ["\(claim.session)"]).debugDescription
        let message =
            "sessions \(claim.session) and \(rival) have the same client-id, \(clientID), at "
            + "\(endpoint.authority), where each would displace the other: \(advice)"
        return ConfigurationError(file: claim.file, position: claim.value?.position, message: message)
    }

    private static func error(
        _ claim: Claim, _ rival: Claim, at endpoint: Endpoint, takenTo purpose: Connect.Purpose
    ) -> ConfigurationError {
        let purpose =
            switch purpose {
            case .look: "to look who is in its room"
            case .check: "when it is checked"
            }
        let message =
            "session \(claim.session) has the client-id \(claim.clientID.debugDescription), which session "
            + "\(rival.session) takes for a moment at \(endpoint.authority) \(purpose), where it would displace "
            + "\(claim.session) and have the server discard its messages: give \(claim.session) another client-id"
        return ConfigurationError(file: claim.file, position: claim.value?.position, message: message)
    }

    /// Returns a client identifier that tells a session from the others with this one, and is no name of a second
    /// connection.
    ///
    /// - Parameter names: what the addition stands for.
    private static func advised(_ clientID: String, _ addition: String, for names: [String]) -> String {
        let isTaken = Connect.Purpose.allCases.contains { purpose in
            names.contains { "-\($0)".hasSuffix(Connect.clientID("", to: purpose)) }
        }
        return isTaken ? "\(addition)-\(clientID)" : "\(clientID)-\(addition)"
    }
}
