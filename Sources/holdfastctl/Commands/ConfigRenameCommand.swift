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
                publications, durable consumers and history. Programs have to use the new name. The daemon must run. \
                Instances of a template cannot be renamed.
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
            try await common.checkDirectory(place)
            guard access(old, F_OK) == 0 else { throw failure(errno) }
            // The file has both names, because the command was ended before. It begins again.
            let wasHalfway = isMovedHalfway
            if wasHalfway { unlink(new) }
            guard access(new, F_OK) != 0 else { throw failure(EEXIST) }
            try await checkFree(wasHalfway: wasHalfway)
            try checkUnclaimed()
            try noteName()
            try move()
            common.complain(Complaint(done: "\(session) is called \(name) now"))
            // What was not done now is done by the next reload, or when the daemon starts.
            let result = try await common.reload(for: name)
            guard result?.absentSessions.contains(where: { $0.session == session }) == true else { return }
            throw CommandFailure(
                .failed, "\(name) does not continue \(session): an earlier session of that name has done so before",
                advice: "name the file \(session).toml again, without the key formerly, and choose another name")
        }

        /// Refuses a name that the daemon has a session or something on disk for: it would be the session's then. Only a
        /// daemon that runs knows that, and takes what is on disk to the new name at once.
        private func checkFree(wasHalfway: Bool) async throws {
            let client = common.client()
            let status = try await client.call(
                DaemonStatusMethod.self, NoParameters(), timeout: CommonOptions.answerTimeout)
            if status.absentSessions?.contains(where: { $0.session == name }) == true {
                throw CommandFailure(
                    .failed, "messages, consumers or publications of an earlier session \"\(name)\" are on disk",
                    advice: "choose another name, or remove them: holdfastctl queue drop \(name) --all --any-state")
            }
            if wasHalfway { return }
            let sessions = try await client.call(
                SessionListMethod.self, NoParameters(), timeout: CommonOptions.answerTimeout
            ).sessions
            guard sessions.contains(where: { $0.session == name }) else { return }
            throw CommandFailure(
                .failed, "the daemon still has a session \(name), whose file is gone",
                advice: "choose another name, or end that one: holdfastctl reload")
        }

        /// Refuses a name that another file has in its key `formerly`: it can be the earlier name of one session only.
        private func checkUnclaimed() throws {
            let others = try ConfigCommand.effective(place).files.filter {
                ![session, name].contains($0.session) && FormerNames.effective(in: $0).contains(session)
            }
            guard let other = others.first?.session else { return }
            throw CommandFailure(
                .failed, "\(session) keeps its name: \(other) was called \(session) before, too",
                advice:
                    "if status shows no error of \(other), remove \"\(session)\" from the key formerly of \(other), and "
                    + "try again")
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
            return FormerNames.effective(in: file)
        }

        private func replace(with bytes: [UInt8]) throws(CommandFailure) {
            guard let code = OutputFile.replace(old, with: bytes, mode: 0o644) else { return }
            throw failure(code)
        }

        private func move() throws(CommandFailure) {
            guard link(old, new) == 0 else { throw failure(errno) }
            unlink(old)
        }

        /// Whether both names are those of one file.
        private var isMovedHalfway: Bool {
            var (present, next) = (stat(), stat())
            return lstat(old, &present) == 0 && lstat(new, &next) == 0 && present.st_dev == next.st_dev
                && present.st_ino == next.st_ino
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
    /// Returns the names that the daemon reads in the session's file.
    static func effective(of session: String, _ place: ConfigCommand.Place) throws(CommandFailure) -> [String] {
        try ConfigCommand.effective(place).files.first { $0.session == session }.map(effective) ?? []
    }

    static func effective(in file: EffectiveConfiguration.File) -> [String] {
        let value = file.values.first { $0.key == "formerly" }?.value ?? "[]"
        return value.split(separator: "\"").enumerated().filter { $0.offset % 2 == 1 }.map { String($0.element) }
    }

    static func list(_ names: [String]) -> String { "[" + names.map { "\"\($0)\"" }.joined(separator: ", ") + "]" }

    /// Returns the text with this value of the key: in its present place, or else before the first key or table.
    static func adding(_ names: [String], to text: String) -> String {
        var bytes = Array(text.utf8)
        let value = Array(list(names).utf8)
        let isLineFeed = { (byte: UInt8) in byte == UInt8(ascii: "\n") }
        let isBlank = { (byte: UInt8) in byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
        var first: Int?
        var start = 0
        while start < bytes.count {
            let line = bytes[start...].prefix { !isLineFeed($0) }
            let words = line.drop(while: isBlank)
            if let byte = words.first, byte != UInt8(ascii: "#"), byte != UInt8(ascii: "\r") { first = first ?? start }
            if words.first == UInt8(ascii: "[") { break }
            let afterKey = words.dropFirst("formerly".utf8.count).drop(while: isBlank)
            if words.starts(with: "formerly".utf8), afterKey.first == UInt8(ascii: "=") {
                let old = bytes[(afterKey.startIndex + 1)...].drop(while: isBlank)
                bytes.replaceSubrange(old.startIndex..<endOfList(old), with: value)
                return String(decoding: bytes, as: UTF8.self)
            }
            start = line.endIndex + 1
        }
        let isCRLF = bytes.firstIndex(where: isLineFeed).map { $0 > 0 && bytes[$0 - 1] == UInt8(ascii: "\r") } ?? false
        let place = first ?? bytes.count
        let isInLine = place > 0 && !isLineFeed(bytes[place - 1])
        let added = (isInLine ? "\n" : "") + "formerly = \(list(names))" + (isCRLF ? "\r\n" : "\n")
        bytes.insert(contentsOf: added.utf8, at: place)
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Where a list of strings ends, which may have several lines, with comments.
    private static func endOfList(_ text: ArraySlice<UInt8>) -> Int {
        var quote: UInt8?
        var isComment = false
        for index in text.indices {
            let byte = text[index]
            switch byte {
            case UInt8(ascii: "\n"): isComment = false
            case _ where isComment: break
            case _ where quote != nil: if byte == quote { quote = nil }
            case UInt8(ascii: "\""), UInt8(ascii: "'"): quote = byte
            case UInt8(ascii: "#"): isComment = true
            case UInt8(ascii: "]"): return index + 1
            default: break
            }
        }
        return text.endIndex
    }
}
