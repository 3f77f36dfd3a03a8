import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient
import Support
import Testing

@testable import holdfastctl

struct CheckTextTests {
    private func step(_ step: CheckStep, ok: Bool = true, _ detail: String, hint: String? = nil) -> CheckedStep {
        CheckedStep(step: step, ok: ok, duration: 0.023, detail: detail, code: nil, hint: hint)
    }

    @Test func `a step too short to measure is not shown as 0 s`() {
        let route = CheckedStep(step: .route, ok: true, duration: 0, detail: "via lo")
        let result = CheckRunMethod.Result(
            session: "main", endpoints: [CheckedEndpoint(endpoint: "mqtt://a.example:1883", steps: [route])])
        #expect(CheckText.lines(for: result, isColoured: false)[1] == "  Route  ok under 0.1 ms  via lo")
    }

    @Test func `a check that was not to log in does not speak of the login`() {
        let result = CheckRunMethod.Result(
            session: "main", endpoints: [CheckedEndpoint(endpoint: "mqtt://a:1883", steps: [step(.tcp, "a:1883")])])
        #expect(CheckText.lines(for: result, until: .tls, isColoured: false).last == "  Everything works up to TCP.")
        #expect(CheckText.lines(for: result, isColoured: false).last?.contains("SCRAM-SHA-256 was not tried") == true)
    }

    @Test func `every step has its duration, and the one that fails has a hint`() {
        let result = CheckRunMethod.Result(
            session: "main",
            endpoints: [
                CheckedEndpoint(
                    endpoint: "mqtts://a.example:8883",
                    steps: [
                        step(.dns, "203.0.113.9"),
                        step(.tcp, ok: false, "refused", hint: "holdfastctl connect main tries again"),
                    ]),
                CheckedEndpoint(endpoint: "mqtt://b.example:1883", steps: [step(.connect, "MQTT 5")]),
            ])
        #expect(
            CheckText.lines(for: result, isColoured: false) == [
                "main, mqtts://a.example:8883:", "  Name  ok 23 ms  203.0.113.9", "  TCP   failed 23 ms  refused",
                "    → holdfastctl connect main tries again", "  The check failed at the step TCP.",
                "main, mqtt://b.example:1883:", "  Login  ok 23 ms  MQTT 5", "  The server lets this session in.",
            ])
    }

    @Test func `a ping is one line`() {
        let checked = CheckedEndpoint(
            endpoint: "mqtt://a:1883", steps: [step(.route, "via eth0"), step(.tcp, "203.0.113.9:1883")])
        #expect(PingText.line(checked, number: 3) == "3: mqtt://a:1883: 203.0.113.9:1883 answered in 23 ms via eth0")
        let lost = CheckedEndpoint(endpoint: "mqtt://a:1883", steps: [step(.route, ok: false, "no route")])
        #expect(PingText.line(lost, number: 4) == "4: mqtt://a:1883: no route")
    }
}

struct BugReportTests {
    @Test func `a daemon that cannot be asked is asked once`() async {
        var report = BugReport()
        for socket in ["/nonexistent/first", "/nonexistent/second"] {
            await report.add("session.list", HoldfastClient(socket: socket), SessionListMethod.self, NoParameters())
        }
        #expect(report.text.ranges(of: "/nonexistent/first").count == 2)
        #expect(!report.text.contains("/nonexistent/second"))
    }
}

extension BugReportTests {
    @Test func `a report does not say where passwords are kept`() {
        let file = EffectiveConfiguration.File(
            session: "main", file: "/main.toml",
            values: [
                EffectiveValue(key: "password", value: "\"file:/secret/a\"", origin: .file, line: 2),
                EffectiveValue(key: "proxy.password", value: "\"credential:word\"", origin: .file, line: 3),
                EffectiveValue(key: "tls.ca", value: "\"/ca.pem\"", origin: .file, line: 4),
            ])
        var report = BugReport(secrets: BugReport.secrets(of: .init(files: [file], errors: [])))
        report.add("config show", ConfigText.lines(file).joined(separator: "\n"))
        report.add("session.list", "check the password in /secret/a, a word")
        #expect(!report.text.contains("/secret") && !report.text.contains("credential:word"))
        #expect(report.text.contains("password = \"file:(left out)\""))
        #expect(report.text.contains("check the password in (left out), a word"))
        #expect(report.text.contains("/ca.pem"))
    }
}

struct CredentialTests {
    @Test(
        arguments: [
            ("[Service]\nLoadCredential=a:/a\nSetCredential=b: x\n", ["a", "b"]), ("[Service]\n", []),
            ("LoadCredential=a:/a\nLoadCredentialEncrypted=e\n# x\nLoadCredential=\nLoadCredential=c:/c", ["c", "e"]),
            ("# LoadCredential=a:/a", []), ("LoadCredential=a:/a\nImportCredential=holdfast.*\n", nil),
        ] as [(String, Set<String>?)])
    func `the credentials of a unit are those of its files`(_ files: String, _ names: Set<String>?) {
        #expect(ServiceUnit.credentials(in: files) == names)
    }

