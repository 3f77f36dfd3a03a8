import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient

struct LogCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "log",
        abstract: "Show the daemon's journal entries, or show or set its log level.",
        discussion: """
            --level takes effect at once and lasts until the daemon is restarted or reads its configuration again; [log] \
            in holdfast.toml sets it permanently.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "Only entries about this session.", completion: .sessions) var session: String?
    @Flag(name: [.short, .long], help: "Keep printing new entries.") var follow = false
    @Option(name: [.customShort("n", allowingJoined: true), .long], help: "Show this many of the newest entries.")
    var lines = 50
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
            if session != nil || follow || explain || lines != 50 {
                throw ValidationError("--level is about the whole daemon, and cannot be combined with others")
            }
            guard Self.levels.contains(level) || level == "show" else {
                throw ValidationError("--level is one of \(Self.levels.joined(separator: ", ")) and show")
            }
        }
        guard lines >= 0 else { throw ValidationError("--lines must not be negative") }
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
        var words = ["journalctl", "--lines=\(lines)"] + matches
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
            Versions, states, history, network, metrics, the service and its drop-ins, the configuration without secrets, \
            and the last journal entries. \
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
        var report = BugReport()
        let client = common.client()
        report.add(
            "Versions",
            "holdfastctl \(Release.version)\n" + (ExternalProgram.output(of: ["uname", "-srm"])?.text ?? ""))
        // Each call separately: if one fails, the results of the others matter even more.
        await report.add("daemon.status", client, DaemonStatusMethod.self, NoParameters())
        await report.add("session.list", client, SessionListMethod.self, NoParameters())
        await report.add("network.status", client, NetworkStatusMethod.self, NoParameters())
        await report.add("session.history", client, SessionHistoryMethod.self, .init(limit: 200))
        await report.add("daemon.clients", client, DaemonClientsMethod.self, NoParameters())
        await report.add("daemon.metrics", client, DaemonMetricsMethod.self, NoParameters())
        for path in ["\(place.configDirectory)/holdfast.toml"] + sessionFiles() {
            if let bytes = try? InputFile.read(path) {
                let text = String(decoding: bytes, as: UTF8.self)
                report.add(path, BugReport.withoutSecrets(text, keys: BugReport.configurationKeys))
            }
        }
        if let state = ServiceUnit.state, let files = ServiceUnit.files {
            report.add("systemctl show holdfast", state)
            report.add("systemctl cat holdfast", BugReport.withoutSecrets(files))
        }
        let words = ["journalctl", "--lines=300", "--no-pager", "--output=short-iso", "--quiet"] + Journalctl.service
        let journal =
            Journalctl.obstacle.map { $0.lines.joined(separator: "\n") }
            ?? ExternalProgram.output(of: words)?.text ?? "journalctl cannot be started"
        report.add("Journal", journal.isEmpty ? "nothing" : journal)
        return report.text
    }

    private func sessionFiles() -> [String] {
        let folder = "\(place.configDirectory)/sessions.d"
        return (Folder.names(in: folder) ?? []).filter { $0.hasSuffix(".toml") }.sorted().map { "\(folder)/\($0)" }
    }
}

/// The parts of a report, each under its heading.
struct BugReport {
    private var parts: [String] = []
    /// Why the daemon cannot be asked. It is not asked again: each attempt may take its time.
    private var absence: ClientError?

    mutating func add(_ heading: String, _ text: String) {
        parts.append("==== \(heading)\n" + printableLines(text).joined(separator: "\n"))
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

    /// Omits whatever may contain a secret or a way to get one, such as a helper's command line with a token. This also
    /// applies to comments, where people keep earlier settings, and to systemd units.
    ///
    /// A file with errors may even contain the secret itself where a reference belongs.
    ///
    /// - Parameter keys: the keys, or the parts of their names between full stops, whose values are shown; `nil` for all.
    ///   What stands behind another word may be a password whose key is misspelled.
    static func withoutSecrets(_ text: String, keys: Set<String>? = nil) -> String {
        var shown: [String] = []
        // Inside a secret that spans several lines: returns whether it continues after the given line.
        var isRest: ((Substring) -> Bool)?
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
            if let isContinued = isRest {
                if !isContinued(line) { isRest = nil }
                continue
            }
            let line = SettingLine(line, keys: keys)
            shown.append(line.withoutSecrets)
            isRest = line.continuation
        }
        return shown.joined(separator: "\n")
    }

    /// The words of which the names of the configuration's keys consist, except those of secrets.
    static let configurationKeys: Set = [
        "access", "acknowledge", "authenticate", "authentication", "autoconnect", "ca", "certificate", "client-id",
        "control", "delays", "device", "dial", "durability", "endpoints", "give-up-after", "give-up-attempts",
        "formerly", "heartbeat", "idle-timeout", "inbox", "insecure", "instances", "interfaces", "interval", "jitter",
        "key",
        "kick", "level", "listen", "log", "lost-after", "max-age", "max-bytes", "max-messages", "maximum-packet-size",
        "message", "metered", "metrics", "minimum", "mqtt", "network", "observe", "on-demand", "on-suspend", "outbox",
        "presence", "preset", "proxy", "publish", "receive-maximum", "reconnect", "redirects", "restore", "room",
        "room-prefix", "server-name", "session-expiry", "spread", "stable-after", "subscribe", "textfile", "timeout",
        "timeouts", "tls", "topics", "types", "url", "user", "username", "version", "watch", "when-full",
    ]
}

/// A line of a TOML file or of a systemd unit.
private struct SettingLine {
    /// The line without its comment.
    private let setting: Substring
    /// The comment, including its `#`; empty for a line without a comment.
    private let comment: Substring
    /// The part of the setting that is outside quotes.
    private var unquoted = ""
    private let keys: Set<String>?

    init(_ line: Substring, keys: Set<String>?) {
        self.keys = keys
        var quote: Character?
        var isEscaped = false
        var end = line.endIndex
        for (index, character) in zip(line.indices, line) {
            if let open = quote {
                if character == open, !isEscaped { quote = nil }
                isEscaped = character == "\\" && open == "\"" && !isEscaped
                continue
            }
            if character == "#" {
                end = index
                break
            }
            if character == "\"" || character == "'" { quote = character } else { unquoted.append(character) }
        }
        // An unclosed quote may be an apostrophe, so a `#` after it may or may not begin a comment: all of it counts as
        // the setting.
        setting = line[..<end]
        comment = line[end...]
    }

    private static func isSuspicious(_ text: some StringProtocol) -> Bool {
        let text = text.lowercased()
        return ["passw", "passphrase", "secret", "token", "credential", "environment", "exec:"].contains {
            text.contains($0)
        }
    }

    /// The text before the first `=`; the whole setting if it has no `=`.
    private var key: Substring { setting.prefix { $0 != "=" } }

    private var hasSecret: Bool {
        Self.isSuspicious(key) || Self.isSuspicious(unquoted) || setting.contains("exec:") || hasUnknownKey(unquoted)
    }

    /// Whether a text has an `=` behind anything but a known key. A key in quotes counts as unknown.
    private func hasUnknownKey(_ text: some StringProtocol) -> Bool {
        guard let keys else { return false }
        return String(text).matches(of: /([A-Za-z0-9_.\-]*)[ \t]*=/).contains { match in
            !match.1.split(separator: ".", omittingEmptySubsequences: false).allSatisfy { keys.contains(String($0)) }
        }
    }

    private static func withoutLogins(_ text: Substring) -> String {
        // Also where the password has an @ or a slash, which such a URL must not have. A path with an @ behind a port is
        // left out as well: it looks the same.
        String(text.replacing(/:\/\/([^\/"'\s]*:[^"'\s]*|[^\/"'\s]*)@/, with: "://(left out)@"))
    }

    var withoutSecrets: String {
        if hasSecret { return setting.contains("=") ? "\(key)= (left out)" : "(left out)" }
        let hidesComment = Self.isSuspicious(comment) || hasUnknownKey(comment)
        return Self.withoutLogins(setting) + (hidesComment ? "# (left out)" : Self.withoutLogins(comment))
    }

    /// Returns, for each of the following lines, whether the secret continues after it; `nil` if it ends on this line.
    var continuation: ((Substring) -> Bool)? {
        guard hasSecret else { return nil }
        let value = setting.dropFirst(key.count + 1).drop { $0 == " " }
        if let quotes = ["\"\"\"", "'''"].first(where: value.hasPrefix), !value.dropFirst(3).contains(quotes) {
            return { !$0.contains(quotes) }
        }
        if value.hasPrefix("["), !value.contains("]") { return { !$0.contains("]") } }
        // A line of a unit that ends with a backslash continues on the next one that is no comment.
        guard value.hasSuffix("\\") else { return nil }
        return { line in line.hasSuffix("\\") || line.drop { $0 == " " }.first.map("#;".contains) == true }
    }
}
