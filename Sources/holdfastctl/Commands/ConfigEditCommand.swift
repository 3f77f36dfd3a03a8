import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient

extension ConfigCommand {
    struct Edit: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "edit",
            abstract: "Edit a session's file with $VISUAL or $EDITOR, and check it.",
            discussion: """
                The editor gets a copy. If the copy has errors, the command asks whether to edit it again, to discard it \
                or to keep it anyway; if it cannot ask, it discards the copy. The daemon uses the new contents only after \
                "holdfastctl reload". Works without the daemon.
                """)

        @OptionGroup var common: CommonOptions
        @OptionGroup var place: Place
        @Argument(help: "The session; without it, holdfast.toml.", completion: .sessions) var session: String?

        func run() async throws {
            let file = try file()
            let path = "\(place.configDirectory)/\(file)"
            let isNew = session == nil && access(path, F_OK) != 0 && errno == ENOENT
            // holdfast.toml is optional, and the editor may create it.
            try checkAccess(isNew ? place.configDirectory : path, to: path)
            let old = isNew ? nil : try InputFile.read(path)
            guard let draft = DraftConfiguration(of: file, in: place) else {
                throw CommandFailure(.failed, "no copy can be made: \(String(cString: strerror(errno)))")
            }
            var isKept = false
            defer { if !isKept { draft.remove() } }
            if let old { try OutputFile.write(old, to: draft.path) }
            // What cannot be checked afterwards need not be edited.
            _ = try draft.errors()
            while true {
                try startEditor(on: draft.path)
                // An editor may also remove the file.
                let new = access(draft.path, F_OK) == 0 ? try InputFile.read(draft.path) : nil
                let errors = try draft.errors()
                guard let new, new != old else { return try tell(path, isChanged: false, errors) }
                common.complain(errors)
                switch errors.isEmpty ? .keep : ask() {
                case .again: continue
                case .discard: throw CommandFailure(.failed, "\(path) is unchanged")
                case .keep:
                    do {
                        try OutputFile.write(new, to: path)
                    } catch {
                        isKept = true
                        throw CommandFailure(error.status, error.sentence, advice: "the edited copy is \(draft.path)")
                    }
                    return try tell(path, isChanged: true, errors)
                }
            }
        }

        private func startEditor(on path: String) throws(CommandFailure) {
            let variables: [String] = ["VISUAL", "EDITOR"]
            let editor = variables.compactMap { name in getenv(name).map { String(cString: $0) } }
                .first { !$0.isEmpty }
            // As in other tools, the variable holds a command for the shell.
            let status = ExternalProgram.run(["sh", "-c", "\(editor ?? "editor") \"$1\"", "sh", path])
            guard status == 0 else {
                throw CommandFailure(
                    .failed, "the editor failed, so nothing was changed",
                    advice: editor == nil ? "choose one: EDITOR=nano holdfastctl config edit" : nil)
            }
        }

        // MARK: Errors

        private enum Answer { case again, discard, keep }

        /// Asks what to do about errors.
        private func ask() -> Answer {
            guard isatty(STDIN_FILENO) == 1 else { return .discard }
            while true {
                Terminal.prompt("Edit again, discard the changes, or keep them anyway? [e/d/k] ")
                switch readLine()?.lowercased().first {
                case "e": return .again
                case "d", nil: return .discard
                case "k": return .keep
                default: break
                }
            }
        }

        private func tell(_ path: String, isChanged: Bool, _ errors: [ConfigurationProblem]) throws {
            let exists = access(path, F_OK) == 0
            if common.json {
                Terminal().print(
                    json: .object([
                        "file": .string(path), "changed": .bool(isChanged), "errors": JSONText.value(errors),
                    ]))
            } else if !exists {
                Terminal().print(wrapped: ["There is no \(path), so its keys have their defaults."])
            } else if !isChanged {
                common.complain(errors)
                Terminal().print(wrapped: ["\(path) is unchanged" + (errors.isEmpty ? ", and has no errors." : ".")])
            } else {
                let outcome =
                    errors.isEmpty ? "has no errors. Next: holdfastctl reload" : "is written, with its errors."
                Terminal().print(wrapped: ["\(path) \(outcome)"])
            }
            guard errors.isEmpty else { throw CommandFailure(.failed, "") }
        }

        // MARK: The file

        /// - Parameter existing: the file, or the directory if it is a new file.
        private func checkAccess(_ existing: String, to path: String) throws(CommandFailure) {
            guard access(existing, W_OK) != 0 else { return }
            let code = errno
            throw CommandFailure(
                code == EACCES ? .notPermitted : .failed,
                "\(path) cannot be written: \(String(cString: strerror(code)))",
                advice: code == EACCES
                    ? "try again with sudo"
                    : code == ENOENT ? "is the package holdfast installed? --config-directory names another place" : nil
            )
        }

        /// Returns the path below the configuration directory. An instance of a template is edited in the template, unless
        /// it has a file of its own.
        private func file() throws(CommandFailure) -> String {
            guard let session else { return "holdfast.toml" }
            guard SessionName(listed: session) != nil else { throw CommandFailure(.usage, SessionName.rule) }
            let parts = session.split(separator: "@", maxSplits: 1, omittingEmptySubsequences: false)
            let template = parts.count == 2 ? "\(parts[0])@" : nil
            let names = [session] + (template.map { [$0] } ?? [])
            let files = names.map { "sessions.d/\($0).toml" }
            guard let file = files.first(where: { access("\(place.configDirectory)/\($0)", F_OK) == 0 }) else {
                // An instance has no file that "config init" could create, only its template has.
                throw CommandFailure(
                    .failed,
                    "there is no \(template == nil ? "file" : "template") \(place.configDirectory)/\(files[files.count - 1])",
                    advice: "holdfastctl config init \(template ?? session)\(place.option) creates one")
            }
            return file
        }
    }
}
