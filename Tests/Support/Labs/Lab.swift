import Foundation
import Glibc
import Synchronization

/// A separate network for one test: namespaces, joined by veth pairs, without a way out.
///
///     HOST                         ROUTER                      SERVER
///     holdfastd, tcpdump           forwards                    mosquitto, mosquitto_sub
///
///     up0 10.77.0.1/24 ─────────── near0 10.77.0.254/24
///       default via 10.77.0.254
///                                  far   10.77.9.254/24 ────── eth0 10.77.9.1/24
///     up1 10.77.1.1/24 ─────────── near1 10.77.1.254/24          default via 10.77.9.254
///
/// A fourth namespace, for a second server, is at 10.77.8.1 when a test asks for it.
///
/// Both uplinks are up; the default route uses up0 until a test moves it. The control socket is a file and can be
/// reached from every namespace.
public struct Lab: Sendable {
    public let host: Namespace
    public let router: Namespace
    public let server: Namespace
    /// For a second server; it exists after `addBackup`.
    public let backup: Namespace
    /// An empty directory that anyone may enter; removed at the end.
    public let directory: String
    private let processes: LabProcesses

    /// The address where the host reaches `server`.
    public static let serverAddress = "10.77.9.1"
    /// The address where the host and `server` reach `backup`.
    public static let backupAddress = "10.77.8.1"

    public struct Failure: Error, CustomStringConvertible {
        public var description: String

        public init(_ description: String) { self.description = description }
    }

    /// Runs `body` in a new lab, and removes everything afterwards.
    ///
    /// - Parameter explain: turns the error that `body` threw into the one that is thrown, while everything is still
    ///   there.
    public static func run(
        _ body: (Lab) async throws -> Void,
        explain: (Lab, any Error) async -> any Error = { $1 }
    ) async throws {
        guard LabRequirements.missing.isEmpty else {
            throw Failure("the end-to-end tests cannot run: \(LabRequirements.missing.joined(separator: ", "))")
        }
        await LabCapacity.shared.take()
        let outcome: Result<Void, any Error>
        do {
            let lab = try await Lab()
            do {
                try await lab.build()
                outcome = .success(try await body(lab))
            } catch {
                outcome = .failure(await explain(lab, error))
            }
            await lab.remove()
        } catch {
            outcome = .failure(error)
        }
        await LabCapacity.shared.give()
        try outcome.get()
    }

    private static let numbers = Atomic<Int>(0)

