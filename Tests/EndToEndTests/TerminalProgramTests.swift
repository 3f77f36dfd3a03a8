import ControlAPI
import Foundation
import Glibc
import HoldfastClient
import Support
import Testing

/// What people and programs in other languages use, against a real daemon: a terminal (tmux), and the client for Python.
extension EndToEnd {
    @Test func `top shows the sessions in a real terminal, and its keys do what they say`() async throws {
        try await withLab { lab, daemon in
            let server = try await LabServer(lab)
            try await server.start()
            for name in ["gw-10", "gw-2"] { try daemon.session(name) }
            try await daemon.start()
            let events = try await daemon.events(of: "gw-10")
            try await events.until(.connected)
            let terminal = TerminalUnderTest(lab)
            try await terminal.start(
                ["\(Daemon.programs)/holdfastctl", "top", "--socket", daemon.socket], within: daemon)
            let first = try await terminal.screen("shows both, in their natural order") { lines in
                lines.contains { $0.hasPrefix("● gw-2 ") } && lines.contains { $0.hasPrefix("● gw-10 ") }
            }
            #expect(
                first.firstIndex { $0.hasPrefix("● gw-2 ") } ?? 9 < first.firstIndex { $0.hasPrefix("● gw-10 ") } ?? 0)
            #expect(first[0].hasPrefix("2 sessions: 2 connected"))

            try await terminal.press("Down")
            try await terminal.press("d")
            try await events.until(.disconnected)
            try await terminal.screen("shows that gw-10 is down") { lines in
                lines.contains { $0.hasPrefix("● gw-10 ") && $0.contains("disconnected") }
            }
            try await terminal.press("c")
            try await events.until(.connected)
            try await terminal.press("h")
            try await terminal.screen("shows the history") { $0.contains { $0.contains("Any key goes back.") } }
            try await terminal.press("x")
            try await terminal.screen("is back") { $0.contains { $0.hasPrefix("● gw-2 ") } }
            try await terminal.press("q")
            try await terminal.screen("has left the terminal as it was") { $0.contains { $0.contains("ended with 0") } }
            await terminal.end()
        }
    }

    @Test func `the client for Python loses no message when the daemon is killed`() async throws {
        try await withLab { lab, daemon in
            let server = try await LabServer(lab)
            try await server.start()
            try daemon.session()
            try await daemon.start()
            try await daemon.events().until(.connected)
            let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
                .deletingLastPathComponent().appendingPathComponent("Examples/Python")
            let echo = try await lab.start(
                "echo.py",
                [
                    "env", "HOLDFAST_SOCKET=\(daemon.socket)", "python3", "-B",
                    folder.appendingPathComponent("echo.py").path,
                    "main",
                ], in: nil)
            try await until("it consumes") { try await daemon.status().inbox.consumers.map(\.name) == ["echo"] }
            let near = LabClient(lab)
            for number in 1...20 { try await near.publish("\(number)", to: "orders/1") }
            try await until("some are answered") { echo.output.contains("orders/1 3 is answered") }
            try await daemon.kill()
            for number in 21...40 { try await near.publish("\(number)", to: "orders/1") }
            try await daemon.start()
            try await until("all are answered") { echo.output.contains("orders/1 40 is answered") }
            let answered = echo.output.split(separator: "\n").compactMap { line in
                line.hasPrefix("orders/1 ") ? Int(line.split(separator: " ")[1]) : nil
            }
            // One may come again after a kill; the first of each are all, and in order.
            var first: [Int] = []
            for number in answered where !first.contains(number) { first.append(number) }
            #expect(first == Array(1...40))
            await echo.signal(SIGINT)
            #expect(try await echo.ended(within: .seconds(180)) == .exited(0))
        }
    }
}
