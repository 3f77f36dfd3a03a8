import NIOCore
import SessionCore
import Support
import Transport
import Vocabulary

@testable import Agent
@testable import NetworkPath

/// A host's view of its paths, which are the same for all servers. What a change means is decided by the same classifier
/// as in the daemon; only the kernel's tables are a model.
final class ScenarioPaths: PathSource {
    private let host: String
    private let scenario: Scenario
    private let box: Box

    private actor Box {
        nonisolated let loop: VirtualLoop
        nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
        var watched: [Target: PathClassifier] = [:]
        init(_ loop: VirtualLoop) { self.loop = loop }
    }

    init(host: String, scenario: Scenario) {
        (self.host, self.scenario, box) = (host, scenario, Box(scenario.loop))
    }

    var targets: [Target] { box.here { $0.watched.keys.sorted() } }

    func watch(
        _ hosts: [(host: String, port: Int)], of session: SessionName, for policy: NetworkPolicy
    ) -> [Path?] {
        forget(session)
        let observation = observe()
        box.here { box in
            for index in hosts.indices {
                let target = Target(session: session.description, endpoint: index)
                box.watched[target] = PathClassifier(observation, isUnresolved: false)
            }
        }
        return hosts.map { _ in observation.path }
    }

    /// The kernel's message about a change is read before a connection is up at the latest.
    func resolved(
        _ endpoint: EndpointIndex, of session: SessionName, to addresses: [SocketAddress], origin: AddressOrigin
    ) -> Path? {
        scenario.here { $0.look(host) }
        let target = Target(session: session.description, endpoint: endpoint.rawValue)
        box.here { $0.watched[target]?.forgetLeftBehind() }
        return observe().path
    }

    func excluded(_ endpoint: EndpointIndex, of session: SessionName) -> Path? { nil }

    func way(to addresses: [SocketAddress], of session: SessionName) -> Connection.Way? {
        observe().path.map { .init(interface: $0.interface, addresses: addresses) }
    }

    func lookAgain() { scenario.here { $0.look(host) } }

    func forget(_ session: SessionName) {
        box.here { box in box.watched = box.watched.filter { $0.key.session != session.description } }
    }

    private func observe() -> PathClassifier.Observation {
        let path = scenario.here { $0.path(of: host) }
        return .init(path: path, families: path == nil ? [] : [.ipv4])
    }

    /// Looks at the paths of all targets, as the daemon does after each message of the kernel, and reports what has
    /// changed.
    func look(_ report: (PathChange) -> Void) {
        let observation = observe()
        let now = scenario.now
        for target in targets {
            // The receiver of a report may watch or forget targets, so this is read again each time.
            guard let before = box.here({ $0.watched[target] }),
                let pathClass = box.here({
                    $0.watched[target]?.handle(observation, oldSourceRemains: hasSource, at: now)
                })
            else { continue }
            if pathClass != .none {
                let old = pathClass == .movedSourceGone ? before.lastPath : before.current.path
                report(.init(target: target, pathClass: pathClass, from: old, to: observation.path, receivedAt: now))
            }
            while let path = box.here({ $0.watched[target]?.departure(oldSourceRemains: hasSource) }) {
                report(
                    .init(
                        target: target, pathClass: .movedSourceGone, from: path, to: observation.path, receivedAt: now))
            }
        }
    }

    private func hasSource(of path: Path) -> Bool { scenario.here { $0.hasSource(of: path, on: host) } }
}
