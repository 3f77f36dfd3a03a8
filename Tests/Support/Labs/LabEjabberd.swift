import Foundation

/// An ejabberd with its MQTT listener, run as `ejabberdctl` runs it, but with its own files, without an init system,
/// and without epmd: every node is alone in its namespace, so all of them can listen for each other on one known port.
///
/// Its sessions are in memory: they outlive connections, and follow their client to another node of the cluster, but
/// die with the node that has them. Any name with any password is let in.
public actor LabEjabberd: LabBroker {
    private let lab: Lab
    private let namespace: Namespace
    private let address: String
    private let folder: String
    private var process: LabProcess?
    private var log = ""
    private var starts = 0

    /// The folder of Debian's Erlang libraries that holds ejabberd's, if it is installed.
    static let libraries: String? = {
        let root = "/usr/lib"
        let folders = (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []
        return folders.map { "\(root)/\($0)" }.first { folder in
            let names = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
            return names.contains { $0.hasPrefix("ejabberd-") }
        }
    }()

    /// Whether the tests that need ejabberd can run here.
    public static var isInstalled: Bool { libraries != nil }

    /// The port on which the nodes of a cluster speak with each other.
    private static let clusterPort = 4370

    /// - Parameter address: where the other nodes of its cluster reach it.
    public init(_ lab: Lab, in namespace: Namespace, address: String) throws {
        self.lab = lab
        self.namespace = namespace
        self.address = address
        folder = "\(lab.directory)/ejabberd-\(address)"
        try lab.write(
            "\(folder)/ejabberd.yml",
            """
            hosts: [lab]
            loglevel: info
            log_rotate_count: 0
            auth_method: anonymous
            anonymous_protocol: login_anon
            listen:
              - port: 1883
                ip: "0.0.0.0"
                module: mod_mqtt
                backlog: 128
            modules:
              mod_mqtt:
                session_expiry: 1 day
                max_queue: unlimited
                access_publish: {"#": [allow]}
                access_subscribe: {"#": [allow]}

            """)
        try FileManager.default.createDirectory(atPath: "\(folder)/database", withIntermediateDirectories: true)
    }

    /// The node's name in its cluster.
    public nonisolated var node: String { "ejabberd@\(address)" }

    public func start() async throws {
        starts += 1
        log = "\(folder)/log-\(starts)"
        let process = try await lab.start(
            "ejabberd", erlang(node, log: log) + ["-mnesia", "dir", "\"\(folder)/database\"", "-s", "ejabberd"],
            in: namespace)
        self.process = process
        try await serves(times: 1)
    }

    /// Adds it to another node's cluster, as `ejabberdctl join_cluster` does. What it had before is forgotten.
    public func join(_ other: LabEjabberd) async throws {
        try await control("join_cluster", other.node)
        // It restarts for that.
        try await serves(times: 2)
    }

    /// The running nodes of its cluster.
    public func cluster() async throws -> [String] {
        try await control("list_cluster").split(separator: "\n").map { $0.filter { $0 != "'" } }
    }

    public func kill() async throws {
        try await process?.killed()
        process = nil
    }

    /// Stops the process with SIGSTOP. The kernel still accepts packets for it.
    public func pause() async { await process?.signal(SIGSTOP) }

    /// Runs a command of `ejabberdctl`.
    @discardableResult
    private func control(_ words: String...) async throws -> String {
        try await namespace.run(
            erlang("control@\(address)", log: "\(folder)/control-log") + [
                "-hidden", "-dist_listen", "false", "-s", "ejabberd_ctl", "-extra", node,
            ] + words)
    }

    private func erlang(_ name: String, log: String) -> [String] {
        [
            "env", "HOME=\(folder)", "ERL_LIBS=\(Self.libraries ?? "")", "ERL_CRASH_DUMP_BYTES=0",
            "EJABBERD_CONFIG_PATH=\(folder)/ejabberd.yml", "EJABBERD_LOG_PATH=\(log)",
            // One scheduler that does not spin: it starts three times as fast when other programs are busy.
            "erl", "-noinput", "+S", "1:1", "+sbwt", "none", "-name", name, "-setcookie", "lab",
            "-start_epmd", "false", "-erl_epmd_port", "\(Self.clusterPort)",
        ]
    }

    private func serves(times: Int) async throws {
        guard let process else { throw Lab.Failure("ejabberd is not started") }
        // It works for seconds before it serves; how long that takes depends on what else the machine does.
        try await until("ejabberd serves", within: .seconds(1200)) {
            guard await process.isRunning else { throw Lab.Failure("ejabberd ended: \(process.output)") }
            guard process.processorTime < .seconds(100) else {
                throw Lab.Failure("ejabberd does not serve after \(process.processorTime) of processor time")
            }
            let text = (try? String(contentsOfFile: log, encoding: .utf8)) ?? ""
            return text.components(separatedBy: "Start accepting TCP connections").count > times
        }
    }
}
