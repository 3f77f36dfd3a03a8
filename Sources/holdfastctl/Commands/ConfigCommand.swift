import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient

struct ConfigCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "config",
        abstract: "Check or show the configuration; create, edit or remove a session's file, or change its password.",
        subcommands: [Check.self, Show.self, Init.self, Edit.self, Password.self, Remove.self])

    /// The directory of the configuration files.
    struct Place: ParsableArguments {
        @Option(
            help: ArgumentHelp("Where holdfast.toml and sessions.d are.", valueName: "dir"), completion: .directory,
            transform: Folder.absolute)
        var configDirectory = Self.standard

        static let standard = "/etc/holdfast"

        /// The option as it follows another command in advice, with a blank; empty for the standard place.
        var option: String { configDirectory == Self.standard ? "" : " --config-directory \(configDirectory)" }

        /// Where the settings of a session may be: in its own file, or in its template's.
        func files(of session: String) -> [String] {
            let instance = session.drop { $0 != "@" }.dropFirst()
            let names = instance.isEmpty ? [session] : [session, String(session.dropLast(instance.count))]
            return names.map { "\(configDirectory)/sessions.d/\($0).toml" }
        }

        /// Returns the files of sessions, and of templates, that name this file in this directory.
        func files(naming file: String) throws(CommandFailure) -> [String] {
            let folder = "\(configDirectory)/sessions.d"
            var found: [String] = []
            for name in (Folder.names(in: folder) ?? []).sorted() where name.hasSuffix(".toml") {
                let text = String(decoding: try InputFile.read("\(folder)/\(name)"), as: UTF8.self)
                if text.contains(file.dropFirst(configDirectory.count)) { found.append("\(folder)/\(name)") }
            }
            return found
        }

        func hasNoFile(of session: String, _ configuration: EffectiveConfiguration) -> CommandFailure {
            CommandFailure(
                .failed, "there is no file for session \"\(session)\" in \(configDirectory)/sessions.d",
                advice: didYouMean(nearest(to: session, among: configuration.files.compactMap(\.session))))
        }
    }

    struct Check: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Check all files, and print every error with file, line and column. Works without the daemon.")

        @OptionGroup var common: CommonOptions
        @OptionGroup var place: Place

        func run() async throws {
            await common.tellDirectory(place)
            var configuration = try ConfigCommand.effective(place)
            // The service reads only this directory, so its credentials matter only here.
            if place.configDirectory == Place.standard {
                if let credentials = ServiceUnit.credentials {
                    configuration.errors += ConfigCommand.missing(credentials, in: configuration.files)
                }
                configuration.errors += ServiceUnit.missingCredentialFiles.map(ConfigCommand.noCredentialFile)
                let hidden = ServiceUnit.hiddenFolders
                configuration.errors += ConfigCommand.linked(into: hidden, configuration.files)
                configuration.errors += ConfigCommand.hidden(hidden, in: configuration.files)
                configuration.errors.sort { ($0.file, $0.line ?? 0) < ($1.file, $1.line ?? 0) }
            }
            let terminal = Terminal()
            if common.json {
                terminal.print(json: .object(["errors": JSONText.value(configuration.errors)]))
            } else if configuration.errors.isEmpty {
                terminal.print("The configuration in \(printable(place.configDirectory)) has no errors.")
            } else {
                common.complain(configuration.errors)
            }
            guard configuration.errors.isEmpty else { throw CommandFailure(.failed, "") }
        }
    }

    struct Show: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print every key with its value, and where it comes from.",
            discussion: """
                The files are read as the daemon would read them now. The running daemon may still use an older \
                configuration; "holdfastctl reload --dry-run" shows the difference. Secrets are omitted. Works without the \
                daemon.
                """)

        @OptionGroup var common: CommonOptions
        @OptionGroup var place: Place
        @Argument(help: "The session; without it, holdfast.toml and all of them.", completion: .sessions)
        var session: String?
        @Flag(help: "Omit keys that neither the file nor its preset sets.") var changed = false

        func run() async throws {
            await common.tellDirectory(place)
            let configuration = try ConfigCommand.effective(place)
            let files = configuration.files.filter { shows($0.session) }
            let errors = configuration.errors.filter { error in
                shows(error.session) || session.map { place.files(of: $0).contains(error.file) } == true
            }
            if let session, files.isEmpty, errors.isEmpty {
                if session.hasSuffix("@"), access(place.files(of: session)[0], F_OK) == 0 {
                    throw CommandFailure(
                        .failed, "\(session) is a template without instances, and only instances have values",
                        advice: "holdfastctl instance add \(session)INSTANCE\(place.option) adds one")
                }
                throw place.hasNoFile(of: session, configuration)
            }
            let shown = changed ? files.map(ConfigText.changed) : files
            let terminal = Terminal()
            if common.json {
                terminal.print(json: JSONText.value(EffectiveConfiguration(files: shown, errors: errors)))
            } else {
                let texts = shown.map(ConfigText.lines)
                terminal.print(table: Array(texts.joined(separator: [""])))
                common.complain(errors)
            }
            guard errors.isEmpty else { throw CommandFailure(.failed, "") }
        }

        /// Whether what belongs to a session, or to none, is wanted. A template stands for its instances.
        private func shows(_ name: String?) -> Bool {
            guard let session else { return true }
            return session.hasSuffix("@") ? name?.hasPrefix(session) == true : name == session
        }
    }

    /// Returns the effective configuration, as `holdfastd` reads it from the files.
    ///
    /// - Parameter draft: a folder to read instead.
    static func effective(_ place: Place, draft: String? = nil) throws(CommandFailure) -> EffectiveConfiguration {
        var words = [ExternalProgram.daemon, "--show", "--config-directory", draft ?? place.configDirectory]
        if geteuid() == 0, place.configDirectory == Place.standard { words += ["--as", ServiceUnit.user] }
        guard let result = ExternalProgram.output(of: words), !result.text.isEmpty else {
            throw CommandFailure(
                .failed, "holdfastd cannot be started", advice: "it reads the files; is the package holdfast installed?"
            )
        }
        do {
            let line = Array(result.text.utf8.prefix { $0 != UInt8(ascii: "\n") })
            return try ParameterDecoder.decodeLeniently(
                EffectiveConfiguration.self, from: JSONValue(parsing: line[...]))
        } catch {
            throw CommandFailure(
                .failed, "the output of holdfastd cannot be read: \(error)", advice: "compare: holdfastctl version")
        }
    }

    /// Returns an error for each file that the configuration refers to and that is in one of these folders.
    static func hidden(_ folders: [String], in files: [EffectiveConfiguration.File]) -> [ConfigurationProblem] {
        let keys: Set = [
            "password", "proxy.password", "tls.ca", "tls.certificate", "tls.key", "metrics.textfile",
        ]
        return files.flatMap { file in
            file.values.compactMap { value -> ConfigurationProblem? in
                guard keys.contains(value.key) else { return nil }
                let path = path(in: value.value.dropFirst().dropLast())
                guard let folder = folder(of: String(path), in: folders) else { return nil }
                let advice =
                    value.key == "metrics.textfile"
                    ? "name another folder, and let the service write to it with ReadWritePaths=- in a drop-in: "
                        + "sudo systemctl edit holdfast"
                    : path.hasPrefix("\(folder)/")
                        ? "move \(path) to \(value.value.hasPrefix("\"exec:") ? "/usr/local/bin" : Place.standard)"
                        : "\(path) is a link; put the file itself there"
                return ConfigurationProblem(
                    session: file.session, file: file.file, line: value.line, column: nil,
                    message: "the service does not see the files in \(folder): \(advice)")
            }
        }
    }

    /// Returns an error for each file of the configuration that is a link into one of these folders.
    static func linked(
        into folders: [String], _ files: [EffectiveConfiguration.File]
    ) -> [ConfigurationProblem] {
        files.compactMap { file in
            folder(of: file.file, in: folders).map {
                ConfigurationProblem(
                    session: file.session, file: file.file, line: nil, column: nil,
                    message: "this is a link into \($0), where the service sees no files: put the file itself here")
            }
        }
    }

    /// Returns the one of the folders that a path leads into.
    private static func folder(of path: String, in folders: [String]) -> String? {
        let target = Folder.resolved(path) ?? path
        return folders.first { target.hasPrefix("\($0)/") }
    }

    /// The file that a value names: itself, or that of a secret, or the program that prints the secret.
    private static func path(in value: Substring) -> Substring {
        if value.hasPrefix("exec:") { return value.dropFirst("exec:".count).prefix { $0 != " " } }
        return value.hasPrefix("file:") ? value.dropFirst("file:".count) : value
    }

    static func noCredentialFile(_ path: String) -> ConfigurationProblem {
        ConfigurationProblem(
            session: nil, file: path, line: nil, column: nil,
            message: "LoadCredential= of the service names this file, which does not exist, so the service cannot "
                + "start: create the file, or change what names it (sudo systemctl edit holdfast)")
    }

    /// Returns an error for each credential that a session refers to but the service does not get.
    static func missing(_ credentials: Set<String>, in files: [EffectiveConfiguration.File]) -> [ConfigurationProblem] {
        files.flatMap { file in
            file.values.compactMap { value in
                let prefix = "\"credential:"
                guard value.key.hasSuffix("password"), value.value.hasPrefix(prefix) else { return nil }
                let name = String(value.value.dropFirst(prefix.count).dropLast())
                // A directory gives credentials whose names begin with its own (systemd.exec(5), LoadCredential=).
                guard !credentials.contains(where: { name == $0 || name.hasPrefix("\($0)_") }) else { return nil }
                return ConfigurationProblem(
                    session: file.session, file: file.file, line: value.line, column: nil,
                    message:
                        "the service has no credential \"\(name)\"; add LoadCredential=\(name):/path in a "
                        + "drop-in: sudo systemctl edit holdfast")
            }
        }
    }
}

