import Foundation
import Glibc

/// A real server in a lab, of whatever make.
public protocol LabBroker: Actor {
    /// Starts it, and returns when it serves.
    func start() async throws
    /// Kills it with SIGKILL.
    func kill() async throws
}

/// A mosquitto in the lab's server namespace, which survives being killed as well as its own persistence lets it.
public actor LabServer: LabBroker {
    /// The users that it lets in; without any, everybody.
    public struct Options: Sendable {
        public var port = 1883
        /// Names and passwords.
        public var users: [String: String] = [:]
        /// How many messages of QoS 1 and 2 may be unanswered in each direction; mosquitto's own number unless it is given.
        public var inFlight: Int?
        /// Whether every change is written to disk at once.
        public var isPersistent = true
        /// Where it speaks MQTT over WebSocket beside `port`.
        public var webSocketPort: Int?
        /// The same with TLS; `port` is then without.
        public var secureWebSocketPort: Int?
        /// The PEM files of the listener with TLS.
        public var certificate: String?
        public var key: String?
        /// The authority that clients' certificates must be of, if they must have one. Their names are logged.
        public var clientAuthority: String?

        public init() {}
    }

    private let lab: Lab
    private let options: Options
    private let folder: String
    private var process: LabProcess?
    /// The files that it has logged to, one for each start.
    public private(set) var logs: [String] = []

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
            lines += [
                "persistence true", "persistence_location \(folder)/", "autosave_on_changes true",
                "autosave_interval 1",
            ]
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

    /// It does not run, and does not know it, until `resume`; its kernel goes on for it.
    public func pause() async {
        await process?.signal(SIGSTOP)
    }

    public func resume() async {
        await process?.signal(SIGCONT)
    }

    /// Lets a user in with another password from the next start on.
    public func change(password: String, of user: String) async throws {
        try await lab.server.run(["mosquitto_passwd", "-b", "\(folder)/passwords", user, password])
    }

    /// What it has logged since it was started last.
    public var log: String { process?.errors ?? "" }

    /// Waits until its persistence on disk names a client.
    public func hasPersisted(_ text: String) async throws {
        let file = "\(folder)/mosquitto.db"
        try await until("\(text) is in mosquitto.db") {
            FileManager.default.contents(atPath: file)?.range(of: Data(text.utf8)) != nil
        }
    }

    /// Deletes what it has persisted.
    public func forget() {
        unlink("\(folder)/mosquitto.db")
    }

    /// Publishes as another client, near the server.
    public func publish(_ payload: String, to topic: String, qos: Int = 1) async throws {
        try await LabClient(lab, port: options.port).publish(payload, to: topic, qos: qos)
    }
}
