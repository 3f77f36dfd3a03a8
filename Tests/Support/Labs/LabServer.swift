import Foundation
import Glibc

/// A real server of any kind in a lab.
public protocol LabBroker: Actor {
    /// Starts it, and returns when it serves.
    func start() async throws
    /// Kills it with SIGKILL.
    func kill() async throws
}

/// A mosquitto in the lab's server namespace. It survives being killed as well as its own persistence allows.
public actor LabServer: LabBroker {
    /// How it is set up.
    public struct Options: Sendable {
        public var port = 1883
        /// The names and passwords of the users that it lets in; without any, it lets everybody in.
        public var users: [String: String] = [:]
        /// How many QoS 1 and 2 messages may be unanswered in each direction; mosquitto's default unless it is given.
        public var inFlight: Int?
        /// Whether every change is written to disk at once.
        public var isPersistent = true
        /// Whether it writes to disk only when it is told to, and every half an hour, as it does by default.
        public var savesSeldom = false
        /// The port for MQTT over WebSocket, in addition to `port`.
        public var webSocketPort: Int?
        /// The same port with TLS; `port` is then without TLS.
        public var secureWebSocketPort: Int?
        /// The PEM files of the TLS listener.
        public var certificate: String?
        public var key: String?
        /// The authority that must have signed clients' certificates, if clients need one. Their names are logged.
        public var clientAuthority: String?

        public init() {}
    }

    private let lab: Lab
    private let options: Options
    private let folder: String
    private var process: LabProcess?
    /// The files that it has logged to, one for each start.
    public private(set) var logs: [String] = []

    /// Returns a server that is running.
    @discardableResult
    public static func started(_ lab: Lab, _ options: Options = Options()) async throws -> LabServer {
        let server = try await LabServer(lab, options)
        try await server.start()
        return server
    }

    public init(_ lab: Lab, _ options: Options = Options()) async throws {
        self.lab = lab
        self.options = options
        folder = "\(lab.directory)/mosquitto-\(options.port)"
        var lines = [
            "user root", "listener \(options.port)", "log_dest stderr", "log_type all", "connection_messages true",
            // Unlimited messages in flight (0) make this version of mosquitto stop sending.
            "max_queued_messages 0",
        ]
        if let inFlight = options.inFlight { lines.append("max_inflight_messages \(inFlight)") }
        if options.isPersistent {
            lines += ["persistence true", "persistence_location \(folder)/"]
            if !options.savesSeldom { lines += ["autosave_on_changes true", "autosave_interval 1"] }
        }
        let tls = options.certificate.flatMap { certificate in
            options.key.map { ["certfile \(certificate)", "keyfile \($0)"] }
        }
        if let authority = options.clientAuthority {
            lines += ["cafile \(authority)", "require_certificate true", "use_identity_as_username true"]
        }
        if options.secureWebSocketPort == nil { lines += tls ?? [] }
        for port in [options.webSocketPort, options.secureWebSocketPort].compactMap(\.self) {
            lines += ["listener \(port)", "protocol websockets"]
        }
        if options.secureWebSocketPort != nil { lines += tls ?? [] }
        if options.users.isEmpty {
            lines.append("allow_anonymous true")
        } else {
            lines += ["allow_anonymous false", "password_file \(folder)/passwords"]
        }
        try lab.write("\(folder)/mosquitto.conf", lines.map { $0 + "\n" }.joined())
        if !options.users.isEmpty {
            try lab.write("\(folder)/passwords", "")
            for (name, password) in options.users {
                try await lab.server.run(["mosquitto_passwd", "-b", "\(folder)/passwords", name, password])
            }
        }
    }

    /// Starts it, and returns when it serves.
    public func start() async throws {
        let process = try await lab.start("mosquitto", ["mosquitto", "-c", "\(folder)/mosquitto.conf"], in: lab.server)
        self.process = process
        logs.append(process.errorFile)
        try await until("mosquitto runs") {
            guard await process.isRunning else { throw Lab.Failure("mosquitto ended: \(process.errors)") }
            return process.errors.contains(" running\n")
        }
    }

    /// Kills it with SIGKILL.
    public func kill() async throws {
        try await process?.killed()
        process = nil
    }

    /// Stops the process with SIGSTOP until `resume`. The kernel still accepts packets for it.
    public func pause() async {
        await process?.signal(SIGSTOP)
    }

    public func resume() async {
        await process?.signal(SIGCONT)
    }

    /// Changes a user's password from the next start on.
    public func change(password: String, of user: String) async throws {
        try await lab.server.run(["mosquitto_passwd", "-b", "\(folder)/passwords", user, password])
    }

    /// What it has logged since its last start.
    public var log: String { process?.errors ?? "" }

    /// Waits until its database on disk contains the text.
    public func hasPersisted(_ text: String) async throws {
        let file = "\(folder)/mosquitto.db"
        try await until("\(text) is in mosquitto.db") {
            FileManager.default.contents(atPath: file)?.range(of: Data(text.utf8)) != nil
        }
    }

    /// Makes it write its state to disk now.
    public func save() async {
        await process?.signal(SIGUSR1)
    }

    /// Deletes its database.
    public func forget() {
        unlink("\(folder)/mosquitto.db")
    }

    /// Publishes as another client, beside the server.
    public func publish(_ payload: String, to topic: String, qos: Int = 1) async throws {
        try await LabClient(lab, port: options.port).publish(payload, to: topic, qos: qos)
    }
}
