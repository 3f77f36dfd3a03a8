import ControlAPI
import NIOCore
import NetworkPath
import SessionCore
import Transport

/// The daemon's view of the network watcher, in the daemon's types.
struct NetworkView: Sendable {
    let watcher: NetworkWatcher

    /// Returns the paths to the hosts that are dialed for a session's endpoints, and has each change reported from now
    /// on. For names, the path is that of the default route, or that to a neighbour, until `resolved` gives their
    /// addresses. A name without any path may still be the host's own.
    func watch(
        _ hosts: [(host: String, port: Int)], of session: SessionName, for policy: NetworkPolicy
    ) -> [Path?] {
        watcher.assumeIsolated { watcher in
            watcher.removeTargets(ofSession: session.description)
            watcher.setPolicy(policy, ofSession: session.description)
            return hosts.enumerated().map { index, hop in
                let (host, port) = (hop.host, UInt16(clamping: hop.port))
                let target = Target(session: session.description, endpoint: index)
                if let literal = IPAddress(host) { return watcher.setTarget(target, addresses: [literal], port: port) }
                let known = OwnNames.standard(host)
                if let path = watcher.setTarget(target, addresses: known, port: port, origin: .name) { return path }
                let own = known.isEmpty ? OwnNames.inHostsFile(host) : []
                return own.isEmpty ? nil : watcher.setTarget(target, addresses: own, port: port, origin: .name)
            }
        }
    }

    func excluded(_ endpoint: EndpointIndex, of session: SessionName) -> Path? {
        watcher.assumeIsolated {
            $0.excluded(Target(session: session.description, endpoint: endpoint.rawValue))
        }
    }

    func hasDetour(_ endpoint: EndpointIndex, of session: SessionName) -> Bool {
        watcher.assumeIsolated {
            $0.hasDetour(Target(session: session.description, endpoint: endpoint.rawValue))
        }
    }

    func way(to addresses: [SocketAddress], of session: SessionName) -> Connection.Way? {
        let known = addresses.compactMap { address in
            address.ipAddress.flatMap { IPAddress($0) }.map { (address, $0) }
        }
        let port = addresses.first?.port.map { UInt16(clamping: $0) }
        let paths = watcher.assumeIsolated {
            $0.paths(to: known.map(\.1), port: port, ofSession: session.description)
        }
        guard let first = paths.lazy.compactMap({ $0 }).first else { return nil }
        return Connection.Way(
            interface: first.interface, addresses: zip(known, paths).filter { $1 != nil }.map(\.0.0),
            staysHere: first.staysHere)
    }

    /// Watches the path to the addresses that an endpoint has now.
    /// - Parameter origin: where the addresses come from.
    func resolved(
        _ endpoint: EndpointIndex, of session: SessionName, to addresses: [SocketAddress], origin: AddressOrigin
    ) -> Path? {
        watcher.assumeIsolated {
            $0.setTarget(
                Target(session: session.description, endpoint: endpoint.rawValue),
                addresses: addresses.compactMap { $0.ipAddress.flatMap { IPAddress($0) } },
                port: addresses.first?.port.map { UInt16(clamping: $0) }, origin: origin)
        }
    }

    func lookAgain() { watcher.assumeIsolated { $0.lookAgain() } }

    func forget(_ session: SessionName) {
        watcher.assumeIsolated { $0.removeTargets(ofSession: session.description) }
    }

    var counters: [String: Int64] { watcher.assumeIsolated { Self.counters($0.snapshot()) } }

    /// The length of ``status(endpoints:)`` as JSON, about.
    var statusLength: Int {
        let (interfaces, paths) = watcher.assumeIsolated { $0.listed }
        return 4096 + interfaces * 300 + paths * 400
    }

    /// - Parameter endpoints: the endpoints of each session, which name the paths.
    func status(endpoints: [String: [Endpoint]]) -> NetworkStatus {
        let snapshot = watcher.assumeIsolated { $0.snapshot() }
        let bootToWall = Timestamp.now.rawValue - BootClock.now().nanoseconds / 1_000_000
        return NetworkStatus(
            interfaces: snapshot.interfaces.map { interface in
                NetworkStatus.Interface(
                    name: interface.name, index: interface.index, type: interface.type.rawValue, up: interface.isUp,
                    carrier: interface.hasCarrier, addresses: interface.addresses,
                    defaultRoutes: snapshot.defaultRoutes.filter { $0.interface == interface.name }
                        .map { route in
                            (route.gateway.map { "via \($0)" } ?? "on link") + " metric \(route.metric)"
                                + (route.isInMainTable ? "" : " table \(route.table)")
                        })
            },
            paths: snapshot.paths.sorted { Self.precedes($0.key, $1.key) }.map { target, path in
                let names = endpoints[target.session] ?? []
                return NetworkStatus.EndpointPath(
                    session: target.session,
                    endpoint: names.indices.contains(target.endpoint) ? names[target.endpoint].description : "",
                    path: path.map { SessionStatus.Path($0) },
                    excluded: snapshot.excluded[target].map { SessionStatus.Path($0) })
            },
            changes: snapshot.changes.map { change in
                NetworkStatus.Change(
                    time: Timestamp(rawValue: bootToWall + change.receivedAt.nanoseconds / 1_000_000),
                    class: change.pathClass.rawValue, session: change.target.session,
                    from: change.from.map { SessionStatus.Path($0) }, to: change.to.map { SessionStatus.Path($0) })
            },
            counters: Self.counters(snapshot))
    }

    private static func precedes(_ first: Target, _ second: Target) -> Bool {
        first.session == second.session
            ? first.endpoint < second.endpoint : NaturalOrder.precedes(first.session, second.session)
    }

    private static func counters(_ snapshot: NetworkSnapshot) -> [String: Int64] {
        let counters = snapshot.counters
        var named: [String: Int64] = [
            "hints": Int64(clamping: counters.hints), "lookups": Int64(clamping: counters.lookups),
            "dumps": Int64(clamping: counters.dumps), "interruptedDumps": Int64(clamping: counters.interruptedDumps),
            "overruns": Int64(clamping: counters.overruns),
        ]
        for (pathClass, count) in counters.changes { named[pathClass.rawValue] = Int64(clamping: count) }
        return named
    }
}
