import NIOCore
import NetworkPath
import Session
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
    func watchPaths(of endpoint: EndpointIndex, to resolved: [SocketAddress]) {
        if let watch = session.addresses.dialing(endpoint, resolved) { self.watch(endpoint, watch) }
    }

    /// From now on only the address in use counts.
    func watchPath(of endpoint: EndpointIndex, to peer: SocketAddress) {
        watch(endpoint, session.addresses.connected(endpoint, to: peer))
    }

    /// The connection is over.
    func watchAllPaths(of endpoint: EndpointIndex) {
        if let watch = session.addresses.disconnected(endpoint) { self.watch(endpoint, watch) }
    }

    private func watch(_ endpoint: EndpointIndex, _ watch: EndpointAddresses.Watch) {
        let path = surroundings.paths.resolved(endpoint, of: name, to: watch.addresses, origin: watch.origin)
        if simulation.hidesPaths { return simulation.note(path, to: endpoint) }
        noteExcluded(endpoint)
        // Nothing has changed but what is looked at, unless that ends the waiting.
        let isGained = path != nil && session.machine.status.phase == .waitingForNetwork
        take(.pathChanged(endpoint, to: path, isGained ? .gained : .none))
    }
}
