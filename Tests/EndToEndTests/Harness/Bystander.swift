import ControlAPI
import Support

/// Another session of the same daemon, at a server of its own. What it goes through shows that another session had the
/// time, and the occasions, to do what a test says that it does not do.
struct Bystander {
    private let daemon: DaemonProcess
    private let server: LabServer

    /// Starts the server, and writes the session's file.
    init(_ lab: Lab, _ daemon: DaemonProcess) async throws {
        self.daemon = daemon
        var options = LabServer.Options()
        options.port = 1884
        server = try await LabServer(lab, options)
        try await server.start()
        try daemon.session("bystander", endpoint: "mqtt://\(Lab.serverAddress):\(options.port)")
    }

    /// Returns when the session has waited for every delay of the table, and is connected again.
    func goesThroughAnOutage() async throws {
        let events = try await daemon.events(of: "bystander")
        try await events.until(.connected)
        try await server.kill()
        try await events.until(.reconnecting)
        try await events.until("at its fifth attempt") { ($0.attempt ?? 0) >= 5 }
        try await server.start()
        try await events.until(.connected)
    }
}
