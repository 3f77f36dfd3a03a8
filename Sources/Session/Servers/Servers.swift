package import MQTT
package import SessionCore

/// What a session knows about its servers: where they have redirected it, which version of MQTT they speak, and which
/// of them have the session or an old copy of it.
package struct Servers: Sendable {
    private var redirections: Redirections
    private var protocols: ProtocolChoice
    private var homes: SessionHomes

    /// - Parameter homes: the addresses as they were stored.
    package init(redirections: Redirections, protocols: ProtocolChoice, homes: [String]) {
        self.redirections = redirections
        self.protocols = protocols
        self.homes = SessionHomes(homes)
    }

    // MARK: Attempts

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

    /// Where the next attempt at an endpoint of the list will go.
    package func next(_ endpoint: EndpointIndex) -> Endpoint { redirections.next(endpoint) }

    /// See ``Redirections/ended(wasTried:)``.
    package mutating func ended(wasTried: Bool) { redirections.ended(wasTried: wasTried) }

    /// See ``Redirections/follow(_:from:of:isRemembered:isStable:)``.
    package mutating func follow(
        _ reference: String, from present: Endpoint, of endpoint: EndpointIndex, isRemembered: Bool, isStable: Bool
    ) -> Redirections.Verdict {
        redirections.follow(reference, from: present, of: endpoint, isRemembered: isRemembered, isStable: isStable)
    }

    // MARK: Versions

    package func version(at address: Endpoint) -> ProtocolVersion { protocols.version(at: address) }

    /// The server said that it does not speak the version.
    ///
    /// - Returns: the version to try at once; `nil` if every version has been tried.
    package mutating func refused(_ version: ProtocolVersion, at address: Endpoint) -> ProtocolVersion? {
        protocols.refused(version, at: address)
    }

    /// The connection ended after CONNECT and before CONNACK, and the server did not say why.
    ///
    /// - Returns: the version to try at once; `nil` when there is no reason to hurry.
    package mutating func closed(_ version: ProtocolVersion, at address: Endpoint) -> ProtocolVersion? {
        protocols.closed(version, at: address)
    }

    // MARK: The session there

    /// Whether the server at this address was the last one that accepted the session.
    package func isHome(_ address: Endpoint) -> Bool { homes.isHome(address) }

    /// Whether the server at this address has an old copy of the session, and must begin a new one.
    package func isStale(_ address: Endpoint) -> Bool { homes.isStale(address) }

    /// The server accepted the session.
    ///
    /// - Returns: what has to be durable before anything is sent that only this server will know.
    package mutating func connected(
        to address: Endpoint, as version: ProtocolVersion, resumed: Bool
    ) -> [SessionChange] {
        protocols.connected(version, at: address)
        redirections.connected()
        return homes.connected(to: address, resumed: resumed) ? [.setHomes(homes.addresses)] : []
    }
}
