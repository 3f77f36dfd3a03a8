import ControlAPI
import Foundation
import Glibc
import Support
import Testing

/// `bugreport`: what a person attaches to a report has no secrets, wherever they were.
extension EndToEnd {
    /// Sets up sessions whose secrets, each of which contains "planted", come from everywhere, and starts the daemon.
    private func plant(_ lab: Lab, _ daemon: DaemonProcess) async throws {
        var options = LabServer.Options()
        options.users = ["from-file": "planted-in-file", "from-helper": "planted-in-token-file"]
        try await LabServer(lab, options).start()
        func secret(_ name: String, _ text: String) throws -> String {
            let path = try lab.write(name, text)
            chmod(path, 0o600)
            return path
        }
        let file = try secret("file", "planted-in-file\n")
        let token = try secret("token", "planted-in-token-file\n")
        let helper = try lab.write("helper", "#!/bin/sh\ncat '\(token)'\n")
        chmod(helper, 0o755)
        func session(_ name: String, _ password: String) throws {
            try daemon.session(
                name,
                top: """
                    insecure = true
                    # password = "planted-in-comment"
                    #before that, the password was planted-in-remark
                    password = "\(password)" # token: planted-after-it
                    """)
        }
        try session("from-file", "file:\(file)")
        try session("from-helper", "exec:\(helper) --with planted-in-argument")
        // This one is wrong: people also ask for help with files that have errors.
        try session("wrong", "planted-in-clear")
        try session("renewed", "exec:/bin/false planted-in-argument")
        try daemon.writeSession(
            "address", "endpoints = [\"mqtts://edge:planted-in-url@broker.example\"]\nuser = \"edge\"")
        try await daemon.start()
        for name in ["from-file", "from-helper"] { try await daemon.events(of: name).until(.connected) }
        for name in ["from-file", "renewed"] {
            _ = try await daemon.call(
                SessionRenewTokenMethod.self, .init(session: name, token: "planted-renewed"))
        }
    }

    @Test func `a bug report has what is needed, and no secret`() async throws {
        try await withLab { lab, daemon in
            try await plant(lab, daemon)
            let place = ["--config-directory", daemon.configuration]
            let file = "\(lab.directory)/report"
            let shown = try await daemon.ctl("bugreport", place[0], place[1])
            let written = try await daemon.ctl("bugreport", place[0], place[1], "-o", file, "--yes")
            for report in [shown, written] {
                #expect(report.ending == .exited(0), "\(report)")
                #expect(!(report.output + report.errors).contains("planted"), "\(report)")
            }
            let text = try String(contentsOfFile: file, encoding: .utf8)
            #expect(text == written.output)
            var status = stat()
            #expect(stat(file, &status) == 0 && status.st_mode & 0o777 == 0o600, "it is the writer's only")
            for heading in [
                "Versions", "daemon.status", "session.list", "network.status", "session.history", "daemon.clients",
                "daemon.metrics", "config show", "Journal",
            ] {
                #expect(text.contains("==== \(heading)\n"), "\(heading)")
            }
            #expect(text.contains("mqtt://\(Lab.serverAddress):1883"))
            #expect(text.contains("# session from-file: \(daemon.configuration)/sessions.d/from-file.toml\n"))
            #expect(text.contains("\npassword = \"exec:(left out) …\""))
            #expect(text.contains("\npassword = \"file:(left out)\""))
            #expect(!text.contains("\(lab.directory)/helper"))
            #expect(text.contains("bad-configuration"))

            let json = try await daemon.ctl("bugreport", place[0], place[1], "--json")
            let object = try JSONSerialization.jsonObject(with: Data(json.output.utf8)) as? [String: Any]
            #expect((object?["report"] as? String)?.contains("==== Versions\n") == true, "\(json)")
            #expect(!json.output.contains("planted"), "\(json)")

            // Without the daemon, the report still has everything else.
            _ = try await daemon.stop()
            let alone = try await daemon.ctl("bugreport", place[0], place[1])
            #expect(alone.ending == .exited(0) && alone.output.contains("==== config show\n# "), "\(alone)")
            #expect(!(alone.output + alone.errors).contains("planted"), "\(alone)")
        }
    }

    @Test func `on a terminal, a bug report is written only after a confirmation`() async throws {
        try await withLab { lab, daemon in
            try await plant(lab, daemon)
            let terminal = TerminalUnderTest(lab)
            let file = "\(lab.directory)/report"
            let words = [
                "\(DaemonProcess.programs)/holdfastctl", "bugreport", "-o", file, "--config-directory",
                daemon.configuration, "--socket", daemon.socket,
            ]
            for (key, status) in [("n", 1), ("y", 0)] {
                try await terminal.start(words)
                let screen = try await terminal.screen("shows the report, and asks") { lines in
                    lines.contains { $0.contains("\(file)? [y/N]") }
                }
                #expect(!screen.contains { $0.contains("planted") })
                #expect(access(file, F_OK) != 0, "nothing is written before the answer")
                try await terminal.press(key)
                try await terminal.press("Enter")
                try await terminal.screen("has an end") { $0.contains("ended with \(status)") }
                #expect((access(file, F_OK) == 0) == (status == 0))
                try await terminal.close()
            }
            #expect(try !String(contentsOfFile: file, encoding: .utf8).contains("planted"))
        }
    }
}
