import Configuration
import ControlAPI
import Logging
import Session
import SessionCore
import Transport

// Faults that a person simulates, to see how programs handle them. Only the fault is simulated: everything after it
// runs through the same code as for a real one.

/// The simulated faults that last.
struct Simulation: Sendable {
    /// The connection on which nothing is sent or received.
    private var silent: DialID?
    /// The paths according to the kernel, while they are simulated as lost.
    private var hidden: [EndpointIndex: Path?]?
    /// When the simulated loss ends.
    private(set) var pathsReturn: Instant?

    mutating func silence(_ connection: DialID) { silent = connection }

    func isSilent(_ connection: DialID) -> Bool { silent == connection }

    var hidesPaths: Bool { hidden != nil }

    mutating func hide(_ paths: [EndpointIndex: Path?], until time: Instant) {
        hidden = paths
        pathsReturn = time
    }

    /// Notes a path that the kernel reported in the meantime.
    mutating func note(_ path: Path?, to endpoint: EndpointIndex) { hidden?[endpoint] = .some(path) }

    mutating func show() -> [EndpointIndex: Path?] {
        defer { (hidden, pathsReturn) = (nil, nil) }
        return hidden ?? [:]
    }
}

extension SessionDriver {
    func simulate(_ parameters: SessionSimulateMethod.Parameters) throws(RPCError) -> SessionState {
        try checkRunning()
        let duration = parameters.duration ?? 15
        guard (1...3600).contains(duration) else { throw .invalidParameters("duration is 1 to 3600 seconds") }
        guard parameters.duration == nil || parameters.fault == .pathLost else {
            throw .invalidParameters("only path-lost has a duration")
        }
        guard session.state == .connected, let link = session.link, let connection = link.connection
        else {
            throw .notConnected(name.description, hint: "a fault is simulated while the session is connected")
        }
        surroundings.logger.notice("\(name): simulating \(parameters.fault.rawValue)", metadata: metadata)
        switch parameters.fault {
        case .drop:
            connections[connection]?.close(.abort)
            let failure = TransportFailure(.reset, "the connection was reset (simulated)")
            run(.connection(connection, .closed(Reason(failure))))
        case .silence:
            simulation.silence(connection)
            run(.machine(.silenced(link.generation)))
        case .fullReconnect:
            connections[connection]?.close(.abort)
            run(
                .retire(
                    link.generation,
                    .init(Reason(.stateMismatch, "the session at the server is given up (simulated)"))))
        case .pathLost:
            try losePaths(for: .seconds(duration))
        }
        return session.state
    }

    private func losePaths(for duration: Duration) throws(RPCError) {
        guard !simulation.hidesPaths else {
            throw .wrongState(name.description, is: "already without its path (simulated)")
        }
        var paths: [EndpointIndex: Path?] = [:]
        for index in configuration.endpoints.indices {
            let endpoint = EndpointIndex(index)
            paths[endpoint] = .some(session.machine.path(to: endpoint))
        }
        simulation.hide(paths, until: now.advanced(by: duration))
        for (endpoint, path) in paths.sorted(by: { $0.key < $1.key }) where path != nil {
            take(.pathChanged(endpoint, to: nil, .lost))
        }
        schedule()
    }

    func returnPathsIfDue() {
        guard let time = simulation.pathsReturn, time <= now else { return }
        let paths = simulation.show()
        guard !isStopping else { return }
        for (endpoint, path) in paths.sorted(by: { $0.key < $1.key }) {
            guard let path else { continue }
            take(.pathChanged(endpoint, to: path, session.machine.status.doubt == .pathLost ? .returned : .gained))
        }
    }
}