    @Test func `the files of a unit's credentials are those that it names itself`() {
        let files = """
            LoadCredential=gone:/gone
            LoadCredential=
            LoadCredential=b:/b.pw
            # LoadCredential=c:/c
            LoadCredential=from-the-store
            LoadCredential=own:%d/own
            LoadCredentialEncrypted=a:/a.pw
            SetCredential=d: /d
            LoadCredential=e:/e.pw
            SetCredential=e:what it is without the file
            """
        #expect(ServiceUnit.credentialFiles(in: files) == ["/a.pw", "/b.pw"])
    }

    @Test func `a credential that the service does not get is an error`() {
        let file = EffectiveConfiguration.File(
            session: "main", file: "/main.toml",
            values: [
                EffectiveValue(key: "user", value: "\"credential:c\"", origin: .file, line: 1),
                EffectiveValue(key: "password", value: "\"credential:a\"", origin: .file, line: 2),
                EffectiveValue(key: "proxy.password", value: "\"credential:b\"", origin: .file, line: 3),
                EffectiveValue(key: "password", value: "\"credential:a_broker\"", origin: .file, line: 4),
                EffectiveValue(key: "tls.ca", value: "\"\"", origin: .default),
            ])
        let problems = ConfigCommand.missing(["a"], in: [file])
        #expect(problems.map(\.line) == [3] && problems.first?.session == "main")
        #expect(problems.first?.message.contains("LoadCredential=b:/path") == true)
    }
}

struct HiddenFileTests {
    @Test(
        arguments: [
            ("User=holdfast\nGroup=holdfast\nSupplementaryGroups=\n", "holdfast:holdfast"),
            ("SupplementaryGroups=ssl-cert dialout\nGroup=\nUser=mqtt", "mqtt:,ssl-cert,dialout"),
            ("User=\nGroup=\nSupplementaryGroups=\n", nil),
        ] as [(String, String?)])
    func `the unit says who must be able to read the files`(_ properties: String, _ user: String?) {
        #expect(ServiceUnit.user(in: properties) == user)
    }

    @Test(
        arguments: [
            ("ProtectHome=yes\nPrivateTmp=yes\n", ["/home", "/root", "/run/user", "/tmp", "/var/tmp"]),
            ("ProtectHome=tmpfs\nPrivateTmp=no\n", ["/home", "/root", "/run/user"]),
            ("ProtectHome=read-only\nPrivateTmp=no\n", []),
        ])
    func `the unit says which files the service does not see`(_ properties: String, _ folders: [String]) {
        #expect(ServiceUnit.hiddenFolders(in: properties) == folders)
    }

    @Test func `a file that the service does not see is an error`() {
        let file = EffectiveConfiguration.File(
            session: "main", file: "/main.toml",
            values: [
                EffectiveValue(key: "password", value: "\"file:/tmp/secret\"", origin: .file, line: 1),
                EffectiveValue(key: "room", value: "\"/tmp/room\"", origin: .file, line: 2),
                EffectiveValue(key: "tls.ca", value: "\"/etc/ca.pem\"", origin: .file, line: 3),
                EffectiveValue(key: "tls.key", value: "\"/tmp/key.pem\"", origin: .file, line: 4),
            ])
        let problems = ConfigCommand.hidden(["/tmp"], in: [file])
        #expect(problems.map(\.line) == [1, 4] && problems.first?.session == "main")
        #expect(
            problems.first?.message == "the service does not see the files in /tmp: move /tmp/secret to /etc/holdfast")
        #expect(ConfigCommand.hidden([], in: [file]).isEmpty)
    }

    @Test func `a file that is a link to where the service sees none is an error`() throws {
        let folders = [try TemporaryDirectory(), try TemporaryDirectory()].map(\.path)
        defer { folders.forEach(TemporaryDirectory.remove) }
        let (home, files) = (try #require(Folder.resolved(folders[0])), folders[1])
        for name in ["main.toml", "secret"] {
            try OutputFile.write("", to: "\(home)/\(name)")
            try #require(symlink("\(home)/\(name)", "\(files)/\(name)") == 0)
        }
        let file = EffectiveConfiguration.File(
            session: "main", file: "\(files)/main.toml",
            values: [EffectiveValue(key: "password", value: "\"file:\(files)/secret\"", origin: .file, line: 3)])
        let problems = ConfigCommand.linked(into: [home], [file]) + ConfigCommand.hidden([home], in: [file])
        #expect(problems.map(\.line) == [nil, 3])
        #expect(problems.map(\.message).allSatisfy { $0.contains(home) })
    }

    @Test(
        arguments: [
            ("password", "exec:/tmp/token --fresh", "move /tmp/token to /usr/local/bin"),
            ("metrics.textfile", "/tmp/holdfast.prom", "name another folder, and let the service write to it"),
        ])
    func `a program or a file to write that the service does not see is an error too`(
        _ key: String, _ value: String, _ advice: String
    ) {
        let file = EffectiveConfiguration.File(
            session: nil, file: "/holdfast.toml",
            values: [EffectiveValue(key: key, value: "\"\(value)\"", origin: .file, line: 1)])
        let message = ConfigCommand.hidden(["/tmp"], in: [file]).first?.message
        #expect(message?.hasPrefix("the service does not see the files in /tmp: \(advice)") == true)
    }
}

