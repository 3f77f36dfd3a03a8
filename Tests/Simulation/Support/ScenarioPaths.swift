import NIOCore
import NetworkPath
import SessionCore
import Support
import Transport

@testable import Agent

/// The paths of a host, which are the same for all servers.
final class ScenarioPaths: PathSource {
    private let host: String
    private let scenario: Scenario
    private let box: Box

    private actor Box {
        nonisolated let loop: VirtualLoop
        nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
        var targets: [Target] = []
        init(_ loop: VirtualLoop) { self.loop = loop }
        func set(_ targets: [Target]) { self.targets = targets }
    }

    init(host: String, scenario: Scenario) {
        (self.host, self.scenario, box) = (host, scenario, Box(scenario.loop))
    }

    var targets: [Target] { box.assumeIsolated { $0.targets } }

    func watch(_ hosts: [String], of session: SessionName, for policy: NetworkPolicy) -> [Path?] {
        forget(session)
        let new = hosts.indices.map { Target(session: session.description, endpoint: $0) }
        box.assumeIsolated { $0.set($0.targets + new) }
        let path = scenario.assumeIsolated { $0.path(of: host) }
        return hosts.map { _ in path }
    }

    /// Like the real one, it looks, and reports at once what it finds.
    func resolved(
        _ endpoint: EndpointIndex, of session: SessionName, to addresses: [SocketAddress], origin: AddressOrigin
    ) -> Path? {
        scenario.assumeIsolated { $0.tellUnnoticed(host) }
        return scenario.assumeIsolated { $0.path(of: host) }
    }

    func excluded(_ endpoint: EndpointIndex, of session: SessionName) -> Path? { nil }

    func way(to addresses: [SocketAddress], of session: SessionName) -> Connection.Way? {
        scenario.assumeIsolated { $0.path(of: host) }.map { .init(interface: $0.interface, addresses: addresses) }
    }

    func forget(_ session: SessionName) {
        box.assumeIsolated { box in box.set(box.targets.filter { $0.session != session.description }) }
    }
}