extension ConfigCommand {
    struct Remove: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "remove",
            abstract: "Remove a session's file, and make the daemon read its configuration again.",
            discussion: """
                This also removes the password that "config init --ask-password" has stored, unless another file names \
                it or the daemon does not read its configuration. Messages waiting in the session's outbox stay on disk, \
                and are sent if a session of that name and with one of the same servers is created again. "holdfastctl \
                queue" lists them, and "holdfastctl queue drop" removes them.
                """)

        @OptionGroup var common: CommonOptions
        @OptionGroup var place: Place
        @Argument(help: "The session.", completion: .sessions) var session: String

        private var folder: String { "\(place.configDirectory)/sessions.d" }
        private var path: String { "\(folder)/\(session).toml" }

        func validate() throws {
            guard SessionName(listed: session) != nil else { throw ValidationError(SessionName.rule(for: session)) }
        }

        func run() async throws {
            try await common.checkDirectory(place)
            let names = Folder.names(in: folder) ?? []
            if session.hasSuffix("@"), let link = names.first(where: isInstance) {
                let instance = link.dropLast(".toml".count)
                throw CommandFailure(
                    .failed, "\(session) is the template of \(instance)",
                    advice: "remove that first: holdfastctl instance remove \(instance)\(place.option)")
            }
            var status = stat()
            guard lstat(path, &status) == 0 else { throw failure(names) }
            let isLink = status.st_mode & S_IFMT == S_IFLNK
            guard !isLink || !session.contains("@") else {
                throw CommandFailure(
                    .failed, "\(path) is a link to a template",
                    advice: "holdfastctl instance remove \(session)\(place.option)")
            }
            let target = isLink ? Folder.resolved(path) : nil
            guard unlink(path) == 0 else { throw failure(names) }
            let rest = target.map { "; \($0), which it was a link to, stays" } ?? ""
            common.complain(Complaint(done: "\(path) is removed\(rest)"))
            do {
                try await common.reload(for: session)
            } catch {
                if access(secret, F_OK) == 0 {
                    common.complain(
                        Complaint(notice: "\(secret) stays: the daemon may still use it; remove it after a reload"))
                }
                throw error
            }
            try remove(secret)
        }

        /// The file in which "config init --ask-password" has stored the password.
        private var secret: String { "\(place.configDirectory)/\(session).secret" }

        /// Removes the password, unless another file names it.
        private func remove(_ secret: String) throws {
            guard access(secret, F_OK) == 0 else { return }
            if let other = try place.files(naming: secret).first {
                common.complain(Complaint(notice: "\(secret) stays: \(other) names it"))
            } else {
                unlink(secret)
            }
        }

        private func isInstance(_ name: String) -> Bool {
            name.hasPrefix(session) && name != "\(session).toml" && name.hasSuffix(".toml")
        }

        private func failure(_ names: [String]) -> CommandFailure {
            let code = errno
            switch code {
            case ENOENT:
                let template = session.prefix { $0 != "@" } + "@"
                if session.count > template.count, names.contains("\(template).toml") {
                    return CommandFailure(
                        .failed, "there is no file \(path)",
                        advice: "it may be listed in the key \"instances\" in \(template).toml; remove it there")
                }
                let sessions = names.filter { $0.hasSuffix(".toml") }.map { String($0.dropLast(".toml".count)) }
                return CommandFailure(
                    .failed, "there is no file \(path)", advice: didYouMean(nearest(to: session, among: sessions)))
            case EACCES, EPERM:
                return CommandFailure(.notPermitted, "\(path) cannot be removed", advice: "try again with sudo")
            default:
                return CommandFailure(.failed, "\(path) cannot be removed: \(String(cString: strerror(code)))")
            }
        }
    }
}

