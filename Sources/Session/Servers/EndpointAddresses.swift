package import NIOCore
package import SessionCore

/// Which addresses of its endpoints a session's paths are looked up for: while it is connected that of the server it is
/// connected to, and else all that the endpoint has.
package struct EndpointAddresses: Sendable {
    /// What is watched for an endpoint from now on.
    package struct Watch: Equatable, Sendable {
        package let addresses: [SocketAddress]
        package let origin: AddressOrigin

        package init(addresses: [SocketAddress], origin: AddressOrigin) {
            self.addresses = addresses
            self.origin = origin
        }
    }

    /// Those of the endpoints that are no names.
    private let literals: [SocketAddress?]
    /// Those of them that were redirected, and whose address is not the one that is watched now.
    private var redirectedLiterals: Set<EndpointIndex> = []
    /// What the names of endpoints were resolved to last.
    private var resolved: [EndpointIndex: [SocketAddress]] = [:]

    /// - Parameter hosts: those that are dialed for the endpoints, in their order.
    package init(_ hosts: [String]) {
        literals = hosts.map { try? SocketAddress(ipAddress: $0, port: 0) }
    }

    /// The endpoint's addresses are known, and are about to be dialed.
    ///
    /// - Returns: `nil` if nothing else is watched than before.
    package mutating func dialing(_ endpoint: EndpointIndex, _ addresses: [SocketAddress]) -> Watch? {
        guard let literal = literals[endpoint.rawValue] else {
            resolved[endpoint] = addresses
            return Watch(addresses: addresses, origin: .name)
        }
        // The endpoint's own address is watched all the time.
        guard addresses.map(\.ipAddress) != [literal.ipAddress] else { return disconnected(endpoint) }
        redirectedLiterals.insert(endpoint)
        return Watch(addresses: addresses, origin: .literal)
    }

    /// From now on only the address in use counts: a path to the others says nothing about this connection.
    package func connected(_ endpoint: EndpointIndex, to peer: SocketAddress) -> Watch {
        Watch(addresses: [peer], origin: literals[endpoint.rawValue] == nil ? .peer : .literal)
    }

    /// The connection is over, and the endpoint's other addresses are as good as the one that was used.
    ///
    /// - Returns: `nil` if nothing else is watched than before.
    package mutating func disconnected(_ endpoint: EndpointIndex) -> Watch? {
        guard let literal = literals[endpoint.rawValue] else {
            return Watch(addresses: resolved[endpoint] ?? [], origin: .name)
        }
        guard redirectedLiterals.remove(endpoint) != nil else { return nil }
        return Watch(addresses: [literal], origin: .literal)
    }
}
