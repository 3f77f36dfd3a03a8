import Configuration
import ControlAPI
import NetworkPath
import Session
import SessionCore
import Transport

// The host's paths, and the binding of sessions that may use only some networks: what they dial is bound to an
// interface.

extension SessionDriver {
    /// Watches the paths to these addresses from now on, and answers with the path found.
    func lookUp(_ endpoint: EndpointIndex, _ watch: EndpointAddresses.Watch) {
        let path = surroundings.paths.resolved(endpoint, of: name, to: watch.addresses, origin: watch.origin)
        if simulation.hidesPaths { return simulation.note(path, to: endpoint) }
        let excluded =
            configuration.network.isBinding ? surroundings.paths.excluded(endpoint, of: name) : nil
        if path == nil { answer(.machine(.detour(endpoint, surroundings.paths.hasDetour(endpoint, of: name)))) }
        answer(.pathFound(endpoint, path, excluded: excluded))
    }

    func pathChanged(_ change: PathChange) {
        let endpoint = EndpointIndex(change.target.endpoint)
        if simulation.hidesPaths { return simulation.note(change.to, to: endpoint) }
        if configuration.network.isBinding { take(.pathExcluded(endpoint, change.excluded)) }
        if change.to == nil { take(.detour(endpoint, change.hasDetour)) }
        take(.pathChanged(endpoint, from: change.from, to: change.to, change.pathClass))
    }
}

extension SessionDriver.Surroundings {
    /// Returns the options of a connection, including the way that it has to take.
    func bound(
        _ options: Connection.Options, by policy: NetworkPolicy, of name: SessionName
    ) -> Connection.Options {
        guard policy.isBinding else { return options }
        var options = options
        options.way = { [paths] in paths.way(to: $0, of: name) }
        return options
    }
}

extension SessionStatus.Network {
    /// `nil` for a session that may use every network.
    init?(_ policy: NetworkPolicy) {
        guard policy.isBinding else { return nil }
        self.init(
            interfaces: policy.interfaces, types: policy.types.map(\.rawValue), metered: policy.metered.rawValue)
    }
}
