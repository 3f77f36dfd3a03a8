import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient

extension ConfigCommand {
    struct Rename: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "rename",
            abstract: "Give a session another name, under which it continues.",
            discussion: """
                Adds the present name to the key "formerly" of the session's file, renames the file, and makes the daemon \
                read its configuration again. The session disconnects and connects again, with its messages, \
                publications, durable consumers and history. Programs have to use the new name. If the daemon does not \
                run, it does the same when it starts. Instances of a template cannot be renamed.
                """)

        @OptionGroup var common: CommonOptions
        @OptionGroup var place: Place
        @Argument(help: "The session.", completion: .sessions) var session: String
        @Argument(help: "Its new name: lower-case letters, digits and hyphens.") var name: String

        private var old: String { path(of: session) }
        private var new: String { path(of: name) }

        private func path(of session: String) -> String { "\(place.configDirectory)/sessions.d/\(session).toml" }

        func validate() throws {
            for name in [session, name] {
                guard let valid = SessionName(listed: name) else { throw ValidationError(SessionName.rule) }
                guard !valid.isTemplate, valid.instance == nil else {
                    throw ValidationError("templates and their instances cannot be renamed")
                }
            }
            if session == name { throw ValidationError("the session already has this name") }
        }

        func run() async throws {
            guard access(old, F_OK) == 0 else { throw failure(errno) }
            guard access(new, F_OK) != 0 else { throw failure(EEXIST) }
            try noteName()
            try move()
            common.complain(Complaint(done: "\(session) is called \(name) now"))
            // What was not done now is done by the next reload, or when the daemon starts.
            try await common.reload(for: name)
        }

        /// Writes the present name into the file, where it has no effect until the file is renamed.
        private func noteName() throws {
            let before = try effectiveNames()
            guard before.last != session else { return }
            let text = try InputFile.read(old)
            let names = before.filter { $0 != session } + [session]
            try replace(with: Array(FormerNames.adding(names, to: String(decoding: text, as: UTF8.self)).utf8))
            guard (try? effectiveNames()) == names else {
                try replace(with: text)
                throw CommandFailure(
                    .failed, "\(old) is unchanged: its key \"formerly\" cannot be changed here",
                    advice: "set it to \(FormerNames.list(names)), rename the file, and reload")
            }
        }

        /// The file's key `formerly`, as the daemon reads it.
        private func effectiveNames() throws(CommandFailure) -> [String] {
            let configuration = try ConfigCommand.effective(place)
            guard let file = configuration.files.first(where: { $0.session == session }) else {
                let errors = configuration.errors.filter { $0.session == session || $0.file == old }
                common.complain(errors)
                throw CommandFailure(.failed, "\(session) keeps its name: \(old) has errors")
            }
            let value = file.values.first { $0.key == "formerly" }?.value ?? "[]"
            return value.split(separator: "\"").enumerated().filter { $0.offset % 2 == 1 }.map { String($0.element) }
        }

        private func replace(with bytes: [UInt8]) throws(CommandFailure) {
            guard let code = OutputFile.replace(old, with: bytes, mode: 0o644) else { return }
            throw failure(code)
        }

        private func move() throws(CommandFailure) {
            guard link(old, new) == 0 else { throw failure(errno) }
            unlink(old)
        }

        private func failure(_ code: Int32) -> CommandFailure {
            switch code {
            case ENOENT:
                let names = (Folder.names(in: Folder.of(old)) ?? []).filter { $0.hasSuffix(".toml") }
                return CommandFailure(
                    .failed, "there is no file \(old)",
                    advice: didYouMean(nearest(to: session, among: names.map { String($0.dropLast(5)) })))
            case EEXIST: return CommandFailure(.failed, "\(new) already exists", advice: "choose another name")
            case EACCES, EPERM:
                return CommandFailure(.notPermitted, "\(old) cannot be renamed", advice: "try again with sudo")
            default: return CommandFailure(.failed, "\(old) cannot be renamed: \(String(cString: strerror(code)))")
            }
        }
    }
}

/// The key `formerly` in the text of a session's file.
enum FormerNames {
    static func list(_ names: [String]) -> String { "[" + names.map { "\"\($0)\"" }.joined(separator: ", ") + "]" }

    /// Returns the text with this value of the key: in its present place, or else before the first key or table.
    static func adding(_ names: [String], to text: String) -> String {
        let line = "formerly = \(list(names))"
        var lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        let words = lines.map { $0.drop { $0 == " " || $0 == "\t" } }
        let tables = words.firstIndex { $0.hasPrefix("[") } ?? words.endIndex
        if let place = words[..<tables].firstIndex(where: {
            $0.prefix { $0 != "=" && $0 != " " && $0 != "\t" } == "formerly"
        }) {
            lines[place] = line
        } else {
            let first = words.firstIndex { !$0.isEmpty && !$0.hasPrefix("#") && $0 != "\r" } ?? words.endIndex
            lines.insert(line, at: first)
        }
        return lines.joined(separator: "\n")
    }
}
