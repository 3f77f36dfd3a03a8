import Foundation
import Glibc

/// A message bus for one test: Debian's dbus-daemon, on a socket in its own directory.
public final class MessageBus {
    private static let program = "/usr/bin/dbus-daemon"
    public static var isAvailable: Bool { LabRequirements.isAllRequired || access(program, X_OK) == 0 }

    public struct Failure: Error {
        public var description: String

        public init(description: String) {
            self.description = description
        }
    }

    /// What clients connect to, whether or not it is running.
    public var address: String { "unix:path=\(directory)/bus" }

    private let directory: String
    private var process: LabProcess?
    private var starts = 0

    public init() throws {
        directory = try TemporaryDirectory().path
    }

    /// Starts it, and returns when clients can connect.
    public func start() async throws {
        let configuration = """
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig><listen>\(address)</listen><auth>EXTERNAL</auth>
            <policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>
            """
        try configuration.write(toFile: "\(directory)/bus.conf", atomically: true, encoding: .utf8)
        starts += 1
        let process = try await LabProcess.start(
            [Self.program, "--config-file=\(directory)/bus.conf", "--nofork", "--nopidfile", "--print-address"],
            files: "\(directory)/bus-\(starts)")
        self.process = process
        try await until("dbus-daemon has said its address") {
            guard await process.isRunning else {
                throw Failure(description: "dbus-daemon has not started: \(process.errors)")
            }
            return !process.output.isEmpty
        }
    }

    /// Kills the bus, as if it crashed: its socket stays. Does not wait for its end.
    public func stop() {
        guard let process else { return }
        kill(process.pid, SIGKILL)
        self.process = nil
    }

    /// Pauses it, as on a host that is too busy to run it, or lets it continue.
    public func pause(_ pauses: Bool) {
        guard let process else { return }
        kill(process.pid, pauses ? SIGSTOP : SIGCONT)
    }

    public func remove() {
        stop()
        TemporaryDirectory.remove(directory)
    }
}
