import ControlAPI
import Foundation
import Glibc
import Support
import Testing

/// What goes wrong when a session is set up, with the screens in Documentation/Troubleshooting.md: each one is
/// produced in a terminal and compared with the page. `HOLDFAST_WRITE_SCREENS=1` writes them into the page instead.
extension EndToEnd {
    @Test(arguments: OperatorStory.all)
    func `a story's screen says what to do`(_ story: OperatorStory) async throws {
        try await withLab { lab, daemon in
            try lab.host.hosts("127.0.0.1 localhost", "\(Lab.serverAddress) broker.example")
            try lab.host.resolver("nameserver \(Lab.serverAddress)", "options timeout:1 attempts:1")
            try FileManager.default.createDirectory(
                atPath: "\(daemon.configuration)/sessions.d", withIntermediateDirectories: true)
            try await story.prepare(lab, daemon)
            let terminal = TerminalUnderTest(lab)
            var screen: [String] = []
            for command in story.commands {
                screen += try await terminal.run(command, as: story.user, within: daemon)
            }
            if story.isStopped { #expect(await daemon.isRunning == false) }
            let shown = OperatorStory.plain(screen.joined(separator: "\n"), lab, daemon)
            if getenv("HOLDFAST_WRITE_SCREENS") != nil {
                try await StoryPage.shared.replace(story.title, with: shown)
            } else {
                let written = try StoryPage.screen(of: story.title)
                #expect(
                    OperatorStory.lasting(shown) == OperatorStory.lasting(written),
                    "the screen is:\n\(shown)\nThe page has:\n\(written)")
            }
        }
    }

    private func edit(
        _ lab: Lab, _ daemon: DaemonProcess, _ editor: String, _ session: String
    ) async throws -> (ending: LabProcess.Ending, text: String) {
        let result = try await lab.finish(
            [
                "env", "-u", "VISUAL", "EDITOR=\(editor)", "TMPDIR=\(lab.directory)",
                "\(DaemonProcess.programs)/holdfastctl", "config", "edit", "--config-directory", daemon.configuration,
                session,
            ], in: nil)
        return (result.ending, result.output + result.errors)
    }

