import Foundation
import Glibc

/// A NATS server with its MQTT listener. It speaks MQTT 3.1.1, with every QoS, and refuses 5 in words.
///
/// Sessions and retained messages are JetStream streams on disk, which it writes at once here, so that they outlive it.
public actor LabNATS: LabBroker {
    /// Where scripts/setup puts it, unless HOLDFAST_NATS_SERVER names another path.
    private static let program: String = {
        if let path = getenv("HOLDFAST_NATS_SERVER") { return String(cString: path) }
        return repositoryRoot.appendingPathComponent(".build-servers/bin/nats-server").path
    }()

    /// Whether the tests that need NATS can run here.
    public static var isInstalled: Bool { FileManager.default.isExecutableFile(atPath: program) }

    private let lab: Lab
    private let folder: String
    private var process: LabProcess?

    /// - Parameter users: the names that it lets in, with the password `secret`.
    public init(_ lab: Lab, users: [String]) throws {
        self.lab = lab
        folder = "\(lab.directory)/nats"
        let logins = users.map { "{user: \($0), password: secret}" }
        try lab.write(
            "\(folder)/nats.conf",
            """
            server_name: lab
            listen: "127.0.0.1:4222"
            jetstream { store_dir: "\(folder)/streams", sync_interval: always, max_memory_store: 64MB, max_file_store: 1GB }
            mqtt { listen: "0.0.0.0:1883" }
            authorization { users: [\(logins.joined(separator: ", "))] }

            """)
    }

    public func start() async throws {
        let process = try await lab.start("nats", [Self.program, "-c", "\(folder)/nats.conf"], in: lab.server)
        self.process = process
        try await until("NATS serves") {
            guard await process.isRunning else { throw Lab.Failure("NATS ended: \(process.errors)") }
            return process.errors.contains("Server is ready")
        }
    }

    public func kill() async throws {
        try await process?.killed()
        process = nil
    }
}
