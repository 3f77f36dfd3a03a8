import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient

extension ConfigCommand {
    struct Init: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "init",
            abstract: "Create the file of a session, with comments.",
            discussion: """
                With --endpoint and --user, the daemon first tries to log in to the server, and the file is only written if \
                the server lets the session in; --untried skips that. With --connect, the daemon then reads its \
                configuration again, and the command waits until the session is connected; without it, run "holdfastctl \
                reload". An existing file is not changed.
                """)

        @OptionGroup var common: CommonOptions
        @OptionGroup var place: Place
        @Argument(help: "The name of the session: lower-case letters, digits and hyphens.") var name: String
        @Option(
            help: ArgumentHelp(
                "The server, for example mqtts://broker.example:8883; may be repeated.", valueName: "url"))
        var endpoint: [String] = []
        @Option(help: "The user of the session; with a password, also the user name at the server.") var user: String?
        @Option(
            help: ArgumentHelp(
                "Where to find the password: file:PATH, credential:NAME or exec:COMMAND.", valueName: "reference"))
        var password: String?
        @Flag(help: "Ask for the password, and keep it in NAME.secret in the configuration directory.")
        var askPassword = false
        @Option(
            help: ArgumentHelp("The certificate authority to trust, instead of the system's.", valueName: "file"),
            completion: .file(), transform: Folder.absolute)
        var ca: String?
        @Option(
            help: ArgumentHelp("The certificate to show to the server, with its chain.", valueName: "file"),
            completion: .file(), transform: Folder.absolute)
        var certificate: String?
        @Option(
            help: ArgumentHelp("The private key of that certificate.", valueName: "file"),
            completion: .file(), transform: Folder.absolute)
        var key: String?
        @Option(help: "The client identifier; by default the user.") var clientID: String?
        @Flag(help: "Allow the password to be sent unencrypted, to a server with mqtt:// or ws://.") var insecure =
            false
        @Flag(help: "Write the file without trying the server.") var untried = false
        @Flag(help: "Connect the session, and wait until it is connected.") var connect = false
        @Option(help: "How long to wait with --connect, like 500ms, 30s, 5min or never; exit code 4 after that.")
        var timeout = SpanArgument(duration: .seconds(30))
        @Flag(help: "Print the file instead of writing it.") var stdout = false

        private var isTemplate: Bool { name.hasSuffix("@") }
        private var path: String { "\(place.configDirectory)/sessions.d/\(name).toml" }
        private var secret: SecretFile { SecretFile(path: "\(place.configDirectory)/\(name).secret") }
        private var isComplete: Bool { !endpoint.isEmpty && user != nil }

        func validate() throws {
            guard let valid = SessionName(listed: name) else { throw ValidationError(SessionName.rule(for: name)) }
            if let template = valid.template {
                throw ValidationError(
                    "\(name) is an instance, which has its keys from a template: config init \(template) creates that, "
                        + "and then instance add \(name) the instance")
            }
            if let password, !["file:", "credential:", "exec:"].contains(where: password.hasPrefix) {
                throw ValidationError(
                    "a password is never written to the file: say where it is kept with file:PATH, credential:NAME or exec:COMMAND"
                )
            }
            if (certificate == nil) != (key == nil) {
                throw ValidationError("--certificate and --key must be given together")
            }
            if stdout, common.json { throw ValidationError("--stdout and --json cannot be combined") }
            if askPassword, password != nil || stdout {
                throw ValidationError("--ask-password cannot be combined with --password or --stdout")
            }
            if connect, !isComplete || isTemplate || stdout {
                throw ValidationError(
                    "--connect needs --endpoint and --user, and cannot be combined with --stdout or a template")
            }
            try timeout.checkAsTimeout()
        }

        func run() async throws {
            let draft = draft(password: askPassword ? "file:\(secret.path)" : password)
            if stdout {
                Terminal().write(Array(draft.text.utf8))
                return
            }
            try await common.checkDirectory(place)
            let new = NewFile(path: path, place: place)
            try new.checkPlace(isNew: await isNewDirectory)
            if askPassword {
                if access(secret.path, F_OK) == 0, let other = try place.files(naming: secret.path).first {
                    throw CommandFailure(
                        .failed, "\(secret.path) exists, and has the password that \(other) names",
                        advice: "keep the one of \(name) in another file, and name that with --password file:PATH")
                }
                try secret.checkPlace()
                // The password's file does not exist yet, so the check uses a reference of another kind.
                try check(self.draft(password: "credential:password"))
                let password = try SecretFile.ask("Password for \(user ?? name): ")
                UnfinishedFile.begin(secret.path)
                try secret.write(password)
            }
            let trial: Trial?
            do {
                trial = try await write(new, draft)
            } catch {
                if askPassword { unlink(secret.path) }
                throw error
            }
            // From here on, the file stays whatever happens, and so does the password that it names.
            try await finish(trial)
        }

        private func draft(password: String?) -> SessionTemplate {
            SessionTemplate(
                name: name, endpoints: endpoint, user: user, clientID: clientID, password: password,
                isInsecure: insecure, ca: ca, certificate: certificate, key: key)
        }

        private func check(_ new: SessionTemplate) throws {
            // Without a temporary directory or the daemon's program, there is nothing to check with.
            guard let draft = DraftConfiguration(of: "sessions.d/\(name).toml", in: place) else { return }
            defer { draft.remove() }
            try OutputFile.write(new.text, to: draft.path, mode: 0o600)
            guard let errors = try? draft.errors(beside: nil) else { return }
            guard errors.isEmpty else {
                for error in errors { common.complain(Complaint(error, saying: new.complaint(about: error))) }
                throw CommandFailure(.failed, "\(path) is not written", advice: "correct the settings and try again")
            }
        }

        /// - Throws: when the file is not written.
        private func write(_ new: NewFile, _ draft: SessionTemplate) async throws -> Trial? {
            try check(draft)
            // Settings that were not given are written as examples, which cannot be tried. Neither can a template's
            // endpoint that is different for each instance.
            let isPattern = isTemplate && endpoint.contains { $0.contains("%i") }
            let trial: Trial? = !isComplete || untried || isPattern ? nil : try await self.trial(of: draft.text)
            try new.write(draft.text)
            UnfinishedFile.end()
            return trial
        }

        private func finish(_ trial: Trial?) async throws {
            var members: [String: JSONValue] = ["file": .string(path)]
            if case .passed(let result)? = trial { members["endpoints"] = JSONText.value(result)["endpoints"] }
            // What has been done is told also if the rest fails.
            defer { if common.json { Terminal().print(json: .object(members)) } }
            guard connect else {
                tell(trial)
                return
            }
            common.complain(Complaint(done: "\(path) is written"))
            let client = common.client()
            try await checkReload(client)
            let reload = try await client.call(
                DaemonReloadMethod.self, .init(), timeout: CommonOptions.reloadTimeout)
            members["reload"] = JSONText.value(reload)
            common.tell(reload)
            // The file stays, as it does if the session does not connect.
            guard !reload.errors.contains(where: { $0.file.hasSuffix("/\(name).toml") }) else {
                throw CommandFailure(.failed, "")
            }
            members["state"] = .string(try await common.connect(name, client, within: timeout).state.rawValue)
        }

        /// Refuses a reload that would end or change other sessions: their file system may only be missing.
        private func checkReload(_ client: HoldfastClient) async throws {
            let preview = try await client.call(
                DaemonReloadMethod.self, .init(dryRun: true), timeout: CommonOptions.reloadTimeout)
            guard let others = ReloadText.others(preview, than: name) else { return }
            throw CommandFailure(
                .failed, "a reload would also \(others)", advice: "if that is meant: holdfastctl reload")
        }

        /// Whether there is no session that a new sessions.d could end. The daemon of the directory knows its sessions, also
        /// if the directory was moved, or its file system is missing. If it does not answer, what is there decides.
        private var isNewDirectory: Bool {
            get async {
                if let status = try? await common.client().call(
                    DaemonStatusMethod.self, .init(), timeout: CommonOptions.viewTimeout),
                    let directory = status.configurationDirectory,
                    Folder.resolved(directory) == Folder.resolved(place.configDirectory)
                {
                    return status.sessions.total == 0
                }
                return Folder.names(in: place.configDirectory)?.allSatisfy { $0 == "holdfast.toml" } == true
            }
        }

        private func tell(_ trial: Trial?) {
            guard !common.json else { return }
            let terminal = common.terminal
            var load = "holdfastctl reload"
            if case .impossible(let why, let isRunning)? = trial {
                terminal.print("The settings could not be tried: \(printable(why)).")
                if !isRunning { load = SocketAdvice(socket: common.socket).start }
            }
            if isTemplate, case .passed? = trial {
                terminal.print("The login was not tried, since each instance has its own.")
            } else if isComplete, !untried, trial == nil {
                terminal.print("The settings were not tried, since each instance has its own server.")
            }
            let edit = isComplete ? "" : "holdfastctl config edit \(name)\(place.option), then "
            let next = isTemplate ? "holdfastctl instance add \(name)INSTANCE\(place.option)" : load
            terminal.print("\(path) is written. Next: \(edit)\(next)")
        }

        // MARK: Trying

        private enum Trial {
            case passed(CheckRunMethod.Result)
            /// The daemon cannot try the settings. The reason is a sentence without the final full stop.
            case impossible(String, isRunning: Bool)
        }

        /// - Throws: when the daemon rejects the configuration, or no endpoint can be used with it.
        private func trial(of text: String) async throws -> Trial {
            // Each instance of a template logs in as somebody else; what is common to them is the way to the server.
            let wanted =
                isTemplate
                ? CheckRunMethod.Parameters(
                    session: "\(name)instance", until: .tls, configuration: text.replacing("%i", with: "instance"))
                : CheckRunMethod.Parameters(session: name, configuration: text)
            var result: CheckRunMethod.Result
            do {
                result = try await common.client().call(CheckRunMethod.self, wanted, timeout: nil)
            } catch ClientError.refused(let refusal) where refusal.known == .badConfiguration {
                throw CommandFailure(.failed, "\(refusal.message); \(path) is not written", advice: refusal.data?.hint)
            } catch {
                // The daemon is not running, or is older than this command.
                let isRunning = if case ClientError.notRunning = error { false } else { true }
                return .impossible(CommandFailure.sentence(of: error), isRunning: isRunning)
            }
            if askPassword { result.endpoints = result.endpoints.map(withoutSecretFile) }
            let terminal = common.terminal
            if !common.json {
                terminal.print(
                    CheckText.lines(
                        for: result, until: wanted.until, width: terminal.wrap, isColoured: terminal.isColoured))
            }
            guard result.endpoints.contains(where: \.ok) else {
                // The error has no room for the steps.
                if common.json {
                    terminal.print(
                        json: .object([
                            "file": .null, "endpoints": JSONText.value(result)["endpoints"] ?? .null,
                        ]))
                }
                throw CommandFailure(
                    .failed, "\(path) is not written: the check failed",
                    advice: "try again when this is corrected, or write the file nevertheless with --untried")
            }
            return .passed(result)
        }

        /// Returns the outcome with advice that does not name the file of the password: if the trial fails, it is gone.
        private func withoutSecretFile(_ endpoint: CheckedEndpoint) -> CheckedEndpoint {
            var endpoint = endpoint
            for index in endpoint.steps.indices {
                endpoint.steps[index].hint?.replace(
                    "the password in \(secret.path)", with: "the password that you gave")
            }
            return endpoint
        }
    }
}

