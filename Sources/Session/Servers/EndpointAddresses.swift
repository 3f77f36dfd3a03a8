package import NIOCore
package import SessionCore

/// The addresses whose paths a session watches: while it is connected, that of the server it is connected to, and
/// otherwise all addresses of the endpoint.
package struct EndpointAddresses: Sendable {
    /// What to watch for an endpoint from now on.
    package struct Watch: Equatable, Sendable {
        package let addresses: [SocketAddress]
        package let origin: AddressOrigin
    }

    /// The addresses of the endpoints that are given as IP addresses; `nil` for names.
    private let literals: [SocketAddress?]
    /// The endpoints with an IP address that were redirected, so that another address is watched instead.
    private var redirectedLiterals: Set<EndpointIndex> = []
    /// What the names of endpoints were last resolved to.
    private var resolved: [EndpointIndex: [SocketAddress]] = [:]

    /// - Parameter hosts: the hosts that are dialed for the endpoints, in the same order.
    package init(_ hosts: [String]) {
        literals = hosts.map { try? SocketAddress(ipAddress: $0, port: 0) }
    }

    /// The endpoint's addresses are known, and are about to be dialed.
    ///
    /// - Returns: `nil` if the watched addresses stay the same.
    package mutating func dialing(_ endpoint: EndpointIndex, _ addresses: [SocketAddress]) -> Watch? {
        guard let literal = literals[endpoint.rawValue] else {
            resolved[endpoint] = addresses
            return Watch(addresses: addresses, origin: .name)
        }
        // The endpoint's own address is watched anyway.
        guard addresses.map(\.ipAddress) != [literal.ipAddress] else { return disconnected(endpoint) }
        redirectedLiterals.insert(endpoint)
        return Watch(addresses: addresses, origin: .literal)
    }

    /// From now on only the address in use counts: a path to the others says nothing about this connection.
    package func connected(_ endpoint: EndpointIndex, to peer: SocketAddress) -> Watch {
        Watch(addresses: [peer], origin: literals[endpoint.rawValue] == nil ? .peer : .literal)
    }

    /// The connection is over, and the endpoint's other addresses count again.
    ///
    /// - Returns: `nil` if the watched addresses stay the same.
    package mutating func disconnected(_ endpoint: EndpointIndex) -> Watch? {
        guard let literal = literals[endpoint.rawValue] else {
            return Watch(addresses: resolved[endpoint] ?? [], origin: .name)
        }
        guard redirectedLiterals.remove(endpoint) != nil else { return nil }
        return Watch(addresses: [literal], origin: .literal)
    }
}
