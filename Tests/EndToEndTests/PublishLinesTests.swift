import ControlAPI
import Foundation
import Glibc
import Support
import Testing

/// `publish --lines` says how many messages got how far, however it ends.
extension EndToEnd {
    /// The command, and the write end of a pipe that it reads.
    private struct Lines {
        let process: LabProcess
        private let pipe: Int32

        init(_ lab: Lab, _ daemon: DaemonProcess, _ words: String) async throws {
            let path = "\(lab.directory)/lines-\(UUID().uuidString)"
            guard mkfifo(path, 0o600) == 0 else { throw Lab.Failure("mkfifo: \(errno)") }
            // Opened for reading and writing, so that neither side waits for the other.
            pipe = open(path, O_RDWR | O_CLOEXEC)
            let command =
                "exec '\(DaemonProcess.programs)/holdfastctl' publish \(words) --socket '\(daemon.socket)' <'\(path)'"
            process = try await lab.start("publish", ["sh", "-c", command], in: nil)
        }

        func write(_ text: String) { _ = Glibc.write(pipe, text, text.utf8.count) }

        func ended() async throws -> LabProcess.Ending { try await process.ended(within: .seconds(180)) }
    }

    private func queued(_ count: Int, _ daemon: DaemonProcess) async throws {
        try await until("\(count) messages are queued") {
            try await daemon.ctl("queue", "main", "--fields", "id", "--limit", "1000").output.split(separator: "\n")
                .count == count
        }
    }