    @Test func `config edit checks a template with its instances, and with the other files`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            let folder = "\(daemon.configuration)/sessions.d"
            let settings = "endpoints = [\"mqtts://a.example\"]\nuser = \"edge-%i\"\n"
            try lab.write("\(folder)/gw@.toml", settings)
            symlink("gw@.toml", "\(folder)/gw@a.toml")
            for name in ["gw@", "gw@a"] {
                let wrong = try await edit(lab, daemon, "sed -i s/^user/usr/", name)
                #expect(wrong.ending == .exited(1) && wrong.text.contains("there is no key \"usr\""), "\(wrong)")
                #expect(!wrong.text.contains("\(lab.directory)/holdfastctl-"), "\(wrong)")
                #expect(try String(contentsOfFile: "\(folder)/gw@.toml", encoding: .utf8) == settings)
            }
            let right = try await edit(lab, daemon, "sed -i s/edge/gate/", "gw@a")
            #expect(right.ending == .exited(0) && right.text.contains("gw@.toml has no errors"), "\(right)")
            #expect(try FileManager.default.destinationOfSymbolicLink(atPath: "\(folder)/gw@a.toml") == "gw@.toml")
        }
    }

    @Test func `config edit leaves the old file on a full disk, and when another program has changed it`() async throws
    {
        try await withLab { lab, daemon in
            try daemon.session()
            let file = "\(daemon.configuration)/sessions.d/main.toml"
            chmod(file, 0o640)
            chown(file, 0, 65534)
            var status = stat()
            let edited = try await edit(lab, daemon, "sh -c 'echo \"# new\" >>\"$0\"'", "main")
            #expect(edited.ending == .exited(0), "\(edited)")
            #expect(stat(file, &status) == 0 && status.st_mode & 0o777 == 0o640 && status.st_gid == 65534)

            let before = try String(contentsOfFile: file, encoding: .utf8)
            #expect(before.contains("# new"))
            let both = try await edit(
                lab, daemon, "sh -c 'echo \"# other\" >>\(file); echo \"# mine\" >>\"$0\"'", "main")
            #expect(both.ending == .exited(1) && both.text.contains("was changed meanwhile"), "\(both)")
            #expect(both.text.contains("the edited copy is \(lab.directory)/holdfastctl-"), "\(both)")
            #expect(try String(contentsOfFile: file, encoding: .utf8) == before + "# other\n")

            let folder = "\(daemon.configuration)/sessions.d"
            let full = """
                cp '\(file)' '\(lab.directory)/main.toml' && mount -t tmpfs -o size=8k tmpfs '\(folder)'
                cp '\(lab.directory)/main.toml' '\(folder)' && head -c 4096 /dev/zero >'\(folder)/x'
                TMPDIR='\(lab.directory)' EDITOR="sh -c 'echo \\"# more\\" >>\\"\\$0\\"'" \
                '\(DaemonProcess.programs)/holdfastctl' config edit main --config-directory '\(daemon.configuration)'
                cat '\(file)'; ls -A '\(folder)'
                """
            let result = try await lab.finish(["unshare", "--mount", "env", "-u", "VISUAL", "sh", "-c", full], in: nil)
            #expect(result.errors.contains("No space left on device"), "\(result)")
            #expect(result.output.hasSuffix(before + "# other\nmain.toml\nx\n"), "\(result)")
        }
    }

    @Test func `config edit checks the edited file`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            let file = "\(daemon.configuration)/sessions.d/main.toml"
            func edit(_ command: String, _ session: String? = "main") async throws -> (LabProcess.Ending, String) {
                let result = try await lab.finish(
                    [
                        "env", "-u", "VISUAL", "EDITOR=\(command)", "TMPDIR=\(lab.directory)",
                        "\(DaemonProcess.programs)/holdfastctl", "config", "edit", "--config-directory",
                        daemon.configuration,
                    ] + (session.map { [$0] } ?? []), in: nil)
                return (result.ending, result.output + result.errors)
            }
            let right = try await edit("sed -i s/^user.*/user=\\\"a\\\"/")
            #expect(right.0 == .exited(0))
            #expect(right.1 == "\(file) has no errors. Next: holdfastctl reload\n")
            #expect(try String(contentsOfFile: file, encoding: .utf8).contains("user=\"a\""))
            let text = try String(contentsOfFile: file, encoding: .utf8)
            // Without a terminal it cannot ask what to do about errors.
            let wrong = try await edit("sed -i s/^user/usr/")
            #expect(wrong.0 == .exited(1))
            #expect(wrong.1.contains("\(file):2:1: there is no key \"usr\"; did you mean \"user\"?"), "\(wrong.1)")
            #expect(wrong.1.contains("\(file) is unchanged"), "\(wrong.1)")
            #expect(try String(contentsOfFile: file, encoding: .utf8) == text)
            #expect(try await edit("false").0 == .exited(1))
            // The editor can be ended with Control-C, and is told when the terminal's size changes.
            let signals = try await edit("grep ^Sig...: /proc/self/status #").1
            #expect(signals.contains("SigBlk:\t0000000000000000\n"), "\(signals)")
            // Except for 32 and 33, which are glibc's own.
            #expect(signals.contains(/SigIgn:\t0000000[01][08]0000000\n/), "\(signals)")
            let none = try await edit("true", "other")
            #expect(none.1.contains("config init other --config-directory \(daemon.configuration) creates one"))
            for name in ["gw@a", "gw@"] {
                let none = try await edit("true", name)
                #expect(none.0 == .exited(1) && none.1.contains("/gw@.toml"), "\(none.1)")
                #expect(
                    none.1.contains("config init gw@ --config-directory \(daemon.configuration) creates one"),
                    "\(none.1)")
            }
            try daemon.writeSession("gw@", "endpoints = [\"mqtts://broker.example\"]\nuser = \"gw-%i\"")
            let template = try await edit("true", "gw@")
            #expect(
                template.0 == .exited(0) && template.1.contains("/gw@.toml is unchanged, and has no errors"),
                "\(template.1)")
            let shown = try await daemon.ctl("config", "show", "gw@", "--config-directory", daemon.configuration)
            #expect(shown.ending == .exited(1) && shown.errors.contains("a template without instances"), "\(shown)")
            let gone = try await edit("rm")
            #expect(gone.0 == .exited(0) && gone.1 == "\(file) is unchanged, and has no errors.\n", "\(gone.1)")
            #expect(access(file, F_OK) == 0, "the editor had a copy")
            // holdfast.toml is optional.
            let main = "\(daemon.configuration)/holdfast.toml"
            let untouched = try await edit("true", nil)
            #expect(untouched.0 == .exited(0))
            #expect(untouched.1 == "There is no \(main), so its keys have their defaults.\n")
            let made = try await edit("touch", nil)
            #expect(made.0 == .exited(0) && made.1 == "\(main) has no errors. Next: holdfastctl reload\n", "\(made.1)")
            let names = try FileManager.default.contentsOfDirectory(atPath: lab.directory)
            #expect(!names.contains { $0.hasPrefix("holdfastctl-") }, "no copy is left: \(names)")
        }
    }

    @Test(arguments: [
        // The editor makes a mistake each time, and mends it the second time.
        (keys: ["e"], status: 0, last: "has no errors", isWritten: true),
        (keys: ["x", "d"], status: 1, last: "is unchanged", isWritten: false),
        (keys: ["k"], status: 1, last: "is written, with its errors.", isWritten: true),
    ])
    func `on a terminal, config edit asks what to do with errors`(
        _ keys: [String], _ status: Int, _ last: String, _ isWritten: Bool
    ) async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            let file = "\(daemon.configuration)/sessions.d/main.toml"
            let before = try String(contentsOfFile: file, encoding: .utf8)
            let editor = try lab.write(
                "editor",
                "#!/bin/sh\ngrep -q usr \"$1\" && exec sed -i s/^usr/user/ \"$1\"\nsed -i s/^user/usr/ \"$1\"\n")
            chmod(editor, 0o755)
            let terminal = TerminalUnderTest(lab)
            try await terminal.start(
                [
                    "env", "-u", "VISUAL", "EDITOR=\(editor)", "\(DaemonProcess.programs)/holdfastctl", "config",
                    "edit",
                    "main", "--config-directory", daemon.configuration,
                ], columns: 300)
            for (count, key) in keys.enumerated() {
                try await terminal.screen("asks") { lines in
                    lines.count { $0.contains("keep them anyway?") } == count + 1
                }
                try await terminal.press(key)
                try await terminal.press("Enter")
            }
            let screen = try await terminal.screen("has an end") { $0.contains("ended with \(status)") }
            #expect(screen.contains { $0.contains("there is no key \"usr\"") }, "\(screen)")
            #expect(screen.contains { $0.contains(last) }, "\(screen)")
            let after = try String(contentsOfFile: file, encoding: .utf8)
            #expect((after != before) == (isWritten && keys != ["e"]), "\(after)")
            try await terminal.close()
        }
    }

    @Test func `config edit that is interrupted says where the edited copy is`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            let terminal = TerminalUnderTest(lab)
            try await terminal.start(
                [
                    // Control-C would also end the shell that shows the screen.
                    "sh", "-c", "echo $$ >\(lab.directory)/pid; exec \"$@\"", "sh",
                    "env", "-u", "VISUAL", "EDITOR=sed -i s/^user/usr/", "TMPDIR=\(lab.directory)",
                    "\(DaemonProcess.programs)/holdfastctl", "config", "edit", "main", "--config-directory",
                    daemon.configuration,
                ], columns: 300)
            try await terminal.screen("asks") { $0.contains { $0.contains("keep them anyway?") } }
            let pid = try String(contentsOfFile: "\(lab.directory)/pid", encoding: .utf8)
            #expect(kill(try #require(pid_t(pid.dropLast())), SIGINT) == 0)
            let words = "holdfastctl: the edited copy is "
            let screen = try await terminal.screen("says where it is") { $0.contains { $0.hasPrefix(words) } }
            let path = try #require(screen.first { $0.hasPrefix(words) }).dropFirst(words.count)
            #expect(try String(contentsOfFile: String(path), encoding: .utf8).contains("usr = "))
            try await terminal.close()
        }
    }

    @Test func `the page has exactly the stories that are tested`() throws {
        #expect(OperatorStory.all.count >= 20)
        #expect(try StoryPage.titles() == OperatorStory.all.map(\.title))
    }
}

