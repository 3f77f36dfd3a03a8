import Glibc
import Session
import Testing

@testable import Agent

/// Real files, watched by the kernel.
@Suite(.timeLimit(.minutes(10))) struct CredentialWatchTests {
    /// Waits until the watch reports a change, which `change` makes after the watch has started. Only a usable version
    /// that is not the last one may be reported.
    private func change(_ path: String, last: FileMark?, _ change: () throws -> Void) async throws {
        let (changes, continuation) = AsyncStream.makeStream(of: FileMark?.self)
        let watch = try CredentialWatch(path, last: last) { continuation.yield(FileMark(path)) }
        try change()
        var iterator = changes.makeAsyncIterator()
        let seen = await iterator.next()
        #expect(seen != .some(nil) && seen != .some(last))
        _ = consume watch
    }

    @Test func `sees a file that is replaced by a rename`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old")
        try await change(path, last: FileMark(path)) {
            rename(try scratch.write("token.new", "new"), path)
        }
    }

    @Test func `sees a file that is written in place`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old")
        try await change(path, last: FileMark(path)) { try scratch.write("token", "newer") }
    }

    @Test func `sees a file that was not there`() async throws {
        let scratch = try CredentialScratch()
        try await change("\(scratch.path)/token", last: nil) { try scratch.write("token", "new") }
    }

    @Test func `sees a file that may be read now`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old", mode: 0)
        try await change(path, last: FileMark(path)) { chmod(path, 0o600) }
    }

    @Test func `sees a link that is changed`() async throws {
        let scratch = try CredentialScratch()
        let path = "\(scratch.path)/token"
        symlink(try scratch.write("old", "old"), path)
        try await change(path, last: FileMark(path)) {
            symlink(try scratch.write("new", "new"), "\(path).new")
            rename("\(path).new", path)
        }
    }

    @Test func `sees a change of the file that a link leads to`() async throws {
        let (scratch, elsewhere) = (try CredentialScratch(), try CredentialScratch())
        let path = "\(scratch.path)/token"
        symlink(try elsewhere.write("token", "old"), path)
        try await change(path, last: FileMark(path)) { try elsewhere.write("token", "newer") }
    }

    @Test func `sees a change made before it started`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old")
        let last = FileMark(path)
        rename(try scratch.write("token.new", "new"), path)
        try await change(path, last: last) {}
    }

    @Test func `ignores other files, and one that is still empty`() async throws {
        let scratch = try CredentialScratch()
        let path = try scratch.write("token", "old")
        let last = FileMark(path)
        let (changes, continuation) = AsyncStream.makeStream(of: FileMark?.self)
        let watch = try CredentialWatch(path, last: last) { continuation.yield(FileMark(path)) }
        try scratch.write("other", "new")
        try scratch.write("token", "")
        try scratch.write("token", "new")
        var iterator = changes.makeAsyncIterator()
        // The first change that it reports is that of the file with contents.
        let seen = await iterator.next()
        #expect(seen != .some(nil) && seen != .some(last))
        _ = consume watch
    }

    @Test func `a directory that is not there is an error with a sentence`() {
        #expect {
            _ = try CredentialWatch("/nonexistent/token", last: nil) {}
        } throws: { error in
            (error as? Credential.Failure)?.description == "/nonexistent: No such file or directory"
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
