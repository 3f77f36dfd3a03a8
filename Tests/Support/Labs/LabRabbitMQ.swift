import Foundation

/// A RabbitMQ with its MQTT plugin, run as its own scripts run it under an init system, but with its own files and
/// its own epmd in its namespace. It speaks MQTT 3.1.1, and closes a connection that speaks 5 without a word.
///
/// A QoS 1 subscription is a durable queue, so a session outlives the server. It has no QoS 2: it grants 1, and answers
/// a QoS 2 PUBLISH with PUBACK. Retained messages are only delivered to filters without wildcards. (3.10)
public actor LabRabbitMQ: LabBroker {
    private static let program = "/usr/lib/rabbitmq/bin/rabbitmq-server"

    /// Whether the tests that need RabbitMQ can run here.
    public static var isInstalled: Bool { FileManager.default.isExecutableFile(atPath: program) }

    private let lab: Lab
    private let folder: String
    private var nameServer: LabProcess?
    private var process: LabProcess?

    /// - Parameter users: the names that it lets in, with the password `secret`.
    public init(_ lab: Lab, users: [String]) throws {
        self.lab = lab
        folder = "\(lab.directory)/rabbitmq"
        let logins = users.map { #"{"name": "\#($0)", "password": "secret", "tags": ""}"# }
        let permissions = users.map {
            #"{"user": "\#($0)", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}"#
        }
        try lab.write(
            "\(folder)/definitions.json",
            """
            {"vhosts": [{"name": "/"}], "users": [\(logins.joined(separator: ", "))],
            "permissions": [\(permissions.joined(separator: ", "))]}

            """)
        try lab.write(
            "\(folder)/rabbitmq.conf",
            """
            listeners.tcp = none
            mqtt.listeners.tcp.1 = 0.0.0.0:1883
            mqtt.allow_anonymous = false
            loopback_users = none
            load_definitions = \(folder)/definitions.json

            """)
        try lab.write("\(folder)/plugins", "[rabbitmq_mqtt].\n")
        try FileManager.default.createDirectory(atPath: "\(folder)/log", withIntermediateDirectories: true)
    }

    public func start() async throws {
        if nameServer == nil { nameServer = try await lab.start("epmd", ["epmd"], in: lab.server) }
        let process = try await lab.start(
            "rabbitmq",
            [
                "env", "HOME=\(folder)", "RABBITMQ_CONF_ENV_FILE=/dev/null", "RABBITMQ_NODENAME=rabbit@localhost",
                "RABBITMQ_MNESIA_BASE=\(folder)/database", "RABBITMQ_LOG_BASE=\(folder)/log", "RABBITMQ_LOGS=-",
                "RABBITMQ_PID_FILE=\(folder)/pid", "RABBITMQ_ENABLED_PLUGINS_FILE=\(folder)/plugins",
                "RABBITMQ_CONFIG_FILE=\(folder)/rabbitmq.conf", "ERL_CRASH_DUMP_BYTES=0",
                // One scheduler that does not spin, as for ejabberd.
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 1:1 +sbwt none",
                // The script becomes the server instead of starting it as a child, so that the process that is killed
                // is the server.
                "RUNNING_UNDER_SYSTEMD=true", Self.program,
            ], in: lab.server)
        self.process = process
        try await until("RabbitMQ serves", within: .seconds(240)) {
            guard await process.isRunning else { throw Lab.Failure("RabbitMQ ended: \(process.output)") }
            return process.output.contains("Server startup complete")
        }
    }

    public func kill() async throws {
        try await process?.killed()
        process = nil
    }
}
