import Foundation
import Glibc

/// A message bus of a test's own: Debian's dbus-daemon, on a socket in a directory of its own.
public final class MessageBus {
    private static let program = "/usr/bin/dbus-daemon"
    public static var isAvailable: Bool { LabRequirements.isAllRequired || access(program, X_OK) == 0 }

    public struct Failure: Error {
        public var description: String
    }

    /// What clients connect to, whether it runs or not.
    public var address: String { "unix:path=\(directory)/bus" }

    private let directory: String
    private var process: pid_t = 0

    public init() throws {
        var template = Array("/tmp/holdfast-bus-XXXXXX".utf8CString)
        guard let path = mkdtemp(&template) else { throw Failure(description: "no directory can be made") }
        directory = String(cString: path)
    }

    /// Returns when clients can connect.
    public func start() throws {
        let configuration = """
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig><listen>\(address)</listen><auth>EXTERNAL</auth>
            <policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>
            """
        try configuration.write(toFile: "\(directory)/bus.conf", atomically: true, encoding: .utf8)
        // Not Foundation's Process: it waits for the end in a run loop, and tests have none.
        var output: [Int32] = [-1, -1]
        guard pipe(&output) == 0 else { throw Failure(description: "no pipe can be made") }
        defer { close(output[0]) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO)
        posix_spawn_file_actions_addclose(&actions, output[0])
        let arguments = [
            Self.program, "--config-file=\(directory)/bus.conf", "--nofork", "--nopidfile", "--print-address",
        ]
        var pointers = arguments.map { strdup($0) } + [nil]
        defer { for pointer in pointers { free(pointer) } }
        let result = posix_spawn(&process, Self.program, &actions, nil, &pointers, environ)
        close(output[1])
        var byte: UInt8 = 0
        guard result == 0, read(output[0], &byte, 1) == 1 else {
            throw Failure(description: "dbus-daemon has not started")
        }
    }

    /// Ends the bus, as when it crashes: its socket stays.
    public func stop() {
        guard process > 0 else { return }
        kill(process, SIGKILL)
        waitpid(process, nil, 0)
        process = 0
    }

    public func remove() {
        stop()
        try? FileManager.default.removeItem(atPath: directory)
    }
}
