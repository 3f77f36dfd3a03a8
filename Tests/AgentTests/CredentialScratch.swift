import Glibc
import Session
import Support
import Vocabulary

@testable import Agent

/// A directory for secrets and helpers that lasts as long as one test.
final class CredentialScratch: Sendable {
    let path: String

    init() throws {
        path = try TemporaryDirectory().path
    }

    deinit { TemporaryDirectory.remove(path) }

    /// Writes a file, replacing an existing one.
    @discardableResult
    func write(_ name: String, _ text: String, mode: mode_t = 0o600) throws -> String {
        let file = "\(path)/\(name)"
        let descriptor = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
        guard descriptor >= 0 else { throw Failure() }
        defer { close(descriptor) }
        guard Glibc.write(descriptor, text, text.utf8.count) == text.utf8.count else { throw Failure() }
        return file
    }

    /// Writes a helper command: a shell script that knows its directory as `$here`.
    func helper(_ script: String) throws -> [String] {
        // A file that is open for writing cannot be executed, and a fork of another test may have it open; so the shell
        // reads it.
        ["/bin/sh", try write("helper", "here='\(path)'\n\(script)\n")]
    }

    func read(_ name: String) -> String? {
        (try? fileContents("\(path)/\(name)", atMost: 4096)).map { String(decoding: $0, as: UTF8.self) }
    }

    /// Returns the process ids in a file that a helper wrote, one per line.
    func processes(_ name: String) -> [pid_t] {
        (read(name) ?? "").split(separator: "\n").compactMap { pid_t($0) }
    }

    /// Changes a file that the test does not ask about, and returns when a watch has reported it. The kernel reports a
    /// change to all watches of a directory at once, so those of the test had their turn for what came before.
    func changeSomethingElse() async throws {
        let file = "\(path)/something-else"
        let (reports, continuation) = AsyncStream.makeStream(of: Void.self)
        let watch = try CredentialWatch([WatchedFiles([file], last: written(file))]) { continuation.finish() }
        try write("something-else", (read("something-else") ?? "") + "x")
        for await _ in reports {}
        _ = consume watch
    }

    struct Failure: Error {}
}

/// The version of a file that has something in it.
func written(_ path: String) -> FileVersion? { FileVersion(of: [path], skipsEmpty: true) }

/// Whether a process exists and is not a zombie.
func isRunning(_ process: pid_t) -> Bool {
    guard let bytes = try? fileContents("/proc/\(process)/stat", atMost: 1024) else { return false }
    let text = String(decoding: bytes, as: UTF8.self)
    guard let end = text.lastIndex(of: ")") else { return false }
    return text[end...].split(separator: " ").dropFirst().first != "Z"
}
