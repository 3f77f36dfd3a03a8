import ControlAPI
import Foundation
import Glibc
import HoldfastClient
import Support

/// A holdfastd in the lab's host namespace with directories of its own, and everything needed to talk to it.
actor DaemonProcess {
    /// The folder of `holdfastd` and `holdfastctl`: beside the test bundle, or where HOLDFAST_BIN_DIR says.
    static let programs: String = {
        if let directory = getenv("HOLDFAST_BIN_DIR") { return String(cString: directory) }
        let arguments = CommandLine.arguments
        let bundle = arguments.firstIndex(of: "--test-bundle-path").flatMap { arguments.dropFirst($0 + 1).first }
        return ((bundle ?? arguments[0]) as NSString).deletingLastPathComponent
    }()

    nonisolated let lab: Lab
    nonisolated let client: HoldfastClient
    nonisolated let record: EventRecord
    nonisolated let configuration: String
    nonisolated let state: String
    nonisolated let socket: String
    private nonisolated let namespace: Namespace
    private var process: LabProcess?

    /// - Parameter namespace: where it runs; the lab's host unless it is given.
    init(_ lab: Lab, name: String = "daemon", in namespace: Namespace? = nil, record: EventRecord) {
        self.lab = lab
        self.namespace = namespace ?? lab.host
        self.record = record
        configuration = "\(lab.directory)/\(name)/etc"
        state = "\(lab.directory)/\(name)/state"
        socket = "\(lab.directory)/\(name)/control.sock"
        client = Self.client(at: socket)
    }

    /// Returns a client that gives a daemon on a busy machine the time that it needs.
    static func client(at socket: String) -> HoldfastClient {
        var options = HoldfastClient.Options()
        options.name = "EndToEndTests"
        options.bufferedElements = 1 << 20
        options.attachTimeout = .seconds(180)
        return HoldfastClient(socket: socket, options: options)
    }

    // MARK: Configuration

    /// Writes the usual session file, with short times, but not so short that a server on a busy machine misses a
    /// heartbeat.
    ///
    /// - Parameters:
    ///   - top: more keys of the top level.
    ///   - dial: the limit of a dial; a minute where a test counts attempts or tells reasons apart, because an attempt of a
    ///     daemon on a busy machine may take longer than the usual limit.
    ///   - authenticate: the limit for the server's answer to CONNECT.
    ///   - tables: more tables.
    nonisolated func session(
        _ name: String = "main", endpoint: String = "mqtt://\(Lab.serverAddress):1883", top: String = "",
        heartbeat: String = "5s", dial: String = "2s", authenticate: String = "5s", tables: String = ""
    ) throws {
        try writeSession(
            name,
            """
            endpoints = ["\(endpoint)"]
            user = "\(name)"
            \(top)
            [reconnect]
            delays = ["50ms", "250ms", "500ms", "1s"]
            spread = "200ms"
            [heartbeat]
            interval = "\(heartbeat)"
            timeout = "\(heartbeat)"
            [timeouts]
            dial = "\(dial)"
            authenticate = "\(authenticate)"
            \(tables)
            """)
    }

    nonisolated func writeSession(_ name: String, _ text: String) throws {
        try lab.write("\(configuration)/sessions.d/\(name).toml", text + "\n")
    }

    // MARK: Life

    nonisolated var command: [String] {
        [
            "\(Self.programs)/holdfastd", "--config-directory", configuration, "--state-directory", state, "--socket",
            socket,
        ]
    }

    /// Starts the daemon, and returns when it answers.
    ///
    /// - Parameter preparation: a shell command that runs before it, in the same mount namespace.
    func start(after preparation: String? = nil) async throws {
        let process = try await launch(after: preparation)
        try await until("holdfastd answers") {
            guard await process.isRunning else { throw Lab.Failure("holdfastd ended: \(process.errors)") }
            // This must be a call, because the client may still count as attached to the previous daemon, which has
            // only just ended.
            return (try? await client.call(SessionListMethod.self, NoParameters())) != nil
        }
    }

    /// Starts the daemon, and returns the events of its session `main` after it has connected.
    @discardableResult
    func startConnected() async throws -> EventFeed {
        try await start()
        let events = try await events()
        try await events.until(.connected)
        return events
    }

    /// Starts the daemon without waiting.
    @discardableResult
    func launch(after preparation: String? = nil) async throws -> LabProcess {
        try FileManager.default.createDirectory(atPath: state, withIntermediateDirectories: true)
        let words = preparation.map { ["sh", "-c", "\($0) && exec \"$@\"", "sh"] + command } ?? command
        let process = try await lab.start("holdfastd", words, in: namespace)
        self.process = process
        return process
    }

    /// Kills the daemon with SIGKILL.
    func kill() async throws {
        try await process?.killed()
    }

    /// Stops the daemon with SIGSTOP, which it cannot notice, until `resume`.
    func pause() async {
        await process?.signal(SIGSTOP)
    }

    func resume() async {
        await process?.signal(SIGCONT)
    }

    /// Stops the daemon as systemd does.
    func stop() async throws -> LabProcess.Ending? {
        await process?.signal(SIGTERM)
        return try await process?.ended(within: .seconds(180))
    }

    var isRunning: Bool {
        get async { await process?.isRunning ?? false }
    }

    /// What the daemon wrote to standard error since its last start.
    var log: String { process?.errors ?? "" }

    /// How much of the daemon's memory is in RAM, in KiB.
    var residentMemory: Int? {
        guard let process, let status = try? String(contentsOfFile: "/proc/\(process.pid)/status", encoding: .utf8)
        else { return nil }
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
        return line.flatMap { Int($0.filter(\.isNumber)) }
    }

    // MARK: Control

    nonisolated func events(of session: String = "main") async throws -> EventFeed {
        try await EventFeed(client, session: session, record: record)
    }

    nonisolated func call<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: Method.Parameters
    ) async throws -> Method.Result {
        try await client.call(method, parameters, timeout: .seconds(180))
    }

    nonisolated func status(_ session: String = "main") async throws -> SessionStatus {
        try await call(SessionStatusMethod.self, .init(session: session))
    }

    @discardableResult
    nonisolated func connect(_ session: String = "main") async throws -> SessionState {
        try await call(SessionConnectMethod.self, .init(session: session)).state
    }

    @discardableResult
    nonisolated func disconnect(_ session: String = "main") async throws -> SessionState {
        try await call(SessionDisconnectMethod.self, .init(session: session)).state
    }

    @discardableResult
    nonisolated func publish(
        _ text: String, to topic: String, session: String = "main", qos: QoS = .atLeastOnce,
        retain: Bool = false,
        wait: MessagePublishMethod.Wait = .accepted
    ) async throws -> MessagePublishMethod.Result {
        try await call(
            MessagePublishMethod.self,
            .init(
                session: session, topic: topic, payload: .init(text: text), qos: qos, retain: retain, wait: wait))
    }

    /// Runs `holdfastctl`, as root unless another user is named.
    nonisolated func ctl(
        _ arguments: String..., user: String? = nil
    ) async throws -> (ending: LabProcess.Ending, output: String, errors: String) {
        let words = ["\(Self.programs)/holdfastctl"] + arguments + ["--socket", socket]
        let changed = ["setpriv", "--reuid", user ?? "", "--regid", "65534", "--clear-groups", "--"]
        return try await lab.finish(user == nil ? words : changed + words, in: nil)
    }
}
