import Glibc
import Support
import Synchronization
import Testing
import Vocabulary

@testable import Agent

/// Real files, watched by the kernel.
@Suite(.timeLimit(.minutes(10))) struct CredentialWatchTests {
    /// The versions of a file that were there when its watch reported.
    private final class Reports: Sendable {
        private let all = Mutex<[FileVersion?]>([])
        var versions: [FileVersion?] { all.withLock { $0 } }
        func add(_ version: FileVersion?) { all.withLock { $0.append(version) } }
    }

    /// Watches a file, makes a change, and checks that its version is reported, once.
    private func change(
        in scratch: CredentialScratch, at file: String = "token", last: FileVersion?, _ change: () throws -> Void
    ) async throws {
        let (path, reports) = ("\(scratch.path)/\(file)", Reports())
        let watch = try CredentialWatch([WatchedFiles([path], last: last)]) { reports.add(written(path)) }
        try change()
        try await until("the change is reported") { !reports.versions.isEmpty }
        let version = try #require(written(path))
        #expect(reports.versions == [version] && version != last)
        try scratch.write(file, "a version that nobody waits for")
        try await scratch.changeSomethingElse()
        #expect(reports.versions == [version])
        _ = consume watch
    }

    @Test func `sees a file that is replaced by a rename`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old")
        try await change(in: scratch, last: written(path)) {
            rename(try scratch.write("token.new", "new"), path)
        }
    }

    @Test func `sees a file that is written in place`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old")
        try await change(in: scratch, last: written(path)) { try scratch.write("token", "newer") }
    }

    @Test func `sees a file that was not there`() async throws {
        let scratch = try CredentialScratch()
        try await change(in: scratch, last: nil) { try scratch.write("token", "new") }
    }

    @Test func `sees a file that may be read now`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old", mode: 0)
        try await change(in: scratch, last: written(path)) { chmod(path, 0o600) }
    }

    @Test func `sees a link that is changed`() async throws {
        let scratch = try CredentialScratch()
        let path = "\(scratch.path)/token"
        symlink(try scratch.write("old", "old"), path)
        try await change(in: scratch, last: written(path)) {
            symlink(try scratch.write("new", "new"), "\(path).new")
            rename("\(path).new", path)
        }
    }

    @Test func `sees a change of the file that a link leads to`() async throws {
        let (scratch, elsewhere) = (try CredentialScratch(), try CredentialScratch())
        let path = "\(scratch.path)/token"
        symlink(try elsewhere.write("token", "old"), path)
        try await change(in: scratch, last: written(path)) { try elsewhere.write("token", "newer") }
    }

    @Test func `sees a change made before it started`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old")
        let last = written(path)
        rename(try scratch.write("token.new", "new"), path)
        try await change(in: scratch, last: last) {}
    }

    @Test func `ignores other files, and one that is still empty`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old")
        let reports = Reports()
        let watch = try CredentialWatch([WatchedFiles([path], last: written(path))]) { reports.add(written(path)) }
        try scratch.write("other", "new")
        try await scratch.changeSomethingElse()
        try scratch.write("token", "")
        try await scratch.changeSomethingElse()
        #expect(reports.versions.isEmpty)
        try scratch.write("token", "new")
        try await until("the change is reported") { !reports.versions.isEmpty }
        #expect(reports.versions == [written(path)])
        _ = consume watch
    }

    /// Systemd does this to a service's runtime directory, for example.
    @Test func `sees a file in a directory that is removed and made again`() async throws {
        let scratch = try CredentialScratch()
        mkdir("\(scratch.path)/agent", 0o700)
        let path = try scratch.write("agent/token", "old")
        try await change(in: scratch, at: "agent/token", last: written(path)) {
            unlink(path)
            rmdir("\(scratch.path)/agent")
            mkdir("\(scratch.path)/agent", 0o700)
            try scratch.write("agent/token", "new")
        }
    }

    @Test func `sees a file in a directory that takes the place of another`() async throws {
        let scratch = try CredentialScratch()
        let agent = "\(scratch.path)/agent"
        mkdir(agent, 0o700)
        let path = try scratch.write("agent/token", "old")
        try await change(in: scratch, at: "agent/token", last: written(path)) {
            mkdir("\(agent).new", 0o700)
            try scratch.write("agent.new/token", "new")
            rename(agent, "\(agent).old")
            rename("\(agent).new", agent)
        }
    }

    @Test(arguments: ["above the file's", "of a link"])
    func `sees a file when a directory on the way is replaced:`(which: String) async throws {
        let (scratch, elsewhere) = (try CredentialScratch(), try CredentialScratch())
        let app = "\(scratch.path)/app"
        for (directory, text) in [(app, "old"), ("\(app).new", "new")] {
            mkdir(directory, 0o700)
            if which == "of a link" {
                symlink(try elsewhere.write(text, text), "\(directory)/token")
            } else {
                mkdir("\(directory)/secrets", 0o700)
                try scratch.write("\(directory.dropFirst(scratch.path.count))/secrets/token", text)
            }
        }
        let file = which == "of a link" ? "app/token" : "app/secrets/token"
        try await change(in: scratch, at: file, last: written("\(scratch.path)/\(file)")) {
            rename(app, "\(app).old")
            rename("\(app).new", app)
        }
    }

    @Test func `sees a file in directories that were not there`() async throws {
        let scratch = try CredentialScratch()
        try await change(in: scratch, at: "run/agent/token", last: nil) {
            mkdir("\(scratch.path)/run", 0o700)
            mkdir("\(scratch.path)/run/agent", 0o700)
            try scratch.write("run/agent/token", "new")
        }
    }

    @Test func `sees a link among the directories that is changed`() async throws {
        let scratch = try CredentialScratch()
        for version in ["v1", "v2"] {
            mkdir("\(scratch.path)/\(version)", 0o700)
            try scratch.write("\(version)/token", version)
        }
        symlink("v1", "\(scratch.path)/current")
        try await change(in: scratch, at: "current/token", last: written("\(scratch.path)/current/token")) {
            symlink("v2", "\(scratch.path)/current.new")
            rename("\(scratch.path)/current.new", "\(scratch.path)/current")
        }
    }

    @Test func `sees a file where a link leads once its directory is there`() async throws {
        let scratch = try CredentialScratch()
        symlink("run/agent/token", "\(scratch.path)/token")
        try await change(in: scratch, last: nil) {
            mkdir("\(scratch.path)/run", 0o700)
            mkdir("\(scratch.path)/run/agent", 0o700)
            try scratch.write("run/agent/token", "new")
        }
    }

    @Test func `a path that leads nowhere is an error with a sentence`() {
        let name = String(repeating: "x", count: 300)
        #expect {
            _ = try CredentialWatch([WatchedFiles(["/\(name)/token"], last: nil)]) {}
        } throws: { error in
            (error as? Credential.Failure)?.description == "/\(name): File name too long"
        }
    }

    @Test func `of several files the first that exists is watched`() async throws {
        let scratch = try CredentialScratch()
        let paths = ["\(scratch.path)/absent/bundle", try scratch.write("bundle", "one")]
        let (last, reports) = (FileVersion(of: paths), Reports())
        try scratch.write("bundle", "two, before the watch began")
        let watch = try CredentialWatch([WatchedFiles(paths, last: last)]) { reports.add(FileVersion(of: paths)) }
        try await until("the change is reported") { !reports.versions.isEmpty }
        #expect(reports.versions != [last])
        _ = consume watch
    }

    /// A certificate and its key may be in different directories, and a password is something else again.
    @Test(arguments: ["password", "certificate", "key"])
    func `the change of any file is seen`(changed: String) async throws {
        let scratch = try CredentialScratch()
        for name in ["a", "b", "c"] { mkdir("\(scratch.path)/\(name)", 0o700) }
        let password = try scratch.write("a/password", "one")
        let pair = [try scratch.write("b/certificate", "one"), try scratch.write("c/key", "one")]
        let reports = Reports()
        let watch = try CredentialWatch([
            WatchedFiles([password], last: written(password)),
            WatchedFiles(pair, last: FileVersion(of: pair, skipsEmpty: true)),
        ]) { reports.add(nil) }
        let path = try #require(([password] + pair).first { $0.hasSuffix(changed) })
        try scratch.write(String(path.dropFirst(scratch.path.utf8.count + 1)), "other")
        try await until("the change is reported") { !reports.versions.isEmpty }
        _ = consume watch
    }

    @Test func `a version differs from every other of a file, and an empty file has none`() throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "one")
        let first = written(path)
        #expect(first == written(path))
        rename(try scratch.write("token.new", "two"), path)
        #expect(first != written(path))
        try scratch.write("token", "")
        #expect(written(path) == nil)
    }
}