/// A file that must not exist yet; it is created completely or not at all.
private struct NewFile {
    var path: String
    var place: ConfigCommand.Place

    private var folder: String { String(path.prefix(upTo: path.lastIndex(of: "/") ?? path.startIndex)) }
    private var name: Substring { path.dropFirst(folder.count + 1).dropLast(".toml".count) }

    /// - Parameter isNew: whether the configuration directory has no sessions yet. Only there, sessions.d may be made:
    ///   elsewhere it is missing, and with a new one a reload would end all other sessions.
    /// - Throws: when the file exists, or cannot be written.
    func checkPlace(isNew: Bool) throws(CommandFailure) {
        if access(path, F_OK) == 0 { throw failure(EEXIST) }
        if isNew, mkdir(folder, 0o755) == 0 { chmod(folder, 0o755) }
        guard access(folder, W_OK) == 0 else { throw failure(errno) }
    }

    func write(_ text: String) throws(CommandFailure) {
        // The daemon does not read files whose names begin with a dot.
        let draft = "\(folder)/.\(path.dropFirst(folder.count + 1)).\(getpid())"
        defer { unlink(draft) }
        // The daemon runs as another user, who must be able to read the file.
        if let code = OutputFile.create(draft, Array(text.utf8), mode: 0o644) { throw failure(code) }
        guard link(draft, path) == 0 else { throw failure(errno) }
    }