/// One story: how the host gets into its state, and what a person types.
struct OperatorStory: Sendable, CustomTestStringConvertible {
    var title: String
    var commands: [String]
    var user: Person = .root
    /// Whether the daemon is stopped.
    var isStopped = false
    var prepare: @Sendable (Lab, DaemonProcess) async throws -> Void

    enum Person: String, Sendable {
        case root, nobody
    }

    var testDescription: String { title }

    /// Returns the screen with the paths of an installed daemon.
    static func plain(_ screen: String, _ lab: Lab, _ daemon: DaemonProcess) -> String {
        screen.replacing(daemon.socket, with: "/run/holdfast/control.sock")
            .replacing(daemon.configuration, with: "/etc/holdfast").replacing(daemon.state, with: "/var/lib/holdfast")
            .replacing("\(lab.directory)/", with: "/etc/holdfast/tls/").replacing(" --config-directory DIR", with: "")
    }

    /// Returns what is the same each time: the screen without times, counts of attempts, ids and column widths.
    static func lasting(_ screen: String) -> [String] {
        screen.split(separator: "\n").map { line in
            String(line)
                .replacing(
                    /(under )?[0-9]+(\.[0-9]+)? (µs|ms|s|min|h|days?)( [0-9]+ (ms|s|min|h))?( ago)?\b/, with: "#"
                )
                .replacing(/[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+Z?)?/, with: "#")
                .replacing(/(attempts?|retry|connects|outages) [0-9]+/, with: "#")
                .replacing(/\b[0-9a-f]{32}\b/, with: "#").replacing(/[ ]{2,}/, with: "  ")
        }
    }
}

