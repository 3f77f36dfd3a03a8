import Glibc
import Vocabulary

/// The file for a password that the user types in. Only the daemon may read it.
struct SecretFile {
    var path: String

    /// Reads one line, from the terminal without echo or from a pipe.
    ///
    /// - Parameter again: what to say on a terminal to have the line typed again; `nil`: once is enough.
    static func ask(_ question: String, again: String? = nil) throws(CommandFailure) -> [UInt8] {
        // The end of the line is not echoed either.
        let isTerminal = TerminalSettings.turnOff(ECHO, TCSAFLUSH, end: "\n", to: STDERR_FILENO)
        if isTerminal { Terminal.prompt(question) }
        defer { if isTerminal { TerminalSettings.restore() } }
        let secret = try line()
        guard !secret.isEmpty else { throw CommandFailure(.failed, "no password was given, so nothing was written") }
        if isTerminal, let again {
            Terminal.prompt("\n\(again)")
            guard try line() == secret else {
                throw CommandFailure(.failed, "the two passwords differ, so nothing was written")
            }
        }
        return secret
    }

    private static func line() throws(CommandFailure) -> [UInt8] {
        var bytes: [UInt8] = []
        while !bytes.contains(UInt8(ascii: "\n")) {
            let more = try InputFile.readSome()
            if more.isEmpty { break }
            bytes += more
        }
        return Array(bytes.prefix { $0 != UInt8(ascii: "\n") })
    }

    /// - Throws: when the file already exists.
    func checkPlace() throws(CommandFailure) {
        if access(path, F_OK) == 0 { throw failure(EEXIST) }
    }

    private func failure(_ code: Int32) -> CommandFailure {
        let isDenied = code == EACCES || code == EPERM
        return CommandFailure(
            isDenied ? .notPermitted : .failed, "\(path) cannot be written: \(String(cString: strerror(code)))",
            advice: isDenied
                ? "try again with sudo"
                : code == EEXIST ? "use it with --password file:\(path), or remove it" : nil)
    }

    /// Writes the file, which must not exist yet.
    func write(_ secret: [UInt8]) throws(CommandFailure) {
        if let code = OutputFile.create(path, secret, mode: 0o600, owner: Self.owner) { throw failure(code) }
    }

    /// - Throws: when the file cannot be replaced.
    func checkFolder() throws(CommandFailure) {
        guard access("\(Folder.of(Folder.resolved(path) ?? path))/", W_OK) == 0 else { throw failure(errno) }
    }

    /// Writes the file, or replaces it by one with the same owner and mode.
    func replace(with secret: [UInt8]) throws(CommandFailure) {
        if let code = OutputFile.replace(path, with: secret, mode: 0o600, owner: Self.owner) { throw failure(code) }
    }

    /// The service runs as its own user, which must own the file. Any other daemon runs as the user who writes the file.
    private static var owner: (user: uid_t, group: gid_t)? {
        // The unit's first group takes the place of the user's own.
        let names = ServiceUnit.user.split(separator: ":", maxSplits: 1)
        let group = names.dropFirst().first?.prefix { $0 != "," } ?? ""
        guard geteuid() == 0, let user = names.first.flatMap({ getpwnam(String($0)) }) else { return nil }
        return (user.pointee.pw_uid, getgrnam(String(group))?.pointee.gr_gid ?? user.pointee.pw_gid)
    }
}
