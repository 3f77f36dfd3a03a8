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
            try await common.checkDirectory(place)
            let file = try file()
            if let session, !session.hasSuffix("@"), file.hasSuffix("@.toml") {
                let others = "a change applies to all of its instances"
                common.complain(Complaint(notice: "\(session) has its settings from the template \(file): \(others)"))
            }
            let path = "\(place.configDirectory)/\(file)"
            let isNew = session == nil && access(path, F_OK) != 0 && errno == ENOENT
            // The file is replaced by another one. holdfast.toml is optional, and the editor may create it.
            try checkAccess(Folder.of(Folder.resolved(path) ?? path), to: path)
            let old = isNew ? nil : try InputFile.read(path)
            guard let draft = DraftConfiguration(of: file, in: place) else {
                throw CommandFailure(.failed, "no copy can be made: \(String(cString: strerror(errno)))")
            }
            var isKept = false
            defer { if !isKept { draft.remove() } }
            if let old { try OutputFile.write(old, to: draft.path, mode: 0o600) }
            // What cannot be checked afterwards need not be edited.
            let known = try draft.allErrors()
            KeptFile.begin(printable("the edited copy is \(draft.path)"))
            while true {
                try startEditor(on: draft.path)
                // An editor may also remove the file.
                let new = access(draft.path, F_OK) == 0 ? try InputFile.read(draft.path) : nil
                let errors = try draft.errors(beside: known)
                guard let new, new != old else { return try tell(path, isChanged: false, errors) }
                common.complain(errors)
                switch errors.isEmpty ? .keep : ask() {
                case .again: continue
                case .discard: throw CommandFailure(.failed, "\(path) is unchanged")
                case .keep:
                    do {
                        try replace(path, from: old, with: new)
                    } catch {
                        isKept = true
                        throw CommandFailure(error.status, error.sentence, advice: "the edited copy is \(draft.path)")
                    }
                    return try tell(path, isChanged: true, errors)
                }
            }
        }

        /// - Parameter old: what the file had when it was copied for the editor; `nil`: there was no file.
        private func replace(_ path: String, from old: [UInt8]?, with new: [UInt8]) throws(CommandFailure) {
            let present = access(path, F_OK) == 0 ? try InputFile.read(path) : nil
            guard present == old else {
                throw CommandFailure(.failed, "\(path) was changed meanwhile, so it is not written")
            }
            // The daemon runs as another user, who must be able to read a new file.
            guard let code = OutputFile.replace(path, with: new, mode: 0o644) else { return }
            throw CommandFailure(.failed, "\(path) cannot be written: \(String(cString: strerror(code)))")
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
                    advice: editor == nil ? "choose one: \(choice)" : nil)
            }
        }

        /// The same command with an editor. sudo removes the variable from the environment.
        private var choice: String {
            let sudo = getenv("SUDO_USER") == nil ? "" : "sudo env "
            return "\(sudo)EDITOR=nano holdfastctl config edit\(session.map { " \($0)" } ?? "")\(place.option)"
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

        private func checkAccess(_ folder: String, to path: String) throws(CommandFailure) {
            guard access(folder, W_OK) != 0 else { return }
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
            guard SessionName(listed: session) != nil else {
                throw CommandFailure(.usage, SessionName.rule(for: session))
            }
            let parts = session.split(separator: "@", maxSplits: 1, omittingEmptySubsequences: false)
            let template = parts.count == 2 ? "\(parts[0])@" : nil
            let names = [session] + (template.map { [$0] } ?? [])
            let files = names.map { "sessions.d/\($0).toml" }
            guard let file = files.first(where: { access("\(place.configDirectory)/\($0)", F_OK) == 0 }) else {
                let known = (Folder.names(in: "\(place.configDirectory)/sessions.d") ?? [])
                    .filter { $0.hasSuffix(".toml") }.map { String($0.dropLast(".toml".count)) }
                // An instance has no file that "config init" could create, only its template has.
                throw CommandFailure(
                    .failed,
                    "there is no \(template == nil ? "file" : "template") \(place.configDirectory)/\(files[files.count - 1])",
                    advice: [
                        didYouMean(nearest(to: session, among: known)),
                        "holdfastctl config init \(template ?? session)\(place.option) creates one",
                    ].compactMap(\.self).joined(separator: " "))
            }
            // What a link within the folder leads to is edited under its own name, as a template is.
            let folder = Folder.resolved("\(place.configDirectory)/sessions.d") ?? ""
            guard let target = Folder.resolved("\(place.configDirectory)/\(file)"), Folder.of(target) == folder else {
                return file
            }
            return "sessions.d/\(target.dropFirst(folder.count + 1))"
        }
    }
}
