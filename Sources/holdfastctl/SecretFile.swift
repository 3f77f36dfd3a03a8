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
    func write(_ secret: [UInt8]) throws(CommandFailure) { try create(path, secret, like: nil) }

    /// The file itself, if the path is that of a link to it.
    private var target: String {
        guard let resolved = realpath(path, nil) else { return path }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    private func folder(of file: String) -> Substring { file.prefix(upTo: file.lastIndex(of: "/") ?? file.startIndex) }

    /// - Throws: when the file cannot be replaced.
    func checkFolder() throws(CommandFailure) {
        guard access("\(folder(of: target))/", W_OK) == 0 else { throw failure(errno) }
    }

    /// Writes the file, or replaces it by one with the same owner and mode. At any moment, it has the old contents or the
    /// new ones.
    func replace(with secret: [UInt8]) throws(CommandFailure) {
        let target = target
        var old = stat()
        let isThere = stat(target, &old) == 0
        let name = target.dropFirst(folder(of: target).count + 1)
        let draft = "\(folder(of: target))/.\(name).\(getpid())"
        UnfinishedFile.begin(draft)
        defer { UnfinishedFile.end() }
        try create(draft, secret, like: isThere ? old : nil)
        guard rename(draft, target) == 0 else {
            let code = errno
            unlink(draft)
            throw failure(code)
        }
    }

    private func create(_ file: String, _ secret: [UInt8], like old: stat?) throws(CommandFailure) {
        let descriptor = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw failure(errno) }
        defer { close(descriptor) }
        var isOwned = true
        if let old {
            isOwned =
                fchown(descriptor, old.st_uid, old.st_gid) == 0 && fchmod(descriptor, old.st_mode & 0o777) == 0
        } else if geteuid() == 0, let user = getpwnam("holdfast") {
            // The service runs as its own user, which must own the file. Any other daemon runs as the user who writes
            // the file.
            fchown(descriptor, user.pointee.pw_uid, user.pointee.pw_gid)
        }
        let code = isOwned ? writeAll(secret, to: descriptor) ?? (fsync(descriptor) == 0 ? nil : errno) : errno
        if let code {
            unlink(file)
            throw failure(code)
        }
    }
}
