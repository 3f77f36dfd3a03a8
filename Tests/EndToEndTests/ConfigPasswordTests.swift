import Foundation
import Glibc
import Support
import Testing
import Vocabulary

/// `config password`: a session gets a new password, which is tried and used.
extension EndToEnd {
    /// Runs the command with a password on standard input.
    private func give(
        _ password: String, _ session: String, _ lab: Lab, _ daemon: DaemonProcess, as user: String = "0",
        _ options: String = ""
    ) async throws -> (status: Int32, text: String) {
        let typed = try lab.write("typed", password + "\n")
        let line = """
            exec setpriv --reuid \(user) --regid \(user) --clear-groups '\(DaemonProcess.programs)/holdfastctl' \
            config password '\(session)' \(options) --config-directory '\(daemon.configuration)' --socket '\(daemon.socket)' \
            <'\(typed)'
            """
        let result = try await lab.finish(["sh", "-c", line], in: lab.host)
        guard case .exited(let status) = result.ending else { throw Lab.Failure("\(result)") }
        return (status, result.output + result.errors)
    }

    @Test func `config password replaces the file of a password, and the session uses it`() async throws {
        try await withLab { lab, daemon in
            var options = LabServer.Options()
            options.users = ["main": "second"]
            try await LabServer.started(lab, options)
            let secret = try lab.write("secret", "first")
            let link = "\(lab.directory)/link"
            #expect(chmod(secret, 0o640) == 0 && chown(secret, 0, 12345) == 0 && symlink(secret, link) == 0)
            try daemon.session(top: "password = \"file:\(link)\"\ninsecure = true")
            try await daemon.start()
            try await daemon.events().until(.failed)

            let wrong = try await give("third", "main", lab, daemon)
            #expect(wrong.status == 1 && wrong.text.contains("The check failed at the step Login."), "\(wrong)")
            #expect(wrong.text.contains("the server refuses the password, so \(link) has the previous one"), "\(wrong)")
            #expect(try String(contentsOfFile: secret, encoding: .utf8) == "first")
            let untried = try await give("third", "main", lab, daemon, "--untried")
            #expect(untried.status == 0 && untried.text == "\(link) is written.\n", "\(untried)")
            #expect(try String(contentsOfFile: secret, encoding: .utf8) == "third")
            let right = try await give("second", "main", lab, daemon)
            #expect(right.status == 0 && right.text.contains("\(link) is written."), "\(right)")
            #expect(right.text.contains("main is connected to mqtt://\(Lab.serverAddress)"), "\(right)")
            var status = stat()
            #expect(lstat(link, &status) == 0 && status.st_mode & S_IFMT == S_IFLNK, "the link stays")
            #expect(stat(secret, &status) == 0 && status.st_mode & 0o777 == 0o640 && status.st_gid == 12345)
            #expect(try String(contentsOfFile: secret, encoding: .utf8) == "second")

            let later = try await give("second", "main", lab, daemon)
            #expect(later.status == 0 && later.text.contains("main stays connected, and uses the new"), "\(later)")
            #expect(try await daemon.ctl("disconnect", "main").ending == .exited(0))
            let away = try await give("second", "main", lab, daemon)
            #expect(away.status == 0 && away.text.contains("main has been disconnected"), "\(away)")
            #expect(try await daemon.ctl("connect", "main", "--wait").ending == .exited(0))
        }
    }

    @Test func `config password asks twice on a terminal, and shows nothing of what is typed`() async throws {
        try await withLab { lab, daemon in
            let secret = try lab.write("secret", "first")
            try daemon.session(top: "password = \"file:\(secret)\"\ninsecure = true")
            let words = [
                "\(DaemonProcess.programs)/holdfastctl", "config", "password", "main", "--config-directory",
                daemon.configuration, "--socket", daemon.socket,
            ]
            for (answer, ending) in [("sesam", "the two passwords differ"), ("sesame", "\(secret) is written.")] {
                let terminal = TerminalUnderTest(lab)
                try await terminal.start(words, columns: 300)
                try await terminal.screen("asks") { $0.contains { $0.hasPrefix("New password for main:") } }
                try await terminal.type("sesame")
                try await terminal.press("Enter")
                try await terminal.screen("asks again") { $0.contains { $0.hasPrefix("The same again:") } }
                #expect(try String(contentsOfFile: secret, encoding: .utf8) == "first")
                try await terminal.type(answer)
                try await terminal.press("Enter")
                let screen = try await terminal.screen("has an end") { $0.contains { $0.hasPrefix("ended with") } }
                #expect(screen.contains { $0.contains(ending) }, "\(screen)")
                #expect(!screen.contains { $0.contains("sesam") }, "\(screen)")
                try await terminal.close()
            }
            #expect(try String(contentsOfFile: secret, encoding: .utf8) == "sesame")
        }
    }

    @Test func `config password says what to do about a password that it cannot write`() async throws {
        try await withLab { lab, daemon in
            try daemon.session("one", top: "password = \"credential:broker\"\ninsecure = true")
            try daemon.session("two", top: "password = \"exec:/bin/echo secret\"\ninsecure = true")
            try daemon.session("three")
            try daemon.session("four", top: "password = \"file:\(lab.directory)/none/secret\"\ninsecure = true")
            try daemon.writeSession("five", "usr = \"x\"\n")
            for (session, status, words) in [
                ("one", 1, "change the file that LoadCredential=broker names"),
                ("two", 1, "the password of two comes from a command"),
                ("three", 1, "password = \"file:\(daemon.configuration)/three.secret\""),
                ("four", 1, "none/secret cannot be written: No such file or directory"),
                ("five", 1, "five.toml:1:1: there is no key \"usr\""),
                ("sx", 1, "there is no file for session \"sx\""),
                ("gw@", 2, "gw@ is a template: name one of its instances"),
            ] as [(String, Int32, String)] {
                let result = try await give("x", session, lab, daemon)
                #expect(result.status == status && result.text.contains(words), "\(session): \(result)")
                #expect(!result.text.contains("is written"), "\(session): \(result)")
            }
            try daemon.session("six", top: "password = \"file:/etc/six.secret\"\ninsecure = true")
            let stranger = try await give("x", "six", lab, daemon, as: "65534")
            #expect(stranger.status == 5 && stranger.text.contains("try again with sudo"), "\(stranger)")
            let none = try await give("", "six", lab, daemon)
            #expect(none.status == 1 && none.text.contains("no password was given"), "\(none)")

            // Neither a daemon that is not running nor one that does not know the session yet is a failure.
            let secret = "\(lab.directory)/secret"
            try daemon.session("four", top: "password = \"file:\(secret)\"\ninsecure = true")
            let stopped = try await give("sesame", "four", lab, daemon)
            #expect(stopped.status == 0 && stopped.text.contains("the daemon is not running"), "\(stopped)")
            var status = stat()
            #expect(stat(secret, &status) == 0 && status.st_mode & 0o777 == 0o600)
            try await daemon.start()
            try daemon.session("seven", top: "client-id = \"7\"\npassword = \"file:\(secret)\"\ninsecure = true")
            let new = try await give("sesame", "seven", lab, daemon)
            #expect(new.status == 0 && new.text.contains("next: holdfastctl reload"), "\(new)")
        }
    }
}
