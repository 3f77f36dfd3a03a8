import Glibc
import Session
import Support
import Synchronization
import Testing

@testable import Agent

/// Real files, watched by the kernel.
@Suite(.timeLimit(.minutes(10))) struct CredentialWatchTests {
    /// The versions of a file that were there when its watch reported.
    private final class Reports: Sendable {
        private let all = Mutex<[FileMark?]>([])
        var marks: [FileMark?] { all.withLock { $0 } }
        func add(_ mark: FileMark?) { all.withLock { $0.append(mark) } }
    }

    /// Watches a file, makes a change, and checks that its version is reported, once.
    private func change(
        in scratch: CredentialScratch, at file: String = "token", last: FileMark?, _ change: () throws -> Void
    ) async throws {
        let (path, reports) = ("\(scratch.path)/\(file)", Reports())
        let watch = try CredentialWatch(path, last: last) { reports.add(FileMark(path)) }
        try change()
        try await until("the change is reported") { !reports.marks.isEmpty }
        let mark = try #require(FileMark(path))
        #expect(reports.marks == [mark] && mark != last)
        try scratch.write(file, "a version that nobody waits for")
        try await scratch.changeSomethingElse()
        #expect(reports.marks == [mark])
        _ = consume watch
    }

    @Test func `sees a file that is replaced by a rename`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old")
        try await change(in: scratch, last: FileMark(path)) {
            rename(try scratch.write("token.new", "new"), path)
        }
    }

    @Test func `sees a file that is written in place`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old")
        try await change(in: scratch, last: FileMark(path)) { try scratch.write("token", "newer") }
    }

    @Test func `sees a file that was not there`() async throws {
        let scratch = try CredentialScratch()
        try await change(in: scratch, last: nil) { try scratch.write("token", "new") }
    }

    @Test func `sees a file that may be read now`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old", mode: 0)
        try await change(in: scratch, last: FileMark(path)) { chmod(path, 0o600) }
    }

    @Test func `sees a link that is changed`() async throws {
        let scratch = try CredentialScratch()
        let path = "\(scratch.path)/token"
        symlink(try scratch.write("old", "old"), path)
        try await change(in: scratch, last: FileMark(path)) {
            symlink(try scratch.write("new", "new"), "\(path).new")
            rename("\(path).new", path)
        }
    }

    @Test func `sees a change of the file that a link leads to`() async throws {
        let (scratch, elsewhere) = (try CredentialScratch(), try CredentialScratch())
        let path = "\(scratch.path)/token"
        symlink(try elsewhere.write("token", "old"), path)
        try await change(in: scratch, last: FileMark(path)) { try elsewhere.write("token", "newer") }
    }

    @Test func `sees a change made before it started`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old")
        let last = FileMark(path)
        rename(try scratch.write("token.new", "new"), path)
        try await change(in: scratch, last: last) {}
    }

    @Test func `ignores other files, and one that is still empty`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old")
        let reports = Reports()
        let watch = try CredentialWatch(path, last: FileMark(path)) { reports.add(FileMark(path)) }
        try scratch.write("other", "new")
        try await scratch.changeSomethingElse()
        try scratch.write("token", "")
        try await scratch.changeSomethingElse()
        #expect(reports.marks.isEmpty)
        try scratch.write("token", "new")
        try await until("the change is reported") { !reports.marks.isEmpty }
        #expect(reports.marks == [FileMark(path)])
        _ = consume watch
    }

    /// Systemd does this to a service's runtime directory, for example.
    @Test func `sees a file in a directory that is removed and made again`() async throws {
        let scratch = try CredentialScratch()
        mkdir("\(scratch.path)/agent", 0o700)
        let path = try scratch.write("agent/token", "old")
        try await change(in: scratch, at: "agent/token", last: FileMark(path)) {
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
        try await change(in: scratch, at: "agent/token", last: FileMark(path)) {
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
        try await change(in: scratch, at: file, last: FileMark("\(scratch.path)/\(file)")) {
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
        try await change(in: scratch, at: "current/token", last: FileMark("\(scratch.path)/current/token")) {
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
            _ = try CredentialWatch("/\(name)/token", last: nil) {}
        } throws: { error in
            (error as? Credential.Failure)?.description == "/\(name): File name too long"
        }
    }

    @Test func `a mark differs for each version of a file, and an empty file has none`() throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "one")
        let first = FileMark(path)
        #expect(first == FileMark(path))
        rename(try scratch.write("token.new", "two"), path)
        #expect(first != FileMark(path))
        try scratch.write("token", "")
        #expect(FileMark(path) == nil)
    }
}