    @Test(
        arguments: [
            ("", ">/dev/full", "message 1 is accepted, but the output cannot be written: No space left on device"),
            ("--json", ">&-", "message 1 is accepted, but the output cannot be written: Bad file descriptor"),
            ("--lines", ">/dev/full", "2 messages are accepted, but the output cannot be written"),
            (
                "--lines --json", ">/dev/full",
                "do not repeat the command, which would do it again; to be published again: all lines from 3 on"
            ),
        ])
    func `a publish whose output cannot be written says that the message is accepted`(
        _ options: String, _ output: String, _ sentence: String
    ) async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            try await daemon.start()
            let message = options.contains("lines") ? "" : "hi"
            let words = "publish main t \(message) \(options) --socket '\(daemon.socket)'"
            let result = try await lab.finish(
                ["sh", "-c", "printf '1\\n2\\n' | '\(DaemonProcess.programs)/holdfastctl' \(words) \(output)"], in: nil)
            #expect(result.ending == .exited(1))
            #expect(result.errors.contains(sentence), "\(result.errors)")
            #expect(result.errors.contains("do not repeat the command"), "\(result.errors)")
        }
    }

    @Test func `the progress of a publish of lines says that the session is away`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            try await daemon.start()
            let file = "\(lab.directory)/lines"
            try (1...3000).map { "\($0)\n" }.joined().write(toFile: file, atomically: true, encoding: .utf8)
            let command =
                "exec '\(DaemonProcess.programs)/holdfastctl' publish main t --lines --wait delivered "
                + "--socket '\(daemon.socket)' <'\(file)'"
            let script = try lab.write("publish.sh", command)
            let terminal = TerminalUnderTest(lab)
            try await terminal.start(["bash", "--norc", "--noprofile"])
            try await terminal.type("sh \(script)")
            try await terminal.press("Enter")
            try await terminal.screen("says that nothing is delivered, and why") {
                $0.contains { $0.hasPrefix("0 messages; main is connecting") }
            }
            // The progress may be shown before the daemon has all that it takes.
            try await queued(1000, daemon)
            try await terminal.press("C-c")
            try await terminal.screen("says what is accepted") {
                $0.contains { $0.contains("1000 messages are accepted and will be delivered") }
            }
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
            // As with other programs that Control-C ends, a shell sees 130.
            #expect(try await lines.ended() == .killed(signal: SIGINT))
            let rest = "to be published again: all lines from"
            #expect(lines.process.errors == "holdfastctl: interrupted: 3 messages are accepted; \(rest) 4 on\n")

            let json = try await Lines(lab, daemon, "main t --lines --json")
            json.write("4\n")
            try await queued(4, daemon)
            await json.process.signal(SIGTERM)
            #expect(try await json.ended() == .killed(signal: SIGTERM))
            #expect(
                json.process.errors.contains(
                    #""message":"interrupted: 1 message is accepted; \#(rest) 2 on, if there are any""#),
                "\(json.process.errors)")
        }
    }

    @Test func `an interrupted publish that waits for delivery says what is delivered and what is not`() async throws {
        try await withServer { lab, server, daemon in
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
                "interrupted: 2 messages are delivered, and 3 are accepted and will be delivered; "
                + "see: holdfastctl queue list main; to be published again: all lines from 6 on"
            #expect(lines.process.errors.contains(sentence), "\(lines.process.errors)")
            try await queued(3, daemon)
        }
    }

    @Test func `the lines that an interrupted publish calls accepted are those that the daemon has`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            try await daemon.start()
            let lines = try await Lines(lab, daemon, "main t --lines --wait delivered")
            // More than the daemon takes while none is delivered.
            lines.write((1...5000).map { "\($0)\n" }.joined())
            try await queued(1000, daemon)
            await lines.process.signal(SIGTERM)
            #expect(try await lines.ended() == .killed(signal: SIGTERM))
            #expect(
                lines.process.errors
                    == "holdfastctl: interrupted: 1000 messages are accepted and will be delivered; "
                    + "see: holdfastctl queue list main; to be published again: all lines from 1001 on\n")
            try await queued(1000, daemon)
        }
    }

    @Test func `a command that waits for a session that is stopped says so`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            try await daemon.start()
            #expect(try await daemon.ctl("disconnect", "main").ending == .exited(0))
            let accepted = try await daemon.ctl("publish", "main", "t", "x")
            #expect(accepted.ending == .exited(0) && accepted.output == "Message 1 is accepted.\n")
            #expect(accepted.errors.contains("main has been disconnected"), "\(accepted.errors)")
            let late = try await daemon.ctl("publish", "main", "t", "x", "--wait", "delivered", "--timeout", "9s")
            #expect(late.ending == .exited(4))
            #expect(late.errors.contains("main has been disconnected"), "\(late.errors)")
            #expect(
                late.errors.contains("delivered once main is connected: holdfastctl connect main"), "\(late.errors)")
            let subscriber = try await lab.start(
                "subscribe",
                ["\(DaemonProcess.programs)/holdfastctl", "subscribe", "main", "t", "--socket", daemon.socket], in: nil)
            try await until("subscribe says so, too") { subscriber.errors.contains("main has been disconnected") }
            try await subscriber.killed()
        }
    }

    @Test func `a consumer keeps its filter unless the command is told to replace it`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            try await daemon.start()
            func filters() async throws -> [String] { try await daemon.status().inbox.consumers.map(\.filter) }
            func subscribe(_ words: String...) async throws -> LabProcess {
                try await lab.start(
                    "subscribe",
                    [
                        "\(DaemonProcess.programs)/holdfastctl", "subscribe", "main", "--consumer", "c", "--socket",
                        daemon.socket,
                    ] + words, in: nil)
            }
            let first = try await subscribe("jobs/#")
            try await until("the consumer is there") { try await filters() == ["jobs/#"] }
            let mistyped = try await subscribe("jbos/#")
            #expect(try await mistyped.ended(within: .seconds(180)) == .exited(1))
            #expect(
                mistyped.errors.hasPrefix("holdfastctl: the consumer c of session main has the filter jobs/#\n"),
                "\(mistyped.errors)")
            #expect(try await filters() == ["jobs/#"])
            #expect(await first.isRunning, "it was not taken over")
            let wanted = try await subscribe("work/#", "--replace-filter")
            try await until("the filter is replaced") { try await filters() == ["work/#"] }
            try await wanted.killed()
            try await first.killed()
        }
    }

    @Test func `a long publish of lines shows its progress on a terminal`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            try await daemon.start()
            let end = "\(lab.directory)/end"
            let script = try lab.write(
                "lines.sh",
                """
                while ! test -e '\(end)'; do echo line; sleep 0.05; done |
                    '\(DaemonProcess.programs)/holdfastctl' publish main t --lines --socket '\(daemon.socket)'
                """)
            let terminal = TerminalUnderTest(lab)
            try await terminal.start(["sh", script])
            func progress(_ lines: [String]) -> [String] {
                lines.filter { $0.contains(/^[0-9]+ messages, [0-9]+\/s$/) }
            }
            let first = try await terminal.screen("shows the progress") { !progress($0).isEmpty }
            #expect(progress(first).count == 1)
            try await terminal.screen("shows more progress, in the same place") { lines in
                progress(lines).count == 1 && progress(lines) != progress(first)
            }
            try lab.write(end, "")
            let last = try await terminal.screen("shows the result") { $0.contains { $0.contains("ended with 0") } }
            #expect(last.contains { $0.contains(/^[0-9]+ messages are accepted\.$/) })
            #expect(progress(last).isEmpty, "\(last)")
        }
    }

    @Test func `a list can show the sessions of one state, and status can be coloured`() async throws {
        try await withLab { lab, daemon in
            for name in ["gw-1", "gw-2"] { try daemon.session(name) }
            try await daemon.start()
            #expect(try await daemon.ctl("disconnect", "gw-1").ending == .exited(0))
            #expect(try await daemon.ctl("list", "--state", "disconnected", "--fields", "session").output == "gw-1\n")
            let json = try await daemon.ctl("list", "--state", "disconnected", "--json").output
            #expect(json.contains("gw-1") && !json.contains("gw-2"))
            #expect(try await daemon.ctl("status", "gw-1").output.hasPrefix("gw-1 "))
            #expect(try await daemon.ctl("status", "gw-1", "--color", "always").output.hasPrefix("\u{1B}[90m●"))
        }
    }

    @Test func `a publish of lines says how far it got when the daemon ends`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            try await daemon.start()
            let lines = try await Lines(lab, daemon, "main t --lines")
            lines.write("1\n2\n")
            try await queued(2, daemon)
            _ = try await daemon.stop()
            lines.write("3\n")
            #expect(try await lines.ended() == .exited(6))
            let sentence = "before the error, 2 messages are accepted; to be published again: all lines from 3 on\n"
            #expect(lines.process.errors.contains(sentence), "\(lines.process.errors)")
        }
    }
}
