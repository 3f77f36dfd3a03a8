import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient

struct LogCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "log",
        abstract: "Show the daemon's journal entries, or show or set its log level.",
        discussion: """
            --level takes effect at once and lasts until the daemon is restarted, or [log] in holdfast.toml is changed, \
            which sets it permanently. debug also shows what each attempt does: addresses, TLS and how it ends.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "Only entries about this session.", completion: .sessions) var session: String?
    @Flag(name: [.short, .long], help: "Keep printing new entries.") var follow = false
    @Option(
        name: [.customShort("n", allowingJoined: true), .long],
        help: "Show this many of the newest entries; 50 unless --since is given.")
    var lines: Int?
    @Option(
        help: ArgumentHelp(
            "Show the entries since then: a duration like 90min, or a time like \"2026-11-20 09:00\" or yesterday.",
            valueName: "since"))
    var since: SinceArgument?
    @Flag(name: [.customShort("x"), .long], help: "Explain each entry.") var explain = false
    @Option(
        help: ArgumentHelp(
            "Set the log level: trace, debug, info, notice, warning, error or critical; show only shows it.",
            valueName: "level"),
        completion: .list(levels + ["show"]))
    var level: String?

    private static let levels = ["trace", "debug", "info", "notice", "warning", "error", "critical"]

    func validate() throws {
        if let level {
            if session != nil || follow || explain || lines != nil || since != nil {
                throw ValidationError("--level is about the whole daemon, and cannot be combined with others")
            }
            guard Self.levels.contains(level) || level == "show" else {
                throw ValidationError("--level is one of \(Self.levels.joined(separator: ", ")) and show")
            }
        }
        // journalctl then shows the first lines since that time, or the last ones, depending on its version.
        guard lines == nil || since == nil else { throw ValidationError("--lines and --since cannot be combined") }
        guard lines ?? 0 >= 0 else { throw ValidationError("--lines must not be negative") }
    }

    func run() async throws {
        if let level {
            let level = level == "show" ? nil : level
            return try await common.show(DaemonLogLevelMethod.self, .init(level: level)) { result, terminal in
                terminal.print("The daemon writes entries of the level \(printable(result.level)) and above.")
            }
        }
        if let session { try await checkName(session) }
        if let obstacle = Journalctl.obstacle { throw obstacle }
        let matches = session.map { ["SYSLOG_IDENTIFIER=holdfastd", "HOLDFAST_SESSION=\($0)"] } ?? Journalctl.service
        let count = lines.map(String.init) ?? (since == nil ? "50" : "all")
        var words = ["journalctl", "--lines=\(count)"] + matches
        if let since { words.append("--since=@\(since.start(before: .now).rawValue / 1000)") }
        if follow { words.append("--follow") }
        if explain { words.append("--catalog") }
        if common.json { words.append("--output=json") }
        throw ExternalProgram.become(words)
    }

    /// Rejects an unknown name, which would otherwise look like a session without entries. A session that was removed
    /// may still have entries.
    private func checkName(_ session: String) async throws {
        let status = SessionStatusMethod.Parameters(session: session)
        do {
            _ = try await common.client().call(SessionStatusMethod.self, status, timeout: CommonOptions.answerTimeout)
        } catch ClientError.refused(let refusal) where refusal.known == .unknownSession {
            let words = ["journalctl", "SYSLOG_IDENTIFIER=holdfastd", "HOLDFAST_SESSION=\(session)"]
            let last = ExternalProgram.output(of: words + ["--lines=1", "--output=cat", "--quiet"])?.text ?? ""
            if last.isEmpty || Journalctl.obstacle != nil { throw ClientError.refused(refusal) }
        } catch {
            // The journal can be read even when the daemon cannot be asked.
        }
    }
}

/// The system's journal.
enum Journalctl {
    /// Matches for the daemon's entries, and for systemd's entries about its units, such as why the service failed.
    static let service = [
        "SYSLOG_IDENTIFIER=holdfastd", "+", "_SYSTEMD_UNIT=holdfast.service", "+", "_PID=1", "UNIT=holdfast.service",
        "+", "_PID=1", "UNIT=holdfast.socket",
    ]

    /// Why the journal cannot be read here; `nil` if it can. journalctl would only claim that there are no entries.
    static var obstacle: CommandFailure? {
        var isThere = false
        for folder in ["/var/log/journal", "/run/log/journal"] {
            for machine in Folder.names(in: folder) ?? [] {
                guard let files = Folder.names(in: "\(folder)/\(machine)") else {
                    isThere = true
                    continue
                }
                for file in files where file.hasPrefix("system") && file.hasSuffix(".journal") {
                    if access("\(folder)/\(machine)/\(file)", R_OK) == 0 { return nil }
                    isThere = true
                }
            }
        }
        guard isThere else {
            return CommandFailure(
                .failed, "there is no systemd journal here",
                advice: "for a daemon in a container, see: podman logs NAME, or docker logs NAME")
        }
        return CommandFailure(
            .notPermitted, "you may not read the system's journal",
            advice: "try again with sudo, or join its group with: sudo usermod -aG systemd-journal $USER, then log in "
                + "again")
    }
}

struct MetricsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "metrics", abstract: "Print the daemon's metrics, in the text format of OpenMetrics.")

    @OptionGroup var common: CommonOptions

    func run() async throws {
        try await common.show(DaemonMetricsMethod.self, NoParameters()) { metrics, terminal in
            terminal.write(Array(metrics.text.utf8))
        }
    }
}

struct BugreportCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bugreport",
        abstract: "Collect what is needed to diagnose a fault, without secrets.",
        discussion: """
            Versions, states, history, network, metrics, the service, the configuration without secrets, and the last \
            journal entries. \
            The report is shown; with --output it is also written to a file, on a terminal after a confirmation. It \
            contains servers, users, addresses and topics: read it before you pass it on.
            """)

    @OptionGroup var common: CommonOptions
    @OptionGroup var place: ConfigCommand.Place
    @Option(
        name: [.customShort("o", allowingJoined: true), .long],
        help: ArgumentHelp("Write it to this file.", valueName: "file"), completion: .file())
    var output: String?
    @Flag(help: "Write it without confirmation.") var yes = false

    func run() async throws {
        let terminal = Terminal()
        let report = await text()
        if common.json { terminal.print(json: .object(["report": .string(report)])) } else { terminal.print(report) }
        guard let output else { return }
        if !yes, terminal.isTerminal {
            Terminal.prompt("Write this to \(printable(output))? [y/N] ")
            guard readLine()?.lowercased().hasPrefix("y") == true else {
                throw CommandFailure(.failed, "nothing was written")
            }
        }
        // It has no secrets, but it says which servers the host talks to.
        try OutputFile.write(report + "\n", to: output, mode: 0o600)
    }

    private func text() async -> String {
        let client = common.client()
        var place = place
        // What is left out is what the files of this daemon name.
        if place.configDirectory == ConfigCommand.Place.standard,
            let directory = try? await client.call(DaemonStatusMethod.self, NoParameters()).configurationDirectory
        {
            place.configDirectory = directory
        }
        let configuration = try? ConfigCommand.effective(place)
        var report = BugReport(secrets: configuration.map(BugReport.secrets(of:)) ?? [])
        report.add("Versions", (["holdfastctl \(Release.version)"] + Self.system).joined(separator: "\n"))
        // Each call separately: if one fails, the results of the others matter even more.
        await report.add("daemon.status", client, DaemonStatusMethod.self, NoParameters())
        await report.add("session.list", client, SessionListMethod.self, NoParameters())
        await report.add("network.status", client, NetworkStatusMethod.self, NoParameters())
        await report.add("session.history", client, SessionHistoryMethod.self, .init(limit: 200))
        await report.add("daemon.clients", client, DaemonClientsMethod.self, NoParameters())
        await report.add("daemon.metrics", client, DaemonMetricsMethod.self, NoParameters())
        report.add("config show", self.configuration(in: place))
        if let state = ServiceUnit.state { report.add("systemctl show holdfast", state) }
        let words = ["journalctl", "--lines=300", "--no-pager", "--output=short-iso", "--quiet"] + Journalctl.service
        let journal =
            Journalctl.obstacle.map { $0.lines.joined(separator: "\n") }
            ?? ExternalProgram.output(of: words)?.text ?? "journalctl cannot be started"
        report.add("Journal", journal.isEmpty ? "nothing" : journal)
        return report.text
    }

    /// The versions of the kernel, of the distribution and of systemd.
    private static var system: [String] {
        let release = (try? InputFile.read("/etc/os-release")) ?? []
        let name = String(decoding: release, as: UTF8.self).split(separator: "\n").first {
            $0.hasPrefix("PRETTY_NAME=")
        }
        let systemd = ExternalProgram.output(of: ["systemctl", "--version"], isQuiet: true)?.text.split(separator: "\n")
            .first
        return [
            ExternalProgram.output(of: ["uname", "-srm"])?.text, name.map(String.init),
            systemd.map(String.init) ?? "no systemd",
        ].compactMap(\.self)
    }

    /// The effective configuration. The files themselves may have secrets anywhere: in comments, behind misspelled keys, in
    /// the place of a reference.
    private func configuration(in place: ConfigCommand.Place) -> String {
        do {
            let configuration = try ConfigCommand.effective(place)
            let lines = configuration.files.flatMap(ConfigText.lines) + configuration.errors.map(ReloadText.problem)
            return lines.joined(separator: "\n")
        } catch {
            return Ending(error).output
        }
    }
}

/// The parts of a report, each under its heading.
struct BugReport {
    private var parts: [String] = []
    /// Where passwords are kept, the longest first.
    private let secrets: [String]

    init(secrets: [String] = []) { self.secrets = secrets.sorted { $0.count > $1.count } }

    /// The paths and commands of the configuration that passwords come from. They are also in the hints of reasons.
    static func secrets(of configuration: EffectiveConfiguration) -> [String] {
        let references = configuration.files.flatMap(\.values).filter { $0.key.hasSuffix("password") }
        return Set(references.compactMap { (try? JSONValue(parsing: Array($0.value.utf8)[...]))?.text })
            .compactMap { reference in
                // The arguments of a command are left out already.
                let name = reference.replacing(" …", with: "").drop { $0 != ":" }.dropFirst()
                // The name of a credential may be any word.
                return name.contains("/") ? String(name) : reference.contains(":") ? reference : nil
            }
    }

    private func masked(_ text: String) -> String {
        secrets.reduce(text) { $0.replacing($1, with: "(left out)") }
    }
    /// Why the daemon cannot be asked. It is not asked again: each attempt may take its time.
    private var absence: ClientError?

    mutating func add(_ heading: String, _ text: String) {
        parts.append("==== \(heading)\n" + printableLines(masked(text)).joined(separator: "\n"))
    }

    mutating func add<Method: ControlMethod>(
        _ heading: String, _ client: HoldfastClient, _ method: Method.Type, _ parameters: Method.Parameters
    ) async {
        do {
            if let absence { throw absence }
            // The journal would report a call that is denied.
            if let role = method.role, let hello = try? await client.attach(), !hello.roles.contains(role) {
                return add(heading, "left out: it takes the role \(role.rawValue)")
            }
            let answer = try await client.callUndecoded(method, parameters, timeout: CommonOptions.answerTimeout)
            if case .string(let text)? = answer["text"] {
                add(heading, text)
            } else {
                add(heading, String(decoding: JSONText.line(answer), as: UTF8.self))
            }
        } catch {
            if let error = error as? ClientError, error.isAbsence { absence = error }
            add(heading, Ending(error).output)
        }
    }

    var text: String { parts.joined(separator: "\n\n") }
}