    private init() async throws {
        let number = Self.numbers.add(1, ordering: .relaxed).newValue
        let name = "\(Namespace.prefix)\(getpid())x\(number)"
        directory = "\(TemporaryDirectory.parent)/\(name)"
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o755])
        if number == 1 { await Namespace.sweep(scratch: directory) }
        processes = LabProcesses()
        host = try await .make(name + "h", scratch: directory)
        router = try await .make(name + "r", scratch: directory)
        server = try await .make(name + "s", scratch: directory)
        backup = Namespace(name: name + "b", scratch: directory)
    }

    private func build() async throws {
        try await router.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"])
        try await host.ip(
            "link add up0 type veth peer name near0 netns \(router.name)",
            "link add up1 type veth peer name near1 netns \(router.name)")
        try await router.ip(
            "link add far type veth peer name eth0 netns \(server.name)",
            "addr add 10.77.0.254/24 dev near0", "addr add 10.77.1.254/24 dev near1", "addr add 10.77.9.254/24 dev far",
            "link set near0 up", "link set near1 up", "link set far up")
        try await server.ip(
            "addr add \(Self.serverAddress)/24 dev eth0", "link set eth0 up", "route add default via 10.77.9.254")
        try await host.ip(
            "addr add 10.77.0.1/24 dev up0", "addr add 10.77.1.1/24 dev up1", "link set up0 up", "link set up1 up",
            "route add default via 10.77.0.254")
        // The carrier is announced a moment after a link is set up.
        for link in ["up0", "up1"] {
            try await until("\(link) is up") { try await host.ip("link show \(link)").contains("state UP") }
        }
    }

    /// Waits until the first uplink is up at both ends. Before that, a packet may wait a second for the router's answer
    /// to ARP.
    public func uplinkIsUp() async throws {
        try await until("up0 is up") { try await host.ip("link show up0").contains("state UP") }
        try await until("near0 is up") { try await router.ip("link show near0").contains("state UP") }
    }

    private func remove() async {
        await processes.killAll()
        for namespace in [host, router, server, backup] { await namespace.remove() }
        try? FileManager.default.removeItem(atPath: directory)
    }

    /// Makes the fourth namespace, and connects it to the router as another network.
    public func addBackup() async throws {
        _ = try await Namespace.make(backup.name, scratch: directory)
        try await router.ip(
            "link add farther type veth peer name eth0 netns \(backup.name)", "addr add 10.77.8.254/24 dev farther",
            "link set farther up")
        try await backup.ip(
            "addr add \(Self.backupAddress)/24 dev eth0", "link set eth0 up", "route add default via 10.77.8.254")
    }

    // MARK: The uplink

    /// Sets the first uplink down; the kernel removes its routes.
    public func uplinkDown() async throws {
        try await host.ip("link set up0 down")
    }

    /// Sets the first uplink up again, with its route, as a DHCP client would.
    public func uplinkUp() async throws {
        try await host.ip("link set up0 up", "route add default via 10.77.0.254")
    }

    /// Makes the router drop everything without telling either side.
    public func breakNetwork() async throws {
        try await router.nft(
            "add table ip hole; add chain ip hole pass { type filter hook forward priority 0; }; "
                + "add rule ip hole pass drop")
    }

    /// Ends `breakNetwork`.
    public func healNetwork() async throws {
        try await router.nft("delete table ip hole")
    }

    // MARK: Programs

    /// Starts a program, which is killed at the end of the lab at the latest.
    ///
    /// - Parameter name: the name of its output files.
    public func start(_ name: String, _ words: [String], in namespace: Namespace?) async throws -> LabProcess {
        let process = try await LabProcess.start(
            namespace?.inside(words) ?? words, files: "\(directory)/\(name)-\(UUID().uuidString.prefix(8))")
        await processes.add(process)
        return process
    }

    /// Runs a program of the lab to its end; any ending is fine.
    ///
    /// - Parameter limit: longer for compilers and the like, which compute for half a minute while other programs run.
    public func finish(
        _ words: [String], in namespace: Namespace?, within limit: Duration = .seconds(180)
    ) async throws -> (ending: LabProcess.Ending, output: String, errors: String) {
        let process = try await start("command", words, in: namespace)
        let ending = try await process.ended(within: limit)
        // Tests look at the same thing again and again; what such a look printed explains no failure.
        if ending == .exited(0) { await processes.remove(process) }
        return (ending, process.output, process.errors)
    }

    /// What all programs that were started have written, for a person who looks for the fault.
    public func outputs() async -> [(name: String, text: String)] {
        await processes.outputs()
    }

    /// Writes a file of the lab; relative paths are below `directory`.
    ///
    /// - Returns: its absolute path.
    @discardableResult
    public func write(_ path: String, _ text: String) throws -> String {
        let path = path.hasPrefix("/") ? path : "\(directory)/\(path)"
        let folder = (path as NSString).deletingLastPathComponent
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        return path
    }
}

/// Waits for a condition that nothing announces, by checking it often. A check counts for at most ten seconds: if it
/// took longer, nothing ran here, as on a machine that was stopped.
public func until(
    _ what: String, within limit: Duration = .seconds(180), _ condition: () async throws -> Bool
) async throws {
    var waited = Duration.zero
    var looked = ContinuousClock.now
    while try await !condition() {
        guard waited < limit else { throw Lab.Failure("not within \(limit): \(what)") }
        try await Task.sleep(for: .milliseconds(20))
        waited += min(looked.duration(to: .now), .seconds(10))
        looked = .now
    }
}

/// The programs that a lab has started.
private actor LabProcesses {
    private var all: [LabProcess] = []

    func add(_ process: LabProcess) {
        all.append(process)
    }

    func remove(_ process: LabProcess) {
        all.removeAll { $0 === process }
    }

    func killAll() async {
        for process in all { await process.signal(SIGCONT) }
        for process in all { _ = try? await process.killed() }
    }

    func outputs() async -> [(name: String, text: String)] {
        all.map { ("\($0.name) (\($0.pid))", $0.output + $0.errors) }.filter { !$0.1.isEmpty }
    }
}

/// The number of labs at a time. It is more than there are processors, because their programs wait most of the time.
/// `scripts/test` runs as many end-to-end tests at once, so that none waits here.
enum LabCapacity {
    static let shared = Capacity(3 * Capacity.processors)
}
