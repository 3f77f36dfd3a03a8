import Dispatch
import Foundation
import Glibc

/// A message bus of a test's own: Debian's dbus-daemon, on a socket in a directory of its own.
public final class MessageBus {
    private static let program = "/usr/bin/dbus-daemon"
    public static var isAvailable: Bool { LabRequirements.isAllRequired || access(program, X_OK) == 0 }

    public struct Failure: Error {
        public var description: String

        public init(description: String) {
            self.description = description
        }
    }

    /// What clients connect to, whether it runs or not.
    public var address: String { "unix:path=\(directory)/bus" }

    private let directory: String
    private var process: Process?

    public init() throws {
        var template = Array("/tmp/holdfast-bus-XXXXXX".utf8CString)
        guard let path = mkdtemp(&template) else { throw Failure(description: "no directory can be made") }
        directory = String(cString: path)
    }

    /// Returns when clients can connect.
    public func start() async throws {
        let configuration = """
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig><listen>\(address)</listen><auth>EXTERNAL</auth>
            <policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>
            """
        try configuration.write(toFile: "\(directory)/bus.conf", atomically: true, encoding: .utf8)
        let output = Pipe()
        let process = Process()
        process.executableURL = URL(fileURLWithPath: Self.program)
        process.arguments = ["--config-file=\(directory)/bus.conf", "--nofork", "--nopidfile", "--print-address"]
        process.standardOutput = output
        process.standardError = FileHandle.nullDevice
        try process.run()
        self.process = process
        // Waited for on another thread: those of the tests are few.
        let ready = output.fileHandleForReading
        let hasStarted = await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                continuation.resume(returning: (try? ready.read(upToCount: 1))?.isEmpty == false)
            }
        }
        guard hasStarted else { throw Failure(description: "dbus-daemon has not started") }
    }

    /// Ends the bus, as when it crashes: its socket stays. Its end is not waited for: Foundation does that in a run loop,
    /// and tests have none.
    public func stop() {
        guard let process, process.isRunning else { return }
        kill(process.processIdentifier, SIGKILL)
        self.process = nil
    }

    public func remove() {
        stop()
        try? FileManager.default.removeItem(atPath: directory)
    }
}