    private func failure(_ code: Int32) -> CommandFailure {
        switch code {
        case EEXIST:
            CommandFailure(
                .failed, "\(path) already exists",
                advice: "holdfastctl config edit \(name)\(place.option) changes it; or choose another name")
        case EACCES: CommandFailure(.notPermitted, "\(path) cannot be written", advice: "try again with sudo")
        case ENOENT:
            CommandFailure(
                .failed, "\(path) cannot be written: there is no folder \(folder)",
                advice: access(place.configDirectory, F_OK) == 0
                    ? "bring it back, or create it; a reload ends the sessions whose files are not in it"
                    : "is the package holdfast installed? --config-directory names another place")
        default: CommandFailure(.failed, "\(path) cannot be written: \(String(cString: strerror(code)))")
        }
    }
}

/// The configuration file of a new session.
struct SessionTemplate {
    /// The session's, or a template's. Where a setting is not given, the example has this name, so that no two files have
    /// the same user at the same server.
    var name: String
    var endpoints: [String]
    var user: String?
    var clientID: String?
    var password: String?
    var isInsecure = false
    var ca: String?
    var certificate: String?
    var key: String?

    private var tls: String {
        let values = [("ca", ca), ("certificate", certificate), ("key", key)]
        guard values.contains(where: { $1 != nil }) else {
            return """
                # [tls]
                # ca = "/etc/holdfast/ca.pem"
                # certificate = "/etc/holdfast/\(name.prefix { $0 != "@" }).crt"
                # key = "/etc/holdfast/\(name.prefix { $0 != "@" }).key"
                """
        }
        return (["[tls]"] + values.compactMap { name, path in path.map { "\(name) = \(Self.quoted($0))" } })
            .joined(separator: "\n")
    }