extension SessionName {
    /// Returns what to say about a text that is no name.
    static func rule(for text: String) -> String {
        let rule = "1 to 63 lower-case letters, digits and hyphens, and"
        return text.contains("@")
            ? "an instance is NAME@INSTANCE, where each part has \(rule) does not begin with a hyphen"
            : "a session's name has \(rule) does not begin with a hyphen"
    }
}

/// `config show` in words.
enum ConfigText {
    /// Returns only what the file itself says, or the preset that it names.
    static func changed(_ file: EffectiveConfiguration.File) -> EffectiveConfiguration.File {
        var file = file
        file.values.removeAll { $0.origin != .file && $0.origin != .preset }
        return file
    }

    /// Returns a configuration file with the same effect, whose comments say where each value comes from.
    static func lines(_ file: EffectiveConfiguration.File) -> [String] {
        let heading = file.session.map { "# session \($0): \(file.file)" } ?? "# \(file.file)"
        let rows = file.values.map { value in
            ["\(value.key) = \(value.value)", "# \(origin(value))"]
        }
        // A long value must not push all comments to the right.
        let width = rows.map { printable($0[0]).columns }.filter { $0 <= 48 }.max() ?? 0
        return [printable(heading)]
            + rows.map { row in
                let text = printable(row[0])
                return text + String(repeating: " ", count: max(width - text.columns, 0) + 2) + row[1]
            }
    }

    private static func origin(_ value: EffectiveValue) -> String {
        switch value.origin {
        case .file: value.line.map { "line \($0)" } ?? "the file"
        case .preset: "the preset"
        case .derived: value.key == "device" ? "the machine id" : "the user"
        case .default: "default"
        }
    }
}