extension OperatorStory {
    private static func file(_ daemon: DaemonProcess, _ lines: String..., name: String = "main") throws {
        try daemon.writeSession(name, lines.joined(separator: "\n"))
    }

    private static let plain = "endpoints = [\"mqtt://broker.example\"]"
    private static let user = "user = \"edge-42\""

    private static func serve(
        _ lab: Lab, _ change: (inout LabServer.Options) -> Void = { _ in }
    ) async throws -> LabServer {
        var options = LabServer.Options()
        options.isPersistent = false
        change(&options)
        let server = try await LabServer.started(lab, options)
        return server
    }

    /// Sets up a server with TLS and a session that connects to it.
    private static func secure(
        _ lab: Lab, _ daemon: DaemonProcess, name: String = "broker.example", days: Int = 2, clock: String? = nil,
        knows: Bool = true
    ) async throws {
        let certificates = try await Certificates(lab, name: name, days: days, clock: clock)
        _ = try await serve(lab) {
            $0.port = 8883
            $0.certificate = certificates.certificate
            $0.key = certificates.key
        }
        try file(
            daemon, "endpoints = [\"mqtts://broker.example\"]", user, "autoconnect = false",
            knows ? "[tls]\nca = \"\(certificates.authority)\"" : "")
        try await daemon.start()
    }