struct SessionTemplateTests {
    @Test func `a new session file has the values given, quoted`() {
        let text = SessionTemplate(
            name: "main", endpoints: ["mqtts://a", "wss://b"], user: "a\"b\\", password: "file:/p"
        ).text
        #expect(text.contains("\nendpoints = [\"mqtts://a\", \"wss://b\"]\n"))
        #expect(text.contains("\nuser = \"a\\\"b\\\\\"\n"))
        #expect(text.contains("\npassword = \"file:/p\"\n"))
        // A line that is added at the end must not become a part of the last one.
        #expect(text.hasSuffix("\n"))
        let odd = SessionTemplate(name: "main", endpoints: ["mqtts://a"], user: "a\nb\u{1F}").text
        #expect(odd.contains("\nuser = \"a\\U0000000ab\\U0000001f\"\n"))
    }

    @Test func `examples in the files of two sessions do not make them rivals`() throws {
        func settings(_ name: String) -> Set<Substring> {
            let text = SessionTemplate(name: name, endpoints: []).text
            return Set(text.split(separator: "\n").filter { $0.hasPrefix("endpoints") || $0.hasPrefix("user") })
        }
        #expect(settings("a").isDisjoint(with: settings("b")))
        #expect(settings("gw@").contains("user = \"gw-%i\""))
    }

    @Test func `a password without TLS must be allowed`() {
        let text = SessionTemplate(name: "a", endpoints: [], password: "file:/p", isInsecure: true, ca: "/c").text
        #expect(text.contains("\n\n# The password may be sent unencrypted.\ninsecure = true\n\n# The room"))
        #expect(!SessionTemplate(name: "a", endpoints: []).text.contains("insecure"))
        let pair = SessionTemplate(name: "a", endpoints: [], certificate: "/c.pem", key: "/k.pem").text
        #expect(pair.contains("\n[tls]\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"\n"))
    }

    @Test func `an error of a file that is not written is worded with options`() throws {
        let draft = SessionTemplate(name: "a", endpoints: ["mqtt://b"], user: "u", ca: "/no/such")
        func complaint(_ key: String, _ message: String) throws -> String? {
            let lines = draft.text.split(separator: "\n", omittingEmptySubsequences: false)
            let line = try #require(lines.firstIndex { $0.hasPrefix(key) }) + 1
            return draft.complaint(
                about: ConfigurationProblem(session: "a", file: "/x", line: line, column: 6, message: message))
        }
        #expect(try complaint("ca =", "/no/such cannot be read") == "--ca: /no/such cannot be read")
        #expect(
            try complaint("user", "give each its own, for example client-id = \"u-a\"")
                == "--user: give each its own, for example --client-id \"u-a\"")
        #expect(
            try complaint("endpoints", "use mqtts://, or allow it with insecure = true")
                == "--endpoint: use mqtts://, or allow it with --insecure")
        #expect(try complaint("#", "strange") == nil)
    }

    @Test func `ping ends with how many were answered, and how fast`() {
        func checked(_ duration: Double?) -> CheckedEndpoint {
            let tcp = CheckedStep(step: .tcp, ok: duration != nil, duration: duration ?? 5)
            return CheckedEndpoint(endpoint: "mqtt://a:1883", steps: [tcp])
        }
        func line(_ durations: [Double?]) -> String? {
            var summary = PingText.Summary()
            for duration in durations { summary.take(checked(duration)) }
            return summary.line
        }
        #expect(line([]) == nil)
        #expect(line([nil, nil]) == "2 sent, 0 answered")
        #expect(line([0.002, nil, 0.004]) == "3 sent, 2 answered; min 2 ms, average 3 ms, max 4 ms")
    }

    @Test func `values that are derived count as defaults`() {
        let values = [EffectiveValue.Origin.file, .preset, .derived, .default].map {
            EffectiveValue(key: "\($0)", value: "1", origin: $0)
        }
        let file = EffectiveConfiguration.File(session: "main", file: "/main.toml", values: values)
        #expect(ConfigText.lines(ConfigText.changed(file)).count == 3)
        #expect(ConfigText.lines(file).count == 5)
    }

    @Test(arguments: [
        ["config", "init", "Main"], ["config", "init", "-a"], ["config", "init", "main", "--password", "sesame"],
        ["config", "init"], ["completion", "tcsh"], ["ping", "main", "--count", "0"],
        ["check", "--endpoint", "mqtt://a"],
    ])
    func `a mistake on the command line is reported before anything is done`(_ arguments: [String]) {
        #expect(throws: (any Error).self) { try HoldfastControl.parseAsRoot(arguments) }
    }

    @Test(arguments: ["bash", "zsh", "fish"])
    func `each shell has completions, which ask for the sessions`(_ shell: String) throws {
        let shell = try #require(CompletionShell(rawValue: shell))
        let script = CompletionCommand.script(for: shell)
        #expect(script.contains("---completion") && !script.hasPrefix("#!"))
        for command in ["status", "publish", "bugreport"] { #expect(script.contains(command)) }
    }
}