    var text: String {
        let word = name.prefix { $0 != "@" }
        let servers = endpoints.isEmpty ? ["mqtts://\(word).example:8883"] : endpoints
        let login = user ?? (name.hasSuffix("@") ? "\(word)-%i" : name)
        let reference = password.map { "password = \(Self.quoted($0))" }
        let insecure = isInsecure ? "\n# The password may be sent unencrypted.\ninsecure = true\n" : ""
        return """
            # A session; holdfast-session(5) explains every key, and example.toml.disabled has them all with their defaults.
            # After a change: holdfastctl config check, then holdfastctl reload.

            # The server, or several, in the order in which they are tried.
            endpoints = [\(servers.map(Self.quoted).joined(separator: ", "))]

            # The user of this session. With a password, it is the user name for the server; the client-id is the same,
            # unless it is set here.
            user = \(Self.quoted(login))
            \(clientID.map { "client-id = \(Self.quoted($0))" } ?? "# client-id = \"edge-42-main\"")

            # Where the password is, which is never written here: "file:PATH", "credential:NAME" or "exec:COMMAND".
            \(reference ?? "# password = \"file:/etc/holdfast/broker.secret\"")
            \(insecure)
            # The room to join, for topics that begin with ~/ and for presence.
            # room = "plant-7"

            # The certificates to trust, by default the system's, and the one of this host for a server that wants one.
            \(tls)

            """
    }

    private static let options = [
        "endpoints": "--endpoint", "user": "--user", "client-id": "--client-id", "password": "--password", "ca": "--ca",
        "certificate": "--certificate", "key": "--key",
    ]

    /// Returns an error of the file in terms of the options, since the file is not written; `nil` if no option is to
    /// blame.
    func complaint(about problem: ConfigurationProblem) -> String? {
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        guard let line = problem.line, lines.indices.contains(line - 1),
            let option = Self.options.first(where: { lines[line - 1].hasPrefix("\($0.key) = ") })?.value
        else { return nil }
        let message = Self.options.reduce(problem.message.replacing("insecure = true", with: "--insecure")) {
            $0.replacing("\($1.key) = ", with: "\($1.value) ")
        }
        return "\(option): \(message)"
    }

    /// Returns a text as a quoted TOML string.
    private static func quoted(_ text: String) -> String {
        var quoted = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"", "\\": quoted += "\\\(scalar)"
            case _ where !scalar.isPlain:
                let digits = String(scalar.value, radix: 16)
                quoted += "\\U" + String(repeating: "0", count: 8 - digits.count) + digits
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return "\"\(quoted)\""
    }
}
