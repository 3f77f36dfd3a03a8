import ControlAPI
import Foundation
import Glibc
import Support
import Testing

/// `config init`: the session is tried before its file is written, and nothing is written when the server refuses it.
extension EndToEnd {
    private struct Beginning {
        var lab: Lab
        var daemon: DaemonProcess
        var folder: String { "\(daemon.configuration)/sessions.d" }

        init(_ lab: Lab, _ daemon: DaemonProcess) throws {
            self.lab = lab
            self.daemon = daemon
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        }

        var files: [String] {
            get throws { try FileManager.default.contentsOfDirectory(atPath: folder).sorted() }
        }

        func begin(
            _ name: String, _ options: String..., endpoint: String = "mqtt://\(Lab.serverAddress)", user: String? = nil
        ) async throws -> (status: Int32, text: String) {
            let place = ["--config-directory", daemon.configuration, "--socket", daemon.socket]
            let words =
                [
                    "\(DaemonProcess.programs)/holdfastctl", "config", "init", name, "--endpoint", endpoint, "--user",
                    "edge-42",
                ]
            let person = user.map { ["setpriv", "--reuid", $0, "--regid", $0, "--clear-groups", "--"] } ?? []
            let result = try await lab.finish(person + words + options + place, in: lab.host)
            guard case .exited(let status) = result.ending else { throw Lab.Failure("\(result)") }
            return (status, result.output + result.errors)
        }
    }

