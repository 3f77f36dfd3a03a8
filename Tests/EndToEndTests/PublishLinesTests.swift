import Foundation
import Glibc
import Support
import Testing

/// `publish --lines` says how many messages got how far, however it ends.
extension EndToEnd {
    /// The command, and the end of a pipe that it reads.
    private struct Lines {
        let process: LabProcess
        private let pipe: Int32

        init(_ lab: Lab, _ daemon: DaemonProcess, _ words: String) async throws {
            let path = "\(lab.directory)/lines-\(UUID().uuidString)"
            guard mkfifo(path, 0o600) == 0 else { throw Lab.Failure("mkfifo: \(errno)") }
            // Opened for both, nobody waits for the other.
            pipe = open(path, O_RDWR | O_CLOEXEC)
            let command =
                "exec '\(DaemonProcess.programs)/holdfastctl' publish \(words) --socket '\(daemon.socket)' <'\(path)'"
            process = try await lab.start("publish", ["sh", "-c", command], in: nil)
        }

        func write(_ text: String) { _ = Glibc.write(pipe, text, text.utf8.count) }

        func ended() async throws -> LabProcess.Ending { try await process.ended(within: .seconds(120)) }
    }

    private func queued(_ count: Int, _ daemon: DaemonProcess) async throws {
        try await until("\(count) messages are queued") {
            try await daemon.ctl("queue", "main", "--fields", "id").output.split(separator: "\n").count == count
        }
    }

    @Test func `an interrupted publish of lines says how many are accepted`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            try await daemon.start()
            let lines = try await Lines(lab, daemon, "main t --lines")
            lines.write("1\n2\n3\nthe begin of")
            try await queued(3, daemon)
            await lines.process.signal(SIGINT)
            // As others end by Control-C: a shell sees 130.
            #expect(try await lines.ended() == .killed(signal: SIGINT))
            #expect(lines.process.errors == "holdfastctl: interrupted: 3 messages are accepted\n")

            let json = try await Lines(lab, daemon, "main t --lines --json")
            json.write("4\n")
            try await queued(4, daemon)
            await json.process.signal(SIGTERM)
            #expect(try await json.ended() == .killed(signal: SIGTERM))
            #expect(
                json.process.errors.contains(#""message":"interrupted: 1 message is accepted""#),
                "\(json.process.errors)")
        }
    }

    @Test func `an interrupted publish that waits for the server says what is delivered and what is not`() async throws
    {
        try await withLab { lab, daemon in
            let server = try await LabServer(lab)
            try await server.start()
            try daemon.session()
            try await daemon.start()
            let lines = try await Lines(lab, daemon, "main t --lines --wait delivered --json")
            lines.write("1\n2\n")
            try await until("two are delivered") { lines.process.output.split(separator: "\n").count == 2 }
            try await server.kill()
            lines.write("3\n4\n5\n")
            try await queued(3, daemon)
            await lines.process.signal(SIGINT)
            #expect(try await lines.ended() == .killed(signal: SIGINT))
            let sentence =
                "interrupted: 2 messages are delivered, and 3 more, which the daemon has, are not delivered yet; "
                + "see: holdfastctl queue list main"
            #expect(lines.process.errors.contains(sentence), "\(lines.process.errors)")
            try await queued(3, daemon)
        }
    }

    @Test func `a publish of lines says how far it came when the daemon ends`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            try await daemon.start()
            let lines = try await Lines(lab, daemon, "main t --lines")
            lines.write("1\n2\n")
            try await queued(2, daemon)
            _ = try await daemon.stop()
            lines.write("3\n")
            #expect(try await lines.ended() == .exited(6))
            #expect(
                lines.process.errors.contains("before the error, 2 messages are accepted\n"), "\(lines.process.errors)")
        }
    }
}
