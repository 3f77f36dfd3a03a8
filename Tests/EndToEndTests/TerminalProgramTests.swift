import ControlAPI
import Foundation
import Glibc
import HoldfastClient
import Support
import Testing

/// The programs that people use, with a real daemon, in a real terminal (tmux).
extension EndToEnd {
    @Test func `top shows the sessions in a real terminal, and its keys work`() async throws {
        try await withServer { lab, _, daemon in
            for name in ["gw-10", "gw-2"] { try daemon.session(name) }
            try await daemon.start()
            let events = try await daemon.events(of: "gw-10")
            try await events.until(.connected)
            try await daemon.events(of: "gw-2").until(.connected)
            let terminal = TerminalUnderTest(lab)
            try await terminal.start(["\(DaemonProcess.programs)/holdfastctl", "top", "--socket", daemon.socket])
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
            try await terminal.screen("shows the history") { $0.contains { $0.contains("Press any key to go back.") } }
            try await terminal.press("x")
            try await terminal.screen("is back") { $0.contains { $0.hasPrefix("● gw-2 ") } }
            try await terminal.press("q")
            try await terminal.screen("has left the terminal as it was") { $0.contains { $0.contains("ended with 0") } }
        }
    }

    @Test func `top says that the daemon does not answer, and Control-C ends it even then`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            let terminal = TerminalUnderTest(lab)
            try await terminal.start(["\(DaemonProcess.programs)/holdfastctl", "top", "--socket", daemon.socket])
            try await terminal.screen("shows the session") { $0.contains { $0.hasPrefix("● main ") } }
            await daemon.pause()
            try await terminal.screen("waits") {
                $0.contains { $0.contains("not answer in time; waiting for the daemon") }
            }
            try await terminal.press("C-c")
            try await terminal.screen("has left the terminal as it was") { $0.contains { $0.contains("ended with 0") } }
            await daemon.resume()
        }
    }

    @Test func `a signal ends top, and the terminal is as it was`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            let terminal = TerminalUnderTest(lab)
            // A shell would report 143 for either ending.
            let parent = """
                import subprocess, sys
                child = subprocess.Popen(sys.argv[2:])
                open(sys.argv[1], "w").write(str(child.pid))
                print("returned", child.wait())
                """
            let pidFile = "\(lab.directory)/pid"
            try await terminal.start(
                [
                    "python3", "-c", parent, pidFile, "\(DaemonProcess.programs)/holdfastctl", "top", "--socket",
                    daemon.socket,
                ])
            try await terminal.screen("shows the session") { $0.contains { $0.hasPrefix("● main ") } }
            let text = try String(contentsOfFile: pidFile, encoding: .utf8)
            let pid = try #require(pid_t(text.filter(\.isNumber)))
            kill(pid, SIGTERM)
            try await terminal.screen("has left the other screen, and the signal is known") {
                $0.contains { $0.contains("returned -15") }
            }
        }
    }

    @Test func `top fits any terminal, and redraws when its size changes`() async throws {
        try await withServer { lab, _, daemon in
            for name in ["gw-1", "gw-2", "gw-3"] { try daemon.session(name) }
            try await daemon.start()
            for name in ["gw-1", "gw-2", "gw-3"] { try await daemon.events(of: name).until(.connected) }
            let terminal = TerminalUnderTest(lab)
            let top = ["\(DaemonProcess.programs)/holdfastctl", "top", "--socket", daemon.socket]
            try await terminal.start(top, columns: 50, rows: 12)
            // The narrower the terminal, the fewer columns there are: whole columns disappear, and no line is wrapped.
            let narrow = try await terminal.screen("shows the columns that matter most") { lines in
                lines.filter { $0.hasPrefix("● gw-") }.count == 3 && lines.contains { $0.contains("q quits") }
            }
            #expect(narrow.contains { $0.contains("SESSION") && $0.contains("STATE") && $0.contains("WHY") })
            #expect(!narrow.contains { $0.contains("QUALITY") })
            try await terminal.press("Down")
            try await terminal.press("Down")
            try await terminal.resize(columns: 20, rows: 2)
            try await terminal.screen("shows the selected one, and the keys") { lines in
                lines.count <= 3 && lines[0].hasPrefix("● gw-3") && lines[1].contains("keys")
            }
            try await terminal.resize(columns: 140, rows: 24)
            try await terminal.screen("shows everything") { lines in
                lines.contains { $0.contains("QUALITY") } && lines.contains { $0.hasPrefix("● gw-1 ") }
            }
            try await terminal.press("q")
            try await terminal.screen("is as it was") { $0.contains { $0.contains("ended with 0") } }
            try await terminal.close()
            for kind in ["dumb", ""] {
                try await terminal.start(top, kind: kind)
                try await terminal.screen("says what to do in one that cannot be drawn on") { lines in
                    lines.contains { $0.contains("holdfastctl watch") } && lines.contains("ended with 2")
                }
                try await terminal.close()
            }
            try await terminal.start(["sh", "-c", top.joined(separator: " ") + " </dev/null"])
            try await terminal.screen("says that it cannot read keys") { lines in
                lines.contains { $0.contains("standard input is not a terminal") } && lines.contains("ended with 2")
            }
        }
    }

    @Test func `status is wrapped between words, and follows a terminal that becomes narrower`() async throws {
        try await withConnected { lab, _, daemon in
            let terminal = TerminalUnderTest(lab)
            let wide = try await terminal.run("holdfastctl status main", as: .root, within: daemon)
            let narrow = try await terminal.run("holdfastctl status main", as: .root, within: daemon, columns: 50)
            func words(_ screen: [String], of name: String) -> [Substring] {
                let text = screen.joined(separator: " ")
                let rest = text.range(of: "  \(name) ").map { text[$0.upperBound...] } ?? ""
                return (rest.range(of: "  Protocol ").map { rest[..<$0.lowerBound] } ?? rest).split(separator: " ")
            }
            #expect(narrow.count > wide.count)
            #expect(narrow.allSatisfy { $0.count <= 50 })
            // Continued below the value, not below the name.
            #expect(narrow.contains { $0.hasPrefix("            ") })
            #expect(words(narrow, of: "Endpoint") == words(wide, of: "Endpoint"))

            let follow = [
                "\(DaemonProcess.programs)/holdfastctl", "status", "main", "--follow", "--socket", daemon.socket,
            ]
            try await terminal.start(follow, columns: 110, rows: 40)
            try await terminal.screen("follows") { $0.contains { $0.hasPrefix("  Counters ") } }
            try await terminal.resize(columns: 50, rows: 40)
            try await terminal.screen("shows it once") { lines in
                lines.count { $0.hasPrefix("  State ") } == 1 && lines.count { $0.hasPrefix("  Counters ") } == 1
                    && lines.contains { $0.hasPrefix("            ") }
            }
        }
    }

    @Test func `status that follows shows no states without the daemon, and ends when there is nothing to follow`()
        async throws
    {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            let terminal = TerminalUnderTest(lab)
            func follow(_ name: String) async throws {
                let words = ["\(DaemonProcess.programs)/holdfastctl", "status", name, "--follow"]
                try await terminal.start(words + ["--socket", daemon.socket], columns: 200)
            }
            try await follow("main")
            try await terminal.screen("says that there is no daemon") { lines in
                lines.contains { $0.contains("the daemon is not running") } && lines.contains("ended with 6")
            }
            try await terminal.close()
            try await daemon.start()
            try await follow("mian")
            try await terminal.screen("says which session there is") { lines in
                lines.contains { $0.contains("did you mean main?") } && lines.contains("ended with 1")
            }
            try await terminal.close()
            try await follow("main")
            func shows(_ text: String, _ lines: [String]) -> Bool { lines.contains { $0.contains(text) } }
            try await terminal.screen("has the state") { shows("● main has been disconnected", $0) }
            _ = try await daemon.stop()
            // The first reason is that the connection ended; this one comes from a later attempt.
            let waiting = try await terminal.screen("waits for the daemon") { lines in
                shows("the daemon is not running", lines) && shows("waiting for the daemon", lines)
            }
            #expect(!shows("main has been", waiting) && !shows("No session", waiting), "\(waiting)")
            try await daemon.start()
            try await terminal.screen("has the state again") { lines in
                shows("● main has been disconnected", lines) && !shows("waiting", lines)
            }
            try FileManager.default.removeItem(atPath: "\(daemon.configuration)/sessions.d/main.toml")
            _ = try await daemon.call(DaemonReloadMethod.self, .init())
            try await terminal.screen("says that there is no such session any more") { lines in
                shows("no session \"main\"", lines) && lines.contains("ended with 1")
            }
        }
    }

    @Test func `watch lets events go by above the present states`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session()
            try daemon.session("other", top: "autoconnect = false")
            try await daemon.startConnected()
            let terminal = TerminalUnderTest(lab)
            try await terminal.start(
                ["\(DaemonProcess.programs)/holdfastctl", "watch", "--socket", daemon.socket], columns: 120, rows: 30)
            try await terminal.screen("has the states") { lines in
                lines.contains { $0.hasPrefix("● main is connected") }
                    && lines.contains { $0.hasPrefix("● other has been") }
            }
            _ = try await daemon.client.call(SessionDisconnectMethod.self, .init(session: "main", wait: true))
            try await terminal.screen("has the event, and below it the state, once") { lines in
                guard let event = lines.lastIndex(where: { $0.contains(" main disconnecting → disconnected") }),
                    let state = lines.firstIndex(where: { $0.hasPrefix("● main has been disconnected") })
                else { return false }
                return event < state && lines.count { $0.hasPrefix("● main ") } == 1
            }
        }
    }

    @Test func `watch drops events, and says how many, while its terminal is stopped`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(endpoint: "mqtt://\(Lab.serverAddress):1999", top: "autoconnect = false")
            try await daemon.start()
            let terminal = TerminalUnderTest(lab)
            try await terminal.start(
                ["\(DaemonProcess.programs)/holdfastctl", "watch", "--socket", daemon.socket], columns: 120, rows: 60)
            try await terminal.screen("has the state") { $0.contains { $0.hasPrefix("● main has been") } }
            try await terminal.press("C-s")
            // More events than the client keeps for a reader.
            for _ in 1...700 {
                try await daemon.connect()
                try await daemon.disconnect()
            }
            try await terminal.press("C-q")
            try await until("the terminal says how many events were dropped") {
                // The count comes with the next event that there is room for.
                try await daemon.connect()
                try await daemon.disconnect()
                return try await terminal.history().contains("events were dropped because too much was unread")
            }
        }
    }

    @Test func `status has colours on a terminal, but not with NO_COLOR or on a dumb one`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            let terminal = TerminalUnderTest(lab)
            let cases: [(variable: String, kind: String, options: [String], isColoured: Bool)] = [
                ("A=b", "screen-256color", [], true), ("NO_COLOR=1", "screen-256color", [], false),
                ("NO_COLOR=", "screen-256color", [], true), ("A=b", "dumb", [], false), ("A=b", "", [], false),
                ("LC_ALL=C", "screen-256color", [], true),
                ("A=b", "screen-256color", ["--color", "never"], false),
                ("NO_COLOR=1", "dumb", ["--color", "always"], true),
            ]
            for (variable, kind, options, isColoured) in cases {
                let words = ["env", variable, "\(DaemonProcess.programs)/holdfastctl", "status"] + options
                try await terminal.start(words + ["--socket", daemon.socket], kind: kind)
                try await terminal.screen("has the status") { $0.contains("ended with 0") }
                let screen = try await terminal.coloured()
                #expect(screen.contains("\u{1B}[") == isColoured, "\(variable) \(kind) \(options): \(screen)")
                #expect(screen.contains("main has been disconnected"))
                #expect(screen.contains("●") == (isColoured && variable != "LC_ALL=C"), "\(variable): \(screen)")
                try await terminal.close()
            }
        }
    }

    @Test func `a terminal does not outlive a test that fails`() async throws {
        struct Given: Error {}
        var socket = ""
        do {
            try await Lab.run { lab in
                let terminal = TerminalUnderTest(lab)
                try await terminal.start(["sleep", "600"])
                socket = "\(lab.directory)/tmux.sock"
                throw Given()
            }
        } catch is Given {}
        let processes = try FileManager.default.contentsOfDirectory(atPath: "/proc").compactMap { pid in
            try? String(contentsOfFile: "/proc/\(pid)/cmdline", encoding: .utf8)
        }
        #expect(!socket.isEmpty)
        #expect(!processes.contains { $0.contains(socket) })
    }
}