    static let all: [OperatorStory] = [
        OperatorStory(
            title: "The daemon does not run", commands: ["holdfastctl status"], isStopped: true
        ) { _, _ in
        },
        OperatorStory(
            title: "The daemon fails to start", commands: ["holdfastctl status", "holdfastctl config check"],
            isStopped: true
        ) { lab, daemon in
            try lab.write("\(daemon.configuration)/holdfast.toml", "[log]\nlevel = \"verbose\"\n")
            let process = try await daemon.launch()
            let ending = try await process.ended(within: .seconds(180))
            // There is no systemd in a lab. `ServiceTests` has the real one.
            guard case .exited(let status) = ending else { throw Lab.Failure("\(ending)") }
            let systemctl = try lab.write(
                "bin/systemctl", "#!/bin/sh\necho ActiveState=failed; echo ExecMainStatus=\(status)\n")
            chmod(systemctl, 0o755)
        },
        OperatorStory(title: "You are not in the group", commands: ["holdfastctl status"], user: .nobody) { _, daemon in
            try await daemon.start()
        },
        OperatorStory(
            title: "You may look, but not change anything", commands: ["holdfastctl disconnect main"], user: .nobody
        ) { lab, daemon in
            try lab.write("\(daemon.configuration)/holdfast.toml", "[access]\nobserve = [\"anyone\"]\n")
            try file(daemon, plain, user, "autoconnect = false")
            try await daemon.start()
            chmod(daemon.socket, 0o666)
        },
        OperatorStory(
            title: "There is no session yet", commands: ["holdfastctl status", "holdfastctl wait"]
        ) { _, daemon in try await daemon.start() },
        OperatorStory(title: "The session has another name", commands: ["holdfastctl status gw-4"]) { _, daemon in
            for name in ["gw-10", "gw-2", "gw-3"] {
                try file(daemon, plain, "user = \"\(name)\"", "autoconnect = false", name: name)
            }
            try await daemon.start()
        },
        OperatorStory(title: "The command is misspelled", commands: ["holdfastctl statsu"]) { _, _ in },
        OperatorStory(
            title: "The file has a mistake",
            commands: ["holdfastctl config check", "holdfastctl reload", "holdfastctl status main"]
        ) { _, daemon in
            try file(daemon, plain, user, "autoconnect = false")
            try await daemon.start()
            try file(daemon, "endpoint = [\"mqtt://broker.example\"]", user, "[heartbeat]", "interval = \"15\"")
        },
        OperatorStory(
            title: "The password would be sent in the clear",
            commands: ["holdfastctl config check"]
        ) { lab, daemon in
            let secret = try lab.write("password", "right\n")
            chmod(secret, 0o600)
            try file(daemon, plain, user, "password = \"file:\(secret)\"")
        },
        OperatorStory(
            title: "The password's file is not there", commands: ["holdfastctl config check", "holdfastctl check main"]
        ) {
            lab, daemon in
            _ = try await serve(lab)
            try file(
                daemon, plain, user, "password = \"file:/etc/holdfast/secret\"", "insecure = true",
                "autoconnect = false")
            try await daemon.start()
        },
        OperatorStory(title: "There is no such host", commands: ["holdfastctl check main"]) { lab, daemon in
            // Makes the resolver ask a refusing server only once.
            try lab.host.resolver("nameserver 127.0.0.1", "options timeout:1 attempts:1")
            try file(daemon, "endpoints = [\"mqtt://broker.exmaple\"]", user, "autoconnect = false")
            try await daemon.start()
        },
        OperatorStory(title: "There is no network", commands: ["holdfastctl status main", "holdfastctl check main"]) {
            lab, daemon in
            try await lab.uplinkDown()
            try await lab.host.ip("link set up1 down")
            try file(daemon, plain, user)
            try await daemon.start()
            try await daemon.events().until("no network") { $0.phase == .waitingForNetwork }
        },
        OperatorStory(title: "No server listens there", commands: ["holdfastctl check main"]) { _, daemon in
            try file(daemon, plain, user, "autoconnect = false")
            try await daemon.start()
        },
        OperatorStory(title: "A firewall swallows everything", commands: ["holdfastctl check main"]) { lab, daemon in
            try await lab.breakNetwork()
            try file(daemon, plain, user, "autoconnect = false", "[timeouts]", "dial = \"1s\"")
            try await daemon.start()
        },
        OperatorStory(title: "The port is that of a web server", commands: ["holdfastctl check main"]) { lab, daemon in
            _ = try await LabFakeServer(
                lab, port: 8080, answer: Array("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".utf8))
            try file(daemon, "endpoints = [\"mqtt://broker.example:8080\"]", user, "autoconnect = false")
            try await daemon.start()
        },
        OperatorStory(title: "The server speaks no TLS there", commands: ["holdfastctl check main"]) { lab, daemon in
            _ = try await serve(lab)
            try file(daemon, "endpoints = [\"mqtts://broker.example:1883\"]", user, "autoconnect = false")
            try await daemon.start()
        },
        OperatorStory(title: "The server wants TLS there", commands: ["holdfastctl check main"]) { lab, daemon in
            try await secure(lab, daemon)
            try file(daemon, "endpoints = [\"mqtt://broker.example:8883\"]", user, "autoconnect = false")
            _ = try await daemon.call(DaemonReloadMethod.self, .init())
        },
        OperatorStory(title: "The certificate's authority is not known", commands: ["holdfastctl check main"]) {
            try await secure($0, $1, knows: false)
        },
        OperatorStory(title: "The certificate is another server's", commands: ["holdfastctl check main"]) {
            try await secure($0, $1, name: "other.example")
        },
        OperatorStory(title: "The certificate has expired", commands: ["holdfastctl check main"]) {
            try await secure($0, $1, days: -1)
        },
        OperatorStory(
            title: "The clock is wrong: the certificate is not valid yet", commands: ["holdfastctl check main"]
        ) {
            try await secure($0, $1, clock: "+10d")
        },
        OperatorStory(
            title: "The password is wrong", commands: ["holdfastctl status main", "holdfastctl check main"]
        ) { lab, daemon in
            _ = try await serve(lab) { $0.users = ["edge-42": "right"] }
            let secret = try lab.write("password", "wrong\n")
            chmod(secret, 0o600)
            try file(daemon, plain, user, "password = \"file:\(secret)\"", "insecure = true")
            try await daemon.start()
            try await daemon.events().until(.failed)
        },
        OperatorStory(
            title: "Another device has the same identity", commands: ["holdfastctl status main"]
        ) { lab, daemon in
            _ = try await serve(lab)
            let keys = [plain, user, "room = \"plant-7\""]
            try file(daemon, (keys + ["device = \"first\""]).joined(separator: "\n"))
            let events = try await daemon.startConnected()
            let other = DaemonProcess(lab, name: "other", record: daemon.record)
            try file(other, (keys + ["device = \"second\""]).joined(separator: "\n"))
            // If it looked before the other one has said that it is there, it would come back.
            await daemon.pause()
            try await other.start()
            try await until("the other device is in the room") {
                // An error until it is connected.
                (try? await other.call(RoomParticipantsMethod.self, .init(session: "main")))?.participants
                    .contains { $0.device == "second" } == true
            }
            await daemon.resume()
            try await events.until(.failed)
        },
        OperatorStory(
            title: "The server is away: messages wait",
            commands: ["holdfastctl publish main plant/7/door open", "holdfastctl queue"]
        ) { _, daemon in
            try file(daemon, plain, user)
            try await daemon.start()
        },
        OperatorStory(
            title: "The outbox is full", commands: ["holdfastctl publish main plant/7/door closed"]
        ) { _, daemon in
            try file(daemon, plain, user, "autoconnect = false", "[outbox]", "max-messages = 1")
            try await daemon.start()
            try await daemon.publish("open", to: "plant/7/door")
        },
    ]
}

/// Documentation/Troubleshooting.md.
actor StoryPage {
    static let shared = StoryPage()
    private static let path = repositoryRoot.appendingPathComponent("Documentation/Troubleshooting.md").path

    static func titles() throws -> [String] {
        try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n").filter { $0.hasPrefix("## ") }
            .map { String($0.dropFirst(3)) }
    }

    private static func block(of title: String, in text: String) throws -> Range<String.Index> {
        guard let heading = text.range(of: "## \(title)\n"),
            let start = text.range(of: "```\n", range: heading.upperBound..<text.endIndex),
            let end = text.range(of: "\n```", range: start.upperBound..<text.endIndex)
        else { throw Lab.Failure("Documentation/Troubleshooting.md has no screen for \"\(title)\"") }
        return start.upperBound..<end.lowerBound
    }

    static func screen(of title: String) throws -> String {
        let text = try String(contentsOfFile: path, encoding: .utf8)
        return String(text[try block(of: title, in: text)])
    }

    func replace(_ title: String, with screen: String) throws {
        var text = try String(contentsOfFile: Self.path, encoding: .utf8)
        text.replaceSubrange(try Self.block(of: title, in: text), with: screen)
        try text.write(toFile: Self.path, atomically: true, encoding: .utf8)
    }
}