    @Test func `config init writes a session that the server accepts, and a reload connects it`() async throws {
        try await withServer { lab, server, daemon in
            let beginning = try Beginning(lab, daemon)
            // A daemon without sessions can lose none, whatever else is in its directory.
            try FileManager.default.removeItem(atPath: beginning.folder)
            try lab.write("\(daemon.configuration)/holdfast.toml", "")
            try lab.write("\(daemon.configuration)/notes", "")
            try await daemon.start()
            let made = try await beginning.begin("main")
            #expect(made.status == 0, "\(made.text)")
            #expect(made.text.contains("The server lets this session in."))
            #expect(made.text.hasSuffix("/sessions.d/main.toml is written. Next: holdfastctl reload\n"))
            #expect(try beginning.files == ["main.toml"])
            #expect(try await daemon.ctl("reload").ending == .exited(0))
            #expect(try await daemon.ctl("wait", "main", "--timeout", "3min").ending == .exited(0))

            let again = try await beginning.begin("main")
            #expect(again.status == 1 && again.text.contains("main.toml already exists"), "\(again.text)")
            #expect(
                again.text.contains("config edit main --config-directory \(daemon.configuration) changes it"),
                "\(again.text)")
            // The server would disconnect one of the two.
            let twin = try await beginning.begin("twin")
            #expect(twin.status == 1 && twin.text.contains("client-id"), "\(twin.text)")
            let named = try await beginning.begin("named", "--client-id", "edge-42-named")
            #expect(named.status == 0, "\(named.text)")
            let stranger = try await beginning.begin("other", user: "65534")
            #expect(stranger.status == 5 && stranger.text.contains("sudo"), "\(stranger.text)")
            #expect(try beginning.files == ["main.toml", "named.toml"])
        }
    }

    @Test func `config init makes no missing sessions.d, and ends or changes no other session`()
        async throws
    {
        try await withServer { lab, _, daemon in
            let beginning = try Beginning(lab, daemon)
            try daemon.session()
            try daemon.session("away", top: "autoconnect = false")
            try await daemon.startConnected()
            let elsewhere = "\(lab.directory)/elsewhere"
            try FileManager.default.moveItem(atPath: beginning.folder, toPath: elsewhere)
            // A directory that is empty now is not new if the daemon has read sessions there.
            for file in [nil, "holdfast.toml"] {
                if let file { try lab.write("\(daemon.configuration)/\(file)", "") }
                let refused = try await beginning.begin("new", "--connect")
                #expect(
                    refused.status == 1 && refused.text.contains("there is no folder \(beginning.folder)"),
                    "\(refused.text)")
                #expect(refused.text.contains("bring it back"), "\(refused.text)")
                #expect(access(beginning.folder, F_OK) != 0)
            }
            #expect(try await daemon.status().state == .connected)

            // What is left of a file system that is not mounted is an empty directory.
            try FileManager.default.createDirectory(atPath: beginning.folder, withIntermediateDirectories: false)
            let emptied = try await beginning.begin("new", "--connect", "--json")
            #expect(
                emptied.status == 1 && emptied.text.contains("a reload would also remove away, main"),
                "\(emptied.text)")
            #expect(emptied.text.contains("if that is meant: holdfastctl reload"), "\(emptied.text)")
            #expect(!emptied.text.contains(#""reload":"#), "\(emptied.text)")
            #expect(try beginning.files == ["new.toml"])
            #expect(try await daemon.status().state == .connected)

            try FileManager.default.removeItem(atPath: beginning.folder)
            try FileManager.default.moveItem(atPath: elsewhere, toPath: beginning.folder)
            try lab.write("\(beginning.folder)/broken.toml", "nonsense = 1\n")
            let made = try await beginning.begin("new", "--connect", "--timeout", "3min")
            #expect(made.status == 0 && made.text.contains("new is connected"), "\(made.text)")
            #expect(made.text.contains("Reloaded: added broken, new"), "\(made.text)")
            #expect(made.text.contains("broken.toml:1:1: "), "\(made.text)")
            let next = try await beginning.begin(
                "next", "--connect", "--timeout", "3min", "--client-id", "next", "--json")
            #expect(next.status == 0 && next.text.contains(#""added":["next"]"#), "\(next.text)")
            #expect(next.text.contains(#""state":"connected""#), "\(next.text)")
            // Nothing listens there.
            let late = try await beginning.begin(
                "late", "--connect", "--timeout", "100ms", "--client-id", "late", "--untried", "--json",
                endpoint: "mqtt://\(Lab.serverAddress):1")
            #expect(late.status == 4 && late.text.contains(#""added":["late"]"#), "\(late.text)")
            try daemon.session("away", top: "autoconnect = true")
            let last = try await beginning.begin("last", "--connect", "--client-id", "last")
            #expect(last.status == 1 && last.text.contains("a reload would also change away"), "\(last.text)")
        }
    }

    @Test func `one command asks for the password, checks the server, and ends when the session is connected`()
        async throws
    {
        try await withLab { lab, daemon in
            let certificates = try await Certificates(lab, name: "broker.example")
            try lab.host.hosts("127.0.0.1 localhost", "\(Lab.serverAddress) broker.example")
            var options = LabServer.Options()
            options.users = ["edge-42": "right-horse"]
            (options.port, options.certificate, options.key) = (8883, certificates.certificate, certificates.key)
            try await LabServer.started(lab, options)
            let beginning = try Beginning(lab, daemon)
            try await daemon.start()
            let words = [
                "\(DaemonProcess.programs)/holdfastctl", "config", "init", "main", "--endpoint",
                "mqtts://broker.example",
                "--user", "edge-42", "--ca", certificates.authority, "--ask-password", "--connect",
                "--config-directory",
                daemon.configuration, "--socket", daemon.socket,
            ]
            let secret = "\(daemon.configuration)/main.secret"
            // The answer may also come from a program.
            let wrong = try await lab.finish(
                ["sh", "-c", "echo wrong | \(words.map { "'\($0)'" }.joined(separator: " "))"], in: nil)
            #expect(wrong.ending == .exited(1) && wrong.output.contains("the password that you gave"), "\(wrong)")
            #expect(!wrong.output.contains(secret) && !wrong.errors.contains(secret), "it is gone: \(wrong)")
            #expect(!wrong.output.contains("holdfastctl connect"), "there is no such session: \(wrong)")
            #expect(access(secret, F_OK) != 0, "nothing is left of what did not work")
            #expect(try beginning.files.isEmpty)

            let terminal = TerminalUnderTest(lab)
            try await terminal.start(["bash", "--norc", "--noprofile"], columns: 300)
            // The shell ends the loop only if the command ends by the signal.
            try await terminal.type("for i in 1 2; do \(words.joined(separator: " ")); done")
            try await terminal.press("Enter")
            try await terminal.screen("asks") { $0.contains { $0.hasPrefix("Password for edge-42:") } }
            try await terminal.press("C-c")
            try await terminal.screen("has the shell's prompt on a line of its own") { lines in
                lines.last { !$0.isEmpty }?.hasPrefix("bash-") == true
            }
            #expect(access(secret, F_OK) != 0, "nothing is left of what was interrupted")
            try await terminal.close()

            try await terminal.start(words, columns: 300)
            try await terminal.screen("asks") { $0.contains { $0.contains("Password for edge-42:") } }
            try await terminal.press("right-horse")
            try await terminal.press("Enter")
            let screen = try await terminal.screen("has an end") { $0.contains("ended with 0") }
            #expect(screen.contains { $0.contains("main is connected to mqtts://broker.example") }, "\(screen)")
            #expect(!screen.contains { $0.contains("right-horse") }, "\(screen)")
            #expect(try String(contentsOfFile: secret, encoding: .utf8) == "right-horse")
            var status = stat()
            #expect(stat(secret, &status) == 0 && status.st_mode & 0o777 == 0o600)
        }
    }

    @Test func `config init writes no session that is wrong or that the server refuses`() async throws {
        try await withLab { lab, daemon in
            var options = LabServer.Options()
            options.users = ["edge-42": "right"]
            try await LabServer.started(lab, options)
            let beginning = try Beginning(lab, daemon)
            try await daemon.start()
            let secret = try lab.write("secret", "wrong\n")
            chmod(secret, 0o600)

            let scheme = try await beginning.begin("main", endpoint: "htp://broker")
            #expect(scheme.status == 1 && scheme.text.contains("--endpoint: "), "\(scheme.text)")
            #expect(!scheme.text.contains("/tmp/holdfastctl-"))
            let clear = try await beginning.begin("main", "--password", "file:\(secret)")
            #expect(clear.status == 1 && clear.text.contains("allow it with --insecure"), "\(clear.text)")
            let absent = try await beginning.begin(
                "main", "--password", "file:/nowhere/secret", endpoint: "mqtts://\(Lab.serverAddress)")
            #expect(absent.status == 1 && absent.text.contains("/nowhere/secret"), "\(absent.text)")
            let nobody = try await beginning.begin("main")
            #expect(nobody.status == 1 && nobody.text.contains("--untried"), "\(nobody.text)")
            #expect(nobody.text.contains("The check failed at the step Login."))
            #expect(nobody.text.contains("the session has no password"))
            let elsewhere = try await beginning.begin("main", endpoint: "mqtt://\(Lab.serverAddress):1")
            #expect(
                elsewhere.status == 1 && elsewhere.text.contains("The check failed at the step TCP."),
                "\(elsewhere.text)")
            #expect(try beginning.files.isEmpty)

            let untried = try await beginning.begin("main", "--untried")
            #expect(untried.status == 0, "\(untried.text)")
            let away = try await beginning.begin("gw@", endpoint: "mqtt://\(Lab.serverAddress):1")
            #expect(away.status == 1 && away.text.contains("The check failed at the step TCP."), "\(away.text)")
            let steps = try await beginning.begin("other", "--json", endpoint: "mqtt://\(Lab.serverAddress):1")
            #expect(steps.status == 1 && steps.text.contains("\"step\":\"tcp\""), "\(steps.text)")
            let template = try await beginning.begin("gw@")
            #expect(template.status == 0 && template.text.contains("instance add"), "\(template.text)")
            #expect(template.text.contains("The login was not tried"), "\(template.text)")
            let pattern = try await beginning.begin("many@", endpoint: "mqtt://%i.invalid")
            #expect(pattern.text.contains("not tried, since each instance has its own server"), "\(pattern.text)")
            #expect(try beginning.files == ["gw@.toml", "main.toml", "many@.toml"])
        }
    }

    @Test func `config remove removes a session with its password, but no instance`() async throws {
        try await withLab { lab, daemon in
            let beginning = try Beginning(lab, daemon)
            try await daemon.start()
            func remove(_ name: String) async throws -> (ending: LabProcess.Ending, text: String) {
                let result = try await daemon.ctl("config", "remove", name, "--config-directory", daemon.configuration)
                return (result.ending, result.output + result.errors)
            }
            #expect(try await beginning.begin("main", "--untried").status == 0)
            #expect(try await beginning.begin("gw@", "--untried", "--client-id", "gw-%i").status == 0)
            let secret = "\(daemon.configuration)/main.secret"
            try "mine".write(toFile: secret, atomically: false, encoding: .utf8)
            func instance(_ verb: String) async throws -> (ending: LabProcess.Ending, text: String) {
                let result = try await daemon.ctl(
                    "instance", verb, "gw@a", "--config-directory", daemon.configuration)
                return (result.ending, result.output + result.errors)
            }
            // Without the directory, another daemon's files would be changed.
            let misplaced = try await daemon.ctl("instance", "add", "gw@a")
            #expect(
                misplaced.ending == .exited(1)
                    && misplaced.errors.contains("add --config-directory \(daemon.configuration)"), "\(misplaced)")
            let added = try await instance("add")
            #expect(added.ending == .exited(0) && added.text.contains("added gw@a"), "\(added)")
            let again = try await instance("add")
            #expect(again.ending == .exited(1) && again.text.contains("already exists"), "\(again)")
            #expect(again.text.contains("holdfastctl status gw@a shows the session"), "\(again)")
            let wrong = try await remove("mian")
            #expect(wrong.ending == .exited(1) && wrong.text.contains("did you mean main?"), "\(wrong)")
            for name in ["gw@", "gw@a"] {
                let kept = try await remove(name)
                #expect(kept.ending == .exited(1) && kept.text.contains("instance remove gw@a"), "\(kept)")
            }
            let removed = try await remove("main")
            #expect(removed.ending == .exited(0) && removed.text.contains("removed main"), "\(removed)")
            #expect(removed.text.contains("/sessions.d/main.toml is removed."), "\(removed)")
            #expect(try beginning.files == ["gw@.toml", "gw@a.toml"])
            #expect(access(secret, F_OK) != 0)
            let last = try await instance("remove")
            #expect(last.ending == .exited(0) && last.text.contains("removed gw@a"), "\(last)")
            let none = try await instance("remove")
            #expect(none.ending == .exited(1) && none.text.contains("was not added as an instance"), "\(none)")
            #expect(try beginning.files == ["gw@.toml"])
            #expect(try await daemon.call(SessionListMethod.self, NoParameters()).sessions.isEmpty)
            try lab.write("\(daemon.configuration)/sessions.d/other.toml", "nonsense = 1\n")
            let beside = try await instance("add")
            #expect(beside.ending == .exited(0) && beside.text.contains("other.toml:1:1: "), "\(beside)")
        }
    }

    @Test func `messages of a session that is removed stay in sight`() async throws {
        try await withLab { lab, daemon in
            let place = ["--config-directory", daemon.configuration]
            func run(_ words: [String]) async throws -> (ending: LabProcess.Ending, text: String) {
                let line = ["\(DaemonProcess.programs)/holdfastctl"] + words + ["--socket", daemon.socket]
                let result = try await lab.finish(line, in: lab.host)
                return (result.ending, result.output + result.errors)
            }
            try daemon.session("core", top: "autoconnect = false")
            try daemon.session("other", top: "autoconnect = false\nclient-id = \"other\"")
            try await daemon.start()
            for text in ["1", "2"] { try await daemon.publish(text, to: "t", session: "core") }

            let sentence =
                "core: 2 accepted messages stay on disk; a file named core.toml with one of the same servers sends them"
            let removed = try await run(["config", "remove", "core"] + place)
            #expect(removed.ending == .exited(0) && removed.text.contains(sentence), "\(removed)")
            for command in ["queue", "status"] {
                let shown = try await run([command])
                #expect(shown.text.contains(sentence) && !shown.text.contains("every outbox is empty"), "\(shown)")
            }
            let dropped = try await run(["queue", "drop", "core", "--all", "--any-state"])
            #expect(dropped.ending == .exited(0) && dropped.text == "2 messages dropped.\n", "\(dropped)")
            #expect(try await run(["queue"]).text == "No messages are waiting: every outbox is empty.\n")
            let list = try await run(["--json", "queue"]).text
            #expect(list == #"{"messages":[],"next":null,"schema":1,"session":"other"}"# + "\n")
        }
    }

    @Test func `config remove leaves a password that is still used`() async throws {
        try await withLab { lab, daemon in
            let beginning = try Beginning(lab, daemon)
            try await daemon.start()
            let secret = "\(daemon.configuration)/main.secret"
            try "mine".write(toFile: secret, atomically: false, encoding: .utf8)
            let settings = "endpoints = [\"mqtts://a.example\"]\nuser = \"edge\"\n"
            try lab.write("\(beginning.folder)/main.toml", settings)
            try lab.write(
                "\(beginning.folder)/other.toml", settings + "client-id = \"o\"\npassword = \"file:\(secret)\"\n")
            let removed = try await daemon.ctl(
                "config", "remove", "main", "--config-directory", daemon.configuration)
            #expect(removed.ending == .exited(0) && removed.errors.contains("other.toml names it"), "\(removed)")
            #expect(access(secret, F_OK) == 0)

            let elsewhere = try lab.write("sym.toml", settings)
            symlink(elsewhere, "\(beginning.folder)/sym.toml")
            let link = try await daemon.ctl("config", "remove", "sym", "--config-directory", daemon.configuration)
            #expect(link.ending == .exited(0) && link.errors.contains("which it was a link to, stays"), "\(link)")
            #expect(try beginning.files == ["other.toml"])
            #expect(access(elsewhere, F_OK) == 0)

            // Nor one that no command has stored.
            let broker = "\(daemon.configuration)/broker.secret"
            try "mine".write(toFile: broker, atomically: false, encoding: .utf8)
            try lab.write(
                "\(beginning.folder)/own.toml", settings + "client-id = \"p\"\npassword = \"file:\(broker)\"\n")
            let own = try await daemon.ctl("config", "remove", "own", "--config-directory", daemon.configuration)
            #expect(own.ending == .exited(0) && access(broker, F_OK) == 0, "\(own)")
        }
    }

    @Test func `config remove leaves the password if the daemon does not read its configuration again`() async throws {
        try await withLab { lab, daemon in
            let beginning = try Beginning(lab, daemon)
            try await daemon.start()
            #expect(try await beginning.begin("main", "--untried").status == 0)
            let secret = "\(daemon.configuration)/main.secret"
            try "mine".write(toFile: secret, atomically: false, encoding: .utf8)
            try lab.write("\(daemon.configuration)/holdfast.toml", "nonsense = 1\n")
            let removed = try await daemon.ctl(
                "config", "remove", "main", "--config-directory", daemon.configuration)
            #expect(removed.ending == .exited(1) && removed.errors.contains("holdfast.toml:1:"), "\(removed)")
            #expect(removed.errors.contains("main.secret stays: the daemon may still use it"), "\(removed)")
            #expect(try beginning.files.isEmpty)
            #expect(access(secret, F_OK) == 0)
        }
    }

    @Test func `config init refuses what is wrong before it asks for the password`() async throws {
        try await withLab { lab, daemon in
            let beginning = try Beginning(lab, daemon)
            // The command fails before it reads the password, so there need not be one to read.
            let clear = try await beginning.begin("main", "--ask-password", endpoint: "mqtt://broker.example")
            #expect(clear.status == 1 && clear.text.contains("insecure"), "\(clear.text)")
            let kept = "\(daemon.configuration)/main.secret"
            try "mine".write(toFile: kept, atomically: false, encoding: .utf8)
            let taken = try await beginning.begin("main", "--ask-password", endpoint: "mqtts://broker.example")
            #expect(taken.status == 1 && taken.text.contains("--password file:\(kept)"), "\(taken.text)")
            #expect(try String(contentsOfFile: kept, encoding: .utf8) == "mine")
            #expect(try beginning.files.isEmpty)
            // The file of another session may name it.
            let core = "\(beginning.folder)/core.toml"
            try lab.write(core, "endpoints = [\"mqtts://a.example\"]\nuser = \"a\"\npassword = \"file:\(kept)\"\n")
            let other = try await beginning.begin("main", "--ask-password", endpoint: "mqtts://broker.example")
            #expect(other.status == 1 && other.text.contains("has the password that \(core) names"), "\(other)")
            #expect(other.text.contains("in another file"), "\(other.text)")
        }
    }

    @Test func `config init leaves no password behind when it is interrupted`() async throws {
        try await withLab { lab, daemon in
            let beginning = try Beginning(lab, daemon)
            try await daemon.start()
            // A server that accepts and says nothing, so that the trial takes its time.
            let server = try await LabFakeServer(lab, port: 8883, answer: [])
            defer { server.stop() }
            let typed = try lab.write("typed", "sesame\n")
            let command = """
                TMPDIR='\(lab.directory)' \
                exec '\(DaemonProcess.programs)/holdfastctl' config init main --ask-password <'\(typed)' \
                --endpoint mqtts://\(Lab.serverAddress) --user edge-42 \
                --config-directory '\(daemon.configuration)' --socket '\(daemon.socket)'
                """
            let process = try await lab.start("init", ["sh", "-c", command], in: lab.host)
            let secret = "\(daemon.configuration)/main.secret"
            try await until("the password is written") { access(secret, F_OK) == 0 }
            await process.signal(SIGINT)
            #expect(try await process.ended(within: .seconds(180)) == .killed(signal: SIGINT))
            #expect(access(secret, F_OK) != 0)
            #expect(try beginning.files.isEmpty)
        }
    }

    @Test func `config init keeps the password of a session that it has written but cannot connect`() async throws {
        try await withLab { lab, daemon in
            let beginning = try Beginning(lab, daemon)
            let typed = try lab.write("typed", "sesame\n")
            // The daemon is not running.
            let command = """
                '\(DaemonProcess.programs)/holdfastctl' config init main --ask-password --connect <'\(typed)' \
                --endpoint mqtts://a.example --user edge-42 \
                --config-directory '\(daemon.configuration)' --socket '\(daemon.socket)'
                """
            let made = try await lab.finish(["sh", "-c", command], in: nil)
            #expect(made.ending == .exited(6) && made.errors.contains("main.toml is written."), "\(made)")
            #expect(try beginning.files == ["main.toml"])
            #expect(try String(contentsOfFile: "\(daemon.configuration)/main.secret", encoding: .utf8) == "sesame")
        }
    }

    @Test func `a configuration directory may be named relative to the current one`() async throws {
        try await withLab { lab, daemon in
            let beginning = try Beginning(lab, daemon)
            let ctl = "cd '\(daemon.configuration)' && '\(DaemonProcess.programs)/holdfastctl' config"
            let place = "--config-directory . --socket '\(daemon.socket)'"
            let server = "--endpoint mqtts://a.example --user edge-42"
            let made = try await lab.finish(
                ["sh", "-c", "umask 077; echo sesame | (\(ctl) init main --ask-password \(server) \(place))"], in: nil)
            #expect(made.ending == .exited(0), "\(made)")
            // The daemon may run as another user than root.
            var status = stat()
            #expect(stat("\(beginning.folder)/main.toml", &status) == 0 && status.st_mode & 0o777 == 0o644)
            #expect(try beginning.files == ["main.toml"])
            // The file of --ca, too.
            let authority = try await lab.finish(
                ["sh", "-c", "\(ctl) init other --stdout --ca ca.pem \(server) \(place)"], in: nil)
            #expect(authority.output.contains("\nca = \"\(daemon.configuration)/ca.pem\"\n"), "\(authority)")
            let template = try await lab.finish(["sh", "-c", "\(ctl) init gw@ \(place)"], in: nil)
            #expect(
                template.output.contains("config edit gw@") && template.output.contains("instance add gw@INSTANCE"),
                "\(template)")
            let shown = try await lab.finish(["sh", "-c", "\(ctl) show main --changed \(place)"], in: nil)
            #expect(shown.ending == .exited(0), "\(shown)")
            // Two sessions with one client identifier would displace each other.
            let twin = try await lab.finish(["sh", "-c", "\(ctl) init twin \(server) \(place)"], in: nil)
            #expect(twin.ending == .exited(1) && twin.errors.contains("client"), "\(twin)")
        }
    }

    @Test func `root is told which files the daemon's user cannot read, and how to let it`() async throws {
        try await withLab { lab, daemon in
            let beginning = try Beginning(lab, daemon)
            let (folder, keys) = (beginning.folder, "\(lab.directory)/private")
            try lab.write(
                "\(folder)/main.toml",
                """
                endpoints = ["mqtts://a.example"]
                user = "u"
                password = "file:\(keys)/secret"
                """)
            try lab.write("\(keys)/secret", "sesame")
            // A host that has the user whom the package makes, and one more group.
            let script = """
                cd '\(lab.directory)'; grep -v ^holdfast: /etc/passwd >users; grep -v ^holdfast: /etc/group >groups
                echo 'holdfast:x:990:990::/:/bin/false' >>users; printf 'holdfast:x:990:\\nhf-keys:x:991:\\n' >>groups
                mount --bind users /etc/passwd; mount --bind groups /etc/group
                chmod 755 . '\(daemon.configuration)/..' '\(daemon.configuration)' '\(folder)'
                chgrp hf-keys private private/secret; chmod 710 private; chmod 640 private/secret
                check() {
                    '\(DaemonProcess.programs)/holdfastd' --check --config-directory '\(daemon.configuration)' --as "$1" 2>&1
                    echo "$?"
                }
                chmod 600 '\(folder)/main.toml'; check holdfast:,hf-keys
                chmod 700 '\(folder)'; check holdfast:holdfast,hf-keys
                chmod 755 '\(folder)'; chmod 644 '\(folder)/main.toml'; check holdfast
                sed s/^hf-keys:.*/hf-keys:x:991:holdfast/ groups >new; cat new >groups; check holdfast
                chgrp root private private/secret; check holdfast
                chmod 755 private; check holdfast
                chmod 644 private/secret; check holdfast
                chmod 600 private/secret; mv '\(folder)/main.toml' private; ln -s '\(keys)/main.toml' '\(folder)/main.toml'
                chmod 700 private; check holdfast
                chmod 755 private; chmod 600 private/main.toml; check holdfast
                chmod 644 private/main.toml; chmod o+w '\(folder)'; check holdfast
                """
            let result = try await lab.finish(["unshare", "--mount", "sh", "-c", script], in: nil)
            let main = "\(folder)/main.toml"
            let closed = "cannot be read by the user holdfast, which the daemon runs as"
            #expect(
                result.output.split(separator: "\n") == [
                    "\(main): \(closed): chmod a+r \(main)", "78", "\(folder): \(closed): chmod a+rx \(folder)", "78",
                    "\(main):3:12: \(keys)/secret \(closed): add it to the group of \(keys): usermod -aG hf-keys holdfast; systemctl restart holdfast",
                    "78", "0", "\(main):3:12: \(keys)/secret \(closed): it may not enter \(keys)", "78",
                    "\(main):3:12: \(keys)/secret \(closed): chgrp holdfast \(keys)/secret; chmod g+r \(keys)/secret",
                    "78",
                    "\(main):3:12: \(keys)/secret can be read by every user of the host: chmod o-r \(keys)/secret",
                    "78", "\(main): \(closed): it may not enter \(keys)",
                    "\(main):3:12: \(keys)/secret \(closed): it may not enter \(keys)", "78",
                    "\(main): \(closed): chmod a+r \(keys)/main.toml",
                    "\(main):3:12: \(keys)/secret \(closed): chgrp holdfast \(keys)/secret; chmod g+r \(keys)/secret",
                    "78", "\(folder): can be changed by every user of the host: chmod o-w \(folder)",
                    "\(main):3:12: \(keys)/secret \(closed): chgrp holdfast \(keys)/secret; chmod g+r \(keys)/secret",
                    "78",
                ], "\(result)")
        }
    }

    @Test func `config show says what is wrong with the template of an instance`() async throws {
        try await withLab { lab, daemon in
            let beginning = try Beginning(lab, daemon)
            try lab.write("\(beginning.folder)/gw@.toml", "instances = [\"a\", \"b\"]\nusr = \"x\"\n")
            try lab.write("\(beginning.folder)/broken@.toml", "instances = [\n")
            for session in ["gw@a", "gw@b", "broken@c"] {
                let shown = try await daemon.ctl(
                    "config", "show", session, "--config-directory", daemon.configuration)
                let file = String(session.dropLast()) + ".toml:"
                #expect(shown.ending == .exited(1) && shown.errors.contains(file), "\(shown)")
            }
        }
    }

    @Test func `config init says what it could not check, and leaves nothing on a full disk`() async throws {
        try await withLab { lab, daemon in
            let beginning = try Beginning(lab, daemon)
            // Without a daemon and any file of a session, the directory is new.
            try FileManager.default.removeItem(atPath: beginning.folder)
            try lab.write("\(daemon.configuration)/holdfast.toml", "")
            let made = try await beginning.begin("main")
            #expect(
                made.status == 0 && made.text.contains("could not be tried: the daemon is not running"), "\(made.text)")
            #expect(made.text.hasSuffix("Next: start the daemon\n"))
            #expect(try beginning.files == ["main.toml"])

            // A disk with room for a file's name, but not for its contents.
            let full = """
                mount -t tmpfs -o size=4k tmpfs '\(beginning.folder)' && head -c 4096 /dev/zero >'\(beginning.folder)/x'
                '\(DaemonProcess.programs)/holdfastctl' config init main --endpoint mqtt://a.example --user a \
                --config-directory '\(daemon.configuration)' --socket '\(daemon.socket)'; echo $?
                ls -A '\(beginning.folder)'
                """
            let result = try await lab.finish(["unshare", "--mount", "sh", "-c", full], in: nil)
            #expect(result.errors.contains("No space left on device"), "\(result)")
            #expect(result.output.hasSuffix("1\nx\n"), "\(result)")

            // A disk with room for the beginning of a password.
            let small = """
                mount -t tmpfs -o size=4k tmpfs '\(daemon.configuration)' && mkdir '\(beginning.folder)'
                head -c 5000 /dev/zero | tr '\\0' x | '\(DaemonProcess.programs)/holdfastctl' config init main \
                --ask-password --endpoint mqtts://a.example --user a \
                --config-directory '\(daemon.configuration)' --socket '\(daemon.socket)'; echo $?
                ls -A '\(daemon.configuration)'
                """
            let cut = try await lab.finish(["unshare", "--mount", "sh", "-c", small], in: nil)
            #expect(cut.errors.contains("main.secret cannot be written: No space left on device"), "\(cut)")
            #expect(cut.output.hasSuffix("1\nsessions.d\n"), "\(cut)")
        }
    }

    @Test func `a file of the maximum length is published, and a longer one is refused`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(tables: "[mqtt]\nmaximum-packet-size = \"17MiB\"")
            try await daemon.start()
            let file = try lab.write("long", String(repeating: "0123456789abcdef", count: 1 << 20))
            let sent = try await daemon.ctl("publish", "main", "long", "--file", file, "--wait", "delivered")
            #expect(sent.ending == .exited(0), "\(sent)")
            try lab.write("long", String(repeating: "0123456789abcdef", count: 1 << 20) + "!")
            let refused = try await daemon.ctl("publish", "main", "long", "--file", file)
            #expect(refused.ending == .exited(1) && refused.errors.contains("longer than 16 MiB"), "\(refused)")
        }
    }
}
