package import MQTT
package import SessionCore

/// What a session knows about its servers: where they have redirected it, which version of MQTT they speak, and which
/// of them have the session or an old copy of it.
package struct Servers: Sendable {
    package internal(set) var redirections: Redirections
    package internal(set) var protocols: ProtocolChoice
    package private(set) var homes: SessionHomes

    /// - Parameter homes: as they were stored.
    package init(redirections: Redirections, protocols: ProtocolChoice, homes: [SessionHome]) {
        self.redirections = redirections
        self.protocols = protocols
        self.homes = SessionHomes(homes)
    }

    /// Where an attempt at an endpoint leads.
    package struct Destination: Hashable, Sendable {
        package let address: Endpoint
        /// Whether the endpoint has just redirected the session there.
        package let isRedirected: Bool
    }

    package mutating func begin(_ endpoint: EndpointIndex) -> Destination {
        let address = redirections.begin(endpoint)
        return Destination(address: address, isRedirected: redirections.hasFollowed)
    }

    /// The server accepted the session.
    ///
    /// - Parameters:
    ///   - left: what the server has that had the session until now, if it is another one.
    ///   - retained: what that server may retain.
    /// - Returns: what has to be durable before anything is sent that only this server will know.
    package mutating func connected(
        to address: Endpoint, as version: ProtocolVersion, _ grant: MQTTClientMachine.Connected,
        leaving left: LeftSession, retaining retained: RetainedTopics, at time: Timestamp
    ) -> [SessionChange] {
        protocols.connected(version, at: address)
        redirections.connected()
        let isDifferent = homes.connected(
            to: address, resumed: grant.resumed, isLost: grant.found == .nothing(wasClaimed: true), leaving: left,
            retaining: retained,
            expiry: grant.sessionExpiry, keepAlive: grant.keepAlive, at: time)
        return isDifferent ? [.setHomes(homes.stored)] : []
    }
}
