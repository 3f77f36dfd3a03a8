import ArgumentParser
import ControlAPI
import HoldfastClient

struct NetworkCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "network",
        abstract: "Show interfaces, the path to every endpoint, and the last changes.",
        discussion: "With --fields, one line is printed for each path.")

    @OptionGroup var common: CommonOptions
    @Flag(name: [.short, .long], help: "Show dates instead of durations.") var verbose = false
    @OptionGroup var selection: FieldOptions

    func validate() throws { try selection.check(with: common) }

    func run() async throws {
        try await common.show(NetworkStatusMethod.self, NoParameters(), selection, of: "paths") { status, terminal in
            terminal.print(
                table: NetworkText.lines(
                    for: status, times: Terminal.times(isAbsolute: verbose), width: terminal.wrap,
                    isColoured: terminal.isColoured))
        }
    }
}

struct ReloadCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "reload",
        abstract: "Make the daemon read its configuration again.",
        discussion: """
            Returns when the new configuration is in effect. Errors are listed, with exit code 1; a session whose file \
            has errors keeps its old configuration. --dry-run shows what would change, and changes nothing.
            """)

    @OptionGroup var common: CommonOptions
    @Flag(help: "Only show what would change.") var dryRun = false

    func run() async throws {
        let answer = try await common.client().callUndecoded(
            DaemonReloadMethod.self, .init(dryRun: dryRun ? true : nil), timeout: CommonOptions.reloadTimeout)
        let result = try decode(DaemonReloadMethod.Result.self, answer)
        let terminal = Terminal()
        if common.json {
            terminal.print(json: answer)
        } else {
            terminal.print(wrapped: ReloadText.lines(result, isDry: dryRun))
        }
        guard result.errors.isEmpty else {
            // With `--json`, the printed answer contains them.
            if !common.json { common.complain(result.errors) }
            throw CommandFailure(.failed, "")
        }
    }
}

extension CommonOptions {
    /// Refuses to change the files of the standard directory for a daemon that has another one, as a second daemon on
    /// this host has: the first one's sessions would change.
    func checkDirectory(_ place: ConfigCommand.Place) async throws(CommandFailure) {
        if let failure = await otherDirectory(than: place) { throw failure }
    }

    /// Says so if the daemon reads another directory. A daemon that does not run is not started for that, and one that does
    /// not answer within a second is not waited for.
    func tellDirectory(_ place: ConfigCommand.Place) async {
        let isStandard = (socket ?? HoldfastClient.defaultSocket) == SocketAdvice.standardPath
        guard place.configDirectory == ConfigCommand.Place.standard, !(isStandard && ServiceUnit.isStopped),
            let failure = await otherDirectory(than: place, within: .seconds(1))
        else { return }
        complain(Complaint(notice: [failure.sentence, failure.advice].compactMap(\.self).joined(separator: "; ")))
    }

    private func otherDirectory(
        than place: ConfigCommand.Place, within limit: Duration? = nil
    ) async -> CommandFailure? {
        guard place.configDirectory == ConfigCommand.Place.standard,
            let status = try? await client(patience: limit).call(
                DaemonStatusMethod.self, .init(), timeout: limit ?? Self.viewTimeout),
            let directory = status.configurationDirectory,
            Folder.resolved(directory) != Folder.resolved(place.configDirectory)
        else { return nil }
        return CommandFailure(
            .failed, "the daemon at this socket reads \(directory), and not \(place.configDirectory)",
            advice: "add --config-directory \(directory)")
    }

    /// Makes the daemon read its configuration again after a session's file was added or removed. Errors in the files
    /// of other sessions are listed, but are no failure.
    ///
    /// - Returns: `nil` if the daemon is not running.
    @discardableResult
    func reload(for session: String) async throws -> DaemonReloadMethod.Result? {
        let result: DaemonReloadMethod.Result
        do throws(ClientError) {
            result = try await client().call(DaemonReloadMethod.self, .init(), timeout: Self.reloadTimeout)
        } catch {
            guard case .notRunning = error else { throw error }
            complain(Complaint(notice: "the daemon is not running; the change takes effect when it starts"))
            return nil
        }
        if json { Terminal().print(json: JSONText.value(result)) }
        tell(result)
        guard result.errors.allSatisfy({ $0.session != nil && $0.session != session }) else {
            throw CommandFailure(.failed, "")
        }
        return result
    }

