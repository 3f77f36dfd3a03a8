import NIOCore
import NetworkPath
import SessionCore
import Transport

// Which addresses the kernel is asked about: while a session is connected that of the server it is connected to, and else
// all that the endpoint has.

extension SessionDriver {
    func pathChanged(_ change: PathChange) {
        if simulation.hidesPaths { return simulation.note(change.to, to: EndpointIndex(change.target.endpoint)) }
        noteExcluded(EndpointIndex(change.target.endpoint), change.excluded)
        take(.pathChanged(EndpointIndex(change.target.endpoint), from: change.from, to: change.to, change.pathClass))
    }

    /// The endpoint's addresses are known, and are about to be dialed.
    func watchPaths(of endpoint: EndpointIndex, to addresses: [SocketAddress]) {
        guard let literal = literals[endpoint.rawValue] else {
            addressesOfNames[endpoint] = addresses
            return watch(endpoint, addresses, .name)
        }
        // The endpoint's own address is watched all the time.
        guard addresses.map(\.ipAddress) != [literal.ipAddress] else { return watchAllPaths(of: endpoint) }
        redirectedLiterals.insert(endpoint)
        watch(endpoint, addresses, .literal)
    }

    /// From now on only the address in use counts: a path to the others says nothing about this connection.
    func watchPath(of endpoint: EndpointIndex, to peer: SocketAddress) {
        watch(endpoint, [peer], literals[endpoint.rawValue] == nil ? .peer : .literal)
    }

    /// The connection is over, and the endpoint's other addresses are as good as the one that was used.
    func watchAllPaths(of endpoint: EndpointIndex) {
        if let literal = literals[endpoint.rawValue] {
            guard redirectedLiterals.remove(endpoint) != nil else { return }
            watch(endpoint, [literal], .literal)
        } else {
            watch(endpoint, addressesOfNames[endpoint] ?? [], .name)
        }
    }

    private func watch(_ endpoint: EndpointIndex, _ addresses: [SocketAddress], _ origin: AddressOrigin) {
        let path = surroundings.paths.resolved(endpoint, of: name, to: addresses, origin: origin)
        if simulation.hidesPaths { return simulation.note(path, to: endpoint) }
        noteExcluded(endpoint)
        // Nothing has changed but what is looked at, unless that ends the waiting.
        let isGained = path != nil && machine.status.phase == .waitingForNetwork
        take(.pathChanged(endpoint, to: path, isGained ? .gained : .none))
    }
}