    /// Says what a reload did that was only a part of the command. With `--json`, the command prints the result itself.
    func tell(_ result: DaemonReloadMethod.Result) {
        if !json {
            Terminal().print(wrapped: [ReloadText.sentence(result)] + ReloadText.rest(result))
        }
        complain(result.errors)
    }
}

/// `reload` in words.
enum ReloadText {
    /// Returns what happened, or would happen, then the changed keys with their old and new values, and what servers may
    /// keep of sessions that ended.
    static func lines(_ result: DaemonReloadMethod.Result, isDry: Bool) -> [String] {
        var lines = [sentence(result, isDry: isDry)]
        var group: String?
        for change in result.changes {
            let file = change.session ?? "holdfast.toml"
            if file != group { lines.append(printable("  \(file)")) }
            group = file
            // The only key that a running daemon does not take.
            let needed = change.session == nil && change.key == "durability" ? ", once the service is restarted" : ""
            let overridden = change.overriddenBy.map { ", overridden by \($0) of holdfastd" } ?? ""
            lines.append(printable("    \(change.key): \(change.from) → \(change.to)\(needed)\(overridden)"))
        }
        return lines + rest(result)
    }

    /// What becomes of sessions that ended.
    static func rest(_ result: DaemonReloadMethod.Result) -> [String] {
        result.leftBehind.map { printable("  \($0.session) could not say goodbye to its server: \($0.message)") }
            + result.absentSessions.map { printable("  \($0.sentence)") }
    }

    static func sentence(_ result: DaemonReloadMethod.Result, isDry: Bool = false) -> String {
        let parts = [
            (isDry ? "change" : "changed", result.changed), (isDry ? "add" : "added", result.added),
            (isDry ? "remove" : "removed", result.removed),
        ].filter { !$0.1.isEmpty }.map { "\($0.0) \(listed($0.1))" }
        let daemon =
            result.changes.contains { $0.session == nil } ? [isDry ? "change the daemon" : "changed the daemon"] : []
        let isNothing = parts.isEmpty && daemon.isEmpty
        let effect =
            isNothing ? (isDry ? "change nothing" : "nothing changed") : (daemon + parts).joined(separator: "; ")
        let kept =
            result.kept.isEmpty
            ? ""
            : "; \(listed(result.kept)) \(result.kept.count == 1 ? "keeps its" : "keep their") old configuration"
        let count = result.errors.count
        let errors = count == 0 ? "" : "; \(count == 1 ? "1 error" : "\(count) errors")"
        return printable("\(isDry ? "A reload would" : "Reloaded:") \(effect)\(kept)\(errors).")
    }

    /// Returns what a reload would do to sessions that are up or listed, without this one; `nil` if nothing.
    static func others(_ preview: DaemonReloadMethod.Result, than session: String) -> String? {
        let parts = [("remove", preview.removed), ("change", preview.changed)].compactMap { verb, sessions in
            let others = sessions.filter { $0 != session }
            return others.isEmpty ? nil : "\(verb) \(listed(others))"
        }
        return parts.isEmpty ? nil : parts.joined(separator: ", and ")
    }

    /// `file:line:column: message`, the format that editors parse.
    static func problem(_ problem: ConfigurationProblem) -> String {
        let place = ([problem.file] + [problem.line, problem.column].compactMap { $0.map(String.init) })
        return printable("\(place.joined(separator: ":")): \(problem.message)")
    }
}

struct VersionCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "version", abstract: "Show the versions of this command and of the daemon.")

    @OptionGroup var common: CommonOptions

    func run() async throws {
        let terminal = Terminal()
        let hello: RPCHelloMethod.Result
        do {
            hello = try await common.client().attach()
        } catch {
            // This command's own version matters most when the daemon cannot be asked.
            if common.json {
                terminal.print(json: .object(["client": .string(Release.version), "daemon": .null]))
            } else {
                terminal.print("holdfastctl \(Release.version)")
            }
            throw error
        }
        if common.json {
            terminal.print(
                json: .object([
                    "client": .string(Release.version), "daemon": .string(hello.version),
                    "protocol": .integer(Int64(hello.protocol)),
                    "capabilities": .array(hello.capabilities.map(JSONValue.string)),
                    "roles": .array(hello.roles.map { .string($0.rawValue) }),
                ]))
        } else {
            let roles = hello.roles.isEmpty ? "do nothing" : hello.roles.map(\.rawValue).joined(separator: ", ")
            terminal.print("holdfastctl \(Release.version), holdfastd \(printable(hello.version)); you may \(roles).")
        }
    }
}
